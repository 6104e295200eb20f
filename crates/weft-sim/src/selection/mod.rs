//! Circuits that a client uses by their build time, by their round trip, or by both, and the gains
//! in latency and bandwidth (Schrock 2017, 4, Tables 1 and 2; Annessi and Schmiedecker 2016).

mod figure;
mod rules;
pub mod synthetic;
pub mod tuples;

use std::collections::BTreeMap;

use rand::RngExt as _;
use serde::Serialize;
use weft_path::Gev;
use weft_stats::bounds::Bounds;
use weft_stats::quantile;

pub use rules::Limit;
pub use tuples::{Tuple, TuplesError};

use crate::parallel;
use crate::random::generator;

/// Tables 1 and 2 of Schrock 2017, for 80 %.
pub mod paper {
    /// Median latency with build times and with round trips, milliseconds.
    pub const LATENCY_P50: (f64, f64) = (309.0, 300.0);
    /// The 90th percentile.
    pub const LATENCY_P90: (f64, f64) = (541.0, 499.0);
    /// Median bandwidth, Mbit/s.
    pub const BANDWIDTH_P50: (f64, f64) = (3.24, 3.30);
    /// Bandwidth that 90 % of circuits have at least, Mbit/s.
    pub const BANDWIDTH_P90: (f64, f64) = (1.10, 1.14);
}

/// Circuits of a synthetic network.
pub const CIRCUITS: Bounds<usize> = Bounds::new(100, 5_000_000);
/// The share of circuits to use.
pub const QUANTILE: Bounds<f64> = Bounds::new(0.01, 0.99);
/// Samples of the bootstrap.
pub const RESAMPLES: Bounds<usize> = Bounds::new(40, 100_000);

/// Options of [`compare`].
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The share of circuits to use, from 0 to 1.
    pub quantile: f64,
    /// Method that finds the limit.
    pub limit: Limit,
    /// Samples of the bootstrap.
    pub resamples: usize,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Threads; they change no number.
    #[serde(skip)]
    pub threads: usize,
}

/// Two percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// Of latency, what 90 % of circuits do not exceed; of bandwidth, what 90 % of them have at least.
    pub p90: f64,
}

/// A change in percent, with an interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Of the circuits there are.
    pub percent: f64,
    /// From the 2.5th to the 97.5th percentile over resampled circuits; if they are several clients', over resampled clients.
    pub ci95: (f64, f64),
}

impl Change {
    /// Returns true if the interval excludes zero.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.ci95.0 > 0.0 || self.ci95.1 < 0.0
    }
}

/// Changes of the four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// Median latency.
    pub latency_p50: Change,
    /// Latency of nine tenths.
    pub latency_p90: Change,
    /// Median bandwidth.
    pub bandwidth_p50: Change,
    /// Bandwidth of nine tenths.
    pub bandwidth_p90: Change,
}

/// The circuits that one rule uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfRule {
    /// Number of circuits.
    pub kept: usize,
    /// Of all, from 0 to 1.
    pub share: f64,
    /// Their latency.
    pub latency_ms: Percentiles,
    /// Their bandwidth, Mbit/s.
    pub bandwidth: Percentiles,
    /// Against build times; `None` for these themselves.
    pub change_percent: Option<Changes>,
}

/// A distribution, with the parameters of [`Gev`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GevFit {
    /// `c` of SciPy's `genextreme`; elsewhere ξ = −c.
    pub shape: f64,
    /// Milliseconds.
    pub location: f64,
    /// Milliseconds.
    pub scale: f64,
    /// The sign of the shape.
    pub convention: &'static str,
}

impl From<Gev> for GevFit {
    fn from(gev: Gev) -> GevFit {
        GevFit {
            shape: gev.shape,
            location: gev.location,
            scale: gev.scale,
            convention: "scipy.stats.genextreme",
        }
    }
}

impl GevFit {
    /// To ask for shares and quantiles.
    #[must_use]
    pub fn gev(&self) -> Gev {
        Gev {
            shape: self.shape,
            location: self.location,
            scale: self.scale,
        }
    }
}

/// Result of [`compare`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Circuits.
    pub circuits: usize,
    /// Clients that they are of.
    pub clients: usize,
    /// Options of the comparison.
    pub options: Options,
    /// By build time.
    pub cbt: OfRule,
    /// By round trip.
    pub rtt: OfRule,
    /// By both.
    pub both: OfRule,
    /// Without a rule.
    pub none: OfRule,
    /// Of all round trips; `None`: they are all equal.
    pub gev: Option<GevFit>,
    /// Of the circuits that each rule uses, in the order above: for the figure.
    #[serde(skip)]
    kept: [Vec<Tuple>; 4],
}

/// A rule uses none of these circuits.
#[derive(Debug, thiserror::Error)]
#[error("by {0} no circuit is used: {1} are too few for this share")]
pub struct NoneKept(&'static str, usize);

/// Compares the rules on these circuits, which are in the order in which they were built.
///
/// # Errors
///
/// A rule uses none.
pub fn compare(tuples: &[Tuple], options: &Options) -> Result<Report, NoneKept> {
    let (build, trip) = rules::accepted(tuples, options.quantile, options.limit);
    let both: Vec<bool> = build
        .iter()
        .zip(&trip)
        .map(|(one, other)| *one && *other)
        .collect();
    let all = vec![true; tuples.len()];
    let rules = [&build, &trip, &both, &all];
    let clients = by_client(tuples);
    let samples = resampled(tuples, &clients, rules, options);
    let base = numbers(&keep(tuples, &build));
    let of = |number: usize, name| {
        let kept = keep(tuples, rules[number]);
        let (latency_ms, bandwidth) = numbers(&kept).ok_or(NoneKept(name, tuples.len()))?;
        let change = |place: usize, value: f64, base: f64| Change {
            percent: percent(value, base),
            ci95: interval(samples.iter().filter_map(|sample| {
                let (base, value) = (sample[0]?, sample[number]?);
                Some(percent(value[place], base[place]))
            })),
        };
        let change_percent = base.filter(|_| number > 0).map(|(latency, rate)| Changes {
            latency_p50: change(0, latency_ms.p50, latency.p50),
            latency_p90: change(1, latency_ms.p90, latency.p90),
            bandwidth_p50: change(2, bandwidth.p50, rate.p50),
            bandwidth_p90: change(3, bandwidth.p90, rate.p90),
        });
        Ok(OfRule {
            kept: kept.len(),
            share: kept.len() as f64 / tuples.len() as f64,
            latency_ms,
            bandwidth,
            change_percent,
        })
    };
    let round_trips: Vec<f64> = tuples.iter().map(|tuple| tuple.rtt_ms).collect();
    Ok(Report {
        circuits: tuples.len(),
        clients: clients.len(),
        options: options.clone(),
        cbt: of(0, "build times")?,
        rtt: of(1, "round trips")?,
        both: of(2, "both")?,
        none: of(3, "no rule")?,
        gev: Gev::fit(&round_trips).map(GevFit::from),
        kept: rules.map(|rule| keep(tuples, rule)),
    })
}

fn keep(tuples: &[Tuple], rule: &[bool]) -> Vec<Tuple> {
    let kept = tuples.iter().zip(rule).filter(|(_, kept)| **kept);
    kept.map(|(tuple, _)| *tuple).collect()
}

fn numbers(kept: &[Tuple]) -> Option<(Percentiles, Percentiles)> {
    let latency: Vec<f64> = kept.iter().map(|tuple| tuple.latency_ms).collect();
    let bandwidth: Vec<f64> = kept.iter().map(|tuple| tuple.bandwidth_mbit).collect();
    let of = |numbers: &[f64], p90| {
        Some(Percentiles {
            p50: quantile(numbers, 0.5)?,
            p90: quantile(numbers, p90)?,
        })
    };
    Some((of(&latency, 0.9)?, of(&bandwidth, 0.1)?))
}

/// The four numbers of each rule.
type Sample = [Option<[f64; 4]>; 4];

/// The places of each client's circuits.
fn by_client(tuples: &[Tuple]) -> Vec<Vec<usize>> {
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, tuple) in tuples.iter().enumerate() {
        places.entry(tuple.client).or_default().push(place);
    }
    places.into_values().collect()
}

/// Bootstrap samples: circuits drawn with replacement, each with the decisions of the rules. Where
/// there are several clients, whole clients are drawn, as circuits of one guard and one place are
/// alike.
fn resampled(
    tuples: &[Tuple],
    clients: &[Vec<usize>],
    rules: [&Vec<bool>; 4],
    options: &Options,
) -> Vec<Sample> {
    let sample = |number: usize| {
        let mut rng = generator(options.seed, 1, number as u64);
        let mut anew = |count: usize| {
            let drawn: Vec<usize> = (0..count).map(|_| rng.random_range(0..count)).collect();
            drawn
        };
        let drawn: Vec<usize> = match clients.len() {
            0 | 1 => anew(tuples.len()),
            several => {
                let drawn = anew(several).into_iter().filter_map(|one| clients.get(one));
                drawn.flatten().copied().collect()
            }
        };
        rules.map(|rule| {
            let is_kept = |place: &&usize| rule.get(**place).copied().unwrap_or(false);
            let kept: Vec<Tuple> = (drawn.iter().filter(is_kept))
                .filter_map(|place| tuples.get(*place).copied())
                .collect();
            let (latency, bandwidth) = numbers(&kept)?;
            Some([latency.p50, latency.p90, bandwidth.p50, bandwidth.p90])
        })
    };
    parallel::map(options.resamples, options.threads, sample, || ())
}

fn percent(value: f64, base: f64) -> f64 {
    (value / base - 1.0) * 100.0
}

fn interval(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let at = |share| quantile(&values, share).unwrap_or(f64::NAN);
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests;
