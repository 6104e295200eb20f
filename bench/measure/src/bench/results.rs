//! The results of `cargo xtask bench` as a file: everything that was measured, and on what.
//!
//! A file is made when a run begins, under a name that no other has, and written again after each
//! measurement, so that whatever ends the run, what it found until then is there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use weft_lab::relay::report::Report;

use super::bar::Bar;
use super::host::Host;
use super::plan::Point;
use weft_lab::machine::{Machine, Versions};
use weft_stats::Summary;

/// The version of this shape.
pub(crate) const SCHEMA: u32 = 1;

/// A results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`SCHEMA`].
    pub(crate) schema: u32,
    /// When the run began, UTC, as RFC 3339 writes it.
    pub(crate) started_at: String,
    /// True if the run reached its planned end.
    pub(crate) finished: bool,
    pub(crate) machine: Machine,
    pub(crate) versions: Versions,
    pub(crate) options: Options,
    /// Division of the machine between target and generator.
    pub(crate) sharing: Vec<String>,
    /// Present in the record of a pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pack: Option<Pack>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) runs: Vec<Run>,
}

/// Fields of a record of a pack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pack {
    pub(crate) host: Host,
    /// Rows that were not measured.
    pub(crate) left_out: Vec<LeftOut>,
    /// Seconds of each run that the record is of.
    pub(crate) sessions: Vec<f64>,
}

/// A row that was not measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl LeftOut {
    pub(super) fn new(what: &str, why: &str) -> LeftOut {
        LeftOut {
            what: what.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// Options of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) repetitions: u32,
    /// The measuring window of each run.
    pub(crate) seconds: f64,
    pub(crate) warm_up: f64,
    /// Empty: all.
    pub(crate) only: Vec<String>,
    /// Empty: all.
    pub(crate) targets: Vec<String>,
    /// Target and generator were bound to separate processors, where there are enough.
    pub(crate) pin: bool,
}

/// One run of the load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) point: Point,
    /// `pipe`, `tor` or `weft:THREADS`.
    pub(crate) target: String,
    /// From 1.
    pub(crate) repetition: u32,
    /// The words after `weft`.
    pub(crate) words: String,
    /// Duration in seconds, set-up and end included.
    pub(crate) took_s: f64,
    pub(crate) failure: Option<String>,
    /// Set if something else than the target was the limit: the run is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<String>,
    pub(crate) report: Option<Report>,
    /// Present in a run in a private network, which has no report of the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<InNetwork>,
}

impl Run {
    /// Its report, if it came to its end and the target was the limit: others count for nothing.
    pub(crate) fn complete(&self) -> Option<&Report> {
        let report = self.report.as_ref().filter(|report| report.complete);
        report.filter(|_| self.limit.is_none())
    }
}

/// Results of a target in the middle of a private network (`weft lab throughput`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InNetwork {
    /// Maximum sustained throughput, bits per second.
    pub(crate) sustained_bits_per_s: f64,
    /// Payload of all streams, bits per second, from the first byte to the last.
    pub(crate) goodput_bits_per_s: f64,
    pub(crate) cpu_s_per_gb: f64,
    /// The share of the time that the target's busiest thread worked while it sustained that.
    pub(crate) busiest_thread: f64,
    /// Length of the moving average, seconds.
    pub(crate) window_s: f64,
}

/// A number that a report has, or has not.
pub(crate) type Metric = fn(&Report) -> Option<f64>;

impl Results {
    /// The runs of a target at a point that came to their end.
    pub(crate) fn of<'a>(
        &'a self,
        point: &'a Point,
        target: &'a str,
    ) -> impl Iterator<Item = &'a Run> {
        self.runs
            .iter()
            .filter(move |run| run.target == target && run.point == *point)
            .filter(|run| run.complete().is_some())
    }

    /// A number of these runs, over the repetitions.
    pub(crate) fn summary(&self, point: &Point, target: &str, metric: Metric) -> Option<Summary> {
        Summary::of(
            self.of(point, target)
                .filter_map(|run| metric(run.complete()?)),
        )
    }

    /// The targets that were measured at points that `chosen` picks, in the order of the plan.
    pub(crate) fn targets(&self, chosen: impl Fn(&Point) -> bool) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for run in self.runs.iter().filter(|run| chosen(&run.point)) {
            if !names.contains(&run.target) {
                names.push(run.target.clone());
            }
        }
        // The order within a repetition changes from one to the next.
        names.sort_by_key(|name| match name.as_str() {
            "pipe" => (0, 0),
            "tor" => (1, 0),
            weft => (
                2,
                weft.split(':')
                    .nth(1)
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0),
            ),
        });
        names
    }

    /// The points that `chosen` picks, in the order in which they were measured.
    pub(crate) fn points(&self, chosen: impl Fn(&Point) -> bool) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for run in self.runs.iter().filter(|run| chosen(&run.point)) {
            if !points.contains(&run.point) {
                points.push(run.point.clone());
            }
        }
        points
    }

    /// Sustained throughput of a target in a private network, bits per second, if it was the limit.
    pub(crate) fn sustained(&self, target: &str) -> Option<f64> {
        let runs = &mut self.runs.iter();
        let run = runs.find(|run| run.network.is_some() && run.target == target)?;
        let network = run.network.as_ref().filter(|_| run.limit.is_none())?;
        Some(network.sustained_bits_per_s)
    }

    /// Weft's version and commit.
    pub(crate) fn weft(&self) -> String {
        self.versions.in_words()
    }

    pub(crate) fn read(path: &Path) -> Result<Results> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let results: Results = serde_json::from_str(&text)
            .with_context(|| format!("{} is no results file", path.display()))?;
        if results.schema != SCHEMA {
            bail!(
                "{} has another shape: schema {}",
                path.display(),
                results.schema
            );
        }
        Ok(results)
    }

    /// JSON with a line for each run, so that a file can be read and compared by people. Numbers have
    /// as many digits as can mean something.
    fn json(&self) -> Result<String> {
        let head = Results {
            runs: Vec::new(),
            ..self.clone()
        };
        let head = serde_json::to_string_pretty(&rounded(&head)?)?;
        let Some(head) = head.strip_suffix("[]\n}") else {
            bail!("runs are not what a results file ends with");
        };
        let runs: Vec<String> = self
            .runs
            .iter()
            .map(|run| Ok(serde_json::to_string(&rounded(run)?)?))
            .collect::<Result<_>>()?;
        Ok(format!("{head}[\n{}\n]}}\n", runs.join(",\n")))
    }
}

/// Rounds each number that is no integer to six significant digits.
fn rounded<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> Result<T> {
    fn round(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) if number.is_f64() => {
                let short = number.as_f64().map(|number| format!("{number:.5e}"));
                if let Some(Ok(short)) = short.map(|short| short.parse::<f64>()) {
                    *value = short.into();
                }
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(round),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut tree = serde_json::to_value(value)?;
    round(&mut tree);
    // By way of the type again: a tree has its fields in another order.
    Ok(serde_json::from_value(tree)?)
}

/// A results file that is being filled.
pub(crate) struct File {
    pub(crate) path: PathBuf,
}

impl File {
    /// A new file `DATE-MACHINE.json`, or `DATE-MACHINE-2.json` and so on: none is overwritten. Nor is
    /// a folder of plots that is there already.
    pub(crate) fn create(folder: &Path, date: &str, machine: &str) -> Result<File> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        for number in 1..1000 {
            let name = match number {
                1 => format!("{date}-{machine}"),
                _ => format!("{date}-{machine}-{number}"),
            };
            if folder.join(&name).exists() {
                continue;
            }
            let path = folder.join(name + ".json");
            match fs::File::create_new(&path) {
                Ok(_) => return Ok(File { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("creating {}", path.display()));
                }
            }
        }
        bail!("there are 999 results of {date} from {machine} already")
    }

    /// Writes the whole file again. At every moment the file is complete.
    pub(crate) fn write(&self, results: &Results) -> Result<()> {
        let beside = self.path.with_extension("json.new");
        fs::write(&beside, results.json()?)
            .and_then(|()| fs::rename(&beside, &self.path))
            .with_context(|| format!("writing {}", self.path.display()))
    }

    /// Removes it: nothing was measured.
    pub(crate) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("removing {}", self.path.display()))
    }

    /// Where its plots go.
    pub(crate) fn plots(&self) -> PathBuf {
        self.path.with_extension("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::results;

    #[test]
    fn no_file_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |file: &File| file.path.file_name().map(|name| name.to_owned());
        let first = File::create(folder.path(), "2026-01-02", "m").expect("a file");
        assert_eq!(name(&first), Some("2026-01-02-m.json".into()));
        fs::create_dir(folder.path().join("2026-01-02-m-2")).expect("plots of somebody");
        let second = File::create(folder.path(), "2026-01-02", "m").expect("a file");
        assert_eq!(name(&second), Some("2026-01-02-m-3.json".into()));
        assert_eq!(second.plots(), folder.path().join("2026-01-02-m-3"));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path(), "2026-01-02", "m").expect("a file");
        let all = results();
        file.write(&all).expect("written");
        let read = Results::read(&file.path).expect("read");
        assert_eq!(read.runs.len(), all.runs.len());
        assert_eq!(read.bars.len(), all.bars.len());
        // It is what it would be written as.
        let text = fs::read_to_string(&file.path).expect("text");
        assert!(read.json().expect("JSON") == text);
        let none = Results {
            runs: Vec::new(),
            bars: Vec::new(),
            ..all
        };
        file.write(&none).expect("written again");
        assert_eq!(Results::read(&file.path).expect("read"), none);
    }

    #[test]
    fn numbers_have_six_digits() {
        let numbers = rounded(&vec![1.0 / 3.0, 1_234_567.8, 2.0, 1e-12 / 7.0]).expect("numbers");
        assert_eq!(numbers, [0.333333, 1_234_570.0, 2.0, 1.42857e-13]);
    }

    #[test]
    fn targets_come_in_the_order_of_the_plan() {
        let all = results();
        let names = all.targets(Point::is_full_speed);
        assert_eq!(names, ["pipe", "tor", "weft:0", "weft:1", "weft:2"]);
    }
}
