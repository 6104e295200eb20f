//! Circuits of others: CREATEs, extensions to other relays, and where rendezvous meet.

use std::time::Instant;

use rand::RngExt as _;
use weft_cell::circ_msg::CreateRequest;
use weft_cell::reason::DestroyReason;

use super::connections::State;
use super::onionskins::OnionskinKind;
use super::{Action, Notice, RelayController};
use crate::address::{ConnectionId, HalfAddr};
use crate::message::{ExtendRequest, FromController, Requester};

/// Circuits that may wait for one connection to come up.
const MAX_WAITING_EXTENDS: usize = 1024;
/// Rendezvous cookies kept at most.
const MAX_COOKIES: usize = 65536;

impl RelayController {
    pub(super) fn on_create(
        &mut self,
        half: HalfAddr,
        connection: ConnectionId,
        request: CreateRequest,
        now: Instant,
    ) {
        let client = self
            .connections
            .get(connection)
            .filter(|connection| connection.is_client())
            .map(|connection| connection.addr.ip());
        if let Some(addr) = client
            && !self.dos.circuit_created(addr, now).is_allowed()
        {
            self.counts.circuits_refused_dos += 1;
            self.refuse_create(half, DestroyReason::RESOURCELIMIT);
            return;
        }
        let connection = self.connections.get(connection);
        let by_relay = connection.is_some_and(|connection| !connection.is_client());
        let count = self.counts.relay_onionskins.of(&request);
        let count = count.filter(|_| by_relay);
        let kind = OnionskinKind::of(&request);
        let params = &self.params;
        let (workers, most) = (params.workers, params.max_onionskins);
        if !self
            .onionskins
            .has_room(kind, workers, most, params.max_onion_delay)
        {
            if let Some(count) = count {
                count.dropped += 1;
            }
            self.counts.onionskins_dropped += 1;
            self.notice(Notice::OnionskinOverload);
            self.refuse_create(half, DestroyReason::RESOURCELIMIT);
            return;
        }
        if let Some(count) = count {
            count.processed += 1;
        }
        self.onionskins.add(kind);
        self.counts.onionskins += 1;
        self.actions.push_back(Action::Onionskin { half, request });
    }

    fn refuse_create(&mut self, half: HalfAddr, reason: DestroyReason) {
        self.send(half.thread, FromController::CreateRefused { half, reason });
    }

    pub(super) fn on_extend(&mut self, request: ExtendRequest, now: Instant) {
        if let Some(id) = self.connections.best_for(&request, now) {
            self.counts.extends_joined += 1;
            self.join(id, request);
            return;
        }
        self.counts.extends_waited += 1;
        if let Some(waiting) = self.connections.waiting_for(&request) {
            if waiting.len() < MAX_WAITING_EXTENDS {
                waiting.push(request);
            } else {
                self.extend_failed(&request, DestroyReason::RESOURCELIMIT);
            }
            return;
        }
        // Clients can ask for connections that lead nowhere: these leave room for others.
        let most_opening = self.params.max_connections / 4;
        if self.open_files() >= self.params.max_connections
            || !self.connections.may_connect(&request.rsa, most_opening)
        {
            self.counts.refused_full += 1;
            self.extend_failed(&request, DestroyReason::RESOURCELIMIT);
            return;
        }
        // IPv4 or IPv6 at random when both are given, as C tor.
        let choice = self.rng.random_range(0..request.addrs.len().max(1));
        let Some(addr) = request.addrs.get(choice).copied() else {
            self.extend_failed(&request, DestroyReason::CONNECTFAILED);
            return;
        };
        self.counts.connected += 1;
        *self.counts.booked.of(false, addr.ip()) += 1;
        let thread = self.placement.place();
        let (rsa, ed25519) = (request.rsa, request.ed25519);
        let connection = self.connections.add(
            thread,
            addr,
            State::Connecting {
                rsa,
                ed25519,
                waiting: vec![request],
            },
            now,
        );
        self.actions.push_back(Action::Connect {
            connection,
            thread,
            addr,
            rsa,
            ed25519,
        });
    }

    /// Tells the thread that owns a link to make the far half of an extension.
    pub(super) fn join(&mut self, connection: ConnectionId, request: ExtendRequest) {
        match self.connections.get(connection).map(|found| found.thread) {
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
            Requester::Half { half, extension } => self.send(
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

    // ---- rendezvous (rend-spec-v3 4.1) ----

    pub(super) fn on_establish_rendezvous(
        &mut self,
        half: HalfAddr,
        connection: ConnectionId,
        cookie: [u8; 20],
    ) {
        let from_client = self
            .connections
            .get(connection)
            .is_some_and(|connection| connection.is_client());
        if from_client && !self.dos.single_hop_rendezvous().is_allowed() {
            // No answer, as in C tor: such a client shall wait until it gives up.
            return;
        }
        if self.cookies.contains_key(&cookie) {
            self.counts.cookies_taken += 1;
            self.close_half(half, DestroyReason::PROTOCOL);
        } else if self.cookies.len() >= MAX_COOKIES {
            self.close_half(half, DestroyReason::RESOURCELIMIT);
        } else {
            self.cookies.insert(cookie, half);
            self.cookie_of.insert(half, cookie);
            self.send(half.thread, FromController::RendezvousEstablished { half });
        }
    }

    pub(super) fn on_rendezvous(&mut self, half: HalfAddr, cookie: [u8; 20], handshake: Vec<u8>) {
        match self.cookies.remove(&cookie) {
            Some(with) => {
                self.cookie_of.remove(&with);
                self.send(
                    half.thread,
                    FromController::Splice {
                        half,
                        with,
                        handshake,
                    },
                );
            }
            None => {
                self.counts.cookies_unknown += 1;
                self.close_half(half, DestroyReason::PROTOCOL);
            }
        }
    }

    pub(super) fn close_half(&mut self, half: HalfAddr, reason: DestroyReason) {
        self.send(half.thread, FromController::CloseHalf { half, reason });
    }
}
