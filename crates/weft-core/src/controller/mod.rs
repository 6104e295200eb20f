//! The relay controller: decisions that need a view of the whole relay (Engler and Goldberg 2021, 4.2).
//!
//! It sees every connection and holds none: it knows identifiers, addresses, identities and which
//! thread owns what. It places new connections by the threads' recent load, answers "extend to X"
//! by asking the thread that owns a link to X to make the forward half, decides which new connections
//! and circuits are too many, keeps rendezvous cookies and the keys of introduction circuits, and watches memory. It does no I/O: the
//! caller hands it what happened and carries out the [`Action`]s that it asks for.

mod abra;
mod action;
mod audit;
mod circuits;
mod connections;
mod counts;
mod displaceable;
mod exempt;
mod introduction;
mod memory;
mod network;
mod onionskins;
mod opening;
mod origins;
mod relay_links;
mod rendezvous;
mod transfers;
mod tunnels;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use weft_cell::circ_msg::CreateReply;
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::DestroyReason;
use weft_crypto::HopKeys;
use weft_planted::{Fault, planted};
use weft_share::PreviousHop;

use crate::address::{ConnectionId, HalfAddr, ThreadId};
use crate::handshake::PeerIdentity;
use crate::limits::dos::{Dos, DosParams};
use crate::memory::ledger::{Holdings, Ledger};
use crate::message::{FromController, Report, ToController, Totals};
use crate::moves::balance::Balance;
use crate::moves::placement::Placement;
use crate::moves::width::Width;
use crate::origin::{LinkFailure, LinkState};

use connections::{Connections, State};
use displaceable::Displaceable;
use exempt::Exempt;
use introduction::Introductions;
use network::Network;
use onionskins::Onionskins;
use rendezvous::Rendezvous;

pub use abra::AbraCounts;
pub use action::{Action, Freed, Notice};
pub use connections::OpenLink;
pub use counts::{
    ConnectionCounts, Counts, EdgeCounts, EdgePeer, FamilyCounts, Handled, HandshakeCounts,
};
pub use onionskins::OnionskinKind;

/// Divisor of the part of all connections that is reserved for addresses in the consensus, so that
/// circuits can be extended to relays however many connections others have.
const LISTED_PART: usize = 16;

/// The controller's parameters: the effective values of torrc and consensus.
#[derive(Clone, Debug)]
pub struct ControllerParams {
    /// Connections open at once at most, of every kind (`ConnLimit`, the process' file limit).
    pub max_connections: usize,
    /// Threads that answer onionskins.
    pub workers: usize,
    /// Onionskins that may wait for the workers, however fast these are.
    pub max_onionskins: usize,
    /// Longest time that an onionskin may have to wait for the workers (`MaxOnionQueueDelay`).
    pub max_onion_delay: Duration,
    /// Longest wait of an onionskin before it is refused (consensus `onion_queue_wait_cutoff`).
    pub onion_cutoff: Duration,
    /// Bytes of queues and buffers past which circuits are closed (`MaxMemInQueues`).
    pub max_memory: u64,
    /// Connection and circuit-creation defences.
    pub dos: DosParams,
    /// Rule by which circuits share connections to a relay.
    pub sharing: Sharing,
}

/// Rule by which circuits share connections to a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// All: one connection leads to one relay, as in C tor.
    #[default]
    All,
    /// None: each circuit has a separate connection (PCTLS: Pahl et al. 2023, 5.1). Past either
    /// bound circuits share, and a new one joins the connection with the fewest (IMUX).
    PerCircuit {
        /// Connections to one relay at most, open or being opened, by either side.
        per_relay: usize,
        /// Connections of every kind past which no relay gets a further one.
        total: usize,
    },
    /// As `PerCircuit` to relays to which lost packets hold up a connection, and as `All` to others.
    Auto {
        /// As in `PerCircuit`.
        per_relay: usize,
        /// As in `PerCircuit`.
        total: usize,
    },
}

/// The relay controller: a state machine without I/O.
#[derive(Debug)]
pub struct RelayController {
    params: ControllerParams,
    /// Connections by identifier and by identity.
    connections: Connections,
    /// Connections and edges that can be displaced when there are too many.
    displaceable: Displaceable,
    /// Connections from addresses of relays, which are never displaced.
    exempt: Exempt,
    /// Files that the node has open besides connections and edges.
    other_files: usize,
    /// Files and memory of other nodes of the process.
    files_of_others: usize,
    memory_of_others: u64,
    /// Where new connections go.
    placement: Placement,
    /// Chooses the links to move.
    balance: Balance,
    /// Number of threads that get links, where it follows the load.
    width: Option<Width>,
    transfers: transfers::Transfers,
    /// The threads' latest reports.
    reports: Vec<Option<Report>>,
    /// Relays that the consensus lists.
    network: Network,
    /// The halves that wait for a rendezvous.
    rendezvous: Rendezvous,
    /// The halves of onion services' introduction circuits.
    introductions: Introductions,
    /// Tunnels.
    tunnels: tunnels::Tunnels,
    /// Defences.
    dos: Dos,
    /// Onionskins that are not answered yet.
    onionskins: Onionskins,
    /// Scarcity of the relay's bandwidth.
    abra: abra::Abra,
    /// Circuits and streams that end here.
    origins: origins::Origins,
    /// Pending actions, oldest first.
    actions: VecDeque<Action>,
    /// Addresses and tie-breaks.
    rng: StdRng,
    /// Counters.
    counts: Counts,
    /// Owners closed to free memory, up to the last notice.
    freed_noticed: Freed,
    /// Memory that no thread holds.
    caches: Ledger,
    /// Part of `caches` that directory streams hold.
    answers: Holdings,
    /// Memory is short, and threads count who holds theirs: those that have done so.
    counting: Option<Vec<Option<Holdings>>>,
}

impl RelayController {
    /// A controller of a relay with this many connection threads (the main thread counts as one
    /// when there are no others).
    pub fn new(threads: u16, params: ControllerParams, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = StdRng::from_seed(seed);
        RelayController {
            connections: Connections::default(),
            displaceable: Displaceable::default(),
            exempt: Exempt::default(),
            other_files: 0,
            files_of_others: 0,
            memory_of_others: 0,
            placement: Placement::new(threads),
            balance: Balance::new(threads),
            width: None,
            transfers: transfers::Transfers::default(),
            reports: (0..threads).map(|_| None).collect(),
            network: Network::default(),
            rendezvous: Rendezvous::default(),
            introductions: Introductions::default(),
            tunnels: tunnels::Tunnels::default(),
            dos: Dos::new(params.dos.clone(), rng.random(), now),
            onionskins: Onionskins::default(),
            abra: abra::Abra::new(threads),
            origins: origins::Origins::default(),
            actions: VecDeque::new(),
            rng,
            counts: Counts::default(),
            freed_noticed: Freed::default(),
            caches: Ledger::default(),
            answers: Holdings::default(),
            counting: None,
            params,
        }
    }

    /// Replaces what the controller follows.
    pub fn set_params(&mut self, params: ControllerParams) {
        self.introductions.follow(&params.dos.intro);
        self.dos.set_params(params.dos.clone());
        self.params = params;
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A listener accepted a connection. `None`: close it at once. Otherwise give it to the
    /// thread under this identifier.
    pub fn accepted(&mut self, peer: SocketAddr, now: Instant) -> Option<(ConnectionId, ThreadId)> {
        // As in C tor (`dos_new_client_conn`): it may be the relay's, or have left the network there and come back.
        let of_relay = self.network.has_address(peer.ip());
        self.accept(peer, of_relay, now)
    }

    /// Like [`accepted`](Self::accepted), for a connection whose client is at `peer` according to a
    /// transport program. The address may be made up by the client, so an address of a relay proves
    /// nothing.
    pub fn handed_over(
        &mut self,
        peer: SocketAddr,
        now: Instant,
    ) -> Option<(ConnectionId, ThreadId)> {
        let (id, thread) = self.accept(peer, false, now)?;
        self.connections.note_stated_address(id);
        Some((id, thread))
    }

    fn accept(
        &mut self,
        peer: SocketAddr,
        of_relay: bool,
        now: Instant,
    ) -> Option<(ConnectionId, ThreadId)> {
        if !of_relay && !self.dos.connection_opened(peer.ip(), now).is_allowed() {
            self.counts.refused_dos += 1;
            *self.counts.refused.of(peer.ip()) += 1;
            return None;
        }
        let id = self.connections.fresh_id();
        if !self.admit_accepted(id, PreviousHop::at(peer.ip()), of_relay) {
            if !of_relay {
                self.dos.connection_closed(peer.ip(), now);
            }
            *self.counts.refused.of(peer.ip()) += 1;
            return None;
        }
        self.counts.accepted += 1;
        *self.counts.booked.of(true, peer.ip()) += 1;
        let thread = self.placement.place();
        self.connections.add(id, thread, peer, State::Accepted, now);
        if of_relay {
            self.connections.discharge(id);
            self.counts.exempted += 1;
        }
        Some((id, thread))
    }

    /// A message from a connection thread.
    pub fn handle(&mut self, message: ToController, now: Instant) {
        match message {
            ToController::LinkOpened {
                connection,
                peer,
                canonical,
                clock_skew,
                my_addr,
            } => self.on_opened(connection, &peer, canonical, clock_skew, my_addr, now),
            ToController::LinkStep { connection, step } => self.on_link_step(connection, step),
            ToController::LinkWorn { connection } => self.connections.retire(connection),
            ToController::LinkIdle {
                connection,
                since,
                joins,
            } => self.on_idle(connection, since, joins),
            ToController::LinkLoad {
                connection,
                circuits,
                joins,
                lossy,
            } => {
                let newly_lossy = self.connections.loaded(connection, circuits, joins, lossy);
                if let Some(peer) = newly_lossy {
                    self.notice(Notice::LossyRelay { peer });
                }
            }
            ToController::ConnectionClosed { connection, why } => {
                self.on_closed(connection, why, now);
            }
            ToController::Create {
                half,
                connection,
                request,
            } => self.on_create(half, connection, request, now),
            ToController::Extend(request) => self.on_extend(request, now),
            ToController::Stream(request) => self.on_stream(request),
            ToController::StreamGone(stream) => self.on_stream_gone(stream),
            ToController::OriginMade {
                circuit,
                half,
                connection,
            } => self.on_origin_made(circuit, half, connection),
            ToController::Origin(event) => self.on_origin_event(event),
            ToController::EdgeClosed { connection } => self.on_edge_closed(connection),
            ToController::EstablishRendezvous {
                half,
                connection,
                cookie,
            } => self.on_establish_rendezvous(half, connection, cookie),
            ToController::Tunnel(news) => self.on_tunnel_news(news),
            ToController::Intro(news) => self.on_intro_news(news, now),
            ToController::RendezvousGone { half } => self.on_rendezvous_gone(half),
            ToController::Rendezvous {
                half,
                cookie,
                handshake,
            } => self.on_rendezvous(half, cookie, handshake),
            ToController::QueueOverflowed { connection } => {
                let client = self.connections.get(connection);
                if let Some(client) = client.filter(|found| found.is_client(&self.network)) {
                    self.dos.queue_overflowed(client.addr.ip(), now);
                }
            }
            ToController::AbraAsked => self.on_abra_asked(now),
            ToController::Abra(report) => self.on_abra_report(*report, now),
            ToController::Report(report) => self.on_report(*report, now),
            ToController::Held {
                thread,
                ledger,
                memory_rounds,
            } => self.on_held(thread, *ledger, memory_rounds),
            ToController::Holdings { thread, holdings } => self.on_holdings(thread, *holdings),
            ToController::LinkLeft { number, to } => self.on_link_left(number, to),
            ToController::LinkMoved { connection, thread } => {
                self.on_link_moved(connection, thread, now);
            }
            ToController::NotMoved { connection } => self.on_not_moved(connection),
        }
    }

    /// The workers answered (or refused) an onionskin of this kind; `spent` is what an answer took
    /// one of them.
    pub fn onionskin_answered(
        &mut self,
        half: HalfAddr,
        kind: OnionskinKind,
        spent: Option<Duration>,
        answer: Result<(CreateReply, Box<HopKeys>, Option<u8>), DestroyReason>,
        now: Instant,
    ) {
        self.onionskins.done(kind, spent.filter(|_| answer.is_ok()));
        self.feed_workers(now);
        if planted(Fault::OnionskinNotAnswered) {
            return;
        }
        let message = match answer {
            Ok((reply, keys, sendme_inc)) => FromController::Created {
                half,
                reply,
                keys,
                sendme_inc,
            },
            Err(reason) => FromController::CreateRefused { half, reason },
        };
        self.send(half.thread, message);
    }

    /// Follows a new consensus: the relays that it lists, with their addresses. Links that are open are
    /// judged by it, too.
    pub fn set_relays(&mut self, relays: BTreeMap<RsaIdentity, Vec<SocketAddr>>, now: Instant) {
        self.network = Network::new(relays);
        for (addr, charged) in self.connections.charge(&self.network) {
            match charged {
                true => self.dos.connection_is_client(addr, now),
                false => self.dos.connection_is_relay(addr, now),
            }
        }
        for (connection, listed) in self.connections.list(&self.network) {
            self.send_listed(connection, listed);
        }
    }

    /// Notifies the thread of a link that its peer is a relay of the consensus, or none.
    fn send_listed(&mut self, connection: ConnectionId, listed: bool) {
        if let Some(thread) = self.connections.opened_on(connection) {
            let message = FromController::LinkListed { connection, listed };
            self.send(thread, message);
        }
    }

    /// The hop whose share everything is part of that comes by a connection.
    pub fn previous_hop(&self, connection: ConnectionId) -> PreviousHop {
        let Some(connection) = self.connections.get(connection) else {
            // It is closed, and so are its circuits.
            return PreviousHop::at(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        };
        match &connection.state {
            State::Relay { rsa, .. } if self.network.lists(rsa) => PreviousHop::Relay(*rsa),
            _ => PreviousHop::at(connection.addr.ip()),
        }
    }

    /// True if the peer of a connection is a client, or a relay that the consensus does not list.
    fn is_client(&self, connection: ConnectionId) -> bool {
        let found = self.connections.get(connection);
        found.is_some_and(|connection| connection.is_client(&self.network))
    }

    /// Connections beyond which only those are opened that lead to addresses that the consensus lists.
    fn unlisted_bound(&self) -> usize {
        let most = self.params.max_connections;
        most - most / LISTED_PART
    }

    /// True if as many files are open as peers that are not listed may use: another one must
    /// displace one of them.
    fn is_full(&self) -> bool {
        self.open_files() >= self.unlisted_bound()
    }

    /// Notes how many files the node has open that are neither connections to relays and clients nor streams' sockets
    /// on connection threads, and how many other nodes of the process have: they count with these.
    pub fn set_other_files(&mut self, files: usize, of_others: usize) {
        (self.other_files, self.files_of_others) = (files, of_others);
    }

    /// Connections of every kind of this node, and its other files.
    pub fn open_files_of_own(&self) -> usize {
        self.connections.len() + self.origins.edges() + self.other_files
    }

    /// Open files of this node and of the other nodes of the process.
    fn open_files(&self) -> usize {
        self.open_files_of_own() + self.files_of_others
    }

    /// True if another of the [other files](Self::set_other_files) may be opened for a peer.
    pub fn has_room_for_other(&self) -> bool {
        !self.is_full()
    }

    /// Connections of every kind at most.
    pub fn max_connections(&self) -> usize {
        self.params.max_connections
    }

    /// Files reserved for listed relays that accepted connections may use: half of them. The other
    /// half is for our own connections to these relays.
    fn lent(&self) -> usize {
        self.params.max_connections / LISTED_PART / 2
    }

    /// Admits a connection that a listener accepted. One from an address of a relay is not refused, and closed for no
    /// other one, before it could prove to be the relay's, as long as there are files for it.
    fn admit_accepted(&mut self, id: ConnectionId, hop: PreviousHop, of_relay: bool) -> bool {
        let has_file = self.open_files() < self.unlisted_bound() + self.lent();
        if of_relay && has_file && self.exempt.take(id, hop) {
            self.counts.exempted_full += u64::from(self.is_full());
            return true;
        }
        self.admit(id, hop, None)
    }

    /// Admits a connection that a peer caused: a link from this hop, or an edge for this circuit of it.
    /// At the bound another one is closed for it: the link that has had no circuit for longest,
    /// unless no hop holds more than this one. False: there is no room.
    fn admit(&mut self, id: ConnectionId, hop: PreviousHop, circuit: Option<HalfAddr>) -> bool {
        let bound = self.unlisted_bound();
        let open = self.open_files();
        let others = open.saturating_sub(self.displaceable.len());
        // Displaced connections stay open until their threads have closed them.
        let mut room = match open < bound + self.lent() {
            true => bound.saturating_sub(others),
            false => 0,
        };
        let unlisted = &mut self.connections.opening.unlisted;
        let idle = [self.displaceable.longest_idle(), unlisted.longest_idle()];
        let idle = idle.into_iter().flatten().min().map(|(_, idle)| idle);
        let idle = idle.filter(|_| self.displaceable.len() >= room && room > 0);
        if let Some(idle) = idle.filter(|_| !self.displaceable.holds_most(hop)) {
            self.displaceable.release(idle);
            unlisted.release(idle);
            room = self.displaceable.len() + 1;
            self.counts.open_displaced += 1;
            self.close_connection(idle);
        }
        let Ok(displaced) = self.displaceable.admit(hop, circuit, id, room) else {
            self.counts.refused_full += 1;
            return false;
        };
        if let Some(other) = displaced {
            self.counts.open_displaced += 1;
            self.close_connection(other);
        }
        true
    }

    /// Has a connection closed that gave way to another one.
    fn close_connection(&mut self, connection: ConnectionId) {
        let thread = match self.thread_of(connection) {
            Some(thread) => Some(thread),
            None => self.connections.displaced(connection),
        };
        if let Some(thread) = thread {
            self.send(thread, FromController::CloseConnection { connection });
        }
    }

    /// Has every thread refuse new circuits and streams, or take them again.
    pub fn set_draining(&mut self, draining: bool) {
        self.send_all(|| FromController::Drain(draining));
    }

    /// Sends new parameters to every thread.
    pub fn set_relay_params(&mut self, params: &std::sync::Arc<crate::params::RelayParams>) {
        self.send_all(|| FromController::Params(params.clone()));
    }

    /// Has every connection to others closed, whatever it carries.
    pub fn close_all_connections(&mut self) {
        for (connection, thread) in self.connections.everywhere() {
            let message = FromController::CloseConnection { connection };
            self.actions.push_back(Action::Send {
                to: thread,
                message,
            });
        }
    }

    /// True if the peer opened this connection.
    pub fn was_accepted(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(connection)
            .is_some_and(|connection| connection.accepted)
    }

    /// The relay that an open connection leads to, and its address.
    pub fn peer_of(&self, connection: ConnectionId) -> (Option<RsaIdentity>, Option<IpAddr>) {
        let Some(connection) = self.connections.get(connection) else {
            return (None, None);
        };
        let rsa = match &connection.state {
            State::Relay { rsa, .. } => Some(*rsa),
            _ => None,
        };
        (rsa, Some(connection.addr.ip()))
    }

    /// True if an open connection leads to the relay with this RSA identity.
    pub fn has_link_to(&self, rsa: &RsaIdentity) -> bool {
        self.connections.has_relay(rsa)
    }

    /// Where all connections are but those of edges.
    pub fn places(&self) -> impl Iterator<Item = (ConnectionId, ThreadId)> {
        self.connections.everywhere()
    }

    /// All connections to relays and clients.
    pub fn links(&self) -> impl Iterator<Item = OpenLink> {
        self.connections.links()
    }

    /// Connections of every kind.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Connections of every kind, by the side that opened them.
    pub fn open_connections(&self) -> ConnectionCounts {
        self.connections.open()
    }

    /// Onionskins that are not answered yet.
    pub fn onionskins(&self) -> usize {
        self.onionskins.len()
    }

    /// Onionskins that the workers do not have yet.
    pub fn onionskins_queued(&self) -> usize {
        self.onionskins.queued()
    }

    /// Counters since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counters of the defences since the start.
    pub fn dos_counts(&self) -> crate::limits::dos::DosCounts {
        self.dos.counts()
    }

    /// The threads' counters, added up as of their latest reports.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for report in self.reports.iter().flatten() {
            sum += report.totals;
        }
        sum
    }

    /// The threads' latest reports.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().flatten()
    }

    // ---- connections ----

    fn on_opened(
        &mut self,
        id: ConnectionId,
        peer: &PeerIdentity,
        canonical: bool,
        clock_skew: Option<i64>,
        my_addr: Option<IpAddr>,
        now: Instant,
    ) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let addr = connection.addr;
        let accepted = connection.accepted;
        if let State::Displaced { .. } = connection.state {
            // Its thread closes it.
            return;
        }
        if accepted {
            self.on_accepted_opened(id, peer, addr.ip());
        } else if planted(Fault::ShareEndsAtOpening) {
            self.connections.opening.unlisted.release(id);
        }
        let PeerIdentity::Relay { rsa, ed25519 } = peer else {
            self.connections.opened_by_client(id);
            return;
        };
        if accepted && self.network.is_relay(rsa) && self.connections.discharge(id) {
            // A relay that proved itself is not counted against its address' clients.
            self.dos.connection_is_relay(addr.ip(), now);
        }
        let spread = self.spreads(rsa);
        let served = self
            .connections
            .opened_by_relay(id, *rsa, *ed25519, canonical, spread);
        if let Some(listed) = self.connections.list_one(id, &self.network) {
            self.send_listed(id, listed);
        }
        for request in served.join {
            self.join(id, request);
        }
        for request in served.mistaken {
            self.extend_failed(&request, DestroyReason::OR_IDENTITY);
        }
        if !accepted {
            self.link_changed(id, *rsa, addr, LinkState::Connected);
        }
        if let Some(seconds) = clock_skew
            && !accepted
        {
            self.notice(Notice::ClockSkew {
                seconds,
                peer: addr,
            });
        }
        if let Some(seen) = my_addr
            && !accepted
        {
            self.notice(Notice::AddressSeen {
                addr: seen,
                peer: addr,
            });
        }
    }

    /// The handshake of a connection that a listener accepted is over. One of the few of a listed relay gives way to no
    /// others from now on.
    fn on_accepted_opened(&mut self, id: ConnectionId, peer: &PeerIdentity, addr: IpAddr) {
        let was_exempt = self.exempt.release(id);
        if let PeerIdentity::Relay { rsa, .. } = peer
            && self.network.lists(rsa)
            && self.exempt.prove(id, *rsa)
        {
            self.displaceable.release(id);
            return;
        }
        // At an address of a relay, but not that relay's, or one too many of it.
        if was_exempt && !self.admit(id, PreviousHop::at(addr), None) {
            self.close_connection(id);
        }
    }

    /// A connection is gone.
    fn on_closed(&mut self, id: ConnectionId, why: LinkFailure, now: Instant) {
        if planted(Fault::LinkEndNotLearnt) {
            return;
        }
        if !planted(Fault::PlaceNotReleased) {
            self.displaceable.release(id);
        }
        self.exempt.release(id);
        let Some(closed) = self.connections.remove(id) else {
            return;
        };
        if closed.counted_for_dos && !planted(Fault::AddressStaysCharged) {
            self.dos.connection_closed(closed.addr.ip(), now);
        }
        if let Some((rsa, was_open)) = closed.opened_to {
            let state = match was_open {
                true => LinkState::Closed(why),
                false => LinkState::Failed(why),
            };
            self.link_changed(id, rsa, closed.addr, state);
        }
        for request in closed.waiting {
            // Another connection to the same relay may have come up meanwhile.
            match self.best_for(&request, now) {
                Some(other) => self.join(other, request),
                None => self.extend_failed(&request, why.destroy_reason()),
            }
        }
    }

    // ---- sending ----

    fn send(&mut self, to: ThreadId, message: FromController) {
        self.actions.push_back(Action::Send { to, message });
    }

    fn send_all(&mut self, mut message: impl FnMut() -> FromController) {
        for thread in 0..self.reports.len() {
            if let Ok(thread) = u16::try_from(thread) {
                self.send(ThreadId(thread), message());
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }
}
