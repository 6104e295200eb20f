//! Tunnels ([`crate::tunnel`]): here how legs join, are linked (proposal 329, 5) and close, in `cells` how messages pass between
//! a tunnel and its legs.
//!
//! At a relay CONFLUX_LINK makes a half a leg: the controller finds the tunnel of its nonce or has one made, the tunnel takes the
//! leg, and the leg answers CONFLUX_LINKED. Of a circuit of our own the client thread makes a leg, the tunnel takes it, and the leg
//! sends CONFLUX_LINK; when CONFLUX_LINKED arrives it is linked. From then on everything that belongs to streams passes
//! through the tunnel, whatever leg it comes by. Tunnels of mTor begin by other messages, and lose no leg for good: `mtor`.

mod cells;
mod mtor;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weft_cell::RelayCmd;
use weft_cell::conflux_msg::{DesiredUx, Link};
use weft_cell::mtor_msg::TunnelId;
use weft_cell::reason::DestroyReason;

use super::path::CellPath;
use super::path::closing::Notify;
use super::streams::StreamSide;
use crate::address::{HalfAddr, HopIndex, OriginId};
use crate::circuit::half::{CircuitHalf, Peer, Purpose, Role};
use crate::flow::Terms;
use crate::memory::ledger::map_entry;
use crate::message::{LegControl, LegRequest, TunnelAsk, TunnelNews, TunnelOrder};
use crate::origin::OriginEvent;
use crate::slots::HalfKey;
use crate::stream::table::Streams;
use crate::tunnel::{
    Answer, Closing, Joining, LegKind, LegSide, MAX_LEGS, Policy, Removed, Room, Sequence, Stage,
    Tunnel, TunnelName, scheduling,
};

/// The tunnels of a thread whose legs may stand still (mTor).
#[derive(Debug, Default)]
pub(super) struct Watched {
    tunnels: BTreeSet<HalfAddr>,
}

impl Watched {
    /// A half has closed.
    pub(super) fn forget(&mut self, half: HalfAddr) {
        self.tunnels.remove(&half);
    }

    pub(super) fn contains(&self, tunnel: HalfAddr) -> bool {
        self.tunnels.contains(&tunnel)
    }

    /// Memory that this takes.
    pub(super) fn memory(&self) -> usize {
        self.tunnels.len() * map_entry::<HalfAddr, ()>()
    }
}

/// Tunnels and their legs, over the path on which both are.
#[derive(Debug)]
pub(super) struct Tunnels<'a> {
    pub(super) path: &'a mut CellPath,
    pub(super) watched: &'a mut Watched,
}

impl Tunnels<'_> {
    /// The streams of a tunnel.
    fn streams(&mut self) -> StreamSide<'_> {
        StreamSide { path: self.path }
    }

    /// An order of the controller's.
    pub(super) fn on_tunnel_order(&mut self, order: TunnelOrder, now: Instant) {
        match order {
            TunnelOrder::Make { leg, name } => self.on_make_tunnel(leg, name, now),
            TunnelOrder::Join { leg, tunnel } => self.on_join_tunnel(leg, tunnel, now),
            TunnelOrder::DropLeg { half } => self.on_drop_leg(half, now),
        }
    }

    /// A message for a tunnel or a leg, which is there.
    pub(super) fn on_leg_control(&mut self, addr: HalfAddr, control: LegControl, now: Instant) {
        match control {
            LegControl::Joins { joining, .. } => self.on_leg_joins(addr, &joining, now),
            LegControl::Taken {
                tunnel,
                sequence,
                id,
                ..
            } => self.on_leg_taken(addr, tunnel, (sequence, id), now),
            LegControl::Linked {
                leg,
                circuit,
                answer,
                took,
                ..
            } => self.on_leg_linked(addr, (leg, circuit), *answer, took, now),
            LegControl::Room { leg, room, .. } => self.on_leg_room(addr, leg, room, now),
            LegControl::Dropped { leg, .. } => self.on_leg_dropped(addr, leg, now),
            LegControl::Closed { leg, closing, .. } => self.on_leg_closed(addr, leg, closing, now),
            LegControl::TunnelClosed { tunnel, reason, .. } => {
                self.on_tunnel_closed(addr, tunnel, reason, now);
            }
        }
    }

    /// A message for a tunnel or a leg that has closed.
    pub(super) fn on_leg_control_too_late(&mut self, control: LegControl) {
        match control {
            LegControl::Joins { to, joining } => {
                self.path
                    .outboxes
                    .refuse_leg(joining.leg, to, DestroyReason::DESTROYED);
            }
            LegControl::Taken { .. }
            | LegControl::Linked { .. }
            | LegControl::Room { .. }
            | LegControl::Dropped { .. }
            | LegControl::Closed { .. }
            | LegControl::TunnelClosed { .. } => {}
        }
    }

    // ---- the leg ----

    /// CONFLUX_LINK at a relay: the circuit shall be a leg.
    pub(super) fn on_conflux_link(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let Ok(link) = Link::decode(data) else {
            return self
                .path
                .protocol_error(slot, "a CONFLUX_LINK that cannot be parsed", now);
        };
        let (nonce, ux) = (link.nonce, link.desired_ux);
        let kind = LegKind::Conflux { nonce, ux };
        let ask = TunnelAsk::Named(TunnelName::Nonce(nonce));
        if !self.begin_leg(slot, kind, Some(link), ask) {
            let what = "CONFLUX_LINK on a circuit that is linked, goes on, has streams or no congestion control";
            self.path.protocol_error(slot, what, now);
        }
    }

    /// A circuit that ends here becomes a leg: the controller is asked for the tunnel. False: it is not fit for that.
    fn begin_leg(
        &mut self,
        slot: HalfKey,
        kind: LegKind,
        asked: Option<Link>,
        ask: TunnelAsk,
    ) -> bool {
        let cc = &self.path.params.cc;
        let Some(half) = self.path.halves.get_mut(slot) else {
            return true;
        };
        let unused = half.leg.is_none() && half.peer == Peer::None;
        let Role::Backward(backward) = &mut half.role else {
            return false;
        };
        // A circuit that has streams, or had some, may have messages under way that are no one's. Conflux counts on the windows
        // of congestion control.
        let fits = unused
            && backward.purpose.is_general()
            && (backward.sendme_inc.is_some() || kind.policy() == Policy::Mtor)
            && (backward.streams.as_ref()).is_none_or(|streams| streams.is_unused());
        if !fits {
            return false;
        }
        backward.purpose = Purpose::Leg;
        backward.streams_or_new(cc);
        half.leg = Some(Box::new(LegSide::new(HopIndex::ORIGIN, kind, asked)));
        let key = half.link;
        if let (Some(half), Some(link)) = (self.path.halves.addr(slot), self.path.links.get(key)) {
            self.path.totals.tunnels.links += 1;
            let connection = link.connection;
            let asked = TunnelNews::Asked {
                half,
                connection,
                ask,
            };
            self.path.to_controller.push(asked.into());
        }
        true
    }

    /// The controller names the tunnel that a half shall join.
    fn on_join_tunnel(&mut self, request: LegRequest, tunnel: HalfAddr, now: Instant) {
        if let Some((hop, kind)) = request.ours {
            let Some(half) = self.path.halves.at(request.half) else {
                return;
            };
            let kind = LegKind::from(kind);
            let usable = match &half.role {
                Role::Origin(origin) => {
                    half.leg.is_none()
                        && hop.index() + 1 == origin.streams.ends.len()
                        && origin.streams.is_unused()
                }
                Role::Backward(_) | Role::Forward(_) | Role::Tunnel(_) => false,
            };
            let vegas = half.terms(hop).is_some_and(Terms::is_vegas);
            if !usable || !vegas && kind.policy() == Policy::Conflux {
                // The client thread knows that: it did not see a stream end, or the circuit's last handshake.
                let reason = DestroyReason::INTERNAL;
                return self.path.close_half(
                    self.path.halves.slot(request.half),
                    reason,
                    Notify::Both,
                    now,
                );
            }
            half.leg = Some(Box::new(LegSide::new(hop, kind, None)));
        }
        let Some(half) = self.path.halves.at(request.half) else {
            return;
        };
        let Some(leg) = &mut half.leg else {
            return;
        };
        leg.tunnel = Some(tunnel);
        let (hop, kind, asked, key) = (leg.hop, leg.kind, leg.asked.take(), half.link);
        let ours = match &half.role {
            Role::Origin(origin) => Some(origin.id),
            Role::Backward(_) | Role::Forward(_) | Role::Tunnel(_) => None,
        };
        let (Some(terms), Some(link)) = (half.terms(hop), self.path.link_under(key)) else {
            return;
        };
        let joining = Joining {
            leg: request.half,
            terms,
            link,
            kind,
            ours,
            asked,
        };
        self.path.outboxes.send_half(LegControl::Joins {
            to: tunnel,
            joining: Box::new(joining),
        });
    }

    /// The tunnel takes a leg: the far end is asked, or answered.
    fn on_leg_taken(
        &mut self,
        addr: HalfAddr,
        tunnel: HalfAddr,
        (sequence, id): (Sequence, Option<TunnelId>),
        now: Instant,
    ) {
        let Some(half) = self.path.halves.at(addr) else {
            return;
        };
        let ours = matches!(half.role, Role::Origin(_));
        let Some(leg) = half.leg.as_mut().filter(|leg| leg.tunnel == Some(tunnel)) else {
            return;
        };
        if let LegKind::Mtor { join, .. } = &mut leg.kind
            && ours
        {
            *join = id.is_some();
        }
        let (hop, kind) = (leg.hop, leg.kind);
        leg.stage = match (kind.policy(), ours) {
            // The client needs no more than the answer.
            (Policy::Mtor, false) => Stage::Linked,
            (Policy::Mtor, true) | (Policy::Conflux, _) => Stage::Linking(now),
        };
        match kind {
            LegKind::Conflux { nonce, ux } => {
                let (command, desired_ux) = match ours {
                    true => (RelayCmd::CONFLUX_LINK, ux),
                    // As in C tor: an exit asks clients for the least delay.
                    false => (RelayCmd::CONFLUX_LINKED, DesiredUx::MinLatency),
                };
                let link = Link {
                    nonce,
                    last_seqno_sent: sequence.sent,
                    last_seqno_recv: sequence.received,
                    desired_ux,
                };
                self.path.send_relay_msg(
                    self.path.halves.slot(addr),
                    hop,
                    command,
                    0,
                    &link.encode(),
                    now,
                );
            }
            LegKind::Mtor { secret, join } => {
                self.send_mtor_link(
                    self.path.halves.slot(addr),
                    hop,
                    ours,
                    (secret, join),
                    id,
                    now,
                );
            }
        }
        if !ours {
            self.path.offer_room(self.path.halves.slot(addr));
        }
    }

    /// CONFLUX_LINKED on a circuit of our own.
    pub(super) fn on_conflux_linked(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        data: &[u8],
        now: Instant,
    ) {
        let Some(addr) = self.path.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.path.halves.get_mut(slot) else {
            return;
        };
        // Another hop's answer, a second one, or one for another set would be a mark.
        let expected = match (&mut half.role, &mut half.leg) {
            (Role::Origin(origin), Some(leg)) if leg.hop == hop => match (leg.stage, leg.tunnel) {
                (Stage::Linking(sent), Some(tunnel)) => Some((origin, leg, sent, tunnel)),
                _ => None,
            },
            _ => None,
        };
        let Some((origin, leg, sent, tunnel)) = expected else {
            return self.path.refuse_at_origin(slot, now);
        };
        let answer = match (Link::decode(data), leg.kind) {
            (Ok(answer), LegKind::Conflux { nonce, .. }) if answer.nonce == nonce => answer,
            _ => {
                let what = "a CONFLUX_LINKED that cannot be parsed, or of another set";
                return self.path.protocol_error(slot, what, now);
            }
        };
        origin.traffic.note_valid(data.len());
        leg.stage = Stage::Linked;
        let circuit = origin.id;
        self.path
            .send_relay_msg(slot, hop, RelayCmd::CONFLUX_LINKED_ACK, 0, &[], now);
        let answer = Answer::Conflux(answer);
        self.leg_answered((addr, circuit), tunnel, answer, sent, now);
    }

    /// The far end of a leg of our own has answered.
    fn leg_answered(
        &mut self,
        (leg, circuit): (HalfAddr, OriginId),
        tunnel: HalfAddr,
        answer: Answer,
        sent: Instant,
        now: Instant,
    ) {
        self.path.outboxes.send_half(LegControl::Linked {
            to: tunnel,
            leg,
            circuit,
            answer: Box::new(answer),
            took: now.saturating_duration_since(sent),
        });
        self.path.offer_room(self.path.halves.slot(leg));
    }

    /// CONFLUX_LINKED_ACK at a relay: the circuit's round trip is known.
    pub(super) fn on_conflux_linked_ack(&mut self, slot: HalfKey, now: Instant) {
        let leg = (self.path.halves.get_mut(slot)).and_then(|half| half.leg.as_deref_mut());
        let leg = leg.filter(|leg| leg.kind.policy() == Policy::Conflux);
        let sent = match leg.map(|leg| (leg.stage, leg)) {
            Some((Stage::Linking(sent), leg)) => {
                leg.stage = Stage::Linked;
                sent
            }
            _ => {
                let what = "a CONFLUX_LINKED_ACK to no CONFLUX_LINKED";
                return self.path.protocol_error(slot, what, now);
            }
        };
        self.send_leg_rtt(slot, now.saturating_duration_since(sent));
    }

    /// A leg's round trip was measured by CONFLUX_LINKED_ACK.
    fn send_leg_rtt(&mut self, slot: HalfKey, rtt: Duration) {
        let leg = self.path.halves.addr(slot);
        let half = self.path.halves.get(slot);
        let tunnel = half.and_then(|half| half.leg.as_ref()?.tunnel);
        if let (Some(to), Some(leg)) = (tunnel, leg) {
            let room = Room {
                rtt: Some(rtt),
                ..Room::default()
            };
            self.path
                .outboxes
                .send_half(LegControl::Room { to, leg, room });
        }
    }

    /// The tunnel has closed, and so does its leg.
    fn on_tunnel_closed(
        &mut self,
        addr: HalfAddr,
        tunnel: HalfAddr,
        reason: DestroyReason,
        now: Instant,
    ) {
        let half = self.path.halves.at(addr);
        if half.and_then(|half| half.leg.as_ref()?.tunnel) == Some(tunnel) {
            self.path
                .close_half(self.path.halves.slot(addr), reason, Notify::Both, now);
        }
    }

    // ---- the tunnel ----

    /// Makes a tunnel beside its first leg.
    fn on_make_tunnel(&mut self, request: LegRequest, name: TunnelName, now: Instant) {
        let made = self.path.halves.at(request.half).and_then(|half| {
            let (hop, policy) = match (request.ours, &half.leg) {
                (Some((hop, kind)), _) => (hop, LegKind::from(kind).policy()),
                (None, Some(leg)) => (leg.hop, leg.kind.policy()),
                (None, None) => return None,
            };
            let terms = half.terms(hop)?;
            let streams = Streams::one(None);
            let tunnel = Tunnel::new(name, policy, streams, terms, now);
            Some(CircuitHalf::tunnel(tunnel))
        });
        let tunnel = made.and_then(|made| self.path.halves.insert(made));
        let by = request.half;
        let made = TunnelNews::Made { name, by, tunnel };
        self.path.to_controller.push(made.into());
        if let Some(tunnel) = tunnel {
            self.path.totals.tunnels.made += 1;
            let half = self.path.halves.at(tunnel).and_then(CircuitHalf::as_tunnel);
            if half.is_some_and(|half| half.policy == Policy::Mtor) {
                self.watched.tunnels.insert(tunnel);
            }
            self.on_join_tunnel(request, tunnel, now);
            if self.path.halves.at(request.half).is_none() {
                // It was refused, before the tunnel knew of it.
                self.path.close_half(
                    self.path.halves.slot(tunnel),
                    DestroyReason::INTERNAL,
                    Notify::Both,
                    now,
                );
            }
        }
    }

    /// A half wants to be a leg.
    fn on_leg_joins(&mut self, addr: HalfAddr, joining: &Joining, now: Instant) {
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return self
                .path
                .outboxes
                .refuse_leg(joining.leg, addr, DestroyReason::INTERNAL);
        };
        let most = match tunnel.policy {
            Policy::Mtor => MAX_LEGS,
            Policy::Conflux => MAX_LEGS.min(self.path.params.conflux_legs),
        };
        let fits = tunnel.legs.len() < most
            && joining.terms == tunnel.leg_terms
            && joining.kind.policy() == tunnel.policy;
        // What the second leg of a tunnel of our own asks for is known once the first has its answer.
        let waits = tunnel.policy == Policy::Mtor && tunnel.id.is_none() && tunnel.legs.len() > 0;
        if !fits || waits {
            return self
                .path
                .outboxes
                .refuse_leg(joining.leg, addr, DestroyReason::PROTOCOL);
        }
        let Joining {
            leg, link, ours, ..
        } = *joining;
        tunnel.legs.add(leg, link, ours, now);
        let (sequence, id) = (tunnel.sequence(), tunnel.id);
        if joining.ours.is_none() && tunnel.policy == Policy::Mtor {
            tunnel.legs.linked(joining.leg, Sequence::default(), None);
            self.path.totals.tunnels.linked += 1;
        }
        if let Some(asked) = joining.asked
            && !self.link_leg(addr, joining.leg, &asked, None, now)
        {
            return;
        }
        self.path.outboxes.send_half(LegControl::Taken {
            to: joining.leg,
            tunnel: addr,
            sequence,
            id,
        });
    }

    /// A leg of our own has its answer.
    fn on_leg_linked(
        &mut self,
        addr: HalfAddr,
        (leg, circuit): (HalfAddr, OriginId),
        answer: Answer,
        took: Duration,
        now: Instant,
    ) {
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        let name = tunnel.name;
        let linked = match answer {
            Answer::Conflux(link) => self.link_leg(addr, leg, &link, Some(took), now),
            Answer::Mtor(id) => self.link_mtor_leg(addr, leg, id, took, now),
        };
        if linked && let TunnelName::Origin(tunnel) = name {
            self.path.to_controller.origin(OriginEvent::Linked {
                circuit,
                tunnel,
                took,
            });
        }
    }

    /// Links a leg. False: the far end has sent what did not arrive here, and the tunnel has closed (as in C tor).
    fn link_leg(
        &mut self,
        addr: HalfAddr,
        leg: HalfAddr,
        far: &Link,
        rtt: Option<Duration>,
        now: Instant,
    ) -> bool {
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return false;
        };
        if far.last_seqno_sent > tunnel.reorder.delivered()
            || far.last_seqno_recv > tunnel.legs.sent()
        {
            self.path.totals.tunnels.lost += 1;
            let what =
                "a leg's far end that has sent what did not arrive, or received what was not sent";
            self.path
                .protocol_error(self.path.halves.slot(addr), what, now);
            return false;
        }
        let sequence = Sequence {
            sent: far.last_seqno_sent,
            received: far.last_seqno_recv,
        };
        tunnel.legs.linked(leg, sequence, rtt);
        tunnel.legs.scheduling = scheduling(far.desired_ux);
        self.path.totals.tunnels.linked += 1;
        true
    }

    /// A leg has room: what waits is sent.
    fn on_leg_room(&mut self, addr: HalfAddr, leg: HalfAddr, room: Room, now: Instant) {
        if let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) {
            tunnel.legs.note_room(leg, room, now);
            self.path.package_tunnel(self.path.halves.slot(addr), now);
        }
    }

    /// A leg has closed. The tunnel goes on if nothing was on its way there.
    fn on_leg_closed(&mut self, addr: HalfAddr, leg: HalfAddr, closing: Closing, now: Instant) {
        let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        self.path.totals.tunnels.legs_lost += u64::from(tunnel.legs.is_in_use(leg));
        if tunnel.legs.closed(leg, closing) == Removed::End {
            self.end_without_leg(addr, now);
        }
    }

    /// No more is sent on a leg (mTor).
    fn on_leg_dropped(&mut self, addr: HalfAddr, leg: HalfAddr, now: Instant) {
        if let Some(tunnel) = self.path.halves.at(addr).and_then(CircuitHalf::as_tunnel) {
            tunnel.legs.drop_leg(leg, now);
            self.path.totals.tunnels.legs_dropped += 1;
        }
    }

    /// A tunnel cannot go on without a leg that has closed.
    pub(super) fn end_without_leg(&mut self, addr: HalfAddr, now: Instant) {
        self.path.totals.tunnels.broken += 1;
        self.path.close_half(
            self.path.halves.slot(addr),
            DestroyReason::FINISHED,
            Notify::Both,
            now,
        );
    }
}
