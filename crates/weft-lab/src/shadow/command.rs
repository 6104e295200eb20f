//! The commands `weft lab shadow write`, `read` and `run`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use weft_testnet::shadow::{CONFIGURATION, MISSING, installed, program};

use super::plan::Plan;
use super::prepare::{CellArgs, Prepare};
use super::read;
use super::run;
use crate::cci::Results;
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};

const TITLE: &str = "Interference between circuits that share a connection, simulated by Shadow";

/// Writes simulations for Shadow into a new folder: one for each cell.
///
/// Each is a folder with `shadow.yaml` and everything that it names. Shadow need not be installed.
#[derive(Debug, clap::Args)]
pub struct WriteArgs {
    /// The new folder.
    folder: PathBuf,
    #[command(flatten)]
    cells: CellArgs,
}

/// Makes the report of simulations that Shadow has run.
///
/// It has the tables of `weft lab cci`, and `weft lab report` compares the two. The exit status is 1 if a simulation
/// was not run, or did not come to its end.
#[derive(Debug, clap::Args)]
pub struct ReadArgs {
    /// The folder that `weft lab shadow write` made.
    simulations: PathBuf,
    #[command(flatten)]
    folder: FolderArgs,
}

/// Writes simulations, runs them in Shadow one after another, and makes the report.
///
/// Results go into a new folder, with the simulations in its folder `simulations`. Ctrl-C ends the simulation, and
/// keeps those before. The exit status is 1 if measurements are missing.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    cells: CellArgs,
    /// Run the shadow at this path [default: that in PATH or ~/.local/bin].
    #[arg(long, value_name = "FILE")]
    shadow: Option<PathBuf>,
    #[command(flatten)]
    folder: FolderArgs,
}

/// Writes simulations. Returns what is to be printed.
///
/// # Errors
///
/// The arguments make no sense, the folder is not empty, or the system refuses.
pub fn write(args: &WriteArgs) -> Result<String> {
    let prepare = Prepare::of(&args.cells)?;
    let plan = prepare.write(&args.folder)?;
    let folder = args.folder.display();
    let mut text = format!(
        "{folder} has {} simulations. Run them, and read them back:\n\n",
        plan.simulations.len()
    );
    for simulation in &plan.simulations {
        let _ = writeln!(
            text,
            "  (cd {folder}/{} && shadow {CONFIGURATION} > shadow.log)",
            simulation.folder
        );
    }
    let _ = writeln!(text, "  weft lab shadow read {folder}");
    if !plan.remarks.is_empty() {
        text.push_str("\nWhat differs from the topology:\n\n");
    }
    for remark in &plan.remarks {
        let _ = writeln!(text, "  {remark}");
    }
    Ok(text)
}

/// Reading simulations back.
#[derive(Debug)]
pub struct ReadBack {
    folder: PathBuf,
    plan: Plan,
}

impl Experiment for ReadBack {
    // It measures the same as `cci`, and is compared with that.
    const FOLDER: &'static str = "cci";
    const TITLE: &'static str = TITLE;
    const QUESTION: &'static str = <crate::cci::Options as Experiment>::QUESTION;
    type Args = ReadArgs;
    type Report = Results;

    fn prepare(args: &ReadArgs) -> Result<Prepared<ReadBack>> {
        let read = ReadBack {
            folder: args.simulations.clone(),
            plan: Plan::load(&args.simulations)?,
        };
        Ok(Prepared::Run(read, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        let mut results = read::begin(&self.plan, session, None);
        for simulation in &self.plan.simulations {
            read::add(&mut results, &self.plan, simulation, &self.folder);
        }
        results.finished = true;
        results.sum_up();
        Ok(results)
    }
}

/// Writing, running and reading.
#[derive(Debug)]
pub struct Simulate {
    prepare: Prepare,
    shadow: PathBuf,
}

impl Experiment for Simulate {
    const FOLDER: &'static str = "cci";
    const TITLE: &'static str = TITLE;
    const QUESTION: &'static str = <crate::cci::Options as Experiment>::QUESTION;
    type Args = RunArgs;
    type Report = Results;

    fn prepare(args: &RunArgs) -> Result<Prepared<Simulate>> {
        let shadow = match &args.shadow {
            Some(path) => program(path)?,
            None => installed().with_context(|| {
                format!("{MISSING}: `weft lab shadow write` and `read` work without it")
            })?,
        };
        let simulate = Simulate {
            prepare: Prepare::of(&args.cells)?,
            shadow,
        };
        Ok(Prepared::Run(simulate, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        run::all(&self.prepare, &self.shadow, session)
    }
}
