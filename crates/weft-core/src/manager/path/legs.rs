//! Messages of a tunnel on its legs, and the room that legs lend it: their circuits' windows and
//! queues.

use std::time::Instant;

use weft_cell::conflux_msg::Switch;
use weft_cell::mtor_msg::{SequenceNumber, wrap_subdata};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{FlowControl, RelayCommand, flow_control};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_planted::{Fault, planted};

use super::CellPath;
use super::closing::Notify;
use crate::address::{HalfAddr, StreamAddr};
use crate::circuit::half::CircuitHalf;
use crate::message::{LaneMsg, LegCell, LegControl};
use crate::slots::HalfKey;
use crate::tunnel::{Choice, LEG_BATCH, Legs, MAX_WAITING, Policy, Room, Stage, Tunnel};

impl CellPath {
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
        table.lend(end, addr, credits);
        self.send_credits();
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

    pub(in crate::manager) fn hand_to_leg(&mut self, message: LegCell, now: Instant) {
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
            let room = end.room().min(u32::try_from(queue).unwrap_or(u32::MAX));
            let more = room.saturating_sub(leg.granted);
            (queue == 0, more, end.rtt().map(|rtt| rtt.smoothed))
        });
        let acknowledged = std::mem::take(&mut leg.acknowledged);
        let open = leg.stage != Stage::Joining;
        let mut send = None;
        if let (Some((full, more, rtt)), Some(tunnel), true) = (offered, leg.tunnel, open) {
            if full {
                half.blocked = true;
            }
            let lends = more >= LEG_BATCH || more > 0 && leg.granted == 0;
            let cells = if lends && !leg.dropped { more } else { 0 };
            if cells > 0 || acknowledged > 0 {
                if !planted(Fault::LegRoomLentTwice) {
                    leg.granted += cells;
                }
                let room = Room {
                    cells,
                    rtt,
                    acknowledged,
                };
                send = Some((tunnel, room));
            }
        }
        let (hop, full) = (leg.hop, half.blocked);
        half.leg = Some(leg);
        if full
            && let Some(streams) = half.streams_mut()
            && let Some(end) = streams.ends.get_mut(hop.index())
        {
            end.set_blocked(true);
        }
        if let Some((to, room)) = send {
            self.outboxes.send_half(LegControl::Room {
                to,
                leg: addr,
                room,
            });
        }
    }
}

/// True if a message is MTOR_ACK, which concerns the tunnel and has no number.
pub(in crate::manager) fn is_ack(command: RelayCmd) -> bool {
    command == RelayCommand::MtorAck.wire()
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
