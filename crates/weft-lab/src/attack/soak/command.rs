//! The command `weft lab soak`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::programs::weft_program;

use weft_plot::Folder;

use super::options::Options;
use super::results::Soak;
use super::{figures, run};
use crate::args::{CONNECTION_THREADS, LASTS, MBITS, PAUSE};
use crate::experiment::{self, Experiment, FolderArgs, Prepared, Report, Session};
use crate::relay::program::Program;
use crate::report::Table;

/// Keeps a relay of your own under churn and attacks for hours, and watches what it holds.
///
/// A relay with every port (an exit to loopback, a directory cache, SocksPort, ControlPort, MetricsPort) and
/// 64 MB for its queues is started alone on loopback. Honest users come and go, and attackers do one attack
/// after the other (`weft lab attack --list`), all by chance of one seed. In the ebb at the end of each cycle
/// everybody is gone: memory, file descriptors, threads, what the ledger counts, links and circuits are
/// compared from ebb to ebb.
///
/// Results go into a new folder: results.json, results.md, samples.csv and a plot as SVG and PNG, all of them
/// up to date after each cycle. Ctrl-C ends the soak, and what was seen is kept. The exit status is 1 if
/// memory grew by 2 % or more over the last hour, if file descriptors, links or circuits are left, if an
/// honest circuit was closed, or if the soak was stopped early.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Start the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The target's ConnectionThreads.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = CONNECTION_THREADS.parser())]
    threads: u32,
    /// Length of the soak, in minutes; whole cycles.
    #[arg(long, value_name = "MINUTES", default_value_t = 120.0, value_parser = MINUTES.parser())]
    minutes: f64,
    /// Length of a cycle, in seconds.
    #[arg(long, value_name = "S", default_value = "600", value_parser = LASTS.parser())]
    cycle: Duration,
    /// Time at the end of a cycle during which everybody is gone, in seconds.
    #[arg(long, value_name = "S", default_value = "90", value_parser = PAUSE.parser())]
    ebb: Duration,
    /// Interval at which the target is sampled, in seconds.
    #[arg(long, value_name = "S", default_value = "5", value_parser = LASTS.parser())]
    every: Duration,
    /// Attackers at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = ATTACKERS.parser())]
    attackers: u32,
    /// Highest rate of all attackers together, in Mbit/s.
    #[arg(long, value_name = "MBIT/S", default_value_t = 8.0, value_parser = MBITS.parser())]
    mbits: f64,
    /// Load of all honest circuits together, in Mbit/s of payload.
    #[arg(long, value_name = "MBIT/S", default_value_t = 4.0, value_parser = MBITS.parser())]
    honest: f64,
    /// All that is drawn is a function of this.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,

    #[command(flatten)]
    folder: FolderArgs,
}

/// Up to a week.
const MINUTES: Bounds<f64> = Bounds::new(0.01, 10_080.0);
/// At a time.
const ATTACKERS: Bounds<u32> = Bounds::new(1, 64);

impl Experiment for Options {
    const FOLDER: &'static str = "soak";
    const TITLE: &'static str = "A relay under churn and attacks";
    const QUESTION: &'static str = "What does a relay hold after hours of churn and attacks?";
    type Args = Args;
    type Report = Soak;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let options = Options {
            program: Program::Weft(weft_program(args.program.as_deref())?, Some(args.threads)),
            length: Duration::from_secs_f64(args.minutes * 60.0),
            cycle: args.cycle,
            ebb: args.ebb,
            every: args.every,
            attackers: args.attackers as usize,
            mbits: args.mbits,
            honest_mbits: args.honest,
            patience: Duration::from_secs(30),
            seed: args.seed,
        };
        options.check()?;
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Soak> {
        run::soak(self, session)
    }
}

impl Report for Soak {
    fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.verdict.missed.is_empty() && self.finished
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        self.report_tables()
    }

    fn notes(&self) -> Vec<String> {
        let broken = self.deeds.first_broken.iter();
        let broken = broken.map(|why| format!("The first honest visit that broke: {why}"));
        let missed = self.verdict.missed.iter();
        let missed = missed.map(|why| format!("Bar missed: {why}"));
        let lines = self.complaints.iter();
        let lines = lines.map(|(line, count)| format!("The target logged {count} times: {line}"));
        broken.chain(missed).chain(lines).collect()
    }

    fn caption(&self, _: &str) -> String {
        "What the target holds, over time: high in each flood, and back in each ebb.".to_owned()
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("results.json", experiment::json(self)?),
            ("results.md", self.to_string()),
            ("samples.csv", self.csv()),
        ])
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }
}
