//! The controller's book of connections: which exist, on which thread, to whom, and which of
//! several to one relay serves the next circuit (tor-spec 2, C tor's `channel_get_for_extend`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, ThreadId};
use crate::message::ExtendRequest;

use super::ConnectionCounts;
use super::network::Network;
use super::opening::{Opening, Served};

/// A connection this old takes no new circuits, so that its keys come to an end: C tor's
/// `TIME_BEFORE_OR_CONN_IS_TOO_OLD`.
const TOO_OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum State {
    /// A listener took it; nothing is known of the peer.
    Accepted,
    /// We are opening it.
    Connecting {
        /// The RSA identity that it must lead to.
        rsa: [u8; 20],
    },
    /// The same, and it gave way to another one: it is to be closed.
    Displaced {
        /// The RSA identity that it was to lead to.
        rsa: [u8; 20],
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
    /// Its TLS keys near their end, and there are no others for it.
    pub(super) worn: bool,
}

impl Connection {
    /// Whether a new circuit may begin on it. One that is too old or too worn keeps the circuits
    /// that it has until they end, and then expires.
    fn takes_new_circuits(&self, now: Instant) -> bool {
        !self.worn && now.saturating_duration_since(self.since) < TOO_OLD
    }

    /// Whether the peer is a client, as far as is known: a relay is what the consensus lists.
    pub(super) fn is_client(&self, network: &Network) -> bool {
        match &self.state {
            State::Client | State::Accepted => true,
            State::Relay { rsa, .. } => !network.is_relay(rsa),
            State::Connecting { .. } | State::Displaced { .. } => false,
        }
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
    /// Connections that are being opened, and who waits for them.
    pub(super) opening: Opening,
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

    /// An identifier.
    pub(super) fn fresh_id(&mut self) -> ConnectionId {
        self.last_id += 1;
        ConnectionId(self.last_id)
    }

    /// Books a new connection.
    pub(super) fn add(
        &mut self,
        id: ConnectionId,
        thread: ThreadId,
        addr: SocketAddr,
        state: State,
        now: Instant,
    ) {
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
                worn: false,
            },
        );
    }

    /// A connection's keys near their end.
    pub(super) fn wear_out(&mut self, id: ConnectionId) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.worn = true;
        }
    }

    /// A connection opened, and its peer is a client.
    pub(super) fn opened_by_client(&mut self, id: ConnectionId) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.state = State::Client;
        }
    }

    /// A connection opened, and its peer proved to be this relay. Returns the extensions that waited
    /// for it, or for another connection to the same relay.
    pub(super) fn opened_by_relay(
        &mut self,
        id: ConnectionId,
        rsa: [u8; 20],
        ed25519: [u8; 32],
        canonical: bool,
    ) -> Served {
        let Some(connection) = self.all.get_mut(&id) else {
            return Served::default();
        };
        connection.state = State::Relay {
            rsa,
            ed25519,
            canonical,
        };
        self.relays.entry(rsa).or_default().push(id);
        self.opening.opened(id, rsa, ed25519, canonical)
    }

    /// A connection gives way to another one. The thread that owns it, unless it is over already.
    pub(super) fn displaced(&mut self, id: ConnectionId) -> Option<ThreadId> {
        let connection = self.all.get_mut(&id)?;
        if let State::Connecting { rsa } = connection.state {
            connection.state = State::Displaced { rsa };
        }
        Some(connection.thread)
    }

    /// Charges the addresses of those accepted connections whose peers are no relays, and no others.
    /// The address of each for which that is new, and whether it is charged.
    pub(super) fn charge(&mut self, network: &Network) -> Vec<(IpAddr, bool)> {
        let mut changed = Vec::new();
        for connection in self.all.values_mut().filter(|one| one.accepted) {
            let charged = connection.is_client(network);
            if std::mem::replace(&mut connection.counted_for_dos, charged) != charged {
                changed.push((connection.addr.ip(), charged));
            }
        }
        changed
    }

    /// Notes that an accepted connection's address is not charged for it any more. False: it was not.
    pub(super) fn discharge(&mut self, id: ConnectionId) -> bool {
        self.all
            .get_mut(&id)
            .is_some_and(|one| std::mem::take(&mut one.counted_for_dos))
    }

    /// Strikes a connection out.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Closed> {
        let connection = self.all.remove(&id)?;
        *self.open.of(connection.accepted, connection.addr.ip()) -= 1;
        let opened_to = match &connection.state {
            State::Relay { rsa, .. } if !connection.accepted => Some((*rsa, true)),
            State::Connecting { rsa } | State::Displaced { rsa } => Some((*rsa, false)),
            _ => None,
        };
        let waiting = self.opening.remove(id);
        if let State::Relay { rsa, .. } = connection.state {
            forget(&mut self.relays, rsa, id);
        }
        Some(Closed {
            addr: connection.addr,
            waiting,
            counted_for_dos: connection.counted_for_dos,
            opened_to,
        })
    }

    /// The best open connection for an extension: to the right identities, canonical or at an
    /// address that the client named, and neither too old nor worn; canonical before others, then the oldest, so
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
            if !right_identity || !(canonical || named) || !connection.takes_new_circuits(now) {
                continue;
            }
            if best.is_none_or(|(best_canonical, _)| canonical && !best_canonical) {
                best = Some((canonical, *id));
            }
        }
        best.map(|(_, id)| id)
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
