//! Tunnels ([`crate::tunnel`]): here how legs join, are linked (proposal 329, 5) and close, in `cells` how messages pass between
//! a tunnel and its legs, in `room` what legs lend it for that.
//!
//! At a relay CONFLUX_LINK makes a half a leg: the controller finds the tunnel of its nonce or has one made, the tunnel takes the
//! leg, and the leg answers CONFLUX_LINKED. Of a circuit of our own the client thread makes a leg, the tunnel takes it, and the leg
//! sends CONFLUX_LINK; when CONFLUX_LINKED arrives it is linked. From then on everything that belongs to streams passes
//! through the tunnel, whatever leg it comes by. Tunnels of mTor begin by other messages, and lose no leg for good: `mtor`.

mod cells;
mod mtor;
mod room;

use std::time::{Duration, Instant};

use weft_cell::RelayCmd;
use weft_cell::conflux_msg::{DesiredUx, Link};
use weft_cell::mtor_msg::TunnelId;
use weft_cell::reason::DestroyReason;
use weft_planted::{Fault, planted};

use super::{LocalConnectionManager, Notify};
use crate::address::{HalfAddr, HopIndex, OriginId};
use crate::circuit::half::{CircuitHalf, Peer, Purpose, Role};
use crate::flow::Terms;
use crate::handshake::PeerIdentity;
use crate::message::{LegControl, LegRequest, TunnelAsk, TunnelNews, TunnelOrder};
use crate::origin::OriginEvent;
use crate::slots::{HalfKey, LinkKey};
use crate::stream::table::Streams;
use crate::tunnel::{
    Answer, Closing, Joining, LegKind, LegLink, LegSide, MAX_LEGS, Policy, Removed, Sequence,
    Stage, Tunnel, TunnelName, scheduling,
};

impl LocalConnectionManager {
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
                self.refuse_leg(joining.leg, to, DestroyReason::DESTROYED);
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
            return self.protocol_error(slot, "a CONFLUX_LINK that cannot be parsed", now);
        };
        let (nonce, ux) = (link.nonce, link.desired_ux);
        let kind = LegKind::Conflux { nonce, ux };
        let ask = TunnelAsk::Named(TunnelName::Nonce(nonce));
        if !self.begin_leg(slot, kind, Some(link), ask) {
            let what = "CONFLUX_LINK on a circuit that is linked, goes on, has streams or no congestion control";
            self.protocol_error(slot, what, now);
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
        let cc = &self.params.cc;
        let Some(half) = self.halves.get_mut(slot) else {
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
        if let (Some(half), Some(link)) = (self.halves.addr(slot), self.links.get(key)) {
            self.totals.tunnels.links += 1;
            let connection = link.connection;
            let asked = TunnelNews::Asked {
                half,
                connection,
                ask,
            };
            self.to_controller.push(asked.into());
        }
        true
    }

    /// The controller names the tunnel that a half shall join.
    fn on_join_tunnel(&mut self, request: LegRequest, tunnel: HalfAddr, now: Instant) {
        if let Some((hop, kind)) = request.ours {
            let Some(half) = self.halves.at(request.half) else {
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
                return self.close_half(self.halves.slot(request.half), reason, Notify::Both, now);
            }
            half.leg = Some(Box::new(LegSide::new(hop, kind, None)));
        }
        let Some(half) = self.halves.at(request.half) else {
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
        let (Some(terms), Some(link)) = (half.terms(hop), self.link_under(key)) else {
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
        self.send_control(LegControl::Joins {
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
        let Some(half) = self.halves.at(addr) else {
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
                self.send_relay_msg(self.halves.slot(addr), hop, command, 0, &link.encode(), now);
            }
            LegKind::Mtor { secret, join } => {
                self.send_mtor_link(self.halves.slot(addr), hop, ours, (secret, join), id, now);
            }
        }
        if !ours {
            self.offer_room(self.halves.slot(addr));
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
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
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
            return self.refuse_at_origin(slot, now);
        };
        let answer = match (Link::decode(data), leg.kind) {
            (Ok(answer), LegKind::Conflux { nonce, .. }) if answer.nonce == nonce => answer,
            _ => {
                let what = "a CONFLUX_LINKED that cannot be parsed, or of another set";
                return self.protocol_error(slot, what, now);
            }
        };
        origin.traffic.note_valid(data.len());
        leg.stage = Stage::Linked;
        let circuit = origin.id;
        self.send_relay_msg(slot, hop, RelayCmd::CONFLUX_LINKED_ACK, 0, &[], now);
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
        self.send_control(LegControl::Linked {
            to: tunnel,
            leg,
            circuit,
            answer: Box::new(answer),
            took: now.saturating_duration_since(sent),
        });
        self.offer_room(self.halves.slot(leg));
    }

    /// CONFLUX_LINKED_ACK at a relay: the circuit's round trip is known.
    pub(super) fn on_conflux_linked_ack(&mut self, slot: HalfKey, now: Instant) {
        let leg = (self.halves.get_mut(slot)).and_then(|half| half.leg.as_deref_mut());
        let leg = leg.filter(|leg| leg.kind.policy() == Policy::Conflux);
        let sent = match leg.map(|leg| (leg.stage, leg)) {
            Some((Stage::Linking(sent), leg)) => {
                leg.stage = Stage::Linked;
                sent
            }
            _ => {
                let what = "a CONFLUX_LINKED_ACK to no CONFLUX_LINKED";
                return self.protocol_error(slot, what, now);
            }
        };
        self.send_leg_rtt(slot, now.saturating_duration_since(sent));
    }

    /// The tunnel has closed, and so does its leg.
    fn on_tunnel_closed(
        &mut self,
        addr: HalfAddr,
        tunnel: HalfAddr,
        reason: DestroyReason,
        now: Instant,
    ) {
        let half = self.halves.at(addr);
        if half.and_then(|half| half.leg.as_ref()?.tunnel) == Some(tunnel) {
            self.close_half(self.halves.slot(addr), reason, Notify::Both, now);
        }
    }

    /// A half that is closing was a leg: its tunnel learns of that.
    pub(super) fn end_leg(&mut self, addr: HalfAddr, half: &mut CircuitHalf) {
        let Some(leg) = half.leg.take() else {
            return;
        };
        let Some(tunnel) = leg.tunnel else {
            // The controller's answer will find no half.
            return;
        };
        // As in C tor, which may miss less than what one SENDME is about.
        let end = half
            .streams()
            .and_then(|streams| streams.ends.get(leg.hop.index()));
        let flow = end.and_then(|end| end.flow.as_ref());
        let in_flight = flow.is_some_and(|flow| flow.in_flight() >= flow.increment());
        let closing = Closing {
            taken: leg.taken,
            given: leg.given,
            in_flight: in_flight || !half.queue.is_empty(),
        };
        self.send_control(LegControl::Closed {
            to: tunnel,
            leg: addr,
            closing,
        });
    }

    // ---- the tunnel ----

    /// Makes a tunnel beside its first leg.
    fn on_make_tunnel(&mut self, request: LegRequest, name: TunnelName, now: Instant) {
        let made = self.halves.at(request.half).and_then(|half| {
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
        let tunnel = made.and_then(|made| self.halves.insert(made));
        let by = request.half;
        let made = TunnelNews::Made { name, by, tunnel };
        self.to_controller.push(made.into());
        if let Some(tunnel) = tunnel {
            self.totals.tunnels.made += 1;
            let half = self.halves.at(tunnel).and_then(CircuitHalf::as_tunnel);
            if half.is_some_and(|half| half.policy == Policy::Mtor) {
                self.watched_tunnels.insert(self.halves.slot(tunnel));
            }
            self.on_join_tunnel(request, tunnel, now);
            if self.halves.at(request.half).is_none() {
                // It was refused, before the tunnel knew of it.
                self.close_half(
                    self.halves.slot(tunnel),
                    DestroyReason::INTERNAL,
                    Notify::Both,
                    now,
                );
            }
        }
    }

    /// A half wants to be a leg.
    fn on_leg_joins(&mut self, addr: HalfAddr, joining: &Joining, now: Instant) {
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return self.refuse_leg(joining.leg, addr, DestroyReason::INTERNAL);
        };
        let most = match tunnel.policy {
            Policy::Mtor => MAX_LEGS,
            Policy::Conflux => MAX_LEGS.min(self.params.conflux_legs),
        };
        let fits = tunnel.legs.len() < most
            && joining.terms == tunnel.leg_terms
            && joining.kind.policy() == tunnel.policy;
        // What the second leg of a tunnel of our own asks for is known once the first has its answer.
        let waits = tunnel.policy == Policy::Mtor && tunnel.id.is_none() && tunnel.legs.len() > 0;
        if !fits || waits {
            return self.refuse_leg(joining.leg, addr, DestroyReason::PROTOCOL);
        }
        let Joining {
            leg, link, ours, ..
        } = *joining;
        tunnel.legs.add(leg, link, ours, now);
        let (sequence, id) = (tunnel.sequence(), tunnel.id);
        if joining.ours.is_none() && tunnel.policy == Policy::Mtor {
            tunnel.legs.linked(joining.leg, Sequence::default(), None);
            self.totals.tunnels.linked += 1;
        }
        if let Some(asked) = joining.asked
            && !self.link_leg(addr, joining.leg, &asked, None, now)
        {
            return;
        }
        self.send_control(LegControl::Taken {
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
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        let name = tunnel.name;
        let linked = match answer {
            Answer::Conflux(link) => self.link_leg(addr, leg, &link, Some(took), now),
            Answer::Mtor(id) => self.link_mtor_leg(addr, leg, id, took, now),
        };
        if linked && let TunnelName::Origin(tunnel) = name {
            self.send_origin_event(OriginEvent::Linked {
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
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return false;
        };
        if far.last_seqno_sent > tunnel.reorder.delivered()
            || far.last_seqno_recv > tunnel.legs.sent()
        {
            self.totals.tunnels.lost += 1;
            let what =
                "a leg's far end that has sent what did not arrive, or received what was not sent";
            self.protocol_error(self.halves.slot(addr), what, now);
            return false;
        }
        let sequence = Sequence {
            sent: far.last_seqno_sent,
            received: far.last_seqno_recv,
        };
        tunnel.legs.linked(leg, sequence, rtt);
        tunnel.legs.scheduling = scheduling(far.desired_ux);
        self.totals.tunnels.linked += 1;
        true
    }

    /// Does not take a half as a leg.
    pub(super) fn refuse_leg(&mut self, leg: HalfAddr, tunnel: HalfAddr, reason: DestroyReason) {
        self.send_control(LegControl::TunnelClosed {
            to: leg,
            tunnel,
            reason,
        });
    }

    /// A leg has closed. The tunnel goes on if nothing was on its way there.
    fn on_leg_closed(&mut self, addr: HalfAddr, leg: HalfAddr, closing: Closing, now: Instant) {
        let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) else {
            return;
        };
        self.totals.tunnels.legs_lost += u64::from(tunnel.legs.is_in_use(leg));
        if tunnel.legs.closed(leg, closing) == Removed::End {
            self.end_without_leg(addr, now);
        }
    }

    /// No more is sent on a leg (mTor).
    fn on_leg_dropped(&mut self, addr: HalfAddr, leg: HalfAddr, now: Instant) {
        if let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) {
            tunnel.legs.drop_leg(leg, now);
            self.totals.tunnels.legs_dropped += 1;
        }
    }

    /// A tunnel cannot go on without a leg that has closed.
    pub(super) fn end_without_leg(&mut self, addr: HalfAddr, now: Instant) {
        self.totals.tunnels.broken += 1;
        self.close_half(
            self.halves.slot(addr),
            DestroyReason::FINISHED,
            Notify::Both,
            now,
        );
    }

    /// A half that is closing was a tunnel: so close its legs.
    pub(super) fn end_tunnel(
        &mut self,
        addr: HalfAddr,
        half: &mut CircuitHalf,
        reason: DestroyReason,
    ) {
        let Role::Tunnel(tunnel) = &mut half.role else {
            return;
        };
        let unsent = std::iter::from_fn(|| tunnel.waiting.pop());
        let waiting = tunnel.reorder.drain().chain(unsent);
        for cell in waiting {
            self.pool.put(cell);
        }
        let name = tunnel.name;
        let legs: Vec<HalfAddr> = tunnel.legs.iter().map(|leg| leg.half).collect();
        for leg in legs {
            self.refuse_leg(leg, addr, reason);
        }
        self.totals.tunnels.closed += 1;
        self.watched_tunnels.remove(&addr.slot);
        let closed = TunnelNews::Closed { name, tunnel: addr };
        self.to_controller.push(closed.into());
        if let TunnelName::Origin(circuit) = name {
            self.send_origin_event(OriginEvent::Closed {
                circuit,
                reason,
                remote: false,
            });
        }
    }

    /// The link that what a half does is charged to: its own, or that of a tunnel's first leg.
    pub(super) fn charged(&self, slot: HalfKey) -> Option<LegLink> {
        let half = self.halves.get(slot)?;
        match &half.role {
            Role::Tunnel(tunnel) => {
                let mut link = tunnel.legs.iter().next()?.link;
                link.from_client &= !planted(Fault::SingleHopTunnel);
                Some(link)
            }
            Role::Backward(_) | Role::Forward(_) | Role::Origin(_) => self.link_under(half.link),
        }
    }

    /// The same of a link.
    fn link_under(&self, key: LinkKey) -> Option<LegLink> {
        let link = self.links.get(key)?;
        Some(LegLink {
            connection: link.connection,
            network: link.network,
            from_client: link.peer == PeerIdentity::Unauthenticated,
        })
    }
}
