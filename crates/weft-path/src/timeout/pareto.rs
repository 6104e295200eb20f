//! A Pareto distribution of build times (path-spec 2.4.2).

use std::collections::{BTreeMap, VecDeque};

use super::took::{BIN, Took};

/// Times whose quantile `q` is `xm / (1 - q)^(1 / alpha)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pareto {
    /// The scale, in milliseconds.
    pub(super) xm: f64,
    /// The shape.
    pub(super) alpha: f64,
}

/// Longest time that comes out, in milliseconds.
const MOST: f64 = i32::MAX as f64;

/// Number of circuits by bin of build time, without abandoned ones.
pub(super) fn histogram(times: &VecDeque<Took>) -> BTreeMap<u32, u32> {
    let mut histogram = BTreeMap::new();
    for took in times {
        if let Took::Millis(millis) = took {
            let count: &mut u32 = histogram.entry(millis / BIN).or_default();
            *count = count.saturating_add(1);
        }
    }
    histogram
}

/// The middle of a bin, in milliseconds.
pub(super) fn middle(bin: u32) -> u32 {
    bin.saturating_mul(BIN).saturating_add(BIN / 2)
}

impl Pareto {
    /// The maximum likelihood estimate for the times. Xm is not the shortest time but the average
    /// of the middles of the `modes` fullest bins: build times have a hump, and only the slope
    /// behind it is Pareto's. `None`: no circuit was built.
    pub(super) fn estimate(times: &VecDeque<Took>, modes: usize) -> Option<Self> {
        let mut bins: Vec<(u32, u32)> = histogram(times).into_iter().collect();
        // Fullest first; of equally full ones, the shortest time first.
        bins.sort_by_key(|&(bin, count)| (std::cmp::Reverse(count), bin));
        let (mut total, mut count) = (0_u64, 0_u64);
        for (bin, in_bin) in bins.into_iter().take(modes) {
            total += u64::from(middle(bin)) * u64::from(in_bin);
            count += u64::from(in_bin);
        }
        let xm = u32::try_from(total.checked_div(count)?).ok()?.max(1);
        let xm = f64::from(xm);
        // The maximum likelihood estimate, n / sum(ln(x / xm)), with logarithms taken apart, as
        // C tor does: quotients near 1 would lose digits.
        let (mut sum, mut n) = (0.0, 0.0);
        for took in times {
            if let Took::Millis(millis) = took {
                sum += f64::from(*millis).max(xm).ln();
                n += 1.0;
            }
        }
        let alpha = n / (sum - n * xm.ln());
        Some(Self { xm, alpha })
    }

    /// The time, in milliseconds, within which this share of the circuits is built.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let part = (1.0 - share).powf(1.0 / self.alpha);
        let time = self.xm / part;
        // All times alike: alpha is infinite, and so every quantile xm; rounding may have made it
        // negative.
        if self.alpha <= 0.0 || self.alpha.is_nan() {
            return self.xm;
        }
        if time.is_finite() {
            time.min(MOST)
        } else {
            MOST
        }
    }
}
