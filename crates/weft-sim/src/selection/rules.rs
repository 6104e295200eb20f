//! Rules by which a client accepts a circuit, from its knowledge when the circuit is built.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use weft_path::{BuildTimes, BuildTimesOptions, CbtParams, RoundTrips};
use weft_stats::quantile;

use super::tuples::Tuple;

/// Method that finds the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// As a client does it: circuit by circuit, by estimates from the last thousand (a Pareto
    /// distribution of build times, a generalized extreme value distribution of round trips). All
    /// circuits before the first estimate are used.
    #[default]
    Learnt,
    /// By rank among all circuits (Schrock 2017, 4.3 filters "to only contain the top 80 % of circuits").
    Ranked,
}

/// For each circuit, whether it is used: by its build time, and by its round trip. Limits are each client's own.
pub(super) fn accepted(tuples: &[Tuple], share: f64, limit: Limit) -> (Vec<bool>, Vec<bool>) {
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, tuple) in tuples.iter().enumerate() {
        places.entry(tuple.client).or_default().push(place);
    }
    let mut all = (vec![false; tuples.len()], vec![false; tuples.len()]);
    for places in places.values() {
        let own: Vec<Tuple> = (places.iter())
            .filter_map(|place| tuples.get(*place).copied())
            .collect();
        let (build, trip) = of_client(&own, share, limit);
        for ((place, build), trip) in places.iter().zip(build).zip(trip) {
            all.0[*place] = build;
            all.1[*place] = trip;
        }
    }
    all
}

fn of_client(tuples: &[Tuple], share: f64, limit: Limit) -> (Vec<bool>, Vec<bool>) {
    match limit {
        Limit::Learnt => (by_build_time(tuples, share), by_round_trip(tuples, share)),
        Limit::Ranked => (
            ranked(tuples, share, |tuple| tuple.build_ms),
            ranked(tuples, share, |tuple| tuple.rtt_ms),
        ),
    }
}

fn ranked(tuples: &[Tuple], share: f64, of: impl Fn(&Tuple) -> f64) -> Vec<bool> {
    let all: Vec<f64> = tuples.iter().map(&of).collect();
    let limit = quantile(&all, share).unwrap_or(f64::INFINITY);
    all.iter().map(|time| *time <= limit).collect()
}

fn by_build_time(tuples: &[Tuple], share: f64) -> Vec<bool> {
    let options = BuildTimesOptions {
        quantile: Some(share),
        ..BuildTimesOptions::default()
    };
    let mut times = BuildTimes::new(options, CbtParams::default());
    let decide = |tuple: &Tuple| {
        let time = duration(tuple.build_ms);
        let in_time = !times.is_computed() || time <= times.timeout();
        if !in_time {
            times.note_timeout(true);
        }
        // Late circuits are built to their end, to measure their build time.
        times.note_built(time, in_time);
        in_time
    };
    tuples.iter().map(decide).collect()
}

fn by_round_trip(tuples: &[Tuple], share: f64) -> Vec<bool> {
    let mut times = RoundTrips::new(share);
    let decide = |tuple: &Tuple| times.note(duration(tuple.rtt_ms));
    tuples.iter().map(decide).collect()
}

fn duration(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1e3).unwrap_or(Duration::MAX)
}
