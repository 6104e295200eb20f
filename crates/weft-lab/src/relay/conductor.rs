//! Orders the worlds from stage to stage, and measures meanwhile.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weft_testnet::ports::Port;
use weft_testnet::process::Usage;

use super::aim::Peer;
use super::live;
use super::live::Preset;
use super::measuring::{Counted, Counts, Sample};
use super::mode::Mode;
use super::options::{Options, default_window};
use super::prepare::{Sizes, empty_report, start_target};
use super::report::{Idle, Measured, Report};
use super::start::Running;
use super::world::{Counters, News, Plan, SharedStage, Stage, Timed, World};

/// Interval at which the conductor checks everything.
const BEAT: Duration = Duration::from_millis(50);

/// Memory that differs by no more has settled, in bytes.
const SETTLED: u64 = 64 * 1024;

/// Values of [`Progress::doing`] while the load runs, before and while it is measured.
pub(crate) const WARMING_UP: &str = "warming up";
/// See [`WARMING_UP`].
pub(crate) const MEASURING: &str = "measuring";

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The current activity.
    pub doing: &'static str,
    /// Completed fraction of it, 0 to 1.
    pub fraction: f64,
    /// Cells a second (or circuits, or links) of late; 0 while setting up.
    pub per_second: f64,
}

/// A running world.
struct Worker {
    counters: Arc<Counters>,
    news: Receiver<News>,
    join: JoinHandle<()>,
    /// The last stage that it has done.
    done: Stage,
    prepared: bool,
    ended: bool,
}

/// A run, from its beginning to its report.
pub(super) struct Conductor<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    running: Option<Running>,
    /// Where the target has its counters, if they are asked for.
    metrics: Option<Port>,
    pid: Option<u32>,
    stage: Arc<SharedStage>,
    worlds: Vec<Worker>,
    timed: Timed,
    report: Report,
    circuits: usize,
    /// Links or circuits that are there when idle memory is first looked at.
    half: usize,
}

impl<'a> Conductor<'a> {
    /// Checks the options, starts the target and the worlds.
    ///
    /// # Errors
    ///
    /// The options contradict each other, or the target cannot be started.
    pub(super) fn begin(
        options: &'a Options,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Progress),
    ) -> Result<Conductor<'a>> {
        let sizes = Sizes::of(options)?;
        let listener = match sizes.is_pipe {
            true => Some(TcpListener::bind((options.own_ip, 0)).context("listening for the pipe")?),
            false => None,
        };
        let next_hop = match &listener {
            Some(listener) => Some(listener.local_addr().context("listening for the pipe")?),
            None => None,
        };
        weft_testnet::process::raise_file_limit();
        let metrics = options.counters.then(Port::reserve).transpose()?;
        let (running, peer, pid) = start_target(options, next_hop, metrics.as_ref())?;
        let window = match options.mode {
            Mode::Links | Mode::IdleLinks | Mode::IdleCircuits => 0,
            Mode::Cells | Mode::Onionskins => options.window.unwrap_or_else(|| {
                default_window(options.mode, options.live.is_some(), options.circuits)
            }),
        };
        let mut conductor = Conductor {
            options,
            stop,
            progress,
            running,
            metrics,
            pid,
            stage: Arc::new(SharedStage::new()),
            worlds: Vec::new(),
            timed: Timed::new(),
            report: empty_report(options, &sizes, peer, pid, window)?,
            circuits: sizes.circuits,
            half: 0,
        };
        conductor.start_worlds(&sizes, peer, window, listener)?;
        Ok(conductor)
    }

    /// Shares links and circuits between the worlds, and starts these.
    fn start_worlds(
        &mut self,
        sizes: &Sizes,
        peer: Peer,
        window: u64,
        mut listener: Option<TcpListener>,
    ) -> Result<()> {
        let options = self.options;
        let threads = sizes.threads;
        for number in 0..threads {
            let share = |all: usize| all / threads + usize::from(number < all % threads);
            let (origin_links, next_hops, circuits) = match sizes.is_pipe {
                true => (sizes.origins, 1, sizes.circuits),
                false => (
                    share(sizes.origins),
                    share(sizes.hops),
                    share(sizes.circuits),
                ),
            };
            let all = sizes.circuits.max(1) as f64;
            let plan = Plan {
                peer,
                mode: options.mode,
                direction: options.direction,
                origin_links,
                next_hops,
                circuits,
                window,
                share: circuits as f64 / all,
                live: options.live,
                seed: options.seed.wrapping_add(number as u64),
                patience: options.patience,
                own_ip: options.own_ip,
                listener: listener.take(),
            };
            self.half += match options.mode {
                Mode::IdleLinks => plan.origin_links / 2,
                _ => plan.half(),
            };
            self.start_world(plan)?;
        }
        Ok(())
    }

    fn start_world(&mut self, plan: Plan) -> Result<()> {
        let (sender, news) = channel();
        let counters = Arc::new(Counters::default());
        let (stage, theirs) = (self.stage.clone(), counters.clone());
        let join = thread::Builder::new()
            .name(format!("generator-{}", self.worlds.len()))
            .spawn(move || {
                let world = World::new(plan, stage, theirs, sender.clone());
                let (timed, outcome) = match world {
                    Ok(world) => world.run(),
                    Err(error) => (Timed::new(), Err(error)),
                };
                // A conductor that has gone wants nothing any more.
                let _ = sender.send(News::Ended(Box::new(timed), outcome));
            })
            .context("starting a thread of the generator")?;
        self.worlds.push(Worker {
            counters,
            news,
            join,
            done: Stage::Wait,
            prepared: false,
            ended: false,
        });
        Ok(())
    }

    /// The whole run.
    pub(super) fn perform(&mut self) -> Result<()> {
        match self.options.mode {
            Mode::Cells | Mode::Onionskins | Mode::Links => {
                self.set_up()?;
                self.measure(self.own_rate())
            }
            Mode::IdleLinks => self.measure_idle("links"),
            Mode::IdleCircuits => self.measure_idle("circuits"),
        }
    }

    /// The rate of the only round, or the first: what was asked for, or what circuits of the live mix carry.
    pub(super) fn own_rate(&self) -> Option<f64> {
        let own = || Preset::own_rate(self.circuits);
        self.options.rate.or(self.options.live.map(|_| own()))
    }

    /// Everything until the load can begin.
    pub(super) fn set_up(&mut self) -> Result<()> {
        self.set_up_links()?;
        if self.circuits > 0 {
            let began = Instant::now();
            self.reach("building circuits", Stage::Build)?;
            self.report.setup.circuits_s = began.elapsed().as_secs_f64();
        }
        Ok(())
    }

    fn set_up_links(&mut self) -> Result<()> {
        self.wait_until("making keys", |world| world.prepared)?;
        let began = Instant::now();
        self.reach("opening links", Stage::Link)?;
        self.report.setup.links_s = began.elapsed().as_secs_f64();
        Ok(())
    }

    /// One round: the load is on, is measured, and ends.
    pub(super) fn measure(&mut self, rate: Option<f64>) -> Result<()> {
        self.report.measured = None;
        self.report.load.rate_cells_per_s = rate;
        let life = self.options.live.and(rate);
        self.report.load.circuit_life_s = life.map(|rate| live::life_s(self.circuits, rate));
        self.timed = Timed::new();
        for world in &mut self.worlds {
            world.done = world.done.min(Stage::Build);
        }
        self.stage.begin_round(rate);
        self.hold(WARMING_UP, self.options.warm_up, &mut |_| {})?;
        let counted = self.counted()?;
        let before = self.sample()?;
        self.stage.set(Stage::Measure);
        let mut last = before.clone();
        let held = self.hold(MEASURING, self.options.seconds, &mut |conductor| {
            // Keeps the last sample, in case the target ends.
            if let Ok(sample) = conductor.sample() {
                last = sample;
            }
        });
        self.stage.set(Stage::Drain);
        let mut measured = self.compare(&before, &last);
        if let (Some(before), Ok(Some(after))) = (counted, self.counted()) {
            measured.work = after.since(&before);
        }
        self.report.measured = Some(measured);
        held?;
        let drained = self.wait_until("waiting for the last cells", |world| {
            world.done >= Stage::Drain
        });
        self.complete_measured();
        drained
    }

    /// Adds to what was measured what is known when all cells have arrived, or the run is over.
    fn complete_measured(&mut self) {
        let counts = self.counts();
        if let Some(measured) = &mut self.report.measured {
            measured.latency = self.timed.cells.report();
            measured.generator_late = self.timed.late.report();
            if let Some(cells) = &mut measured.cells {
                (cells.sent, cells.arrived) = (counts.sent, counts.upload + counts.download);
            }
        }
    }

    /// Memory of the second half of many idle things. A program's beginning leaves memory behind that
    /// it gives back or uses again in time; by the time that the first half is there, that is over.
    fn measure_idle(&mut self, what: &str) -> Result<()> {
        let pid = self.pid.context(
            "memory can be measured of a process on this machine only: name it by --pid",
        )?;
        let circuits = what == "circuits";
        let all = match circuits {
            true => self.circuits,
            false => self.report.load.origin_links,
        };
        let count = all - self.half;
        ensure!(
            count > 0,
            "too few idle {what} to measure the memory of one: more than {} are needed",
            self.half
        );
        if circuits {
            self.set_up_links()?;
            self.reach("building circuits", Stage::BuildHalf)?;
        } else {
            self.wait_until("making keys", |world| world.prepared)?;
            self.reach("opening links", Stage::LinkHalf)?;
        }
        self.settle(pid, self.options.warm_up)?;
        let before = self.sample()?;
        let began = Instant::now();
        if circuits {
            self.reach("building circuits", Stage::Build)?;
            self.report.setup.circuits_s = began.elapsed().as_secs_f64();
        } else {
            self.set_up_links()?;
        }
        self.settle(pid, self.options.seconds)?;
        let after = self.sample()?;
        let rss = |sample: &Sample| sample.target.as_ref().map_or(0, |usage| usage.rss);
        let mut measured = self.compare(&before, &after);
        (measured.onionskins, measured.links) = (None, None);
        measured.idle = Some(Idle {
            what: what.to_owned(),
            count: count as u64,
            rss_before_bytes: rss(&before),
            rss_after_bytes: rss(&after),
            bytes_each: (rss(&after) as f64 - rss(&before) as f64) / count as f64,
        });
        self.report.measured = Some(measured);
        Ok(())
    }

    /// Waits so long, and then until the target's memory changes little, for at most the same time
    /// ten times more: programs give back what their beginning took, and not at once.
    fn settle(&mut self, pid: u32, length: Duration) -> Result<()> {
        self.hold("settling", length, &mut |_| {})?;
        let mut last = Usage::of(pid)?.rss;
        for _ in 0..10 {
            self.hold("settling", length, &mut |_| {})?;
            let now = Usage::of(pid)?.rss;
            if now.abs_diff(last) <= SETTLED {
                break;
            }
            last = now;
        }
        Ok(())
    }

    /// Has all worlds do a stage.
    fn reach(&mut self, doing: &'static str, stage: Stage) -> Result<()> {
        self.stage.set(stage);
        self.wait_until(doing, |world| world.done >= stage)
    }

    fn wait_until(&mut self, doing: &'static str, done: impl Fn(&Worker) -> bool) -> Result<()> {
        let all = match doing {
            "opening links" => self.report.load.origin_links,
            _ => self.report.load.origin_links + self.circuits,
        };
        while !self.worlds.iter().all(&done) {
            self.beat(BEAT)?;
            let fraction = self.counts().events as f64 / all.max(1) as f64;
            (self.progress)(&Progress {
                doing,
                fraction: fraction.min(1.0),
                per_second: 0.0,
            });
        }
        Ok(())
    }

    /// Lets things go on for so long; `each` is called at each beat, and once at the end.
    fn hold(
        &mut self,
        doing: &'static str,
        length: Duration,
        each: &mut dyn FnMut(&Self),
    ) -> Result<()> {
        let began = Instant::now();
        let mut last = (began, self.counts());
        loop {
            let left = length.saturating_sub(began.elapsed());
            if left.is_zero() {
                each(self);
                return Ok(());
            }
            self.beat(left.min(BEAT))?;
            each(self);
            let counts = self.counts();
            let since = last.0.elapsed().as_secs_f64().max(1e-9);
            let per_second = (counts.moved() - last.1.moved()) as f64 / since;
            if since > 0.5 {
                last = (Instant::now(), counts);
            }
            let fraction = began.elapsed().as_secs_f64() / length.as_secs_f64();
            (self.progress)(&Progress {
                doing,
                fraction: fraction.min(1.0),
                per_second,
            });
        }
    }

    /// Waits a moment, and takes what worlds report.
    fn beat(&mut self, length: Duration) -> Result<()> {
        ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        let deadline = Instant::now() + length;
        // News of the first wake us up; the others' wait for the next round, which comes soon.
        for number in 0..self.worlds.len() {
            loop {
                let left = match number {
                    0 => deadline.saturating_duration_since(Instant::now()),
                    _ => Duration::ZERO,
                };
                let Some(world) = self.worlds.get(number).filter(|world| !world.ended) else {
                    break;
                };
                match world.news.recv_timeout(left) {
                    Ok(news) => self.hear(number, news)?,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        bail!("a thread of the generator has ended without a word")
                    }
                }
                if number == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, number: usize, news: News) -> Result<()> {
        let Some(world) = self.worlds.get_mut(number) else {
            return Ok(());
        };
        match news {
            News::Prepared => world.prepared = true,
            News::Done(stage) => world.done = stage,
            News::Timed(timed) => self.timed.add(&timed),
            News::Ended(timed, outcome) => {
                world.ended = true;
                self.timed.add(&timed);
                outcome?;
            }
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for world in &self.worlds {
            let counters = &world.counters;
            all.upload += counters.upload.load(Ordering::Relaxed);
            all.download += counters.download.load(Ordering::Relaxed);
            all.sent += counters.sent.load(Ordering::Relaxed);
            all.events += counters.events.load(Ordering::Relaxed);
            let churn = counters.churn.load();
            all.churn.circuits_made += churn.circuits_made;
            all.churn.circuits_ended += churn.circuits_ended;
            all.churn.links_opened += churn.links_opened;
            all.churn.links_closed += churn.links_closed;
        }
        all
    }

    /// The target's own counters, if they were requested.
    fn counted(&self) -> Result<Option<Counted>> {
        let metrics = self.metrics.as_ref();
        metrics
            .map(|port| Counted::read(port.address()))
            .transpose()
    }

    fn sample(&self) -> Result<Sample> {
        Sample::take(self.counts(), self.pid)
    }

    fn compare(&self, before: &Sample, after: &Sample) -> Measured {
        after.since(before, self.options.mode, self.options.live.is_some())
    }

    /// Lifetime of circuits of the live mix at the rate of the last round, seconds.
    pub(super) fn circuit_life_s(&self) -> Option<f64> {
        self.report.load.circuit_life_s
    }

    /// Measurements of the last round so far.
    pub(super) fn measured(&self) -> Option<&Measured> {
        self.report.measured.as_ref()
    }

    /// Ends the worlds and the target, and completes the report.
    pub(super) fn end(mut self, outcome: Result<()>) -> Report {
        let outcome = outcome.map_err(|error| match self.running.as_mut().map(Running::check) {
            // The end of the target explains everything else.
            Some(Err(ended)) => ended.context(format!("{error:#}")),
            _ => error,
        });
        self.stage.set(Stage::Stop);
        for number in 0..self.worlds.len() {
            // The reason for an error now is already known.
            while let Some(world) = self.worlds.get(number).filter(|world| !world.ended) {
                match world.news.recv_timeout(self.options.patience) {
                    Ok(news) => drop(self.hear(number, news)),
                    Err(_) => break,
                }
            }
        }
        self.complete_measured();
        for world in self.worlds.drain(..) {
            if world.ended {
                let _ = world.join.join();
            }
        }
        self.report.complete = outcome.is_ok();
        self.report.why = outcome.err().map(|error| format!("{error:#}"));
        self.report
    }
}
