//! Attacks on a relay of one's own, and what honest users still get meanwhile: `weft lab attack`.
//!
//! For each attack a target is started alone on loopback. Honest circuits carry cells through it at a
//! fixed rate ([`crate::bench`]), and an honest user asks again and again for what the attack may take
//! away: circuits, streams, names, answers at ports ([`Want`]). Both are measured without the attack, then
//! with it. What the target holds (memory, file descriptors) is read before, during and after.
//!
//! Each attack is bounded in rate and count, goes to loopback alone, and ends when it is stopped.
//!
//! | module | what |
//! |---|---|
//! | `target` | the relay that is attacked |
//! | `cast`, `peer`, `circuit`, `servers` | everybody else |
//! | `probes` | honest users who want something new |
//! | `scene` | what an attack sees; its rate |
//! | `streams`, `names`, `circuits`, `ports` | the attacks |
//! | [`results`], `figures` | what was measured |
//! | [`soak`] | all of it for hours, and what the target holds meanwhile |

mod cast;
mod circuit;
mod circuits;
mod figures;
mod names;
mod peer;
mod ports;
mod probes;
pub mod results;
mod scene;
mod servers;
pub mod soak;
mod streams;
mod target;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::resource::{Resource, getrlimit};
use weft_plot::Folder;

pub use cast::Cast;
pub use probes::{Fared, Want};
pub use target::{Held, Needs};

use self::probes::Prober;
use self::results::{Failed, Phase, Results, Round, SCHEMA, Setting};
use self::scene::{Counters, Scene};
use self::servers::{Behaviour, Server};
use self::target::{Target, complaints};
use crate::bench::report::PAYLOAD_PER_CELL;
use crate::bench::start::Program;
use crate::bench::{self, Direction, MEASURING, Mode, WARMING_UP, pin};
use crate::machine::{Cpus, Machine, Versions};
use crate::process::raise_file_limit;

/// For attacks that are in full swing at once.
const NO_LEAD: Duration = Duration::ZERO;
/// How often the target is looked at.
const SAMPLE: Duration = Duration::from_millis(50);
/// Honest circuits, and the links that they go over: half of them ours, half the target's.
const CIRCUITS: usize = 8;
const LINKS: usize = 4;
/// File descriptors that may be more after an attack than before: connections of the target's own.
pub const FILES_LEFT: u64 = 4;

/// One attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in one sentence without a full stop.
    pub what: &'static str,
    /// What bounds it besides `--mbits`.
    pub bound: &'static str,
    /// What it needs of its target.
    pub needs: Needs,
    /// What it may take from honest users.
    pub want: Want,
    /// The server at which its streams end.
    destination: Option<Behaviour>,
    /// How long it goes on before anything is measured.
    lead: Duration,
    run: fn(&Scene<'_>) -> Result<()>,
}

/// All attacks.
pub const ATTACKS: [Attack; 28] = [
    streams::BEGIN_END_BEGIN,
    streams::NEVER_SENDME,
    streams::DRAINED_STREAMS,
    circuits::DEAD_EXTENDS,
    ports::KEY_UPDATES_BEFORE,
    ports::KEY_UPDATES_AFTER,
    ports::TLS_FRAGMENTS,
    streams::SLOW_DNS_POST,
    names::SILENT_BEGIN_DIR,
    streams::DATA_FOR_NO_STREAM,
    circuits::MADE_UP_RELAYS,
    names::SILENT_DNS,
    streams::END_STREAMS,
    circuits::SNIPER,
    streams::SNIPER_SENDMES,
    circuits::ONIONSKIN_FLOOD,
    ports::HALF_OPEN_LINKS,
    ports::LORIS_OR,
    ports::LORIS_DIR,
    ports::LORIS_SOCKS,
    ports::LORIS_CONTROL,
    ports::LORIS_METRICS,
    names::RESOLVE_FLOOD,
    streams::STREAM_FLOOD,
    circuits::EXTEND_FLOOD,
    circuits::DESTROY_CHURN,
    circuits::PADDING_FLOOD,
    circuits::RENDEZVOUS_COOKIES,
];

/// The attack of this name.
///
/// # Errors
///
/// There is none.
pub fn find(name: &str) -> Result<Attack> {
    let mut attacks = ATTACKS.into_iter();
    attacks
        .find(|attack| attack.name == name)
        .with_context(|| format!("there is no attack {name:?}: `weft lab attack --list` names all"))
}

/// How attacks are measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is attacked.
    pub program: Program,
    /// How long is measured, without and with each attack.
    pub seconds: Duration,
    /// How long the honest load, and then the attack, is on before that.
    pub warm_up: Duration,
    /// How long the target may take afterwards to give back what it held.
    pub settle: Duration,
    /// Memory that it may hold more than before when it has settled, bytes: what an allocator keeps.
    pub memory_left: u64,
    /// How often each attack is measured.
    pub repetitions: u32,
    /// The most that attackers send, 10⁶ bits a second.
    pub mbits: f64,
    /// What honest circuits carry together, 10⁶ bits of payload a second.
    pub honest_mbits: f64,
    /// How long an attack goes on at most before it is measured, however long it needs to build up.
    pub max_lead: Duration,
    /// Connections that an attack holds at a time at most ([`max_connections`]).
    pub max_connections: usize,
    /// How long the target may take to start, or to answer while nobody attacks it.
    pub patience: Duration,
    /// Whether an attack goes on, for `patience` at most, until an honest request is granted: a test of
    /// whether that is possible, not of how often.
    pub until_granted: bool,
    /// Keys and contents are functions of this.
    pub seed: u64,
    /// Processors for the target; empty: all.
    pub target_cpus: Vec<usize>,
    /// Processors for the generator; empty: all.
    pub generator_cpus: Vec<usize>,
}

impl Options {
    /// Gives the target as many processors as it has threads and the generator the others. Where there
    /// is one alone, both use it.
    pub fn part_cpus(&mut self, threads: usize, cpus: &Cpus) {
        let all = cpus.cores.len();
        let targets = threads.clamp(1, all.saturating_sub(1).max(1));
        if all > 1 {
            let (target, generator) = cpus.cores.split_at(targets);
            self.target_cpus = target.to_vec();
            self.generator_cpus = generator.to_vec();
        }
    }
}

/// How far an experiment has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The attack that is measured now.
    pub attack: &'static str,
    /// Which round this is, from 1.
    pub round: usize,
    /// How many there are.
    pub rounds: usize,
}

/// Measures these attacks, each so often, in turns. After each round the folder has all results so far;
/// `stop` ends the experiment early, and keeps them.
///
/// # Errors
///
/// The options cannot be met, or results cannot be written. A round that fails is among the results.
pub fn run(
    options: &Options,
    attacks: &[Attack],
    folder: &Folder,
    started_at: &str,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Results> {
    ensure!(!attacks.is_empty(), "no attack is named");
    ensure!(options.repetitions > 0, "at least one repetition is needed");
    ensure!(
        options.mbits > 0.0 && options.mbits.is_finite(),
        "the rate of attacks must be more than 0"
    );
    ensure!(!options.seconds.is_zero(), "nothing is measured in 0 s");
    raise_file_limit();
    let program = match &options.program {
        Program::Weft(path, _) => Some(path.as_path()),
        _ => None,
    };
    let mut results = Results {
        schema: SCHEMA,
        started_at: started_at.to_owned(),
        machine: Machine::here(&Cpus::here(), None),
        versions: Versions::here(
            program.unwrap_or(std::path::Path::new("/nonexistent")),
            std::path::Path::new("."),
            false,
        ),
        setting: Setting {
            target: options.program.kind().to_owned(),
            threads: match &options.program {
                Program::Weft(_, threads) => *threads,
                _ => None,
            },
            seconds: options.seconds.as_secs_f64(),
            warm_up_s: options.warm_up.as_secs_f64(),
            settle_s: options.settle.as_secs_f64(),
            repetitions: options.repetitions,
            mbits: options.mbits,
            honest_mbits: options.honest_mbits,
            target_cpus: options.target_cpus.clone(),
            generator_cpus: options.generator_cpus.clone(),
        },
        attacks: attacks
            .iter()
            .map(|attack| attack.name.to_owned())
            .collect(),
        finished: false,
        rounds: Vec::new(),
        failed: Vec::new(),
        summaries: Vec::new(),
    };
    let cast = Cast::new(options.seed)?;
    let rounds = attacks.len() * options.repetitions as usize;
    let repetitions = 1..=options.repetitions;
    let order = repetitions.flat_map(|repetition| attacks.iter().map(move |one| (repetition, one)));
    for (number, (repetition, attack)) in order.enumerate() {
        progress(Progress {
            attack: attack.name,
            round: number + 1,
            rounds,
        });
        let outcome = round(options, attack, repetition, &cast, stop);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match outcome {
            Ok(round) => results.rounds.push(round),
            Err(error) => results.failed.push(Failed {
                attack: attack.name.to_owned(),
                repetition,
                why: format!("{error:#}"),
            }),
        }
        results.finished = results.rounds.len() == rounds;
        results.sum_up();
        let json = serde_json::to_string_pretty(&results)? + "\n";
        folder.write("results.json", &json)?;
        folder.write("results.md", &results.markdown())?;
    }
    if !results.summaries.is_empty() {
        figures::draw(&results, folder)?;
    }
    Ok(results)
}

/// Measures one attack once: a fresh target without it, then with it, then afterwards.
///
/// # Errors
///
/// The target cannot be started, or cannot be used while nobody attacks it.
pub fn round(
    options: &Options,
    attack: &Attack,
    repetition: u32,
    cast: &Cast,
    stop: &AtomicBool,
) -> Result<Round> {
    pin::this_thread(&options.target_cpus)?;
    let target = Target::start(
        &options.program,
        attack.needs,
        &options.target_cpus,
        options.patience,
    );
    pin::this_thread(&options.generator_cpus)?;
    let mut target = target?;
    let mut prober = Prober::new(
        attack.want,
        target.aim,
        target.ports,
        cast,
        options.patience,
    )
    .with_context(|| format!("{}: an honest user before the attack", attack.name))?;
    let counters = Counters::default();
    let destination = attack.destination.map(Server::start).transpose()?;
    let mut seed = options.seed.wrapping_add(u64::from(repetition) << 20);
    let (without, _) = measure(options, &target, &mut prober, seed, stop, NO_LEAD, None)?;
    if let Some(why) = &without.failure
        && !stop.load(Ordering::Relaxed)
    {
        target.check()?;
        bail!(
            "{}: honest circuits failed before the attack: {why}",
            attack.name
        );
    }
    // Its links to the honest load are closed by then.
    thread::sleep(SAMPLE);
    let before = target.held()?;
    let logged = target.log().len();
    seed = seed.wrapping_add(1 << 10);
    let scene = || Scene {
        aim: target.aim,
        ports: target.ports,
        cast,
        counters: &counters,
        destination: destination.as_ref(),
        max_connections: options.max_connections,
        rate: options.mbits * 1e6 / 8.0,
        tokens: Cell::new((0.0, Instant::now())),
        seed: Cell::new(seed),
        stop,
    };
    let run = || {
        let scene = scene();
        if let Err(error) = (attack.run)(&scene) {
            scene.set_back(&error);
        }
    };
    let began = Instant::now();
    let (with, mut peak) = measure(
        options,
        &target,
        &mut prober,
        seed,
        stop,
        attack.lead.min(options.max_lead),
        Some((&run, &counters)),
    )?;
    let attack_s = began.elapsed().as_secs_f64();
    let failure = target.check().err().map(|error| format!("{error:#}"));
    let mut after = before;
    let ended = Instant::now();
    let mut settled_s = 0.0;
    if failure.is_none() {
        loop {
            after = target.held()?;
            settled_s = ended.elapsed().as_secs_f64();
            peak = peak.max(after);
            let has_settled = after.files <= before.files + FILES_LEFT
                && after.rss_bytes <= before.rss_bytes + options.memory_left;
            if has_settled || ended.elapsed() >= options.settle || stop.load(Ordering::Relaxed) {
                break;
            }
            nudge(&target, cast);
            thread::sleep(SAMPLE);
        }
    }
    drop(destination);
    let first_setback = counters.first_setback.lock();
    let first_setback = first_setback
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    Ok(Round {
        attack: attack.name.to_owned(),
        repetition,
        without,
        with,
        before,
        peak,
        after,
        settled_s,
        attack_s,
        attack_bytes: counters.bytes.load(Ordering::Relaxed),
        deeds: counters.deeds.load(Ordering::Relaxed),
        setbacks: counters.setbacks.load(Ordering::Relaxed),
        first_setback,
        complaints: complaints(target.log().get(logged..).unwrap_or_default()),
        failure,
    })
}

/// Opens a few links and closes them: allocators give pages back when they are used again.
fn nudge(target: &Target, cast: &Cast) {
    for seed in 0..4 {
        // A target that still refuses has not settled.
        let opened = peer::connect(cast::HONEST, target.aim.address, None)
            .and_then(|socket| peer::Peer::open(socket, &cast.client, seed));
        if let Ok(peer) = opened {
            peer.close();
        }
    }
}

/// Connections that this process may hold for an attack: every one takes a descriptor here, and perhaps
/// another at a server of ours.
pub fn max_connections() -> usize {
    raise_file_limit();
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(soft / 2)
        .unwrap_or(usize::MAX)
        .saturating_sub(200)
}

/// Puts the honest load on the target and measures it, beside an attack if there is one.
fn measure(
    options: &Options,
    target: &Target,
    prober: &mut Prober<'_>,
    seed: u64,
    stop: &AtomicBool,
    lead: Duration,
    attack: Option<(&(dyn Fn() + Sync), &Counters)>,
) -> Result<(Phase, Held)> {
    let load = bench::Options {
        target: bench::Target::Relay(target.aim, Some(target.pid())),
        mode: Mode::Cells,
        direction: Direction::Download,
        circuits: CIRCUITS,
        links: LINKS,
        window: None,
        rate: Some(options.honest_mbits * 1e6 / 8.0 / PAYLOAD_PER_CELL as f64),
        warm_up: options.warm_up + lead,
        seconds: options.seconds,
        threads: 1,
        target_cpus: Vec::new(),
        generator_cpus: Vec::new(),
        patience: options.patience,
        own_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        seed,
    };
    let (loaded, measuring, over) = (
        AtomicBool::new(false),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let peak = Mutex::new(target.held()?);
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
    };
    thread::scope(|scope| {
        let attacker = attack.map(|(run, _)| {
            scope.spawn(|| {
                wait_for(&loaded);
                // It ends at once if it is over already.
                run();
            })
        });
        let asking = scope.spawn(|| {
            wait_for(&measuring);
            let longer = match options.until_granted {
                true => options.patience,
                false => Duration::ZERO,
            };
            prober.run(&over, longer)
        });
        let watching = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(held) = target.held() {
                    let mut peak = peak.lock().unwrap_or_else(PoisonError::into_inner);
                    *peak = peak.max(held);
                }
                thread::sleep(SAMPLE);
            }
        });
        let report = bench::run(&load, stop, &mut |progress| {
            if progress.doing == WARMING_UP || progress.doing == MEASURING {
                loaded.store(true, Ordering::Relaxed);
            }
            if progress.doing == MEASURING {
                measuring.store(true, Ordering::Relaxed);
            }
        });
        over.store(true, Ordering::Relaxed);
        if let Some((_, counters)) = attack {
            // On a busy machine it may not have begun yet.
            let deadline = Instant::now() + options.patience;
            while counters.deeds.load(Ordering::Relaxed) == 0
                && report.is_ok()
                && !stop.load(Ordering::Relaxed)
                && Instant::now() < deadline
            {
                thread::sleep(SAMPLE);
            }
        }
        let fared = asking.join().map_err(|_| anyhow!("a prober panicked"))?;
        if let Some((_, counters)) = attack {
            counters.over.store(true, Ordering::Relaxed);
        }
        watching.join().map_err(|_| anyhow!("a watcher panicked"))?;
        if let Some(attacker) = attacker {
            attacker
                .join()
                .map_err(|_| anyhow!("an attacker panicked"))?;
        }
        let peak = *peak.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((Phase::of(report?, fared, options.seconds), peak))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_are_found() {
        for (number, attack) in ATTACKS.iter().enumerate() {
            assert_eq!(find(attack.name).expect("an attack").what, attack.what);
            let later = ATTACKS.iter().skip(number + 1);
            assert!(later.clone().all(|other| other.name != attack.name));
        }
        assert!(find("nothing").is_err());
    }

    #[test]
    fn the_generator_has_the_processors_that_the_target_has_not() {
        for (cores, threads, target, generator) in [
            (1, 1, vec![], vec![]),
            (2, 1, vec![0], vec![1]),
            (2, 4, vec![0], vec![1]),
            (4, 2, vec![0, 1], vec![2, 3]),
        ] {
            let mut options = Options {
                program: Program::Tor(None),
                seconds: Duration::ZERO,
                warm_up: Duration::ZERO,
                settle: Duration::ZERO,
                memory_left: 0,
                repetitions: 1,
                mbits: 1.0,
                honest_mbits: 1.0,
                max_lead: Duration::ZERO,
                max_connections: 1,
                patience: Duration::ZERO,
                until_granted: false,
                seed: 0,
                target_cpus: Vec::new(),
                generator_cpus: Vec::new(),
            };
            let cores = (0..cores).collect();
            options.part_cpus(threads, &Cpus { cores });
            assert_eq!(
                (options.target_cpus, options.generator_cpus),
                (target, generator)
            );
        }
    }
}
