//! Median and range of a few repetitions.

use serde::{Deserialize, Serialize};

/// Median and range of a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Number of samples.
    pub count: usize,
}

impl Summary {
    /// `None` if there are no numbers, or if one is infinite or NaN.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        numbers.sort_by(f64::total_cmp);
        let (min, max) = (*numbers.first()?, *numbers.last()?);
        let half = numbers.len() / 2;
        let median = match numbers.len() % 2 {
            0 => (numbers[half - 1] + numbers[half]) / 2.0,
            _ => numbers[half],
        };
        Some(Summary {
            median,
            min,
            max,
            count: numbers.len(),
        })
    }

    /// As people read it: the median, and the range where there are several numbers.
    pub fn show(&self, number: impl Fn(f64) -> String) -> String {
        let median = number(self.median);
        match self.count {
            0 | 1 => median,
            _ => format!("{median} ({}–{})", number(self.min), number(self.max)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ranges() {
        let odd = Summary::of([3.0, 1.0, 2.0]).expect("numbers");
        assert_eq!(
            (odd.median, odd.min, odd.max, odd.count),
            (2.0, 1.0, 3.0, 3)
        );
        let even = Summary::of([4.0, 1.0, 2.0, 3.0]).expect("numbers");
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
        let one = Summary::of([7.0]).expect("a number");
        assert_eq!((one.median, one.min, one.max), (7.0, 7.0, 7.0));
        // One number has no range.
        let shown = |summary: &Summary| summary.show(|number| format!("{number:.1}"));
        assert_eq!(shown(&one), "7.0");
        assert_eq!(shown(&even), "2.5 (1.0–4.0)");
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([1.0, f64::NAN]), None);
    }
}
