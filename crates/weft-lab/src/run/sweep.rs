//! The jobs of a scenario on their testbed, as every experiment runs them that is one.

use std::num::NonZeroUsize;

use anyhow::Result;
use weft_testnet::programs::weft_program;

use super::job::{Job, Measured};
use super::shadow::{SimulationArgs, Simulations};
use super::source::{Inputs, Source};
use super::testbed::{Runner, Testbed};
use crate::experiment::{Progress, Session};
use crate::jobs::Jobs;

/// Jobs of a run, and its settings.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) source: Source,
    pub(crate) testbed: Testbed,
    /// In the order in which they begin.
    pub(crate) jobs: Vec<Job>,
    pub(crate) seed: u64,
    /// Jobs that run at once.
    pub(crate) threads: usize,
    pub(crate) simulations: SimulationArgs,
}

/// Part of an experiment that its jobs belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Its name; empty if it is the only part.
    pub(crate) name: &'a str,
    /// Parts before it.
    pub(crate) number: usize,
    /// Number of parts.
    pub(crate) of: usize,
}

impl Part<'_> {
    /// The only one.
    pub(crate) const ALL: Part<'static> = Part {
        name: "",
        number: 0,
        of: 1,
    };

    fn progress(self, own: Progress) -> Progress {
        Progress {
            done: (self.number as f64 + own.done) / self.of.max(1) as f64,
            step: match self.name {
                "" => own.step,
                name => format!("{name}: {}", own.step),
            },
            ..own
        }
    }
}

impl Sweep {
    /// Checks that this machine can run them; `threads` are those that the user wants.
    ///
    /// # Errors
    ///
    /// The scenario needs what the testbed or this machine does not have.
    pub(crate) fn new(
        source: Source,
        testbed: Testbed,
        jobs: Vec<Job>,
        seed: u64,
        threads: Option<NonZeroUsize>,
        simulations: &SimulationArgs,
    ) -> Result<Sweep> {
        simulations.check(testbed == Testbed::Shadow)?;
        let threads = testbed.threads(&source, jobs.len(), threads)?;
        Ok(Sweep {
            source,
            testbed,
            jobs,
            seed,
            threads,
            simulations: simulations.clone(),
        })
    }

    /// Runs them. `keep` makes of what a job measured what is kept of it; `note` gets that, in any order.
    ///
    /// # Errors
    ///
    /// Nothing can be run, or as `note`.
    pub(crate) fn run<T: Send>(
        &self,
        session: &mut Session<'_>,
        part: Part<'_>,
        keep: impl Fn(&Job, Measured) -> T + Sync,
        mut note: impl FnMut(&mut Session<'_>, Job, Result<T>) -> Result<()>,
    ) -> Result<()> {
        let stop = session.stop();
        let weft = weft_program(None)?;
        // The report names them.
        let _ = session.versions(Some(&weft));
        let about = (&self.source, self.seed, &*weft);
        let simulations = (self.testbed == Testbed::Shadow).then(|| {
            let place = (part.name, &self.simulations);
            Simulations::prepare(place, session, about, &self.jobs, self.threads)
        });
        let simulations = simulations.transpose()?;
        let runner = Runner {
            testbed: self.testbed,
            inputs: Inputs {
                source: &self.source,
                seed: self.seed,
                weft: &weft,
                stop: &stop,
            },
            simulations,
        };
        let jobs = Jobs {
            jobs: &self.jobs,
            duration: self.source.scenario.duration,
            threads: self.threads,
            stop: &stop,
        };
        jobs.run(
            |job, meter| Ok(keep(job, runner.run(job, meter)?)),
            |clock, finished| {
                if let Some((job, outcome)) = finished {
                    note(session, job, outcome)?;
                }
                let own = self.testbed.progress(&clock, self.jobs.len());
                session.progress(&part.progress(own));
                Ok(())
            },
        )
    }
}
