//! One attack, once: a fresh target without it, then with it, then afterwards.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::cast::{self, Cast};
use super::definition::{Attack, NO_LEAD};
use super::options::Options;
use super::peer;
use super::probes::Prober;
use super::results::{FILES_LEFT, Phase, Round};
use super::scene::{Counters, Scene};
use super::servers::Server;
use super::target::honest_load;
use super::target::{Held, Target, complaints};
use crate::relay::{self, MEASURING, WARMING_UP, pin};

/// Interval at which the target is sampled.
const SAMPLE: Duration = Duration::from_millis(50);
/// Honest circuits, and the links that they go over: half of them ours, half the target's.
const CIRCUITS: usize = 8;
const LINKS: usize = 4;

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
    let run = || scene().play(attack.run);
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
    let (after, settled_s) = match &failure {
        None => settle(options, &target, cast, before, &mut peak, stop)?,
        Some(_) => (before, 0.0),
    };
    drop(destination);
    let noted = |of: &Mutex<Option<String>>| {
        let noted = of.lock().unwrap_or_else(PoisonError::into_inner);
        noted.clone()
    };
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
        first_setback: noted(&counters.first_setback),
        breach: noted(&counters.breach),
        complaints: complaints(target.log().get(logged..).unwrap_or_default()),
        failure,
    })
}

/// Waits until the target holds no more than before the attack, or time is up. Returns what it then holds,
/// and after how many seconds.
fn settle(
    options: &Options,
    target: &Target,
    cast: &Cast,
    before: Held,
    peak: &mut Held,
    stop: &AtomicBool,
) -> Result<(Held, f64)> {
    let ended = Instant::now();
    loop {
        let after = target.held()?;
        let seconds = ended.elapsed().as_secs_f64();
        *peak = peak.max(after);
        let has_settled = after.files <= before.files + FILES_LEFT
            && after.rss_bytes <= before.rss_bytes + options.memory_left;
        if has_settled || ended.elapsed() >= options.settle || stop.load(Ordering::Relaxed) {
            return Ok((after, seconds));
        }
        nudge(target, cast);
        thread::sleep(SAMPLE);
    }
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
    let load = relay::Options {
        circuits: CIRCUITS,
        links: LINKS,
        warm_up: options.warm_up + lead,
        seconds: options.seconds,
        patience: options.patience,
        seed,
        ..honest_load(target.aim, target.pid(), options.honest_mbits)
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
        let report = relay::run(&load, stop, &mut |progress| {
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
