//! The life of a circuit half: here how it is made by CREATE or EXTEND2, joined and closed.
//!
//! - `messages`: relay messages that are for this node; `origin`: circuits that begin here;
//! - `rendezvous`, `introduction`: circuits of onion services;
//! - `abra`: this relay's weight, for circuits that ask, and other relays' weights;
//! - `circpad`: padding on circuits whose origins ask for it.

pub(super) mod abra;
pub(super) mod circpad;
mod introduction;
mod messages;
mod origin;
mod rendezvous;

use std::time::Instant;

use rand::Rng as _;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::{CellView, RelayCmd};
use weft_crypto::HopKeys;
use weft_crypto::circuit::RelayCircuit;

use super::path::CellPath;
use super::path::closing::Notify;
use crate::address::{ConnectionId, HalfAddr, HopIndex};
use crate::circuit::half::{CircuitHalf, ForwardStage, Peer, Purpose, Role};
use crate::link::padding::LinkUse;
use crate::message::{Asker, ExtendRequest, HalfControl, Requester, ToController};
use crate::slots::LinkKey;

use abra::Abra;

/// The life of circuits, over the path that their halves are on.
#[derive(Debug)]
pub(super) struct Circuits<'a> {
    pub(super) path: &'a mut CellPath,
    pub(super) abra: &'a mut Abra,
}

impl Circuits<'_> {
    /// CREATE, CREATE_FAST or CREATE2 (tor-spec 5.1).
    pub(in crate::manager) fn on_create(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        let circ_id = cell.circ_id();
        if !self.names_new_circuit(key, circ_id) {
            return;
        }
        let Some(link) = self.path.links.get(key) else {
            return;
        };
        let (connection, network) = (link.connection, link.network);
        let refusal = if !link.peer_may_choose(circ_id) {
            Some(DestroyReason::PROTOCOL)
        } else if self.path.draining {
            Some(DestroyReason::HIBERNATING)
        } else if link.circuits() >= self.path.params.max_circuits_per_link {
            Some(DestroyReason::RESOURCELIMIT)
        } else {
            None
        };
        if let Some(reason) = refusal {
            if reason == DestroyReason::PROTOCOL {
                self.path.note_violation(
                    key,
                    "CREATE with a circuit id that is this side's to choose",
                );
            }
            self.path.links.push_destroy(key, circ_id, reason);
            return;
        }
        let request = match CreateRequest::decode(cell.command(), cell.body()) {
            Ok(request) => request,
            Err(_) => {
                self.path
                    .note_violation(key, "a CREATE that cannot be parsed");
                self.path
                    .links
                    .push_destroy(key, circ_id, DestroyReason::PROTOCOL);
                return;
            }
        };
        let half = CircuitHalf::backward(key, circ_id);
        let Some(half) = self.path.add_half(half, now) else {
            self.path
                .links
                .push_destroy(key, circ_id, DestroyReason::RESOURCELIMIT);
            return;
        };
        self.path.wait_for(half, 0, now);
        let request = ToController::Create {
            half,
            connection,
            request,
        };
        self.path.ask(network, Asker::Half(half), request, now);
    }

    /// Refuses a CREATE on a link on which this node is a client: DESTROY, before any check that
    /// could distinguish a bridge from a client.
    pub(in crate::manager) fn refuse_create(&mut self, key: LinkKey, cell: CellView<'_>) {
        let circ_id = cell.circ_id();
        if self.names_new_circuit(key, circ_id) {
            self.path
                .note_violation(key, "CREATE from a relay to which this node is a client");
            self.path
                .links
                .push_destroy(key, circ_id, DestroyReason::PROTOCOL);
        }
    }

    /// True if a CREATE names a circuit that may be made or refused. Without a circuit id, or for a
    /// circuit that exists, a DESTROY would name no circuit or the wrong one: the cell is dropped,
    /// as C tor does.
    fn names_new_circuit(&mut self, key: LinkKey, circ_id: u32) -> bool {
        let is_new = circ_id != 0
            && self
                .path
                .links
                .get(key)
                .is_some_and(|link| !link.has(circ_id));
        if !is_new {
            self.path.note_violation(
                key,
                "CREATE for a circuit that exists, or without a circuit id",
            );
        }
        is_new
    }

    /// The controller's workers answered a CREATE: the half is open.
    pub(in crate::manager) fn on_onionskin_answered(
        &mut self,
        addr: HalfAddr,
        reply: &CreateReply,
        keys: &HopKeys,
        sendme_inc: Option<u8>,
        now: Instant,
    ) {
        let Some(half) = self.path.halves.at(addr) else {
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
                let cell = self.path.pool.hold(cell);
                self.path.enqueue(self.path.halves.slot(addr), cell, now);
            }
            Err(_) => self.path.close_half(
                self.path.halves.slot(addr),
                DestroyReason::INTERNAL,
                Notify::Both,
                now,
            ),
        }
    }

    /// The controller found the link for an extension: make its far half and send CREATE2.
    pub(in crate::manager) fn on_join(
        &mut self,
        connection: ConnectionId,
        request: ExtendRequest,
        now: Instant,
    ) {
        let Some(key) = self.path.links.of(connection) else {
            // The link was closed while the controller answered. It reads that before it reads this,
            // and opens another.
            self.path.to_controller.push(ToController::Extend(request));
            return;
        };
        self.path.joined(key);
        let most = self.path.params.max_circuits_per_link;
        if (self.path.links.get(key)).is_some_and(|link| link.circuits() >= most) {
            // One client can fill a link to a relay. The others get another one.
            self.path.retire_link(key);
            self.path.to_controller.push(ToController::Extend(request));
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
        let random = self.path.rng.next_u32();
        let circ_id = self
            .path
            .links
            .get(key)
            .and_then(|link| link.choose_circ_id(random));
        let Some(circ_id) = circ_id else {
            self.path
                .outboxes
                .send_half(failed(DestroyReason::RESOURCELIMIT));
            return;
        };
        let half = CircuitHalf::forward(key, circ_id, from, cause);
        let Ok(cell) = request.create.encode(circ_id) else {
            self.path
                .outboxes
                .send_half(failed(DestroyReason::PROTOCOL));
            return;
        };
        let Some(half) = self.path.add_half(half, now) else {
            self.path
                .outboxes
                .send_half(failed(DestroyReason::RESOURCELIMIT));
            return;
        };
        let cell = self.path.pool.hold(cell);
        self.path.wait_for(half, 0, now);
        self.client_link_carries(key, LinkUse::FullCircuits);
        self.path.outboxes.send_half(HalfControl::Joined {
            to: from,
            peer: half,
            extension,
        });
        self.path.enqueue(self.path.halves.slot(half), cell, now);
    }

    /// CREATED, CREATED_FAST or CREATED2 (tor-spec 5.1, 5.3): only CREATED2 answers what we send.
    pub(in crate::manager) fn on_created(
        &mut self,
        key: LinkKey,
        cell: CellView<'_>,
        now: Instant,
    ) {
        let Some(slot) = self.path.links.half_of(key, cell.circ_id()) else {
            self.path.totals.cells_dropped += 1;
            return;
        };
        let from = self.path.halves.addr(slot);
        let Some(half) = self.path.halves.get_mut(slot) else {
            return;
        };
        let reply = CreateReply::decode(cell.command(), cell.body());
        if let Role::Origin(_) = &half.role {
            return match reply {
                Ok(reply) => self.on_origin_created(slot, reply, now),
                Err(_) => self
                    .path
                    .protocol_error(slot, "a CREATED2 that cannot be parsed", now),
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
                self.path.outboxes.send_half(HalfControl::Created {
                    to,
                    from,
                    handshake: data,
                });
            }
            _ => self.path.protocol_error(
                slot,
                "an answer to no CREATE2 of ours, or one that cannot be parsed",
                now,
            ),
        }
    }

    /// A bridge carries a circuit on over a link that it opened, which is padded as a client's.
    fn client_link_carries(&mut self, key: LinkKey, usage: LinkUse) {
        if (self.path.links.get(key)).is_some_and(|link| link.role.is_client()) {
            self.path.links.carries(key, usage);
        }
    }

    /// DESTROY (tor-spec 5.4): the other side gets one, without the peer's reason, which could carry a
    /// signal along the circuit.
    pub(in crate::manager) fn on_destroy(
        &mut self,
        key: LinkKey,
        cell: CellView<'_>,
        now: Instant,
    ) {
        self.path.totals.destroys_received += 1;
        match self.path.links.half_of(key, cell.circ_id()) {
            Some(slot) => match self.path.halves.get(slot).map(|half| &half.role) {
                Some(Role::Origin(_)) => self.on_origin_destroy(key, cell, now),
                _ => self
                    .path
                    .close_half(slot, DestroyReason::DESTROYED, Notify::Peer, now),
            },
            None => self.path.totals.cells_dropped += 1,
        }
    }

    /// The half of an extension exists.
    pub(in crate::manager) fn on_joined(&mut self, addr: HalfAddr, peer: HalfAddr, extension: u32) {
        if self.path.halves.is_extending(addr, extension)
            && let Some(half) = self.path.halves.at(addr)
        {
            half.peer = Peer::Joined(peer);
        } else {
            self.path.outboxes.send_destroyed(peer, addr);
        }
    }

    /// The other end of a rendezvous.
    pub(in crate::manager) fn on_spliced(
        &mut self,
        addr: HalfAddr,
        peer: HalfAddr,
        handshake: &[u8],
        now: Instant,
    ) {
        if let Some(half) = self.path.halves.at(addr)
            && half.peer == Peer::None
            && let Role::Backward(backward) = &mut half.role
            && backward.purpose == Purpose::RendezvousWaiting
        {
            backward.purpose = Purpose::Rendezvous;
            half.peer = Peer::Joined(peer);
            self.abra.unsubscribe(addr);
            self.path.totals.rendezvous.joined += 1;
            let command = RelayCmd::RENDEZVOUS2;
            self.path.send_relay_msg(
                self.path.halves.slot(addr),
                HopIndex::ORIGIN,
                command,
                0,
                handshake,
                now,
            );
        } else {
            self.path.outboxes.send_destroyed(peer, addr);
        }
    }

    /// The peer half has closed.
    pub(in crate::manager) fn on_destroyed(
        &mut self,
        addr: HalfAddr,
        reason: DestroyReason,
        overflowed: bool,
        now: Instant,
    ) {
        let link = self.path.halves.at(addr).map(|half| half.link);
        if overflowed && let Some(link) = link.and_then(|key| self.path.links.get(key)) {
            let connection = link.connection;
            self.path
                .to_controller
                .push(ToController::QueueOverflowed { connection });
        }
        self.path
            .close_half(self.path.halves.slot(addr), reason, Notify::Link, now);
    }
}
