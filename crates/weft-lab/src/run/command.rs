//! The command `weft lab run`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use weft_stats::bounds::SEED;
use weft_testnet::process::Usage;

use super::results::Results;
use super::shadow::SimulationArgs;
use super::source::Source;
use super::sweep::{Part, Sweep};
use super::testbed::Testbed;
use crate::args::{REPETITIONS, THREADS};
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};

/// Runs a scenario: a whole Tor network of Weft's relays and clients, in virtual time or on a testbed.
///
/// A scenario is a TOML file: docs/scenarios.md has its keys, and examples/scenarios some to begin with. Relays, exits and
/// clients are Weft's own code in this process; hosts, links, TCP and the clock are models, so no privileges are needed,
/// and one seed gives one result. With --testbed netns they are processes in network namespaces, in real time, 150 hosts at
/// most; that needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN. Each repetition of each arm is a job of its own: --arm and --repetition choose some,
/// and `weft lab report` makes one run of the folders of several. Results go into a new folder. Ctrl-C ends the run
/// with what it has. The exit status is 1 if something is missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The scenario.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Testbed of the network.
    #[arg(long, value_enum, default_value_t = Testbed::Virtual)]
    testbed: Testbed,
    /// Arms of the scenario [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    arm: Vec<String>,
    /// One repetition, counted from 1 [default: all].
    #[arg(long, value_name = "K", value_parser = REPETITIONS.parser())]
    repetition: Option<u32>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// So many jobs run at once; results do not depend on it [default: as many as this machine has cores; with --testbed
    /// netns always one].
    #[arg(long, value_name = "N", value_parser = THREADS.parser())]
    threads: Option<usize>,

    #[command(flatten)]
    simulations: SimulationArgs,
    #[command(flatten)]
    folder: FolderArgs,
}

/// Jobs to run.
#[derive(Debug)]
pub struct Options(Sweep);

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
        let (seed, threads) = (args.seed, args.threads.and_then(NonZeroUsize::new));
        let sweep = Sweep::new(source, args.testbed, jobs, seed, threads, &args.simulations)?;
        Ok(Prepared::Run(Options(sweep), args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        let Options(sweep) = self;
        let began = Instant::now();
        let mut results = Results::new(
            &sweep.source,
            sweep.testbed,
            sweep.seed,
            sweep.threads,
            sweep.jobs.clone(),
        );
        let (mut kept, mut finished): (Option<Instant>, usize) = (None, 0);
        sweep.run(
            session,
            Part::ALL,
            |_, measured| measured,
            |session, job, outcome| {
                results.add((job, outcome));
                finished += 1;
                let is_due = kept.is_none_or(|at| at.elapsed() >= Results::KEPT_EVERY);
                if is_due && finished < sweep.jobs.len() && results.has_outcome() {
                    results.sum_up(began.elapsed(), peak_rss());
                    session.keep(&results)?;
                    kept = Some(Instant::now());
                }
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
