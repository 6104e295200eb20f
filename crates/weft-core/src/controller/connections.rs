//! The controller's book of connections: which exist, on which thread, to which peer, and which of
//! several to one relay serves the next circuit (tor-spec 2, C tor's `channel_get_for_extend`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, ThreadId};
use crate::message::ExtendRequest;

use super::counts::ConnectionCounts;
use super::network::Network;
use super::opening::{Opening, Served};
use super::relay_links::{RelayLink, RelayLinks};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

/// A connection this old takes no new circuits, so that its keys come to an end: C tor's
/// `TIME_BEFORE_OR_CONN_IS_TOO_OLD`.
const TOO_OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// Progress of a connection.
#[derive(Debug)]
pub(super) enum State {
    /// A listener took it; nothing is known of the peer.
    Accepted,
    /// We are opening it.
    Connecting {
        /// The RSA identity that it must lead to.
        rsa: RsaIdentity,
    },
    /// We were opening it, and it gave way to another connection: it will be closed.
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
    pub(super) state: State,
    /// The time at which it was booked.
    pub(super) since: Instant,
    /// Somebody else opened it.
    pub(super) accepted: bool,
    /// The address is what a program of transports states.
    stated: bool,
    /// It was accepted, and its address is charged for it.
    pub(super) counted_for_dos: bool,
    /// The circuits on it.
    load: Load,
    /// Lost packets hold it up, by its thread's latest report.
    lossy: bool,
    /// Its thread knows that it leads to a relay of the consensus, at an address of that relay's.
    listed: bool,
}

/// The circuits of a connection: as its thread has reported, and those on their way there.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Circuits in the latest report.
    circuits: usize,
    /// Circuits that were sent to the thread.
    sent: u64,
    /// Circuits of `sent` that the latest report includes.
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
    /// True if the connection is too old for new circuits. It keeps the circuits that it has until
    /// they end, and then expires.
    fn is_too_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TOO_OLD
    }

    /// The open link to a relay that it is under this identifier.
    fn relay_link(&self, id: ConnectionId) -> Option<RelayLink> {
        match self.state {
            State::Relay {
                rsa,
                ed25519,
                canonical,
            } => Some(RelayLink {
                id,
                place: (rsa, (!canonical).then(|| self.addr.ip()), ed25519),
                connected_to: self.connected_to(),
            }),
            _ => None,
        }
    }

    /// The address that this node connected to. `None`: the peer opened the connection.
    fn connected_to(&self) -> Option<SocketAddr> {
        (!self.accepted).then_some(self.addr)
    }

    /// True if the connection leads to a relay of the consensus, at one of that relay's addresses.
    pub(super) fn is_listed(&self, network: &Network) -> bool {
        match &self.state {
            State::Relay { rsa, canonical, .. } => *canonical && network.lists(rsa),
            _ => false,
        }
    }

    /// True if the peer counts as a client: its relay, if it proved to be one, is not in the
    /// consensus.
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
    /// The handshake is complete.
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
    /// Open connections to relays.
    relays: RelayLinks,
    /// Connections that are being opened, and the requests that wait for them.
    pub(super) opening: Opening,
    /// Open connections of each kind.
    open: ConnectionCounts,
}

impl Connections {
    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Open connections of each kind.
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

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.all.iter().map(|(id, one)| (*id, one))
    }

    /// One of them.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(&id)
    }

    /// True if an open connection leads to this relay.
    pub(super) fn has_relay(&self, rsa: &RsaIdentity) -> bool {
        self.relays.open(rsa) > 0
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
                load: Load::default(),
                lossy: false,
                listed: false,
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

    /// Takes a thread's report of a connection's circuits, which includes `joins` of ours, and of
    /// its loss. Returns the relay's address if this is the first of its connections that lost
    /// packets hold up.
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
        let was_lossy = self.relays.any_lossy(&rsa);
        if std::mem::replace(&mut connection.lossy, lossy) != lossy {
            self.relays.set_lossy(&rsa, lossy);
        }
        (lossy && !was_lossy).then_some(connection.addr)
    }

    /// True if lost packets hold up an open connection to this relay. Other connections take the
    /// same path.
    pub(super) fn is_lossy(&self, rsa: &RsaIdentity) -> bool {
        self.relays.any_lossy(rsa)
    }

    /// True if the link has no circuit, and none is on its way to it: its thread, which has made
    /// `joins`, has reported none.
    pub(super) fn is_idle(&self, id: ConnectionId, joins: u64) -> bool {
        self.all.get(&id).is_some_and(|one| one.load.sent == joins)
    }

    /// True if an open link, which this node opened to this address and which takes new circuits, has shown another ed25519
    /// identity of the relay there.
    pub(super) fn reached_another(
        &self,
        rsa: RsaIdentity,
        addr: SocketAddr,
        ed25519: Ed25519Identity,
    ) -> bool {
        self.relays.reached_another(rsa, addr, ed25519)
    }

    /// Circuits on a connection.
    pub(super) fn circuits_on(&self, id: ConnectionId) -> usize {
        self.all.get(&id).map_or(0, |one| one.load.circuits())
    }

    /// Connections to this relay, open or being opened.
    pub(super) fn count_to(&self, rsa: RsaIdentity) -> usize {
        self.relays.open(&rsa) + self.opening.count_to(rsa)
    }

    /// A connection takes no new circuits any more: its keys near their end, or its far end does not answer.
    pub(super) fn retire(&mut self, id: ConnectionId) {
        if let Some(link) = self.all.get(&id).and_then(|one| one.relay_link(id)) {
            self.relays.retire(link);
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
        if let Some(link) = connection.relay_link(id) {
            self.relays.opened(link);
        }
        let serves_others = canonical && !spread;
        self.opening.opened(id, rsa, ed25519, serves_others)
    }

    /// A connection gives way to another one. The thread that owns it, unless it is over already.
    pub(super) fn displaced(&mut self, id: ConnectionId) -> Option<ThreadId> {
        self.retire(id);
        let connection = self.all.get_mut(&id)?;
        if let State::Connecting { rsa } = connection.state {
            connection.state = State::Displaced { rsa };
        }
        Some(connection.thread)
    }

    /// Charges the addresses of accepted connections whose peers are no relays and at no relay's
    /// address, and no others. Returns each address whose charge has changed, and whether it is
    /// charged.
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

    /// Links whose listing in the consensus has changed, with the new state.
    pub(super) fn list(&mut self, network: &Network) -> Vec<(ConnectionId, bool)> {
        let all = self.all.iter_mut();
        let changed = all.filter_map(|(id, one)| {
            let listed = one.is_listed(network);
            let is_new = std::mem::replace(&mut one.listed, listed) != listed;
            is_new.then_some((*id, listed))
        });
        changed.collect()
    }

    /// Checks one link: its new listing, if that has changed.
    pub(super) fn list_one(&mut self, id: ConnectionId, network: &Network) -> Option<bool> {
        let one = self.all.get_mut(&id)?;
        let listed = one.is_listed(network);
        (std::mem::replace(&mut one.listed, listed) != listed).then_some(listed)
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
        self.opening.unlisted.release(id);
        if let Some(link) = connection.relay_link(id) {
            self.relays.closed(link, connection.lossy);
        }
        Some(Closed {
            addr: connection.addr,
            waiting,
            counted_for_dos: connection.counted_for_dos,
            opened_to,
        })
    }

    /// The best open connection for an extension: to the right identities, canonical or at an
    /// address that the client named, and neither too old nor worn. Where circuits do not share, it
    /// is one of those with the fewest among the `spread` that come first; then canonical before
    /// others, then the oldest, so that duplicates fall idle and expire.
    pub(super) fn best_for(
        &mut self,
        request: &ExtendRequest,
        now: Instant,
        spread: Option<usize>,
    ) -> Option<ConnectionId> {
        let named = request.addrs.iter().map(|addr| Some(addr.ip()));
        let mut best: Option<(usize, ConnectionId)> = None;
        for addr in std::iter::once(None).chain(named) {
            let (rsa, ed25519) = (request.rsa, request.ed25519);
            let first = loop {
                let first = self.relays.usable(rsa, ed25519, addr).next();
                let is_too_old =
                    |id: ConnectionId| self.all.get(&id).is_none_or(|one| one.is_too_old(now));
                match first {
                    // The oldest are the first.
                    Some((place, id)) if is_too_old(id) => {
                        let connected_to = self.all.get(&id).and_then(Connection::connected_to);
                        self.relays.retire(RelayLink {
                            id,
                            place,
                            connected_to,
                        });
                    }
                    _ => break first.map(|(_, id)| id),
                }
            };
            let Some(most) = spread else {
                if first.is_some() {
                    return first;
                }
                continue;
            };
            for (_, id) in self.relays.usable(rsa, ed25519, addr).take(most) {
                let load = self.circuits_on(id);
                if best.is_none_or(|(fewest, _)| load < fewest) {
                    best = Some((load, id));
                }
            }
        }
        best.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use weft_cell::circ_msg::CreateRequest;

    use super::*;
    use crate::address::OriginId;
    use crate::message::Requester;

    /// Random operation on the connections.
    #[derive(Clone, Debug)]
    enum Op {
        Open {
            rsa: u8,
            ed25519: u8,
            addr: u8,
            canonical: bool,
        },
        /// Circuits are sent to one.
        Load(usize, usize),
        Lossy(usize, bool),
        Retire(usize),
        Close(usize),
        /// Days pass.
        Wait(u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            5 => (0..2_u8, 0..2_u8, 0..3_u8, any::<bool>()).prop_map(
                |(rsa, ed25519, addr, canonical)| Op::Open { rsa, ed25519, addr, canonical }
            ),
            3 => (any::<usize>(), 0..4_usize).prop_map(|(which, load)| Op::Load(which, load)),
            2 => (any::<usize>(), any::<bool>()).prop_map(|(which, lossy)| Op::Lossy(which, lossy)),
            1 => any::<usize>().prop_map(Op::Retire),
            2 => any::<usize>().prop_map(Op::Close),
            1 => (0..4_u8).prop_map(Op::Wait),
        ]
    }

    fn identity(rsa: u8) -> RsaIdentity {
        RsaIdentity([rsa; 20])
    }

    fn at(addr: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, addr], 9001))
    }

    fn extension(rsa: u8, ed25519: u8, addr: u8) -> ExtendRequest {
        ExtendRequest {
            from: Requester::Origin(OriginId(1)),
            addrs: vec![at(addr)],
            rsa: [rsa; 20].into(),
            ed25519: Some([ed25519; 32].into()),
            create: Arc::new(CreateRequest::Fast { x: [0; 20] }),
        }
    }

    impl Connections {
        /// Expected result of [`best_for`](Self::best_for), found by comparing all connections.
        fn best_of_all(
            &self,
            retired: &[ConnectionId],
            (rsa, ed25519, addr): (u8, u8, u8),
            now: Instant,
            spread: bool,
        ) -> Option<ConnectionId> {
            let fits = self.all.iter().filter_map(|(id, one)| {
                let State::Relay {
                    rsa: of,
                    ed25519: ed,
                    canonical,
                } = one.state
                else {
                    return None;
                };
                let is_right = of == identity(rsa) && ed == Ed25519Identity([ed25519; 32]);
                let is_there = canonical || one.addr.ip() == at(addr).ip();
                let is_fresh = !retired.contains(id) && !one.is_too_old(now);
                let load = if spread { one.load.circuits() } else { 0 };
                (is_right && is_there && is_fresh).then_some((load, !canonical, *id))
            });
            fits.min().map(|(_, _, id)| id)
        }
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_look_at_all_links_finds(
            ops in proptest::collection::vec(op(), 1..80),
        ) {
            let mut connections = Connections::default();
            let (mut now, mut ids, mut retired) = (Instant::now(), Vec::new(), Vec::new());
            for op in ops {
                let pick = |which: usize| ids.get(which % ids.len().max(1)).copied();
                match op {
                    Op::Open { rsa, ed25519, addr, canonical } => {
                        let id = connections.fresh_id();
                        let (rsa, ed25519) = (identity(rsa), Ed25519Identity([ed25519; 32]));
                        connections.add(id, ThreadId(0), at(addr), State::Accepted, now);
                        connections.opened_by_relay(id, rsa, ed25519, canonical, false);
                        ids.push(id);
                    }
                    Op::Load(which, load) => if let Some(id) = pick(which) {
                        connections.loaded(id, load, 0, false);
                    },
                    Op::Lossy(which, lossy) => if let Some(id) = pick(which) {
                        let load = connections.circuits_on(id);
                        connections.loaded(id, load, 0, lossy);
                    },
                    Op::Retire(which) => if let Some(id) = pick(which) {
                        connections.retire(id);
                        retired.push(id);
                    },
                    Op::Close(which) => if let Some(id) = pick(which) {
                        connections.remove(id);
                        ids.retain(|one| *one != id);
                    },
                    Op::Wait(days) => now += Duration::from_secs(u64::from(days) * 24 * 3600),
                }
                for rsa in 0..2 {
                    let leads_there = |one: &&Connection| {
                        matches!(one.state, State::Relay { rsa: of, .. } if of == identity(rsa))
                    };
                    let links = connections.all.values().filter(leads_there);
                    let links: Vec<&Connection> = links.collect();
                    let lossy = links.iter().any(|one| one.lossy);
                    prop_assert_eq!(connections.count_to(identity(rsa)), links.len());
                    prop_assert_eq!(connections.is_lossy(&identity(rsa)), lossy);
                    for (ed25519, addr) in [(0, 0), (1, 1), (0, 2)] {
                        for spread in [None, Some(100)] {
                            let request = extension(rsa, ed25519, addr);
                            let found = connections.best_for(&request, now, spread);
                            let target = (rsa, ed25519, addr);
                            let spread = spread.is_some();
                            let best = connections.best_of_all(&retired, target, now, spread);
                            prop_assert_eq!(found, best);
                        }
                    }
                }
            }
            for id in ids {
                connections.remove(id);
            }
            let empty = format!("{:?}", RelayLinks::default());
            prop_assert_eq!(format!("{:?}", connections.relays), empty);
        }
    }
}
