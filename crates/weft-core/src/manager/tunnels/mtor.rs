//! What tunnels of mTor have that conflux sets have not (docs/extensions/mtor.md): how they begin, numbers in messages, and legs
//! that are given up.

use std::time::{Duration, Instant};

use weft_cell::mtor_msg::{
    Join, Joined, MtorDrop, MtorDropped, MtorStopped, Multipath, MultipathAck, SECRET_LEN, TunnelId,
};
use weft_cell::reason::DestroyReason;
use weft_cell::relay_command::RelayCommand;

use crate::address::{HalfAddr, HopIndex};
use crate::half::{CircuitHalf, Role};
use crate::manager::{LocalConnectionManager, Notify};
use crate::message::{HalfControl, TunnelAsk};
use crate::slots::HalfKey;
use crate::tunnel::{Answer, LegKind, LegSide, Policy, Sequence, Stage, TunnelName};

impl LocalConnectionManager {
    /// MULTIPATH at a relay: a tunnel whose first leg is this circuit.
    pub(in crate::manager) fn on_multipath(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let Ok(Multipath { secret }) = Multipath::decode(data) else {
            return self.protocol_error(slot, "a MULTIPATH that cannot be parsed", now);
        };
        let join = false;
        let kind = LegKind::Mtor { secret, join };
        if !self.begin_leg(slot, kind, None, TunnelAsk::New(secret)) {
            let what = "MULTIPATH on a circuit that is a leg, goes on or has streams";
            self.protocol_error(slot, what, now);
        }
    }

    /// JOIN at a relay: a further leg.
    pub(in crate::manager) fn on_join_leg(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let Ok(Join { tunnel, secret }) = Join::decode(data) else {
            return self.protocol_error(slot, "a JOIN that cannot be parsed", now);
        };
        let join = true;
        let kind = LegKind::Mtor { secret, join };
        let ask = TunnelAsk::Existing(TunnelName::Given(tunnel, secret));
        if !self.begin_leg(slot, kind, None, ask) {
            let what = "JOIN on a circuit that is a leg, goes on or has streams";
            self.protocol_error(slot, what, now);
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
                self.send_relay_msg(slot, hop, RelayCommand::Multipath.wire(), 0, &data, now);
            }
            (true, Some(tunnel)) => {
                let data = Join { tunnel, secret }.encode();
                self.send_relay_msg(slot, hop, RelayCommand::Join.wire(), 0, &data, now);
            }
            (false, Some(tunnel)) if join => {
                let data = Joined { tunnel }.encode();
                self.send_relay_msg(slot, hop, RelayCommand::Joined.wire(), 0, &data, now);
            }
            (false, Some(tunnel)) => {
                let data = MultipathAck { tunnel }.encode();
                self.send_relay_msg(slot, hop, RelayCommand::MultipathAck.wire(), 0, &data, now);
            }
            // A relay gives its tunnels ids.
            (false, None) => {
                self.close_half(slot, DestroyReason::INTERNAL, Notify::Both, now);
            }
        }
    }

    /// MULTIPATH_ACK or JOINED on a circuit of our own.
    pub(in crate::manager) fn on_mtor_answer(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        tunnel_id: Option<TunnelId>,
        length: usize,
        now: Instant,
    ) {
        let addr = self.halves.addr(slot);
        let half = self.halves.get_mut(slot);
        let expected = half.and_then(|half| match (&mut half.role, &mut half.leg) {
            (Role::Origin(origin), Some(leg))
                if leg.hop == hop && leg.kind.policy() == Policy::Mtor =>
            {
                match (leg.stage, leg.tunnel) {
                    (Stage::Linking(sent), Some(tunnel)) => Some((origin, leg, sent, tunnel)),
                    _ => None,
                }
            }
            _ => None,
        });
        let (Some(addr), Some((origin, leg, sent, tunnel))) = (addr, expected) else {
            return self.refuse_at_origin(slot, now);
        };
        let Some(id) = tunnel_id else {
            let what = "a MULTIPATH_ACK or JOINED that cannot be parsed";
            return self.protocol_error(slot, what, now);
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
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return false;
        };
        if *tunnel.id.get_or_insert(id) != id {
            self.refuse_leg(leg, addr, DestroyReason::PROTOCOL);
            return false;
        }
        tunnel.legs.linked(leg, Sequence::default(), Some(took));
        self.totals.tunnels.linked += 1;
        true
    }

    // ---- a leg is given up ----

    /// The client thread gives up a leg.
    pub(in crate::manager) fn on_drop_leg(&mut self, addr: HalfAddr, now: Instant) {
        let leg = self
            .halves
            .at(addr)
            .and_then(|half| half.leg.as_deref_mut());
        let Some(leg) = leg.filter(|leg| is_open_leg(leg) && !leg.dropped) else {
            return;
        };
        leg.dropped = true;
        let (hop, received, tunnel) = (leg.hop, leg.given, leg.tunnel);
        let data = MtorDrop { received }.encode();
        self.send_relay_msg(addr.slot, hop, RelayCommand::MtorDrop.wire(), 0, &data, now);
        if let Some(to) = tunnel {
            self.send_control(HalfControl::LegDropped { to, leg: addr });
        }
    }

    /// MTOR_DROP at a relay: no more is sent on this leg, and the client is notified of how much was.
    pub(in crate::manager) fn on_mtor_drop(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let addr = self.halves.addr(slot);
        let half = self.halves.get_mut(slot);
        let leg = half.and_then(|half| half.leg.as_deref_mut());
        let leg = leg.filter(|leg| is_open_leg(leg) && !leg.dropped);
        let (Some(addr), Some(leg), Ok(MtorDrop { received })) =
            (addr, leg, MtorDrop::decode(data))
        else {
            let what = "a MTOR_DROP that cannot be parsed, or on no leg, or a second one";
            return self.protocol_error(slot, what, now);
        };
        if received > leg.taken {
            let what = "a MTOR_DROP for more than was sent";
            return self.protocol_error(slot, what, now);
        }
        leg.dropped = true;
        let (hop, sent, tunnel) = (leg.hop, leg.taken, leg.tunnel);
        match received == sent {
            true => {
                let data = MtorDropped.encode();
                self.send_relay_msg(slot, hop, RelayCommand::MtorDropped.wire(), 0, &data, now);
            }
            false => {
                let data = MtorStopped { sent }.encode();
                self.send_relay_msg(slot, hop, RelayCommand::MtorStopped.wire(), 0, &data, now);
            }
        }
        if let Some(to) = tunnel {
            self.send_control(HalfControl::LegDropped { to, leg: addr });
        }
    }

    /// MTOR_DROPPED or MTOR_STOPPED: the far end sends no more on this leg, after as many messages as are named.
    pub(in crate::manager) fn on_mtor_stopped(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        data: Option<&[u8]>,
        now: Instant,
    ) {
        let half = self.halves.get_mut(slot);
        let leg = half.and_then(|half| half.leg.as_deref_mut());
        let leg = leg.filter(|leg| leg.hop == hop && leg.dropped && leg.last.is_none());
        let Some(leg) = leg else {
            return self.refuse_at_origin(slot, now);
        };
        let last = match data {
            None => Some(leg.given),
            Some(data) => MtorStopped::decode(data).ok().map(|stopped| stopped.sent),
        };
        let Some(last) = last.filter(|last| *last >= leg.given) else {
            let what = "a MTOR_STOPPED that cannot be parsed, or for less than has arrived";
            return self.protocol_error(slot, what, now);
        };
        leg.last = Some(last);
        self.close_drained(slot, now);
    }

    /// Closes a leg that was given up, once everything that was sent on it has arrived.
    pub(super) fn close_drained(&mut self, slot: HalfKey, now: Instant) {
        let half = self.halves.get(slot);
        let leg = half.and_then(|half| half.leg.as_deref());
        if leg.is_some_and(|leg| leg.last.is_some_and(|last| leg.given >= last)) {
            self.close_half(slot, DestroyReason::FINISHED, Notify::Both, now);
        }
    }
}

/// Whether a half is a leg of a tunnel of mTor that messages may be sent on.
fn is_open_leg(leg: &LegSide) -> bool {
    leg.kind.policy() == Policy::Mtor && leg.stage == Stage::Linked
}
