//! Mean, deviation and confidence interval of repetitions.

use serde::{Deserialize, Serialize};

/// Mean, standard deviation and confidence interval of a number over repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample; 0 if there is only one.
    pub stddev: f64,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t; 0 if there is only
    /// one.
    pub ci95: f64,
}

impl Spread {
    /// Of these numbers; all 0 if there are none.
    pub fn of(numbers: &[f64]) -> Spread {
        let count = numbers.len() as f64;
        if numbers.is_empty() {
            return Spread::default();
        }
        let mean = numbers.iter().sum::<f64>() / count;
        if numbers.len() < 2 {
            return Spread {
                mean,
                ..Spread::default()
            };
        }
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let stddev = (squares / (count - 1.0)).sqrt();
        Spread {
            mean,
            stddev,
            ci95: student(numbers.len() - 1) * stddev / count.sqrt(),
        }
    }
}

/// The two-sided 95 % quantile of Student's t with so many degrees of freedom, at least 1: exact to 0.001 for
/// the first, then by the expansion of Cornish and Fisher, which is as good from there.
pub fn student(freedom: usize) -> f64 {
    const FIRST: [f64; 6] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447];
    if let Some(quantile) = FIRST.get(freedom.saturating_sub(1)) {
        return *quantile;
    }
    let (z, n) = (1.959_964_f64, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_textbook_one() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((spread.mean - 5.0).abs() < 1e-12);
        assert!((spread.stddev - 2.138_09).abs() < 1e-5);
        // t for 7 degrees of freedom is 2.365.
        assert!((spread.ci95 - 2.365 * 2.138_09 / 8f64.sqrt()).abs() < 1e-3);
        assert!((student(30) - 2.042).abs() < 1e-3);
        assert_eq!(Spread::of(&[3.0]).mean, 3.0);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
