//! The command `weft lab roles`.

use std::path::PathBuf;

use anyhow::Result;
use weft_testnet::programs::find;
use weft_testnet::programs::weft_program;

use super::options::Options;
use super::results::Results;
use super::run;
use crate::args::{CONNECTION_THREADS, MEGABYTES, REPETITIONS, STREAMS};
use crate::experiment::{Experiment, FolderArgs, Prepared, Report, Session};
use crate::report::Table;

/// Measures Weft and C tor as client, exit and guard in one private network, and Arti as client.
///
/// Arti's client is used if it is installed (`cargo install --locked arti`).
///
/// All of it runs on this machine, on loopback; `tor` must be installed. Results go into a new folder, which
/// has all that was measured so far at any time. Ctrl-C ends the experiment. The exit status is 1 if
/// measurements are missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of repetitions.
    #[arg(long, default_value_t = 3, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// Streams at once.
    #[arg(long, default_value_t = 8, value_parser = STREAMS.parser())]
    streams: usize,
    /// MiB of each.
    #[arg(long, default_value_t = 20, value_parser = MEGABYTES.parser())]
    mebibytes: u64,
    /// Weft's connection threads.
    #[arg(long, default_value_t = 1, value_parser = CONNECTION_THREADS.parser())]
    threads: u32,
    /// Measure the weft at this path, not this one.
    #[arg(long, alias = "weft", value_name = "FILE")]
    program: Option<PathBuf>,
    /// Arti's client [default: the arti on PATH, if there is one].
    #[arg(long, value_name = "FILE")]
    arti: Option<PathBuf>,
    /// The checkout that the measured weft was built from: its commit is noted.
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,

    #[command(flatten)]
    folder: FolderArgs,
}

impl Experiment for Options {
    const FOLDER: &'static str = "roles";
    const TITLE: &'static str = "What each role costs";
    const QUESTION: &'static str = "What do a client, an exit and a guard cost, and how soon is a client of use, beside C tor and Arti?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let options = Options {
            weft: weft_program(args.program.as_deref())?,
            arti: args.arti.clone().or_else(|| find("arti")),
            threads: args.threads,
            checkout: args.checkout.clone(),
            streams: args.streams,
            bytes: args.mebibytes << 20,
            small: 20,
            repetitions: args.repetitions,
            seed: 1,
        };
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        run::roles(self, session)
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.measures.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.finished
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        self.report_tables()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = vec![("seed".to_owned(), self.seed.to_string())];
        if let Some(arti) = &self.arti {
            settings.push(("Arti's version".to_owned(), arti.clone()));
        }
        settings
    }
}
