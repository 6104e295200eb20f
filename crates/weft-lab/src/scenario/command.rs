//! The command `weft lab run`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::jobs::{Job, Jobs};
use super::memory;
use super::netns;
use super::results::Results;
use super::source::Source;
use super::virtual_time;
use crate::args::weft_program;
use crate::experiment::{Experiment, FolderArgs, Prepared, Progress, Session};
use crate::process::Usage;

/// Runs a scenario: a whole Tor network of Weft's relays and clients, in virtual time or on a testbed.
///
/// A scenario is a TOML file: docs/scenarios.md has its keys, and examples/scenarios some to begin with. Relays, exits and
/// clients are Weft's own code in this process; hosts, links, TCP and the clock are models, so no privileges are needed,
/// and one seed gives one result. With --testbed netns they are processes in network namespaces, in real time, for
/// scenarios that have hosts of their own; that needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN. Each repetition of each arm is a job of its own: --arm and --repetition choose some,
/// and `weft lab report` makes one run of the folders of several. Results go into a new folder. Ctrl-C ends the run
/// with what it has. The exit status is 1 if something is missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The scenario.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// What the network is on.
    #[arg(long, value_enum, default_value_t = Testbed::Virtual)]
    testbed: Testbed,
    /// Arms of the scenario [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    arm: Vec<String>,
    /// One repetition, counted from 1 [default: all].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    repetition: Option<u32>,
    /// What everything random follows from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many jobs run at once; results do not depend on it [default: as many as this machine has cores; with --testbed
    /// netns always one].
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    folder: FolderArgs,
}

/// What a scenario runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Testbed {
    /// Hosts, links, TCP and the clock are models in this process.
    Virtual,
    /// Hosts are network namespaces with processes in them, TCP is the kernel's.
    Netns,
}

impl Testbed {
    /// As results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Testbed::Virtual => "virtual",
            Testbed::Netns => "netns",
        }
    }
}

/// What is run.
#[derive(Debug)]
pub struct Options {
    source: Source,
    testbed: Testbed,
    jobs: Vec<Job>,
    seed: u64,
    threads: usize,
}

impl Experiment for Options {
    const FOLDER: &'static str = "run";
    const TITLE: &'static str = "A scenario";
    const QUESTION: &'static str =
        "How do the streams and circuits of the scenario's users go, and what do its relays do?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let source = Source::read(&args.scenario)?;
        let jobs = source.jobs(&args.arm, args.repetition)?;
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut threads = args.threads.map_or_else(cores, NonZeroUsize::get);
        match args.testbed {
            Testbed::Virtual => {
                let estimate = source.scenario.estimate(&source.files).bytes;
                memory::check(&source.name, estimate, threads.min(jobs.len()))?;
            }
            Testbed::Netns => {
                netns::check(&source)?;
                // Two would measure each other.
                threads = 1;
            }
        }
        let options = Options {
            source,
            testbed: args.testbed,
            jobs,
            seed: args.seed,
            threads,
        };
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        let began = Instant::now();
        let stop = session.stop();
        let weft = weft_program(None)?;
        // The report names them.
        let _ = session.versions(Some(&weft));
        let duration = self.source.scenario.duration;
        let mut results = Results::new(
            &self.source,
            self.testbed,
            self.seed,
            self.threads,
            self.jobs.clone(),
        );
        let jobs = Jobs {
            jobs: &self.jobs,
            duration,
            threads: self.threads,
            stop: &stop,
        };
        let mut kept: Option<Instant> = None;
        jobs.run(
            |job, meter| match self.testbed {
                Testbed::Virtual => virtual_time::run(&self.source, job, self.seed, meter),
                Testbed::Netns => {
                    let lab = netns::Lab {
                        source: &self.source,
                        seed: self.seed,
                        weft: &weft,
                        stop: &stop,
                    };
                    lab.run(job, meter)
                }
            },
            |clock, finished| {
                if let Some(finished) = finished {
                    results.add(finished);
                    let is_due = kept.is_none_or(|at| at.elapsed() >= Results::KEPT_EVERY);
                    if is_due && clock.finished < self.jobs.len() && results.has_outcome() {
                        results.sum_up(began.elapsed(), peak_rss());
                        session.keep(&results)?;
                        kept = Some(Instant::now());
                    }
                }
                session.progress(&Progress {
                    done: clock.done(),
                    step: match self.jobs.len() {
                        1 if self.testbed == Testbed::Netns => "measuring".to_owned(),
                        1 => "simulating".to_owned(),
                        all => format!("{} of {all} jobs done", clock.finished),
                    },
                    detail: format!(
                        "{:.1} of {} s{}",
                        clock.at.as_secs_f64(),
                        clock.whole.as_secs_f64(),
                        match self.testbed {
                            Testbed::Virtual => " of virtual time",
                            Testbed::Netns => "",
                        }
                    ),
                });
                Ok(())
            },
        )?;
        // Nothing is kept where nothing came of any job.
        if let (false, Some(failed)) = (results.has_outcome(), results.failures.first()) {
            bail!("{}", failed.why);
        }
        results.sum_up(began.elapsed(), peak_rss());
        Ok(results)
    }
}

/// The most memory that this process had until now, bytes; 0 where the system does not report it.
fn peak_rss() -> u64 {
    Usage::of(std::process::id()).map_or(0, |usage| usage.peak_rss)
}
