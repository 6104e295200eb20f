//! Jobs on threads. No job sees another, so their results do not depend on how many run at once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use weft_testnet::stop::Stop;

/// Interval at which progress is shown.
const LOOK: Duration = Duration::from_millis(200);

/// The outside of a job that runs: shows how far it is, and knows when it is to end early.
pub(crate) struct Meter<'a> {
    nanos: &'a AtomicU64,
    stop: &'a Stop,
    /// The run has failed otherwise.
    is_given_up: &'a AtomicBool,
}

impl Meter<'_> {
    /// The job has come so far.
    pub(crate) fn at(&self, since_begin: Duration) {
        let nanos = u64::try_from(since_begin.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.store(nanos, Ordering::Relaxed);
    }

    /// It is to end with what it has.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_requested() || self.is_given_up.load(Ordering::Relaxed)
    }
}

/// Progress of all jobs together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Jobs that are over.
    pub(crate) finished: usize,
    /// The time of all jobs.
    pub(crate) at: Duration,
    /// Sum of all jobs' durations.
    pub(crate) whole: Duration,
}

impl Clock {
    /// From 0 to 1.
    pub(crate) fn done(&self) -> f64 {
        self.at.as_secs_f64() / self.whole.as_secs_f64().max(1e-9)
    }
}

/// Jobs to run, and their settings.
pub(crate) struct Jobs<'a, J> {
    pub(crate) jobs: &'a [J],
    /// Of each.
    pub(crate) duration: Duration,
    pub(crate) threads: usize,
    pub(crate) stop: &'a Stop,
}

impl<J: Clone + Send + Sync> Jobs<'_, J> {
    /// Runs them. `look` is called on this thread, now and then and for each job that is over, in any order.
    ///
    /// # Errors
    ///
    /// As `look`: the jobs that run then end early.
    pub(crate) fn run<T: Send>(
        &self,
        work: impl Fn(&J, &Meter<'_>) -> Result<T> + Sync,
        mut look: impl FnMut(Clock, Option<(J, Result<T>)>) -> Result<()>,
    ) -> Result<()> {
        let (next, is_given_up) = (AtomicUsize::new(0), AtomicBool::new(false));
        let nanos: Vec<AtomicU64> = self.jobs.iter().map(|_| AtomicU64::new(0)).collect();
        let count = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        let mut clock = Clock {
            finished: 0,
            at: Duration::ZERO,
            whole: self.duration.saturating_mul(count),
        };
        let (to, from) = channel::<(J, Result<T>)>();
        thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, self.jobs.len().max(1)) {
                let (to, next, is_given_up, work) = (to.clone(), &next, &is_given_up, &work);
                let nanos = &nanos;
                scope.spawn(move || {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(job), Some(nanos)) = (self.jobs.get(place), nanos.get(place))
                        else {
                            return;
                        };
                        let meter = Meter {
                            nanos,
                            stop: self.stop,
                            is_given_up,
                        };
                        if meter.is_stopped() {
                            return;
                        }
                        // One that panics must not end the others.
                        let outcome = catch_unwind(AssertUnwindSafe(|| work(job, &meter)))
                            .unwrap_or_else(|panic| {
                                Err(anyhow!("it panicked: {}", words(&*panic)))
                            });
                        if to.send((job.clone(), outcome)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(to);
            loop {
                let finished = match from.recv_timeout(LOOK) {
                    Ok(finished) => Some(finished),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                };
                clock.finished += usize::from(finished.is_some());
                let at = nanos.iter().map(|nanos| nanos.load(Ordering::Relaxed));
                clock.at = at.map(Duration::from_nanos).sum();
                if let Err(error) = look(clock, finished) {
                    is_given_up.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        })
    }
}

/// Message of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_once_on_any_number_of_threads() {
        let (jobs, stop) = (Vec::from_iter(1..=20), Stop::default());
        for threads in [1, 3, 100] {
            let all = Jobs {
                jobs: &jobs,
                duration: Duration::from_secs(1),
                threads,
                stop: &stop,
            };
            let (mut seen, mut last) = (Vec::new(), None);
            let run = all.run(
                |job, meter| {
                    meter.at(Duration::from_secs(1));
                    Ok(*job)
                },
                |clock, finished| {
                    seen.extend(finished.map(|(job, _)| job));
                    last = Some(clock);
                    Ok(())
                },
            );
            run.expect("nothing fails");
            seen.sort();
            assert_eq!(seen, jobs);
            let last = last.expect("progress");
            assert_eq!((last.finished, last.at), (20, last.whole));
            assert!((last.done() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_panic_is_the_failure_of_its_job_alone() {
        let (jobs, stop) = ([1, 2, 3], Stop::default());
        let all = Jobs {
            jobs: &jobs,
            duration: Duration::from_secs(1),
            threads: 2,
            stop: &stop,
        };
        let mut failures = Vec::new();
        let run = all.run(
            |job, _| {
                assert_ne!(*job, 2, "the second");
                Ok(*job)
            },
            |_, finished| {
                let failure = finished.and_then(|(_, outcome)| outcome.err());
                failures.extend(failure.map(|failure| failure.to_string()));
                Ok(())
            },
        );
        run.expect("the others go on");
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("the second"), "{failures:?}");
    }

    #[test]
    fn a_look_that_fails_ends_the_jobs() {
        let (jobs, stop) = ([1, 2, 3], Stop::default());
        let all = Jobs {
            jobs: &jobs,
            duration: Duration::from_secs(1),
            threads: 1,
            stop: &stop,
        };
        let run = all.run(
            |job, meter| {
                while *job > 1 && !meter.is_stopped() {
                    thread::yield_now();
                }
                Ok(*job)
            },
            |_, finished| match finished {
                Some(_) => Err(anyhow!("the disk is full")),
                None => Ok(()),
            },
        );
        assert_eq!(run.expect_err("full").to_string(), "the disk is full");
    }
}
