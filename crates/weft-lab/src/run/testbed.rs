//! Testbeds of a scenario, for every experiment that is one.

use std::num::NonZeroUsize;
use std::thread;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::job::{Job, Measured};
use super::shadow::Simulations;
use super::source::{Inputs, Source};
use super::{memory, netns, shadow, virtual_time};
use crate::experiment::Progress;
use crate::jobs::{Clock, Meter};

/// Testbed of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Testbed {
    /// Hosts, links, TCP and the clock are models in this process.
    Virtual,
    /// Hosts are network namespaces with processes in them, TCP is the kernel's.
    Netns,
    /// Processes run in the simulator Shadow, which has hosts, lines, TCP and the clock.
    Shadow,
}

impl Testbed {
    /// As results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Testbed::Virtual => "virtual",
            Testbed::Netns => "netns",
            Testbed::Shadow => "shadow",
        }
    }

    /// Number of these jobs that run at once, if the user wants `wanted`.
    ///
    /// # Errors
    ///
    /// The scenario needs what this testbed or this machine does not have.
    pub(crate) fn threads(
        self,
        source: &Source,
        jobs: usize,
        wanted: Option<NonZeroUsize>,
    ) -> Result<usize> {
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        match self {
            Testbed::Virtual => {
                let threads = wanted.map_or_else(cores, NonZeroUsize::get);
                let estimate = source.scenario.estimate(&source.files).bytes;
                memory::check(&source.name, estimate, threads.min(jobs))?;
                Ok(threads)
            }
            Testbed::Netns => {
                netns::check(source)?;
                // Two would measure each other.
                Ok(1)
            }
            Testbed::Shadow => {
                shadow::check(source)?;
                Ok(wanted.map_or_else(cores, NonZeroUsize::get))
            }
        }
    }

    /// Progress of `jobs` jobs.
    pub(crate) fn progress(self, clock: &Clock, jobs: usize) -> Progress {
        let (doing, of) = match self {
            Testbed::Virtual => ("simulating", " of virtual time"),
            Testbed::Shadow => ("simulating", " of simulated time"),
            Testbed::Netns => ("measuring", ""),
        };
        Progress {
            done: clock.done(),
            step: match jobs {
                1 => doing.to_owned(),
                _ => format!("{} of {jobs} jobs done", clock.finished),
            },
            detail: format!(
                "{:.0} of {:.0} s{of}",
                clock.at.as_secs_f64(),
                clock.whole.as_secs_f64()
            ),
        }
    }
}

/// Environment of jobs.
pub(crate) struct Runner<'a> {
    pub(crate) testbed: Testbed,
    pub(crate) inputs: Inputs<'a>,
    /// Of [`Testbed::Shadow`].
    pub(crate) simulations: Option<Simulations<'a>>,
}

impl Runner<'_> {
    /// Runs a job to its end, or until Ctrl-C.
    ///
    /// # Errors
    ///
    /// The scenario is wrong in a way that shows only now, or its network does not run.
    pub(crate) fn run(&self, job: &Job, meter: &Meter<'_>) -> Result<Measured> {
        match self.testbed {
            Testbed::Virtual => virtual_time::run(self.inputs.source, job, self.inputs.seed, meter),
            Testbed::Netns => netns::run(&self.inputs, job, meter),
            Testbed::Shadow => {
                let simulations = self.simulations.as_ref();
                simulations
                    .context("no folder of simulations")?
                    .run(job, meter)
            }
        }
    }
}
