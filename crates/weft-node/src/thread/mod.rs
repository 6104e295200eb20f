//! A connection thread: one event loop, its own sockets, links and circuit halves
//! (Engler and Goldberg 2021, 4.1 and 4.2; architecture rule 3).
//!
//! A turn of the loop: wait for sockets or a wake-up (after a turn with little to do first for the time of the
//! scheduler's next run, so that more comes at once); take what the controller and other threads
//! sent (control before cells); read sockets, a bounded amount each; run timers; let the scheduler
//! choose; write; push messages for other threads and wake each of them at most once.
//!
//! A turn is short, whatever one client has come, connect or end at once: it takes over, reads, writes and
//! closes a bounded number of streams' sockets, and what is left waits for the next turn, which
//! begins at once and has the cells of all circuits before the rest.
//!
//! With `ConnectionThreads 0` the main thread takes these turns itself.

#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod adopt;
mod audit;
mod clock;
mod close_reason;
mod closing;
mod connection;
pub(crate) mod edges;
pub(crate) mod host;
mod limit;
mod memory;
pub(crate) mod mesh;
mod messages;
mod moving;
mod params;
mod reading;
mod sockets;
mod tcp;
#[cfg(test)]
mod tests;
mod writing;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::CELL_LEN;
use weft_cell::reason::DestroyReason;
use weft_core::address::ThreadId;
use weft_core::manager::{Expiry, LocalConnectionManager};
use weft_core::message::FromController;
use weft_core::params::RelayParams;
#[cfg(doc)]
use weft_core::scheduler::RunTimes;
use weft_core::slots::SlotKey as _;
use weft_log::RateLimit;
use weft_sync::lease::Lease;
use weft_tls::LinkTls;

use close_reason::CloseReason;
pub(crate) use close_reason::io_failure;
use connection::Phase;
use limit::CommonLimit;
use mesh::{ThreadEnds, ToThread};
use messages::Reports;
use reading::{Listed, Reading};
use sockets::LinkSockets;
use writing::Writing;

pub(crate) use adopt::Adopt;
pub(crate) use params::ThreadParams;

/// Event-loop token of the wake-up.
const WAKE: Token = Token(usize::MAX);
/// Event-loop token of the main thread's own poll, when it takes a connection thread's turns.
const NESTED: Token = Token(usize::MAX - 1);
/// Interval of timers.
const TICK: Duration = Duration::from_millis(250);
/// Ticks in which the kernel's counters of every link are read once.
const TCP_TURNS: usize = 4;
/// Sockets that are taken over in one turn. Each costs memory and system calls, and the main thread may
/// have sent thousands: the others wait in its ring.
const ADOPTED_PER_TURN: usize = 64;
/// Events that are taken at once.
const EVENTS: usize = 1024;
/// Time after which a full ring is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Initial configuration of a connection thread.
#[derive(Debug)]
pub(crate) struct ThreadConfig {
    /// Its channels.
    pub ends: ThreadEnds,
    /// Number of connection threads.
    pub threads: u16,
    /// Its event loop, whose waker the mesh was made with.
    pub poll: Poll,
    /// Parameters of its local connection manager.
    pub relay: Arc<RelayParams>,
    /// Its own parameters.
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
pub(crate) fn event_loop() -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    Ok((poll, waker))
}

/// A connection thread: the shell around a [`LocalConnectionManager`], which decides.
///
/// [`turn`](Self::turn) again and again. Each group of fields is the state of one file beside this one.
#[derive(Debug)]
pub(crate) struct ConnectionThread {
    me: ThreadId,
    poll: Poll,
    events: Events,
    /// As many events came as are taken at once: an event loop that this one is nested in does not report the others.
    more_events: bool,
    ends: ThreadEnds,
    manager: LocalConnectionManager,
    sockets: LinkSockets,
    edges: edges::EdgeSockets,
    reading: Reading,
    writing: Writing,
    limit: CommonLimit,
    reports: Reports,
    log_limits: LogLimits,
    tls: Arc<LinkTls>,
    params: ThreadParams,
    last_tick: Instant,
    /// Group of links whose TCP counters were read last, of `TCP_TURNS`
    /// ([`read_tcp`](Self::read_tcp)).
    tcp_turn: usize,
    rng: StdRng,
    /// When the last turn began, after its wait.
    turn_began: Instant,
    /// Bytes that it read and wrote on links.
    moved: usize,
    /// Ticks to let pass before the next audit (debug builds).
    ticks_to_audit: usize,
    stopping: bool,
}

/// Limits of log lines that peers can cause.
#[derive(Debug)]
struct LogLimits {
    /// About peers that fail.
    peer: RateLimit,
    /// About a proxy that gives no connection.
    proxy: RateLimit,
    /// About peers that break the protocol.
    protocol: RateLimit,
    /// About peers that break it on a circuit.
    circuit: RateLimit,
}

impl LogLimits {
    const fn new() -> Self {
        const INTERVAL: Duration = Duration::from_secs(60);
        LogLimits {
            peer: RateLimit::new(INTERVAL),
            proxy: RateLimit::new(INTERVAL),
            protocol: RateLimit::new(INTERVAL),
            circuit: RateLimit::new(INTERVAL),
        }
    }
}

impl ConnectionThread {
    /// A thread's state, to be moved into the thread.
    pub(crate) fn new(config: ThreadConfig, now: Instant) -> Self {
        let mut rng = StdRng::from_seed(config.seed);
        let manager_seed = rand::RngExt::random(&mut rng);
        ConnectionThread {
            me: config.ends.me,
            poll: config.poll,
            events: Events::with_capacity(EVENTS),
            more_events: false,
            manager: LocalConnectionManager::new(
                config.ends.me,
                config.threads,
                config.relay,
                manager_seed,
            ),
            ends: config.ends,
            sockets: LinkSockets::default(),
            edges: edges::EdgeSockets::default(),
            reading: Reading::new(),
            writing: Writing::default(),
            limit: CommonLimit::new(config.lease),
            reports: Reports::new(now),
            log_limits: LogLimits::new(),
            tls: config.tls,
            params: config.params,
            last_tick: now,
            tcp_turn: 0,
            rng,
            turn_began: now,
            moved: 0,
            ticks_to_audit: 0,
            stopping: false,
        }
    }

    /// Lets the main thread's own poll end this thread's waits (`ConnectionThreads 0`).
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub(crate) fn nest(&self, main: &Poll) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        self.poll
            .registry()
            .register(&mut SourceFd(&main.as_raw_fd()), NESTED, Interest::READABLE)
    }

    /// Lets this thread's event loop end the waits of one that takes the turns of several ([`host`]), which has this token
    /// for it.
    ///
    /// # Errors
    ///
    /// epoll refuses.
    fn nest_in(&self, host: &Poll, token: Token) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        let own = self.poll.as_raw_fd();
        host.registry()
            .register(&mut SourceFd(&own), token, Interest::READABLE)
    }

    /// Takes turns until [`ToThread::Stop`].
    ///
    /// # Errors
    ///
    /// The event loop failed; nothing can be done any more.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.stopping {
            self.turn(Duration::from_secs(3600))?;
        }
        Ok(())
    }

    /// True if the thread has received [`ToThread::Stop`].
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// One turn of the loop; waits at most `patience`.
    ///
    /// # Errors
    ///
    /// The event loop failed.
    pub(crate) fn turn(&mut self, patience: Duration) -> io::Result<()> {
        let ended = clock::now();
        let wait = self.end_turn(ended, patience);
        let wait = self.pause(wait, ended);
        let wait = self.prepare_sleep(wait);
        self.work(wait)
    }

    /// Ends a turn of a thread that has others' turns to take: when it needs the next one, if no event comes before. It does
    /// not sleep until the scheduler's next run, as that would hold up the others.
    fn rest(&mut self) -> Instant {
        let ended = clock::now();
        let wait = self.end_turn(ended, Duration::from_secs(3600));
        self.moved = 0;
        let wait = match self.more_events {
            true => Duration::ZERO,
            false => self.prepare_sleep(wait),
        };
        ended + wait
    }

    /// Ends a turn: how long there is nothing to do, at most `patience`.
    fn end_turn(&mut self, ended: Instant, patience: Duration) -> Duration {
        let worked = ended.saturating_duration_since(self.turn_began);
        self.writing.runs.worked(worked, ended);
        let wait = self.wait_time(ended).min(patience);
        if !wait.is_zero() {
            // Other threads may use the tokens that this one does not need.
            self.limit.release();
        }
        wait
    }

    /// Nothing may have been pushed since the last drain, or there is no sleep.
    fn prepare_sleep(&mut self, wait: Duration) -> Duration {
        if wait.is_zero() || !self.ends.flag.prepare_sleep() {
            Duration::ZERO
        } else {
            wait
        }
    }

    /// Waits for sockets and other threads at most for `wait`, and does what there is to do.
    fn work(&mut self, wait: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.ends.flag.take();
        self.reports.turns += 1;
        let now = clock::now();
        self.turn_began = now;
        self.note_events();
        self.take_messages(now);
        self.move_links(now);
        self.read_sockets(now);
        self.read_edges(now);
        let due = now.saturating_duration_since(self.last_tick) >= TICK;
        if due {
            self.tick(now);
        }
        if self.manager.padding_due().is_some_and(|at| at <= now) {
            self.manager.send_padding(now);
        }
        self.schedule_and_write(now);
        self.write_edges(now);
        self.send_messages(now);
        self.measure_turn(now);
        if cfg!(debug_assertions)
            && due
            && self.audit_is_due()
            && let Err(broken) = self.audit()
        {
            panic!("on {} it does not hold that {broken}", self.me);
        }
        Ok(())
    }

    /// Sleeps until the scheduler's next run, if that is decided ([`RunTimes::pause`]): a wake-up
    /// costs as much as half a cell. Returns the rest of `wait`.
    fn pause(&mut self, wait: Duration, now: Instant) -> Duration {
        let moved = std::mem::take(&mut self.moved);
        let interval = self.params.run_interval;
        match self.writing.runs.pause(moved, interval, now) {
            Some(until) if !wait.is_zero() => {
                clock::sleep(until.saturating_duration_since(now).min(wait));
                Duration::ZERO
            }
            _ => wait,
        }
    }

    /// Notes for the relay's weight what holds the thread back, while that is measured.
    fn measure_turn(&mut self, began: Instant) {
        if self.limit.take_refused() {
            self.manager.note_limited();
        }
        if self.manager.measures_abra() {
            let took = clock::now().saturating_duration_since(began);
            self.manager.note_turn(took);
        }
    }

    /// Time to wait for sockets and other threads: until the next timer.
    fn wait_time(&self, now: Instant) -> Duration {
        if self.is_stuck() || !self.reports.stuck.is_empty() || self.manager.has_requests() {
            return RETRY;
        }
        if !self.ends.from_main.is_empty() {
            return Duration::ZERO;
        }
        let mut until = self.last_tick + TICK;
        if self.has_to_read() {
            match self.reading.blocked_until {
                Some(at) => until = until.min(at),
                None => return Duration::ZERO,
            }
        }
        if self.writing.retry_at.is_none() && self.manager.links().any_unwritten() {
            return Duration::ZERO;
        }
        match self.edges_wait() {
            Some(None) => return Duration::ZERO,
            Some(Some(at)) => until = until.min(at),
            None => {}
        }
        let padding = self.manager.padding_due();
        for again in [self.reading.resume_at, self.writing.retry_at, padding]
            .into_iter()
            .flatten()
        {
            until = until.min(again);
        }
        if self.manager.has_backlog()
            && let Some(next) = self.writing.runs.next(self.params.run_interval)
        {
            until = until.min(next);
        }
        until.saturating_duration_since(now)
    }

    /// Some ring to another connection thread is full, or much waits for a link that moves: what sockets bring would have
    /// no place.
    fn is_stuck(&self) -> bool {
        self.ends.to_peers.iter().any(mesh::ToPeer::is_stuck) || self.manager.holds_much()
    }

    /// Remembers which sockets are ready.
    fn note_events(&mut self) {
        let mut count = 0;
        for event in &self.events {
            count += 1;
            if self.edges.note(event) {
                continue;
            }
            let token = event.token().0;
            let Some(connection) = self.sockets.all.get_mut(token) else {
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
            // An opened link's cells to write are in the manager's list; a handshake continues in
            // `service`, whatever happened to its socket.
            let handshaking = matches!(connection.phase, Phase::Handshake(_));
            if !connection.listed && (connection.readable || handshaking) {
                connection.listed = true;
                let id = connection.id;
                self.reading.queue.push_back(Listed { token, id });
            }
        }
        self.more_events = count == EVENTS;
    }

    /// Takes what the controller and the other threads sent.
    fn take_messages(&mut self, now: Instant) {
        self.reports.rings.see_controller(self.ends.from_main.len());
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
                ToThread::Message(FromController::CountHoldings) => self.count_holdings(now),
                ToThread::Message(FromController::FreeMemory(cut)) => {
                    let cut = self.free_memory(cut, now);
                    let message = FromController::FreeMemory(cut);
                    self.handle_controller(message, &CloseReason::Memory, now);
                }
                ToThread::Message(message) => {
                    self.handle_controller(message, &CloseReason::Requested, now);
                }
                ToThread::Renewed(tls) => self.tls = tls,
                ToThread::Params(params) => {
                    self.params = *params;
                    for (_, connection) in &mut self.sockets.all {
                        connection.allowance.follow(&self.params, now);
                    }
                }
                ToThread::Stop => self.stop(now),
            }
        }
        // The main thread has panicked, and no longer watches the memory.
        if !self.stopping && self.ends.from_main.is_disconnected() {
            self.stop(now);
        }
        for peer in &mut self.ends.from_peers {
            // Cells that are there now were sent after control messages that are there now.
            let batches = peer.cells.len();
            let control = &mut peer.control;
            self.reports.rings.see_peer(control.len(), batches);
            let controls = std::iter::from_fn(|| control.pop());
            self.manager.handle_controls(controls, now);
            for _ in 0..batches {
                if let Some(batch) = peer.cells.pop() {
                    let bytes = batch.cells.len() * CELL_LEN;
                    self.writing.runs.gathered(bytes);
                    self.manager
                        .handle_cells(peer.from, batch.cells, batch.empties, now);
                }
            }
        }
    }

    /// Passes a message of the controller to the manager, and closes the connections that it returns.
    fn handle_controller(&mut self, message: FromController, reason: &CloseReason, now: Instant) {
        for connection in self.manager.handle_controller(message, now) {
            if let Some(token) = self.sockets.by_id.get(&connection).copied() {
                self.close(token, reason, now);
            }
        }
    }

    /// Timers.
    fn tick(&mut self, now: Instant) {
        self.last_tick = now;
        self.limit.expire(now);
        self.tick_edges(now);
        while let Some((deadline, id)) = self.sockets.handshakes.front().copied() {
            if deadline > now {
                break;
            }
            self.sockets.handshakes.pop_front();
            if let Some(token) = self.sockets.by_id.get(&id).copied()
                && self
                    .sockets
                    .all
                    .get(token)
                    .is_some_and(|connection| matches!(connection.phase, Phase::Handshake(_)))
            {
                self.close(token, &CloseReason::HandshakeTimeout, now);
            }
        }
        for (_, connection) in &self.sockets.all {
            if let Phase::Open(link, records) = &connection.phase
                && let Some(keys) = records.key_use()
            {
                self.manager
                    .links_mut()
                    .keys_used(*link, keys.used, keys.left);
            }
        }
        self.read_tcp(now);
        for (id, expiry) in self.manager.handle_timeout(now) {
            let reason = match expiry {
                Expiry::Idle => CloseReason::Idle,
                Expiry::Stuck => CloseReason::Stuck,
            };
            if let Some(token) = self.sockets.by_id.get(&id).copied() {
                self.close(token, &reason, now);
            }
        }
    }

    /// Reads what the kernel has counted of the links' sockets, of a quarter of them in each tick.
    fn read_tcp(&mut self, now: Instant) {
        self.tcp_turn = (self.tcp_turn + 1) % TCP_TURNS;
        for (token, connection) in &self.sockets.all {
            if token % TCP_TURNS == self.tcp_turn
                && let Phase::Open(link, _) = &connection.phase
                && self.manager.watches_loss(*link)
                && let Some(counters) = tcp::counters(&connection.socket)
            {
                self.manager.links_mut().tcp_read(*link, counters, now);
            }
        }
    }

    /// Ends every circuit and link, as politely as the sockets allow at once.
    fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.manager.end_circuits(DestroyReason::HIBERNATING, now);
        for link in self.manager.links().listed().to_vec() {
            if let Some(token) = self.sockets.by_link.get(link.index()).copied().flatten() {
                // Whatever cannot be written now is lost with the connection.
                let _ = self.write(token, link, now);
            }
        }
        for (_, connection) in &mut self.sockets.all {
            connection.send_close_notify();
        }
    }
}
