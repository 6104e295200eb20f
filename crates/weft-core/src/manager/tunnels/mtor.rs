//! Parts of tunnels of mTor that conflux sets do not have (docs/extensions/mtor.md): their setup,
//! numbers in messages, and legs that are given up.

use std::time::{Duration, Instant};

use weft_cell::ChanCmd;
use weft_cell::mtor_msg::{
    Join, Joined, MtorAck, MtorDrop, MtorDropped, MtorStopped, Multipath, MultipathAck, SECRET_LEN,
    SequenceNumber, TunnelId,
};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::RelayCommand;

use super::Tunnels;
use crate::address::{HalfAddr, HopIndex, OriginId};
use crate::circuit::half::{CircuitHalf, Role};
use crate::manager::path::closing::Notify;
use crate::message::{LegCell, LegControl, TunnelAsk};
use crate::origin::OriginEvent;
use crate::slots::HalfKey;
use crate::tunnel::{
    Acknowledged, Answer, LegKind, LegSide, Policy, SPAN, Sequence, Stage, TunnelName,
};

impl Tunnels<'_> {
    /// MULTIPATH at a relay: a tunnel whose first leg is this circuit.
    pub(in crate::manager) fn on_multipath(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let Ok(Multipath { secret }) = Multipath::decode(data) else {
            return self
                .path
                .protocol_error(slot, "a MULTIPATH that cannot be parsed", now);
        };
        let join = false;
        let kind = LegKind::Mtor { secret, join };
        if !self.begin_leg(slot, kind, None, TunnelAsk::New(secret)) {
            let what = "MULTIPATH on a circuit that is a leg, goes on or has streams";
            self.path.protocol_error(slot, what, now);
        }
    }

    /// JOIN at a relay: a further leg.
    pub(in crate::manager) fn on_join_leg(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let Ok(Join { tunnel, secret }) = Join::decode(data) else {
            return self
                .path
                .protocol_error(slot, "a JOIN that cannot be parsed", now);
        };
        let join = true;
        let kind = LegKind::Mtor { secret, join };
        let ask = TunnelAsk::Existing(TunnelName::Given(tunnel, secret));
        if !self.begin_leg(slot, kind, None, ask) {
            let what = "JOIN on a circuit that is a leg, goes on or has streams";
            self.path.protocol_error(slot, what, now);
        }
    }

    /// Asks the far end of a leg, or answers it.
    pub(super) fn send_mtor_link(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        ours: bool,
        (secret, join): ([u8; SECRET_LEN], bool),
        id: Option<TunnelId>,
        now: Instant,
    ) {
        match (ours, id) {
            (true, None) => {
                let data = Multipath { secret }.encode();
                self.path
                    .send_relay_msg(slot, hop, RelayCommand::Multipath.wire(), 0, &data, now);
            }
            (true, Some(tunnel)) => {
                let data = Join { tunnel, secret }.encode();
                self.path
                    .send_relay_msg(slot, hop, RelayCommand::Join.wire(), 0, &data, now);
            }
            (false, Some(tunnel)) if join => {
                let data = Joined { tunnel }.encode();
                self.path
                    .send_relay_msg(slot, hop, RelayCommand::Joined.wire(), 0, &data, now);
            }
            (false, Some(tunnel)) => {
                let data = MultipathAck { tunnel }.encode();
                self.path.send_relay_msg(
                    slot,
                    hop,
                    RelayCommand::MultipathAck.wire(),
                    0,
                    &data,
                    now,
                );
            }
            // A relay gives its tunnels ids.
            (false, None) => {
                self.path
                    .close_half(slot, DestroyReason::INTERNAL, Notify::Both, now);
            }
        }
    }

    /// MULTIPATH_ACK or JOINED on a circuit of our own.
    pub(in crate::manager) fn on_mtor_answer(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        (tunnel_id, joined): (Option<TunnelId>, bool),
        length: usize,
        now: Instant,
    ) {
        let addr = self.path.halves.addr(slot);
        let half = self.path.halves.get_mut(slot);
        let expected = half.and_then(|half| match (&mut half.role, &mut half.leg) {
            (Role::Origin(origin), Some(leg))
                if leg.hop == hop
                    && matches!(leg.kind, LegKind::Mtor { join, .. } if join == joined) =>
            {
                match (leg.stage, leg.tunnel) {
                    (Stage::Linking(sent), Some(tunnel)) => Some((origin, leg, sent, tunnel)),
                    _ => None,
                }
            }
            _ => None,
        });
        let (Some(addr), Some((origin, leg, sent, tunnel))) = (addr, expected) else {
            return self.path.refuse_at_origin(slot, now);
        };
        let Some(id) = tunnel_id else {
            let what = "a MULTIPATH_ACK or JOINED that cannot be parsed";
            return self.path.protocol_error(slot, what, now);
        };
        origin.traffic.note_valid(length);
        leg.stage = Stage::Linked;
        let circuit = origin.id;
        self.leg_answered((addr, circuit), tunnel, Answer::Mtor(id), sent, now);
    }

    /// Links a leg of our own. False: the far end named another tunnel, and the leg closes.
    pub(super) fn link_mtor_leg(
        &mut self,
        addr: HalfAddr,
        leg: HalfAddr,
        id: TunnelId,
        took: Duration,
        _now: Instant,
    ) -> bool {
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return false;
        };
        if *tunnel.id.get_or_insert(id) != id {
            self.path
                .outboxes
                .refuse_leg(leg, addr, DestroyReason::PROTOCOL);
            return false;
        }
        tunnel.legs.linked(leg, Sequence::default(), Some(took));
        self.path.totals.tunnels.linked += 1;
        true
    }

    // ---- what arrives ----

    /// Measures a leg of our own by a message that came from it, and reports it if it has become slow.
    pub(super) fn watch_pace(&mut self, addr: HalfAddr, leg: HalfAddr, now: Instant) {
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        let (TunnelName::Origin(name), Policy::Mtor) = (tunnel.name, tunnel.policy) else {
            return;
        };
        let before = tunnel.last_arrival.replace(now);
        tunnel.arrivals += 1;
        if let Some(circuit) = tunnel.legs.paced(leg, tunnel.arrivals, before, now) {
            self.report_slow(name, circuit);
        }
    }

    fn report_slow(&mut self, tunnel: OriginId, circuit: OriginId) {
        self.path.totals.tunnels.slow += 1;
        self.path
            .to_controller
            .origin(OriginEvent::LegSlow { circuit, tunnel });
    }

    /// MTOR_ACK: what has arrived at the far end, and what is missing there.
    pub(super) fn on_mtor_ack(&mut self, message: LegCell, now: Instant) {
        let LegCell {
            tunnel: addr, cell, ..
        } = message;
        let body = RelayBody::new(cell.body());
        let ack = body.data().ok().and_then(|data| MtorAck::decode(data).ok());
        self.path.pool.put(cell);
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        // An older one that came by a slower leg names what is not outstanding any more.
        let oldest = (tunnel.legs.sent() + 1).saturating_sub(SPAN);
        let brought = match ack.map(|ack| ack.next.from_expected(oldest)) {
            Some(Some(next)) => tunnel.legs.acknowledged(next, now),
            Some(None) => Acknowledged::Nothing,
            None => Acknowledged::NotSent,
        };
        if tunnel.acks.take(1, now) == 0 || brought == Acknowledged::NotSent {
            let what = "an MTOR_ACK that cannot be parsed, or for what was not sent, or too many";
            return self
                .path
                .protocol_error(self.path.halves.slot(addr), what, now);
        }
        if brought == Acknowledged::News {
            self.path.package_tunnel(self.path.halves.slot(addr), now);
        }
    }

    /// The time of tunnels of mTor: what has arrived is acknowledged, legs that stand still are reported, and those close whose far end
    /// has not answered for long.
    pub(in crate::manager) fn watch_tunnels(&mut self, now: Instant) {
        let addrs: Vec<HalfAddr> = self.watched.tunnels.iter().copied().collect();
        for addr in addrs {
            let slot = self.path.halves.slot(addr);
            let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
                continue;
            };
            let (next, missing) = (tunnel.reorder.delivered() + 1, !tunnel.reorder.is_empty());
            let news = next != tunnel.acknowledged || missing;
            let leg = news.then(|| tunnel.legs.ack_leg()).flatten();
            tunnel.acknowledged = next;
            let again = tunnel.legs.send_tail_again(now);
            let still = match tunnel.name {
                TunnelName::Origin(name) => {
                    let circuits = tunnel.legs.standing_still(tunnel.arrivals, now);
                    Some((name, circuits))
                }
                TunnelName::Nonce(_) | TunnelName::Given(..) => None,
            };
            let overdue: Vec<HalfAddr> = tunnel.legs.overdue(now).collect();
            if let Some((tunnel, circuits)) = still {
                for circuit in circuits {
                    self.report_slow(tunnel, circuit);
                }
            }
            for leg in overdue {
                self.path.totals.timed_out += 1;
                self.path
                    .outboxes
                    .refuse_leg(leg, addr, DestroyReason::TIMEOUT);
            }
            if again {
                self.path.package_tunnel(slot, now);
            }
            if let Some(leg) = leg {
                let next = SequenceNumber::of(next);
                let mut cell = self.path.pool.blank(0, ChanCmd::RELAY);
                let data = MtorAck { next }.encode();
                let command = RelayCommand::MtorAck.wire();
                let encoded = relay::encode(cell.body_mut(), command, 0, &data, &mut self.path.rng);
                debug_assert!(encoded.is_ok(), "four bytes fit");
                let tunnel = addr;
                self.path.hand_to_leg(LegCell { tunnel, leg, cell }, now);
            }
        }
    }

    // ---- a leg is given up ----

    /// The client thread gives up a leg.
    pub(in crate::manager) fn on_drop_leg(&mut self, addr: HalfAddr, now: Instant) {
        let leg = self
            .path
            .halves
            .at(addr)
            .and_then(|half| half.leg.as_deref_mut());
        let Some(leg) = leg.filter(|leg| is_open_leg(leg) && !leg.dropped) else {
            return;
        };
        leg.dropped = true;
        let (hop, received, tunnel) = (leg.hop, leg.given, leg.tunnel);
        let data = MtorDrop { received }.encode();
        self.path.send_relay_msg(
            self.path.halves.slot(addr),
            hop,
            RelayCommand::MtorDrop.wire(),
            0,
            &data,
            now,
        );
        if let Some(to) = tunnel {
            self.path
                .outboxes
                .send_half(LegControl::Dropped { to, leg: addr });
        }
    }

    /// MTOR_DROP at a relay: no more is sent on this leg, and the client is notified of how much was.
    pub(in crate::manager) fn on_mtor_drop(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let addr = self.path.halves.addr(slot);
        let half = self.path.halves.get_mut(slot);
        let leg = half.and_then(|half| half.leg.as_deref_mut());
        let leg = leg.filter(|leg| is_open_leg(leg) && !leg.dropped);
        let (Some(addr), Some(leg), Ok(MtorDrop { received })) =
            (addr, leg, MtorDrop::decode(data))
        else {
            let what = "a MTOR_DROP that cannot be parsed, or on no leg, or a second one";
            return self.path.protocol_error(slot, what, now);
        };
        if received > leg.taken {
            let what = "a MTOR_DROP for more than was sent";
            return self.path.protocol_error(slot, what, now);
        }
        leg.dropped = true;
        let (hop, sent, tunnel) = (leg.hop, leg.taken, leg.tunnel);
        match received == sent {
            true => {
                let data = MtorDropped.encode();
                self.path.send_relay_msg(
                    slot,
                    hop,
                    RelayCommand::MtorDropped.wire(),
                    0,
                    &data,
                    now,
                );
            }
            false => {
                let data = MtorStopped { sent }.encode();
                self.path.send_relay_msg(
                    slot,
                    hop,
                    RelayCommand::MtorStopped.wire(),
                    0,
                    &data,
                    now,
                );
            }
        }
        if let Some(to) = tunnel {
            self.path
                .outboxes
                .send_half(LegControl::Dropped { to, leg: addr });
        }
    }

    /// MTOR_DROPPED or MTOR_STOPPED: the far end sends no more on this leg, after as many messages as have arrived, or as are named.
    pub(in crate::manager) fn on_mtor_stopped(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        last: Option<Option<u64>>,
        length: usize,
        now: Instant,
    ) {
        let half = self.path.halves.get_mut(slot);
        let leg = half.and_then(|half| match (&mut half.role, &mut half.leg) {
            (Role::Origin(origin), Some(leg)) => Some((origin, leg)),
            _ => None,
        });
        let leg = leg.filter(|(_, leg)| leg.hop == hop && leg.dropped && leg.last.is_none());
        let Some((origin, leg)) = leg else {
            return self.path.refuse_at_origin(slot, now);
        };
        let last = last.map(|last| last.unwrap_or(leg.given));
        let Some(last) = last.filter(|last| *last >= leg.given) else {
            let what = "a MTOR_DROPPED or MTOR_STOPPED that cannot be parsed, or for less than has arrived";
            return self.path.protocol_error(slot, what, now);
        };
        origin.traffic.note_valid(length);
        leg.last = Some(last);
        self.close_drained(slot, now);
    }

    /// Closes a leg that was given up, once everything that was sent on it has arrived.
    pub(super) fn close_drained(&mut self, slot: HalfKey, now: Instant) {
        let half = self.path.halves.get(slot);
        let leg = half.and_then(|half| half.leg.as_deref());
        if leg.is_some_and(|leg| leg.last.is_some_and(|last| leg.given >= last)) {
            self.path
                .close_half(slot, DestroyReason::FINISHED, Notify::Both, now);
        }
    }
}

/// True if a half is a leg of a tunnel of mTor on which messages may be sent.
fn is_open_leg(leg: &LegSide) -> bool {
    leg.kind.policy() == Policy::Mtor && leg.stage == Stage::Linked
}
