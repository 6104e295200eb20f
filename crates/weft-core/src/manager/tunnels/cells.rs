//! Messages between a tunnel and its legs.

use std::time::{Duration, Instant};

use weft_cell::conflux_msg::Switch;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{
    AtOrigin, AtRelay, FlowControl, RelayCommand, flow_control, is_multiplexed,
};
use weft_cell::{Cell, ChanCmd, RelayCmd};

use crate::address::{HalfAddr, HopIndex, StreamAddr};
use crate::half::{CircuitHalf, Role};
use crate::manager::{LocalConnectionManager, Notify};
use crate::message::{Control, EdgeControl, HalfControl, LaneMsg, LegCell};
use crate::slots::HalfKey;
use crate::tunnel::{Arrival, LEG_BATCH, Removed, Room, Stage};

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
        let opens = matches!(
            command,
            RelayCmd::BEGIN | RelayCmd::BEGIN_DIR | RelayCmd::RESOLVE
        );
        if !is_multiplexed(command) && command != RelayCmd::CONFLUX_SWITCH {
            if opens {
                self.pool.put(cell);
                self.protocol_error(slot, "BEGIN_DIR on a leg of a tunnel", now);
                return None;
            }
            return Some(cell);
        }
        // The far end may send once it has our answer, or its own was answered.
        let may_send = match (stage, ours) {
            (Stage::Joining, _) | (Stage::Linking(_), true) => false,
            (Stage::Linking(_), false) | (Stage::Linked, _) => true,
        };
        let (Some(tunnel), true) = (tunnel, may_send) else {
            self.pool.put(cell);
            let what = "a message of a stream on a leg that is not linked yet";
            self.protocol_error(slot, what, now);
            return None;
        };
        if command == RelayCmd::DATA && !self.count_data(slot, hop, now) {
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
        side.given += 1;
        let message = LegCell { tunnel, leg, cell };
        if tunnel.thread == self.outboxes.me() {
            self.on_from_leg(message, now);
        } else {
            (self.outboxes).send_cell(tunnel.thread, LaneMsg::FromLeg(message));
        }
        None
    }

    /// A message of a leg's far end reaches the tunnel, which hands on what is next.
    pub(in crate::manager) fn on_from_leg(&mut self, message: LegCell, now: Instant) {
        let (addr, leg) = (message.tunnel, message.leg);
        self.take_from_leg(message, now);
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
            cell,
        } = message;
        let slot = addr.slot;
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            self.totals.cells_dropped += 1;
            return self.pool.put(cell);
        };
        let body = RelayBody::new(cell.body());
        if body.command() == RelayCmd::CONFLUX_SWITCH {
            let switch = body.data().ok().and_then(|data| Switch::decode(data).ok());
            // SWITCH that skips nothing is no honest peer's: a mark.
            let switch = switch.filter(|switch| switch.relative > 0);
            let known = switch.is_some_and(|switch| tunnel.legs.switched(leg, switch.relative));
            self.pool.put(cell);
            if !known {
                let what = "a CONFLUX_SWITCH that cannot be parsed, or skips nothing or too much";
                self.protocol_error(slot, what, now);
            }
            return;
        }
        let Some(number) = tunnel.legs.received(leg) else {
            self.totals.cells_dropped += 1;
            return self.pool.put(cell);
        };
        let mut next = match tunnel.reorder.arrived(number, cell, now) {
            Arrival::Next(cell) => Some(cell),
            Arrival::Kept => {
                self.totals.tunnels.reordered += 1;
                None
            }
            Arrival::Repeated(cell) => {
                self.pool.put(cell);
                let what = "a message of a tunnel that has arrived before";
                return self.protocol_error(slot, what, now);
            }
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

    /// Sends what waits, as far as legs have room.
    pub(in crate::manager) fn package_tunnel(&mut self, slot: HalfKey, now: Instant) {
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(tunnel) = self.halves.get_mut(slot).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        let (ends, mut table) = tunnel.streams.split();
        let Some(end) = ends.first_mut() else {
            return;
        };
        let mut sent = std::mem::take(&mut self.scratch.to_legs);
        let credits = &mut self.scratch.credits;
        while let Some((_, front)) = end.pending.front() {
            let command = RelayBody::new(front.body()).command();
            let counted = flow_control(command) == FlowControl::Counted;
            // Whether the cell is still wanted is known before a number is given to it.
            if counted && !tunnel.legs.has_room() {
                break;
            }
            let Some((edge, cell)) = end.take() else {
                break;
            };
            let id = RelayBody::new(cell.body()).stream_id();
            let Some((credit, generation)) = table.leaving(id, edge, end) else {
                self.pool.put(cell);
                continue;
            };
            let Some(choice) = tunnel.legs.choose(counted) else {
                // No leg is linked: nothing has come from streams then.
                self.pool.put(cell);
                continue;
            };
            if counted {
                if credit > 0 {
                    let stream = StreamAddr {
                        half: addr,
                        id,
                        generation,
                    };
                    credits.push((edge, stream, credit));
                }
            } else {
                table.end_sent(id, tunnel.legs.longest_rtt(), now);
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

    /// Sends a message of a tunnel's that does not count.
    pub(in crate::manager) fn send_on_tunnel(
        &mut self,
        slot: HalfKey,
        cell: Box<Cell>,
        now: Instant,
    ) {
        let addr = self.halves.addr(slot);
        let tunnel = self.halves.get_mut(slot).and_then(CircuitHalf::as_tunnel);
        let choice = tunnel.and_then(|tunnel| tunnel.legs.choose(false));
        match (addr, choice) {
            (Some(addr), Some(choice)) => self.send_to_leg(addr, choice, cell, now),
            _ => self.pool.put(cell),
        }
    }

    /// Hands a message to the leg that was chosen, behind SWITCH where its number is not the leg's next.
    fn send_to_leg(
        &mut self,
        tunnel: HalfAddr,
        choice: crate::tunnel::Choice,
        cell: Box<Cell>,
        now: Instant,
    ) {
        let leg = choice.half;
        if let Some(relative) = choice.switch {
            let mut switch = self.pool.blank(0, ChanCmd::RELAY);
            let data = Switch { relative }.encode();
            let command = RelayCmd::CONFLUX_SWITCH;
            let encoded = relay::encode(switch.body_mut(), command, 0, &data, &mut self.rng);
            debug_assert!(encoded.is_ok(), "four bytes fit");
            self.totals.tunnels.switches += 1;
            self.hand_to_leg(
                LegCell {
                    tunnel,
                    leg,
                    cell: switch,
                },
                now,
            );
        }
        self.hand_to_leg(LegCell { tunnel, leg, cell }, now);
    }

    fn hand_to_leg(&mut self, message: LegCell, now: Instant) {
        if message.leg.thread == self.outboxes.me() {
            self.on_to_leg(message, now);
        } else {
            (self.outboxes).send_cell(message.leg.thread, LaneMsg::ToLeg(message));
        }
    }

    /// A message of the tunnel's reaches a leg, which encrypts and queues it.
    pub(in crate::manager) fn on_to_leg(&mut self, message: LegCell, now: Instant) {
        let LegCell { tunnel, leg, cell } = message;
        let slot = leg.slot;
        let command = RelayBody::new(cell.body()).command();
        let half = self.halves.at(leg);
        let side = half.and_then(|half| half.leg.as_deref_mut());
        let Some(side) = side.filter(|side| side.tunnel == Some(tunnel)) else {
            self.totals.cells_dropped += 1;
            return self.pool.put(cell);
        };
        let hop = side.hop;
        let counted = flow_control(command) == FlowControl::Counted;
        side.granted = side.granted.saturating_sub(u32::from(counted));
        side.taken += u64::from(command != RelayCmd::CONFLUX_SWITCH);
        if !self.seal_and_enqueue(slot, hop, cell, now) {
            return;
        }
        if counted {
            self.note_counted(slot, hop, now);
            self.offer_room(slot);
        }
    }

    // ---- room ----

    /// Lends the tunnel what a leg's window and queue have room for.
    pub(in crate::manager) fn offer_room(&mut self, slot: HalfKey) {
        let high = self.params.queue_high;
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let queued = half.queue.len();
        let Some(mut leg) = half.leg.take() else {
            return;
        };
        let streams = half.streams_mut();
        let end = streams.and_then(|streams| streams.ends.get_mut(leg.hop.index()));
        let offered = end.map(|end| {
            let queue = high.saturating_sub(queued);
            let room = end
                .flow
                .room()
                .min(u32::try_from(queue).unwrap_or(u32::MAX));
            let more = room.saturating_sub(leg.granted);
            (queue == 0, more, end.flow.rtt().map(|rtt| rtt.smoothed))
        });
        let open = leg.stage != Stage::Joining;
        let mut send = None;
        if let (Some((full, more, rtt)), Some(tunnel), true) = (offered, leg.tunnel, open) {
            if full {
                half.blocked = true;
            }
            if more >= LEG_BATCH || more > 0 && leg.granted == 0 {
                leg.granted += more;
                send = Some((tunnel, Room { cells: more, rtt }));
            }
        }
        let (hop, full) = (leg.hop, half.blocked);
        half.leg = Some(leg);
        if full
            && let Some(streams) = half.streams_mut()
            && let Some(end) = streams.ends.get_mut(hop.index())
        {
            end.flow.set_blocked(true);
        }
        if let Some((to, room)) = send {
            self.send_control(HalfControl::LegRoom {
                to,
                leg: addr,
                room,
            });
        }
    }

    /// A leg's round trip was measured by CONFLUX_LINKED_ACK.
    pub(super) fn send_leg_rtt(&mut self, slot: HalfKey, rtt: Duration) {
        let leg = self.halves.addr(slot);
        let half = self.halves.get(slot);
        let tunnel = half.and_then(|half| half.leg.as_ref()?.tunnel);
        if let (Some(to), Some(leg)) = (tunnel, leg) {
            let room = Room {
                cells: 0,
                rtt: Some(rtt),
            };
            self.send_control(HalfControl::LegRoom { to, leg, room });
        }
    }

    /// A leg has room: what waits is sent.
    pub(in crate::manager) fn on_leg_room(
        &mut self,
        addr: HalfAddr,
        leg: HalfAddr,
        room: Room,
        now: Instant,
    ) {
        if let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) {
            tunnel.legs.note_room(leg, room);
            self.package_tunnel(addr.slot, now);
        }
    }
}
