//! PADDING_NEGOTIATE, and the padding that follows ([`crate::extensions::circpad`]).

use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::circpad_msg::{CircpadCommand, CircpadNegotiate};
use weft_crypto::circuit::BackwardMark;

use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::Role;
use crate::extensions::circpad::{Due, Kind, Stopped};
use crate::manager::LocalConnectionManager;
use crate::manager::audit::sure;
use crate::slots::HalfKey;

impl LocalConnectionManager {
    /// PADDING_NEGOTIATE: a padding machine is started or stopped.
    pub(in crate::manager) fn on_padding_negotiate(
        &mut self,
        slot: HalfKey,
        data: &[u8],
        now: Instant,
    ) {
        let Ok(asked) = CircpadNegotiate::decode(data) else {
            let what = "a PADDING_NEGOTIATE that cannot be parsed";
            return self.protocol_error(slot, what, now);
        };
        let (Some(half), Some(mark)) = (self.halves.addr(slot), self.backward_mark(slot)) else {
            return;
        };
        match (asked.command, Kind::of(asked.machine)) {
            (CircpadCommand::Start, Some(kind)) => {
                let is_new = self.circpad.start(half, kind, mark);
                self.totals.circpad.started += u64::from(is_new);
                self.send_negotiated(slot, asked, true, now);
                if is_new && let Some(mark) = self.backward_mark(slot) {
                    let may_send = self.may_pad();
                    let rng = &mut self.rng;
                    self.circpad.begin(half, mark, may_send, rng, now);
                }
            }
            (CircpadCommand::Start, None) => {
                self.totals.circpad.refused += 1;
                self.send_negotiated(slot, asked, false, now);
            }
            (CircpadCommand::Stop, _) => {
                // A client that stops a machine which has ended by itself does not know yet: no answer, as in C tor.
                if self.circpad.stop(half, asked.machine, asked.counter) == Stopped::Machine {
                    self.totals.circpad.stopped += 1;
                    self.send_negotiated(slot, asked, true, now);
                }
            }
        }
    }

    fn send_negotiated(
        &mut self,
        slot: HalfKey,
        asked: CircpadNegotiate,
        granted: bool,
        now: Instant,
    ) {
        let (command, data) = (RelayCmd::PADDING_NEGOTIATED, asked.answer(granted));
        self.send_relay_msg(slot, HopIndex::ORIGIN, command, 0, &data, now);
    }

    /// How far the backward direction of a half with this relay's keys has come.
    fn backward_mark(&self, slot: HalfKey) -> Option<BackwardMark> {
        match &self.halves.get(slot)?.role {
            Role::Backward(backward) => Some(backward.crypt.as_ref()?.backward_mark()),
            Role::Forward(_) | Role::Origin(_) | Role::Tunnel(_) => None,
        }
    }

    /// Whether padding machines may send by the consensus. Other cells are those that this thread has relayed.
    fn may_pad(&self) -> bool {
        let drops = self.totals.circpad.drops_sent + self.totals.circpad.drops_held;
        (self.params.circpad).allows(drops, self.totals.cells_relayed)
    }

    /// Sends the padding of circuits that is due.
    pub(in crate::manager) fn send_circpad(&mut self, now: Instant) {
        while let Some(half) = self.circpad.take_due(now) {
            self.pad(half, now);
        }
    }

    /// The delay of a circuit's padding machine is over.
    fn pad(&mut self, half: HalfAddr, now: Instant) {
        let slot = self.halves.slot(half);
        let Some(mark) = self.backward_mark(slot) else {
            return;
        };
        let due = self.circpad.fire(half, mark);
        if due != Due::Wait {
            self.send_drop(slot, now);
        }
        match due {
            Due::Drop | Due::Wait => {
                if let Some(mark) = self.backward_mark(slot) {
                    let may_send = self.may_pad();
                    let rng = &mut self.rng;
                    self.circpad.wait(half, mark, may_send, rng, now);
                }
            }
            Due::LastDrop(ended) => {
                self.totals.circpad.ended += 1;
                if let Some((machine, counter)) = ended {
                    let command = CircpadCommand::Stop;
                    let end = CircpadNegotiate {
                        command,
                        machine,
                        counter,
                    };
                    self.send_negotiated(slot, end, true, now);
                }
            }
        }
    }

    /// DROP, unless much waits for the origin already.
    fn send_drop(&mut self, slot: HalfKey, now: Instant) {
        let bound = self.params.circpad.max_circ_queued_cells;
        let waiting = self.halves.get(slot).map_or(0, |half| half.queue.len());
        if waiting > bound {
            self.totals.circpad.drops_held += 1;
            return;
        }
        self.totals.circpad.drops_sent += 1;
        self.send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::DROP, 0, &[], now);
    }

    /// Padding machines are of backward halves that live here.
    pub(in crate::manager) fn audit_circpad(&self) -> Result<(), String> {
        let live = |half| {
            let half = self.halves.peek(half);
            half.is_some_and(|half| matches!(half.role, Role::Backward(_)))
        };
        sure(
            self.circpad.halves().all(live),
            "padding machines are of circuits that live",
        )?;
        sure(
            self.circpad.audit(),
            "padding machines are listed by when they are due",
        )
    }
}
