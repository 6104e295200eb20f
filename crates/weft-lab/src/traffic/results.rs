//! Results of the streams of all users: the shape of `results.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use weft_model::traffic::Record;
use weft_model::traffic::records::{Outcome, Summary};

use super::options::Options;
use crate::experiment::Session;
use crate::machine::{Machine, Versions};

/// The version of this shape.
const SCHEMA: u32 = 1;

/// The experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The version of this shape.
    pub schema: u32,
    /// When it began, UTC, RFC 3339.
    pub started_at: String,
    /// Every repetition came to its end.
    pub finished: bool,
    /// The error that ended it early.
    pub failure: Option<String>,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Versions of the programs.
    pub versions: Versions,
    /// Path of the streams.
    pub through: String,
    /// Seconds of a repetition.
    pub seconds: f64,
    /// Planned repetitions.
    pub repetitions: u32,
    /// Seed of users' draws and of payloads.
    pub seed: u64,
    /// In the order of `--users`.
    pub models: Vec<OfModel>,
    /// The streams of each repetition.
    #[serde(skip)]
    pub(super) records: Vec<(u32, Vec<Record>)>,
}

/// All users of one model.
#[derive(Clone, Debug, Serialize)]
pub struct OfModel {
    /// Its name.
    pub model: String,
    /// Number of users that follow it.
    pub users: usize,
    /// Streams that failed, by the part in which they did.
    pub failures: BTreeMap<&'static str, usize>,
    /// All repetitions together.
    #[serde(flatten)]
    pub all: Summary,
    /// Each of them.
    pub repetitions: Vec<OfRepetition>,
}

/// All users of one model in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct OfRepetition {
    /// From 1.
    pub repetition: u32,
    /// Its length, seconds.
    pub seconds: f64,
    /// Payload of all these users both ways, 10⁶ bits in each second.
    pub mbit: f64,
    /// Their streams.
    #[serde(flatten)]
    pub streams: Summary,
}

impl Results {
    /// Without measurements.
    pub(super) fn new(options: &Options, session: &Session<'_>) -> Results {
        let models = options.users.iter().map(|users| OfModel {
            model: users.model_name.to_owned(),
            users: users.count,
            failures: BTreeMap::new(),
            all: Summary::of([]),
            repetitions: Vec::new(),
        });
        Results {
            schema: SCHEMA,
            started_at: session.started_at().to_owned(),
            finished: false,
            failure: None,
            machine: session.machine(),
            versions: session.versions(Some(&options.weft)),
            through: options.way.to_string(),
            seconds: options.duration.as_secs_f64(),
            repetitions: options.repetitions,
            seed: options.seed,
            models: models.collect(),
            records: Vec::new(),
        }
    }

    /// Adds the streams of a repetition.
    pub(super) fn add(&mut self, repetition: u32, elapsed: Duration, records: Vec<Record>) {
        self.records.push((repetition, records));
        let seconds = elapsed.as_secs_f64();
        for model in &mut self.models {
            let name = model.model.clone();
            let of = |wanted: Option<u32>| -> Vec<&Record> {
                let runs = self.records.iter();
                let runs = runs.filter(|(number, _)| wanted.is_none_or(|wanted| *number == wanted));
                let records = runs.flat_map(|(_, records)| records);
                records.filter(|record| record.model == name).collect()
            };
            let streams = Summary::of(of(Some(repetition)));
            let bytes = streams.down_bytes.saturating_add(streams.up_bytes);
            model.repetitions.push(OfRepetition {
                repetition,
                seconds,
                mbit: match seconds > 0.0 {
                    true => bytes as f64 * 8e-6 / seconds,
                    false => 0.0,
                },
                streams,
            });
            let all = of(None);
            model.failures = failures(&all);
            model.all = Summary::of(all);
        }
    }
}

/// Number of failures in each part of a stream.
fn failures(records: &[&Record]) -> BTreeMap<&'static str, usize> {
    let mut failures = BTreeMap::new();
    for record in records {
        if let Outcome::Failed(failure) = &record.outcome {
            *failures.entry(failure.kind.name()).or_default() += 1;
        }
    }
    failures
}
