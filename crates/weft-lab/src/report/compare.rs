//! Several runs of one experiment side by side. The first is what the others are compared with.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use weft_stats::{Spread, student};

use super::model::{Better, Row, Run, Table, Values};

/// A run, and what it is called beside others.
#[derive(Clone, Debug)]
pub struct Named {
    /// The folder's name.
    pub name: String,
    /// Its contents.
    pub run: Run,
}

/// Common and differing parts of several runs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The runs, at least two.
    pub runs: Vec<Named>,
    /// Warnings to read before the numbers are believed.
    pub warnings: Vec<String>,
    /// Settings, versions and properties of machines that differ.
    pub differing: Vec<Differing>,
    /// Every table of any run.
    pub tables: Vec<ComparedTable>,
}

/// Something that is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// Its name.
    pub what: String,
    /// For each run.
    pub values: Vec<String>,
}

/// A table of several runs.
#[derive(Clone, Debug)]
pub struct ComparedTable {
    /// Its title.
    pub title: String,
    /// Heads of the labels.
    pub labels: Vec<String>,
    /// One for each row and metric.
    pub rows: Vec<ComparedRow>,
}

/// One metric of one row in several runs.
#[derive(Clone, Debug)]
pub struct ComparedRow {
    /// As in the runs.
    pub labels: Vec<String>,
    /// Name and unit.
    pub metric: String,
    /// For each run: mean, half of its 95 % interval, repetitions.
    pub cells: Vec<Option<Spread>>,
    /// For each run but the first.
    pub changes: Vec<Option<Change>>,
}

/// Difference of a number from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The change in percent of the first.
    pub percent: f64,
    /// The 95 % interval of that; `None` without repetitions of both.
    pub interval: Option<(f64, f64)>,
    /// Its meaning.
    pub verdict: Verdict,
}

/// Meaning of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is on the good side of 0.
    Better,
    /// The interval is on the bad side of 0.
    Worse,
    /// The interval does not have 0, and neither way is good.
    Different,
    /// The interval has 0.
    NoClear,
    /// There is no interval.
    Unknown,
}

impl Verdict {
    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Different => "different",
            Verdict::NoClear => "no clear difference",
            Verdict::Unknown => "too few repetitions to tell",
        }
    }
}

/// By how much `other` differs from `base`; `None` where a mean is not above 0, as a percentage then means
/// nothing.
///
/// The interval is that of the ratio of the means, by the delta method on its logarithm, with Welch's and
/// Satterthwaite's degrees of freedom.
#[must_use]
pub fn change(base: &Values, other: &Values, better: Better) -> Option<Change> {
    let (base, other) = (base.spread()?, other.spread()?);
    if base.mean <= 0.0 || other.mean <= 0.0 {
        return None;
    }
    let ratio = other.mean / base.mean;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let (Some(base_ci), Some(other_ci)) = (base.ci95, other.ci95) else {
        return percent(ratio).is_finite().then(|| Change {
            percent: percent(ratio),
            interval: None,
            verdict: Verdict::Unknown,
        });
    };
    let (m, n) = (base.n, other.n);
    // Squared relative standard errors of the means.
    let error = |mean: f64, ci95: f64, n: usize| (ci95 / student(n - 1) / mean).powi(2);
    let u = error(base.mean, base_ci, m);
    let v = error(other.mean, other_ci, n);
    let sum = u + v;
    let half = match sum > 0.0 {
        true => {
            let freedom = sum.powi(2) / (u.powi(2) / (m - 1) as f64 + v.powi(2) / (n - 1) as f64);
            student((freedom as usize).max(1)) * sum.sqrt()
        }
        false => 0.0,
    };
    let (low, high) = (percent(ratio * (-half).exp()), percent(ratio * half.exp()));
    if !(low.is_finite() && high.is_finite()) {
        return None;
    }
    let verdict = match better {
        _ if low <= 0.0 && high >= 0.0 => Verdict::NoClear,
        Better::Neither => Verdict::Different,
        Better::More if low > 0.0 => Verdict::Better,
        Better::Less if high < 0.0 => Verdict::Better,
        Better::More | Better::Less => Verdict::Worse,
    };
    Some(Change {
        percent: percent(ratio),
        interval: Some((low, high)),
        verdict,
    })
}

impl Comparison {
    /// Of these.
    ///
    /// # Errors
    ///
    /// They are fewer than two, or of different experiments.
    pub fn of(runs: Vec<Named>) -> Result<Comparison> {
        let Some((first, others)) = runs.split_first() else {
            return Err(anyhow::anyhow!("there is nothing to compare"));
        };
        ensure!(!others.is_empty(), "a comparison needs two folders or more");
        for other in others {
            ensure!(
                other.run.experiment == first.run.experiment,
                "{} is a run of {}, and {} one of {}: compare runs of one experiment",
                first.name,
                first.run.experiment,
                other.name,
                other.run.experiment
            );
        }
        let (machines, others) = (machines(&runs), others_that_differ(&runs));
        let mut warnings = Vec::new();
        if !machines.is_empty() {
            warnings.push(
                "The machines differ: differences may be theirs, not those of the programs."
                    .to_owned(),
            );
        }
        for named in &runs {
            if let Some(why) = named.run.ending.warning() {
                warnings.push(format!("{} is partial. {why}", named.name));
            }
        }
        Ok(Comparison {
            warnings,
            differing: machines.into_iter().chain(others).collect(),
            tables: tables(&runs),
            runs,
        })
    }
}

/// Of each run one value; kept if they are not all the same.
fn differs(runs: &[Named], what: &str, of: impl Fn(&Run) -> String) -> Option<Differing> {
    let values: Vec<String> = runs.iter().map(|named| of(&named.run)).collect();
    let first = values.first()?;
    values
        .iter()
        .any(|value| value != first)
        .then(|| Differing {
            what: what.to_owned(),
            values: values.clone(),
        })
}

fn machines(runs: &[Named]) -> Vec<Differing> {
    let of = [
        differs(runs, "processor", |run| run.machine.cpu.clone()),
        differs(runs, "cores", |run| run.machine.cores.to_string()),
        differs(runs, "memory", |run| run.machine.memory_in_words()),
        differs(runs, "kernel", |run| run.machine.kernel.clone()),
        differs(runs, "governor", |run| {
            run.machine
                .governor
                .clone()
                .unwrap_or_else(|| "none".to_owned())
        }),
        differs(runs, "virtual machine", |run| {
            yes(run.machine.virtual_machine).to_owned()
        }),
    ];
    of.into_iter().flatten().collect()
}

fn others_that_differ(runs: &[Named]) -> Vec<Differing> {
    let known = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    let of = [
        differs(runs, "Weft", |run| known(&run.versions.weft)),
        differs(runs, "commit", |run| run.versions.commit_in_words()),
        differs(runs, "C tor", |run| known(&run.versions.tor)),
    ];
    let mut names: Vec<&str> = Vec::new();
    for setting in runs.iter().flat_map(|named| &named.run.settings) {
        if !names.contains(&setting.name.as_str()) {
            names.push(&setting.name);
        }
    }
    let settings = names.into_iter().filter_map(|name| {
        differs(runs, name, |run| {
            let found = run.settings.iter().find(|one| one.name == name);
            found.map_or_else(|| "not set".to_owned(), |one| one.value.clone())
        })
    });
    of.into_iter().flatten().chain(settings).collect()
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn tables(runs: &[Named]) -> Vec<ComparedTable> {
    let mut titles: Vec<&str> = Vec::new();
    for table in runs.iter().flat_map(|named| &named.run.tables) {
        if !titles.contains(&table.title.as_str()) {
            titles.push(&table.title);
        }
    }
    titles.into_iter().map(|title| table(runs, title)).collect()
}

/// The tables of this title.
fn table(runs: &[Named], title: &str) -> ComparedTable {
    static NONE: Values = Values::None;
    let of: Vec<Option<Found>> = runs
        .iter()
        .map(|named| Found::of(&named.run, title))
        .collect();
    let tables = || of.iter().flatten().map(|found| found.table);
    let mut seen: BTreeSet<(&[String], String)> = BTreeSet::new();
    let mut rows = Vec::new();
    for (row, metric) in tables().flat_map(|table| {
        let rows = table.rows.iter();
        rows.flat_map(|row| table.metrics.iter().map(move |metric| (row, metric)))
    }) {
        let head = metric.head();
        if !seen.insert((&row.labels, head.clone())) {
            continue;
        }
        let values: Vec<&Values> = of
            .iter()
            .map(|found| {
                let found = found.as_ref();
                found
                    .and_then(|found| found.values(&row.labels, &head))
                    .unwrap_or(&NONE)
            })
            .collect();
        if values.iter().all(|one| one.spread().is_none()) {
            continue;
        }
        let changes = match values.split_first() {
            Some((base, others)) => others
                .iter()
                .map(|other| change(base, other, metric.better))
                .collect(),
            None => Vec::new(),
        };
        rows.push(ComparedRow {
            labels: row.labels.clone(),
            metric: head,
            cells: values.iter().map(|one| one.spread()).collect(),
            changes,
        });
    }
    ComparedTable {
        title: title.to_owned(),
        labels: tables()
            .next()
            .map_or_else(Vec::new, |table| table.labels.clone()),
        rows,
    }
}

/// A table of a run, by labels and metrics. A table may be long: none is searched for each cell.
struct Found<'a> {
    table: &'a Table,
    rows: BTreeMap<&'a [String], &'a Row>,
    columns: BTreeMap<String, usize>,
}

impl<'a> Found<'a> {
    fn of(run: &'a Run, title: &str) -> Option<Found<'a>> {
        let table = run.tables.iter().find(|table| table.title == title)?;
        let (mut rows, mut columns) = (BTreeMap::new(), BTreeMap::new());
        for row in &table.rows {
            rows.entry(row.labels.as_slice()).or_insert(row);
        }
        for (at, metric) in table.metrics.iter().enumerate() {
            columns.entry(metric.head()).or_insert(at);
        }
        Some(Found {
            table,
            rows,
            columns,
        })
    }

    fn values(&self, labels: &[String], metric: &str) -> Option<&'a Values> {
        self.rows
            .get(labels)?
            .values
            .get(*self.columns.get(metric)?)
    }
}
