//! The commands `weft lab shadow write`, `read` and `run`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use weft_stats::bounds::{Bounds, SEED};

use super::network::{CONFIGURATION, LEAST_SETTLE};
use super::plan::{Choice, Plan, Simulation};
use super::run::{self, MISSING, installed, program};
use super::simulation::{Settings, Writer};
use super::{graph, read};
use crate::args::{LASTS, PAUSE, REPETITIONS, Switch, weft_program};
use crate::cci::{Arm, Results, Traffic, chosen};
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};
use crate::net;
use crate::network::Program;
use crate::overlay::place;

const TITLE: &str = "Interference between circuits that share a connection, simulated by Shadow";

/// The longest simulation.
const LONGEST: Duration = LASTS.most();
/// Until nodes have found each other.
const SETTLE: Bounds<Duration> = Bounds::new(LEAST_SETTLE, LONGEST);
/// Threads of Shadow.
const PARALLELISM: Bounds<u32> = Bounds::new(0, 1024);

/// What is simulated.
#[derive(Clone, Debug, clap::Args)]
struct CellArgs {
    /// Topologies: TOML files, or names of built-in ones (`weft lab net topology` lists them). Hosts are called
    /// client1, entry1, middle, exit, server and authority.
    #[arg(
        long,
        alias = "topology",
        value_delimiter = ',',
        value_name = "FILE|NAME,…",
        default_values_t = ["pahl-no-dropping".to_owned(), "pahl-shared-dropping".to_owned()]
    )]
    topologies: Vec<String>,
    /// What every second user does; the others download in bulk.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…", default_values_t = [Traffic::Bulk])]
    traffic: Vec<Traffic>,
    /// What runs the nodes.
    #[arg(long, alias = "arm", value_enum, value_delimiter = ',', value_name = "NAME,…", default_values_t = [Arm::Weft])]
    arms: Vec<Arm>,
    /// Without congestion control of circuits, with it, or both.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "off,on", default_values_t = [Switch::On])]
    congestion_control: Vec<Switch>,
    /// Simulated seconds of traffic in each cell.
    #[arg(long, value_parser = LASTS.parser(), value_name = "SECONDS", default_value = "60")]
    seconds: Duration,
    /// Simulated seconds of the same traffic before each cell, over other circuits.
    #[arg(long, value_parser = PAUSE.parser(), value_name = "SECONDS", default_value = "0")]
    warm_up: Duration,
    /// Simulated seconds before the first traffic, in which nodes find each other.
    #[arg(long, value_parser = SETTLE.parser(), value_name = "SECONDS", default_value = "240")]
    settle: Duration,
    /// How often everything is simulated, each time with another seed.
    #[arg(long, default_value_t = 1, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// What losses, payloads, pauses and keys follow from.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Threads of Shadow; 0: as many as the machine has. Results do not depend on it.
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = PARALLELISM.parser())]
    parallelism: u32,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

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

/// What is written, checked.
#[derive(Clone, Debug)]
pub(super) struct Prepare {
    choice: Choice,
    pub(super) settings: Settings,
    simulations: Vec<(usize, Simulation)>,
}

impl Prepare {
    fn of(args: &CellArgs) -> Result<Prepare> {
        let topologies = chosen_texts(&args.topologies);
        let topologies = topologies.iter().map(|named| {
            let topology = net::topology(named)?;
            place::find(&topology).with_context(|| {
                format!(
                    "the topology {named} is no Tor network, which is what Shadow simulates here"
                )
            })?;
            Ok(topology)
        });
        let choice = Choice {
            topologies: topologies.collect::<Result<_>>()?,
            traffic: chosen(&args.traffic, &[]),
            arms: chosen(&args.arms, &[]),
            congestion_control: Switch::each(&args.congestion_control),
            repetitions: args.repetitions,
        };
        let whole = args.settle.checked_add(args.warm_up);
        let whole = whole.and_then(|whole| whole.checked_add(args.seconds));
        ensure!(
            whole.is_some_and(|whole| whole <= LONGEST),
            "a simulation of more than {} days: choose less for --seconds",
            LONGEST.as_secs() / 86_400
        );
        if choice.arms.contains(&Arm::Tor) {
            Program::tor_of_its_own()?;
        }
        for topology in &choice.topologies {
            graph::gml(topology)?;
        }
        Ok(Prepare {
            simulations: choice.simulations()?,
            choice,
            settings: Settings {
                weft: weft_program(args.program.as_deref())?,
                seed: args.seed,
                seconds: args.seconds,
                warm_up: args.warm_up,
                settle: args.settle,
                parallelism: args.parallelism,
            },
        })
    }

    /// Writes everything into this folder, which is new or empty.
    pub(super) fn write(&self, folder: &Path) -> Result<Plan> {
        let shown = folder.display();
        match fs::read_dir(folder) {
            Ok(mut entries) => ensure!(
                entries.next().is_none(),
                "the folder {shown} is not empty: name another, nothing is overwritten"
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).with_context(|| format!("creating {shown}"))?;
            }
            Err(error) => bail!("{shown} cannot be the folder of simulations: {error}"),
        }
        let settings = &self.settings;
        let mut writer = Writer {
            settings,
            authorities: BTreeMap::new(),
            rng: ChaCha20Rng::seed_from_u64(settings.seed),
        };
        for (topology, simulation) in &self.simulations {
            let topology = self
                .choice
                .topologies
                .get(*topology)
                .context("no topology")?;
            writer.write(&folder.join(&simulation.folder), topology, simulation)?;
        }
        let mut remarks = Vec::new();
        for topology in &self.choice.topologies {
            for remark in graph::losses(topology) {
                let remark = format!("{}: {remark}", topology.name());
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
        let plan = Plan {
            seed: settings.seed,
            seconds: settings.seconds.as_secs_f64(),
            warm_up_s: settings.warm_up.as_secs_f64(),
            settle_s: settings.settle.as_secs_f64(),
            repetitions: self.choice.repetitions,
            remarks,
            simulations: self
                .simulations
                .iter()
                .map(|(_, one)| one.clone())
                .collect(),
            ..Plan::new()
        };
        // Last: a folder with a plan is whole.
        plan.save(folder)?;
        Ok(plan)
    }
}

/// Each once.
fn chosen_texts(texts: &[String]) -> Vec<&str> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    chosen(&texts, &[])
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
    // What it measures is what `cci` measures, and is compared with that.
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
    pub(super) prepare: Prepare,
    pub(super) shadow: PathBuf,
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
        run::all(self, session)
    }
}
