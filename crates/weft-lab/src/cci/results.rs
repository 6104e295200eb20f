//! What was measured, and what it comes to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use weft_plot::Folder;
use weft_stats::Spread;
use weft_traffic::Record;

use super::figures;
use super::plan::Network;
use super::scenario::{Arm, Scenario, Traffic};
use crate::experiment::{Report, json};
use crate::machine::{Machine, Versions};
use crate::report::{Metric, Table, Values};

/// The version of this shape.
pub(super) const SCHEMA: u32 = 1;

/// The experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, UTC, as RFC 3339 writes it.
    pub started_at: String,
    /// Whether it came to its planned end.
    pub finished: bool,
    /// What it ran on.
    pub machine: Machine,
    /// What ran.
    pub versions: Versions,
    /// Losses, payloads and pauses are functions of this.
    pub seed: u64,
    /// Of each cell, seconds.
    pub seconds: f64,
    /// The same traffic before each cell, seconds.
    pub warm_up_s: f64,
    /// How often each cell is measured, when all goes well.
    pub repetitions: u32,
    /// What was measured, over all repetitions.
    pub cells: Vec<Aggregate>,
    /// Each measurement.
    pub runs: Vec<Cell>,
    /// Build times of circuits without traffic, milliseconds, by links, arm and congestion control.
    pub builds: BTreeMap<String, Vec<f64>>,
    /// Every stream, with the number of its run.
    #[serde(skip)]
    pub(super) records: Vec<(usize, Record)>,
}

/// One measurement of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What ran the nodes.
    pub arm: Arm,
    /// The network and its links.
    pub scenario: Scenario,
    /// What the measured users did.
    pub traffic: Traffic,
    /// Whether circuits had congestion control.
    pub congestion_control: bool,
    /// From 1.
    pub repetition: u32,
    /// Why it was not measured.
    pub failure: Option<String>,
    /// Every user.
    pub clients: Vec<Client>,
    /// Payload of all users, bytes.
    pub bytes: u64,
    /// Processor time of entries, middle and exit, seconds.
    pub relays_cpu_s: f64,
    /// Their resident memory at the end, bytes.
    pub relays_rss_bytes: u64,
    /// Their open sockets at the end.
    pub relays_sockets: u64,
    /// Processor time of the testbed's emulator, seconds.
    pub emulator_cpu_s: f64,
    /// The share of packets that the emulator delivered over 0.5 ms late.
    pub late_packets_share: f64,
}

/// One user in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Its host.
    pub host: String,
    /// What it did.
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

/// A mean and half of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; `None` for a single number.
    pub ci95: Option<f64>,
}

/// A cell over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    /// What ran the nodes.
    pub arm: Arm,
    /// The network and its links.
    pub scenario: Scenario,
    /// What the measured users did.
    pub traffic: Traffic,
    /// Whether circuits had congestion control.
    pub congestion_control: bool,
    /// Streams of measured users that completed.
    pub streams: usize,
    /// Over measured users and repetitions.
    pub goodput_mbit: Option<Mean>,
    /// Over streams that completed. In a short cell slow streams are not among them.
    pub ttlb_ms: Option<Mean>,
    /// Round trip of circuits, over streams.
    pub rtt_ms: Option<Mean>,
    /// Goodput lost against NoDropping, percent: the mean over repetitions, each against its own.
    pub lost_percent: Option<f64>,
    /// Half of the 95 % interval of `lost_percent`.
    pub lost_percent_ci95: Option<f64>,
    /// Processor seconds of all relays for 10⁹ bytes of payload.
    pub cpu_s_per_gb: Option<Mean>,
    /// Resident memory of all relays at the end, megabytes (10⁶).
    pub relays_rss_mb: Option<Mean>,
    /// Open sockets of all relays at the end.
    pub relays_sockets: Option<Mean>,
}

impl Mean {
    /// Of these; `None` if there are none.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Option<Mean> {
        let spread = Spread::of(numbers);
        (!numbers.is_empty()).then_some(Mean {
            mean: spread.mean,
            ci95: (numbers.len() > 1).then_some(spread.ci95),
        })
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.ci95 {
            Some(ci95) => format!("{:.1} ± {ci95:.1}", self.mean),
            None => format!("{:.1}", self.mean),
        };
        f.pad(&text)
    }
}

impl Client {
    /// Of these streams of a cell of this length.
    pub(super) fn of<'a>(
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
                weft_traffic::records::Outcome::Failed(_)
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
        Cell {
            arm: network.arm,
            scenario,
            traffic,
            congestion_control: network.congestion_control,
            repetition: network.repetition,
            failure: None,
            clients: Vec::new(),
            bytes: 0,
            relays_cpu_s: 0.0,
            relays_rss_bytes: 0,
            relays_sockets: 0,
            emulator_cpu_s: 0.0,
            late_packets_share: 0.0,
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

    /// Megabits per second, on average over the measured users.
    fn goodput(&self) -> Option<f64> {
        let goodputs: Vec<f64> = self.measured().filter_map(|one| one.goodput_mbit).collect();
        Mean::of(&goodputs).map(|mean| mean.mean)
    }

    fn key(&self) -> (bool, Scenario, Traffic, Arm) {
        (
            self.congestion_control,
            self.scenario,
            self.traffic,
            self.arm,
        )
    }
}

impl Results {
    pub(super) fn add_builds(&mut self, network: &Network, times: &[Duration]) {
        let control = match network.congestion_control {
            true => "on",
            false => "off",
        };
        let key = format!("{} {} {control}", network.links, network.arm);
        let times = times.iter().copied().map(milliseconds);
        self.builds.entry(key).or_default().extend(times);
    }

    pub(super) fn add_records(&mut self, run: usize, records: Vec<Record>) {
        self.records
            .extend(records.into_iter().map(|record| (run, record)));
    }

    /// Makes [`Results::cells`] of [`Results::runs`].
    pub(super) fn sum_up(&mut self) {
        let mut groups: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.failure.is_none()) {
            groups.entry(run.key()).or_default().push(run);
        }
        let cells = groups.iter().map(|(&key, runs)| {
            let (congestion_control, scenario, traffic, arm) = key;
            let clients = || runs.iter().flat_map(|run| run.measured());
            let all = |values: fn(&Client) -> &Vec<f64>| -> Vec<f64> {
                clients().flat_map(values).copied().collect()
            };
            let ttlb = all(|client| &client.ttlb_ms);
            let goodput: Vec<f64> = clients().filter_map(|client| client.goodput_mbit).collect();
            let of_runs = |value: &dyn Fn(&Cell) -> Option<f64>| {
                Mean::of(
                    &runs
                        .iter()
                        .filter_map(|run| value(run))
                        .collect::<Vec<f64>>(),
                )
            };
            let clean = groups.get(&(congestion_control, Scenario::NoDropping, traffic, arm));
            let lost = of_runs(&|run| {
                let clean = clean?.iter().find(|one| one.repetition == run.repetition)?;
                let (with, without) = (run.goodput()?, clean.goodput()?);
                let is_comparable = scenario != Scenario::NoDropping
                    && scenario.network() == Scenario::NoDropping
                    && without > 0.0;
                is_comparable.then(|| 100.0 * (1.0 - with / without))
            });
            Aggregate {
                arm,
                scenario,
                traffic,
                congestion_control,
                streams: ttlb.len(),
                goodput_mbit: Mean::of(&goodput),
                ttlb_ms: Mean::of(&ttlb),
                rtt_ms: Mean::of(&all(|client| &client.rtt_ms)),
                lost_percent: lost.map(|lost| lost.mean),
                lost_percent_ci95: lost.and_then(|lost| lost.ci95),
                cpu_s_per_gb: of_runs(&|run| {
                    (run.bytes > 0).then(|| run.relays_cpu_s * 1e9 / run.bytes as f64)
                }),
                relays_rss_mb: of_runs(&|run| Some(run.relays_rss_bytes as f64 * 1e-6)),
                relays_sockets: of_runs(&|run| Some(run.relays_sockets as f64)),
            }
        });
        self.cells = cells.collect();
    }

    /// Every stream, one JSON object in each line, with what its run was.
    fn streams(&self) -> Result<String> {
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

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "congestion control",
            "scenario",
            "traffic",
            "arm",
            "streams",
            "goodput, Mbit/s",
            "time to last byte, ms",
            "round trip, ms",
            "lost, %",
            "CPU s/GB",
            "sockets",
        ];
        writeln!(
            f,
            "{:<19} {:<18} {:<7} {:<11} {:>7} {:>16} {:>21} {:>16} {:>12} {:>12} {:>10}",
            head[0],
            head[1],
            head[2],
            head[3],
            head[4],
            head[5],
            head[6],
            head[7],
            head[8],
            head[9],
            head[10]
        )?;
        let mean =
            |mean: Option<Mean>| mean.map_or_else(|| "-".to_owned(), |mean| mean.to_string());
        for cell in &self.cells {
            let lost = cell.lost_percent.map(|mean| Mean {
                mean,
                ci95: cell.lost_percent_ci95,
            });
            writeln!(
                f,
                "{:<19} {:<18} {:<7} {:<11} {:>7} {:>16} {:>21} {:>16} {:>12} {:>12} {:>10}",
                if cell.congestion_control { "on" } else { "off" },
                cell.scenario.name(),
                cell.traffic.name(),
                cell.arm.name(),
                cell.streams,
                mean(cell.goodput_mbit),
                mean(cell.ttlb_ms),
                mean(cell.rtt_ms),
                mean(lost),
                mean(cell.cpu_s_per_gb),
                mean(cell.relays_sockets),
            )?;
        }
        if !self.builds.is_empty() {
            writeln!(
                f,
                "\nBuild times of circuits, ms (links, arm, congestion control):"
            )?;
        }
        for (key, times) in &self.builds {
            if let Some(mean) = Mean::of(times) {
                writeln!(f, "  {key:<36} {mean}")?;
            }
        }
        for note in self.notes() {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.is_complete() == Some(true)
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished && self.runs.iter().all(|run| run.failure.is_none()))
    }

    fn tables(&self) -> Vec<Table> {
        let labels = ["congestion control", "scenario", "traffic", "arm"];
        let metrics = [
            Metric::more("goodput", "Mbit/s"),
            Metric::less("time to last byte", "ms"),
            Metric::less("round trip", "ms"),
            Metric::less("lost against NoDropping", "%"),
            Metric::less("CPU of relays", "s/GB"),
            Metric::less("memory of relays", "MB"),
            Metric::less("sockets of relays", ""),
        ];
        let mut cells = Table::new("Cells", labels, metrics).note(
            "Goodput is the payload of a user while it has a stream open, over users and repetitions; time to last \
             byte is of streams that completed.",
        );
        for cell in &self.cells {
            let switch = if cell.congestion_control { "on" } else { "off" };
            let value = |mean: Option<Mean>, count: usize| match mean {
                Some(Mean {
                    mean,
                    ci95: Some(ci95),
                }) => Values::mean(mean, ci95, count),
                Some(Mean { mean, ci95: None }) => Values::one(mean),
                None => Values::None,
            };
            let runs = || {
                let runs = self.runs.iter();
                runs.filter(|run| {
                    run.key()
                        == (
                            cell.congestion_control,
                            cell.scenario,
                            cell.traffic,
                            cell.arm,
                        )
                })
            };
            let repetitions = runs().count();
            let goodputs = runs().flat_map(Cell::measured);
            cells.push(
                [
                    switch,
                    cell.scenario.name(),
                    cell.traffic.name(),
                    cell.arm.name(),
                ],
                [
                    Values::samples(goodputs.filter_map(|client| client.goodput_mbit)),
                    value(cell.ttlb_ms, cell.streams),
                    value(cell.rtt_ms, cell.streams.max(1)),
                    value(
                        cell.lost_percent.map(|mean| Mean {
                            mean,
                            ci95: cell.lost_percent_ci95,
                        }),
                        repetitions,
                    ),
                    value(cell.cpu_s_per_gb, repetitions),
                    value(cell.relays_rss_mb, repetitions),
                    value(cell.relays_sockets, repetitions),
                ],
            );
        }
        let mut builds = Table::new(
            "Build times of circuits",
            ["links", "arm", "congestion control"],
            [Metric::less("build time", "ms")],
        )
        .note("Circuits of three hops, one after another, without traffic.");
        for (key, times) in &self.builds {
            builds.push(key.split(' '), [Values::samples(times.iter().copied())]);
        }
        vec![cells, builds]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let late = self.runs.iter().map(|run| run.late_packets_share);
        let late = late.fold(0.0, f64::max);
        if late > 0.01 {
            notes.push(format!(
                "In one run the testbed delivered {:.0} % of all packets over 0.5 ms late: this machine is too busy for \
                 its links, and numbers near their rates are the machine's.",
                late * 100.0
            ));
        }
        for run in &self.runs {
            if let Some(why) = &run.failure {
                notes.push(format!(
                    "Not measured: {} {} {}, repetition {}: {why}",
                    run.arm, run.scenario, run.traffic, run.repetition
                ));
            }
        }
        notes
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("seconds of a cell".into(), self.seconds.to_string()),
            ("seconds of warm-up".into(), self.warm_up_s.to_string()),
        ]
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("results.json", json(self)?),
            ("streams.jsonl", self.streams()?),
        ])
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }

    fn caption(&self, plot: &str) -> String {
        figures::caption(plot).to_owned()
    }
}
