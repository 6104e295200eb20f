//! Reading a scenario: arms.

use std::time::Duration;

use weft_client::MultipathEntry;
use weft_core::controller::Sharing;
use weft_model::links::source::{Entries, Value};
use weft_path::{Acceptance, CircuitSelection};

use super::read::{Reader, Result};
use super::spec::Arm;
use super::users::{MAX_COUNT, MAX_TIME};
use crate::setup::NodeOptions;

/// At most so many arms.
const MAX_ARMS: usize = 1_000;
/// Default of `MaxConnectionsPerRelay`.
const PER_RELAY: usize = 64;
/// Connections of one relay, past which no circuit gets one of its own: half of what a process with 32,768 files
/// has, as nodes do it.
const TOTAL: usize = 16_384;

const ARM_KEYS: &[&str] = &[
    "name",
    "congestion_control",
    "threads",
    "connection_per_circuit",
    "max_connections_per_relay",
    "kist_interval",
    "kist_factor",
    "max_circuit_dirtiness",
    "num_entry_guards",
    "use_entry_guards",
    "predicted_circuits",
    "acceptance",
    "quantile",
    "selection",
    "conflux",
    "multipath",
    "multipath_entry",
    "multipath_below",
    "adversary",
    "lies",
    "learning",
    "pools",
];

impl Reader<'_> {
    pub(super) fn arms(
        &self,
        value: Option<&Value<'_>>,
        congestion_control: bool,
        threads: u16,
    ) -> Result<Vec<Arm>> {
        let Some(value) = value else {
            return Ok(vec![Arm {
                name: "weft".to_owned(),
                congestion_control,
                threads,
                options: NodeOptions::default(),
            }]);
        };
        let mut arms: Vec<Arm> = Vec::new();
        let tables = self.tables(value, "[[arm]]")?;
        if tables.is_empty() || tables.len() > MAX_ARMS {
            let problem = format!("a scenario has 1 to {MAX_ARMS} arms");
            return Err(self.source.at(value, problem));
        }
        for value in tables {
            let arm = self.arm(value, congestion_control, threads)?;
            if arms.iter().any(|one| one.name == arm.name) {
                let problem = format!("two arms are named {}", arm.name);
                return Err(self.source.at(value, problem));
            }
            arms.push(arm);
        }
        Ok(arms)
    }

    fn arm(
        &self,
        value: &Value<'_>,
        mut congestion_control: bool,
        mut threads: u16,
    ) -> Result<Arm> {
        let table = self.source.table(value)?;
        let entries = self.source.entries(table, ARM_KEYS, "key of an arm")?;
        let get = |key: &str| entries.get(key).copied();
        let Some(name) = get("name") else {
            let problem = "an arm without a name, such as name = \"pctls\"";
            return Err(self.source.at(value, problem.to_owned()));
        };
        if let Some(value) = get("congestion_control") {
            congestion_control = self.source.boolean(value)?;
        }
        if let Some(value) = get("threads") {
            threads = self.threads(value)?;
        }
        let mut options = NodeOptions::default();
        let per_relay = match get("max_connections_per_relay") {
            Some(value) => {
                let what = "max_connections_per_relay is a number";
                let count = self.source.integer(value, what, 1..=10_000)?;
                usize::try_from(count).unwrap_or(PER_RELAY)
            }
            None => PER_RELAY,
        };
        if let Some(value) = get("connection_per_circuit") {
            options.sharing = match self.source.string(value)? {
                "0" => Sharing::All,
                "1" => Sharing::PerCircuit {
                    per_relay,
                    total: TOTAL,
                },
                "auto" => Sharing::Auto {
                    per_relay,
                    total: TOTAL,
                },
                _ => {
                    let problem = "connection_per_circuit is \"0\", \"1\" or \"auto\"";
                    return Err(self.source.at(value, problem.to_owned()));
                }
            };
        }
        if let Some(value) = get("kist_interval") {
            let interval = self.time(value, Duration::from_millis(100))?;
            if interval < Duration::from_millis(1) {
                let problem = "KIST's interval is 1 ms at least".to_owned();
                return Err(self.source.at(value, problem));
            }
            options.run_interval = interval;
        }
        if let Some(value) = get("kist_factor") {
            let what = "kist_factor is a number";
            options.sock_buf_size_factor = self.source.number(value, what, 0.0..=1_000.0)?;
        }
        if let Some(value) = get("max_circuit_dirtiness") {
            options.client.max_dirtiness = self.time(value, MAX_TIME)?.max(Duration::from_secs(10));
        }
        if let Some(value) = get("num_entry_guards") {
            let what = "num_entry_guards is a number";
            let count = self.source.integer(value, what, 1..=1_000)?;
            options.paths.num_entry_guards = usize::try_from(count).ok();
        }
        if let Some(value) = get("use_entry_guards") {
            options.paths.use_entry_guards = self.source.boolean(value)?;
        }
        if let Some(value) = get("predicted_circuits") {
            options.client.disable_predicted = !self.source.boolean(value)?;
        }
        if let Some(value) = get("acceptance") {
            options.times.acceptance = match self.source.string(value)? {
                "cbt" => Acceptance::Cbt,
                "rtt" => Acceptance::Rtt,
                "both" => Acceptance::Both,
                "none" => Acceptance::None,
                _ => {
                    let problem = "acceptance is \"cbt\", \"rtt\", \"both\" or \"none\"";
                    return Err(self.source.at(value, problem.to_owned()));
                }
            };
        }
        if let Some(value) = get("quantile") {
            let what = "quantile is a number";
            options.times.quantile = Some(self.source.number(value, what, 0.5..=0.99)?);
        }
        if let Some(value) = get("selection") {
            options.client.selection = match self.source.string(value)? {
                "default" => CircuitSelection::Default,
                "abra" => CircuitSelection::Abra,
                "abra-stay" => CircuitSelection::AbraStay,
                _ => {
                    let problem = "selection is \"default\", \"abra\" or \"abra-stay\"";
                    return Err(self.source.at(value, problem.to_owned()));
                }
            };
        }
        if let Some(value) = get("conflux") {
            options.client.conflux = Some(self.source.boolean(value)?);
        }
        self.multipath(&entries, &mut options)?;
        if let Some(value) = get("adversary") {
            let what = "adversary is a share of the relays";
            options.adversary = self.source.number(value, what, 0.0..=1.0)?;
        }
        if let Some(value) = get("lies") {
            options.lies = self.source.boolean(value)?;
        }
        if let Some(value) = get("learning") {
            options.learning = self.time(value, MAX_TIME)?;
        }
        if let Some(value) = get("pools") {
            let what = "pools is a number of choices";
            options.pools = self.source.integer(value, what, 0..=MAX_COUNT)?;
        }
        Ok(Arm {
            name: self.name(name)?,
            congestion_control,
            threads,
            options,
        })
    }

    /// Tunnels of mTor, which some clients use.
    fn multipath(&self, entries: &Entries<'_, '_>, options: &mut NodeOptions) -> Result<()> {
        let multipath = &mut options.client.multipath;
        if let Some(value) = entries.get("multipath") {
            let what = "multipath is a number of circuits";
            let circuits = self.source.integer(value, what, 1..=16)?;
            multipath.circuits = usize::try_from(circuits).unwrap_or(1);
            options.multipath = true;
        }
        for key in ["multipath_entry", "multipath_below"] {
            if let Some(value) = entries.get(key).filter(|_| !options.multipath) {
                let problem = format!("{key} is of tunnels, and there are none: multipath = 3");
                return Err(self.source.at(value, problem));
            }
        }
        if let Some(value) = entries.get("multipath_entry") {
            multipath.entry = match self.source.string(value)? {
                "distinct" => MultipathEntry::Distinct,
                "common" => MultipathEntry::Common,
                _ => {
                    let problem = "multipath_entry is \"distinct\" or \"common\"";
                    return Err(self.source.at(value, problem.to_owned()));
                }
            };
        }
        if let Some(value) = entries.get("multipath_below") {
            // A unit of weight is a kB/s.
            let weight = self.rate(value)?.bits() / 8_000;
            multipath.middle_below = u32::try_from(weight).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}
