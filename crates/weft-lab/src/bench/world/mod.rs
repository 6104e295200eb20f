//! One thread of the generator: some links to the target, the relays that the target extends to, and
//! the circuits between them.
//!
//! A world shares nothing with the others but what the conductor (`super::conductor`) orders, its
//! [`Stage`], and what it reports to the conductor, its [`Counters`] and [`News`]. It is one event loop,
//! like a relay's connection thread, and makes cells in the same large TLS records.

mod build;
mod drive;
mod hops;
mod links;
mod live;
mod onionskins;
mod orders;
mod primes;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use slab::Slab;
use weft_core::handshake::LinkHandshake;
use weft_tls::LinkTls;

use self::build::Build;
use self::hops::{NextHop, next_hops};
use self::live::Live;
pub(super) use self::orders::{Churn, Counters, News, SharedStage, Stage, Timed};
use super::aim::Aim;
use super::latency::{Schedule, TICK, Times};
use super::link::{IdHasher, Link, READ_AT_ONCE, RECORD};
use super::live::Preset;
use super::mode::{Direction, Mode};

/// What is at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    /// A relay.
    Relay(Aim),
    /// A bare pipe: cells inside TLS, without the handshakes of Tor.
    Pipe(SocketAddr),
}

impl Peer {
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Peer::Relay(aim) => aim.address,
            Peer::Pipe(address) => *address,
        }
    }
}

/// What one world has to do.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) peer: Peer,
    pub(super) mode: Mode,
    pub(super) direction: Direction,
    pub(super) origin_links: usize,
    pub(super) next_hops: usize,
    pub(super) circuits: usize,
    pub(super) window: u64,
    /// The part of the rate that is this world's.
    pub(super) share: f64,
    /// The mix of a relay of the public network; else cells are spread evenly.
    pub(super) live: Option<Preset>,
    pub(super) seed: u64,
    /// Nothing may take longer without a sign of life.
    pub(super) patience: Duration,
    /// The address of our relays.
    pub(super) own_ip: IpAddr,
    /// The listener of a pipe's next hop, which the pipe must know before the world begins.
    pub(super) listener: Option<std::net::TcpListener>,
}

impl Plan {
    /// How many circuits [`Stage::BuildHalf`] builds.
    pub(super) fn half(&self) -> usize {
        let links = self.origin_links.max(self.next_hops);
        links.max(self.circuits / 2).min(self.circuits)
    }
}

/// Which end of the target a link is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// We opened it: circuits come from here.
    Origin,
    /// The target opened it to our relay of this number.
    NextHop(usize),
}

/// How far a link has come.
#[derive(Debug)]
enum Phase {
    /// TCP is being connected.
    Connecting,
    /// TLS and the link handshake.
    Handshake(Box<LinkHandshake>),
    /// TLS to a pipe.
    Raw,
    /// Cells may go.
    Open,
    /// We have sent our last; the target closes, too.
    Closing,
}

/// A link and what waits to be sent on it.
#[derive(Debug)]
struct End {
    link: Link,
    side: Side,
    phase: Phase,
    /// Cells of circuits that are being built, ready to be encrypted.
    out: Vec<u8>,
    /// Circuits that have cells to send here, each once.
    active: VecDeque<u32>,
    /// Circuits by the id that the target gave them on this link.
    by_id: HashMap<u32, u32, BuildHasherDefault<IdHasher>>,
    /// Circuits that begin here, if we opened it.
    carried: usize,
    /// It closes when the last of them has gone.
    closing: bool,
    /// CREATE2 cells that have not been answered (onionskins).
    unanswered: usize,
    /// The next circuit id (onionskins).
    next_id: u32,
    /// Listed to be read.
    listed: bool,
    /// Listed to be written.
    dirty: bool,
}

impl End {
    /// Whether a socket that takes bytes is of use. Epoll reports with every arrival that it takes some.
    fn has_to_write(&mut self) -> bool {
        matches!(self.phase, Phase::Connecting)
            || !self.out.is_empty()
            || !self.active.is_empty()
            || self.link.session.tls().wants_write()
    }
}

/// One direction of a circuit.
#[derive(Clone, Debug, Default)]
struct Flow {
    sent: u64,
    arrived: u64,
    /// Cells that the schedule has released.
    due: u64,
    /// In the list of its link.
    active: bool,
    times: Times,
}

/// A circuit through the target.
#[derive(Debug)]
struct Circuit {
    /// Keys of the links.
    origin: usize,
    next: usize,
    /// Its ids there.
    origin_id: u32,
    next_id: u32,
    /// Which of our relays it is extended to.
    hop: usize,
    /// `None` once it can carry cells.
    build: Option<Box<Build>>,
    end: CircuitEnd,
    up: Flow,
    down: Flow,
}

/// How far the end of a circuit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitEnd {
    /// It has not.
    Open,
    /// It gets no more cells; those on their way arrive first.
    Draining,
    /// DESTROY has been sent, and comes to our relay behind the target.
    Destroyed,
    /// It came there; the circuit's number may be used again.
    Vacant,
}

/// The bit of circuit ids that a link's initiator chooses (tor-spec 5.1.1).
const INITIATOR: u32 = 1 << 31;

const TIMER: Token = Token(0);
/// How long a generator whose cells are due at times sleeps when there is nothing to do.
const REST: Duration = Duration::from_micros(100);
const FIRST_LISTENER: usize = 1;
const FIRST_LINK: usize = 1 << 20;

/// One thread of the generator.
pub(super) struct World {
    plan: Plan,
    stage: Stage,
    round: u64,
    shared: Arc<SharedStage>,
    counters: Arc<Counters>,
    news: Sender<News>,
    /// The latest stage that was reported as done.
    reported: Stage,
    poll: Poll,
    timer: TimerFd,
    rng: ChaCha12Rng,
    client: LinkTls,
    hops: Vec<NextHop>,
    ends: Slab<End>,
    /// Keys of the links that we opened.
    origins: Vec<usize>,
    /// How many of them are open.
    origins_open: usize,
    circuits: Vec<Circuit>,
    /// Circuits whose building has begun, and that can carry cells.
    begun: usize,
    built: usize,
    /// Links to be read and written in this turn.
    readable: Vec<usize>,
    dirty: Vec<usize>,
    scratch: Vec<u8>,
    plain: Vec<u8>,
    record: Vec<u8>,
    begin: Instant,
    /// When the schedule began, in nanoseconds since `begin`.
    run_at: u64,
    schedule: Option<Schedule>,
    /// Cells that the schedule has released, in each direction.
    released: u64,
    live: Option<Live>,
    timed: Timed,
    upload: u64,
    download: u64,
    sent: u64,
    events: u64,
    churn: Churn<u64>,
    /// When something last came from the target.
    sign_of_life: Instant,
    /// The CREATE2 cell that is sent again and again, and the state that checks its first answer.
    onionskin: Option<(
        weft_cell::Cell,
        Option<weft_crypto::handshake::ntor::ClientState>,
    )>,
}

impl World {
    /// Makes keys and listeners.
    pub(super) fn new(
        mut plan: Plan,
        shared: Arc<SharedStage>,
        counters: Arc<Counters>,
        news: Sender<News>,
    ) -> Result<World> {
        let mut rng = ChaCha12Rng::seed_from_u64(plan.seed);
        let poll = Poll::new().context("making an epoll instance")?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .context("making a timer")?;
        poll.registry()
            .register(&mut SourceFd(&timer_fd(&timer)), TIMER, Interest::READABLE)
            .context("watching a timer")?;
        let hops = next_hops(&mut plan, &mut rng)?;
        let live = plan.live.map(|preset| Live::new(preset, &plan));
        let mut world = World {
            stage: Stage::Wait,
            round: 0,
            shared,
            counters,
            news,
            reported: Stage::Wait,
            poll,
            timer,
            client: LinkTls::client().context("setting up TLS")?,
            hops,
            ends: Slab::new(),
            origins: Vec::new(),
            origins_open: 0,
            circuits: Vec::new(),
            begun: 0,
            built: 0,
            readable: Vec::new(),
            dirty: Vec::new(),
            scratch: vec![0; READ_AT_ONCE],
            plain: Vec::new(),
            record: vec![0; RECORD],
            begin: Instant::now(),
            run_at: 0,
            schedule: None,
            released: 0,
            live,
            timed: Timed::new(),
            upload: 0,
            download: 0,
            sent: 0,
            events: 0,
            churn: Churn::default(),
            sign_of_life: Instant::now(),
            onionskin: None,
            rng,
            plan,
        };
        // What cells carry is never looked at; anything that does not compress or repeat will do.
        world.rng.fill_bytes(&mut world.record);
        for (number, hop) in world.hops.iter_mut().enumerate() {
            world
                .poll
                .registry()
                .register(
                    &mut hop.listener,
                    Token(FIRST_LISTENER + number),
                    Interest::READABLE,
                )
                .context("watching a listener")?;
        }
        Ok(world)
    }

    /// Runs until the conductor orders [`Stage::Stop`] or something goes wrong.
    /// What was timed, and why it ended if it should not have.
    pub(super) fn run(mut self) -> (Timed, Result<()>) {
        let outcome = self.turns();
        self.publish();
        (self.timed, outcome)
    }

    fn turns(&mut self) -> Result<()> {
        let _ = self.news.send(News::Prepared);
        let mut events = Events::with_capacity(1024);
        while self.stage != Stage::Stop {
            self.follow()?;
            self.poll(&mut events)?;
            // What is listed meanwhile is for the next turn. The lists keep their memory.
            let mut listed = std::mem::take(&mut self.readable);
            for key in listed.drain(..) {
                self.read(key)?;
            }
            listed.append(&mut self.readable);
            self.readable = listed;
            self.release()?;
            self.proceed()?;
            let mut listed = std::mem::take(&mut self.dirty);
            for key in listed.drain(..) {
                self.write(key)?;
            }
            listed.append(&mut self.dirty);
            self.dirty = listed;
            self.publish();
            self.watch()?;
        }
        for end in self.ends.drain() {
            end.link.close();
        }
        Ok(())
    }

    /// Nanoseconds since the world began.
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Enters the stage that the conductor wants.
    fn follow(&mut self) -> Result<()> {
        let (round, wanted) = self.shared.get();
        if (round, wanted) == (self.round, self.stage) {
            return Ok(());
        }
        let mut before = std::mem::replace(&mut self.stage, wanted);
        if std::mem::replace(&mut self.round, round) != round {
            before = before.min(Stage::Build);
            self.reported = self.reported.min(Stage::Build);
        }
        self.sign_of_life = Instant::now();
        if self.plan.mode != Mode::Links {
            let links = match wanted {
                Stage::Wait => 0,
                Stage::LinkHalf => self.plan.origin_links / 2,
                _ => self.plan.origin_links,
            };
            while self.origins.len() < links {
                let key = self.open()?;
                self.origins.push(key);
            }
        }
        if before < Stage::Run && wanted >= Stage::Run {
            self.begin_round()?;
        }
        Ok(())
    }

    /// The load begins, at the rate of this round.
    fn begin_round(&mut self) -> Result<()> {
        let rate = self.shared.rate().map(|rate| rate * self.plan.share);
        let was_paced = self.is_paced();
        self.run_at = self.now();
        self.released = 0;
        self.schedule = rate.filter(|_| self.live.is_none()).map(Schedule::new);
        // What was due at the end of the round before, and could not be sent any more, is forgotten.
        for (_, end) in &mut self.ends {
            end.active.clear();
        }
        for circuit in &mut self.circuits {
            for flow in [&mut circuit.up, &mut circuit.down] {
                flow.due = flow.sent;
                flow.active = false;
                flow.times.clear();
            }
        }
        if let Some(rate) = rate {
            self.start_mix(rate)?;
        }
        if self.is_paced() && !was_paced {
            let tick = Expiration::Interval(TICK.into());
            self.timer
                .set(tick, TimerSetTimeFlags::empty())
                .context("setting a timer")?;
        }
        if self.plan.mode == Mode::Cells && !self.is_paced() {
            self.activate_all();
        }
        Ok(())
    }

    /// Cells are due at times, and not as soon as a window is open. Then every one is timed.
    fn is_paced(&self) -> bool {
        self.schedule.is_some() || self.live.as_ref().is_some_and(|live| live.has_started)
    }

    /// Waits for sockets, the timer or the time to look at the stage again.
    fn poll(&mut self, events: &mut Events) -> Result<()> {
        let idle = self.readable.is_empty() && self.dirty.is_empty();
        let wait = match (idle, self.is_paced()) {
            (false, _) => Duration::ZERO,
            (true, false) => Duration::from_millis(20),
            (true, true) => {
                // Asleep, and not in epoll: there the target's write would have to wake us up, which costs it
                // more than the write, and which no peer on another machine asks of it.
                thread::sleep(REST);
                Duration::ZERO
            }
        };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled.context("waiting for sockets")?,
        }
        for event in events.iter() {
            match event.token() {
                // Only wakes us up: the clock decides what is due. It need not be read, as epoll reports edges.
                TIMER => {}
                Token(number) if number < FIRST_LINK => self.accept(number - FIRST_LISTENER)?,
                Token(number) => {
                    let key = number - FIRST_LINK;
                    let Some(end) = self.ends.get_mut(key) else {
                        continue;
                    };
                    end.link.note(event);
                    if event.is_writable() && end.has_to_write() {
                        self.mark(key);
                    }
                    self.list(key);
                }
            }
        }
        Ok(())
    }

    /// The link is to be read in this turn or the next.
    fn list(&mut self, key: usize) {
        if let Some(end) = self.ends.get_mut(key)
            && end.link.readable
            && !std::mem::replace(&mut end.listed, true)
        {
            self.readable.push(key);
        }
    }

    /// The link has something to be written.
    fn mark(&mut self, key: usize) {
        if let Some(end) = self.ends.get_mut(key)
            && !std::mem::replace(&mut end.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    /// Does what the stage asks for and reports when it is done.
    fn proceed(&mut self) -> Result<()> {
        let done = match self.stage {
            Stage::Wait | Stage::Stop => false,
            Stage::LinkHalf | Stage::Link => {
                self.plan.mode == Mode::Links || self.origins_open == self.origins.len()
            }
            Stage::BuildHalf => self.build(self.plan.half())?,
            Stage::Build => self.build(self.plan.circuits)?,
            Stage::Run | Stage::Measure => {
                match self.plan.mode {
                    Mode::Onionskins => self.request_circuits()?,
                    Mode::Links => self.request_links()?,
                    Mode::Cells => self.renew_circuits()?,
                    Mode::IdleLinks | Mode::IdleCircuits => {}
                }
                false
            }
            Stage::Drain => {
                self.plan.mode != Mode::Cells || self.upload + self.download == self.sent
            }
        };
        if done && self.reported < self.stage {
            self.reported = self.stage;
            self.publish();
            // A conductor that has gone wants nothing any more.
            if self.stage == Stage::Drain {
                let timed = std::mem::replace(&mut self.timed, Timed::new());
                let _ = self.news.send(News::Timed(Box::new(timed)));
            }
            let _ = self.news.send(News::Done(self.stage));
        }
        Ok(())
    }

    fn publish(&self) {
        let counters = &self.counters;
        counters.upload.store(self.upload, Ordering::Relaxed);
        counters.download.store(self.download, Ordering::Relaxed);
        counters.sent.store(self.sent, Ordering::Relaxed);
        counters.events.store(self.events, Ordering::Relaxed);
        counters.churn.store(self.churn);
    }

    /// An error if the target has been silent for too long while something should come.
    fn watch(&mut self) -> Result<()> {
        let patience = self.plan.patience;
        if self.reported == self.stage || self.sign_of_life.elapsed() < patience {
            return Ok(());
        }
        let address = self.plan.peer.address();
        match self.stage {
            Stage::LinkHalf | Stage::Link => bail!(
                "the target at {address} did not finish {} of {} links within {patience:?}: is it a relay?",
                self.origins.len() - self.origins_open,
                self.origins.len()
            ),
            Stage::BuildHalf | Stage::Build => {
                let extending = self
                    .circuits
                    .iter()
                    .any(|circuit| circuit.build.as_ref().is_some_and(|b| b.is_extending()));
                bail!(
                    "the target at {address} did not answer {} within {patience:?}: {} of {} circuits were built",
                    if extending { "EXTEND2" } else { "CREATE2" },
                    self.built,
                    self.plan.circuits
                )
            }
            Stage::Run | Stage::Measure => match self.plan.mode {
                Mode::IdleLinks | Mode::IdleCircuits => Ok(()),
                // A slow schedule is no fault of the target's.
                Mode::Cells if self.upload + self.download == self.sent => Ok(()),
                _ => bail!(
                    "the target at {address} has stalled: nothing came from it for {patience:?}"
                ),
            },
            Stage::Drain => bail!(
                "the target at {address} lost cells: {} were sent, {} arrived within {patience:?} of the last one",
                self.sent,
                self.upload + self.download
            ),
            Stage::Wait | Stage::Stop => Ok(()),
        }
    }

    fn end(&mut self, key: usize) -> Result<&mut End> {
        self.ends
            .get_mut(key)
            .ok_or_else(|| anyhow!("a link that is not there (a bug of the generator)"))
    }
}

/// The timer's descriptor as mio wants it.
fn timer_fd(timer: &TimerFd) -> i32 {
    use std::os::fd::AsFd as _;
    timer.as_fd().as_raw_fd()
}
