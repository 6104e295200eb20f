//! Head/Tail clustering (Jiang 2013; Schrock 2017, Algorithm 1).

use super::bins::mbit_per_second;

/// The part of a set that the head must reach for the set to be split no further (Jiang 2013: heads are
/// minorities of at most 40 %).
pub const THRESHOLD: f64 = 0.4;

/// The head of a set of rates, each in bytes of a bin: those that are as large as the mean, again of these
/// while they are fewer than `threshold` of the set. Exact; for a set of one element or of equal ones it is
/// the set. Empty for an empty set.
pub fn head_tail(rates: &[u64], threshold: f64) -> Vec<u64> {
    let mut set = rates.to_vec();
    loop {
        let sum: u128 = set.iter().map(|rate| u128::from(*rate)).sum();
        let count = set.len() as u128;
        // At least one is as large as the mean: the set never gets empty.
        let head: Vec<u64> = (set.iter().copied())
            .filter(|rate| u128::from(*rate) * count >= sum)
            .collect();
        if !is_minority(head.len() as u64, set.len() as u64, threshold) {
            return head;
        }
        set = head;
    }
}

/// True if `head` of the `set` values are a smaller part than `threshold`.
pub(super) fn is_minority(head: u64, set: u64, threshold: f64) -> bool {
    (head as f64) < threshold * (set as f64)
}

/// The weight of a head: the sum of 1/h, in 1/(Mbit/s). Rates of 0 have no part in it.
pub fn weight_of(head: &[u64]) -> f64 {
    (head.iter().filter(|rate| **rate > 0))
        .map(|rate| 1.0 / mbit_per_second(*rate as f64))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a bin at this number of Mbit/s.
    fn at(mbit: u64) -> u64 {
        mbit * 12_500
    }

    #[test]
    fn the_weights_of_the_papers_example_come_out() {
        let a = head_tail(&[at(30)], THRESHOLD);
        assert!((weight_of(&a) - 1.0 / 30.0).abs() < 1e-15);
        let b = head_tail(&[at(20), at(20)], THRESHOLD);
        assert!((weight_of(&b) - 0.1).abs() < 1e-15);
    }

    #[test]
    fn circuits_that_are_limited_elsewhere_are_not_in_the_head() {
        let mut rates = vec![at(1); 20];
        rates.extend([at(40), at(41), at(42)]);
        let head = head_tail(&rates, THRESHOLD);
        // 3 of 23 are a minority, and are split again: two of three are no minority.
        assert_eq!(head, [at(41), at(42)]);
    }

    #[test]
    fn a_set_of_equals_and_an_empty_one_are_their_own_heads() {
        assert_eq!(head_tail(&[5; 7], THRESHOLD), [5; 7]);
        assert_eq!(head_tail(&[], THRESHOLD), [0; 0]);
        assert_eq!(head_tail(&[0, 0], THRESHOLD), [0, 0]);
        assert_eq!(weight_of(&[0, 0]), 0.0);
        assert_eq!(head_tail(&[u64::MAX; 3], THRESHOLD), [u64::MAX; 3]);
    }
}
