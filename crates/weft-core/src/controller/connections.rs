//! The controller's book of connections: which exist, on which thread, to whom, and which of
//! several to one relay serves the next circuit (tor-spec 2, C tor's `channel_get_for_extend`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, ThreadId};
use crate::message::ExtendRequest;

use super::ConnectionCounts;

/// A connection this old takes no new circuits, so that its keys come to an end: C tor's
/// `TIME_BEFORE_OR_CONN_IS_TOO_OLD`.
const TOO_OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// Connections to one identity that may be opened at once: a client chooses the addresses and the
/// ed25519 identities that tell them apart.
const CONNECTING_PER_RELAY: usize = 8;

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum State {
    /// A listener took it; nothing is known of the peer.
    Accepted,
    /// We are opening it, for these circuits.
    Connecting {
        /// The RSA identity that it must lead to.
        rsa: [u8; 20],
        /// The ed25519 identity, if a client named it.
        ed25519: Option<[u8; 32]>,
        /// Extensions that wait for it.
        waiting: Vec<ExtendRequest>,
    },
    /// Open; the peer did not authenticate.
    Client,
    /// Open; the peer is a relay that proved these identities.
    Relay {
        /// RSA identity digest.
        rsa: [u8; 20],
        /// ed25519 identity.
        ed25519: [u8; 32],
        /// The address is one that the relay says it has.
        canonical: bool,
    },
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The thread that owns it.
    pub(super) thread: ThreadId,
    /// The peer's address.
    pub(super) addr: SocketAddr,
    /// How far it has come.
    pub(super) state: State,
    /// Since when it is booked.
    pub(super) since: Instant,
    /// Somebody else opened it.
    pub(super) accepted: bool,
    /// It was accepted, and its address is charged for it.
    pub(super) counted_for_dos: bool,
}

impl Connection {
    /// Whether the peer is a client, as far as is known.
    pub(super) fn is_client(&self) -> bool {
        matches!(self.state, State::Client | State::Accepted)
    }
}

/// A connection that is gone.
#[derive(Debug)]
pub(super) struct Closed {
    /// The peer's address.
    pub(super) addr: SocketAddr,
    /// Extensions that waited for it.
    pub(super) waiting: Vec<ExtendRequest>,
    /// Its address was charged for it.
    pub(super) counted_for_dos: bool,
    /// The relay that we opened it to, and whether it was open.
    pub(super) opened_to: Option<([u8; 20], bool)>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The last identifier given.
    last_id: u64,
    /// By identifier.
    all: BTreeMap<ConnectionId, Connection>,
    /// Open connections to relays by RSA identity, oldest first.
    relays: BTreeMap<[u8; 20], Vec<ConnectionId>>,
    /// Connections being opened by the RSA identity wanted, oldest first.
    connecting: BTreeMap<[u8; 20], Vec<ConnectionId>>,
    /// How many these are.
    opening: usize,
    /// How many there are of each kind.
    open: ConnectionCounts,
}

impl Connections {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many of each kind.
    pub(super) fn open(&self) -> ConnectionCounts {
        self.open
    }

    /// All of them, and on which thread each is.
    pub(super) fn everywhere(&self) -> impl Iterator<Item = (ConnectionId, ThreadId)> {
        self.all.iter().map(|(id, one)| (*id, one.thread))
    }

    /// One of them.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(&id)
    }

    /// Whether an open connection leads to this relay.
    pub(super) fn has_relay(&self, rsa: &[u8; 20]) -> bool {
        self.relays.contains_key(rsa)
    }

    /// Whether one more connection to this relay may be opened, when `most` may be in all.
    pub(super) fn may_connect(&self, rsa: &[u8; 20], most: usize) -> bool {
        self.opening < most && self.connecting.get(rsa).map_or(0, Vec::len) < CONNECTING_PER_RELAY
    }

    /// An identifier for something that is no link.
    pub(super) fn fresh_id(&mut self) -> ConnectionId {
        self.last_id += 1;
        ConnectionId(self.last_id)
    }

    /// Books a new connection.
    pub(super) fn add(
        &mut self,
        thread: ThreadId,
        addr: SocketAddr,
        state: State,
        now: Instant,
    ) -> ConnectionId {
        let id = self.fresh_id();
        if let State::Connecting { rsa, .. } = &state {
            self.connecting.entry(*rsa).or_default().push(id);
            self.opening += 1;
        }
        let accepted = matches!(state, State::Accepted);
        *self.open.of(accepted, addr.ip()) += 1;
        self.all.insert(
            id,
            Connection {
                thread,
                addr,
                state,
                since: now,
                accepted,
                counted_for_dos: accepted,
            },
        );
        id
    }

    /// A connection opened, and its peer is a client.
    pub(super) fn opened_by_client(&mut self, id: ConnectionId) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.state = State::Client;
        }
    }

    /// A connection opened, and its peer is a relay. Returns the extensions that it can serve:
    /// those that waited for it, and those that waited for another connection to the same relay.
    pub(super) fn opened_by_relay(
        &mut self,
        id: ConnectionId,
        rsa: [u8; 20],
        ed25519: [u8; 32],
        canonical: bool,
    ) -> Vec<ExtendRequest> {
        let Some(connection) = self.all.get_mut(&id) else {
            return Vec::new();
        };
        let previous = std::mem::replace(
            &mut connection.state,
            State::Relay {
                rsa,
                ed25519,
                canonical,
            },
        );
        connection.counted_for_dos = false;
        let mut served = Vec::new();
        if let State::Connecting {
            rsa: wanted,
            waiting,
            ..
        } = previous
        {
            forget(&mut self.connecting, wanted, id);
            self.opening = self.opening.saturating_sub(1);
            served.extend(waiting);
        }
        self.relays.entry(rsa).or_default().push(id);
        if canonical {
            for other in self.connecting.get(&rsa).into_iter().flatten() {
                if let Some(Connection {
                    state:
                        State::Connecting {
                            ed25519: wanted,
                            waiting,
                            ..
                        },
                    ..
                }) = self.all.get_mut(other)
                    && wanted.is_none_or(|wanted| wanted == ed25519)
                {
                    served.append(waiting);
                }
            }
        }
        served
    }

    /// Strikes a connection out.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Closed> {
        let connection = self.all.remove(&id)?;
        *self.open.of(connection.accepted, connection.addr.ip()) -= 1;
        let opened_to = match &connection.state {
            State::Relay { rsa, .. } if !connection.accepted => Some((*rsa, true)),
            State::Connecting { rsa, .. } => Some((*rsa, false)),
            _ => None,
        };
        let mut waiting = Vec::new();
        match connection.state {
            State::Relay { rsa, .. } => forget(&mut self.relays, rsa, id),
            State::Connecting {
                rsa, waiting: left, ..
            } => {
                forget(&mut self.connecting, rsa, id);
                self.opening = self.opening.saturating_sub(1);
                waiting = left;
            }
            State::Accepted | State::Client => {}
        }
        Some(Closed {
            addr: connection.addr,
            waiting,
            counted_for_dos: connection.counted_for_dos,
            opened_to,
        })
    }

    /// The best open connection for an extension: to the right identities, canonical or at an
    /// address that the client named, and not too old; canonical before others, then the oldest, so
    /// that duplicates fall idle and expire.
    pub(super) fn best_for(&self, request: &ExtendRequest, now: Instant) -> Option<ConnectionId> {
        let mut best: Option<(bool, ConnectionId)> = None;
        for id in self.relays.get(&request.rsa).into_iter().flatten() {
            let Some(connection) = self.all.get(id) else {
                continue;
            };
            let State::Relay {
                ed25519, canonical, ..
            } = connection.state
            else {
                continue;
            };
            let right_identity = request.ed25519.is_none_or(|wanted| wanted == ed25519);
            let named = request
                .addrs
                .iter()
                .any(|addr| addr.ip() == connection.addr.ip());
            let too_old = now.saturating_duration_since(connection.since) >= TOO_OLD;
            if !right_identity || !(canonical || named) || too_old {
                continue;
            }
            if best.is_none_or(|(best_canonical, _)| canonical && !best_canonical) {
                best = Some((canonical, *id));
            }
        }
        best.map(|(_, id)| id)
    }

    /// The list to wait in, if a connection to the right relay is being opened already.
    pub(super) fn waiting_for(
        &mut self,
        request: &ExtendRequest,
    ) -> Option<&mut Vec<ExtendRequest>> {
        let id = self
            .connecting
            .get(&request.rsa)?
            .iter()
            .copied()
            .find(|id| {
                self.all.get(id).is_some_and(|connection| {
                    matches!(&connection.state, State::Connecting { ed25519, .. }
                        if *ed25519 == request.ed25519)
                        && request.addrs.contains(&connection.addr)
                })
            })?;
        match &mut self.all.get_mut(&id)?.state {
            State::Connecting { waiting, .. } => Some(waiting),
            _ => None,
        }
    }
}

/// Strikes a connection out of one identity's list.
fn forget(lists: &mut BTreeMap<[u8; 20], Vec<ConnectionId>>, identity: [u8; 20], id: ConnectionId) {
    if let Some(list) = lists.get_mut(&identity) {
        list.retain(|other| *other != id);
        if list.is_empty() {
            lists.remove(&identity);
        }
    }
}
