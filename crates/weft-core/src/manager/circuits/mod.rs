//! The life of a circuit half: here how it is made by CREATE or EXTEND2, joined and closed.
//!
//! - `messages`: relay messages that are for this node; `origin`: circuits that begin here, `traffic`: what they carried;
//! - `rendezvous`, `introduction`: circuits of onion services;
//! - `abra`: this relay's weight, for circuits that ask, and other relays' weights;
//! - `circpad`: padding on circuits whose origins ask for it.

pub(super) mod abra;
mod circpad;
mod introduction;
mod messages;
mod origin;
mod rendezvous;
pub(super) mod traffic;

use std::time::Instant;

use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::{CellView, RelayCmd};
use weft_crypto::HopKeys;
use weft_crypto::circuit::RelayCircuit;

use rand::Rng as _;
use weft_planted::{Fault, planted};

use super::{LocalConnectionManager, Notify, ProtocolViolation};
use crate::address::{ConnectionId, HalfAddr, HopIndex};
use crate::circuit::half::{CircuitHalf, ForwardStage, Peer, Purpose, Role};
use crate::link::padding::LinkUse;
use crate::message::{
    Asker, EdgeControl, ExtendRequest, HalfControl, IntroNews, Requester, ToController,
};
use crate::origin::OriginEvent;
use crate::slots::{HalfKey, LinkKey};

impl LocalConnectionManager {
    /// CREATE, CREATE_FAST or CREATE2 (tor-spec 5.1).
    pub(super) fn on_create(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        let circ_id = cell.circ_id();
        if !self.names_new_circuit(key, circ_id) {
            return;
        }
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (connection, network) = (link.connection, link.network);
        let refusal = if !link.peer_may_choose(circ_id) {
            Some(DestroyReason::PROTOCOL)
        } else if self.draining {
            Some(DestroyReason::HIBERNATING)
        } else if link.circuits() >= self.params.max_circuits_per_link {
            Some(DestroyReason::RESOURCELIMIT)
        } else {
            None
        };
        if let Some(reason) = refusal {
            if reason == DestroyReason::PROTOCOL {
                self.note_violation(
                    key,
                    "CREATE with a circuit id that is this side's to choose",
                );
            }
            self.push_destroy(key, circ_id, reason);
            return;
        }
        let request = match CreateRequest::decode(cell.command(), cell.body()) {
            Ok(request) => request,
            Err(_) => {
                self.note_violation(key, "a CREATE that cannot be parsed");
                self.push_destroy(key, circ_id, DestroyReason::PROTOCOL);
                return;
            }
        };
        let half = CircuitHalf::backward(key, circ_id);
        let Some(half) = self.add_half(half, now) else {
            self.push_destroy(key, circ_id, DestroyReason::RESOURCELIMIT);
            return;
        };
        self.wait_for(half, 0, now);
        let request = ToController::Create {
            half,
            connection,
            request,
        };
        self.ask(network, Asker::Half(half), request, now);
    }

    /// The same on a link on which this node is a client: DESTROY, before anything else that could distinguish a bridge
    /// from a client is looked at.
    pub(super) fn refuse_create(&mut self, key: LinkKey, cell: CellView<'_>) {
        let circ_id = cell.circ_id();
        if self.names_new_circuit(key, circ_id) {
            self.note_violation(key, "CREATE from a relay to which this node is a client");
            self.push_destroy(key, circ_id, DestroyReason::PROTOCOL);
        }
    }

    /// Whether a CREATE names a circuit that may be made or refused. Without a circuit id, or for a circuit that exists,
    /// a DESTROY would name no circuit or the wrong one: the cell is dropped, as C tor does.
    fn names_new_circuit(&mut self, key: LinkKey, circ_id: u32) -> bool {
        let is_new = circ_id != 0 && self.links.get(key).is_some_and(|link| !link.has(circ_id));
        if !is_new {
            self.note_violation(
                key,
                "CREATE for a circuit that exists, or without a circuit id",
            );
        }
        is_new
    }

    /// The controller's workers answered a CREATE: the half is open.
    pub(super) fn on_onionskin_answered(
        &mut self,
        addr: HalfAddr,
        reply: &CreateReply,
        keys: &HopKeys,
        sendme_inc: Option<u8>,
        now: Instant,
    ) {
        let Some(half) = self.halves.at(addr) else {
            return;
        };
        let Role::Backward(backward) = &mut half.role else {
            return;
        };
        if backward.crypt.is_some() {
            return;
        }
        backward.crypt = Some(RelayCircuit::new(keys));
        backward.sendme_inc = sendme_inc;
        let circ_id = half.circ_id;
        match reply.encode(circ_id) {
            Ok(cell) => {
                let cell = self.pool.hold(cell);
                self.enqueue(self.halves.slot(addr), cell, now);
            }
            Err(_) => self.close_half(
                self.halves.slot(addr),
                DestroyReason::INTERNAL,
                Notify::Both,
                now,
            ),
        }
    }

    /// The controller found the link for an extension: make its far half and send CREATE2.
    pub(super) fn on_join(
        &mut self,
        connection: ConnectionId,
        request: ExtendRequest,
        now: Instant,
    ) {
        let Some(key) = self.link_of(connection) else {
            // The link was closed while the controller answered. It reads that before it reads this,
            // and opens another.
            self.to_controller.push(ToController::Extend(request));
            return;
        };
        self.joined(key);
        let most = self.params.max_circuits_per_link;
        if (self.links.get(key)).is_some_and(|link| link.circuits() >= most) {
            // One client can fill a link to a relay. The others get another one.
            self.retire_link(key);
            self.to_controller.push(ToController::Extend(request));
            return;
        }
        let (from, cause, extension) = match request.from {
            Requester::Half {
                half,
                connection,
                extension,
            } => (half, connection, extension),
            Requester::Origin(circuit) => {
                return self.on_launch(connection, circuit, &request.create, now);
            }
        };
        let failed = |reason| HalfControl::ExtendFailed {
            to: from,
            extension,
            reason,
        };
        let random = self.rng.next_u32();
        let circ_id = self
            .links
            .get(key)
            .and_then(|link| link.choose_circ_id(random));
        let Some(circ_id) = circ_id else {
            self.send_control(failed(DestroyReason::RESOURCELIMIT));
            return;
        };
        let half = CircuitHalf::forward(key, circ_id, from, cause);
        let Ok(cell) = request.create.encode(circ_id) else {
            self.send_control(failed(DestroyReason::PROTOCOL));
            return;
        };
        let Some(half) = self.add_half(half, now) else {
            self.send_control(failed(DestroyReason::RESOURCELIMIT));
            return;
        };
        let cell = self.pool.hold(cell);
        self.wait_for(half, 0, now);
        self.client_link_carries(key, LinkUse::FullCircuits);
        self.send_control(HalfControl::Joined {
            to: from,
            peer: half,
            extension,
        });
        self.enqueue(self.halves.slot(half), cell, now);
    }

    /// CREATED, CREATED_FAST or CREATED2 (tor-spec 5.1, 5.3): only CREATED2 answers what we send.
    pub(super) fn on_created(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        let Some(slot) = self.slot_of(key, cell.circ_id()) else {
            self.totals.cells_dropped += 1;
            return;
        };
        let from = self.halves.addr(slot);
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let reply = CreateReply::decode(cell.command(), cell.body());
        if let Role::Origin(_) = &half.role {
            return match reply {
                Ok(reply) => self.on_origin_created(slot, reply, now),
                Err(_) => self.protocol_error(slot, "a CREATED2 that cannot be parsed", now),
            };
        }
        match (&mut half.role, half.peer, reply, from) {
            (
                Role::Forward(forward),
                Peer::Joined(to),
                Ok(CreateReply::Created2 { data }),
                Some(from),
            ) if forward.stage == ForwardStage::AwaitingCreated && data.len() + 2 <= MAX_DATA => {
                forward.stage = ForwardStage::Open;
                self.client_link_carries(key, LinkUse::UserTraffic);
                self.send_control(HalfControl::Created {
                    to,
                    from,
                    handshake: data,
                });
            }
            _ => self.protocol_error(
                slot,
                "an answer to no CREATE2 of ours, or one that cannot be parsed",
                now,
            ),
        }
    }

    /// A bridge carries a circuit on over a link that it opened, which is padded as a client's.
    fn client_link_carries(&mut self, key: LinkKey, usage: LinkUse) {
        if (self.links.get(key)).is_some_and(|link| link.role.is_client()) {
            self.link_carries(key, usage);
        }
    }

    /// DESTROY (tor-spec 5.4): the other side gets one, without the peer's reason, which could carry a
    /// signal along the circuit.
    pub(super) fn on_destroy(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        self.totals.destroys_received += 1;
        match self.slot_of(key, cell.circ_id()) {
            Some(slot) => match self.halves.get(slot).map(|half| &half.role) {
                Some(Role::Origin(_)) => self.on_origin_destroy(key, cell, now),
                _ => self.close_half(slot, DestroyReason::DESTROYED, Notify::Peer, now),
            },
            None => self.totals.cells_dropped += 1,
        }
    }

    /// A control message for a half.
    pub(super) fn on_control(&mut self, control: HalfControl, now: Instant) {
        let addr = control.to();
        if self.halves.at(addr).is_none() {
            return self.on_control_too_late(control, now);
        }
        match control {
            HalfControl::EdgeMade { stream, edge } => self.on_edge_made(stream, edge, now),
            HalfControl::CreditAsked { stream } => self.on_credit_asked(stream, now),
            HalfControl::CreditReturned { stream, cells } => {
                self.on_credit_returned(stream, cells, now);
            }
            HalfControl::Broken { what, .. } => self.on_stream_broken(addr, what, now),
            HalfControl::Ending {
                stream,
                connected,
                left,
            } => self.on_ending(stream, connected, left),
            HalfControl::Attach {
                edge,
                asked,
                hop,
                command,
                data,
            } => self.on_edge_attach(edge, asked, hop, command, &data, now),
            HalfControl::Joined {
                peer, extension, ..
            } => self.on_joined(addr, peer, extension),
            HalfControl::Created {
                from, handshake, ..
            } => {
                if self.is_peer(addr, from) {
                    self.send_extended(self.halves.slot(addr), &handshake, now);
                }
            }
            HalfControl::Spliced {
                peer, handshake, ..
            } => self.on_spliced(addr, peer, &handshake, now),
            HalfControl::Destroyed {
                from,
                reason,
                overflowed,
                ..
            } => {
                if self.is_peer(addr, from) {
                    self.on_destroyed(addr, reason, overflowed, now);
                }
            }
            HalfControl::Introduced { status, .. } => self.on_introduced(addr, status, now),
            HalfControl::Leg(control) => self.on_leg_control(addr, control, now),
            HalfControl::Controller { message, .. } => self.on_forwarded(*message, now),
            HalfControl::ExtendFailed {
                extension, reason, ..
            } => {
                if self.is_extending(addr, extension) {
                    self.close_half(self.halves.slot(addr), reason, Notify::Link, now);
                }
            }
        }
    }

    /// A control message for a half that has closed: what was made for it must not live on.
    fn on_control_too_late(&mut self, control: HalfControl, now: Instant) {
        match control {
            HalfControl::EdgeMade { stream, edge } => self.detach(edge, stream),
            HalfControl::Attach { edge, asked, .. } => self.send(
                EdgeControl::Answered {
                    to: edge,
                    asked,
                    stream: None,
                }
                .into(),
            ),
            HalfControl::Joined { to, peer, .. } => self.send_destroyed(peer, to),
            HalfControl::Spliced { to, peer, .. } => {
                self.totals.rendezvous.join_dead += 1;
                self.send_destroyed(peer, to);
            }
            HalfControl::Leg(control) => self.on_leg_control_too_late(control),
            HalfControl::Controller { message, .. } => self.on_forwarded(*message, now),
            HalfControl::CreditAsked { .. }
            | HalfControl::CreditReturned { .. }
            | HalfControl::Broken { .. }
            | HalfControl::Ending { .. }
            | HalfControl::Created { .. }
            | HalfControl::Introduced { .. }
            | HalfControl::Destroyed { .. }
            | HalfControl::ExtendFailed { .. } => {}
        }
    }

    /// Whether `from` is the peer of a half.
    fn is_peer(&mut self, addr: HalfAddr, from: HalfAddr) -> bool {
        let half = self.halves.at(addr);
        half.is_some_and(|half| half.peer == Peer::Joined(from))
    }

    /// Whether a half waits for this one of its extensions.
    fn is_extending(&mut self, addr: HalfAddr, extension: u32) -> bool {
        self.halves.at(addr).is_some_and(|half| {
            half.peer == Peer::Extending
                && matches!(&half.role, Role::Backward(backward) if backward.extension == extension)
        })
    }

    /// Closes a half that was made for a half that has closed, or wants another.
    fn send_destroyed(&mut self, to: HalfAddr, from: HalfAddr) {
        self.send_control(HalfControl::Destroyed {
            to,
            from,
            reason: DestroyReason::DESTROYED,
            overflowed: false,
        });
    }

    /// The half of an extension exists.
    fn on_joined(&mut self, addr: HalfAddr, peer: HalfAddr, extension: u32) {
        if self.is_extending(addr, extension)
            && let Some(half) = self.halves.at(addr)
        {
            half.peer = Peer::Joined(peer);
        } else {
            self.send_destroyed(peer, addr);
        }
    }

    /// The other end of a rendezvous.
    fn on_spliced(&mut self, addr: HalfAddr, peer: HalfAddr, handshake: &[u8], now: Instant) {
        if let Some(half) = self.halves.at(addr)
            && half.peer == Peer::None
            && let Role::Backward(backward) = &mut half.role
            && backward.purpose == Purpose::RendezvousWaiting
        {
            backward.purpose = Purpose::Rendezvous;
            half.peer = Peer::Joined(peer);
            self.unsubscribe(self.halves.slot(addr));
            self.totals.rendezvous.joined += 1;
            let command = RelayCmd::RENDEZVOUS2;
            self.send_relay_msg(
                self.halves.slot(addr),
                HopIndex::ORIGIN,
                command,
                0,
                handshake,
                now,
            );
        } else {
            self.send_destroyed(peer, addr);
        }
    }

    /// The peer half has closed.
    fn on_destroyed(
        &mut self,
        addr: HalfAddr,
        reason: DestroyReason,
        overflowed: bool,
        now: Instant,
    ) {
        let link = self.halves.at(addr).map(|half| half.link);
        if overflowed && let Some(link) = link.and_then(|key| self.links.get(key)) {
            let connection = link.connection;
            self.to_controller
                .push(ToController::QueueOverflowed { connection });
        }
        self.close_half(self.halves.slot(addr), reason, Notify::Link, now);
    }

    /// Puts a half in the tables.
    pub(super) fn add_half(&mut self, half: CircuitHalf, now: Instant) -> Option<HalfAddr> {
        let (key, circ_id) = (half.link, half.circ_id);
        let addr = self.halves.insert(half)?;
        if let Some(link) = self.links.get_mut(key) {
            link.add(circ_id, self.halves.slot(addr));
        }
        self.load_changed(key);
        self.scheduler
            .circuit_added(self.halves.slot(addr), key, now);
        Some(addr)
    }

    /// Closes a half: its queued cells are dropped, the sides that `notify` names are notified, and its
    /// slot is free.
    pub(super) fn close_half(
        &mut self,
        slot: HalfKey,
        reason: DestroyReason,
        notify: Notify,
        now: Instant,
    ) {
        self.close_half_by(slot, reason, ClosedBy::Us, notify, now);
    }

    /// The same. `by` is reported of a circuit that begins here.
    pub(super) fn close_half_by(
        &mut self,
        slot: HalfKey,
        reason: DestroyReason,
        by: ClosedBy,
        notify: Notify,
        now: Instant,
    ) {
        let Some(from) = self.halves.addr(slot) else {
            return;
        };
        self.unsubscribe(slot);
        self.circpad.remove(from);
        let Some(mut half) = self.halves.remove(slot) else {
            return;
        };
        if half.is_guest {
            self.forget_route(from);
        }
        self.note_queue_gone(slot, &half, from, true, now);
        if !planted(Fault::SchedulerKeepsHalf) {
            self.scheduler.circuit_removed(slot);
        }
        self.to_controller.cancel(Asker::Half(from));
        if let Some(link) = self.links.get_mut(half.link) {
            link.remove(half.circ_id, now);
        }
        if !half.queue.is_empty() && !planted(Fault::ClosedHalfStaysActive) {
            self.links.deactivated(half.link);
        }
        self.load_changed(half.link);
        if !planted(Fault::StreamsOutliveHalf) {
            self.end_streams(from, &mut half);
        }
        if !planted(Fault::LegEndNotReported) {
            self.end_leg(from, &mut half);
        }
        self.end_tunnel(from, &mut half, reason);
        // CREATE2 is the first cell of a forward half. If it still waits, the next hop has nothing to destroy. Cells
        // that wait show nothing: the origin may send some before CREATED2.
        let unsent = matches!(half.role, Role::Forward(_)) && half.queue.departed() == 0;
        while let Some(cell) = half.queue.pop() {
            self.pool.put(cell);
        }
        let mut sent_reason = reason;
        match &mut half.role {
            Role::Backward(backward) if backward.purpose == Purpose::RendezvousWaiting => {
                self.to_controller
                    .push(ToController::RendezvousGone { half: from });
            }
            Role::Backward(backward) if backward.purpose == Purpose::Introduction => {
                let gone = IntroNews::Gone { half: from };
                self.to_controller.push(gone.into());
            }
            Role::Backward(_) | Role::Forward(_) | Role::Tunnel(_) => {}
            Role::Origin(origin) => {
                // An origin sends no reason (tor-spec 5.4).
                sent_reason = DestroyReason::NONE;
                let circuit = origin.id;
                if let Some(report) = origin.take_report() {
                    self.send_origin_event(OriginEvent::Traffic {
                        streams: Vec::new(),
                        circuits: vec![report],
                    });
                }
                self.send_origin_event(OriginEvent::Closed {
                    circuit,
                    reason,
                    remote: by == ClosedBy::Peer,
                });
            }
        }
        if matches!(notify, Notify::Both | Notify::Overflowed | Notify::Link) && !unsent {
            self.push_destroy(half.link, half.circ_id, sent_reason);
        }
        if let (Peer::Joined(to), Notify::Both | Notify::Overflowed | Notify::Peer) =
            (half.peer, notify)
            && !planted(Fault::PeerNotNotified)
        {
            self.send_control(HalfControl::Destroyed {
                to,
                from,
                reason,
                overflowed: notify == Notify::Overflowed && matches!(half.role, Role::Forward(_)),
            });
        }
    }

    /// Ends a half whose link's peer broke the protocol.
    pub(super) fn protocol_error(&mut self, slot: HalfKey, what: &'static str, now: Instant) {
        if let Some(link) = self.charged(slot) {
            self.note_violation_by(link.connection, what);
        }
        self.close_half(slot, DestroyReason::PROTOCOL, Notify::Both, now);
    }

    /// Counts a violation by the peer of a link, and keeps the first of a turn to be logged.
    pub(super) fn note_violation(&mut self, key: LinkKey, what: &'static str) {
        if let Some(link) = self.links.get(key) {
            self.note_violation_by(link.connection, what);
        }
    }

    /// The same of a connection.
    fn note_violation_by(&mut self, connection: ConnectionId, what: &'static str) {
        self.totals.protocol_errors += 1;
        if self.violation.is_none() {
            self.violation = Some(ProtocolViolation { connection, what });
        }
    }

    /// Queues a DESTROY on a link.
    pub(super) fn push_destroy(&mut self, key: LinkKey, circ_id: u32, reason: DestroyReason) {
        if planted(Fault::DestroyDropped) {
            return;
        }
        if let Some(link) = self.links.get_mut(key) {
            link.destroys.push_back((circ_id, reason));
            if !planted(Fault::LinkNotListed) {
                self.links.list_to_write(key);
            }
        }
    }

    /// The half must have its answer before long. `extension` is what it waits for, see
    /// [`Wait`](crate::circuit::half::Wait).
    pub(super) fn wait_for(&mut self, half: HalfAddr, extension: u32, now: Instant) {
        if planted(Fault::WaitWithoutTimer) {
            return;
        }
        let wait = (half, extension);
        self.waits
            .add(wait, &mut self.halves, self.params.wait, now);
    }
}

/// The side that closes a circuit that begins here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosedBy {
    /// This node.
    Us,
    /// Another relay of the circuit.
    Peer,
}
