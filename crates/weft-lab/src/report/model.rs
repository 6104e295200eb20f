//! Results of one run of any experiment, in the shape that reports and comparisons read:
//! `run.json`.
//!
//! An experiment fills [`Table`]s; the frame (`experiment.rs`) adds the rest.

use serde::{Deserialize, Serialize};
use weft_stats::{Spread, Summary};

use crate::machine::{Machine, Versions};

/// The version of this shape.
pub const SCHEMA: u32 = 1;

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The experiment's name, as in the names of its folders.
    pub experiment: String,
    /// Its title for people.
    pub title: String,
    /// The question that it answers, in one sentence.
    pub question: String,
    /// When it began, UTC, RFC 3339.
    pub started_at: String,
    /// Time from the start until this was written, seconds.
    pub seconds: f64,
    /// Its ending.
    pub ending: Ending,
    /// It came to its end and met its bars.
    pub passed: bool,
    /// The command that repeats it, without the arguments on where results go.
    pub command: String,
    /// All settings, as they were understood.
    pub settings: Vec<Setting>,
    /// Randomness is a function of this.
    pub seed: Option<u64>,
    /// Where.
    pub machine: Machine,
    /// Of what.
    pub versions: Versions,
    /// Sentences beside the tables: bars that were missed, what failed.
    pub notes: Vec<String>,
    /// The measurements.
    pub tables: Vec<Table>,
    /// Plots in the folder.
    pub plots: Vec<Plot>,
    /// Other files in the folder.
    pub files: Vec<String>,
}

/// Ending of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It was not over when this was written: it runs still, or was killed.
    Running,
    /// Somebody stopped it.
    Stopped,
    /// It ended with some measurements missing.
    Incomplete,
    /// Everything was measured.
    Complete,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The argument without its hyphens, or what the experiment calls it.
    pub name: String,
    /// As it was understood.
    pub value: String,
    /// Nobody chose it.
    pub is_default: bool,
}

/// Measurements of one kind: rows identified by their labels, and a column for each metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its subject. No other table of the run has the same title.
    pub title: String,
    /// A sentence that explains it; may be empty.
    pub note: String,
    /// The heads of the columns with labels.
    pub labels: Vec<String>,
    /// The heads of the columns with numbers.
    pub metrics: Vec<Metric>,
    /// In the order in which they are shown.
    pub rows: Vec<Row>,
}

/// One quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name, once in a table.
    pub name: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// The direction that is better.
    pub better: Better,
}

/// The direction of a metric that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// A larger number.
    More,
    /// A smaller one.
    Less,
    /// Neither: it only describes.
    Neither,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// One for each of [`Table::labels`].
    pub labels: Vec<String>,
    /// One for each of [`Table::metrics`].
    pub values: Vec<Values>,
}

/// Measured values of one metric in one row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// It was not measured, or means nothing here.
    #[default]
    None,
    /// One number for each repetition, all of them finite.
    Samples(Vec<f64>),
    /// Mean, half of the 95 % interval, and number of repetitions, of an experiment that has no
    /// samples.
    Mean {
        /// The mean.
        mean: f64,
        /// Half the width of its 95 % confidence interval.
        ci95: f64,
        /// Number of repetitions.
        n: usize,
    },
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plot {
    /// The SVG's name in the folder.
    pub file: String,
    /// Its subject; may be empty.
    pub caption: String,
}

impl Metric {
    /// Of which more is better.
    #[must_use]
    pub fn more(name: &str, unit: &str) -> Metric {
        Metric::new(name, unit, Better::More)
    }

    /// Of which less is better.
    #[must_use]
    pub fn less(name: &str, unit: &str) -> Metric {
        Metric::new(name, unit, Better::Less)
    }

    /// A metric that only describes: no direction is better.
    #[must_use]
    pub fn plain(name: &str, unit: &str) -> Metric {
        Metric::new(name, unit, Better::Neither)
    }

    fn new(name: &str, unit: &str, better: Better) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
        }
    }

    /// Its name and its unit.
    #[must_use]
    pub fn head(&self) -> String {
        match self.unit.is_empty() {
            true => self.name.clone(),
            false => format!("{}, {}", self.name, self.unit),
        }
    }
}

impl Table {
    /// One without rows.
    #[must_use]
    pub fn new<L: Into<String>>(
        title: &str,
        labels: impl IntoIterator<Item = L>,
        metrics: impl IntoIterator<Item = Metric>,
    ) -> Table {
        Table {
            title: title.to_owned(),
            note: String::new(),
            labels: labels.into_iter().map(Into::into).collect(),
            metrics: metrics.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a sentence that explains it.
    #[must_use]
    pub fn note(self, note: &str) -> Table {
        Table {
            note: note.to_owned(),
            ..self
        }
    }

    /// Adds a row. Labels or values that are missing are empty, and those without a column are dropped.
    pub fn push<L: Into<String>>(
        &mut self,
        labels: impl IntoIterator<Item = L>,
        values: impl IntoIterator<Item = Values>,
    ) {
        let mut labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        labels.resize(self.labels.len(), String::new());
        let mut values: Vec<Values> = values.into_iter().collect();
        values.resize(self.metrics.len(), Values::None);
        self.rows.push(Row { labels, values });
    }
}

impl Values {
    /// These, without those that are no number.
    #[must_use]
    pub fn samples(numbers: impl IntoIterator<Item = f64>) -> Values {
        let numbers: Vec<f64> = numbers
            .into_iter()
            .filter(|number| number.is_finite())
            .collect();
        match numbers.is_empty() {
            true => Values::None,
            false => Values::Samples(numbers),
        }
    }

    /// One number.
    #[must_use]
    pub fn one(number: f64) -> Values {
        Values::samples([number])
    }

    /// A mean whose samples are not there.
    #[must_use]
    pub fn mean(mean: f64, ci95: f64, n: usize) -> Values {
        match n {
            0 => Values::None,
            // It has no interval.
            1 => Values::one(mean),
            _ if mean.is_finite() && ci95.is_finite() => Values::Mean { mean, ci95, n },
            _ => Values::None,
        }
    }

    /// Mean and half of the 95 % interval; `None` if nothing was measured.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        match self {
            Values::None => None,
            Values::Samples(numbers) => Spread::of(numbers),
            Values::Mean { mean, ci95, n } => Some(Spread {
                mean: *mean,
                stddev: None,
                // Files of earlier versions have an interval of one.
                ci95: (*n > 1).then_some(*ci95),
                n: *n,
            }),
        }
    }

    /// Median and range, where the samples are there.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        match self {
            Values::Samples(numbers) => Summary::of(numbers.iter().copied()),
            _ => None,
        }
    }
}

impl Ending {
    /// Everything was measured.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self == Ending::Complete
    }

    /// Warning for a reader of partial results; `None` for complete ones.
    #[must_use]
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Ending::Complete => None,
            Ending::Running => Some(
                "The run was not over when this was written: it was killed, or it still runs. This is what was measured until then.",
            ),
            Ending::Stopped => {
                Some("The run was stopped early. This is what was measured until then.")
            }
            Ending::Incomplete => {
                Some("The run ended with measurements missing. This is what was measured.")
            }
        }
    }
}
