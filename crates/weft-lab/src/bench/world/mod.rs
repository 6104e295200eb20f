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
mod onionskins;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
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
use super::aim::Aim;
use super::latency::{Latencies, Schedule, SendTimes, TICK};
use super::link::{Link, READ_AT_ONCE, RECORD};
use super::mode::{Direction, Mode};

/// What the conductor wants of the worlds. Stages come in this order; some may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Stage {
    /// Wait.
    Wait,
    /// Open half of the links.
    LinkHalf,
    /// Open the links.
    Link,
    /// Build half of the circuits, and one over each link at least, so that all links are there.
    BuildHalf,
    /// Build all circuits.
    Build,
    /// Drive cells, or what the mode asks for.
    Run,
    /// Go on; what happens now is measured.
    Measure,
    /// Send nothing new; wait for what is on its way.
    Drain,
    /// End.
    Stop,
}

const STAGES: [Stage; 9] = [
    Stage::Wait,
    Stage::LinkHalf,
    Stage::Link,
    Stage::BuildHalf,
    Stage::Build,
    Stage::Run,
    Stage::Measure,
    Stage::Drain,
    Stage::Stop,
];

/// The stage that all worlds shall be in.
#[derive(Debug)]
pub(super) struct SharedStage(AtomicU8);

impl SharedStage {
    pub(super) fn new() -> SharedStage {
        SharedStage(AtomicU8::new(Stage::Wait as u8))
    }

    pub(super) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Release);
    }

    fn get(&self) -> Stage {
        let number = usize::from(self.0.load(Ordering::Acquire));
        STAGES.get(number).copied().unwrap_or(Stage::Stop)
    }
}

/// What a world has done so far, published once in a turn of its loop.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Cells that arrived at next hops.
    pub(super) upload: AtomicU64,
    /// Cells that arrived at origins.
    pub(super) download: AtomicU64,
    /// Cells that were sent, both ways.
    pub(super) sent: AtomicU64,
    /// Circuits made and links opened: what setting up and the other modes count.
    pub(super) events: AtomicU64,
}

/// What a world reports to the conductor.
#[derive(Debug)]
pub(super) enum News {
    /// Its keys are made and its next hops listen.
    Prepared,
    /// It has done what its stage asked for.
    Done(Stage),
    /// It has ended, and why if it should not have.
    Ended(Box<Latencies>, Result<()>),
}

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
    /// Cells per second in each direction.
    pub(super) rate: Option<f64>,
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
    /// CREATE2 cells that have not been answered (onionskins).
    unanswered: usize,
    /// The next circuit id (onionskins).
    next_id: u32,
    /// Listed to be read.
    listed: bool,
    /// Listed to be written.
    dirty: bool,
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
    times: SendTimes,
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
    up: Flow,
    down: Flow,
}

/// Circuit ids hash to themselves, spread by one multiplication: they are the target's random
/// numbers, and the target is no attacker here.
#[derive(Clone, Copy, Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The bit of circuit ids that a link's initiator chooses (tor-spec 5.1.1).
const INITIATOR: u32 = 1 << 31;

const TIMER: Token = Token(0);
const FIRST_LISTENER: usize = 1;
const FIRST_LINK: usize = 1 << 20;

/// One thread of the generator.
pub(super) struct World {
    plan: Plan,
    stage: Stage,
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
    latencies: Latencies,
    upload: u64,
    download: u64,
    sent: u64,
    events: u64,
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
        let mut world = World {
            stage: Stage::Wait,
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
            // Of cells that are on their way at a fixed rate, every one is timed.
            schedule: plan.rate.map(Schedule::new),
            released: 0,
            latencies: Latencies::new(),
            upload: 0,
            download: 0,
            sent: 0,
            events: 0,
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
    pub(super) fn run(mut self) -> (Latencies, Result<()>) {
        let outcome = self.turns();
        self.publish();
        (self.latencies, outcome)
    }

    fn turns(&mut self) -> Result<()> {
        let _ = self.news.send(News::Prepared);
        let mut events = Events::with_capacity(1024);
        while self.stage != Stage::Stop {
            self.follow()?;
            self.poll(&mut events)?;
            for key in std::mem::take(&mut self.readable) {
                self.read(key)?;
            }
            self.release();
            self.proceed()?;
            for key in std::mem::take(&mut self.dirty) {
                self.write(key)?;
            }
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
        let wanted = self.shared.get();
        if wanted == self.stage {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.stage, wanted);
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
            self.run_at = self.now();
            if self.schedule.is_some() {
                let tick = Expiration::Interval(TICK.into());
                self.timer
                    .set(tick, TimerSetTimeFlags::empty())
                    .context("setting a timer")?;
            }
            if self.plan.mode == Mode::Cells && self.schedule.is_none() {
                self.activate_all();
            }
        }
        if before < Stage::Measure && wanted >= Stage::Measure {
            self.latencies.clear();
        }
        Ok(())
    }

    /// Waits for sockets, the timer or the time to look at the stage again.
    fn poll(&mut self, events: &mut Events) -> Result<()> {
        let wait = if self.readable.is_empty() && self.dirty.is_empty() {
            Duration::from_millis(20)
        } else {
            Duration::ZERO
        };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled.context("waiting for sockets")?,
        }
        for event in events.iter() {
            match event.token() {
                TIMER => {
                    // Only wakes us up; the clock decides what is due.
                    let _ = self.timer.wait();
                }
                Token(number) if number < FIRST_LINK => self.accept(number - FIRST_LISTENER)?,
                Token(number) => {
                    let key = number - FIRST_LINK;
                    let Some(end) = self.ends.get_mut(key) else {
                        continue;
                    };
                    end.link.note(event);
                    if event.is_writable() {
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
                    Mode::Cells | Mode::IdleLinks | Mode::IdleCircuits => {}
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
