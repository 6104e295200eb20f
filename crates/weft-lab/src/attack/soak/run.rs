//! The soak itself: tides, attackers, honest users, and looks at the target.

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use weft_testnet::metrics_port;
use weft_testnet::process::{Usage, raise_file_limit};

use super::options::Options;
use super::results::{Sample, Setting, Soak, Tide};
use super::tally::Tally;
use crate::attack::cast::Cast;
use crate::attack::catalogue::ATTACKS;
use crate::attack::probes::{Prober, Want};
use crate::attack::scene::{Counters, Scene};
use crate::attack::servers::Server;
use crate::attack::target::{Needs, Ports, Target, complaints, honest_load};
use crate::experiment::{Progress, Session};
use crate::relay::aim::Aim;
use crate::relay::{self, Direction};

/// Duration of one attack, in seconds.
const ATTACK_S: std::ops::Range<u64> = 3..30;
/// Time that honest users keep their circuits, in seconds.
const VISIT_S: std::ops::Range<u64> = 5..40;
/// Circuits of an honest visit.
const CIRCUITS: std::ops::Range<usize> = 1..12;
/// Connections that an attacker holds at a time at most: several attack at once, on one machine.
const CONNECTIONS: usize = 1000;
/// Interval at which the end of something is checked.
const BEAT: Duration = Duration::from_millis(50);

/// Requests of honest users besides circuits that carry cells. Only authorities open a DirPort.
const WANTS: [Want; 7] = [
    Want::Circuit,
    Want::Stream,
    Want::Name,
    Want::Directory,
    Want::Socks,
    Want::Control,
    Want::Metrics,
];

/// State shared by all threads.
struct Shared<'a> {
    options: &'a Options,
    cast: &'a Cast,
    /// Set by SIGINT and SIGTERM.
    stop: &'a AtomicBool,
    /// The flood is over: everybody leaves.
    ebb: AtomicBool,
    /// All is over.
    end: AtomicBool,
    tally: Tally,
}

impl Shared<'_> {
    fn is_ebb(&self) -> bool {
        self.ebb.load(Ordering::Relaxed) || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Waits while everybody is gone. False: all is over.
    fn wait_for_flood(&self) -> bool {
        while self.is_ebb() && !self.is_over() {
            thread::sleep(BEAT);
        }
        !self.is_over()
    }

    /// Waits so long, or until the flood is over.
    fn stay(&self, length: Duration) {
        let until = Instant::now() + length;
        while !self.is_ebb() && Instant::now() < until {
            thread::sleep(BEAT);
        }
    }

    fn note_broken(&self, why: String) {
        self.tally.broken.fetch_add(1, Ordering::Relaxed);
        let first = self.tally.first_broken.lock();
        let mut first = first.unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(why);
    }
}

/// Soaks a target, and keeps results and plot at the end of each cycle.
///
/// # Errors
///
/// The target does not start, or ends; results cannot be written.
pub(super) fn soak(options: &Options, session: &mut Session<'_>) -> Result<Soak> {
    raise_file_limit();
    let stop = session.stop();
    let cast = Cast::new(options.seed)?;
    let needs = Needs {
        socks: true,
        control: true,
        metrics: true,
        little_memory: true,
        tunnels: true,
        microdescs: true,
        ..Needs::EXIT
    };
    let mut target = Target::start(&options.program, needs, &[], options.patience)?;
    let mut soak = Soak::new(
        session.started_at(),
        session.machine(),
        session.versions(options.program.weft()),
        Setting::of(options),
    );
    let shared = Shared {
        options,
        cast: &cast,
        stop: stop.flag(),
        ebb: AtomicBool::new(false),
        end: AtomicBool::new(false),
        tally: Tally::default(),
    };
    let (aim, ports) = (target.aim, target.ports);
    let pid = target.pid();
    let outcome = thread::scope(|scope| {
        let mut everybody = Vec::new();
        let shared = &shared;
        for number in 0..options.attackers {
            let seed = options.seed.wrapping_add(1000 + number as u64);
            everybody.push(scope.spawn(move || attacker(shared, number, aim, ports, seed)));
        }
        let seed = options.seed.wrapping_add(10);
        everybody.push(scope.spawn(move || visitors(shared, aim, pid, seed)));
        let seed = options.seed.wrapping_add(11);
        everybody.push(scope.spawn(move || probers(shared, aim, ports, seed)));
        let outcome = watch(shared, &mut target, &mut soak, session);
        shared.end.store(true, Ordering::Relaxed);
        for one in everybody {
            one.join()
                .map_err(|_| anyhow!("a part of the soak panicked (a bug of the soak)"))?;
        }
        outcome
    });
    if target.check().is_ok() {
        soak.complaints = complaints(&target.log());
    }
    soak.note(&shared.tally);
    soak.judge();
    session.keep_and_draw(&soak)?;
    outcome?;
    Ok(soak)
}

/// Lets tides change and looks at the target, until the end.
fn watch(
    shared: &Shared<'_>,
    target: &mut Target,
    soak: &mut Soak,
    session: &mut Session<'_>,
) -> Result<()> {
    let options = shared.options;
    let begin = Instant::now();
    let cycles = (options.length.as_secs_f64() / options.cycle.as_secs_f64()).floor();
    let length = options.cycle.mul_f64(cycles.max(1.0));
    let mut next = begin;
    // The sample before anybody connects: once the target answers, it has opened everything that a
    // start opens.
    look(target, Duration::ZERO, Tide::Before, options.patience)?;
    soak.samples.push(look(
        target,
        Duration::ZERO,
        Tide::Before,
        options.patience,
    )?);
    while begin.elapsed() < length && !shared.stop.load(Ordering::Relaxed) {
        let elapsed = begin.elapsed();
        let in_cycle = elapsed.as_secs_f64() % options.cycle.as_secs_f64();
        let is_ebb = in_cycle >= (options.cycle - options.ebb).as_secs_f64();
        let was_ebb = shared.ebb.swap(is_ebb, Ordering::Relaxed);
        if was_ebb && !is_ebb {
            soak.end_cycle();
            soak.note(&shared.tally);
            soak.judge();
            session.keep_and_draw(soak)?;
        }
        target.check()?;
        let tide = match is_ebb {
            true => Tide::Ebb,
            false => Tide::Flood,
        };
        let sample = look(target, elapsed, tide, options.patience)?;
        soak.samples.push(sample);
        session.progress(&progress(elapsed, length, &sample));
        next += options.every;
        while Instant::now() < next && !shared.stop.load(Ordering::Relaxed) {
            thread::sleep(next.saturating_duration_since(Instant::now()).min(BEAT));
        }
    }
    if !shared.stop.load(Ordering::Relaxed) {
        soak.end_cycle();
        soak.finished = true;
    }
    Ok(())
}

/// Progress of the soak, with the target's resources.
fn progress(elapsed: Duration, length: Duration, sample: &Sample) -> Progress {
    Progress {
        done: elapsed.as_secs_f64() / length.as_secs_f64(),
        step: format!(
            "minute {} of {:.0}",
            elapsed.as_secs() / 60,
            length.as_secs_f64() / 60.0
        ),
        detail: format!(
            "{:.1} MB, {} files, {} circuit halves",
            sample.rss_bytes as f64 * 1e-6,
            sample.files,
            sample.halves
        ),
    }
}

/// Looks at the target.
fn look(target: &Target, at: Duration, tide: Tide, patience: Duration) -> Result<Sample> {
    // Before the MetricsPort is asked, which costs the target a descriptor.
    let held = target.held()?;
    let address = target
        .ports
        .metrics
        .context("the target has no MetricsPort")?;
    // Attackers connect to it, too, and a slow request gives way to newcomers.
    let deadline = Instant::now() + patience;
    let metrics = loop {
        match metrics_port::read(address) {
            Ok(metrics) => break metrics,
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context("reading the MetricsPort"));
            }
            Err(_) => thread::sleep(BEAT),
        }
    };
    let sum = |name: &str| metrics_port::sum(&metrics, name) as u64;
    Ok(Sample {
        at_s: at.as_secs_f64(),
        tide,
        rss_bytes: held.rss_bytes,
        files: held.files,
        threads: Usage::of(target.pid())?.threads.len() as u64,
        cpu_s: held.cpu_s,
        ledger_bytes: sum("weft_thread_queued_bytes") + sum("weft_thread_buffered_bytes"),
        links: sum("weft_thread_links"),
        halves: sum("weft_thread_circuit_halves"),
        log_bytes: target.log_bytes(),
    })
}

/// One attack after the other.
fn attacker(shared: &Shared<'_>, number: usize, aim: Aim, ports: Ports, seed: u64) {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let options = shared.options;
    while shared.wait_for_flood() {
        let attack = ATTACKS
            .get(rng.random_range(0..ATTACKS.len()))
            .unwrap_or(&ATTACKS[0]);
        let length = Duration::from_secs(rng.random_range(ATTACK_S));
        let server = match attack.destination.map(Server::start).transpose() {
            Ok(server) => server,
            Err(error) => {
                // Ours, not the target's: no descriptors or ports for a moment.
                shared.note_broken(format!("an attacker's server: {error:#}"));
                shared.stay(Duration::from_secs(1));
                continue;
            }
        };
        let counters = Counters::default();
        let scene_seed = seed
            .wrapping_mul(31)
            .wrapping_add(rng.random::<u32>().into());
        let run = || {
            let scene = Scene {
                aim,
                ports,
                cast: shared.cast,
                counters: &counters,
                destination: server.as_ref(),
                max_connections: CONNECTIONS,
                rate: options.mbits * 1e6 / 8.0 / options.attackers as f64,
                tokens: Cell::new((0.0, Instant::now())),
                seed: Cell::new(scene_seed),
                stop: shared.stop,
            };
            scene.play(attack.run);
        };
        let panicked = thread::scope(|scope| {
            let doing = scope.spawn(run);
            let until = Instant::now() + length;
            while !doing.is_finished() && !shared.is_ebb() && Instant::now() < until {
                thread::sleep(BEAT);
            }
            counters.over.store(true, Ordering::Relaxed);
            doing.join().is_err()
        });
        if panicked {
            shared.note_broken(format!("attacker {number} panicked in {}", attack.name));
        }
        let tally = &shared.tally;
        tally.attacks.fetch_add(1, Ordering::Relaxed);
        for (sum, of) in [
            (&tally.deeds, &counters.deeds),
            (&tally.setbacks, &counters.setbacks),
        ] {
            sum.fetch_add(of.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Honest users whose circuits carry cells, and who leave and come again.
fn visitors(shared: &Shared<'_>, aim: Aim, pid: u32, seed: u64) {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let options = shared.options;
    while shared.wait_for_flood() {
        let circuits = rng.random_range(CIRCUITS);
        let direction = match rng.random_range(0..3) {
            0 => Direction::Upload,
            1 => Direction::Download,
            _ => Direction::Both,
        };
        let visit = relay::Options {
            direction,
            circuits,
            links: 2 * rng.random_range(1..=circuits.min(4)),
            seconds: Duration::from_secs(rng.random_range(VISIT_S)),
            patience: options.patience,
            seed: rng.random(),
            ..honest_load(aim, pid, options.honest_mbits)
        };
        let leave = AtomicBool::new(false);
        let report = thread::scope(|scope| {
            let visiting = scope.spawn(|| relay::run(&visit, &leave, &mut |_| {}));
            while !visiting.is_finished() && !shared.is_ebb() {
                thread::sleep(BEAT);
            }
            leave.store(true, Ordering::Relaxed);
            visiting.join()
        });
        shared.tally.visits.fetch_add(1, Ordering::Relaxed);
        if shared.is_ebb() {
            // The ebb ended the visit: what it had not finished is no failure.
            continue;
        }
        match report {
            Ok(Ok(report)) => {
                if let Some(why) = report.why.filter(|_| !report.complete) {
                    shared.note_broken(why);
                }
            }
            Ok(Err(error)) => shared.note_broken(format!("{error:#}")),
            Err(_) => shared.note_broken("a visitor panicked".to_owned()),
        }
    }
}

/// Honest users who want something new.
fn probers(shared: &Shared<'_>, aim: Aim, ports: Ports, seed: u64) {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let options = shared.options;
    while shared.wait_for_flood() {
        let want = WANTS
            .get(rng.random_range(0..WANTS.len()))
            .copied()
            .unwrap_or(Want::Circuit);
        let mut prober = match Prober::new(want, aim, ports, shared.cast, options.patience) {
            Ok(prober) => prober,
            Err(error) => {
                shared.note_broken(format!("{}: {error:#}", want.words()));
                shared.stay(Duration::from_secs(1));
                continue;
            }
        };
        let over = AtomicBool::new(false);
        let length = Duration::from_secs(rng.random_range(VISIT_S));
        let fared = thread::scope(|scope| {
            let asking = scope.spawn(|| prober.run(&over, Duration::ZERO));
            shared.stay(length);
            over.store(true, Ordering::Relaxed);
            asking.join()
        });
        let Ok(fared) = fared else {
            shared.note_broken("a prober panicked".to_owned());
            continue;
        };
        let tally = &shared.tally;
        tally.asked.fetch_add(fared.asked, Ordering::Relaxed);
        tally.granted.fetch_add(fared.granted, Ordering::Relaxed);
        tally
            .closed
            .fetch_add(fared.circuits_closed, Ordering::Relaxed);
        if let Some(why) = fared.first_failure.filter(|_| fared.circuits_closed > 0) {
            shared.note_broken(format!("{}: {why}", want.words()));
        }
    }
}
