//! The results of all jobs, by arm and model.

use serde::Serialize;
use weft_model::traffic::Record;
use weft_model::traffic::records::{Figure, Summary};
use weft_virtual::results::CircuitResults;

use super::results::{Outcome, Results};

/// How many streams went how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Streams {
    /// How many began.
    pub count: usize,
    /// Those of which all bytes arrived.
    pub complete: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that were open at the end.
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

/// How circuits of clients went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Circuits {
    /// How many were launched.
    pub count: usize,
    /// How many of them were built.
    pub built: usize,
    /// How long that took.
    pub build_ms: Option<Figure>,
    /// From BEGIN to CONNECTED, over streams.
    pub round_trip_ms: Option<Figure>,
}

/// One arm.
#[derive(Clone, Debug, Serialize)]
pub struct OfArm {
    /// Its name.
    pub arm: String,
    /// How many repetitions it has.
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
    /// The same streams by model, in order of names.
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

/// The sum over outcomes.
fn sum(outcomes: &[&Outcome], of: impl Fn(&Outcome) -> u64) -> u64 {
    let numbers = outcomes.iter().map(|outcome| of(outcome));
    numbers.fold(0, u64::saturating_add)
}

fn most(outcomes: &[&Outcome], of: impl Fn(&Outcome) -> usize) -> usize {
    outcomes
        .iter()
        .map(|outcome| of(outcome))
        .max()
        .unwrap_or(0)
}

fn simulated_s(outcomes: &[&Outcome]) -> f64 {
    let times = outcomes.iter().map(|outcome| outcome.results.simulated);
    times.map(|time| time.as_secs_f64()).sum()
}

fn circuits(outcomes: &[&Outcome]) -> Circuits {
    Circuits::of(outcomes.iter().flat_map(|one| &one.results.circuits))
}

/// The streams of these that are wanted: of each outcome, and of all.
fn streams(outcomes: &[&Outcome], is_wanted: impl Fn(&Record) -> bool) -> (Vec<Summary>, Streams) {
    let of = |outcome: &Outcome| Summary::of(outcome.streams.iter().filter(|one| is_wanted(one)));
    let each = outcomes.iter().map(|outcome| of(outcome)).collect();
    let all = outcomes.iter().flat_map(|outcome| &outcome.streams);
    let all = Summary::of(all.filter(|one| is_wanted(one)));
    (each, all.into())
}

impl OfArm {
    fn of(arm: &str, outcomes: &[&Outcome]) -> OfArm {
        let records = || outcomes.iter().flat_map(|outcome| &outcome.streams);
        let mut names: Vec<&str> = records().map(|record| &*record.model).collect();
        names.sort_unstable();
        names.dedup();
        let models = names.into_iter().map(|name| {
            let (each, streams) = streams(outcomes, |record| record.model == name);
            OfModel {
                model: name.to_owned(),
                streams,
                each,
            }
        });
        let (each, all) = streams(outcomes, |_| true);
        OfArm {
            arm: arm.to_owned(),
            repetitions: outcomes.len(),
            simulated_s: simulated_s(outcomes),
            relays: most(outcomes, |one| one.results.relays.len()),
            clients: most(outcomes, |one| one.clients),
            streams: all,
            relayed_bytes: sum(outcomes, |one| one.results.relayed_bytes),
            events: sum(outcomes, |one| one.results.events),
            circuits: circuits(outcomes),
            models: models.collect(),
            each,
        }
    }
}

impl Results {
    /// Makes all numbers from [`Results::outcomes`].
    pub(super) fn aggregate(&mut self) {
        let all: Vec<&Outcome> = self.outcomes.iter().collect();
        let (_, streams) = streams(&all, |_| true);
        let mut arms: Vec<(usize, &str)> = Vec::new();
        for outcome in &all {
            let arm = (outcome.job.arm_number, &*outcome.job.arm);
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
        arms.sort_unstable();
        let arms = arms.into_iter().map(|(number, arm)| {
            let own = all.iter().filter(|one| one.job.arm_number == number);
            let own: Vec<&Outcome> = own.copied().collect();
            OfArm::of(arm, &own)
        });
        let arms: Vec<OfArm> = arms.collect();
        let numbers = (
            simulated_s(&all),
            most(&all, |one| one.results.relays.len()),
            most(&all, |one| one.clients),
            sum(&all, |one| one.results.relayed_bytes),
            sum(&all, |one| one.results.events),
            circuits(&all),
        );
        (
            self.simulated_s,
            self.relays,
            self.clients,
            self.relayed_bytes,
            self.events,
            self.circuits,
        ) = numbers;
        (self.streams, self.arms) = (streams, arms);
    }
}
