//! ABRA's weights and how clients choose by them (Schrock 2017, sections 3.1 and 3.2).

use rand::{Rng, RngExt as _};
use weft_path::Candidate;

/// The large values of a heavy-tailed list (Schrock 2017, Algorithm 1): those that are at least the mean;
/// of these again, as long as they are a smaller part than the threshold.
pub fn head(values: &[f64], threshold: f64) -> Vec<f64> {
    let mut values = values.to_vec();
    loop {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        // By rounding the mean of equal values can be above them all.
        let mean = values.iter().copied().fold(0.0, f64::max).min(mean);
        values.retain(|value| *value >= mean);
        let part = values.len() as f64 / count as f64;
        if values.is_empty() || values.len() == count || part >= threshold {
            return values;
        }
    }
}

/// The weight that a relay reports: 0 if it has bandwidth left, and otherwise the sum of 1/h over the head of its
/// circuits' bandwidths. Circuits that move nothing are not slowed down by it, and do not count.
pub fn of_relay(circuits: &[f64], is_full: bool, threshold: f64) -> f64 {
    if !is_full {
        return 0.0;
    }
    let moving: Vec<f64> = circuits.iter().copied().filter(|one| *one > 0.0).collect();
    head(&moving, threshold).iter().map(|one| 1.0 / one).sum()
}

/// Probabilities with which a client takes each circuit of its pool, by the clients' rule; they sum
/// to 1 unless the pool is empty.
pub fn chances(pool: &[Candidate], into: &mut Vec<f64>) {
    into.clear();
    into.extend(pool.iter().map(Candidate::share));
    let sum: f64 = into.iter().sum();
    into.iter_mut().for_each(|chance| *chance /= sum);
}

/// A place drawn by these chances.
pub fn draw(chances: &[f64], rng: &mut impl Rng) -> usize {
    let mut left = rng.random::<f64>();
    for (place, chance) in chances.iter().enumerate() {
        left -= chance;
        if left < 0.0 {
            return place;
        }
    }
    // By rounding: the last that can be.
    let last = chances.iter().rposition(|chance| *chance > 0.0);
    last.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use weft_path::SCARCE;

    use super::*;
    use crate::random::generator;

    #[test]
    fn the_papers_two_relays_have_its_weights() {
        assert!((of_relay(&[30.0], true, 0.4) - 1.0 / 30.0).abs() < 1e-12);
        assert!((of_relay(&[20.0, 20.0], true, 0.4) - 0.1).abs() < 1e-12);
        assert_eq!(of_relay(&[20.0, 20.0], false, 0.4), 0.0);
        assert_eq!(of_relay(&[0.0, 0.0], true, 0.4), 0.0);
    }

    #[test]
    fn the_head_is_what_is_large() {
        // The mean is 4; two of ten are above it, again below the threshold, whose mean is 16.
        let values = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 14.0, 18.0];
        assert_eq!(head(&values, 0.4), [18.0,]);
        assert_eq!(head(&values, 0.2), [14.0, 18.0]);
        assert_eq!(head(&[0.1; 3], 0.4), [0.1; 3]);
        assert!(head(&[], 0.4).is_empty());
    }

    #[test]
    fn clients_choose_by_bandwidth_and_much_more_seldom_by_weight() {
        let seen = |weight, bandwidth| Candidate { weight, bandwidth };
        let mut chosen = Vec::new();
        let pool = [seen(0.0, 30.0), seen(SCARCE * 99.0, 100.0), seen(0.0, 9.0)];
        chances(&pool, &mut chosen);
        for (chance, expected) in chosen.iter().zip([0.75, 0.025, 0.225]) {
            assert!((chance - expected).abs() < 1e-12, "{chosen:?}");
        }
    }

    #[test]
    fn draws_follow_the_chances() {
        let (chances, rounds) = ([0.2, 0.0, 0.5, 0.3], 40_000);
        let (mut rng, mut seen) = (generator(7, 0, 0), [0.0; 4]);
        (0..rounds).for_each(|_| seen[draw(&chances, &mut rng)] += 1.0);
        assert_eq!(seen[1], 0.0);
        let expected = chances.map(|chance| chance * f64::from(rounds));
        let pairs = seen
            .iter()
            .zip(&expected)
            .filter(|(_, expected)| **expected > 0.0);
        let square: f64 = pairs
            .map(|(seen, wanted)| (seen - wanted).powi(2) / wanted)
            .sum();
        // 99.9 % of chi-square with two degrees of freedom.
        assert!(square < 13.8, "{square}");
    }
}
