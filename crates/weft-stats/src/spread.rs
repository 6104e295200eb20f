//! Mean, deviation and confidence interval of repetitions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Mean, standard deviation and confidence interval of independent numbers.
///
/// It is printed as `mean ± ci95` with the precision of the format, and as the mean alone where nothing is known of its error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample; `None`: one number has none.
    pub stddev: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t; `None` of one number.
    pub ci95: Option<f64>,
    /// Number of samples.
    pub n: usize,
}

impl Spread {
    /// Statistics of these numbers; `None` if there are none, or if one is infinite or NaN.
    pub fn of(numbers: &[f64]) -> Option<Spread> {
        if numbers.is_empty() || numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let n = numbers.len();
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let freedom = n - 1;
        let stddev = (freedom > 0).then(|| (squares / freedom as f64).sqrt());
        Some(Spread {
            mean,
            stddev,
            ci95: stddev.map(|stddev| student(freedom) * stddev / (n as f64).sqrt()),
            n,
        })
    }

    /// Of groups that have repetitions, such as the documents of a simulation. Of one group it is over its repetitions. Of
    /// several it is over the groups' means: repetitions know nothing of how groups differ, however many they are.
    pub fn over<G: AsRef<[f64]>>(groups: &[G]) -> Option<Spread> {
        match groups {
            [one] => Spread::of(one.as_ref()),
            several => Spread::of(&means(several)?),
        }
    }

    /// Half of the interval as people read it beside the mean, both in the same form.
    pub fn show(&self, number: impl Fn(f64) -> String) -> String {
        match self.ci95 {
            Some(ci95) => format!("{} ± {}", number(self.mean), number(ci95)),
            None => number(self.mean),
        }
    }
}

/// The mean of each group; `None` if one has no numbers.
fn means<G: AsRef<[f64]>>(groups: &[G]) -> Option<Vec<f64>> {
    groups
        .iter()
        .map(|group| Some(Spread::of(group.as_ref())?.mean))
        .collect()
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.show(|number| match f.precision() {
            Some(digits) => format!("{number:.digits$}"),
            None => number.to_string(),
        });
        let width = f.width().unwrap_or(0);
        match f.align() {
            Some(fmt::Alignment::Left) => write!(f, "{text:<width$}"),
            _ => write!(f, "{text:>width$}"),
        }
    }
}

/// The two-sided 95 % quantile of Student's t with `freedom` degrees of freedom, at least 1: exact
/// to 0.001 for the first, then by the expansion of Cornish and Fisher, which is as good from
/// there.
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
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("numbers");
        let (stddev, ci95) = (spread.stddev.expect("eight"), spread.ci95.expect("eight"));
        assert!((spread.mean - 5.0).abs() < 1e-12);
        assert!((stddev - 2.138_09).abs() < 1e-5);
        // t for 7 degrees of freedom is 2.365.
        assert!((ci95 - 2.365 * 2.138_09 / 8f64.sqrt()).abs() < 1e-3);
        assert!((student(30) - 2.042).abs() < 1e-3);
    }

    #[test]
    fn one_number_has_neither_deviation_nor_interval() {
        let one = Spread::of(&[3.0]).expect("a number");
        assert_eq!((one.mean, one.n), (3.0, 1));
        assert_eq!((one.stddev, one.ci95), (None, None));
        assert_eq!(format!("{one:.3}"), "3.000");
        let two = Spread::of(&[3.0, 3.0]).expect("numbers");
        assert_eq!((two.stddev, two.ci95), (Some(0.0), Some(0.0)));
        assert_eq!(
            format!("{two:.1}|{two:>12.1}|{two:<12.1}|"),
            "3.0 ± 0.0|   3.0 ± 0.0|3.0 ± 0.0   |"
        );
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn repetitions_do_not_make_the_interval_over_groups_narrower() {
        // Two documents, 3.2 and 44, with a hundred repetitions of each that hardly differ.
        let document =
            |mean: f64| -> Vec<f64> { (0..100).map(|n| mean + f64::from(n % 2) * 0.01).collect() };
        let both = [document(3.2), document(44.0)];
        let over = Spread::over(&both).expect("numbers");
        assert_eq!(over.n, 2);
        // t for one degree of freedom is 12.706; the means are 40.8 apart.
        let ci95 = over.ci95.expect("two documents");
        assert!((ci95 - 12.706 * 40.8 / 2.0).abs() < 1e-6, "{ci95}");
        let pooled = Spread::of(&both.concat()).expect("numbers");
        assert!(pooled.ci95.expect("many") < 3.0);
        // Of one document it is over its repetitions.
        let one = Spread::over(&both[..1]).expect("numbers");
        assert_eq!((one.n, Some(one)), (100, Spread::of(&both[0])));
        assert_eq!(Spread::over::<Vec<f64>>(&[]), None);
        assert_eq!(Spread::over(&[vec![1.0], vec![]]), None);
    }
}
