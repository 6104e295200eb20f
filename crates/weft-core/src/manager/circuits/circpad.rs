//! PADDING_NEGOTIATE, and the padding that follows ([`crate::extensions::circpad`]).

use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::circpad_msg::{CircpadCommand, CircpadNegotiate};

use crate::address::{HalfAddr, HopIndex};
use crate::extensions::circpad::{Due, Kind, Machines, Stopped};
use crate::manager::path::CellPath;
use crate::slots::HalfKey;

/// Padding of a thread's circuits.
#[derive(Debug, Default)]
pub(in crate::manager) struct CircuitPaddings {
    pub(in crate::manager) machines: Machines,
}

impl CircuitPaddings {
    /// PADDING_NEGOTIATE: a padding machine is started or stopped.
    pub(in crate::manager) fn on_padding_negotiate(
        &mut self,
        path: &mut CellPath,
        slot: HalfKey,
        data: &[u8],
        now: Instant,
    ) {
        let Ok(asked) = CircpadNegotiate::decode(data) else {
            let what = "a PADDING_NEGOTIATE that cannot be parsed";
            return path.protocol_error(slot, what, now);
        };
        let (Some(half), Some(mark)) = (path.halves.addr(slot), path.halves.backward_mark(slot))
        else {
            return;
        };
        match (asked.command, Kind::of(asked.machine)) {
            (CircpadCommand::Start, Some(kind)) => {
                let is_new = self.machines.start(half, kind, mark);
                path.totals.circpad.started += u64::from(is_new);
                self.send_negotiated(path, slot, asked, true, now);
                if is_new && let Some(mark) = path.halves.backward_mark(slot) {
                    let may_send = may_pad(path);
                    let rng = &mut path.rng;
                    self.machines.begin(half, mark, may_send, rng, now);
                }
            }
            (CircpadCommand::Start, None) => {
                path.totals.circpad.refused += 1;
                self.send_negotiated(path, slot, asked, false, now);
            }
            (CircpadCommand::Stop, _) => {
                // A client that stops a machine which has ended by itself does not know yet: no answer, as in C tor.
                if self.machines.stop(half, asked.machine, asked.counter) == Stopped::Machine {
                    path.totals.circpad.stopped += 1;
                    self.send_negotiated(path, slot, asked, true, now);
                }
            }
        }
    }

    fn send_negotiated(
        &mut self,
        path: &mut CellPath,
        slot: HalfKey,
        asked: CircpadNegotiate,
        granted: bool,
        now: Instant,
    ) {
        let (command, data) = (RelayCmd::PADDING_NEGOTIATED, asked.answer(granted));
        path.send_relay_msg(slot, HopIndex::ORIGIN, command, 0, &data, now);
    }

    /// Sends the padding of circuits that is due.
    pub(in crate::manager) fn send_circpad(&mut self, path: &mut CellPath, now: Instant) {
        while let Some(half) = self.machines.take_due(now) {
            self.pad(path, half, now);
        }
    }

    /// The delay of a circuit's padding machine is over.
    fn pad(&mut self, path: &mut CellPath, half: HalfAddr, now: Instant) {
        let slot = path.halves.slot(half);
        let Some(mark) = path.halves.backward_mark(slot) else {
            return;
        };
        let due = self.machines.fire(half, mark);
        if due != Due::Wait {
            self.send_drop(path, slot, now);
        }
        match due {
            Due::Drop | Due::Wait => {
                if let Some(mark) = path.halves.backward_mark(slot) {
                    let may_send = may_pad(path);
                    let rng = &mut path.rng;
                    self.machines.wait(half, mark, may_send, rng, now);
                }
            }
            Due::LastDrop(ended) => {
                path.totals.circpad.ended += 1;
                if let Some((machine, counter)) = ended {
                    let command = CircpadCommand::Stop;
                    let end = CircpadNegotiate {
                        command,
                        machine,
                        counter,
                    };
                    self.send_negotiated(path, slot, end, true, now);
                }
            }
        }
    }

    /// DROP, unless much waits for the origin already.
    fn send_drop(&mut self, path: &mut CellPath, slot: HalfKey, now: Instant) {
        let bound = path.params.circpad.max_circ_queued_cells;
        let waiting = path.halves.get(slot).map_or(0, |half| half.queue.len());
        if waiting > bound {
            path.totals.circpad.drops_held += 1;
            return;
        }
        path.totals.circpad.drops_sent += 1;
        path.send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::DROP, 0, &[], now);
    }
}

/// True if the consensus lets padding machines send. Other cells are those that this thread has
/// relayed.
fn may_pad(path: &CellPath) -> bool {
    let drops = path.totals.circpad.drops_sent + path.totals.circpad.drops_held;
    (path.params.circpad).allows(drops, path.totals.cells_relayed)
}
