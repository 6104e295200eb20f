//! Orders the worlds from stage to stage, and measures meanwhile.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use super::latency::Latencies;
use super::measuring::{Counts, Sample};
use super::mode::Mode;
use super::options::{CIRCUITS, LINKS, Options, RATE, Target, WINDOW, default_window, is_private};
use super::report::{
    Idle, Load, Measured, PAYLOAD_PER_CELL, Report, SCHEMA, Target as ReportTarget,
};
use super::start::{Program, Running};
use super::world::{Counters, News, Peer, Plan, SharedStage, Stage, World};
use super::{pin, start};
use crate::args::LASTS;
use crate::process::Usage;

/// How often the conductor looks at everything.
const BEAT: Duration = Duration::from_millis(50);

/// Memory that differs by no more has settled, in bytes.
const SETTLED: u64 = 64 * 1024;

/// What [`Progress::doing`] is while the load is on, before and while it is measured.
pub(crate) const WARMING_UP: &str = "warming up";
/// See [`WARMING_UP`].
pub(crate) const MEASURING: &str = "measuring";

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What is being done.
    pub doing: &'static str,
    /// How much of it is done, 0 to 1.
    pub fraction: f64,
    /// Cells a second (or circuits, or links) of late; 0 while setting up.
    pub per_second: f64,
}

/// Runs a measurement, reports how far it is through `progress`, and ends early when `stop` becomes
/// true. Whatever goes wrong once the target is known ends the run, not its report: that then has
/// `complete: false`, gives the reason, and keeps what was measured.
///
/// # Errors
///
/// The options contradict each other, or the target cannot be started.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    let mut conductor = Conductor::begin(options, stop, progress)?;
    let outcome = conductor.perform();
    Ok(conductor.end(outcome))
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

/// How many of everything there will be.
struct Sizes {
    /// Links of ours to the target.
    origins: usize,
    /// Links of the target's to us.
    hops: usize,
    circuits: usize,
    /// Of the generator.
    threads: usize,
    /// The target is a bare pipe.
    is_pipe: bool,
}

impl Sizes {
    /// Checks the options.
    fn of(options: &Options) -> Result<Sizes> {
        let (origins, hops) = sides(options)?;
        let circuits = match options.mode {
            Mode::Cells | Mode::IdleCircuits => options.circuits,
            Mode::Onionskins | Mode::Links | Mode::IdleLinks => 0,
        };
        if let Target::Relay(aim, _) = &options.target {
            ensure!(
                is_private(aim.address),
                "{} is a public address: this puts a heavy load on a relay, so use it on a relay \
                 of your own, on loopback or in a private network",
                aim.address
            );
        }
        let is_pipe = matches!(options.target, Target::Start(Program::Pipe(_)));
        ensure!(
            !is_pipe || matches!(options.mode, Mode::Cells),
            "a bare pipe knows cells only: use --mode cells"
        );
        // A pipe has one place to connect to, which belongs to one world.
        let mut threads = match is_pipe {
            true => 1,
            false => options.threads.max(1).min(origins),
        };
        if circuits > 0 {
            threads = threads.min(hops).min(circuits);
        }
        Ok(Sizes {
            origins,
            hops,
            circuits,
            threads,
            is_pipe,
        })
    }
}

/// Starts the program that is measured, or finds the one that runs.
fn start_target(
    options: &Options,
    next_hop: Option<SocketAddr>,
) -> Result<(Option<Running>, Peer, Option<u32>)> {
    // What is started now inherits these processors; then we take our own.
    pin::this_thread(&options.target_cpus)?;
    let running = match &options.target {
        Target::Start(program) => Some(Running::start(
            program,
            next_hop,
            options.patience,
            start::MIDDLE,
            |_| Ok(()),
        )?),
        Target::Relay(..) => None,
    };
    pin::this_thread(&options.generator_cpus)?;
    let (peer, pid) = match (&running, &options.target) {
        (Some(running), _) => (running.peer, Some(running.pid())),
        (None, Target::Relay(aim, pid)) => {
            if let Some(pid) = pid {
                pin::process(*pid, &options.target_cpus)?;
                Usage::of(*pid).with_context(|| format!("there is no process {pid}"))?;
            }
            (Peer::Relay(*aim), *pid)
        }
        (None, Target::Start(_)) => bail!("the target was not started"),
    };
    Ok((running, peer, pid))
}

/// A report without what is to be measured.
fn empty_report(
    options: &Options,
    sizes: &Sizes,
    peer: Peer,
    pid: Option<u32>,
    window: u64,
) -> Result<Report> {
    let program = match &options.target {
        Target::Start(program) => Some(program),
        Target::Relay(..) => None,
    };
    Ok(Report {
        schema: SCHEMA,
        started_at_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        target: ReportTarget {
            kind: program.map_or("attached", Program::kind).to_owned(),
            version: program.and_then(Program::version),
            threads: match program {
                Some(Program::Weft(_, threads)) => *threads,
                _ => None,
            },
            address: peer.address().to_string(),
            pid,
            cpus: options.target_cpus.clone(),
        },
        load: Load {
            mode: options.mode.name().to_owned(),
            direction: options.direction.name().to_owned(),
            circuits: sizes.circuits,
            origin_links: sizes.origins,
            next_hop_links: sizes.hops,
            window: usize::try_from(window)?,
            rate_cells_per_s: options.rate,
            warm_up_s: options.warm_up.as_secs_f64(),
            seconds: options.seconds.as_secs_f64(),
            payload_bytes_per_cell: PAYLOAD_PER_CELL,
            generator_threads: sizes.threads,
            generator_cpus: options.generator_cpus.clone(),
        },
        ..Report::default()
    })
}

struct Conductor<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    running: Option<Running>,
    pid: Option<u32>,
    stage: Arc<SharedStage>,
    worlds: Vec<Worker>,
    latencies: Latencies,
    report: Report,
    circuits: usize,
    /// Links or circuits that are there when idle memory is first looked at.
    half: usize,
}

impl<'a> Conductor<'a> {
    /// Checks the options, starts the target and the worlds.
    fn begin(
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
        crate::process::raise_file_limit();
        let (running, peer, pid) = start_target(options, next_hop)?;
        let window = match options.mode {
            Mode::Links | Mode::IdleLinks | Mode::IdleCircuits => 0,
            Mode::Cells | Mode::Onionskins => options
                .window
                .unwrap_or_else(|| default_window(options.mode, options.circuits)),
        };
        let mut conductor = Conductor {
            options,
            stop,
            progress,
            running,
            pid,
            stage: Arc::new(SharedStage::new()),
            worlds: Vec::new(),
            latencies: Latencies::new(),
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
                rate: options.rate.map(|rate| rate * circuits as f64 / all),
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
                let (latencies, outcome) = match world {
                    Ok(world) => world.run(),
                    Err(error) => (Latencies::new(), Err(error)),
                };
                // A conductor that has gone wants nothing any more.
                let _ = sender.send(News::Ended(Box::new(latencies), outcome));
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
    fn perform(&mut self) -> Result<()> {
        self.wait_until("making keys", |world| world.prepared)?;
        match self.options.mode {
            Mode::Cells | Mode::Onionskins | Mode::Links => {
                self.set_up()?;
                self.measure()
            }
            Mode::IdleLinks => self.measure_idle("links"),
            Mode::IdleCircuits => self.measure_idle("circuits"),
        }
    }

    fn set_up(&mut self) -> Result<()> {
        self.set_up_links()?;
        if self.circuits > 0 {
            let began = Instant::now();
            self.reach("building circuits", Stage::Build)?;
            self.report.setup.circuits_s = began.elapsed().as_secs_f64();
        }
        Ok(())
    }

    fn set_up_links(&mut self) -> Result<()> {
        let began = Instant::now();
        self.reach("opening links", Stage::Link)?;
        self.report.setup.links_s = began.elapsed().as_secs_f64();
        Ok(())
    }

    fn measure(&mut self) -> Result<()> {
        self.stage.set(Stage::Run);
        self.hold(WARMING_UP, self.options.warm_up, &mut |_| {})?;
        let before = self.sample()?;
        self.stage.set(Stage::Measure);
        let mut last = before.clone();
        let held = self.hold(MEASURING, self.options.seconds, &mut |conductor| {
            // What was there before the target went, if it goes.
            if let Ok(sample) = conductor.sample() {
                last = sample;
            }
        });
        self.stage.set(Stage::Drain);
        self.report.measured = Some(self.compare(&before, &last));
        held?;
        self.wait_until("waiting for the last cells", |world| {
            world.done >= Stage::Drain
        })
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
            News::Ended(latencies, outcome) => {
                world.ended = true;
                self.latencies.add(&latencies);
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
        }
        all
    }

    fn sample(&self) -> Result<Sample> {
        Sample::take(self.counts(), self.pid)
    }

    fn compare(&self, before: &Sample, after: &Sample) -> Measured {
        after.since(before, self.options.mode)
    }

    /// Ends the worlds and the target, and completes the report.
    fn end(mut self, outcome: Result<()>) -> Report {
        let outcome = outcome.map_err(|error| match self.running.as_mut().map(Running::check) {
            // The end of the target explains everything else.
            Some(Err(ended)) => ended.context(format!("{error:#}")),
            _ => error,
        });
        self.stage.set(Stage::Stop);
        for number in 0..self.worlds.len() {
            // What goes wrong now has a reason that is known already.
            while let Some(world) = self.worlds.get(number).filter(|world| !world.ended) {
                match world.news.recv_timeout(self.options.patience) {
                    Ok(news) => drop(self.hear(number, news)),
                    Err(_) => break,
                }
            }
        }
        let counts = self.counts();
        for world in self.worlds.drain(..) {
            if world.ended {
                let _ = world.join.join();
            }
        }
        if let Some(measured) = &mut self.report.measured {
            measured.latency = self.latencies.report();
            if let Some(cells) = &mut measured.cells {
                (cells.sent, cells.arrived) = (counts.sent, counts.upload + counts.download);
            }
        }
        self.report.complete = outcome.is_ok();
        self.report.why = outcome.err().map(|error| format!("{error:#}"));
        self.report
    }
}

/// How many links there are on each side.
fn sides(options: &Options) -> Result<(usize, usize)> {
    LINKS.check("links", options.links)?;
    CIRCUITS.check("circuits", options.circuits)?;
    LASTS.check("seconds", options.seconds)?;
    options
        .rate
        .map(|rate| RATE.check("rate", rate))
        .transpose()?;
    let window = options.window;
    window
        .map(|cells| WINDOW.check("window", cells))
        .transpose()?;
    match options.mode {
        Mode::Cells | Mode::IdleCircuits => {
            ensure!(
                options.links > 1,
                "circuits need at least two links: one to the target, one from it"
            );
            Ok((options.links.div_ceil(2), options.links / 2))
        }
        Mode::Onionskins | Mode::Links | Mode::IdleLinks => Ok((options.links, 0)),
    }
}
