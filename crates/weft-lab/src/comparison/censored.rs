//! Quantiles of times of which some were not over when the measurement was.

use std::cmp::Ordering;
use std::time::Duration;

/// Duration of something, which may not be over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time {
    /// In the unit of what is measured.
    pub(crate) took: f64,
    /// It was over then; otherwise it takes longer than that.
    pub(crate) is_over: bool,
}

impl Time {
    /// Seconds: what is not known took longer than until `ended`.
    pub(crate) fn until(known: Option<Duration>, ended: Duration) -> Time {
        Time {
            took: known.unwrap_or(ended).as_secs_f64(),
            is_over: known.is_some(),
        }
    }
}

/// For each share, the least time within which at least that share is over, by Kaplan and Meier's estimate: what is open
/// counts among those that may be over until the time at which it was last seen. `None` where so many were never seen to
/// be over. Without open ones it is the sample's own quantile. Shares ascend.
pub(crate) fn quantiles(times: &[Time], shares: &[f64]) -> Vec<Option<f64>> {
    let mut sorted = times.to_vec();
    // Of equal times, those that are over come first: what is open was still there then.
    sorted.sort_by(|one, other| match one.took.total_cmp(&other.took) {
        Ordering::Equal => other.is_over.cmp(&one.is_over),
        order => order,
    });
    let mut wanted = shares.iter();
    let mut next = wanted.next();
    let mut found = Vec::with_capacity(shares.len());
    let mut open = 1.0;
    for (place, time) in sorted.iter().enumerate() {
        if !time.is_over {
            continue;
        }
        let at_risk = (sorted.len() - place) as f64;
        open *= 1.0 - 1.0 / at_risk;
        // Rounding of the product must not miss a share that is reached exactly.
        while let Some(_share) = next.filter(|share| 1.0 - open >= **share - 1e-9) {
            found.push(Some(time.took));
            next = wanted.next();
        }
    }
    found.resize(shares.len(), None);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(ms: f64) -> Time {
        Time {
            took: ms,
            is_over: true,
        }
    }

    fn open(ms: f64) -> Time {
        Time {
            took: ms,
            is_over: false,
        }
    }

    #[test]
    fn without_open_streams_quantiles_are_those_of_the_sample() {
        let times: Vec<Time> = (1..=10).rev().map(|ms| over(f64::from(ms))).collect();
        let found = quantiles(&times, &[0.05, 0.1, 0.5, 0.51, 0.9, 1.0]);
        assert_eq!(found, [1.0, 1.0, 5.0, 6.0, 9.0, 10.0].map(Some));
        assert_eq!(quantiles(&[], &[0.5]), [None]);
    }

    #[test]
    fn open_streams_make_what_is_later_likelier() {
        // By hand: at 1 three quarters are open; the one that is open at 2 leaves two, so at 3 half of that; at 4 none.
        let times = [over(1.0), open(2.0), over(3.0), over(4.0)];
        let found = quantiles(&times, &[0.25, 0.26, 0.625, 0.63]);
        assert_eq!(found, [Some(1.0), Some(3.0), Some(3.0), Some(4.0)]);
        // One that is open at the same time as another is over was there then.
        assert_eq!(
            quantiles(&[open(1.0), over(1.0)], &[0.5, 0.6]),
            [Some(1.0), None]
        );
        assert_eq!(quantiles(&[open(1.0), open(9.0)], &[0.1]), [None]);
    }
}
