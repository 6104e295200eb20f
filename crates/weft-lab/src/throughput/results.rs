//! The results of an experiment: a folder with everything that was measured.
//!
//! `results.json` is written again after each run, so that whatever ends the experiment, what it found
//! until then is there. `bytes.csv` and `streams.csv` have the same measurements for other programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::meter::INTERVAL;
use super::sizes::Sizes;
use super::sustained::{Rule, Sample};
use super::which::Which;
use crate::machine::{Machine, Versions};
use crate::report::{Metric, Table, Values};
use weft_stats::Summary;

/// The version of this shape.
pub const SCHEMA: u32 = 1;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The part of Table 1's proxies and relays that the network has.
    pub scale: f64,
    /// Table 1's name for the sizes that were scaled.
    pub setting: String,
    /// Size of the network, and of its streams.
    pub sizes: Sizes,
    /// The targets, in the order of the plots.
    pub targets: Vec<Which>,
    /// Measurements of each target, if none fails.
    pub repetitions: u32,
    /// Payloads are functions of this.
    pub seed: u64,
    /// Entries and exits were Weft.
    #[serde(default)]
    pub weft_around: bool,
    /// The rule that was asked for.
    pub asked: Rule,
    /// The rule that was followed: the one asked for, unless runs were too short.
    pub rule: Rule,
    /// For each target that has a run that came to its end.
    pub summaries: Vec<TargetSummary>,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

/// One upload of all streams through one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Program in the middle.
    pub target: Which,
    /// From 1.
    pub repetition: u32,
    /// Why it did not come to its end.
    pub failure: Option<String>,
    /// From the first byte that was sent until the last that arrived, seconds.
    pub seconds: f64,
    /// Bytes that the target had moved, every 500 ms.
    pub bytes: Vec<Sample>,
    /// Every stream that arrived.
    pub streams: Vec<StreamTimes>,
    /// Of the whole target, seconds of processor time meanwhile.
    pub cpu_s: f64,
    /// Of its busiest thread.
    pub busiest_thread_s: f64,
    /// The most resident memory of the target since its start, bytes.
    pub peak_rss_bytes: u64,
    /// Seconds of processor time of all client proxies, entries and exits, and of this program.
    pub others_cpu_s: f64,
}

/// One stream's times, counted from the moment at which all began, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamTimes {
    /// When the server had its first byte.
    pub first_byte_s: f64,
    /// When it had the last.
    pub last_byte_s: f64,
}

/// A target over all its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetSummary {
    /// The target.
    pub target: Which,
    /// Maximum sustained throughput, bits per second: what it read from its links.
    pub sustained_bits_per_s: Option<Summary>,
    /// Payload of all streams, divided by the time until the last byte, bits per second.
    pub goodput_bits_per_s: Option<Summary>,
    /// Median time to the first byte over all streams of all runs, seconds.
    pub first_byte_s: Option<Summary>,
    /// Median time to the last byte over all streams of all runs, seconds.
    pub last_byte_s: Option<Summary>,
    /// Processor seconds of the target for 10⁹ bytes of payload.
    pub cpu_s_per_gb: Option<Summary>,
    /// The share of the time that its busiest thread worked.
    pub busiest_thread: Option<Summary>,
    /// The share of the time that its busiest thread worked, in the window of the maximum sustained
    /// throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_sustained: Option<Summary>,
    /// Peak resident memory, bytes.
    pub peak_rss_bytes: Option<Summary>,
}

impl Results {
    /// The runs of a target that came to their end.
    pub fn of(&self, target: Which) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.target == target && run.failure.is_none())
    }

    /// Finds rule and summaries by the runs that there are.
    pub(super) fn sum_up(&mut self) {
        let whole = self.runs.iter().filter(|run| run.failure.is_none());
        let lengths = whole.filter_map(|run| Some(run.bytes.last()?.at_s));
        let shortest = lengths.fold(f64::INFINITY, f64::min);
        self.rule = match shortest.is_finite() {
            true => self.asked.fitting(shortest, INTERVAL.as_secs_f64()),
            false => self.asked,
        };
        self.summaries = self
            .targets
            .iter()
            .filter(|target| self.of(**target).next().is_some())
            .map(|target| self.summary(*target))
            .collect();
    }

    fn summary(&self, target: Which) -> TargetSummary {
        let payload = self.sizes.payload() as f64;
        let over_runs = |number: &dyn Fn(&Run) -> f64| Summary::of(self.of(target).map(number));
        let streams = |number: fn(&StreamTimes) -> f64| {
            Summary::of(
                self.of(target)
                    .flat_map(|run| run.streams.iter().map(number)),
            )
        };
        let sustained = self
            .of(target)
            .filter_map(|run| self.rule.sustained(&run.bytes));
        TargetSummary {
            target,
            sustained_bits_per_s: Summary::of(sustained.map(|bytes| bytes * 8.0)),
            goodput_bits_per_s: over_runs(&|run| payload * 8.0 / run.seconds),
            first_byte_s: streams(|times| times.first_byte_s),
            last_byte_s: streams(|times| times.last_byte_s),
            cpu_s_per_gb: over_runs(&|run| run.cpu_s * 1e9 / payload),
            busiest_thread: over_runs(&|run| run.busiest_thread_s / run.seconds),
            busiest_sustained: Summary::of(
                self.of(target)
                    .filter_map(|run| self.rule.busiest(&run.bytes)),
            ),
            peak_rss_bytes: over_runs(&|run| run.peak_rss_bytes as f64),
        }
    }

    /// All runs of each target, for the report.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(
            "Targets",
            ["target"],
            [
                Metric::more("sustained throughput", "Mbit/s"),
                Metric::more("goodput", "Mbit/s"),
                Metric::less("first byte, median of the streams", "s"),
                Metric::less("last byte, median of the streams", "s"),
                Metric::less("CPU", "s/GB"),
                Metric::plain("busiest thread", "%"),
                Metric::less("peak memory", "MB"),
            ],
        );
        let payload = self.sizes.payload() as f64;
        for target in &self.targets {
            let of = |number: &dyn Fn(&Run) -> Option<f64>| {
                Values::samples(self.of(*target).filter_map(number))
            };
            let stream = |number: fn(&StreamTimes) -> f64| {
                of(&|run| Some(Summary::of(run.streams.iter().map(number))?.median))
            };
            table.push(
                [target.in_words()],
                [
                    of(&|run| Some(self.rule.sustained(&run.bytes)? * 8e-6)),
                    of(&|run| Some(payload * 8e-6 / run.seconds)),
                    stream(|times| times.first_byte_s),
                    stream(|times| times.last_byte_s),
                    of(&|run| Some(run.cpu_s * 1e9 / payload)),
                    of(&|run| Some(run.busiest_thread_s / run.seconds * 100.0)),
                    of(&|run| Some(run.peak_rss_bytes as f64 * 1e-6)),
                ],
            );
        }
        table
    }

    /// Size of the network, in one line.
    pub(crate) fn size_in_words(&self) -> String {
        let sizes = self.sizes;
        format!(
            "scale {} of Table 1 ({}): {} client proxies, {} entries, {} exits{}; {} circuits with a stream of {} each",
            self.scale,
            self.setting,
            sizes.clients,
            sizes.entries,
            sizes.exits,
            match self.weft_around {
                true => " (entries and exits are Weft)",
                false => "",
            },
            sizes.circuits(),
            mebibytes(sizes.bytes_per_stream),
        )
    }

    /// Rule by which throughput was found, in one line.
    pub(crate) fn rule_in_words(&self) -> String {
        let Rule {
            discard_s,
            window_s,
        } = self.rule;
        let rule = format!(
            "Maximum of the {window_s}-second moving average, after the first {discard_s} s"
        );
        match self.rule == self.asked {
            true => rule,
            false => format!(
                "{rule} (the runs are too short for {} s after {} s)",
                self.asked.window_s, self.asked.discard_s
            ),
        }
    }

    /// Busiest thread of each target, which shows if the target bounded the throughput.
    pub(crate) fn bottleneck_in_words(&self) -> String {
        let busiest = self.summaries.iter().filter_map(|one| {
            let share = one.busiest_sustained.or(one.busiest_thread)?.median * 100.0;
            Some(format!("{} {share:.0} %", one.target))
        });
        let busiest: Vec<String> = busiest.collect();
        format!(
            "Busiest thread of the target: {}; far below 100 % the other nodes, which share this machine's {} processors, were the limit",
            busiest.join(", "),
            self.machine.logical_cpus
        )
    }

    /// Reads an experiment's `results.json`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has another shape.
    pub fn read(path: &Path) -> Result<Results> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let results: Results = serde_json::from_str(&text)
            .with_context(|| format!("{} has no results of weft lab throughput", path.display()))?;
        ensure!(
            results.schema == SCHEMA,
            "{} has another shape: schema {}",
            path.display(),
            results.schema
        );
        Ok(results)
    }

    /// All data files.
    pub(super) fn data_files(&self) -> Result<Vec<(&'static str, String)>> {
        // A line for each run.
        let mut head = self.clone();
        head.runs.clear();
        let head = serde_json::to_string_pretty(&head)?;
        let head = head
            .strip_suffix("[]\n}")
            .context("runs are not what results end with")?;
        let runs: Vec<String> = self
            .runs
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        let json = format!("{head}[\n{}\n]}}\n", runs.join(",\n"));
        Ok(vec![
            ("results.json", json),
            ("bytes.csv", self.bytes_csv()),
            ("streams.csv", self.streams_csv()),
        ])
    }

    fn bytes_csv(&self) -> String {
        let mut text = "target,repetition,at_s,read_bytes,written_bytes\n".to_owned();
        for run in &self.runs {
            for one in &run.bytes {
                let _ = writeln!(
                    text,
                    "{},{},{:.3},{},{}",
                    run.target, run.repetition, one.at_s, one.read, one.written
                );
            }
        }
        text
    }

    fn streams_csv(&self) -> String {
        let mut text = "target,repetition,stream,first_byte_s,last_byte_s\n".to_owned();
        for run in &self.runs {
            for (number, one) in run.streams.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "{},{},{number},{:.6},{:.6}",
                    run.target, run.repetition, one.first_byte_s, one.last_byte_s
                );
            }
        }
        text
    }
}

/// `10 MiB`, or bytes where it is no whole number of them.
pub(super) fn mebibytes(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}
