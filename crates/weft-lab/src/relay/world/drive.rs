//! The load itself: relay cells that fill windows or follow a schedule, counted where they arrive.

use anyhow::{Result, bail, ensure};
use weft_cell::frame::{self, Frame};
use weft_cell::{CELL_LEN, CellView, ChanCmd};

use super::build::number_of;
use super::circuit::{CircuitEnd, Flow};
use super::ends::Side;
use super::orders::Stage;
use super::state::World;
use crate::relay::aim::Peer;
use crate::relay::latency::SAMPLE;
use crate::relay::link::RECORD;
use crate::relay::mode::{Direction, Mode};

/// The longest variable-length cell that may come (padding).
const MAX_VARIABLE: usize = 4096;
/// The command byte of a relay cell.
const RELAY: u8 = 3;

impl World {
    /// Takes the cells of an open link; how many bytes they were.
    pub(super) fn on_cells(&mut self, key: usize, bytes: &[u8]) -> Result<usize> {
        let side = self.end(key)?.side;
        // One reading of the clock for all that came at once.
        let now = self.now();
        let mut used = 0;
        while let Some((frame, length)) =
            frame::next(bytes.get(used..).unwrap_or_default(), MAX_VARIABLE)?
        {
            used += length;
            if let Frame::Fixed(cell) = frame {
                match side {
                    Side::Origin => self.on_origin_cell(key, cell, now)?,
                    Side::NextHop(_) => self.on_next_hop_cell(key, cell, now)?,
                }
            }
        }
        Ok(used)
    }

    #[inline]
    fn on_origin_cell(&mut self, key: usize, cell: CellView<'_>, now: u64) -> Result<()> {
        match cell.command() {
            ChanCmd::RELAY => {
                let number = number_of(cell.circ_id())?;
                let circuit = self.circuits.get_mut(number);
                match circuit {
                    Some(circuit) if circuit.build.is_none() => self.arrived(number, false, now),
                    _ => self.on_extended(number, cell),
                }
            }
            ChanCmd::CREATED2 if self.plan.mode == Mode::Onionskins => self.on_onionskin(key, cell),
            ChanCmd::CREATED2 => {
                let number = number_of(cell.circ_id())?;
                match self.plan.peer {
                    Peer::Pipe(_) => self.on_announced(number),
                    Peer::Relay(_) => self.on_created(number, cell),
                }
            }
            ChanCmd::DESTROY if self.plan.mode == Mode::Onionskins => bail!(
                "the target refused a CREATE2 after {} circuits (reason {})",
                self.events,
                weft_cell::reason::DestroyReason(cell.body()[0])
            ),
            ChanCmd::DESTROY => {
                let number = number_of(cell.circ_id()).ok();
                let number = number.filter(|number| self.has_id(*number, cell.circ_id()));
                self.on_destroy(number, cell)
            }
            ChanCmd::PADDING => Ok(()),
            other => bail!("the target sent a client {other}"),
        }
    }

    #[inline]
    fn on_next_hop_cell(&mut self, key: usize, cell: CellView<'_>, now: u64) -> Result<()> {
        match cell.command() {
            ChanCmd::RELAY => {
                let id = cell.circ_id();
                let number = self.end(key)?.by_id.get(&id).copied();
                match number {
                    Some(number) => self.arrived(number as usize, true, now),
                    None => bail!(
                        "the target sent a next hop a cell of circuit {id:#x}, which it had not created"
                    ),
                }
            }
            ChanCmd::CREATE2 => self.on_create(key, cell),
            ChanCmd::DESTROY => {
                let number = self.end(key)?.by_id.remove(&cell.circ_id());
                match number.map(|number| number as usize) {
                    Some(number) if self.is_destroyed(number) => self.vacate(number),
                    number => self.on_destroy(number, cell),
                }
            }
            ChanCmd::PADDING | ChanCmd::PADDING_NEGOTIATE => Ok(()),
            other => bail!("the target sent a next hop {other}"),
        }
    }

    /// A cell of the load has arrived: `up`, at the next hop.
    #[inline]
    fn arrived(&mut self, number: usize, up: bool, now: u64) -> Result<()> {
        let paced = self.is_paced();
        let Some(circuit) = self.circuits.get_mut(number) else {
            bail!("a circuit that is not there");
        };
        let (flow, key) = if up {
            (&mut circuit.up, circuit.origin)
        } else {
            (&mut circuit.down, circuit.next)
        };
        ensure!(
            flow.arrived < flow.sent,
            "the target sent more cells of a circuit than it got: {}",
            flow.sent
        );
        let which = flow.arrived;
        flow.arrived += 1;
        let took = match paced || which.is_multiple_of(SAMPLE) {
            true => flow.times.arrived(now),
            false => None,
        };
        let activate = !flow.active && flow.may_send(self.plan.window, paced);
        flow.active |= activate;
        let ends = circuit.end == CircuitEnd::Draining;
        if up {
            self.upload += 1;
        } else {
            self.download += 1;
        }
        if let Some(took) = took
            && self.stage == Stage::Measure
        {
            self.timed.cells.record(took);
        }
        if activate {
            self.activate(key, number);
        }
        if ends {
            self.destroy_if_drained(number)?;
        }
        Ok(())
    }

    fn activate(&mut self, key: usize, number: usize) {
        if let Some(end) = self.ends.get_mut(key) {
            end.active.push_back(number as u32);
        }
        self.mark(key);
    }

    /// Opens all windows.
    pub(super) fn activate_all(&mut self) {
        for number in 0..self.circuits.len() {
            for up in [true, false] {
                self.offer(number, up);
            }
        }
    }

    fn wants(&self, up: bool) -> bool {
        match self.plan.direction {
            Direction::Both => true,
            Direction::Upload => up,
            Direction::Download => !up,
        }
    }

    /// Lists a circuit with its link, if it may send in this direction and is not listed.
    fn offer(&mut self, number: usize, up: bool) {
        let (wanted, paced) = (self.wants(up), self.is_paced());
        let Some(circuit) = self.circuits.get_mut(number).filter(|_| wanted) else {
            return;
        };
        let (flow, key) = if up {
            (&mut circuit.up, circuit.origin)
        } else {
            (&mut circuit.down, circuit.next)
        };
        if !flow.active && flow.may_send(self.plan.window, paced) {
            flow.active = true;
            self.activate(key, number);
        }
    }

    /// Releases the cells that are due.
    pub(super) fn release(&mut self) -> Result<()> {
        let (Stage::Run | Stage::Measure, Mode::Cells) = (self.stage, self.plan.mode) else {
            return Ok(());
        };
        let now = self.now();
        self.follow_mix(now)?;
        let Some(schedule) = self.schedule else {
            return Ok(());
        };
        // One circuit after the other.
        let circuits = self.circuits.len() as u64;
        let due = schedule.due(now.saturating_sub(self.run_at));
        while self.released < due && circuits > 0 {
            let number = (self.released % circuits) as usize;
            let since = self.run_at + schedule.time_of(self.released);
            self.released += 1;
            for up in [true, false] {
                self.release_cells(number, up, 1, since, now);
            }
        }
        Ok(())
    }

    /// Adds cells of a circuit that have been due since `since`.
    pub(super) fn release_cells(
        &mut self,
        number: usize,
        up: bool,
        cells: u32,
        since: u64,
        now: u64,
    ) {
        let wanted = self.wants(up);
        let Some(circuit) = self.circuits.get_mut(number).filter(|_| wanted) else {
            return;
        };
        let flow = match up {
            true => &mut circuit.up,
            false => &mut circuit.down,
        };
        flow.due += u64::from(cells);
        flow.times.begin(since, cells);
        if self.stage == Stage::Measure {
            self.timed.late.record(now.saturating_sub(since));
        }
        self.offer(number, up);
    }

    /// Encrypts one record of cells of the circuits that are listed with the link, in turn.
    pub(super) fn send_record(&mut self, key: usize) -> Result<()> {
        if self.ends.get(key).is_none_or(|end| end.active.is_empty()) {
            return Ok(());
        }
        let now = self.now();
        let paced = self.is_paced();
        let window = self.plan.window;
        let Some(end) = self.ends.get_mut(key) else {
            return Ok(());
        };
        let up = end.side == Side::Origin;
        let mut length = 0;
        for cell in self.record.as_chunks_mut::<CELL_LEN>().0 {
            let Some(number) = end.active.pop_front() else {
                break;
            };
            let Some(circuit) = self.circuits.get_mut(number as usize) else {
                continue;
            };
            let (flow, id) = if up {
                (&mut circuit.up, circuit.origin_id)
            } else {
                (&mut circuit.down, circuit.next_id)
            };
            // In place: what is in the rest of the cell does not matter.
            let [c0, c1, c2, c3, command, ..] = cell;
            [*c0, *c1, *c2, *c3] = id.to_be_bytes();
            *command = RELAY;
            if !paced && flow.sent.is_multiple_of(SAMPLE) {
                flow.times.begin(now, 1);
            }
            flow.sent += 1;
            self.sent += 1;
            length += CELL_LEN;
            flow.active = flow.may_send(window, paced);
            if flow.active {
                end.active.push_back(number);
            }
        }
        debug_assert!(length <= RECORD);
        if length > 0 {
            end.link
                .encrypt(self.record.get(..length).unwrap_or_default())?;
        }
        Ok(())
    }
}

impl Flow {
    /// True if another cell may be sent: the window is not full, and one is due.
    #[inline]
    fn may_send(&self, window: u64, paced: bool) -> bool {
        self.sent - self.arrived < window && (!paced || self.sent < self.due)
    }

    /// Everything that was due has arrived.
    pub(super) fn is_drained(&self) -> bool {
        self.arrived == self.sent && self.sent >= self.due
    }
}
