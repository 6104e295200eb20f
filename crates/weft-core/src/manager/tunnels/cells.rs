//! Messages between a tunnel and its legs.

use std::time::Instant;

use weft_cell::conflux_msg::Switch;
use weft_cell::mtor_msg::{SequenceNumber, unwrap_subdata, wrap_subdata};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{
    AtOrigin, AtRelay, FlowControl, RelayCommand, flow_control, is_multiplexed,
};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_planted::{Fault, planted};

use crate::address::{HalfAddr, HopIndex, StreamAddr};
use crate::circuit::half::{CircuitHalf, Role};
use crate::manager::{LocalConnectionManager, Notify};
use crate::message::{Control, EdgeControl, LaneMsg, LegCell};
use crate::slots::HalfKey;
use crate::tunnel::{Arrival, Choice, Legs, MAX_WAITING, Policy, Removed, SPAN, Stage, Tunnel};

impl LocalConnectionManager {
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
        let Some(half) = self.halves.get_mut(slot) else {
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
                self.pool.put(cell);
                let what = "a message of a stream that a leg of a tunnel does not carry";
                self.protocol_error(slot, what, now);
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
            self.pool.put(cell);
            let what = "a message of a stream on a leg that is not linked yet, or is given up";
            self.protocol_error(slot, what, now);
            return None;
        };
        let counted = flow_control(command) == FlowControl::Counted;
        if counted && !self.count_data(slot, hop, now) {
            self.pool.put(cell);
            return None;
        }
        if let Some(Role::Origin(origin)) = self.halves.get_mut(slot).map(|half| &mut half.role) {
            let data = RelayBody::new(cell.body()).data();
            origin.traffic.note_valid(data.map_or(0, <[u8]>::len));
        }
        let leg = self.halves.addr(slot);
        let half = self.halves.get_mut(slot);
        let (Some(leg), Some(side)) = (leg, half.and_then(|half| half.leg.as_deref_mut())) else {
            self.pool.put(cell);
            return None;
        };
        side.given += u64::from(!is_ack(command));
        let message = LegCell { tunnel, leg, cell };
        if self.outboxes.is_here(tunnel) {
            self.on_from_leg(message, now);
        } else {
            (self.outboxes).send_half_cell(tunnel, LaneMsg::FromLeg(message));
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
        if let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel)
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
        let slot = self.halves.slot(addr);
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            self.totals.cells_dropped += 1;
            return self.pool.put(cell);
        };
        let Some(numbered) = number_of(tunnel, leg, &mut cell) else {
            self.totals.cells_dropped += 1;
            return self.pool.put(cell);
        };
        let number = match numbered {
            Numbered::Message(number) => number,
            Numbered::Switched => return self.pool.put(cell),
            Numbered::Behind => return self.on_repeated(addr, cell, now),
            Numbered::Wrong => {
                self.pool.put(cell);
                let what =
                    "a CONFLUX_SWITCH or SUBDATA that cannot be parsed, or a number too far ahead";
                return self.protocol_error(slot, what, now);
            }
        };
        let mut next = match tunnel.reorder.arrived(number, cell, now) {
            Arrival::Next(cell) => Some(cell),
            Arrival::Kept => {
                let totals = &mut self.totals.tunnels;
                totals.reordered += 1;
                let waiting = (tunnel.reorder.len() * size_of::<Cell>()) as u64;
                totals.reorder_bytes_max = totals.reorder_bytes_max.max(waiting);
                None
            }
            Arrival::Repeated(cell) => return self.on_repeated(addr, cell, now),
            Arrival::TooMany(cell) => {
                self.pool.put(cell);
                self.totals.tunnels.overflowed += 1;
                let reason = DestroyReason::RESOURCELIMIT;
                return self.close_half(slot, reason, Notify::Both, now);
            }
        };
        while let Some(cell) = next {
            self.deliver_from_tunnel(slot, cell, now);
            // What was handed on may have ended the tunnel.
            let tunnel = self.halves.at(addr).and_then(CircuitHalf::as_tunnel);
            next = tunnel.and_then(|tunnel| tunnel.reorder.next(now));
        }
    }

    /// A message of a tunnel has arrived before: of mTor's it may have been sent again.
    fn on_repeated(&mut self, addr: HalfAddr, cell: Box<Cell>, now: Instant) {
        self.pool.put(cell);
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        if tunnel.policy == Policy::Conflux || !tunnel.note_repeated() {
            let what = "a message of a tunnel that has arrived before, or too many of these";
            return self.protocol_error(self.halves.slot(addr), what, now);
        }
        // The far end does not know that: its acknowledgement was lost.
        tunnel.acknowledged = 0;
    }

    /// Hands on a tunnel's next message: the table decides what is done with it.
    fn deliver_from_tunnel(&mut self, slot: HalfKey, cell: Box<Cell>, now: Instant) {
        let command = RelayCommand::of(RelayBody::new(cell.body()).command());
        let ours = (self.halves.get(slot)).is_some_and(
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
                    self.on_stream_asked(slot, opener, &cell, now);
                    return self.pool.put(cell);
                }
                _ => None,
            },
            (None, _) => None,
        };
        match message {
            Some(message) => self.on_stream_message(slot, HopIndex::ORIGIN, message, cell, now),
            None => {
                self.pool.put(cell);
                let what = "a message that this end of a tunnel does not take";
                self.protocol_error(slot, what, now);
            }
        }
    }

    // ---- what is sent ----

    /// Sends what waits, as far as legs have room: what must be sent again first, then what counts for no stream, then streams.
    pub(in crate::manager) fn package_tunnel(&mut self, slot: HalfKey, now: Instant) {
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(tunnel) = self.halves.get_mut(slot).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        let mut sent = std::mem::take(&mut self.scratch.to_legs);
        while let Some((choice, cell)) = tunnel.legs.next_again(&mut self.pool, now) {
            self.totals.tunnels.again += 1;
            sent.push((choice, cell));
        }
        let counted = tunnel.policy == Policy::Mtor;
        while tunnel.legs.takes(counted)
            && let Some(mut cell) = tunnel.waiting.pop()
        {
            match give(tunnel, &mut cell, counted, now) {
                Some(choice) => sent.push((choice, cell)),
                None => self.pool.put(cell),
            }
        }
        let (ends, mut table) = tunnel.streams.split();
        let Some(end) = ends.first_mut() else {
            self.scratch.to_legs = sent;
            return;
        };
        let credits = &mut self.scratch.credits;
        let (legs, policy) = (&mut tunnel.legs, tunnel.policy);
        while let Some((_, front)) = end.pending.front() {
            let command = RelayBody::new(front.body()).command();
            let ends_stream = flow_control(command) != FlowControl::Counted;
            // What conflux does not count goes at once; a message of mTor always counts. Whether the cell is still wanted is known
            // before a number is given to it.
            let counted = !ends_stream || policy == Policy::Mtor;
            if !legs.takes(counted) {
                break;
            }
            let Some((edge, mut cell)) = end.take() else {
                break;
            };
            let id = RelayBody::new(cell.body()).stream_id();
            let Some((credit, generation)) = table.leaving(id, edge, end) else {
                self.pool.put(cell);
                continue;
            };
            let Some(choice) = give_to(legs, policy, &mut cell, counted, now) else {
                // A leg took it above.
                self.pool.put(cell);
                continue;
            };
            if ends_stream {
                table.end_sent(id, legs.longest_rtt(), now);
            } else if credit > 0 {
                let stream = StreamAddr {
                    half: addr,
                    id,
                    generation,
                };
                credits.push((edge, stream, credit));
            }
            sent.push((choice, cell));
        }
        end.note(now);
        while let Some((edge, id, generation, credit)) = table.next_loan(end) {
            let stream = StreamAddr {
                half: addr,
                id,
                generation,
            };
            if credit > 0 {
                credits.push((edge, stream, credit));
            }
        }
        for (edge, stream, cells) in self.scratch.credits.drain(..) {
            self.outboxes.send(Control::Edge(EdgeControl::Credit {
                to: edge,
                stream,
                cells,
            }));
        }
        for (choice, cell) in sent.drain(..) {
            self.send_to_leg(addr, choice, cell, now);
        }
        self.scratch.to_legs = sent;
    }

    /// Sends a message of a tunnel's that counts for no stream.
    pub(in crate::manager) fn send_on_tunnel(
        &mut self,
        slot: HalfKey,
        mut cell: Box<Cell>,
        now: Instant,
    ) {
        let addr = self.halves.addr(slot);
        let tunnel = self.halves.get_mut(slot).and_then(CircuitHalf::as_tunnel);
        let (Some(addr), Some(tunnel)) = (addr, tunnel) else {
            return self.pool.put(cell);
        };
        let waits = !tunnel.waiting.is_empty() || !tunnel.legs.takes(false);
        if tunnel.policy == Policy::Mtor || waits {
            // Of mTor's it counts for its leg's window; without a leg that is linked any waits.
            if tunnel.waiting.len() >= MAX_WAITING {
                self.pool.put(cell);
                self.totals.tunnels.overflowed += 1;
                let reason = DestroyReason::RESOURCELIMIT;
                return self.close_half(slot, reason, Notify::Both, now);
            }
            tunnel.waiting.push(cell, now);
            return self.package_tunnel(slot, now);
        }
        match give(tunnel, &mut cell, false, now) {
            Some(choice) => self.send_to_leg(addr, choice, cell, now),
            None => self.pool.put(cell),
        }
    }

    /// Hands a message to the leg that was chosen, behind SWITCH where its number is not the leg's next.
    fn send_to_leg(&mut self, tunnel: HalfAddr, choice: Choice, cell: Box<Cell>, now: Instant) {
        let leg = choice.half;
        if let Some(relative) = choice.switch
            && !planted(Fault::SwitchLost)
        {
            let mut switch = self.pool.blank(0, ChanCmd::RELAY);
            let data = Switch { relative }.encode();
            let command = RelayCmd::CONFLUX_SWITCH;
            let encoded = relay::encode(switch.body_mut(), command, 0, &data, &mut self.rng);
            debug_assert!(encoded.is_ok(), "four bytes fit");
            self.totals.tunnels.switches += 1;
            let cell = switch;
            self.hand_to_leg(LegCell { tunnel, leg, cell }, now);
        }
        self.hand_to_leg(LegCell { tunnel, leg, cell }, now);
    }

    pub(super) fn hand_to_leg(&mut self, message: LegCell, now: Instant) {
        if self.outboxes.is_here(message.leg) {
            self.on_to_leg(message, now);
        } else {
            (self.outboxes).send_half_cell(message.leg, LaneMsg::ToLeg(message));
        }
    }

    /// A message of the tunnel's reaches a leg, which encrypts and queues it.
    pub(in crate::manager) fn on_to_leg(&mut self, message: LegCell, now: Instant) {
        let LegCell { tunnel, leg, cell } = message;
        let slot = self.halves.slot(leg);
        let command = RelayBody::new(cell.body()).command();
        let half = self.halves.at(leg);
        let side = half.and_then(|half| half.leg.as_deref_mut());
        // The far end of a leg that was given up has been sent how much came before.
        let side = side.filter(|side| side.tunnel == Some(tunnel) && !side.dropped);
        let Some(side) = side else {
            self.totals.cells_dropped += 1;
            return self.pool.put(cell);
        };
        let hop = side.hop;
        let counted = flow_control(command) == FlowControl::Counted;
        side.granted = side.granted.saturating_sub(u32::from(counted));
        side.taken += u64::from(command != RelayCmd::CONFLUX_SWITCH && !is_ack(command));
        if !self.seal_and_enqueue(slot, hop, cell, now) {
            return;
        }
        if counted {
            self.note_counted(slot, hop, now);
            self.offer_room(slot);
        }
    }
}

/// Whether a message is MTOR_ACK, which concerns the tunnel and has no number.
fn is_ack(command: RelayCmd) -> bool {
    command == RelayCommand::MtorAck.wire()
}

/// What a message of a leg's is to the tunnel.
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

/// Gives a message to a leg: its number, and of mTor a copy that is kept.
fn give(tunnel: &mut Tunnel, cell: &mut Cell, counted: bool, now: Instant) -> Option<Choice> {
    give_to(&mut tunnel.legs, tunnel.policy, cell, counted, now)
}

fn give_to(
    legs: &mut Legs,
    policy: Policy,
    cell: &mut Cell,
    counted: bool,
    now: Instant,
) -> Option<Choice> {
    let choice = legs.choose(counted)?;
    if policy == Policy::Mtor {
        // Edges leave room for the number; what we make ourselves is short.
        let wrapped = wrap_subdata(cell.body_mut(), SequenceNumber::of(choice.number));
        debug_assert!(wrapped.is_ok(), "there is room for the number");
        legs.keep(choice, cell, now);
    }
    Some(choice)
}
