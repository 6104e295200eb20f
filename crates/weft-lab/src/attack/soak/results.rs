//! Results of a soak: the shape of `results.json`, the table, and the verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use weft_stats::student;

use super::options::Options;
use super::tally::Tally;
use crate::machine::{Machine, Versions};
use crate::report::{Metric, Table, Values};

/// The version of this shape.
pub const SCHEMA: u32 = 1;
/// Growth of resident memory over the last hour that is no leak, as a share.
pub(crate) const MEMORY_BAR: f64 = 0.02;
/// The last hour, in seconds.
const LAST_S: f64 = 3600.0;

/// Who is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tide {
    /// Nobody has come yet.
    #[default]
    Before,
    /// Everybody.
    Flood,
    /// Everybody has left.
    Ebb,
}

/// One look at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the beginning, seconds.
    pub at_s: f64,
    /// Who was there.
    pub tide: Tide,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Open file descriptors.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// User and system time so far, seconds.
    pub cpu_s: f64,
    /// Bytes that its ledger counts.
    pub ledger_bytes: u64,
    /// Open links.
    pub links: u64,
    /// Circuit halves.
    pub halves: u64,
    /// Size of its log so far, bytes.
    pub log_bytes: u64,
}

/// Settings of the soak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Planned length, seconds.
    pub length_s: f64,
    /// Of one cycle.
    pub cycle_s: f64,
    /// The ebb in it.
    pub ebb_s: f64,
    /// Attackers at a time.
    pub attackers: usize,
    /// Highest rate of all attackers together, 10⁶ bits a second.
    pub mbits: f64,
    /// Load of all honest circuits together, 10⁶ bits of payload a second.
    pub honest_mbits: f64,
    /// The target's MaxMemInQueues, bytes.
    pub max_memory_bytes: u64,
    /// All that was drawn is a function of this.
    pub seed: u64,
}

impl Setting {
    pub(super) fn of(options: &Options) -> Setting {
        Setting {
            length_s: options.length.as_secs_f64(),
            cycle_s: options.cycle.as_secs_f64(),
            ebb_s: options.ebb.as_secs_f64(),
            attackers: options.attackers,
            mbits: options.mbits,
            honest_mbits: options.honest_mbits,
            max_memory_bytes: 64 << 20,
            seed: options.seed,
        }
    }
}

/// Counters of attacks, and of honest users' requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deeds {
    /// Attacks made.
    pub attacks: u64,
    /// Number of their acts: streams, circuits, connections.
    pub deeds: u64,
    /// Links, circuits and connections of theirs that the target refused or closed.
    pub setbacks: u64,
    /// Honest visits with circuits that carry cells.
    pub visits: u64,
    /// Honest visits that broke.
    pub broken: u64,
    /// Honest requests for something new.
    pub asked: u64,
    /// Requests granted within 2 s.
    pub granted: u64,
    /// Honest circuits of these that were closed.
    pub closed: u64,
    /// Why the first visit broke.
    pub first_broken: Option<String>,
}

/// Verdict on the bars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Ebbs of the last hour.
    pub ebbs: usize,
    /// The time between the first and the last of them, seconds.
    pub span_s: f64,
    /// Growth of resident memory over them, by the least squares' line, as a share of the mean.
    pub memory_growth: f64,
    /// Half of the 95 % interval of that growth, in the same unit: ebbs scatter by what the allocator
    /// happens to keep. `None` for fewer than three ebbs.
    #[serde(default)]
    pub memory_growth_pm: Option<f64>,
    /// File descriptors more in the last of them than in the first.
    pub files_growth: i64,
    /// Bars that are missed.
    pub missed: Vec<String>,
}

/// A whole soak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Where.
    pub machine: Machine,
    /// Of what.
    pub versions: Versions,
    /// Its settings.
    pub setting: Setting,
    /// It ran for its whole length.
    pub finished: bool,
    /// All looks.
    pub samples: Vec<Sample>,
    /// The last look of each ebb.
    pub ebbs: Vec<Sample>,
    /// Attacks made, and results of honest users.
    pub deeds: Deeds,
    /// Lines of the target's log above `notice`, and how often each came.
    pub complaints: BTreeMap<String, u64>,
    /// Verdict on the bars.
    pub verdict: Verdict,
}

impl Soak {
    pub(super) fn new(
        started_at: &str,
        machine: Machine,
        versions: Versions,
        setting: Setting,
    ) -> Soak {
        Soak {
            schema: SCHEMA,
            started_at: started_at.to_owned(),
            machine,
            versions,
            setting,
            finished: false,
            samples: Vec::new(),
            ebbs: Vec::new(),
            deeds: Deeds::default(),
            complaints: BTreeMap::new(),
            verdict: Verdict::default(),
        }
    }

    /// Keeps the last look of the ebb that ends.
    pub(super) fn end_cycle(&mut self) {
        if let Some(last) = self.samples.last().filter(|one| one.tide == Tide::Ebb) {
            self.ebbs.push(*last);
        }
    }

    pub(super) fn note(&mut self, tally: &Tally) {
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let first_broken = tally.first_broken.lock();
        self.deeds = Deeds {
            attacks: number(&tally.attacks),
            deeds: number(&tally.deeds),
            setbacks: number(&tally.setbacks),
            visits: number(&tally.visits),
            broken: number(&tally.broken),
            asked: number(&tally.asked),
            granted: number(&tally.granted),
            closed: number(&tally.closed),
            first_broken: first_broken.unwrap_or_else(PoisonError::into_inner).clone(),
        };
    }

    /// Compares what was seen with the bars.
    pub(super) fn judge(&mut self) {
        let Some(last) = self.ebbs.last().copied() else {
            self.verdict = Verdict {
                missed: vec!["no ebb was seen".to_owned()],
                ..Verdict::default()
            };
            return;
        };
        let hour: Vec<Sample> = self
            .ebbs
            .iter()
            .filter(|one| one.at_s >= last.at_s - LAST_S)
            .copied()
            .collect();
        let first = hour.first().copied().unwrap_or(last);
        let (memory_growth, memory_growth_pm) =
            growth(hour.iter().map(|one| (one.at_s, one.rss_bytes as f64)));
        let files_growth = last.files as i64 - first.files as i64;
        let mut missed = Vec::new();
        if !self.finished {
            missed.push("it did not come to its end".to_owned());
        }
        if hour.len() < 3 {
            missed.push(format!("{} ebbs are too few for a trend", hour.len()));
        }
        if memory_growth >= MEMORY_BAR {
            missed.push(format!("memory grew by {:.1} %", memory_growth * 100.0));
        }
        if files_growth > 0 {
            missed.push(format!("{files_growth} more file descriptors are open"));
        }
        if last.links > 0 || last.halves > 0 {
            missed.push(format!(
                "{} links and {} circuit halves are left",
                last.links, last.halves
            ));
        }
        if self.deeds.broken + self.deeds.closed > 0 {
            missed.push(format!(
                "{} honest visits broke, {} honest circuits were closed",
                self.deeds.broken, self.deeds.closed
            ));
        }
        if self.complaints.keys().any(|line| line.contains("panicked")) {
            missed.push("a thread panicked".to_owned());
        }
        self.verdict = Verdict {
            ebbs: hour.len(),
            span_s: last.at_s - first.at_s,
            memory_growth,
            memory_growth_pm,
            files_growth,
            missed,
        };
    }

    /// Resources held before and in each ebb, the trend, and the counters, for the report.
    pub(super) fn report_tables(&self) -> Vec<Table> {
        let mut ebbs = Table::new(
            "What the target holds when everybody is gone",
            ["ebb"],
            [
                Metric::plain("after", "min"),
                Metric::less("memory", "MB"),
                Metric::less("files", ""),
                Metric::less("threads", ""),
                Metric::less("ledger", "MB"),
                Metric::less("links", ""),
                Metric::less("circuit halves", ""),
                Metric::less("log", "kB"),
            ],
        );
        let before = self.samples.first();
        for (number, one) in before.into_iter().chain(&self.ebbs).enumerate() {
            let name = match number {
                0 => "before".to_owned(),
                _ => number.to_string(),
            };
            ebbs.push(
                [name],
                [
                    one.at_s / 60.0,
                    one.rss_bytes as f64 * 1e-6,
                    one.files as f64,
                    one.threads as f64,
                    one.ledger_bytes as f64 * 1e-6,
                    one.links as f64,
                    one.halves as f64,
                    one.log_bytes as f64 * 1e-3,
                ]
                .map(Values::one),
            );
        }
        let verdict = &self.verdict;
        let mut trend = Table::new(
            "Growth over the last hour",
            ["over"],
            [
                Metric::less("memory", "%"),
                Metric::less("file descriptors", ""),
            ],
        )
        .note("By the least squares' line through the ebbs, with the 95 % interval of its slope.");
        trend.push(
            ["the ebbs of the last hour"],
            [
                match verdict.memory_growth_pm {
                    Some(half) => {
                        Values::mean(verdict.memory_growth * 100.0, half * 100.0, verdict.ebbs)
                    }
                    None => Values::one(verdict.memory_growth * 100.0),
                },
                Values::one(verdict.files_growth as f64),
            ],
        );
        let deeds = &self.deeds;
        let mut done = Table::new(
            "What was done",
            ["whole run"],
            [
                Metric::plain("attacks", ""),
                Metric::plain("of them refused or cut off", ""),
                Metric::plain("honest visits", ""),
                Metric::less("broken", ""),
                Metric::plain("honest requests", ""),
                Metric::more("granted", ""),
                Metric::less("honest circuits closed", ""),
            ],
        );
        done.push(
            ["all"],
            [
                deeds.attacks,
                deeds.setbacks,
                deeds.visits,
                deeds.broken,
                deeds.asked,
                deeds.granted,
                deeds.closed,
            ]
            .map(|count| Values::one(count as f64)),
        );
        vec![ebbs, trend, done]
    }

    pub(super) fn csv(&self) -> String {
        let mut text = String::from(
            "seconds,tide,rss_bytes,files,threads,cpu_seconds,ledger_bytes,links,halves,log_bytes\n",
        );
        for one in &self.samples {
            let tide = match one.tide {
                Tide::Before => "before",
                Tide::Flood => "flood",
                Tide::Ebb => "ebb",
            };
            let _ = writeln!(
                text,
                "{:.1},{tide},{},{},{},{:.2},{},{},{},{}",
                one.at_s,
                one.rss_bytes,
                one.files,
                one.threads,
                one.cpu_s,
                one.ledger_bytes,
                one.links,
                one.halves,
                one.log_bytes
            );
        }
        text
    }
}

/// By which share the least squares' line through these points rises from the first to the last, and half
/// of that share's 95 % interval, which two points do not have.
fn growth(points: impl Iterator<Item = (f64, f64)>) -> (f64, Option<f64>) {
    let points: Vec<(f64, f64)> = points.collect();
    let count = points.len() as f64;
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return (0.0, None);
    };
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    if spread == 0.0 || mean_y == 0.0 {
        return (0.0, None);
    }
    let slope = points
        .iter()
        .map(|point| (point.0 - mean_x) * (point.1 - mean_y))
        .sum::<f64>()
        / spread;
    let scale = (last.0 - first.0) / mean_y;
    let free = points.len().saturating_sub(2);
    if free == 0 {
        return (slope * scale, None);
    }
    let off: f64 = points
        .iter()
        .map(|point| (point.1 - mean_y - slope * (point.0 - mean_x)).powi(2))
        .sum();
    let deviation = (off / free as f64 / spread).sqrt();
    (slope * scale, Some(student(free) * deviation * scale))
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setting, deeds) = (&self.setting, &self.deeds);
        writeln!(
            f,
            "{}: {} attackers at a time, at most {} Mbit/s together; honest circuits with {} Mbit/s; \
             MaxMemInQueues {} MB; seed {}.\n",
            self.versions.in_words(),
            setting.attackers,
            setting.mbits,
            setting.honest_mbits,
            setting.max_memory_bytes >> 20,
            setting.seed
        )?;
        writeln!(
            f,
            "{} attacks ({} deeds, {} of them refused or cut off); {} honest visits, {} broken; {} of {} \
             honest requests granted, {} honest circuits closed.\n",
            deeds.attacks,
            deeds.deeds,
            deeds.setbacks,
            deeds.visits,
            deeds.broken,
            deeds.granted,
            deeds.asked,
            deeds.closed
        )?;
        if let Some(why) = &deeds.first_broken {
            writeln!(f, "The first that broke: {why}\n")?;
        }
        writeln!(
            f,
            "| ebb after | RSS | file descriptors | threads | ledger | links | halves | log |\n\
             |---|---|---|---|---|---|---|---|"
        )?;
        let before = self.samples.first();
        for one in before.into_iter().chain(&self.ebbs) {
            writeln!(
                f,
                "| {:.1} min | {:.1} MB | {} | {} | {:.2} MB | {} | {} | {:.1} kB |",
                one.at_s / 60.0,
                one.rss_bytes as f64 * 1e-6,
                one.files,
                one.threads,
                one.ledger_bytes as f64 * 1e-6,
                one.links,
                one.halves,
                one.log_bytes as f64 * 1e-3
            )?;
        }
        let verdict = &self.verdict;
        writeln!(
            f,
            "\nOver the last {:.0} min, {} ebbs: memory {:+.2}{} % (bar: below {:.0} %), file \
             descriptors {:+} (bar: 0).",
            verdict.span_s / 60.0,
            verdict.ebbs,
            verdict.memory_growth * 100.0,
            verdict
                .memory_growth_pm
                .map_or_else(String::new, |half| format!(" ± {:.2}", half * 100.0)),
            MEMORY_BAR * 100.0,
            verdict.files_growth
        )?;
        match verdict.missed.as_slice() {
            [] => writeln!(f, "All bars are met.")?,
            missed => writeln!(f, "Missed: {}.", missed.join("; "))?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Report as _;

    fn soak(ebbs: &[(f64, u64, u64)]) -> Soak {
        let mut soak = Soak::new(
            "",
            Machine::default(),
            Versions::default(),
            Setting::default(),
        );
        for (at_s, rss_bytes, files) in ebbs {
            soak.samples.push(Sample {
                at_s: *at_s,
                tide: Tide::Ebb,
                rss_bytes: *rss_bytes,
                files: *files,
                ..Sample::default()
            });
            soak.end_cycle();
        }
        soak.finished = true;
        soak.judge();
        soak
    }

    #[test]
    fn what_stays_the_same_passes() {
        let even = soak(&[(600.0, 1000, 20), (1200.0, 1001, 20), (1800.0, 999, 20)]);
        assert!(even.is_passed(), "{:?}", even.verdict);
    }

    #[test]
    fn growth_of_memory_or_files_in_the_last_hour_fails() {
        let memory = soak(&[(0.0, 1000, 20), (1800.0, 1020, 20), (3600.0, 1040, 20)]);
        assert!(!memory.is_passed());
        assert!((memory.verdict.memory_growth - 0.039).abs() < 1e-3);
        let files = soak(&[(0.0, 1000, 20), (1800.0, 1000, 20), (3600.0, 1000, 21)]);
        assert_eq!(files.verdict.files_growth, 1);
        assert!(!files.is_passed());
    }

    #[test]
    fn growth_has_an_interval() {
        let line = soak(&[(0.0, 1000, 20), (1800.0, 1020, 20), (3600.0, 1040, 20)]);
        assert!(line.verdict.memory_growth_pm.expect("several ebbs") < 1e-9);
        // Residuals of 10, -20 and 10 about the mean, one degree of freedom.
        let scattered = soak(&[(0.0, 1010, 20), (1800.0, 980, 20), (3600.0, 1010, 20)]);
        assert!(scattered.verdict.memory_growth.abs() < 1e-9);
        let half = scattered.verdict.memory_growth_pm.expect("several ebbs");
        assert!((half - 0.4402).abs() < 1e-3);
        assert!(scattered.to_string().contains('±'), "{scattered}");
        // A line through two points fits them whatever they are.
        let two = soak(&[(0.0, 1000, 20), (1800.0, 1020, 20)]);
        assert_eq!(two.verdict.memory_growth_pm, None);
        assert!(!two.to_string().contains('±'), "{two}");
    }

    #[test]
    fn growth_before_the_last_hour_is_a_warm_up() {
        let warm = soak(&[
            (0.0, 500, 12),
            (3600.0, 1000, 20),
            (5400.0, 1000, 20),
            (7200.0, 1000, 20),
        ]);
        assert_eq!(warm.verdict.ebbs, 3);
        assert!(warm.is_passed(), "{:?}", warm.verdict);
    }

    #[test]
    fn what_is_left_or_broken_fails() {
        let mut left = soak(&[(600.0, 1000, 20), (1200.0, 1000, 20), (1800.0, 1000, 20)]);
        if let Some(last) = left.ebbs.last_mut() {
            last.halves = 1;
        }
        left.judge();
        assert!(!left.is_passed());
        let mut broken = soak(&[(600.0, 1000, 20), (1200.0, 1000, 20), (1800.0, 1000, 20)]);
        broken.deeds.closed = 1;
        broken.judge();
        assert!(!broken.is_passed());
    }
}
