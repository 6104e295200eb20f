//! Measurements of one job, as far as they are needed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use weft_model::traffic::Record;
use weft_model::traffic::records::Outcome;
use weft_virtual::Results;
use weft_virtual::results::{RelayResults, TunnelResults};

use super::part::BULK;
use super::relays::SLOW_BELOW;
use crate::comparison::censored::Time;

/// One repetition of one arm of one part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Streams that began after the warm-up, by the name of their users' model.
    pub(super) streams: BTreeMap<String, Streams>,
    /// Bulk clients' shares of fast relays, and of slow ones. `None` if they were not recorded.
    pub(super) shares: Option<[Share; 2]>,
    /// Throughput of bulk clients' circuits, megabits per second, each byte once.
    pub(super) bulk_mbit: Option<f64>,
    pub(super) tunnels: Tunnels,
}

/// Streams of users with one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Streams {
    /// To the first byte, of all that did not fail before it.
    pub(super) first: Vec<Time>,
    /// To the last byte, of all that did not fail.
    pub(super) last: Vec<Time>,
    /// Megabits per second, of those that are complete.
    pub(super) goodput: Vec<f64>,
    pub(super) counts: Counts,
}

/// Streams by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Complete ones.
    pub(super) downloads: u64,
    pub(super) failed: u64,
    /// Not over when the run was.
    pub(super) open: u64,
}

impl Counts {
    /// Adds another's.
    pub(super) fn add(&mut self, other: Counts) {
        self.downloads += other.downloads;
        self.failed += other.failed;
        self.open += other.open;
    }
}

/// Counters of clients' tunnels; `None` if they were not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tunnels {
    /// Legs that were launched.
    pub(super) launched: Option<u64>,
    /// Of these, those in place of others.
    pub(super) replaced: Option<u64>,
    /// Streams that should have had a tunnel and got another circuit.
    pub(super) without: Option<u64>,
    /// The most that one tunnel's end at a client held because it had arrived too early, bytes.
    pub(super) reorder_bytes_max: Option<u64>,
}

impl From<TunnelResults> for Tunnels {
    fn from(results: TunnelResults) -> Tunnels {
        Tunnels {
            launched: Some(results.legs),
            replaced: Some(results.replaced),
            without: Some(results.without),
            reorder_bytes_max: Some(results.reorder_bytes_max),
        }
    }
}

impl Tunnels {
    /// Adds another's.
    pub(super) fn add(&mut self, other: Tunnels) {
        let sum = |one: Option<u64>, other: Option<u64>| {
            one.map_or(other, |one| Some(one + other.unwrap_or(0)))
        };
        self.launched = sum(self.launched, other.launched);
        self.replaced = sum(self.replaced, other.replaced);
        self.without = sum(self.without, other.without);
        self.reorder_bytes_max = self.reorder_bytes_max.max(other.reorder_bytes_max);
    }
}

/// Of the relays of one kind, what bulk clients' circuits carried, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    /// Of the bandwidth that these relays have.
    pub(super) of_capacity: f64,
    /// Of what all clients' circuits carried over them.
    pub(super) of_carried: f64,
}

impl Sample {
    /// Of a job that came to its end, from that time on.
    pub(super) fn of(results: &Results, from: Duration) -> Sample {
        let mut sample = Sample {
            tunnels: results.tunnels.map_or_else(Tunnels::default, Tunnels::from),
            ..Sample::default()
        };
        let records = results.streams.iter();
        for record in records.filter(|record| record.started >= from) {
            let of_model = sample.streams.entry(record.model.clone()).or_default();
            of_model.add(record);
        }
        let intervals: Vec<usize> = results.intervals(from).collect();
        let seconds = results.interval.as_secs_f64() * intervals.len() as f64;
        sample.shares = shares(&results.relays, &intervals, seconds);
        sample.bulk_mbit = bulk_mbit(&results.relays, &intervals, seconds);
        sample
    }
}

impl Streams {
    fn add(&mut self, record: &Record) {
        let is_failed = matches!(record.outcome, Outcome::Failed(_));
        self.counts.failed += u64::from(is_failed);
        self.counts.open += u64::from(record.outcome == Outcome::Unfinished);
        let first = record.time_to_first_byte();
        if first.is_some() || !is_failed {
            self.first.push(Time::until(first, record.ended));
        }
        if is_failed {
            return;
        }
        let last = record.time_to_last_byte();
        self.last.push(Time::until(last, record.ended));
        if let Some(took) = last {
            self.counts.downloads += 1;
            let bits = record.times.down.bytes as f64 * 8.0;
            self.goodput
                .push(bits * 1e-6 / took.as_secs_f64().max(1e-9));
        }
    }
}

fn sum(carried: Option<&Vec<u64>>, intervals: &[usize]) -> f64 {
    let carried = carried.map_or(&[][..], Vec::as_slice);
    let each = intervals.iter().filter_map(|number| carried.get(*number));
    each.map(|bytes| *bytes as f64).sum()
}

/// Of fast relays, and of slow ones. A relay that has carried a byte has read it from one line and written it to another, which
/// takes its bandwidth once.
fn shares(relays: &[RelayResults], intervals: &[usize], seconds: f64) -> Option<[Share; 2]> {
    if relays.iter().all(|relay| relay.carried.is_empty()) {
        return None;
    }
    let of = |is_slow: bool| {
        let (mut bulk, mut all, mut capacity) = (0.0, 0.0, 0.0);
        let kind = relays
            .iter()
            .filter(|relay| (relay.bandwidth < SLOW_BELOW) == is_slow);
        for relay in kind {
            bulk += sum(relay.carried.get(BULK), intervals);
            all += relay
                .carried
                .values()
                .map(|each| sum(Some(each), intervals))
                .sum::<f64>();
            capacity += relay.rate as f64;
        }
        let percent = |of: f64| if of > 0.0 { bulk * 100.0 / of } else { 0.0 };
        Share {
            of_capacity: percent(capacity * seconds),
            of_carried: percent(all),
        }
    };
    Some([of(false), of(true)])
}

/// Each byte crosses three relays.
fn bulk_mbit(relays: &[RelayResults], intervals: &[usize], seconds: f64) -> Option<f64> {
    if seconds <= 0.0 || relays.iter().all(|relay| relay.carried.is_empty()) {
        return None;
    }
    let bytes: f64 = relays
        .iter()
        .map(|relay| sum(relay.carried.get(BULK), intervals))
        .sum();
    Some(bytes / 3.0 * 8e-6 / seconds)
}
