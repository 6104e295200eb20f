//! Quantiles of times of which some were not over when the measurement was.

use std::cmp::Ordering;

/// How long something took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time {
    /// Milliseconds.
    pub(super) ms: f64,
    /// It was over then; otherwise it takes longer than that.
    pub(super) is_over: bool,
}

/// For each share, the least time within which at least that share is over, by Kaplan and Meier's estimate: what is open
/// counts among those that may be over until the time at which it was last seen. `None` where so many were never seen to
/// be over. Without open ones it is the sample's own quantile. Shares ascend.
pub(super) fn quantiles(times: &[Time], shares: &[f64]) -> Vec<Option<f64>> {
    let mut sorted = times.to_vec();
    // Of equal times, those that are over come first: what is open was still there then.
    sorted.sort_by(|one, other| match one.ms.total_cmp(&other.ms) {
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
            found.push(Some(time.ms));
            next = wanted.next();
        }
    }
    found.resize(shares.len(), None);
    found
}
