//! Bytes that relays of networks wrote and held over time.

use std::collections::BTreeMap;

use super::raw;
use super::results::Outcome;

/// The busiest relays that tables and plots show.
const BUSIEST: usize = 10;

/// One relay of one network.
pub(super) struct One<'a> {
    results: &'a weft_virtual::Results,
    pub(super) relay: &'a weft_virtual::results::RelayResults,
}

impl<'a> One<'a> {
    /// That of this name.
    pub(super) fn of(results: &'a weft_virtual::Results, name: &str) -> Option<One<'a>> {
        let relay = results.relays.iter().find(|relay| relay.name == name)?;
        Some(One { results, relay })
    }

    pub(super) fn bytes(&self) -> u64 {
        sum(&self.relay.written)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.results.simulated.as_secs_f64()
    }

    /// Mbit/s in each interval.
    pub(super) fn rates(&self) -> Vec<f64> {
        rates(self.results, &self.relay.written)
    }

    /// Megabytes at the end of each interval.
    pub(super) fn held(&self) -> Vec<f64> {
        megabytes(&self.relay.queued)
    }
}

/// These bytes of intervals in Mbit/s.
pub(super) fn rates(results: &weft_virtual::Results, bytes: &[u64]) -> Vec<f64> {
    let rates = bytes.iter().enumerate().filter_map(|(number, bytes)| {
        let (from, to) = raw::interval(results, number);
        let seconds = to.saturating_sub(from).as_secs_f64();
        (seconds > 0.0).then(|| *bytes as f64 * 8e-6 / seconds)
    });
    rates.collect()
}

/// These bytes in megabytes.
pub(super) fn megabytes(bytes: &[u64]) -> Vec<f64> {
    bytes.iter().map(|bytes| *bytes as f64 * 1e-6).collect()
}

/// The sum of a series.
fn sum(series: &[u64]) -> u64 {
    series.iter().copied().fold(0, u64::saturating_add)
}

/// The sum of several series.
pub(super) fn total<'a>(series: impl Iterator<Item = &'a Vec<u64>>) -> Vec<u64> {
    let mut total = Vec::new();
    for one in series {
        total.resize(total.len().max(one.len()), 0);
        for (sum, number) in total.iter_mut().zip(one) {
            *sum = u64::saturating_add(*sum, *number);
        }
    }
    total
}

/// The names of the relays that wrote most in these networks together.
pub(super) fn busiest<'a>(outcomes: &[&'a Outcome]) -> Vec<&'a str> {
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for relay in outcomes.iter().flat_map(|one| &one.results.relays) {
        let bytes = bytes.entry(&relay.name).or_default();
        *bytes = u64::saturating_add(*bytes, sum(&relay.written));
    }
    let mut names: Vec<(&str, u64)> = bytes.into_iter().collect();
    // Stable: names of the same number of bytes stay in order.
    names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let names = names.into_iter().take(BUSIEST);
    names.map(|(name, _)| name).collect()
}
