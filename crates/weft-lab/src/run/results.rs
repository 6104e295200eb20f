//! Results of a run: the shape of `results.json`.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use weft_model::traffic::Record;
use weft_model::traffic::records::{Figure, Summary, from_json_lines, json_lines};
use weft_virtual::results::CircuitResults;

use super::job::{Job, Measured};
use super::source::Source;
use super::testbed::Testbed;

/// The version of this shape.
const SCHEMA: u32 = 1;

/// A run of a scenario. The scenario and the seed determine it, except
/// [`elapsed_s`](Self::elapsed_s), [`peak_rss_bytes`](Self::peak_rss_bytes) and
/// [`threads`](Self::threads).
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The version of this shape.
    pub schema: u32,
    /// The name of its file.
    pub scenario: String,
    /// Its testbed.
    pub testbed: Testbed,
    /// Seed of everything random.
    pub seed: u64,
    /// Every job came to its end.
    pub finished: bool,
    /// Duration of each job, seconds.
    pub duration_s: f64,
    /// The time of all jobs together, seconds.
    pub simulated_s: f64,
    /// Time that the run took, seconds.
    pub elapsed_s: f64,
    /// The most memory that the process had.
    pub peak_rss_bytes: u64,
    /// Relays of a network.
    pub relays: usize,
    /// Clients of a network.
    pub clients: usize,
    /// Of all jobs.
    pub streams: Streams,
    /// Bytes of cells that relays wrote to links, in all jobs.
    pub relayed_bytes: u64,
    /// Discrete events of all jobs.
    pub events: u64,
    /// Of all jobs.
    pub circuits: Circuits,
    /// Jobs that ran at once, if there were as many.
    pub threads: usize,
    /// Results by arm.
    pub arms: Vec<OfArm>,
    /// The planned jobs, in order.
    pub jobs: Vec<Job>,
    /// Jobs without results.
    pub failures: Vec<FailedJob>,
    /// Folders that this was made of.
    #[serde(skip)]
    pub(super) parts: Vec<String>,
    /// The scenario's text.
    #[serde(skip)]
    pub(super) text: String,
    /// In the order of jobs.
    #[serde(skip)]
    pub(super) outcomes: Vec<Outcome>,
}

/// Numbers of streams by result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Streams {
    /// Streams that began.
    pub count: usize,
    /// Streams of which all bytes arrived.
    pub complete: usize,
    /// Streams that failed.
    pub failed: usize,
    /// Streams that were open at the end.
    pub unfinished: usize,
    /// Payload that arrived at clients.
    pub down_bytes: u64,
    /// Payload that clients sent.
    pub up_bytes: u64,
    /// Time to first byte.
    pub ttfb_ms: Option<Figure>,
    /// Time to last byte, of complete streams.
    pub ttlb_ms: Option<Figure>,
    /// From request to answer.
    pub rtt_ms: Option<Figure>,
    /// Of complete streams.
    pub goodput_mbit: Option<Figure>,
}

/// Numbers and times of clients' circuits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Circuits {
    /// Circuits that were launched.
    pub count: usize,
    /// Circuits that were built.
    pub built: usize,
    /// Build time.
    pub build_ms: Option<Figure>,
    /// From BEGIN to CONNECTED, over streams.
    pub round_trip_ms: Option<Figure>,
}

/// One arm.
#[derive(Clone, Debug, Serialize)]
pub struct OfArm {
    /// Its name.
    pub arm: String,
    /// Number of repetitions.
    pub repetitions: usize,
    /// Time of all of them, seconds.
    pub simulated_s: f64,
    /// Relays of a network.
    pub relays: usize,
    /// Clients of a network.
    pub clients: usize,
    /// All repetitions together.
    pub streams: Streams,
    /// Bytes of cells that relays wrote to links.
    pub relayed_bytes: u64,
    /// Discrete events.
    pub events: u64,
    /// All repetitions together.
    pub circuits: Circuits,
    /// The arm's streams by model, in order of names.
    pub models: Vec<OfModel>,
    /// Streams of each repetition.
    #[serde(skip)]
    pub(super) each: Vec<Summary>,
}

/// Users of one model in one arm.
#[derive(Clone, Debug, Serialize)]
pub struct OfModel {
    /// Its name.
    pub model: String,
    /// Their streams in all repetitions.
    pub streams: Streams,
    /// In each repetition.
    #[serde(skip)]
    pub(super) each: Vec<Summary>,
}

impl From<Summary> for Streams {
    fn from(summary: Summary) -> Streams {
        Streams {
            count: summary.streams,
            complete: summary.complete,
            failed: summary.failed,
            unfinished: summary.streams - summary.complete - summary.failed,
            down_bytes: summary.down_bytes,
            up_bytes: summary.up_bytes,
            ttfb_ms: summary.ttfb_ms,
            ttlb_ms: summary.ttlb_ms,
            rtt_ms: summary.rtt_ms,
            goodput_mbit: summary.goodput_mbit,
        }
    }
}

impl Circuits {
    /// Of these.
    pub(super) fn of<'a>(circuits: impl Iterator<Item = &'a CircuitResults>) -> Circuits {
        let (mut count, mut builds, mut round_trips) = (0, Vec::new(), Vec::new());
        for circuit in circuits {
            count += 1;
            builds.extend(circuit.built.map(|time| time.as_secs_f64() * 1e3));
            let own = circuit.round_trips.iter();
            round_trips.extend(own.map(|time| time.as_secs_f64() * 1e3));
        }
        Circuits {
            count,
            built: builds.len(),
            build_ms: Figure::of(&builds),
            round_trip_ms: Figure::of(&round_trips),
        }
    }
}

/// A job without results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedJob {
    /// The job.
    pub job: Job,
    /// The error.
    pub why: String,
}

/// Results of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The job.
    pub job: Job,
    /// Number of clients.
    pub clients: usize,
    /// Without its streams.
    pub results: weft_virtual::Results,
    /// These are in a file of their own.
    #[serde(skip)]
    pub streams: Vec<Record>,
}

impl Outcome {
    /// Rounds results to what a folder can hold: records have microseconds, a part of the time has
    /// six decimals, a weight nine. So a run that is merged from folders equals one that measured
    /// everything.
    fn of(job: Job, measured: Measured) -> Result<Outcome> {
        let Measured {
            clients,
            mut results,
        } = measured;
        let streams = std::mem::take(&mut results.streams);
        let streams = json_lines(&streams).and_then(|lines| from_json_lines(&lines));
        for relay in &mut results.relays {
            relay.busy = (relay.busy * 1e6).round() / 1e6;
            for weight in &mut relay.weights {
                *weight = (*weight * 1e9).round() / 1e9;
            }
        }
        Ok(Outcome {
            job,
            clients,
            results,
            streams: streams.context("writing JSON")?,
        })
    }

    /// It came to its end.
    pub(super) fn is_whole(&self, duration_s: f64) -> bool {
        self.results.simulated.as_secs_f64() >= duration_s
    }
}

impl Results {
    /// Shortest interval at which partial results are written: the files may be large.
    pub(super) const KEPT_EVERY: Duration = Duration::from_secs(10);

    /// Without measurements.
    pub(super) fn new(
        source: &Source,
        testbed: Testbed,
        seed: u64,
        threads: usize,
        jobs: Vec<Job>,
    ) -> Results {
        let duration_s = source.scenario.duration.as_secs_f64();
        let (scenario, text) = (source.name.clone(), source.text.clone());
        Results {
            threads,
            ..Results::empty(scenario, text, testbed, seed, duration_s, jobs)
        }
    }

    /// Without measurements, and without the scenario.
    pub(super) fn empty(
        scenario: String,
        text: String,
        testbed: Testbed,
        seed: u64,
        duration_s: f64,
        jobs: Vec<Job>,
    ) -> Results {
        Results {
            schema: SCHEMA,
            scenario,
            testbed,
            seed,
            finished: false,
            duration_s,
            simulated_s: 0.0,
            elapsed_s: 0.0,
            peak_rss_bytes: 0,
            relays: 0,
            clients: 0,
            streams: Summary::of([]).into(),
            relayed_bytes: 0,
            events: 0,
            circuits: Circuits::of([].iter()),
            threads: 0,
            arms: Vec::new(),
            jobs,
            failures: Vec::new(),
            parts: Vec::new(),
            text,
            outcomes: Vec::new(),
        }
    }

    /// The outcomes of an arm.
    pub(super) fn of_arm<'a>(&'a self, arm: &'a OfArm) -> impl Iterator<Item = &'a Outcome> {
        let outcomes = self.outcomes.iter();
        outcomes.filter(|outcome| outcome.job.arm == arm.arm)
    }

    /// Some job measured something.
    pub(super) fn has_outcome(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// Adds the results of a job. Numbers are made of it by [`sum_up`](Self::sum_up).
    pub(super) fn add(&mut self, (job, outcome): (Job, Result<Measured>)) {
        let whose = job.clone();
        match outcome.and_then(|measured| Outcome::of(job, measured)) {
            Ok(outcome) => self.push(outcome),
            Err(error) => {
                self.failures.push(FailedJob {
                    job: whose,
                    why: format!("{error:#}"),
                });
                self.failures.sort_by(|one, other| one.job.cmp(&other.job));
            }
        }
    }

    /// Adds an outcome at its place.
    pub(super) fn push(&mut self, outcome: Outcome) {
        let place = self
            .outcomes
            .partition_point(|other| other.job < outcome.job);
        self.outcomes.insert(place, outcome);
    }

    /// Jobs that have no results, or not of their whole time: what is missing, in words.
    pub(super) fn missing(&self) -> Vec<String> {
        let name = |job: &Job| format!("{}, repetition {}", job.arm, job.repetition);
        let missing = self.jobs.iter().filter_map(|job| {
            let failed = self.failures.iter().find(|one| one.job == *job);
            let outcome = self.outcomes.iter().find(|one| one.job == *job);
            match (failed, outcome) {
                (Some(failed), _) => Some(format!("{} failed: {}", name(job), failed.why)),
                (None, None) => Some(format!("{} was not run.", name(job))),
                (None, Some(outcome)) if !outcome.is_whole(self.duration_s) => Some(format!(
                    "{} ended after {} of {} s.",
                    name(job),
                    outcome.results.simulated.as_secs_f64(),
                    self.duration_s
                )),
                (None, Some(_)) => None,
            }
        });
        missing.collect()
    }
}
