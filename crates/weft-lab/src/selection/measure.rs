//! Measurements of one job, as far as the metrics need them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use weft_model::traffic::Record;
use weft_model::traffic::records::Outcome;
use weft_sim::compromise::abra::pools::{Network, Pools, Relay};
use weft_virtual::Results;
use weft_virtual::results::MeasuredCircuit;

use super::plan::{BULK, MEASURE, WEB};
use crate::comparison::censored::Time;

/// One repetition of one arm, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Bytes that all relays wrote to links and destinations, in each interval that lies after the warm-up as a whole.
    pub(super) relayed: Vec<f64>,
    /// Of these bytes, those of relays whose bandwidth was scarce at the interval's end, in percent. Where nobody asks, none
    /// measures that.
    pub(super) scarce: Option<f64>,
    /// To the first byte, of all streams that began after the warm-up and did not fail before it.
    pub(super) ttfb: Vec<Time>,
    /// To the last byte, of web clients' streams that began after the warm-up and did not fail.
    pub(super) web: Vec<Time>,
    /// To the last byte, of bulk clients' streams that began after the warm-up and did not fail.
    pub(super) bulk: Vec<Time>,
    pub(super) counts: Counts,
    /// Of the streams whose circuits were built and which were connected, the warm-up included, how many were on circuits that begin and end at
    /// the adversary's relays, in percent. `None`: there is no adversary, or no stream.
    pub(super) compromised: Option<f64>,
    /// Circuits that were launched after the warm-up and measured.
    pub(super) measured: Vec<MeasuredCircuit>,
    /// Choices that were recorded.
    pub(super) pools: Option<Pools>,
}

/// Numbers of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Streams that began after the warm-up.
    pub(super) streams: u64,
    /// Of these, failed.
    pub(super) failed: u64,
    /// Of these, open at the end.
    pub(super) open: u64,
    /// Circuits of clients that were launched, the warm-up included.
    pub(super) circuits_launched: u64,
    /// Of these, built.
    pub(super) circuits_built: u64,
    /// Of these, used by a stream.
    pub(super) circuits_used: u64,
}

impl Sample {
    /// Of a job that came to its end.
    pub(super) fn of(results: &Results, warm_up: Duration) -> Sample {
        let mut sample = Sample {
            relayed: relayed(results, warm_up),
            scarce: scarce(results, warm_up),
            compromised: compromised(results),
            pools: pools(results),
            ..Sample::default()
        };
        // Clients that measure are no users.
        let (measuring, users): (Vec<&Record>, Vec<&Record>) =
            (results.streams.iter()).partition(|record| record.model == MEASURE);
        let measuring: BTreeSet<&str> = measuring.iter().map(|one| one.client.as_str()).collect();
        let counted = users.into_iter();
        for record in counted.filter(|record| record.started >= warm_up) {
            sample.add(record);
        }
        let measured = results.measured.iter();
        sample.measured = measured
            .filter(|one| one.began >= warm_up)
            .cloned()
            .collect();
        let counts = &mut sample.counts;
        let circuits = results.circuits.iter();
        for circuit in circuits.filter(|one| !measuring.contains(one.client.as_str())) {
            counts.circuits_launched += 1;
            counts.circuits_built += u64::from(circuit.built.is_some());
            counts.circuits_used += u64::from(!circuit.round_trips.is_empty());
        }
        sample
    }

    fn add(&mut self, record: &Record) {
        let is_failed = matches!(record.outcome, Outcome::Failed(_));
        self.counts.streams += 1;
        self.counts.failed += u64::from(is_failed);
        self.counts.open += u64::from(record.outcome == Outcome::Unfinished);
        let first = record.time_to_first_byte();
        if first.is_some() || !is_failed {
            self.ttfb.push(time(first, record.ended));
        }
        let of_model = match record.model.as_str() {
            WEB => &mut self.web,
            BULK => &mut self.bulk,
            _ => return,
        };
        if !is_failed {
            of_model.push(time(record.time_to_last_byte(), record.ended));
        }
    }
}

/// In milliseconds.
fn time(known: Option<Duration>, ended: Duration) -> Time {
    let time = Time::until(known, ended);
    Time {
        took: time.took * 1e3,
        ..time
    }
}

fn relayed(results: &Results, warm_up: Duration) -> Vec<f64> {
    let sums = results.intervals(warm_up).map(|number| {
        let written = results.relays.iter();
        let written = written.filter_map(|relay| relay.written.get(number));
        written.map(|bytes| *bytes as f64).sum()
    });
    sums.collect()
}

fn scarce(results: &Results, warm_up: Duration) -> Option<f64> {
    let (mut all, mut scarce) = (0.0, 0.0);
    for number in results.intervals(warm_up) {
        for relay in &results.relays {
            let written = relay.written.get(number).copied().unwrap_or(0) as f64;
            let weight = relay.weights.get(number).copied().unwrap_or(0.0);
            all += written;
            scarce += if weight > 0.0 { written } else { 0.0 };
        }
    }
    (all > 0.0).then(|| scarce * 100.0 / all)
}

fn compromised(results: &Results) -> Option<f64> {
    let theirs = results.relays.iter().filter(|relay| relay.adversary);
    let theirs: BTreeSet<&str> = theirs.map(|relay| relay.name.as_str()).collect();
    if theirs.is_empty() {
        return None;
    }
    let (mut streams, mut seen) = (0_usize, 0_usize);
    let measuring = results.measured.iter();
    let measuring: BTreeSet<&str> = measuring.map(|one| one.client.as_str()).collect();
    let circuits = results.circuits.iter();
    for circuit in circuits.filter(|one| !measuring.contains(one.client.as_str())) {
        let has = |relay: Option<&String>| relay.is_some_and(|name| theirs.contains(name.as_str()));
        streams += circuit.round_trips.len();
        if has(circuit.path.first()) && has(circuit.path.last()) {
            seen += circuit.round_trips.len();
        }
    }
    (streams > 0).then(|| seen as f64 * 100.0 / streams as f64)
}

fn pools(results: &Results) -> Option<Pools> {
    let relays = results.relays.iter().map(|relay| Relay {
        name: relay.name.clone(),
        bandwidth: relay.bandwidth,
        adversary: relay.adversary,
    });
    (!results.choices.is_empty()).then(|| Pools {
        network: Network {
            relays: relays.collect(),
        },
        choices: results.choices.clone(),
    })
}
