//! Numbers of arms, and how they differ from those of one circuit in the same repetition.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_stats::Spread;

use super::measure::{Counts, Sample, Share, Streams, Tunnels};
use crate::comparison::censored::Time;
use crate::comparison::{MEAN, Numbers, Quantity, STDDEV, changes, over_repetitions, times};

/// Samples of an arm by repetition.
pub(super) type Samples = BTreeMap<u32, Sample>;

/// Times over the repetitions of an arm, seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Seconds {
    /// Means over repetitions of each repetition's mean, deviation and percentiles.
    #[serde(flatten)]
    means: Numbers,
    /// Half of the 95 % interval of the mean; `None` for one repetition.
    ci95: Option<f64>,
    /// Half of the 95 % interval of each of the means.
    intervals: Numbers,
}

impl From<Quantity> for Seconds {
    fn from(quantity: Quantity) -> Seconds {
        Seconds {
            ci95: quantity.interval(MEAN),
            means: quantity.means,
            intervals: quantity.ci95,
        }
    }
}

impl Seconds {
    /// As it was made.
    pub(super) fn quantity(&self) -> Quantity {
        Quantity {
            means: self.means.clone(),
            ci95: self.intervals.clone(),
        }
    }
}

/// The streams of one model in an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct OfStreams {
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// To the last byte. Open streams count until the end, which makes mean and deviation too
    /// small.
    pub(super) seconds: Seconds,
    /// To the first byte.
    pub(super) first_byte_seconds: Seconds,
    /// The mean of those that are complete, megabits per second.
    pub(super) goodput_mbit: Option<f64>,
    /// Of `seconds`, against one circuit, in percent of it, paired by repetition.
    pub(super) change_percent: Quantity,
    /// Change of the time to the first byte, in percent of one circuit's, paired by repetition.
    pub(super) first_byte_change_percent: Quantity,
}

/// Picks the times of a kind.
type Of = fn(&Streams) -> &[Time];

impl OfStreams {
    /// Of an arm beside that with one circuit.
    pub(super) fn of(model: &str, own: &Samples, base: &Samples) -> OfStreams {
        let (last, first): (Of, Of) = (|streams| &streams.last, |streams| &streams.first);
        let (mut counts, mut goodput) = (Counts::default(), Vec::new());
        for streams in own.values().filter_map(|sample| sample.streams.get(model)) {
            counts.add(streams.counts);
            goodput.extend(&streams.goodput);
        }
        OfStreams {
            counts,
            seconds: over_repetitions(&each(model, own, last)).into(),
            first_byte_seconds: over_repetitions(&each(model, own, first)).into(),
            goodput_mbit: Spread::of(&goodput).map(|spread| spread.mean),
            change_percent: changed(model, own, base, last),
            first_byte_change_percent: changed(model, own, base, first),
        }
    }
}

fn of_sample(model: &str, sample: &Sample, of: Of) -> Numbers {
    let streams = sample.streams.get(model);
    numbers(streams.map_or(&[], of))
}

fn each(model: &str, samples: &Samples, of: Of) -> Vec<Numbers> {
    let samples = samples.values();
    samples.map(|sample| of_sample(model, sample, of)).collect()
}

/// Over the repetitions that both have.
fn changed(model: &str, own: &Samples, base: &Samples, of: Of) -> Quantity {
    let both = own
        .iter()
        .filter_map(|(repetition, own)| Some((own, base.get(repetition)?)));
    let changes =
        both.map(|(own, base)| changes(&of_sample(model, own, of), &of_sample(model, base, of)));
    over_repetitions(&changes.collect::<Vec<Numbers>>())
}

/// Percentiles, mean and deviation.
fn numbers(all: &[Time]) -> Numbers {
    let mut numbers = times(all);
    let took: Vec<f64> = all.iter().map(|time| time.took).collect();
    let spread = Spread::of(&took);
    numbers.insert(MEAN, spread.map(|spread| spread.mean));
    numbers.insert(STDDEV, spread.and_then(|spread| spread.stddev));
    numbers
}

/// An arm of downloads: the numbers of the first size, and of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct OfArm {
    #[serde(flatten)]
    pub(super) first: OfStreams,
    #[serde(flatten)]
    pub(super) tunnels: Tunnels,
    /// By size, such as `5_mb`.
    pub(super) sizes: BTreeMap<String, OfStreams>,
    /// Repetitions that came to their end.
    pub(super) repetitions: usize,
}

/// An arm with web clients beside bulk clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct OfContention {
    pub(super) web: OfStreams,
    pub(super) bulk: OfStreams,
    /// Throughput of bulk clients' circuits together, megabits per second, each byte once: `mean`.
    pub(super) bulk_mbit: Quantity,
    /// Bulk clients' share of fast relays, in percent: `of_capacity` of their bandwidth,
    /// `of_carried` of the bytes that they carried.
    pub(super) fast_percent: Quantity,
    /// Bulk clients' share of slow relays.
    pub(super) slow_percent: Quantity,
    #[serde(flatten)]
    pub(super) tunnels: Tunnels,
    /// Repetitions that came to their end.
    pub(super) repetitions: usize,
}

/// Of the bandwidth of relays.
pub(super) const OF_CAPACITY: &str = "of_capacity";
/// Of what they carried.
pub(super) const OF_CARRIED: &str = "of_carried";

/// Bulk clients' shares, over the repetitions in which they are known.
pub(super) fn shares(samples: &Samples, slow: bool) -> Quantity {
    let known = samples.values().filter_map(|sample| sample.shares);
    let numbers = known.map(|[of_fast, of_slow]| {
        let Share {
            of_capacity,
            of_carried,
        } = if slow { of_slow } else { of_fast };
        Numbers::from([
            (OF_CAPACITY, Some(of_capacity)),
            (OF_CARRIED, Some(of_carried)),
        ])
    });
    over_repetitions(&numbers.collect::<Vec<Numbers>>())
}

/// See [`OfContention::bulk_mbit`].
pub(super) fn bulk_mbit(samples: &Samples) -> Quantity {
    let known = samples.values().filter_map(|sample| sample.bulk_mbit);
    let numbers = known.map(|mbit| Numbers::from([(MEAN, Some(mbit))]));
    over_repetitions(&numbers.collect::<Vec<Numbers>>())
}

/// Of all repetitions.
pub(super) fn tunnels(samples: &Samples) -> Tunnels {
    let mut all = Tunnels::default();
    for sample in samples.values() {
        all.add(sample.tunnels);
    }
    all
}

/// The ratio of a number in an arm to that in another, paired by repetition: `mean`.
pub(super) fn ratio(
    own: &Samples,
    base: &Samples,
    of: impl Fn(&Sample) -> Option<f64>,
) -> Quantity {
    let both = own
        .iter()
        .filter_map(|(repetition, own)| Some((own, base.get(repetition)?)));
    let ratios = both.map(|(own, base)| {
        let ratio = of(own).zip(of(base).filter(|base| *base > 0.0));
        Numbers::from([(MEAN, ratio.map(|(own, base)| own / base))])
    });
    over_repetitions(&ratios.collect::<Vec<Numbers>>())
}
