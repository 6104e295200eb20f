//! Numbers of arms, and how they differ from those of the base in the same repetition.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_stats::Spread;

use super::measure::{Counts, Sample};
use crate::comparison::censored::{Time, quantiles};
use crate::comparison::{MEAN, Numbers, Quantity, changes, over_repetitions, times};

/// The numbers of a quantity in one repetition.
type Of = fn(&Sample) -> Numbers;

/// The name of each quantity, and its numbers.
pub(super) const QUANTITIES: [(&str, Of); 4] = [
    ("relayed_bytes", |sample| relayed(&sample.relayed)),
    ("ttfb_ms", |sample| times(&sample.ttfb)),
    ("web_ms", |sample| times(&sample.web)),
    ("bulk_ms", |sample| times(&sample.bulk)),
];

/// An arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct OfArm {
    /// By the names of [`QUANTITIES`].
    #[serde(flatten)]
    pub(super) quantities: BTreeMap<&'static str, Quantity>,
    /// Change of each quantity, in percent of the base's, paired by repetition.
    pub(super) change_percent: BTreeMap<&'static str, Quantity>,
    /// Percentiles, of 0.5 to 99.5, at which the time to the first byte is longer than the base's,
    /// in percent of those that are known of either; paired by repetition.
    pub(super) worse_percent: Quantity,
    /// Bytes of relays whose bandwidth was scarce, in percent of all.
    pub(super) scarce_percent: Option<Quantity>,
    /// Streams on circuits that begin and end at the adversary's relays, in percent, where there is one.
    pub(super) compromised_percent: Option<Quantity>,
    pub(super) counts: Counts,
    /// Repetitions that came to their end.
    pub(super) repetitions: usize,
    /// The numbers of each of them: one network can decide a mean.
    pub(super) by_repetition: BTreeMap<u32, BTreeMap<&'static str, Numbers>>,
}

/// Samples of an arm by repetition.
pub(super) type Samples = BTreeMap<u32, Sample>;

impl OfArm {
    /// An arm beside the base. Changes are over repetitions that both have.
    pub(super) fn of(own: &Samples, base: &Samples) -> OfArm {
        let pairs = || {
            let both = own.iter();
            both.filter_map(move |(repetition, own)| Some((own, base.get(repetition)?)))
        };
        let mut arm = OfArm {
            repetitions: own.len(),
            by_repetition: own
                .iter()
                .map(|(number, own)| (*number, all(own)))
                .collect(),
            ..OfArm::default()
        };
        for (name, numbers) in QUANTITIES {
            let each: Vec<Numbers> = own.values().map(numbers).collect();
            arm.quantities.insert(name, over_repetitions(&each));
            let changes = pairs().map(|(own, base)| changes(&numbers(own), &numbers(base)));
            let changes: Vec<Numbers> = changes.collect();
            arm.change_percent.insert(name, over_repetitions(&changes));
        }
        let worse = pairs().map(|(own, base)| {
            let worse = worse_percent(&own.ttfb, &base.ttfb);
            Numbers::from([(MEAN, worse)])
        });
        arm.worse_percent = over_repetitions(&worse.collect::<Vec<Numbers>>());
        arm.scarce_percent = shares(own, |sample| sample.scarce);
        arm.compromised_percent = shares(own, |sample| sample.compromised);
        for Sample { counts, .. } in own.values() {
            let sum = &mut arm.counts;
            sum.streams += counts.streams;
            sum.failed += counts.failed;
            sum.open += counts.open;
            sum.circuits_launched += counts.circuits_launched;
            sum.circuits_built += counts.circuits_built;
            sum.circuits_used += counts.circuits_used;
        }
        arm
    }
}

fn all(sample: &Sample) -> BTreeMap<&'static str, Numbers> {
    let each = QUANTITIES.iter();
    each.map(|(name, numbers)| (*name, numbers(sample)))
        .collect()
}

/// Of the repetitions that have it.
fn shares(samples: &Samples, of: fn(&Sample) -> Option<f64>) -> Option<Quantity> {
    let known = samples.values().filter_map(of);
    let known = known.map(|share| Numbers::from([(MEAN, Some(share))]));
    let known: Vec<Numbers> = known.collect();
    (!known.is_empty()).then(|| over_repetitions(&known))
}

fn relayed(intervals: &[f64]) -> Numbers {
    let over = |&ms: &f64| Time {
        took: ms,
        is_over: true,
    };
    let mut numbers = times(&intervals.iter().map(over).collect::<Vec<Time>>());
    let mean = Spread::of(intervals).map(|spread| spread.mean);
    numbers.insert(MEAN, mean);
    numbers
}

/// See [`OfArm::worse_percent`]. A percentile that only the base has is worse.
pub(super) fn worse_percent(own: &[Time], base: &[Time]) -> Option<f64> {
    let shares: Vec<f64> = (0..100)
        .map(|number| (f64::from(number) + 0.5) / 100.0)
        .collect();
    let (own, base) = (quantiles(own, &shares), quantiles(base, &shares));
    let (mut known, mut worse) = (0_u32, 0_u32);
    for (own, base) in own.iter().zip(&base) {
        let is_worse = match (own, base) {
            (None, None) => continue,
            (Some(own), Some(base)) => own > base,
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        known += 1;
        worse += u32::from(is_worse);
    }
    (known > 0).then(|| f64::from(worse) * 100.0 / f64::from(known))
}
