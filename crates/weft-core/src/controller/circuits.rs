//! Circuits of others: CREATEs, and extensions to other relays.

use std::net::SocketAddr;
use std::time::Instant;

use rand::RngExt as _;
use weft_cell::circ_msg::CreateRequest;
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::DestroyReason;
use weft_share::PreviousHop;

use super::connections::State;
use super::onionskins::{Create, OnionskinKind, Room};
use super::{Action, Notice, RelayController, Sharing};
use crate::address::{ConnectionId, HalfAddr};
use crate::message::{ExtendRequest, FromController, Requester};
use crate::origin::LinkState;

impl RelayController {
    pub(super) fn on_create(
        &mut self,
        half: HalfAddr,
        connection: ConnectionId,
        request: CreateRequest,
        now: Instant,
    ) {
        let hop = self.previous_hop(connection);
        let found = self.connections.get(connection);
        let by_relay = found.is_some_and(|found| !found.is_client(&self.network));
        if let Some(addr) = found.filter(|_| !by_relay).map(|found| found.addr.ip())
            && !self.dos.circuit_created(addr, now).is_allowed()
        {
            self.counts.circuits_refused_dos += 1;
            self.refuse_create(half, DestroyReason::RESOURCELIMIT);
            return;
        }
        self.note_used(connection);
        let create = Create {
            half,
            request,
            by_relay,
            since: now,
        };
        let params = &self.params;
        let room = Room {
            workers: params.workers,
            most: params.max_onionskins,
            delay: params.max_onion_delay,
        };
        let dropped = match self.onionskins.admit(hop, create, room) {
            Ok(displaced) => displaced,
            Err(refused) => Some(refused),
        };
        if let Some(create) = dropped {
            self.drop_create(&create);
        }
        self.feed_workers(now);
    }

    /// Gives the workers the onionskins that they can take. One that has waited too long is
    /// refused: its origin has given it up.
    pub(super) fn feed_workers(&mut self, now: Instant) {
        while let Some(create) = self.onionskins.next(self.params.workers) {
            let waited = now.saturating_duration_since(create.since);
            if waited > self.params.onion_cutoff {
                let kind = OnionskinKind::of(&create.request);
                self.onionskins.done(kind, None);
                self.drop_create(&create);
                continue;
            }
            let Create {
                half,
                request,
                by_relay,
                since,
            } = create;
            let count = self.counts.relay_onionskins.of(&request);
            if let Some(count) = count.filter(|_| by_relay) {
                count.processed += 1;
            }
            self.counts.onionskins += 1;
            self.actions.push_back(Action::Onionskin {
                half,
                request,
                since,
            });
        }
    }

    /// The workers cannot answer it in time.
    fn drop_create(&mut self, create: &Create) {
        let count = self.counts.relay_onionskins.of(&create.request);
        if let Some(count) = count.filter(|_| create.by_relay) {
            count.dropped += 1;
        }
        self.counts.onionskins_dropped += 1;
        self.notice(Notice::OnionskinOverload);
        self.refuse_create(create.half, DestroyReason::RESOURCELIMIT);
    }

    fn refuse_create(&mut self, half: HalfAddr, reason: DestroyReason) {
        self.send(half.thread, FromController::CreateRefused { half, reason });
    }

    pub(super) fn on_extend(&mut self, request: ExtendRequest, now: Instant) {
        let spread = self.spreads(&request.rsa);
        let open = self.best_for(&request, now);
        let open = open.map(|id| (id, self.connections.circuits_on(id)));
        if let Some((id, circuits)) = open
            && (circuits == 0 || !spread)
        {
            self.counts.extends_joined += 1;
            return self.join(id, request);
        }
        let (rsa, hop) = (request.rsa, self.requester_hop(&request));
        // Addresses that the consensus lists take precedence over all others that the request
        // names.
        let listed = |addr: &&SocketAddr| self.network.lists_at(&rsa, addr);
        let mut addrs: Vec<_> = request.addrs.iter().filter(listed).copied().collect();
        let is_listed = !addrs.is_empty();
        if !is_listed {
            addrs.clone_from(&request.addrs);
        }
        // One open link shows the identity of a relay. An extension that names another one opens no further link.
        if let Some(wanted) = request
            .ed25519
            .filter(|_| open.is_none() && !addrs.is_empty())
        {
            addrs.retain(|addr| !self.connections.reached_another(rsa, *addr, wanted));
            if addrs.is_empty() {
                return self.extend_failed(&request, DestroyReason::OR_IDENTITY);
            }
        }
        if !(spread && self.may_open_another(rsa)) {
            let opening = self.connections.opening.find(rsa, &addrs);
            let is_better = |waiting| open.is_none_or(|(_, circuits)| waiting < circuits);
            let shares = u64::from(spread);
            if let Some((id, _)) = opening.filter(|(_, waiting)| is_better(*waiting)) {
                self.counts.extends_waited += 1;
                self.counts.extends_shared += shares;
                return self.wait_for(id, hop, request);
            }
            if let Some((id, _)) = open {
                self.counts.extends_joined += 1;
                self.counts.extends_shared += shares;
                return self.join(id, request);
            }
        }
        self.counts.extends_waited += 1;
        // IPv4 or IPv6 at random when both are given, as C tor.
        let choice = self.rng.random_range(0..addrs.len().max(1));
        let Some(addr) = addrs.get(choice).copied() else {
            self.extend_failed(&request, DestroyReason::CONNECTFAILED);
            return;
        };
        let is_further = spread && self.connections.count_to(rsa) > 0;
        let Some(connection) = self.start_connecting((rsa, addr), is_listed, hop, now) else {
            self.counts.refused_full += 1;
            self.extend_failed(&request, DestroyReason::RESOURCELIMIT);
            return;
        };
        if is_further {
            self.counts.connected_again += 1;
            let for_loss = matches!(self.params.sharing, Sharing::Auto { .. });
            self.counts.connected_for_loss += u64::from(for_loss);
        }
        self.wait_for(connection, hop, request);
    }

    /// True if circuits to this relay get separate connections, within bounds.
    pub(super) fn spreads(&self, rsa: &RsaIdentity) -> bool {
        match self.params.sharing {
            Sharing::All => false,
            Sharing::PerCircuit { .. } => true,
            Sharing::Auto { .. } => self.connections.is_lossy(rsa),
        }
    }

    /// The best open connection for an extension.
    pub(super) fn best_for(
        &mut self,
        request: &ExtendRequest,
        now: Instant,
    ) -> Option<ConnectionId> {
        let spread = match self.params.sharing {
            Sharing::PerCircuit { per_relay, .. } | Sharing::Auto { per_relay, .. } => {
                self.spreads(&request.rsa).then_some(per_relay)
            }
            Sharing::All => None,
        };
        self.connections.best_for(request, now, spread)
    }

    /// A link gets a circuit.
    pub(super) fn note_used(&mut self, connection: ConnectionId) {
        self.displaceable.note_used(connection);
        self.connections.opening.unlisted.note_used(connection);
    }

    /// A link has had no circuit since then, as its thread, which has made `joins`, reports.
    pub(super) fn on_idle(&mut self, connection: ConnectionId, since: Instant, joins: u64) {
        if self.connections.is_idle(connection, joins) {
            self.displaceable.note_idle(connection, since);
            let unlisted = &mut self.connections.opening.unlisted;
            unlisted.note_idle(connection, since);
        }
    }

    /// True if another connection to this relay may be opened.
    fn may_open_another(&self, rsa: RsaIdentity) -> bool {
        match self.params.sharing {
            Sharing::All => false,
            Sharing::PerCircuit { per_relay, total } | Sharing::Auto { per_relay, total } => {
                self.connections.count_to(rsa) < per_relay && self.open_files() < total
            }
        }
    }

    /// Opens a connection, if there is room for it.
    fn start_connecting(
        &mut self,
        (rsa, addr): (RsaIdentity, SocketAddr),
        is_listed: bool,
        hop: PreviousHop,
        now: Instant,
    ) -> Option<ConnectionId> {
        let connection = self.connections.fresh_id();
        if is_listed {
            if self.open_files() >= self.params.max_connections {
                return None;
            }
            self.connections
                .opening
                .start_listed(connection, (rsa, addr));
        } else {
            // Clients can ask for connections that lead nowhere, or to themselves: these leave room
            // for others.
            let bound = match self.is_full() {
                true => self.connections.opening.unlisted.len(),
                false => self.params.max_connections / 4,
            };
            let opening = &mut self.connections.opening;
            let displaced = opening.start(connection, (rsa, addr), hop, bound)?;
            for other in displaced.connections {
                self.counts.connections_displaced += 1;
                self.close_connection(other);
            }
            for request in displaced.extensions {
                self.extend_failed(&request, DestroyReason::RESOURCELIMIT);
            }
        }
        self.counts.connected += 1;
        *self.counts.booked.of(false, addr.ip()) += 1;
        let thread = self.placement.place();
        let state = State::Connecting { rsa };
        self.connections.add(connection, thread, addr, state, now);
        self.link_changed(connection, rsa, addr, LinkState::Launched);
        self.actions.push_back(Action::Connect {
            connection,
            thread,
            addr,
            rsa,
        });
        Some(connection)
    }

    /// Has an extension wait for a connection that is being opened.
    fn wait_for(&mut self, connection: ConnectionId, hop: PreviousHop, request: ExtendRequest) {
        if let Some(other) = self.connections.opening.wait(connection, hop, request) {
            self.counts.extends_displaced += 1;
            self.extend_failed(&other, DestroyReason::RESOURCELIMIT);
        }
    }

    /// The hop whose share an extension is part of.
    fn requester_hop(&self, request: &ExtendRequest) -> PreviousHop {
        match request.from {
            Requester::Half { connection, .. } => self.previous_hop(connection),
            Requester::Origin(_) => PreviousHop::Own,
        }
    }

    /// Asks the thread that owns a link to make the forward half of an extension.
    pub(super) fn join(&mut self, connection: ConnectionId, request: ExtendRequest) {
        self.note_used(connection);
        match self.connections.join(connection) {
            Some(thread) => self.send(
                thread,
                FromController::Join {
                    connection,
                    request,
                },
            ),
            None => self.extend_failed(&request, DestroyReason::CHANNEL_CLOSED),
        }
    }

    pub(super) fn extend_failed(&mut self, request: &ExtendRequest, reason: DestroyReason) {
        self.counts.extends_failed += 1;
        match request.from {
            Requester::Half {
                half, extension, ..
            } => self.send(
                half.thread,
                FromController::ExtendFailed {
                    half,
                    extension,
                    reason,
                },
            ),
            Requester::Origin(circuit) => self.origin_failed(circuit, reason),
        }
    }

    pub(super) fn close_half(&mut self, half: HalfAddr, reason: DestroyReason) {
        self.send(half.thread, FromController::CloseHalf { half, reason });
    }
}
