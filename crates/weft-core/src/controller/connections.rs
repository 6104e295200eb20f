//! The controller's book of connections: which exist, on which thread, to which peer, and which of
//! several to one relay serves the next circuit (tor-spec 2, C tor's `channel_get_for_extend`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, ThreadId};
use crate::message::ExtendRequest;

use super::ConnectionCounts;
use super::network::Network;
use super::opening::{Opening, Served};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

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
        rsa: RsaIdentity,
    },
    /// The same, and it gave way to another one: it is to be closed.
    Displaced {
        /// The RSA identity that it was to lead to.
        rsa: RsaIdentity,
    },
    /// Open; the peer did not authenticate.
    Client,
    /// Open; the peer is a relay that proved these identities.
    Relay {
        /// RSA identity digest.
        rsa: RsaIdentity,
        /// ed25519 identity.
        ed25519: Ed25519Identity,
        /// The address is one that the relay names as its own.
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
    /// The address is what a program of transports states.
    stated: bool,
    /// It was accepted, and its address is charged for it.
    pub(super) counted_for_dos: bool,
    /// It takes no new circuits: its TLS keys near their end, and there are no others for it, or its far end does not answer.
    pub(super) worn: bool,
    /// The circuits on it.
    load: Load,
    /// Lost packets hold it up, by its thread's latest report.
    lossy: bool,
}

/// The circuits of a connection: as its thread has reported, and those on their way there.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// By the latest report.
    circuits: usize,
    /// Circuits that were sent to the thread.
    sent: u64,
    /// Those of them that the report knows of.
    seen: u64,
}

impl Load {
    fn circuits(self) -> usize {
        let on_their_way = usize::try_from(self.sent.saturating_sub(self.seen));
        self.circuits
            .saturating_add(on_their_way.unwrap_or(usize::MAX))
    }
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

/// A connection to another relay or a client, as controllers list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLink {
    /// Its identifier.
    pub id: ConnectionId,
    /// The peer's address.
    pub addr: SocketAddr,
    /// The relay that it leads to, or is to lead to.
    pub rsa: Option<RsaIdentity>,
    /// Whether the handshake is over.
    pub open: bool,
}

/// A connection that was closed.
#[derive(Debug)]
pub(super) struct Closed {
    /// The peer's address.
    pub(super) addr: SocketAddr,
    /// Extensions that waited for it.
    pub(super) waiting: Vec<ExtendRequest>,
    /// Its address was charged for it.
    pub(super) counted_for_dos: bool,
    /// The relay that we opened it to, and whether it was open.
    pub(super) opened_to: Option<(RsaIdentity, bool)>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The last identifier given.
    last_id: u64,
    /// By identifier.
    all: BTreeMap<ConnectionId, Connection>,
    /// Open connections to relays by RSA identity, oldest first.
    relays: BTreeMap<RsaIdentity, Vec<ConnectionId>>,
    /// Connections that are being opened, and the requests that wait for them.
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

    /// All of them: where they lead, and whether they are open.
    pub(super) fn links(&self) -> impl Iterator<Item = OpenLink> {
        self.all.iter().map(|(id, one)| OpenLink {
            id: *id,
            addr: one.addr,
            rsa: match &one.state {
                State::Accepted | State::Client => None,
                State::Connecting { rsa } | State::Displaced { rsa } | State::Relay { rsa, .. } => {
                    Some(*rsa)
                }
            },
            open: matches!(one.state, State::Client | State::Relay { .. }),
        })
    }

    /// One of them.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(&id)
    }

    /// Whether an open connection leads to this relay.
    pub(super) fn has_relay(&self, rsa: &RsaIdentity) -> bool {
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
                stated: false,
                counted_for_dos: accepted,
                worn: false,
                load: Load::default(),
                lossy: false,
            },
        );
    }

    /// The address of an accepted connection is what a program of transports states.
    pub(super) fn note_stated_address(&mut self, id: ConnectionId) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.stated = true;
        }
    }

    /// The thread of a connection that is an opened link.
    pub(super) fn opened_on(&self, id: ConnectionId) -> Option<ThreadId> {
        let connection = self.all.get(&id)?;
        let open = matches!(connection.state, State::Client | State::Relay { .. });
        open.then_some(connection.thread)
    }

    /// A link has moved to another thread.
    pub(super) fn moved(&mut self, id: ConnectionId, thread: ThreadId) {
        if let Some(connection) = self.all.get_mut(&id) {
            connection.thread = thread;
        }
    }

    /// A circuit is on its way to a connection: the thread that owns it.
    pub(super) fn join(&mut self, id: ConnectionId) -> Option<ThreadId> {
        let connection = self.all.get_mut(&id)?;
        connection.load.sent += 1;
        Some(connection.thread)
    }

    /// A thread's report of the circuits on a connection, of which it has made `joins` for us, and of
    /// whether lost packets hold it up. The relay's address, if that is so for none of its others yet.
    pub(super) fn loaded(
        &mut self,
        id: ConnectionId,
        circuits: usize,
        joins: u64,
        lossy: bool,
    ) -> Option<SocketAddr> {
        let connection = self.all.get_mut(&id)?;
        connection.load.circuits = circuits;
        connection.load.seen = joins;
        let State::Relay { rsa, .. } = connection.state else {
            return None;
        };
        let addr = connection.addr;
        let was_lossy = self.is_lossy(&rsa);
        self.all.get_mut(&id)?.lossy = lossy;
        (lossy && !was_lossy).then_some(addr)
    }

    /// Whether lost packets hold up an open connection to this relay. The others take the same way.
    pub(super) fn is_lossy(&self, rsa: &RsaIdentity) -> bool {
        let mut ids = self.relays.get(rsa).into_iter().flatten();
        ids.any(|id| self.all.get(id).is_some_and(|one| one.lossy))
    }

    /// Circuits on a connection.
    pub(super) fn circuits_on(&self, id: ConnectionId) -> usize {
        self.all.get(&id).map_or(0, |one| one.load.circuits())
    }

    /// Connections to this relay, open or being opened.
    pub(super) fn count_to(&self, rsa: RsaIdentity) -> usize {
        self.relays.get(&rsa).map_or(0, Vec::len) + self.opening.count_to(rsa)
    }

    /// A connection takes no new circuits: its keys near their end, or its far end does not answer.
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
    /// for it, or, where circuits share (not `spread`) and the peer is at an address that it has, for
    /// another connection to the same relay.
    pub(super) fn opened_by_relay(
        &mut self,
        id: ConnectionId,
        rsa: RsaIdentity,
        ed25519: Ed25519Identity,
        canonical: bool,
        spread: bool,
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
        let serves_others = canonical && !spread;
        self.opening.opened(id, rsa, ed25519, serves_others)
    }

    /// A connection gives way to another one. The thread that owns it, unless it is over already.
    pub(super) fn displaced(&mut self, id: ConnectionId) -> Option<ThreadId> {
        let connection = self.all.get_mut(&id)?;
        if let State::Connecting { rsa } = connection.state {
            connection.state = State::Displaced { rsa };
        }
        Some(connection.thread)
    }

    /// Charges the addresses of those accepted connections whose peers are no relays and at no relay's address, and
    /// no others.
    /// The address of each for which that is new, and whether it is charged.
    pub(super) fn charge(&mut self, network: &Network) -> Vec<(IpAddr, bool)> {
        let mut changed = Vec::new();
        for connection in self.all.values_mut().filter(|one| one.accepted) {
            let at_relay = !connection.stated && network.has_address(connection.addr.ip());
            let charged = connection.is_client(network) && !at_relay;
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
    /// address that the client named, and neither too old nor worn. Where circuits do not share (`spread`), the
    /// one with the fewest; then canonical before others, then the oldest, so that duplicates fall idle and
    /// expire.
    pub(super) fn best_for(
        &self,
        request: &ExtendRequest,
        now: Instant,
        spread: bool,
    ) -> Option<ConnectionId> {
        let mut best: Option<((usize, bool), ConnectionId)> = None;
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
            let load = if spread {
                connection.load.circuits()
            } else {
                0
            };
            let rank = (load, !canonical);
            if best.is_none_or(|(best_rank, _)| rank < best_rank) {
                best = Some((rank, *id));
            }
        }
        best.map(|(_, id)| id)
    }
}

/// Strikes a connection out of one identity's list.
fn forget(
    lists: &mut BTreeMap<RsaIdentity, Vec<ConnectionId>>,
    identity: RsaIdentity,
    id: ConnectionId,
) {
    if let Some(list) = lists.get_mut(&identity) {
        list.retain(|other| *other != id);
        if list.is_empty() {
            lists.remove(&identity);
        }
    }
}
