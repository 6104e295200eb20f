//! A run: one round at one rate, or as many as the search for a target's capacity takes.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::capacity::{Capacity, Search};
use super::conductor::{Conductor, Progress};
use super::options::{Options, RATE};
use super::report::{self, Measured, PAYLOAD_PER_CELL, Report, Step, Usage};

/// The rate that a search begins with if none is given: 5 MB/s.
const FIRST: f64 = 5e6 / PAYLOAD_PER_CELL as f64;
/// A thread that uses so much of a processor has no more to give: the kernel counts in ticks, and something else
/// runs there now and then.
const FULL: f64 = 0.93;
const TARGET: &str = "target";
const GENERATOR: &str = "generator";

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
    let Some(capacity) = &options.capacity else {
        let mut conductor = Conductor::begin(options, stop, progress)?;
        let outcome = conductor.perform();
        return Ok(conductor.end(outcome));
    };
    let mut found = Found {
        search: None,
        steps: Vec::new(),
        best: None,
    };
    let mut before = None;
    loop {
        let mut report = match (Conductor::begin(options, stop, progress), before) {
            (Ok(mut conductor), _) => {
                let outcome = found.rounds(capacity, &mut conductor, stop);
                let again = matches!(&outcome, Ok(Round::Broke));
                let report = conductor.end(outcome.map(|_| ()));
                if again {
                    before = Some(report);
                    continue;
                }
                report
            }
            // The results until the target could not be started again.
            (Err(error), Some(before)) => Report {
                complete: false,
                why: Some(format!("{error:#}")),
                ..before
            },
            (Err(error), None) => return Err(error),
        };
        if let Some((rate, life, measured)) = &found.best {
            report.load.rate_cells_per_s = Some(*rate);
            report.load.circuit_life_s = *life;
            report.measured = Some(measured.clone());
        }
        report.capacity = Some(found.report(capacity));
        return Ok(report);
    }
}

/// End of the rounds with one target.
enum Round {
    /// The search is over.
    Over,
    /// The target, or a link or a circuit of it, broke: the next rate needs a new target.
    Broke,
}

/// Results of the search so far.
struct Found {
    search: Option<Search>,
    steps: Vec<Step>,
    /// The highest rate that passed, how long circuits of the live mix lived at it, and what was measured.
    best: Option<(f64, Option<f64>, Measured)>,
}

impl Found {
    fn rounds(
        &mut self,
        capacity: &Capacity,
        conductor: &mut Conductor<'_>,
        stop: &AtomicBool,
    ) -> Result<Round> {
        conductor.set_up()?;
        let first = conductor.own_rate().unwrap_or(FIRST);
        let search = self
            .search
            .get_or_insert_with(|| Search::new(capacity, first, RATE.most()));
        while let Some(rate) = search.next() {
            let broke = match conductor.measure(Some(rate)) {
                Err(error) if stop.load(Ordering::Relaxed) => return Err(error),
                outcome => outcome.err().map(|error| format!("{error:#}")),
            };
            let is_broken = broke.is_some();
            let measured = conductor.measured();
            let step = judge(capacity, rate, measured, broke);
            search.note(rate, step.passed);
            if step.passed {
                let life = conductor.circuit_life_s();
                self.best = measured.map(|measured| (rate, life, measured.clone()));
            }
            self.steps.push(step);
            if is_broken {
                return Ok(match search.next() {
                    Some(_) => Round::Broke,
                    None => Round::Over,
                });
            }
        }
        Ok(Round::Over)
    }

    fn report(&self, capacity: &Capacity) -> report::Capacity {
        let failed = self.search.and_then(|search| search.failed());
        let last = self
            .steps
            .iter()
            .find(|step| Some(step.rate_cells_per_s) == failed);
        let cells = self
            .best
            .as_ref()
            .and_then(|(_, _, measured)| measured.cells.as_ref());
        report::Capacity {
            p99_bound_us: capacity.p99_ms * 1e3,
            resolution_percent: capacity.resolution,
            passed_cells_per_s: self.search.and_then(|search| search.passed()),
            failed_cells_per_s: failed,
            goodput_bits_per_s: cells.map(|cells| cells.goodput_bits_per_s),
            limit: last.and_then(|step| step.limit.clone()),
            steps: self.steps.clone(),
        }
    }
}

/// Judges a rate: whether the target sustained it, and if not, which side failed.
fn judge(
    capacity: &Capacity,
    rate: f64,
    measured: Option<&Measured>,
    broke: Option<String>,
) -> Step {
    let bound_us = capacity.p99_ms * 1e3;
    let latency = measured.and_then(|measured| measured.latency.as_ref());
    let late = measured.and_then(|measured| measured.generator_late.as_ref());
    let cells = measured.and_then(|measured| measured.cells.as_ref());
    let p99_us = latency.map(|latency| latency.p99_us);
    let late_p99_us = late.map(|late| late.p99_us);
    let busy = |usage: &Usage, seconds: f64| {
        let busy = usage
            .threads
            .iter()
            .map(|thread| (thread.user_s + thread.system_s) / seconds);
        busy.fold(0.0, f64::max)
    };
    let target_busy = measured.and_then(|all| Some(busy(all.usage.as_ref()?, all.seconds)));
    let generator_busy = measured.map(|all| busy(&all.generator, all.seconds));
    let why = broke.or_else(|| match (p99_us, cells) {
        (Some(p99), _) if p99 > bound_us => Some(format!("p99 above {} ms", capacity.p99_ms)),
        (Some(_), Some(cells)) if cells.sent != cells.arrived => Some(format!(
            "{} cells were lost",
            cells.sent.abs_diff(cells.arrived)
        )),
        (Some(_), Some(_)) => None,
        _ => Some("no cell arrived".to_owned()),
    });
    let is_full = |busy: Option<f64>| busy.is_some_and(|busy| busy >= FULL);
    // The generator was the limit if it noticed late that cells were due, or if it had no processor
    // time left while the target had.
    let generator = late_p99_us.is_some_and(|late| late > bound_us / 2.0)
        || (is_full(generator_busy) && !is_full(target_busy));
    Step {
        rate_cells_per_s: rate,
        passed: why.is_none(),
        limit: why
            .is_some()
            .then(|| if generator { GENERATOR } else { TARGET }.to_owned()),
        why,
        goodput_bits_per_s: cells.map(|cells| cells.goodput_bits_per_s),
        p99_us,
        generator_late_p99_us: late_p99_us,
        target_busy,
        generator_busy,
        cpu_s_per_gb: measured
            .and_then(|measured| measured.usage.as_ref())
            .and_then(|usage| usage.cpu_s_per_gb),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Cells, Latency, Thread};
    use super::*;

    const CAPACITY: Capacity = Capacity {
        p99_ms: 50.0,
        steps: 12,
        resolution: 5.0,
    };

    fn measured(p99_us: f64, late_us: f64, target: f64, generator: f64) -> Measured {
        let latency = |p99_us| {
            Some(Latency {
                samples: 100,
                p99_us,
                ..Latency::default()
            })
        };
        let usage = |busy: f64| Usage {
            threads: vec![
                Thread {
                    user_s: 0.01,
                    ..Thread::default()
                },
                Thread {
                    user_s: 10.0 * busy,
                    ..Thread::default()
                },
            ],
            ..Usage::default()
        };
        Measured {
            seconds: 10.0,
            cells: Some(Cells {
                sent: 100,
                arrived: 100,
                ..Cells::default()
            }),
            latency: latency(p99_us),
            generator_late: latency(late_us),
            usage: Some(usage(target)),
            generator: usage(generator),
            ..Measured::default()
        }
    }

    fn judged(measured: &Measured) -> (bool, Option<String>) {
        let step = judge(&CAPACITY, 1.0, Some(measured), None);
        (step.passed, step.limit)
    }

    #[test]
    fn a_rate_is_borne_if_latency_stays_under_the_bound_and_all_cells_arrive() {
        assert_eq!(judged(&measured(49_000.0, 300.0, 0.9, 0.5)), (true, None));
        let target = Some("target".to_owned());
        assert_eq!(
            judged(&measured(51_000.0, 300.0, 1.0, 0.5)),
            (false, target.clone())
        );
        let mut lossy = measured(1000.0, 300.0, 0.5, 0.5);
        if let Some(cells) = &mut lossy.cells {
            cells.arrived -= 1;
        }
        let step = judge(&CAPACITY, 1.0, Some(&lossy), None);
        assert_eq!(
            (step.passed, step.why.as_deref()),
            (false, Some("1 cells were lost"))
        );
        let step = judge(&CAPACITY, 1.0, None, Some("it died".to_owned()));
        assert_eq!((step.passed, step.limit), (false, target));
        assert!(!judge(&CAPACITY, 1.0, None, None).passed);
    }

    #[test]
    fn a_generator_that_is_late_or_full_before_the_target_is_named() {
        let generator = (false, Some("generator".to_owned()));
        assert_eq!(judged(&measured(90_000.0, 30_000.0, 0.99, 0.5)), generator);
        assert_eq!(judged(&measured(90_000.0, 900.0, 0.7, 0.99)), generator);
        // Both are full: the target could not have done more.
        let target = (false, Some("target".to_owned()));
        assert_eq!(judged(&measured(90_000.0, 900.0, 0.99, 0.99)), target);
    }
}
