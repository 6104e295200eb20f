//! Numbers of an arm over its repetitions, and how they differ from those of the base in the same repetition.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_stats::Spread;

use super::censored::{Time, quantiles};
use crate::report::Values;

/// The percentiles that are reported, with their names.
pub(crate) const PERCENTILES: [(&str, f64); 4] =
    [("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];
/// The mean.
pub(crate) const MEAN: &str = "mean";
/// The standard deviation within a repetition.
pub(crate) const STDDEV: &str = "stddev";

/// Numbers by name; `None`: not known, as too few streams were over.
pub(crate) type Numbers = BTreeMap<&'static str, Option<f64>>;

/// A quantity over the repetitions of an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Quantity {
    /// Means over repetitions.
    #[serde(flatten)]
    pub(crate) means: Numbers,
    /// Halves of their 95 % intervals; `None` for one repetition.
    pub(crate) ci95: Numbers,
}

impl Quantity {
    /// A mean over a number of repetitions, with its interval if there is one.
    pub(crate) fn value(&self, name: &str, repetitions: usize) -> Values {
        match (self.mean(name), self.interval(name)) {
            (Some(mean), Some(ci95)) => Values::mean(mean, ci95, repetitions),
            (Some(mean), None) => Values::one(mean),
            (None, _) => Values::None,
        }
    }

    /// The mean of this number.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        self.means.get(name).copied().flatten()
    }

    /// Half of the interval of this number.
    pub(crate) fn interval(&self, name: &str) -> Option<f64> {
        self.ci95.get(name).copied().flatten()
    }
}

/// The percentiles of times, in their unit.
pub(crate) fn times(times: &[Time]) -> Numbers {
    let shares = PERCENTILES.map(|(_, share)| share);
    let names = PERCENTILES.iter().map(|(name, _)| *name);
    names.zip(quantiles(times, &shares)).collect()
}

/// Mean and interval of each number. One that a repetition does not have has neither: the others' mean would be that of
/// repetitions that went well.
pub(crate) fn over_repetitions(each: &[Numbers]) -> Quantity {
    let mut quantity = Quantity::default();
    let names = each.first().into_iter().flat_map(Numbers::keys);
    for name in names.copied() {
        let known = each
            .iter()
            .map(|numbers| numbers.get(name).copied().flatten());
        let known: Option<Vec<f64>> = known.collect();
        let spread = known.and_then(|numbers| Spread::of(&numbers));
        let ci95 = spread.and_then(|spread| spread.ci95);
        quantity
            .means
            .insert(name, spread.map(|spread| spread.mean));
        quantity.ci95.insert(name, ci95);
    }
    quantity
}

/// Of each number, the change against the base's, in percent of it.
pub(crate) fn changes(own: &Numbers, base: &Numbers) -> Numbers {
    let change = |name: &&'static str| {
        let (own, base) = (own.get(name)?.as_ref()?, base.get(name)?.as_ref()?);
        (*base > 0.0).then(|| (own / base - 1.0) * 100.0)
    };
    own.keys().map(|name| (*name, change(name))).collect()
}
