//! The simulations of an experiment, and the file by which [`super::read`] finds their output.

use std::fs;
use std::path::{Component, Path};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use weft_model::links::Topology;
use weft_testnet::overlay::place;
use weft_testnet::shadow::PlannedUser;

use crate::cci::{Arm, Links, Traffic};
use crate::experiment::json;

/// The file in the folder of an experiment.
pub(super) const FILE: &str = "plan.json";
/// The version of this shape.
const SCHEMA: u32 = 1;
/// The longest plan that is read.
const MAX_BYTES: u64 = 64 << 20;
/// The most simulations of one experiment.
const MAX_SIMULATIONS: usize = 10_000;

/// Simulations of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) schema: u32,
    /// Losses, payloads and keys are functions of it.
    pub(super) seed: u64,
    /// Of each cell.
    pub(super) seconds: f64,
    /// Time for which this traffic runs before each cell, seconds.
    pub(super) warm_up_s: f64,
    /// From the start of the first node to the first traffic.
    pub(super) settle_s: f64,
    pub(super) repetitions: u32,
    /// Properties of the topologies that Shadow cannot represent.
    pub(super) remarks: Vec<String>,
    pub(super) simulations: Vec<Simulation>,
}

/// One cell, which is one run of Shadow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Simulation {
    /// Its folder in that of the experiment.
    pub(super) folder: String,
    pub(super) scenario: Links,
    pub(super) traffic: Traffic,
    pub(super) arm: Arm,
    pub(super) congestion_control: bool,
    /// From 1.
    pub(super) repetition: u32,
    pub(super) users: Vec<PlannedUser>,
}

/// Cells to simulate.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) topologies: Vec<Topology>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) arms: Vec<Arm>,
    pub(super) congestion_control: Vec<bool>,
    pub(super) repetitions: u32,
}

impl Choice {
    /// Each cell once in each repetition, with the place of its topology.
    ///
    /// # Errors
    ///
    /// A topology is no network, two have one name, or there are too many simulations.
    pub(super) fn simulations(&self) -> Result<Vec<(usize, Simulation)>> {
        let mut all = Vec::new();
        let mut names = Vec::new();
        for topology in &self.topologies {
            let name = topology.name();
            ensure!(
                !names.contains(&name),
                "two topologies are called {name}: change the name in one of the files"
            );
            names.push(name);
        }
        for repetition in 1..=self.repetitions {
            for (number, topology) in self.topologies.iter().enumerate() {
                let places = place::find(topology)?;
                for &traffic in &self.traffic {
                    for &congestion_control in &self.congestion_control {
                        for &arm in &self.arms {
                            let is_client =
                                |place: &&place::Place| place.role == place::Role::Client;
                            let clients = places.iter().filter(is_client);
                            let users = traffic.users(clients.map(|place| &*place.host));
                            let switch = if congestion_control { "on" } else { "off" };
                            let simulation = Simulation {
                                folder: format!(
                                    "{}-{traffic}-{arm}-{switch}-{repetition}",
                                    topology.name()
                                ),
                                scenario: Links::of(topology),
                                traffic,
                                arm,
                                congestion_control,
                                repetition,
                                users: users
                                    .into_iter()
                                    .map(|user| PlannedUser {
                                        host: user.host,
                                        model: user.model_name,
                                    })
                                    .collect(),
                            };
                            all.push((number, simulation));
                            ensure!(
                                all.len() <= MAX_SIMULATIONS,
                                "these are more than {MAX_SIMULATIONS} simulations"
                            );
                        }
                    }
                }
            }
        }
        Ok(all)
    }
}

impl Plan {
    pub(super) fn new() -> Plan {
        Plan {
            schema: SCHEMA,
            seed: 0,
            seconds: 0.0,
            warm_up_s: 0.0,
            settle_s: 0.0,
            repetitions: 1,
            remarks: Vec::new(),
            simulations: Vec::new(),
        }
    }

    /// Writes it into the folder of its experiment.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        fs::write(&path, json(self)?).with_context(|| format!("writing {}", path.display()))
    }

    /// Reads what [`Plan::save`] wrote.
    ///
    /// # Errors
    ///
    /// There is no such file, or it is none of ours.
    pub(super) fn load(folder: &Path) -> Result<Plan> {
        let path = folder.join(FILE);
        let shown = path.display();
        if !path.is_file() {
            bail!(
                "there is no {shown}: `weft lab shadow write FOLDER` makes such a folder, and `weft lab shadow run` one \
                 called simulations in its results"
            );
        }
        let length = fs::metadata(&path)
            .with_context(|| format!("reading {shown}"))?
            .len();
        ensure!(
            length <= MAX_BYTES,
            "{shown} has {length} bytes: it is no plan"
        );
        let text = fs::read_to_string(&path).with_context(|| format!("reading {shown}"))?;
        let plan: Plan = serde_json::from_str(&text)
            .with_context(|| format!("{shown} is no plan of `weft lab shadow write`"))?;
        ensure!(
            plan.schema == SCHEMA,
            "{shown} has version {}, and this weft reads {SCHEMA}: read it with the weft that wrote it",
            plan.schema
        );
        for simulation in &plan.simulations {
            let hosts = simulation.users.iter().map(|user| &user.host);
            for name in hosts.chain([&simulation.folder]) {
                ensure!(
                    is_plain(name),
                    "{shown} names {name:?}, which is no name of a folder in it"
                );
            }
        }
        Ok(plan)
    }
}

/// One name of a folder, not a path.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(part)), None) if part == name
    )
}
