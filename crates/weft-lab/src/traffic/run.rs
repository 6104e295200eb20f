//! The experiment itself: what the users need, and one repetition after another.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};
use weft_load::flows::{self, FlowSettings};
use weft_model::traffic::Record;
use weft_testnet::stop::Stop;

use super::options::Options;
use super::place::Place;
use super::results::Results;
use crate::experiment::{Progress, Session};

/// Threads of users on each host.
const THREADS: usize = 2;
/// Interval at which progress is shown, and nodes are checked.
const LOOK: Duration = Duration::from_millis(250);

/// Measures all repetitions, and keeps the results after each.
///
/// # Errors
///
/// The network does not start or is not to, or results cannot be kept. If it fails later, the results have the reason.
pub(super) fn traffic(options: &Options, session: &mut Session<'_>) -> Result<Results> {
    weft_testnet::process::raise_file_limit();
    let mut results = Results::new(options, session);
    let whole = options.duration.saturating_mul(options.repetitions);
    let start = options.way.start_takes();
    let mut clock = Clock {
        whole: start.saturating_add(whole),
        done: Duration::ZERO,
    };
    clock.show(
        session,
        &format!("starting {}", options.way),
        Duration::ZERO,
    );
    let stop = session.stop();
    let mut place = match Place::start(options, &stop) {
        Err(_) if stop.is_requested() => bail!(
            "stopped before anything was measured, while the network started: there are no results"
        ),
        started => started?,
    };
    clock.done = start;
    for repetition in 1..=options.repetitions {
        let (records, elapsed, failure) = once(options, &mut place, repetition, &clock, session)?;
        clock.done += options.duration;
        results.add(repetition, elapsed, records);
        results.failure = failure.map(|failure| format!("{failure:#}"));
        session.keep(&results)?;
        let is_over = repetition == options.repetitions && elapsed == options.duration;
        if results.failure.is_some() || session.stop().is_requested() && !is_over {
            return Ok(results);
        }
    }
    results.finished = true;
    Ok(results)
}

/// One repetition: its streams, how long it was, and what ended it if it was not over.
fn once(
    options: &Options,
    place: &mut Place,
    repetition: u32,
    clock: &Clock,
    session: &mut Session<'_>,
) -> Result<(Vec<Record>, Duration, Option<Error>)> {
    let sites = place.sites(options, repetition)?;
    let settings = FlowSettings {
        duration: options.duration,
        seed: options.seed.wrapping_add(u64::from(repetition - 1) << 32),
        threads: THREADS,
    };
    let step = match options.repetitions {
        1 => "measuring".to_owned(),
        all => format!("repetition {repetition} of {all}"),
    };
    let begun = Instant::now();
    // Requested with the session's own, or when a node has ended.
    let enough = Stop::default();
    let mut failure = None;
    let (asked, sites, over) = (session.stop(), &sites, &enough);
    let records = thread::scope(|scope| {
        let users = scope.spawn(move || flows::run_on(sites, settings, over));
        while !users.is_finished() {
            thread::sleep(LOOK.min(options.duration / 10));
            clock.show(session, &step, begun.elapsed());
            if failure.is_none() {
                failure = place.check().err();
            }
            if failure.is_some() || asked.is_requested() {
                enough
                    .flag()
                    .store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        users
            .join()
            .map_err(|_| anyhow!("a thread of users panicked"))?
    })?;
    let elapsed = begun.elapsed().min(options.duration);
    Ok((records, elapsed, failure))
}

/// Progress of the whole.
struct Clock {
    whole: Duration,
    done: Duration,
}

impl Clock {
    fn show(&self, session: &mut Session<'_>, step: &str, since: Duration) {
        let done = self.done.saturating_add(since).min(self.whole);
        let seconds = since.as_secs();
        session.progress(&Progress {
            done: done.as_secs_f64() / self.whole.as_secs_f64().max(1e-9),
            step: step.to_owned(),
            detail: match seconds {
                0 => String::new(),
                _ => format!("{seconds} s"),
            },
        });
    }
}
