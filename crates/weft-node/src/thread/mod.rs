//! A connection thread: one event loop, its own sockets, links and circuit halves
//! (seeds/000 4.1, 4.2; architecture rule 3).
//!
//! A turn of the loop: wait for sockets or a wake-up; take what the controller and other threads
//! sent (control before cells); read sockets, a bounded amount each; run timers; let the scheduler
//! choose; write; push what is for others and wake each of them at most once.
//!
//! A turn is short, whatever one client has come, connect or end at once: it takes over, reads, writes and
//! closes a bounded number of streams' sockets, and what is left waits for the next turn, which
//! begins at once and has the cells of all circuits before the rest.
//!
//! With `ConnectionThreads 0` the main thread takes these turns itself.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation
    )
)]

mod audit;
mod closing;
mod connection;
pub mod edges;
mod limit;
mod memory;
pub mod mesh;
mod params;
mod reading;
mod tcp;
mod telling;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use slab::Slab;
use weft_cell::reason::DestroyReason;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::cells::Empties;
use weft_core::handshake::Role;
use weft_core::load::Load;
use weft_core::manager::{Expiry, LocalConnectionManager, RelayParams};
use weft_core::message::{FromController, RingDepths, ToController};
use weft_core::scheduler::LinkKey;
use weft_proxy::Proxy;
use weft_sync::lease::Lease;

use crate::logging::RateLimit;
use crate::tls::LinkTls;
use crate::tls::records::MAX_RECORD;
use closing::CloseReason;
use connection::{Connection, Phase};
use limit::CommonLimit;
use mesh::{ThreadEnds, ToThread};
use reading::READ_PER_TURN;
use telling::Moved;

pub use params::ThreadParams;

/// Event-loop token of the wake-up.
const WAKE: Token = Token(usize::MAX);
/// Event-loop token of the main thread's own poll, when it takes a connection thread's turns.
const NESTED: Token = Token(usize::MAX - 1);
/// How often timers run.
const TICK: Duration = Duration::from_millis(250);
/// Sockets that are taken over in one turn. Each costs memory and system calls, and the main thread may
/// have sent thousands: the others wait in its ring.
const ADOPTED_PER_TURN: usize = 64;
/// How soon a full ring is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// A connection that a thread is given.
#[derive(Debug)]
pub struct Adopt {
    /// Its identifier.
    pub id: ConnectionId,
    /// The socket, non-blocking; perhaps still connecting.
    pub socket: std::net::TcpStream,
    /// The other end.
    pub peer: SocketAddr,
    /// Who must be there, if we opened it.
    pub role: Role,
    /// The proxy that the socket leads to, which is to connect to `peer`.
    pub proxy: Option<Arc<Proxy>>,
}

/// What a connection thread starts with.
#[derive(Debug)]
pub struct ThreadConfig {
    /// Its channels.
    pub ends: ThreadEnds,
    /// How many connection threads there are.
    pub threads: u16,
    /// Its event loop, whose waker the mesh was made with.
    pub poll: Poll,
    /// What its local connection manager follows.
    pub relay: Arc<RelayParams>,
    /// What it follows itself.
    pub params: ThreadParams,
    /// Link TLS and identity.
    pub tls: Arc<LinkTls>,
    /// Its share of the relay's bandwidth.
    pub lease: Lease,
    /// Its randomness.
    pub seed: [u8; 32],
}

/// Makes the event loop of a connection thread and the waker for its mesh.
///
/// # Errors
///
/// The kernel has no more file descriptors.
pub fn event_loop() -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    Ok((poll, waker))
}

/// See the module.
#[derive(Debug)]
pub struct ConnectionThread {
    /// Which.
    me: ThreadId,
    /// Event loop.
    poll: Poll,
    /// Its events.
    events: Events,
    /// Channels.
    ends: ThreadEnds,
    /// Links, halves, scheduler.
    manager: LocalConnectionManager,
    /// Sockets by token. Boxed: the slab never shrinks, and a crowd that has gone should not leave
    /// more than a pointer each.
    connections: Slab<Box<Connection>>,
    /// Tokens by connection.
    by_id: BTreeMap<ConnectionId, usize>,
    /// Tokens by link.
    by_link: Vec<Option<usize>>,
    /// Sockets of streams.
    edges: edges::EdgeSockets,
    /// Sockets that may have bytes, in the order in which they will be read.
    to_read: VecDeque<Listed>,
    /// The bandwidth that all share ran dry: reading waits for it until then.
    thirsty_until: Option<Instant>,
    /// Handshakes in the order of their deadlines.
    handshakes: VecDeque<(Instant, ConnectionId)>,
    /// Link TLS and identity.
    tls: Arc<LinkTls>,
    /// What torrc and consensus say.
    params: ThreadParams,
    /// Bandwidth.
    common: CommonLimit,
    /// Sockets that may have bytes but must wait for bandwidth, and until when.
    resting: VecDeque<(Instant, Listed)>,
    /// When the first of them has waited long enough.
    rest_until: Option<Instant>,
    /// When it is worth trying again to write what bandwidth held back.
    write_again: Option<Instant>,
    /// When the scheduler ran last.
    last_run: Option<Instant>,
    /// That run left cells for which some link had no room.
    contended: bool,
    /// When timers ran last.
    last_tick: Instant,
    /// When the controller was told last.
    last_report: Instant,
    /// Recent load.
    load: Load,
    /// Bytes moved, TLS included, by connections that count ([`Allowance::is_counted`]).
    moved: Moved,
    /// How deep its rings were since the last report.
    rings: RingDepths,
    /// Turns taken.
    turns: u64,
    /// Messages that the ring to the controller had no room for.
    stuck: VecDeque<ToController>,
    /// Bytes as they come from the socket being read, decrypted in place.
    scratch: Vec<u8>,
    /// What a handshake's record decrypts to.
    plain: Vec<u8>,
    /// Links being written in this turn.
    links: Vec<LinkKey>,
    /// Sealed bytes on their way to the socket being written.
    wire: Vec<u8>,
    /// Cells whose memory is free again.
    spent: Empties,
    /// Randomness of handshakes.
    rng: StdRng,
    /// Log lines about peers that fail.
    quiet: RateLimit,
    /// Log lines about a proxy that gives no connection.
    quiet_proxy: RateLimit,
    /// Log lines about peers that break the protocol.
    quiet_protocol: RateLimit,
    /// Log lines about peers that break it on a circuit.
    quiet_circuits: RateLimit,
    /// Ticks to let pass before the next audit (debug builds).
    ticks_to_audit: usize,
    /// Told to end.
    stopping: bool,
}

/// A socket in a list; its token may have another owner by the time that its turn comes.
#[derive(Clone, Copy, Debug)]
struct Listed {
    token: usize,
    id: ConnectionId,
}

impl ConnectionThread {
    /// A thread's state, to be moved into the thread.
    pub fn new(config: ThreadConfig, now: Instant) -> Self {
        let mut rng = StdRng::from_seed(config.seed);
        let manager_seed = rand::RngExt::random(&mut rng);
        ConnectionThread {
            me: config.ends.me,
            poll: config.poll,
            events: Events::with_capacity(1024),
            manager: LocalConnectionManager::new(
                config.ends.me,
                config.threads,
                config.relay,
                manager_seed,
            ),
            ends: config.ends,
            connections: Slab::new(),
            by_id: BTreeMap::new(),
            by_link: Vec::new(),
            edges: edges::EdgeSockets::default(),
            to_read: VecDeque::new(),
            thirsty_until: None,
            scratch: vec![0; MAX_RECORD + READ_PER_TURN],
            handshakes: VecDeque::new(),
            tls: config.tls,
            params: config.params,
            common: CommonLimit::new(config.lease),
            resting: VecDeque::new(),
            rest_until: None,
            write_again: None,
            last_run: None,
            contended: false,
            last_tick: now,
            last_report: now,
            load: Load::new(now),
            moved: Moved::default(),
            rings: RingDepths::default(),
            turns: 0,
            stuck: VecDeque::new(),
            plain: Vec::new(),
            links: Vec::new(),
            wire: Vec::new(),
            spent: Vec::new(),
            rng,
            quiet: RateLimit::new(Duration::from_secs(60)),
            quiet_proxy: RateLimit::new(Duration::from_secs(60)),
            quiet_protocol: RateLimit::new(Duration::from_secs(60)),
            quiet_circuits: RateLimit::new(Duration::from_secs(60)),
            ticks_to_audit: 0,
            stopping: false,
        }
    }

    /// Lets the main thread's own poll end this thread's waits (`ConnectionThreads 0`).
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub fn nest(&self, main: &Poll) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        self.poll
            .registry()
            .register(&mut SourceFd(&main.as_raw_fd()), NESTED, Interest::READABLE)
    }

    /// Takes turns until told to stop.
    ///
    /// # Errors
    ///
    /// The event loop failed; nothing can be done any more.
    pub fn run(mut self) -> io::Result<()> {
        while !self.stopping {
            self.turn(Duration::from_secs(3600))?;
        }
        Ok(())
    }

    /// Told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// One turn of the loop; waits at most `patience`.
    ///
    /// # Errors
    ///
    /// The event loop failed.
    pub fn turn(&mut self, patience: Duration) -> io::Result<()> {
        let wait = self.wait_time(Instant::now()).min(patience);
        if !wait.is_zero() {
            // What this thread does not use, others may.
            self.common.release();
        }
        // Nothing may have been pushed since the last drain, or there is no sleep.
        let wait = if wait.is_zero() || !self.ends.flag.prepare_sleep() {
            Duration::ZERO
        } else {
            wait
        };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.ends.flag.take();
        self.turns += 1;
        let now = Instant::now();
        self.note_events();
        self.take_messages(now);
        self.read_sockets(now);
        self.read_edges(now);
        let due = now.saturating_duration_since(self.last_tick) >= TICK;
        if due {
            self.tick(now);
        }
        self.schedule_and_write(now);
        self.write_edges(now);
        self.tell(now);
        if cfg!(debug_assertions)
            && due
            && self.audit_is_due()
            && let Err(broken) = self.audit()
        {
            panic!("on {} it does not hold that {broken}", self.me);
        }
        Ok(())
    }

    /// How long nothing will need doing unless a socket or a thread says so.
    fn wait_time(&self, now: Instant) -> Duration {
        if self.is_stuck() || !self.stuck.is_empty() || self.manager.has_requests() {
            return RETRY;
        }
        if !self.ends.from_main.is_empty() {
            return Duration::ZERO;
        }
        let mut until = self.last_tick + TICK;
        if !self.to_read.is_empty() {
            match self.thirsty_until {
                Some(at) => until = until.min(at),
                None => return Duration::ZERO,
            }
        }
        if self.write_again.is_none() && self.manager.has_unwritten() {
            return Duration::ZERO;
        }
        match self.edges_wait() {
            Some(None) => return Duration::ZERO,
            Some(Some(at)) => until = until.min(at),
            None => {}
        }
        for again in [self.rest_until, self.write_again].into_iter().flatten() {
            until = until.min(again);
        }
        if self.manager.has_backlog()
            && let Some(last) = self.last_run
        {
            until = until.min(last + self.run_interval());
        }
        until.saturating_duration_since(now)
    }

    /// Some ring to another connection thread is full: what sockets bring would have no place.
    fn is_stuck(&self) -> bool {
        self.ends.to_peers.iter().any(mesh::ToPeer::is_stuck)
    }

    /// Remembers which sockets are ready.
    fn note_events(&mut self) {
        for event in &self.events {
            if self.edges.note(event) {
                continue;
            }
            let token = event.token().0;
            let Some(connection) = self.connections.get_mut(token) else {
                continue;
            };
            if event.is_writable() {
                connection.writable = true;
            }
            if event.is_read_closed() || event.is_error() {
                connection.peer_ended = true;
            }
            if event.is_readable() || connection.peer_ended {
                connection.readable = true;
            }
            // What an opened link has to write is in the manager's list; a handshake goes on in
            // `service`, whatever happened to its socket.
            let shaking = matches!(connection.phase, Phase::Handshake(_));
            if !connection.listed && (connection.readable || shaking) {
                connection.listed = true;
                let id = connection.id;
                self.to_read.push_back(Listed { token, id });
            }
        }
    }

    /// Takes what the controller and the other threads sent.
    fn take_messages(&mut self, now: Instant) {
        self.rings.see_controller(self.ends.from_main.len());
        let mut adopted = 0;
        while adopted < ADOPTED_PER_TURN
            && let Some(message) = self.ends.from_main.pop()
        {
            match message {
                ToThread::Adopt(adopt) => {
                    adopted += 1;
                    self.adopt(*adopt, now);
                }
                ToThread::AdoptEdge(adopt) => {
                    adopted += 1;
                    self.adopt_edge(*adopt, now);
                }
                ToThread::Message(FromController::FreeMemory(cut)) => {
                    let cut = self.free_memory(cut, now);
                    let message = FromController::FreeMemory(cut);
                    self.handle_controller(message, &CloseReason::Memory, now);
                }
                ToThread::Message(message) => {
                    self.handle_controller(message, &CloseReason::Told, now);
                }
                ToThread::Renewed(tls) => self.tls = tls,
                ToThread::Params(params) => {
                    self.params = *params;
                    for (_, connection) in &mut self.connections {
                        connection.allowance.follow(&self.params, now);
                    }
                }
                ToThread::Stop => self.stop(now),
            }
        }
        for peer in &mut self.ends.from_peers {
            // Cells that are there now were sent after control messages that are there now.
            let batches = peer.cells.len();
            let control = &mut peer.control;
            self.rings.see_peer(control.len(), batches);
            let controls = std::iter::from_fn(|| control.pop());
            self.manager.handle_controls(controls, now);
            for _ in 0..batches {
                if let Some(batch) = peer.cells.pop() {
                    self.manager
                        .handle_cells(peer.from, batch.cells, batch.empties, now);
                }
            }
        }
    }

    /// Lets the manager handle a message of the controller's, and closes what it says.
    fn handle_controller(&mut self, message: FromController, reason: &CloseReason, now: Instant) {
        for connection in self.manager.handle_controller(message, now) {
            if let Some(token) = self.by_id.get(&connection).copied() {
                self.close(token, reason, now);
            }
        }
    }

    /// Timers.
    fn tick(&mut self, now: Instant) {
        self.last_tick = now;
        self.common.expire(now);
        self.tick_edges(now);
        while let Some((deadline, id)) = self.handshakes.front().copied() {
            if deadline > now {
                break;
            }
            self.handshakes.pop_front();
            if let Some(token) = self.by_id.get(&id).copied()
                && self
                    .connections
                    .get(token)
                    .is_some_and(|connection| matches!(connection.phase, Phase::Handshake(_)))
            {
                self.close(token, &CloseReason::HandshakeTimeout, now);
            }
        }
        for (_, connection) in &self.connections {
            if let Phase::Open(link, records) = &connection.phase
                && let Some(keys) = records.key_use()
            {
                self.manager.keys_used(*link, keys.used, keys.left);
            }
        }
        for (id, expiry) in self.manager.handle_timeout(now) {
            let reason = match expiry {
                Expiry::Idle => CloseReason::Idle,
                Expiry::Stuck => CloseReason::Stuck,
            };
            if let Some(token) = self.by_id.get(&id).copied() {
                self.close(token, &reason, now);
            }
        }
    }

    /// Ends every circuit and link, as politely as the sockets allow at once.
    fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.manager.end_circuits(DestroyReason::HIBERNATING, now);
        for link in self.manager.links_to_write().to_vec() {
            if let Some(token) = self.by_link.get(link as usize).copied().flatten() {
                // Whatever cannot be written now is lost with the connection.
                let _ = self.write(token, link, now);
            }
        }
        for (_, connection) in &mut self.connections {
            connection.say_goodbye();
        }
    }
}
