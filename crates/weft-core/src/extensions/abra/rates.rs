//! The rates of a thread's circuits as a bounded histogram, which threads report and the controller adds.

use std::collections::BTreeMap;

use super::bins::mbit_per_second;
use super::head_tail::is_minority;

/// Buckets of one doubling, as a power of two: each is 0.4 % wide. Rates are whole numbers of
/// cells, so that below 10 Mbit/s each has a separate bucket. Head/Tail clustering needs that: a
/// head is split again depending on which side of the mean the rates next to it are.
const FINE_BITS: u32 = 8;

/// The circuits whose rates are in one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// Number of circuits.
    count: u64,
    /// Their bytes.
    sum: u64,
}

/// Rates of circuits, each in bytes of a bin: how many are in each bucket, and their sum. There are as many
/// buckets as circuits moved something, 8,192 at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Buckets by size.
    buckets: BTreeMap<u32, Bucket>,
}

/// The bucket of a rate.
fn bucket_of(bytes: u32) -> u32 {
    let exponent = bytes.checked_ilog2().unwrap_or(0);
    // The bits after the first, as many as name a bucket.
    let fine = match exponent.checked_sub(FINE_BITS) {
        Some(shift) => bytes >> shift,
        None => bytes << (FINE_BITS - exponent),
    };
    (exponent << FINE_BITS) | (fine & ((1 << FINE_BITS) - 1))
}

impl Rates {
    /// Adds a circuit that moved this number of bytes in its best bin. A circuit that moved none is
    /// not in the set: it is not held back here, and idle circuits, however many, must not turn the
    /// tail of the busy ones into a head.
    pub fn note(&mut self, bytes: u32) {
        if bytes > 0 {
            let bucket = self.buckets.entry(bucket_of(bytes)).or_default();
            bucket.count += 1;
            bucket.sum += u64::from(bytes);
        }
    }

    /// Adds the circuits of another thread.
    pub fn add(&mut self, other: &Rates) {
        for (place, theirs) in &other.buckets {
            let mine = self.buckets.entry(*place).or_default();
            mine.count += theirs.count;
            mine.sum += theirs.sum;
        }
    }

    /// Circuits.
    pub fn len(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.count).sum()
    }

    /// No circuit moved anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of the head, as [`head_tail`](super::head_tail()) and [`weight_of`](super::weight_of)
    /// compute it of the rates themselves, but that a bucket is in the head or not as a whole, by its mean.
    pub fn weight(&self, threshold: f64) -> f64 {
        let mut set: Vec<Bucket> = self.buckets.values().copied().collect();
        loop {
            let count: u64 = set.iter().map(|bucket| bucket.count).sum();
            let sum: u64 = set.iter().map(|bucket| bucket.sum).sum();
            let head: Vec<Bucket> = (set.iter().copied())
                .filter(|bucket| {
                    u128::from(bucket.sum) * u128::from(count)
                        >= u128::from(sum) * u128::from(bucket.count)
                })
                .collect();
            let in_head = head.iter().map(|bucket| bucket.count).sum();
            if !is_minority(in_head, count, threshold) {
                return (head.iter())
                    .map(|bucket| {
                        let count = bucket.count as f64;
                        count / mbit_per_second(bucket.sum as f64 / count)
                    })
                    .sum();
            }
            set = head;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{THRESHOLD, head_tail, weight_of};
    use super::*;

    fn rates(of: &[u32]) -> Rates {
        let mut rates = Rates::default();
        for bytes in of {
            rates.note(*bytes);
        }
        rates
    }

    #[test]
    fn the_weights_of_the_papers_example_come_out() {
        let a = rates(&[375_000]).weight(THRESHOLD);
        assert!((a - 1.0 / 30.0).abs() < 1e-15);
        let b = rates(&[250_000, 250_000]).weight(THRESHOLD);
        assert!((b - 0.1).abs() < 1e-15);
    }

    #[test]
    fn nothing_weighs_nothing_and_idle_circuits_are_not_counted() {
        assert_eq!(Rates::default().weight(THRESHOLD), 0.0);
        assert_eq!(rates(&[0; 9]), Rates::default());
    }

    #[test]
    fn buckets_are_in_the_order_of_rates_and_narrow() {
        let mut last = 0;
        for bytes in (1..=u16::MAX.into()).chain((0..1000).map(|n| 70_000 + n * 4_000_000)) {
            let bucket = bucket_of(bytes);
            assert!(bucket >= last && bucket < 32 << FINE_BITS, "{bytes}");
            last = bucket;
        }
        assert_eq!(bucket_of(u32::MAX), (32 << FINE_BITS) - 1);
        for cells in 1..256 {
            assert_ne!(bucket_of(cells * 514), bucket_of((cells + 1) * 514));
        }
    }

    #[test]
    fn threads_add_up() {
        let mut sum = rates(&[514, 90_000]);
        sum.add(&rates(&[7, u32::MAX]));
        assert_eq!(sum, rates(&[514, 90_000, 7, u32::MAX]));
        assert_eq!(sum.len(), 4);
    }

    /// The weight of these rates themselves.
    fn exact(of: &[u32], threshold: f64) -> f64 {
        let of: Vec<u64> = of.iter().map(|bytes| u64::from(*bytes)).collect();
        weight_of(&head_tail(&of, threshold))
    }

    proptest! {
        /// Pareto rates in whole cells. Where a head is nearly as large as the threshold, a
        /// bucket that is in or out decides whether it is split again: both results are right then, and
        /// the histogram's must be that of a threshold nearby.
        #[test]
        fn a_histograms_weight_is_that_of_the_rates(
            draws in proptest::collection::vec(0.000_1..1.0f64, 50..800),
            shape in 0.8..2.5f64,
        ) {
            let of: Vec<u32> = draws
                .iter()
                .map(|draw| 514 * draw.powf(-1.0 / shape).min(8e6) as u32)
                .collect();
            let weight = rates(&of).weight(THRESHOLD);
            let near = [0.40, 0.38, 0.42, 0.36, 0.44].map(|threshold| exact(&of, threshold));
            prop_assert!(
                near.iter().any(|exact| (weight / exact - 1.0).abs() < 0.1),
                "{weight} is near none of {near:?}"
            );
        }
    }
}
