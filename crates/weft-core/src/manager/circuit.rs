//! The life of a circuit half: made by CREATE or EXTEND2, joined, closed.

use std::time::Instant;

use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::MAX_DATA;
use weft_cell::{Cell, CellView, ChanCmd, RelayCmd};
use weft_crypto::HopKeys;
use weft_crypto::circuit::RelayCircuit;

use rand::Rng as _;

use super::requests::Asker;
use super::{Complaint, LocalConnectionManager, Tell};
use crate::address::{ConnectionId, HalfAddr};
use crate::half::{Away, CircuitHalf, Peer, Purpose, Role, Toward, Wait};
use crate::message::{EdgeControl, ExtendRequest, HalfControl, Requester, ToController};
use crate::origin::OriginEvent;
use crate::scheduler::LinkKey;

impl LocalConnectionManager {
    /// CREATE, CREATE_FAST or CREATE2 (tor-spec 5.1).
    pub(super) fn on_create(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        let circ_id = cell.circ_id();
        let Some(link) = self.links.get(key as usize) else {
            return;
        };
        // Without a circuit id, or for a circuit that exists, a DESTROY would say nothing or hit
        // the wrong circuit: drop it, as C tor does.
        if circ_id == 0 || link.has(circ_id) {
            self.complain(
                key,
                "CREATE for a circuit that exists, or without a circuit id",
            );
            return;
        }
        let connection = link.connection;
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
                self.complain(
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
                self.complain(key, "a CREATE that cannot be parsed");
                self.push_destroy(key, circ_id, DestroyReason::PROTOCOL);
                return;
            }
        };
        let half = CircuitHalf::toward_origin(key, circ_id);
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
        self.ask(key, Asker::Half(half), request, now);
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
        let Role::TowardOrigin(toward) = &mut half.role else {
            return;
        };
        if toward.crypt.is_some() {
            return;
        }
        toward.crypt = Some(RelayCircuit::new(keys));
        toward.sendme_inc = sendme_inc;
        let circ_id = half.circ_id;
        match reply.encode(circ_id) {
            Ok(cell) => {
                let cell = self.pool.hold(cell);
                self.enqueue(addr.slot, cell, now);
            }
            Err(_) => self.close_half(addr.slot, DestroyReason::INTERNAL, Tell::Both, now),
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
            // The link went away while the controller answered; it has been told so before it
            // reads this, and will open another.
            self.to_controller.push_back(ToController::Extend(request));
            return;
        };
        let (from, extension) = match request.from {
            Requester::Half {
                half, extension, ..
            } => (half, extension),
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
            .get(key as usize)
            .filter(|link| link.circuits() < self.params.max_circuits_per_link)
            .and_then(|link| link.choose_circ_id(random));
        let Some(circ_id) = circ_id else {
            self.send_control(failed(DestroyReason::RESOURCELIMIT));
            return;
        };
        let half = CircuitHalf::away_from_origin(key, circ_id, from);
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
        self.send_control(HalfControl::Joined {
            to: from,
            peer: half,
            extension,
        });
        self.enqueue(half.slot, cell, now);
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
                Role::AwayFromOrigin(away @ Away::AwaitingCreated),
                Peer::Joined(to),
                Ok(CreateReply::Created2 { data }),
                Some(from),
            ) if data.len() + 2 <= MAX_DATA => {
                *away = Away::Open;
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

    /// DESTROY (tor-spec 5.4): the other side hears it, without the peer's reason, which could
    /// carry a signal along the circuit.
    pub(super) fn on_destroy(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        self.totals.destroys_received += 1;
        match self.slot_of(key, cell.circ_id()) {
            Some(slot) => match self.halves.get(slot).map(|half| &half.role) {
                Some(Role::Origin(_)) => self.on_origin_destroy(key, cell, now),
                _ => self.close_half(slot, DestroyReason::DESTROYED, Tell::Peer, now),
            },
            None => self.totals.cells_dropped += 1,
        }
    }

    /// What another half says.
    pub(super) fn on_control(&mut self, control: HalfControl, now: Instant) {
        let addr = control.to();
        let Some(half) = self.halves.at(addr) else {
            if matches!(control, HalfControl::Spliced { .. }) {
                self.totals.rendezvous.join_dead += 1;
            }
            match control {
                // The circuit closed while the edge was made, or asked.
                HalfControl::EdgeMade { stream, edge } => return self.detach(edge, stream),
                HalfControl::Attach { edge, asked, .. } => {
                    return self.send(
                        EdgeControl::Answered {
                            to: edge,
                            asked,
                            stream: None,
                        }
                        .into(),
                    );
                }
                _ => {}
            }
            // Ours is gone; a half that was made for it must not live on.
            if let HalfControl::Joined { to, peer, .. } | HalfControl::Spliced { to, peer, .. } =
                control
            {
                self.send_control(HalfControl::Destroyed {
                    to: peer,
                    from: to,
                    reason: DestroyReason::DESTROYED,
                    overflowed: false,
                });
            }
            return;
        };
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
            } => {
                let wanted = matches!(&half.role, Role::TowardOrigin(toward) if toward.extension == extension);
                if wanted && half.peer == Peer::Extending {
                    half.peer = Peer::Joined(peer);
                } else {
                    self.send_control(HalfControl::Destroyed {
                        to: peer,
                        from: addr,
                        reason: DestroyReason::DESTROYED,
                        overflowed: false,
                    });
                }
            }
            HalfControl::Created {
                from, handshake, ..
            } => {
                if half.peer == Peer::Joined(from) {
                    self.send_extended(addr.slot, &handshake, now);
                }
            }
            HalfControl::Spliced {
                peer, handshake, ..
            } => match &mut half.role {
                Role::TowardOrigin(toward)
                    if toward.purpose == Purpose::RendezvousWaiting && half.peer == Peer::None =>
                {
                    toward.purpose = Purpose::Rendezvous;
                    half.peer = Peer::Joined(peer);
                    self.totals.rendezvous.joined += 1;
                    self.say(addr.slot, 0, RelayCmd::RENDEZVOUS2, 0, &handshake, now);
                }
                _ => self.send_control(HalfControl::Destroyed {
                    to: peer,
                    from: addr,
                    reason: DestroyReason::DESTROYED,
                    overflowed: false,
                }),
            },
            HalfControl::Destroyed {
                from,
                reason,
                overflowed,
                ..
            } => {
                if half.peer == Peer::Joined(from) {
                    if overflowed && let Some(link) = self.links.get(half.link as usize) {
                        self.to_controller.push_back(ToController::QueueOverflowed {
                            connection: link.connection,
                        });
                    }
                    self.close_half(addr.slot, reason, Tell::Link, now);
                }
            }
            HalfControl::ExtendFailed {
                extension, reason, ..
            } => {
                let wanted = matches!(&half.role, Role::TowardOrigin(toward) if toward.extension == extension);
                if wanted && half.peer == Peer::Extending {
                    self.close_half(addr.slot, reason, Tell::Link, now);
                }
            }
        }
    }

    /// A relay cell from the other half: the half that holds the keys adds its layer, and the cell
    /// waits for the scheduler.
    pub(super) fn deliver(
        &mut self,
        to: HalfAddr,
        from: HalfAddr,
        mut cell: Box<Cell>,
        now: Instant,
    ) {
        let ready = match self.halves.at(to) {
            Some(half) if half.peer == Peer::Joined(from) => match &mut half.role {
                Role::TowardOrigin(Toward {
                    crypt: Some(crypt), ..
                }) => {
                    crypt.encrypt_backward(cell.body_mut());
                    cell.set_command(ChanCmd::RELAY);
                    true
                }
                Role::TowardOrigin(_) | Role::Origin(_) => false,
                Role::AwayFromOrigin(_) => true,
            },
            _ => false,
        };
        if ready {
            self.totals.cells_relayed += 1;
            self.enqueue(to.slot, cell, now);
        } else {
            self.totals.cells_dropped += 1;
            self.pool.put(cell);
        }
    }

    /// Puts a cell in a half's queue; past the bound the circuit dies (architecture rule 3).
    pub(super) fn enqueue(&mut self, slot: u32, mut cell: Box<Cell>, now: Instant) {
        let Some(half) = self.halves.get_mut(slot) else {
            self.pool.put(cell);
            return;
        };
        let (bound, away) = match half.role {
            Role::TowardOrigin(_) => (self.params.max_queue_toward, false),
            Role::AwayFromOrigin(_) | Role::Origin(_) => (self.params.max_queue_away, true),
        };
        if half.queue.len() >= bound {
            self.pool.put(cell);
            self.totals.queues_overflowed += 1;
            self.totals.queues_overflowed_away += u64::from(away);
            self.close_half(slot, DestroyReason::RESOURCELIMIT, Tell::Overflowed, now);
            return;
        }
        cell.set_circ_id(half.circ_id);
        let first = half.queue.is_empty();
        half.queue.push(cell, now);
        if first {
            let key = half.link;
            self.activate(slot, key);
        }
    }

    /// A half whose queue was empty has cells: the scheduler knows of it.
    pub(super) fn activate(&mut self, slot: u32, key: LinkKey) {
        self.scheduler.set_active(slot, true);
        if let Some(link) = self.links.get_mut(key as usize) {
            link.active_halves += 1;
        }
        self.list(key);
    }

    /// Puts a half in the tables.
    pub(super) fn add_half(&mut self, half: CircuitHalf, now: Instant) -> Option<HalfAddr> {
        let (key, circ_id) = (half.link, half.circ_id);
        let addr = self.halves.insert(half)?;
        if let Some(link) = self.links.get_mut(key as usize) {
            link.add(circ_id, addr.slot);
        }
        self.scheduler.circuit_added(addr.slot, key, now);
        Some(addr)
    }

    /// Ends a half: its queued cells go, whoever shall know hears of it, its slot is free.
    pub(super) fn close_half(
        &mut self,
        slot: u32,
        reason: DestroyReason,
        tell: Tell,
        now: Instant,
    ) {
        let Some(from) = self.halves.addr(slot) else {
            return;
        };
        let Some(mut half) = self.halves.remove(slot) else {
            return;
        };
        self.scheduler.circuit_removed(slot);
        self.requests.cancel(Asker::Half(from));
        if let Some(link) = self.links.get_mut(half.link as usize) {
            link.remove(half.circ_id, now);
            if !half.queue.is_empty() {
                link.active_halves = link.active_halves.saturating_sub(1);
            }
        }
        self.end_streams(from, &mut half);
        // A CREATE2 that still waits was never sent: the next hop knows of nothing to destroy.
        let unknown = matches!(half.role, Role::AwayFromOrigin(Away::AwaitingCreated))
            && !half.queue.is_empty();
        while let Some(cell) = half.queue.pop() {
            self.pool.put(cell);
        }
        if matches!(&half.role, Role::TowardOrigin(toward) if toward.purpose == Purpose::RendezvousWaiting)
        {
            self.to_controller
                .push_back(ToController::RendezvousGone { half: from });
        }
        let mut told = reason;
        if let Role::Origin(origin) = &mut half.role {
            // An origin does not say why (tor-spec 5.4).
            told = DestroyReason::NONE;
            let (circuit, remote) = (origin.id, self.closed_by_peer);
            if let Some(report) = origin.take_report() {
                self.tell_origin(OriginEvent::Traffic {
                    streams: Vec::new(),
                    circuits: vec![report],
                });
            }
            self.tell_origin(OriginEvent::Closed {
                circuit,
                reason,
                remote,
            });
        }
        if matches!(tell, Tell::Both | Tell::Overflowed | Tell::Link) && !unknown {
            self.push_destroy(half.link, half.circ_id, told);
        }
        if let (Peer::Joined(to), Tell::Both | Tell::Overflowed | Tell::Peer) = (half.peer, tell) {
            self.send_control(HalfControl::Destroyed {
                to,
                from,
                reason,
                overflowed: tell == Tell::Overflowed
                    && matches!(half.role, Role::AwayFromOrigin(_)),
            });
        }
    }

    /// Ends a half whose link's peer broke the protocol.
    pub(super) fn protocol_error(&mut self, slot: u32, what: &'static str, now: Instant) {
        if let Some(half) = self.halves.get_mut(slot) {
            let key = half.link;
            self.complain(key, what);
        }
        self.close_half(slot, DestroyReason::PROTOCOL, Tell::Both, now);
    }

    /// Counts what the peer of a link did wrong, and keeps the first of a turn to be told.
    fn complain(&mut self, key: LinkKey, what: &'static str) {
        self.totals.protocol_errors += 1;
        if let Some(link) = self.links.get(key as usize)
            && self.complaint.is_none()
        {
            self.complaint = Some(Complaint {
                connection: link.connection,
                what,
            });
        }
    }

    /// Queues a DESTROY on a link.
    pub(super) fn push_destroy(&mut self, key: LinkKey, circ_id: u32, reason: DestroyReason) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.destroys.push_back((circ_id, reason));
            self.list(key);
        }
    }

    /// The half must have moved on before long. `extension` is what it waits for, see [`Wait`].
    pub(super) fn wait_for(&mut self, half: HalfAddr, extension: u32, now: Instant) {
        // Halves come and go, and extend and truncate, faster than waits run out: those that
        // nobody waits for any more are swept up, so that no more are left than there are halves.
        if self.waits.len() > 1024 && self.waits.len() > 4 * self.halves.len() {
            let halves = &mut self.halves;
            self.waits.retain(|wait| {
                let half = halves.at(wait.half);
                half.is_some_and(|half| half.still_waits(wait.extension))
            });
        }
        self.waits.push_back(Wait {
            deadline: now + self.params.wait,
            half,
            extension,
        });
    }

    /// The half of a circuit on a link.
    pub(super) fn slot_of(&mut self, key: LinkKey, circ_id: u32) -> Option<u32> {
        self.links.get_mut(key as usize)?.half(circ_id)
    }
}
