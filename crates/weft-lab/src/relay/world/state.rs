//! State of one world.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use slab::Slab;
use weft_tls::LinkTls;

use super::circuit::Circuit;
use super::ends::End;
use super::hops::{NextHop, next_hops};
use super::mix::Live;
use super::orders::{Churn, Counters, News, SharedStage, Stage, Timed};
use super::plan::Plan;
use super::tokens::{FIRST_LISTENER, TIMER};
use crate::relay::latency::Schedule;
use crate::relay::link::{READ_AT_ONCE, RECORD};

/// One thread of the generator.
pub(in crate::relay) struct World {
    pub(super) plan: Plan,
    pub(super) stage: Stage,
    pub(super) round: u64,
    pub(super) shared: Arc<SharedStage>,
    pub(super) counters: Arc<Counters>,
    pub(super) news: Sender<News>,
    /// The latest stage that was reported as done.
    pub(super) reported: Stage,
    pub(super) poll: Poll,
    pub(super) timer: TimerFd,
    pub(super) rng: ChaCha12Rng,
    pub(super) client: LinkTls,
    pub(super) hops: Vec<NextHop>,
    pub(super) ends: Slab<End>,
    /// Keys of the links that we opened.
    pub(super) origins: Vec<usize>,
    /// Number of them that are open.
    pub(super) origins_open: usize,
    pub(super) circuits: Vec<Circuit>,
    /// Circuits whose building has begun, and that can carry cells.
    pub(super) begun: usize,
    pub(super) built: usize,
    /// Links to be read and written in this turn.
    pub(super) readable: Vec<usize>,
    pub(super) dirty: Vec<usize>,
    pub(super) scratch: Vec<u8>,
    pub(super) plain: Vec<u8>,
    pub(super) record: Vec<u8>,
    pub(super) begin: Instant,
    /// When the schedule began, in nanoseconds since `begin`.
    pub(super) run_at: u64,
    pub(super) schedule: Option<Schedule>,
    /// Cells that the schedule has released, in each direction.
    pub(super) released: u64,
    pub(super) live: Option<Live>,
    pub(super) timed: Timed,
    pub(super) upload: u64,
    pub(super) download: u64,
    pub(super) sent: u64,
    pub(super) events: u64,
    pub(super) churn: Churn<u64>,
    /// When something last came from the target.
    pub(super) sign_of_life: Instant,
    /// The CREATE2 cell that is sent again and again, and the state that checks its first answer.
    pub(super) onionskin: Option<(
        weft_cell::Cell,
        Option<weft_crypto::handshake::ntor::ClientState>,
    )>,
}

impl World {
    /// Makes keys and listeners.
    pub(in crate::relay) fn new(
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
        // The contents of cells are never read; anything that does not compress or repeat will do.
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

    /// Nanoseconds since the world began.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Cells are due at times, and not as soon as a window is open. Then every one is timed.
    pub(super) fn is_paced(&self) -> bool {
        self.schedule.is_some() || self.live.as_ref().is_some_and(|live| live.has_started)
    }

    /// The link is to be read in this turn or the next.
    pub(super) fn list(&mut self, key: usize) {
        if let Some(end) = self.ends.get_mut(key)
            && end.link.readable
            && !std::mem::replace(&mut end.listed, true)
        {
            self.readable.push(key);
        }
    }

    /// The link has something to be written.
    pub(super) fn mark(&mut self, key: usize) {
        if let Some(end) = self.ends.get_mut(key)
            && !std::mem::replace(&mut end.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    pub(super) fn end(&mut self, key: usize) -> Result<&mut End> {
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
