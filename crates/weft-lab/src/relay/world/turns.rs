//! The event loop of a world: turns, and the stages that the conductor orders.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::{Events, Token};
use nix::sys::timerfd::{Expiration, TimerSetTimeFlags};

use super::orders::{News, Stage, Timed};
use super::state::World;
use super::tokens::{FIRST_LINK, FIRST_LISTENER, TIMER};
use crate::relay::latency::{Schedule, TICK};
use crate::relay::mode::Mode;

/// Sleep of a generator that sends cells on a schedule, when there is nothing to do.
const REST: Duration = Duration::from_micros(100);

impl World {
    /// Runs until the conductor orders [`Stage::Stop`] or something goes wrong. Returns the
    /// measured times, and the error that ended it.
    pub(in crate::relay) fn run(mut self) -> (Timed, Result<()>) {
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
            // Entries that are added meanwhile are for the next turn. The lists keep their memory.
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
        // Cells that were due at the end of the previous round and not sent are dropped.
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
}
