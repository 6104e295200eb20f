//! A connection thread: one event loop, its own sockets, links and circuit halves
//! (seeds/000 4.1, 4.2; architecture rule 3).
//!
//! A turn of the loop: wait for sockets or a wake-up; take what the controller and other threads
//! sent (control before cells); read sockets, a bounded amount each; run timers; let the scheduler
//! choose; write; push what is for others and wake each of them at most once.
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

mod connection;
mod limit;
pub mod mesh;
mod params;
mod tcp;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use slab::Slab;
use weft_cell::reason::DestroyReason;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::cells::{Empties, QUEUED_CELL_COST};
use weft_core::handshake::{
    ErrorClass, HANDSHAKE_TIMEOUT, HandshakeError, LinkHandshake, PeerIdentity, Role,
};
use weft_core::load::Load;
use weft_core::manager::{Expiry, LinkError, LocalConnectionManager, RelayParams};
use weft_core::message::{Report, ToController, Totals};
use weft_core::scheduler::LinkKey;
use weft_core::scheduler::kist;
use weft_sync::lease::Lease;

use crate::logging::{RateLimit, safe};
use crate::tls::LinkTls;
use crate::torrc::options::SchedulerKind;
use connection::{Connection, Phase};
use limit::{Allowance, CommonLimit, Direction};
use mesh::{ThreadEnds, ToThread};

pub use params::ThreadParams;

/// Event-loop token of the wake-up.
const WAKE: Token = Token(usize::MAX);
/// Event-loop token of the main thread's own poll, when it takes a connection thread's turns.
const NESTED: Token = Token(usize::MAX - 1);
/// Bytes read from one socket in one turn: enough for large TLS batches, small enough for
/// fairness among sockets.
const READ_PER_TURN: usize = 128 * 1024;
/// Bytes read from all sockets in one turn: what they bring is written before more is read.
const READ_PER_TURN_IN_ALL: usize = 1024 * 1024;
/// Messages for the controller that may wait before nothing new is asked of it.
const CONTROLLER_BUSY: usize = 1024;
/// Bytes written to one socket in one turn.
const WRITE_PER_TURN: usize = 1024 * 1024;
/// How often timers run.
const TICK: Duration = Duration::from_millis(250);
/// How often the controller hears of load and memory.
const REPORT: Duration = Duration::from_secs(1);
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
    /// When timers ran last.
    last_tick: Instant,
    /// When the controller was told last.
    last_report: Instant,
    /// Recent load.
    load: Load,
    /// Bytes moved, TLS included, by connections that count ([`Allowance::is_counted`]).
    moved: Moved,
    /// Messages that the ring to the controller had no room for.
    stuck: VecDeque<ToController>,
    /// Bytes as they come from the socket being read.
    scratch: Vec<u8>,
    /// Decrypted bytes of the socket being read.
    plain: Vec<u8>,
    /// Cells whose memory is free again.
    spent: Empties,
    /// Randomness of handshakes.
    rng: StdRng,
    /// Log lines about peers that fail.
    quiet: RateLimit,
    /// Log lines about peers that break the protocol.
    quiet_protocol: RateLimit,
    /// Log lines about peers that break it on a circuit.
    quiet_circuits: RateLimit,
    /// Told to end.
    stopping: bool,
}

/// A socket in a list; its token may have another owner by the time that its turn comes.
#[derive(Clone, Copy, Debug)]
struct Listed {
    token: usize,
    id: ConnectionId,
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum CloseReason {
    #[error("the peer closed the connection")]
    Ended,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("no opened link after {} seconds", HANDSHAKE_TIMEOUT.as_secs())]
    HandshakeTimeout,
    #[error("unused for too long")]
    Idle,
    #[error("the peer takes nothing of what is to be written")]
    Stuck,
    #[error("the controller closed it")]
    Told,
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
            to_read: VecDeque::new(),
            thirsty_until: None,
            scratch: vec![0; READ_PER_TURN],
            handshakes: VecDeque::new(),
            tls: config.tls,
            params: config.params,
            common: CommonLimit::new(config.lease),
            resting: VecDeque::new(),
            rest_until: None,
            write_again: None,
            last_run: None,
            last_tick: now,
            last_report: now,
            load: Load::new(now),
            moved: Moved::default(),
            stuck: VecDeque::new(),
            plain: Vec::new(),
            spent: Vec::new(),
            rng,
            quiet: RateLimit::new(Duration::from_secs(60)),
            quiet_protocol: RateLimit::new(Duration::from_secs(60)),
            quiet_circuits: RateLimit::new(Duration::from_secs(60)),
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
        let now = Instant::now();
        self.note_events();
        self.take_messages(now);
        self.read_sockets(now);
        if now.saturating_duration_since(self.last_tick) >= TICK {
            self.tick(now);
        }
        self.schedule_and_write(now);
        self.tell(now);
        Ok(())
    }

    /// How long nothing will need doing unless a socket or a thread says so.
    fn wait_time(&self, now: Instant) -> Duration {
        if self.is_stuck() || !self.stuck.is_empty() {
            return RETRY;
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
        for again in [self.rest_until, self.write_again].into_iter().flatten() {
            until = until.min(again);
        }
        if self.manager.has_backlog()
            && let Some(last) = self.last_run
        {
            until = until.min(last + self.params.run_interval);
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
        while let Some(message) = self.ends.from_main.pop() {
            match message {
                ToThread::Adopt(adopt) => self.adopt(*adopt, now),
                ToThread::Message(message) => {
                    if let Some(connection) = self.manager.handle_controller(message, now)
                        && let Some(token) = self.by_id.get(&connection).copied()
                    {
                        self.close(token, &CloseReason::Told, now);
                    }
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

    /// Takes over a connection.
    fn adopt(&mut self, adopt: Adopt, now: Instant) {
        let Adopt {
            id,
            socket,
            peer,
            role,
        } = adopt;
        let initiated = matches!(role, Role::Initiator { .. });
        let session = if initiated {
            self.tls.connect(&mut self.rng)
        } else {
            self.tls.accept()
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) => {
                tracing::warn!("Could not start TLS on a connection: {error}");
                self.manager.connection_failed(id, DestroyReason::INTERNAL);
                return;
            }
        };
        // The bound is ours: only what the socket takes soon is encrypted (connection.rs).
        session.tls().set_buffer_limit(None);
        let mut handshake = Box::new(LinkHandshake::new(
            role,
            session.identity(),
            peer.ip(),
            self.params.my_addrs.clone(),
            now,
        ));
        handshake.start();
        let mut socket = TcpStream::from_std(socket);
        let entry = self.connections.vacant_entry();
        let token = entry.key();
        let registered = self.poll.registry().register(
            &mut socket,
            Token(token),
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(error) = registered {
            tracing::warn!("Could not watch a connection's socket: {error}");
            self.manager
                .connection_failed(id, DestroyReason::RESOURCELIMIT);
            return;
        }
        let deadline = now + HANDSHAKE_TIMEOUT;
        entry.insert(Box::new(Connection {
            id,
            peer,
            socket,
            allowance: Allowance::new(peer.ip(), &self.params, now),
            session,
            phase: Phase::Handshake(handshake),
            initiated,
            readable: false,
            writable: false,
            listed: false,
            peer_ended: false,
            left: Vec::new(),
            skip: 0,
            unsent: 0,
            blocked: false,
        }));
        self.by_id.insert(id, token);
        // Connections come and go faster than their time runs out.
        if self.handshakes.len() > 1024 && self.handshakes.len() > 4 * self.connections.len() {
            let by_id = &self.by_id;
            self.handshakes.retain(|(_, id)| by_id.contains_key(id));
        }
        self.handshakes.push_back((deadline, id));
    }

    /// Reads the sockets that may have bytes, a bounded amount each and in all.
    fn read_sockets(&mut self, now: Instant) {
        if self.is_stuck() {
            return;
        }
        self.wake_rested(now);
        self.thirsty_until = None;
        let direction = Direction::Read;
        let mut in_all = 0;
        for _ in 0..self.to_read.len() {
            let Some(listed) = self.to_read.pop_front() else {
                break;
            };
            let Some(connection) = self
                .connections
                .get_mut(listed.token)
                .filter(|connection| connection.id == listed.id)
            else {
                continue;
            };
            let taken = connection
                .allowance
                .take(&mut self.common, direction, READ_PER_TURN, now);
            let grant = match taken {
                Ok(grant) => grant,
                Err(wait) => {
                    let until = now + wait.min(TICK);
                    if self.common.is_dry(direction) {
                        // Nobody gets anything now: they wait in their order.
                        self.to_read.push_front(listed);
                        self.thirsty_until = Some(until);
                        break;
                    }
                    self.resting.push_back((until, listed));
                    self.rest_until = Some(self.rest_until.map_or(until, |other| other.min(until)));
                    continue;
                }
            };
            let mut used = 0;
            let result = self.service(listed.token, grant, &mut used, now);
            in_all += used;
            self.load.add(used as u64);
            if let Some(connection) = self.connections.get_mut(listed.token) {
                connection
                    .allowance
                    .settle(&mut self.common, direction, grant, used);
                self.moved.add(&connection.allowance, direction, used);
                connection.listed = connection.readable && result.is_ok();
                if connection.listed {
                    self.to_read.push_back(listed);
                }
            }
            if let Err(reason) = result {
                self.close(listed.token, &reason, now);
            }
            if in_all >= READ_PER_TURN_IN_ALL {
                break;
            }
        }
    }

    /// Lists the sockets again that have waited long enough for bandwidth, first of all.
    fn wake_rested(&mut self, now: Instant) {
        if self.rest_until.is_none_or(|until| until > now) {
            return;
        }
        let (rested, resting): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.resting)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        for (_, listed) in rested.into_iter().rev() {
            self.to_read.push_front(listed);
        }
        self.rest_until = resting.iter().map(|(until, _)| *until).min();
        self.resting = resting;
    }

    /// Reads one socket and handles what came; `used` grows by the bytes taken from the socket.
    fn service(
        &mut self,
        token: usize,
        max: usize,
        used: &mut usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        if matches!(connection.phase, Phase::Handshake(_)) && connection.writable {
            // TCP may have failed to connect; and TLS has something to say first.
            if let Some(error) = connection.socket.take_error()? {
                return Err(error.into());
            }
            let mut none = VecDeque::new();
            connection.write(&mut none, usize::MAX, &mut self.spent)?;
        }
        self.plain.clear();
        self.plain.append(&mut connection.left);
        let read = connection.read(max, &mut self.scratch, &mut self.plain)?;
        *used += read.socket_bytes;
        if let Phase::Handshake(_) = connection.phase {
            self.shake_hands(token, now)?;
        }
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        if let Phase::Open(link) = connection.phase {
            let skipped = connection.skip.min(self.plain.len());
            connection.skip -= skipped;
            let bytes = self.plain.get(skipped..).unwrap_or_default();
            let received = self.manager.receive(link, bytes, now)?;
            connection.skip += received.skip;
            connection
                .left
                .extend_from_slice(bytes.get(received.used..).unwrap_or_default());
        }
        if self.plain.capacity() > 4 * READ_PER_TURN {
            self.plain = Vec::new();
        }
        if read.ended {
            return Err(CloseReason::Ended);
        }
        Ok(())
    }

    /// Goes on with a link handshake; what is left in `plain` belongs to the opened link.
    fn shake_hands(&mut self, token: usize, now: Instant) -> Result<(), CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        let Phase::Handshake(handshake) = &mut connection.phase else {
            return Ok(());
        };
        if connection.session.tls().is_handshaking() {
            let mut none = VecDeque::new();
            connection.write(&mut none, usize::MAX, &mut self.spent)?;
            return Ok(());
        }
        let used = handshake.receive(
            &self.plain,
            &connection.session,
            SystemTime::now(),
            &mut self.rng,
        )?;
        let output = handshake.take_output();
        let established = handshake.established().cloned();
        if !output.is_empty() {
            connection.send(&output)?;
        }
        let mut none = VecDeque::new();
        connection.write(&mut none, usize::MAX, &mut self.spent)?;
        self.plain.drain(..used);
        let Some(established) = established else {
            return Ok(());
        };
        let (id, initiated) = (connection.id, connection.initiated);
        let link = self.manager.open_link(id, initiated, &established, now);
        connection.phase = Phase::Open(link);
        let relay = match established.peer {
            PeerIdentity::Relay { rsa, .. } => Some(rsa),
            PeerIdentity::Unauthenticated => None,
        };
        connection.allowance.opened(relay, &self.params, now);
        let index = link as usize;
        if self.by_link.len() <= index {
            self.by_link.resize(index + 1, None);
        }
        if let Some(entry) = self.by_link.get_mut(index) {
            *entry = Some(token);
        }
        // The last of the handshake may still be with TLS.
        self.manager.set_held(link, connection.blocked);
        Ok(())
    }

    /// Timers.
    fn tick(&mut self, now: Instant) {
        self.last_tick = now;
        self.common.expire(now);
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

    /// Lets the scheduler choose if it is time, then writes.
    fn schedule_and_write(&mut self, now: Instant) {
        let due = self
            .last_run
            .is_none_or(|last| now.saturating_duration_since(last) >= self.params.run_interval);
        if due && self.manager.has_backlog() {
            self.last_run = Some(now);
            let (connections, by_link) = (&self.connections, &self.by_link);
            let params = &self.params;
            self.manager.schedule(now, |link| {
                by_link
                    .get(link as usize)
                    .copied()
                    .flatten()
                    .and_then(|token| connections.get(token))
                    .map_or(0, |connection| room(connection, params))
            });
        }
        self.write_again = None;
        let links: Vec<LinkKey> = self.manager.links_to_write().to_vec();
        for link in links {
            let Some(token) = self.by_link.get(link as usize).copied().flatten() else {
                continue;
            };
            if let Err(reason) = self.write(token, link, now) {
                self.close(token, &reason, now);
            }
        }
        self.manager.prune_written();
    }

    /// Writes what is ready for one link.
    fn write(&mut self, token: usize, link: LinkKey, now: Instant) -> Result<(), CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        let Some(out) = self.manager.outgoing(link) else {
            return Ok(());
        };
        if !connection.writable || (out.is_empty() && !connection.blocked) {
            return Ok(());
        }
        let direction = Direction::Write;
        let taken = connection
            .allowance
            .take(&mut self.common, direction, WRITE_PER_TURN, now);
        let grant = match taken {
            Ok(grant) => grant,
            Err(wait) => {
                let at = now + wait.min(TICK);
                self.write_again = Some(self.write_again.map_or(at, |other| other.min(at)));
                return Ok(());
            }
        };
        let result = connection.write(out, grant, &mut self.spent);
        let blocked = connection.blocked;
        self.manager.set_held(link, blocked);
        let written = result?;
        connection
            .allowance
            .settle(&mut self.common, direction, grant, written);
        self.moved.add(&connection.allowance, direction, written);
        self.load.add(written as u64);
        if written > 0 {
            self.manager.wrote(link, now);
        }
        for cell in self.spent.drain(..) {
            self.manager.recycle(cell);
        }
        Ok(())
    }

    /// Pushes what is for others, and reports from time to time.
    fn tell(&mut self, now: Instant) {
        for peer in &mut self.ends.to_peers {
            if let Some(outbox) = self.manager.outbox(peer.to) {
                peer.flush(outbox);
            }
        }
        if now.saturating_duration_since(self.last_report) >= REPORT {
            self.last_report = now;
            let report = self.report(now);
            self.stuck.push_back(ToController::Report(report));
        }
        self.tell_complaint(now);
        while let Some(message) = self.manager.poll_controller() {
            self.stuck.push_back(message);
        }
        let mut sent = false;
        while let Some(message) = self.stuck.pop_front() {
            match self.ends.to_main.try_push(message) {
                Ok(()) => sent = true,
                Err(message) => {
                    self.stuck.push_front(message);
                    break;
                }
            }
        }
        if sent || !self.stuck.is_empty() {
            self.ends.main.notify();
        }
        // Circuits that exist must not feel what the main thread is busy with.
        self.manager
            .set_controller_busy(self.stuck.len() > CONTROLLER_BUSY);
    }

    /// What the controller hears about once a second.
    fn report(&mut self, now: Instant) -> Report {
        let mut totals = self.manager.totals();
        self.moved.tell(&mut totals);
        let buffered = self
            .connections
            .iter()
            .map(|(_, connection)| connection.left.capacity() + connection.unsent)
            .sum::<usize>()
            + self
                .ends
                .to_peers
                .iter()
                .map(|peer| peer.stuck_cells() * QUEUED_CELL_COST)
                .sum::<usize>();
        Report {
            thread: self.me,
            bytes_per_second: self.load.bytes_per_second(now),
            queued: self.manager.queued(now),
            buffered: buffered as u64,
            links: u32::try_from(self.manager.links()).unwrap_or(u32::MAX),
            halves: u32::try_from(self.manager.halves()).unwrap_or(u32::MAX),
            totals,
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

    /// One line about a connection that ended, as loud as its reason deserves.
    fn log_close(&mut self, connection: &Connection, reason: &CloseReason, now: Instant) {
        let (id, peer) = (connection.id, safe(connection.peer));
        match reason {
            CloseReason::Handshake(error)
                if matches!(
                    error.class(),
                    ErrorClass::WrongIdentity | ErrorClass::AuthenticationFailed
                ) && connection.initiated =>
            {
                if let Some(more) = self.quiet.check(now) {
                    tracing::warn!("The relay at {peer} is not who it should be: {error}{more}");
                }
            }
            CloseReason::Handshake(_) | CloseReason::Link(_) => {
                if let Some(more) = self.quiet_protocol.check(now) {
                    let line = format_args!("Closing {id} to {peer}: {reason}{more}");
                    protocol_warning(&self.params, line);
                }
            }
            CloseReason::Stuck => {
                let line = format_args!("Closing {id} to {peer}: {reason}");
                protocol_warning(&self.params, line);
            }
            _ => tracing::debug!("Closing {id} to {peer}: {reason}"),
        }
    }

    /// One line, now and then, about a peer that broke the protocol on a circuit.
    fn tell_complaint(&mut self, now: Instant) {
        let Some(complaint) = self.manager.take_complaint() else {
            return;
        };
        let connection = self
            .by_id
            .get(&complaint.connection)
            .and_then(|token| self.connections.get(*token));
        if let Some(connection) = connection
            && let Some(more) = self.quiet_circuits.check(now)
        {
            let (id, peer) = (connection.id, safe(connection.peer));
            let what = complaint.what;
            let line = format_args!("The peer of {id} at {peer} broke the protocol: {what}{more}");
            protocol_warning(&self.params, line);
        }
    }

    /// Closes a connection and everything on it.
    fn close(&mut self, token: usize, reason: &CloseReason, now: Instant) {
        let Some(mut connection) = self.connections.try_remove(token) else {
            return;
        };
        self.by_id.remove(&connection.id);
        // Deregistering fails only for sockets that the kernel has forgotten.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        self.log_close(&connection, reason, now);
        match connection.phase {
            Phase::Open(link) => {
                if let Some(entry) = self.by_link.get_mut(link as usize) {
                    *entry = None;
                }
                self.manager.close_link(link, now);
            }
            Phase::Handshake(_) => {
                let reason = match reason {
                    CloseReason::Handshake(error) if error.class() == ErrorClass::WrongIdentity => {
                        DestroyReason::OR_IDENTITY
                    }
                    CloseReason::Io(_) | CloseReason::HandshakeTimeout => {
                        DestroyReason::CONNECTFAILED
                    }
                    _ => DestroyReason::CHANNEL_CLOSED,
                };
                self.manager.connection_failed(connection.id, reason);
            }
        }
    }
}

/// A line about a peer that breaks the protocol, as loud as `ProtocolWarnings` says.
fn protocol_warning(params: &ThreadParams, line: std::fmt::Arguments<'_>) {
    if params.protocol_warnings {
        tracing::warn!("{line}");
    } else {
        tracing::info!("{line}");
    }
}

/// Bytes moved since the thread started.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    read: u64,
    written: u64,
    read_ipv6: u64,
    written_ipv6: u64,
}

impl Moved {
    /// Adds bytes of a connection, unless they do not count.
    fn add(&mut self, allowance: &Allowance, direction: Direction, bytes: usize) {
        if !allowance.is_counted() {
            return;
        }
        let (all, ipv6) = match direction {
            Direction::Read => (&mut self.read, &mut self.read_ipv6),
            Direction::Write => (&mut self.written, &mut self.written_ipv6),
        };
        *all += bytes as u64;
        *ipv6 += if allowance.is_ipv6() { bytes as u64 } else { 0 };
    }

    /// Puts them into a report.
    fn tell(&self, totals: &mut Totals) {
        totals.bytes_read = self.read;
        totals.bytes_written = self.written;
        totals.bytes_read_ipv6 = self.read_ipv6;
        totals.bytes_written_ipv6 = self.written_ipv6;
    }
}

/// How many cells a link may have now: by what the kernel tells of its socket (KIST), or as many
/// as fill its output buffer (KISTLite, Vanilla, and kernels that tell nothing).
fn room(connection: &Connection, params: &ThreadParams) -> u32 {
    if !connection.writable || connection.blocked {
        return 0;
    }
    let kist_on = params.scheduler == SchedulerKind::Kist;
    let state = kist_on.then(|| tcp::info(&connection.socket)).flatten();
    let limit = match state {
        Some(state) => kist::write_limit(&state, 0, params.sock_buf_size_factor),
        None => kist::lite_write_limit(0, kist::DEFAULT_OUTBUF_HIGH_WATER),
    };
    kist::cells(limit)
}
