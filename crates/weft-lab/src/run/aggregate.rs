//! The results of all jobs, by arm and model.

use std::time::Duration;

use weft_model::traffic::Record;
use weft_model::traffic::records::Summary;

use super::results::{Circuits, OfArm, OfModel, Outcome, Results, Streams};

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
    /// Makes all numbers of what was added.
    pub(super) fn sum_up(&mut self, elapsed: Duration, peak_rss_bytes: u64) {
        self.elapsed_s = elapsed.as_secs_f64();
        self.peak_rss_bytes = peak_rss_bytes;
        self.finished = self.jobs.len() == self.outcomes.len()
            && self
                .outcomes
                .iter()
                .all(|outcome| outcome.is_whole(self.duration_s));
        self.aggregate();
    }

    /// Makes all numbers from [`Results::outcomes`].
    fn aggregate(&mut self) {
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
