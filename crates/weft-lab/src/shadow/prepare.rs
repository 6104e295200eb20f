//! The cells that are to be simulated, checked, and the folder of their simulations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::net;
use weft_testnet::network::Program;
use weft_testnet::overlay::place;
use weft_testnet::programs::weft_program;
use weft_testnet::shadow::graph;
use weft_testnet::shadow::network::LEAST_SETTLE;

use super::plan::{Choice, Plan, Simulation};
use super::simulation::{Settings, Writer};
use crate::args::{LASTS, PAUSE, REPETITIONS, Switch, chosen};
use crate::cci::{Arm, Traffic};

/// The longest simulation.
const LONGEST: Duration = LASTS.most();
/// Until nodes have found each other.
const SETTLE: Bounds<Duration> = Bounds::new(LEAST_SETTLE, LONGEST);
/// Threads of Shadow.
const PARALLELISM: Bounds<u32> = Bounds::new(0, 1024);

/// Cells to simulate.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CellArgs {
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
    /// Traffic of every second user; the others download in bulk.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…", default_values_t = [Traffic::Bulk])]
    traffic: Vec<Traffic>,
    /// Programs that run the nodes.
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
    /// Number of repetitions, each with another seed.
    #[arg(long, default_value_t = 1, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// Seed of losses, payloads, pauses and keys.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Threads of Shadow; 0: as many as the machine has. Results do not depend on it.
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = PARALLELISM.parser())]
    parallelism: u32,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Checked settings of the files to write.
#[derive(Clone, Debug)]
pub(super) struct Prepare {
    choice: Choice,
    pub(super) settings: Settings,
    simulations: Vec<(usize, Simulation)>,
}

impl Prepare {
    pub(super) fn of(args: &CellArgs) -> Result<Prepare> {
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
