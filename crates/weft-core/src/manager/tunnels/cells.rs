//! Messages between a tunnel and its legs.

use std::time::Instant;

use weft_cell::conflux_msg::Switch;
use weft_cell::mtor_msg::unwrap_subdata;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::{
    AtOrigin, AtRelay, FlowControl, RelayCommand, flow_control, is_multiplexed,
};
use weft_cell::{Cell, RelayCmd};

use super::Tunnels;
use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{CircuitHalf, Role};
use crate::manager::path::closing::Notify;
use crate::manager::path::legs::is_ack;
use crate::message::{LaneMsg, LegCell};
use crate::slots::HalfKey;
use crate::tunnel::{Arrival, Policy, Removed, SPAN, Stage, Tunnel};

impl Tunnels<'_> {
    // ---- what arrives ----

    /// A relay message from the far end of a tunnel arrived on a leg. `None`: it is about the circuit, and the leg's own.
    pub(in crate::manager) fn take_leg_message(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        cell: Box<Cell>,
        now: Instant,
    ) -> Option<Box<Cell>> {
        let command = RelayBody::new(cell.body()).command();
        let Some(half) = self.path.halves.get_mut(slot) else {
            return Some(cell);
        };
        let Some(leg) = half.leg.as_deref().filter(|leg| leg.hop == hop) else {
            return Some(cell);
        };
        let (stage, tunnel, ours) = (leg.stage, leg.tunnel, matches!(half.role, Role::Origin(_)));
        let (policy, dropped) = (leg.kind.policy(), leg.dropped);
        let opens = matches!(
            command,
            RelayCmd::BEGIN | RelayCmd::BEGIN_DIR | RelayCmd::RESOLVE
        );
        let of_tunnel = match policy {
            Policy::Conflux => is_multiplexed(command) || command == RelayCmd::CONFLUX_SWITCH,
            Policy::Mtor => command == RelayCommand::Subdata.wire() || is_ack(command),
        };
        if !of_tunnel {
            if opens || is_multiplexed(command) {
                self.path.pool.put(cell);
                let what = "a message of a stream that a leg of a tunnel does not carry";
                self.path.protocol_error(slot, what, now);
                return None;
            }
            return Some(cell);
        }
        // The far end may send once it has our answer, or its own was answered; a client until it has sent MTOR_DROP.
        let may_send = match (stage, ours) {
            (Stage::Joining, _) | (Stage::Linking(_), true) => false,
            (Stage::Linking(_), false) | (Stage::Linked, _) => ours || !dropped,
        };
        let (Some(tunnel), true) = (tunnel, may_send) else {
            self.path.pool.put(cell);
            let what = "a message of a stream on a leg that is not linked yet, or is given up";
            self.path.protocol_error(slot, what, now);
            return None;
        };
        let counted = flow_control(command) == FlowControl::Counted;
        if counted && !self.streams().count_data(slot, hop, now) {
            self.path.pool.put(cell);
            return None;
        }
        if let Some(Role::Origin(origin)) =
            self.path.halves.get_mut(slot).map(|half| &mut half.role)
        {
            let data = RelayBody::new(cell.body()).data();
            origin.traffic.note_valid(data.map_or(0, <[u8]>::len));
        }
        let leg = self.path.halves.addr(slot);
        let half = self.path.halves.get_mut(slot);
        let (Some(leg), Some(side)) = (leg, half.and_then(|half| half.leg.as_deref_mut())) else {
            self.path.pool.put(cell);
            return None;
        };
        side.given += u64::from(!is_ack(command));
        let message = LegCell { tunnel, leg, cell };
        if self.path.outboxes.is_here(tunnel) {
            self.on_from_leg(message, now);
        } else {
            (self.path.outboxes).send_half_cell(tunnel, LaneMsg::FromLeg(message));
        }
        self.close_drained(slot, now);
        None
    }

    /// A message of a leg's far end reaches the tunnel, which hands on what is next.
    pub(in crate::manager) fn on_from_leg(&mut self, message: LegCell, now: Instant) {
        let (addr, leg) = (message.tunnel, message.leg);
        if is_ack(RelayBody::new(message.cell.body()).command()) {
            return self.on_mtor_ack(message, now);
        }
        self.take_from_leg(message, now);
        self.watch_pace(addr, leg, now);
        if let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel)
            && tunnel.legs.handled(leg) == Removed::End
        {
            self.end_without_leg(addr, now);
        }
    }

    fn take_from_leg(&mut self, message: LegCell, now: Instant) {
        let LegCell {
            tunnel: addr,
            leg,
            mut cell,
        } = message;
        let slot = self.path.halves.slot(addr);
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            self.path.totals.cells_dropped += 1;
            return self.path.pool.put(cell);
        };
        let Some(numbered) = number_of(tunnel, leg, &mut cell) else {
            self.path.totals.cells_dropped += 1;
            return self.path.pool.put(cell);
        };
        let number = match numbered {
            Numbered::Message(number) => number,
            Numbered::Switched => return self.path.pool.put(cell),
            Numbered::Behind => return self.on_repeated(addr, cell, now),
            Numbered::Wrong => {
                self.path.pool.put(cell);
                let what =
                    "a CONFLUX_SWITCH or SUBDATA that cannot be parsed, or a number too far ahead";
                return self.path.protocol_error(slot, what, now);
            }
        };
        let mut next = match tunnel.reorder.arrived(number, cell, now) {
            Arrival::Next(cell) => Some(cell),
            Arrival::Kept => {
                let totals = &mut self.path.totals.tunnels;
                totals.reordered += 1;
                let waiting = (tunnel.reorder.len() * size_of::<Cell>()) as u64;
                totals.reorder_bytes_max = totals.reorder_bytes_max.max(waiting);
                None
            }
            Arrival::Repeated(cell) => return self.on_repeated(addr, cell, now),
            Arrival::TooMany(cell) => {
                self.path.pool.put(cell);
                self.path.totals.tunnels.overflowed += 1;
                let reason = DestroyReason::RESOURCELIMIT;
                return self.path.close_half(slot, reason, Notify::Both, now);
            }
        };
        while let Some(cell) = next {
            self.deliver_from_tunnel(slot, cell, now);
            // What was handed on may have ended the tunnel.
            let tunnel = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel);
            next = tunnel.and_then(|tunnel| tunnel.reorder.next(now));
        }
    }

    /// A message of a tunnel has arrived before: of mTor's it may have been sent again.
    fn on_repeated(&mut self, addr: HalfAddr, cell: Box<Cell>, now: Instant) {
        self.path.pool.put(cell);
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        if tunnel.policy == Policy::Conflux || !tunnel.note_repeated() {
            let what = "a message of a tunnel that has arrived before, or too many of these";
            return self
                .path
                .protocol_error(self.path.halves.slot(addr), what, now);
        }
        // The far end does not know that: its acknowledgement was lost.
        tunnel.acknowledged = 0;
    }

    /// Hands on a tunnel's next message: the table decides what is done with it.
    fn deliver_from_tunnel(&mut self, slot: HalfKey, cell: Box<Cell>, now: Instant) {
        let command = RelayCommand::of(RelayBody::new(cell.body()).command());
        let ours = (self.path.halves.get(slot)).is_some_and(
            |half| matches!(&half.role, Role::Tunnel(tunnel) if tunnel.traffic.is_some()),
        );
        let rules = command.map(|known| known.rules());
        let message = match (rules, ours) {
            (Some(rules), true) => match rules.at_origin {
                AtOrigin::Stream(message) => Some(message),
                _ => None,
            },
            (Some(rules), false) => match rules.at_relay {
                AtRelay::Stream(message) => Some(message),
                AtRelay::Open(opener) => {
                    self.streams().on_stream_asked(slot, opener, &cell, now);
                    return self.path.pool.put(cell);
                }
                _ => None,
            },
            (None, _) => None,
        };
        match message {
            Some(message) => {
                self.streams()
                    .on_stream_message(slot, HopIndex::ORIGIN, message, cell, now)
            }
            None => {
                self.path.pool.put(cell);
                let what = "a message that this end of a tunnel does not take";
                self.path.protocol_error(slot, what, now);
            }
        }
    }

    // ---- what is sent ----
}

/// Meaning of a leg's message for the tunnel.
enum Numbered {
    /// The one with this number.
    Message(u64),
    /// SWITCH: the leg's next message has another number.
    Switched,
    /// It has arrived before.
    Behind,
    /// No honest far end sends it.
    Wrong,
}

/// The number of a message that arrived on a leg; one of mTor's is unwrapped. `None`: the leg may not send (any more).
fn number_of(tunnel: &mut Tunnel, leg: HalfAddr, cell: &mut Cell) -> Option<Numbered> {
    let body = RelayBody::new(cell.body());
    if tunnel.policy == Policy::Mtor {
        tunnel.legs.received(leg)?;
        let expected = tunnel.reorder.delivered() + 1;
        return Some(match unwrap_subdata(cell.body_mut()) {
            Ok(number) => match number.from_expected(expected) {
                Some(number) if number - expected >= SPAN => Numbered::Wrong,
                Some(number) => Numbered::Message(number),
                None => Numbered::Behind,
            },
            Err(_) => Numbered::Wrong,
        });
    }
    if body.command() != RelayCmd::CONFLUX_SWITCH {
        return tunnel.legs.received(leg).map(Numbered::Message);
    }
    let switch = body.data().ok().and_then(|data| Switch::decode(data).ok());
    // C tor sends one that skips nothing, if its first message is not for the leg that it thought of first.
    let known = switch.is_some_and(|switch| tunnel.legs.switched(leg, switch.relative));
    Some(if known {
        Numbered::Switched
    } else {
        Numbered::Wrong
    })
}
