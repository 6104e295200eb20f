//! The load itself: relay cells that fill windows or follow a schedule, counted where they arrive.

use anyhow::{Result, bail, ensure};
use weft_cell::frame::{self, Frame};
use weft_cell::{CELL_LEN, CellView, ChanCmd};

use super::build::number_of;
use super::{Flow, Peer, Side, Stage, World};
use crate::bench::link::RECORD;
use crate::bench::{Direction, Mode};

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
            ChanCmd::DESTROY => self.on_destroy(number_of(cell.circ_id()).ok(), cell),
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
                let number = self.end(key)?.by_id.get(&cell.circ_id()).copied();
                self.on_destroy(number.map(|number| number as usize), cell)
            }
            ChanCmd::PADDING | ChanCmd::PADDING_NEGOTIATE => Ok(()),
            other => bail!("the target sent a next hop {other}"),
        }
    }

    /// A cell of the load has arrived: `up`, at the next hop.
    #[inline]
    fn arrived(&mut self, number: usize, up: bool, now: u64) -> Result<()> {
        let circuits = self.circuits.len() as u64;
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
        let took = match self.schedule {
            Some(schedule) => {
                let due = schedule.time_of(which * circuits + number as u64);
                Some(now.saturating_sub(self.run_at + due))
            }
            None => flow.times.arrived(which, now),
        };
        let activate = !flow.active && flow.may_send(self.plan.window, self.schedule.is_some());
        flow.active |= activate;
        if up {
            self.upload += 1;
        } else {
            self.download += 1;
        }
        if let Some(took) = took
            && self.stage == Stage::Measure
        {
            self.latencies.record(took);
        }
        if activate {
            self.activate(key, number);
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

    /// Lists a circuit with its link, if it may send in this direction and is not listed.
    fn offer(&mut self, number: usize, up: bool) {
        let wanted = match self.plan.direction {
            Direction::Both => true,
            Direction::Upload => up,
            Direction::Download => !up,
        };
        let Some(circuit) = self.circuits.get_mut(number).filter(|_| wanted) else {
            return;
        };
        let (flow, key) = if up {
            (&mut circuit.up, circuit.origin)
        } else {
            (&mut circuit.down, circuit.next)
        };
        if !flow.active && flow.may_send(self.plan.window, self.schedule.is_some()) {
            flow.active = true;
            self.activate(key, number);
        }
    }

    /// Releases the cells that are due by the schedule, one circuit after the other.
    pub(super) fn release(&mut self) {
        let (Some(schedule), Stage::Run | Stage::Measure, Mode::Cells) =
            (self.schedule, self.stage, self.plan.mode)
        else {
            return;
        };
        let circuits = self.circuits.len() as u64;
        let due = schedule.due(self.now().saturating_sub(self.run_at));
        while self.released < due && circuits > 0 {
            let number = (self.released % circuits) as usize;
            self.released += 1;
            if let Some(circuit) = self.circuits.get_mut(number) {
                circuit.up.due += 1;
                circuit.down.due += 1;
            }
            self.offer(number, true);
            self.offer(number, false);
        }
    }

    /// Encrypts one record of cells of the circuits that are listed with the link, in turn.
    pub(super) fn send_record(&mut self, key: usize) -> Result<()> {
        let now = self.now();
        let scheduled = self.schedule.is_some();
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
            if !scheduled {
                flow.times.sent(flow.sent, now);
            }
            flow.sent += 1;
            self.sent += 1;
            length += CELL_LEN;
            flow.active = flow.may_send(window, scheduled);
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
    /// Whether a further cell may go: the window is not full, and one is due.
    #[inline]
    fn may_send(&self, window: u64, scheduled: bool) -> bool {
        self.sent - self.arrived < window && (!scheduled || self.sent < self.due)
    }
}
