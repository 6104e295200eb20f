//! Results of the experiment: the shape of `results.json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Serialize, Serializer};
use weft_model::traffic::Record;
use weft_stats::Spread;

use super::plan::Network;
use super::scenario::{Arm, Links, Scenario, Traffic};
use crate::experiment::Session;
use crate::machine::{Machine, Versions};
use crate::report::Values;

/// The version of this shape.
const SCHEMA: u32 = 1;

/// The experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, UTC, as RFC 3339 writes it.
    pub started_at: String,
    /// True if it reached its planned end.
    pub finished: bool,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Versions of the programs.
    pub versions: Versions,
    /// Losses, payloads and pauses are functions of this.
    pub seed: u64,
    /// Of each cell, seconds.
    pub seconds: f64,
    /// Time for which this traffic ran before the first cell of each scenario in a network,
    /// seconds.
    pub warm_up_s: f64,
    /// Measurements of each cell, if none fails.
    pub repetitions: u32,
    /// The cells, over all repetitions.
    pub cells: Vec<Aggregate>,
    /// Each measurement.
    pub runs: Vec<Cell>,
    /// Build times of circuits without traffic, milliseconds, by links, arm and congestion control.
    pub builds: BTreeMap<String, Vec<f64>>,
    /// Testbed that carried the packets.
    pub testbed: Testbed,
    /// Limits on the meaning of the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Parts of a measured run that are missing nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Settings that no argument has.
    #[serde(skip)]
    pub(crate) more_settings: Vec<(String, String)>,
    /// Every stream, with the number of its run.
    #[serde(skip)]
    pub(super) records: Vec<(usize, Record)>,
}

/// Testbed that carries packets between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Testbed {
    /// Network namespaces and an emulator of links (`net`).
    #[default]
    Netns,
    /// The simulator Shadow (`shadow`).
    Shadow,
    /// Hosts, links, TCP and the clock are models in this process (`weft-virtual`).
    Virtual,
}

impl Testbed {
    /// As settings name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Testbed::Netns => "netns",
            Testbed::Shadow => "shadow",
            Testbed::Virtual => "virtual",
        }
    }
}

/// One measurement of one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Programs of the nodes.
    pub arm: Arm,
    /// The network and its links.
    pub scenario: Links,
    /// Traffic of the measured users.
    pub traffic: Traffic,
    /// True if circuits had congestion control.
    pub congestion_control: bool,
    /// From 1.
    pub repetition: u32,
    /// Why it was not measured.
    pub failure: Option<String>,
    /// Every user.
    pub clients: Vec<Client>,
    /// Payload of all users, bytes.
    pub bytes: u64,
    /// Processor time of entries, middle and exit, seconds; `None`, as what follows: the testbed has none.
    pub relays_cpu_s: Option<f64>,
    /// Their resident memory at the end, bytes.
    pub relays_rss_bytes: Option<u64>,
    /// Their open sockets at the end.
    pub relays_sockets: Option<u64>,
    /// Processor time of the testbed's emulator, seconds.
    pub emulator_cpu_s: Option<f64>,
    /// The share of packets that the emulator delivered over 0.5 ms late.
    pub late_packets_share: Option<f64>,
}

/// One user in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Client {
    /// Its host.
    pub host: String,
    /// Its traffic model.
    pub model: String,
    /// Payload megabits per second of the time in which it had a stream open; `None`: it never had.
    pub goodput_mbit: Option<f64>,
    /// Time to the last byte of each stream that completed, milliseconds.
    pub ttlb_ms: Vec<f64>,
    /// Round trip of the circuit at the beginning of each stream, milliseconds.
    pub rtt_ms: Vec<f64>,
    /// Streams that failed.
    pub failed: usize,
}

impl Client {
    /// Of these streams of a cell of this length.
    pub(crate) fn of<'a>(
        host: &str,
        model: &str,
        records: impl Iterator<Item = &'a Record>,
        cell: Duration,
    ) -> Client {
        let mut client = Client {
            host: host.to_owned(),
            model: model.to_owned(),
            goodput_mbit: None,
            ttlb_ms: Vec::new(),
            rtt_ms: Vec::new(),
            failed: 0,
        };
        let (mut bytes, mut open) = (0, Duration::ZERO);
        for record in records {
            client.rtt_ms.extend(record.round_trip().map(milliseconds));
            let last = record.time_to_last_byte();
            client.ttlb_ms.extend(last.map(milliseconds));
            client.failed += usize::from(matches!(
                record.outcome,
                weft_model::traffic::records::Outcome::Failed(_)
            ));
            bytes += record.times.down.bytes;
            // A stream that waited for its circuit until the end counts as open all that time.
            let end = last.unwrap_or(record.ended);
            open += end.min(cell.saturating_sub(record.started));
        }
        if !open.is_zero() {
            client.goodput_mbit = Some(bytes as f64 * 8e-6 / open.as_secs_f64());
        }
        client
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Cell {
    pub(super) fn new(network: &Network, (scenario, traffic): (Scenario, Traffic)) -> Cell {
        let control = network.congestion_control;
        Cell::unmeasured(
            network.arm,
            control,
            (scenario.into(), traffic),
            network.repetition,
        )
    }

    /// Without what is to be measured.
    pub(crate) fn unmeasured(
        arm: Arm,
        congestion_control: bool,
        (scenario, traffic): (Links, Traffic),
        repetition: u32,
    ) -> Cell {
        Cell {
            arm,
            scenario,
            traffic,
            congestion_control,
            repetition,
            failure: None,
            clients: Vec::new(),
            bytes: 0,
            relays_cpu_s: None,
            relays_rss_bytes: None,
            relays_sockets: None,
            emulator_cpu_s: None,
            late_packets_share: None,
        }
    }

    pub(super) fn failed(network: &Network, cell: (Scenario, Traffic), why: &str) -> Cell {
        Cell {
            failure: Some(why.to_owned()),
            ..Cell::new(network, cell)
        }
    }

    /// The users whose traffic the cell is about.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Client> {
        let name = self.traffic.name();
        self.clients
            .iter()
            .filter(move |client| client.model == name)
    }

    /// The mean of all values of the measured users.
    pub(super) fn mean(&self, values: fn(&Client) -> &Vec<f64>) -> Option<f64> {
        let all: Vec<f64> = self.measured().flat_map(values).copied().collect();
        Some(Spread::of(&all)?.mean)
    }

    /// Megabits per second, on average over the measured users.
    pub(super) fn goodput(&self) -> Option<f64> {
        let goodputs = self.measured().filter_map(|one| one.goodput_mbit);
        Some(Spread::of(&goodputs.collect::<Vec<f64>>())?.mean)
    }

    pub(super) fn key(&self) -> (bool, &Links, Traffic, Arm) {
        (
            self.congestion_control,
            &self.scenario,
            self.traffic,
            self.arm,
        )
    }
}

impl Results {
    /// Nothing measured yet.
    pub(crate) fn empty(session: &Session<'_>, weft: Option<&Path>) -> Results {
        Results {
            schema: SCHEMA,
            started_at: session.started_at().to_owned(),
            finished: false,
            machine: session.machine(),
            versions: session.versions(weft),
            seed: 0,
            seconds: 0.0,
            warm_up_s: 0.0,
            repetitions: 1,
            cells: Vec::new(),
            runs: Vec::new(),
            builds: BTreeMap::new(),
            testbed: Testbed::default(),
            remarks: Vec::new(),
            missing: Vec::new(),
            more_settings: Vec::new(),
            records: Vec::new(),
        }
    }

    pub(super) fn add_builds(&mut self, network: &Network, times: &[Duration]) {
        let control = match network.congestion_control {
            true => "on",
            false => "off",
        };
        let key = format!("{} {} {control}", network.links, network.arm);
        let times = times.iter().copied().map(milliseconds);
        self.builds.entry(key).or_default().extend(times);
    }

    pub(crate) fn add_records(&mut self, run: usize, records: Vec<Record>) {
        self.records
            .extend(records.into_iter().map(|record| (run, record)));
    }

    /// Every stream, one JSON object in each line, with what its run was.
    pub(super) fn streams(&self) -> Result<String> {
        let mut text = String::new();
        for (run, record) in &self.records {
            let Some(cell) = self.runs.get(*run) else {
                continue;
            };
            let mut line = serde_json::to_value(record).context("writing JSON")?;
            if let Some(object) = line.as_object_mut() {
                object.insert("arm".into(), cell.arm.name().into());
                object.insert("scenario".into(), cell.scenario.name().into());
                object.insert("traffic".into(), cell.traffic.name().into());
                object.insert("congestion_control".into(), cell.congestion_control.into());
                object.insert("repetition".into(), cell.repetition.into());
            }
            text += &line.to_string();
            text.push('\n');
        }
        Ok(text)
    }
}

/// A cell over all repetitions. In JSON a number is its mean and half of its 95 % interval (`ci95`, null of a single
/// one).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggregate {
    /// Programs of the nodes.
    pub arm: Arm,
    /// The network and its links.
    pub scenario: Links,
    /// Traffic of the measured users.
    pub traffic: Traffic,
    /// True if circuits had congestion control.
    pub congestion_control: bool,
    /// Streams of measured users that completed.
    pub streams: usize,
    /// Means over the measured users, one for each repetition: users of one share its links.
    #[serde(serialize_with = "mean")]
    pub goodput_mbit: Values,
    /// Means over streams that completed, one for each repetition. In a short cell slow streams are not among them.
    #[serde(serialize_with = "mean")]
    pub ttlb_ms: Values,
    /// Round trip of circuits: means over streams, one for each repetition.
    #[serde(serialize_with = "mean")]
    pub rtt_ms: Values,
    /// Goodput lost against NoDropping, percent: over repetitions, each against its own. In JSON `lost_percent` and
    /// `lost_percent_ci95`.
    #[serde(flatten, serialize_with = "lost")]
    pub lost_percent: Values,
    /// Processor seconds of all relays for 10⁹ bytes of payload.
    #[serde(serialize_with = "mean")]
    pub cpu_s_per_gb: Values,
    /// Resident memory of all relays at the end, megabytes (10⁶).
    #[serde(serialize_with = "mean")]
    pub relays_rss_mb: Values,
    /// Open sockets of all relays at the end.
    #[serde(serialize_with = "mean")]
    pub relays_sockets: Values,
}

/// Mean and half of the interval, where there are several.
fn interval(values: &Values) -> Option<(f64, Option<f64>)> {
    let spread = values.spread()?;
    Some((spread.mean, spread.ci95))
}

fn mean<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Mean {
        mean: f64,
        ci95: Option<f64>,
    }
    let mean = interval(values).map(|(mean, ci95)| Mean { mean, ci95 });
    mean.serialize(to)
}

fn lost<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Lost {
        lost_percent: Option<f64>,
        lost_percent_ci95: Option<f64>,
    }
    let lost = interval(values);
    let lost = Lost {
        lost_percent: lost.map(|(mean, _)| mean),
        lost_percent_ci95: lost.and_then(|(_, ci95)| ci95),
    };
    lost.serialize(to)
}
