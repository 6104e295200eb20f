//! A generalized extreme value distribution of round-trip times (Schrock 2017, 4.2; Annessi and Schmiedecker 2016).

use super::simplex::minimum;

/// Shapes nearer to 0 than this are Gumbel's.
const GUMBEL: f64 = 1e-6;
/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;
/// Shapes that a fit may have. From 1 on, a distribution can be made ever more likely by moving its end to the longest
/// time; below −1 it has no mean, which the moments need.
const SHAPES: std::ops::RangeInclusive<f64> = -0.99..=0.99;

/// A generalized extreme value distribution: `F(x) = exp(-(1 - c z)^(1/c))` with `z = (x - location) / scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gev {
    /// `c`, in the sign convention of SciPy's `genextreme` and of Hosking: positive ones have a longest time, negative
    /// ones a heavy tail. Elsewhere ξ = −c.
    pub shape: f64,
    /// In the unit of the samples.
    pub location: f64,
    /// In the unit of the samples; positive.
    pub scale: f64,
}

impl Gev {
    /// The maximum likelihood estimate for these samples. `None`: they are fewer than 5, all equal,
    /// or not all finite.
    ///
    /// Probability-weighted moments (Hosking, Wallis and Wood 1985) give a first estimate, whose
    /// likelihood is then increased to a local maximum.
    #[must_use]
    pub fn fit(samples: &[f64]) -> Option<Gev> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let spread = last - first;
        // NaN has no spread either.
        let is_spread = spread.is_finite() && spread > first.abs().max(last.abs()) * 1e-12;
        if sorted.len() < 5 || !is_spread {
            return None;
        }
        let start = Gev::of_moments(&sorted)?;
        let steps = [0.1, 0.1 * start.scale, 0.1];
        let found = minimum(start.parameters(), steps, |parameters| {
            Gev::of_parameters(parameters).surprise(&sorted)
        });
        let fit = Gev::of_parameters(&found);
        // The moments may have chosen an end that some sample lies behind.
        let is_better = fit.surprise(&sorted) <= start.surprise(&sorted);
        Some(if is_better { fit } else { start })
    }

    fn parameters(&self) -> [f64; 3] {
        [self.shape, self.location, self.scale.ln()]
    }

    fn of_parameters(&[shape, location, scale]: &[f64; 3]) -> Gev {
        Gev {
            shape,
            location,
            scale: scale.exp(),
        }
    }

    /// By probability-weighted moments. The samples are sorted.
    fn of_moments(sorted: &[f64]) -> Option<Gev> {
        #[allow(clippy::cast_precision_loss)] // counts
        let n = sorted.len() as f64;
        let (mut b0, mut b1, mut b2, mut rank) = (0.0, 0.0, 0.0, 0.0);
        for sample in sorted {
            b0 += sample;
            b1 += rank / (n - 1.0) * sample;
            b2 += rank * (rank - 1.0) / ((n - 1.0) * (n - 2.0)) * sample;
            rank += 1.0;
        }
        (b0, b1, b2) = (b0 / n, b1 / n, b2 / n);
        let second = 2.0 * b1 - b0;
        let c = second / (3.0 * b2 - b0) - 2.0_f64.ln() / 3.0_f64.ln();
        let shape = (7.859 * c + 2.9554 * c * c).clamp(*SHAPES.start(), *SHAPES.end());
        let (location, scale) = if shape.abs() < GUMBEL {
            let scale = second / 2.0_f64.ln();
            (b0 - EULER * scale, scale)
        } else {
            let gamma = libm::tgamma(1.0 + shape);
            let scale = second * shape / (gamma * (1.0 - 2.0_f64.powf(-shape)));
            (b0 + scale * (gamma - 1.0) / shape, scale)
        };
        let is_one = shape.is_finite() && location.is_finite() && scale.is_finite() && scale > 0.0;
        is_one.then_some(Gev {
            shape,
            location,
            scale,
        })
    }

    /// The logarithm of how unlikely the samples are; infinite if one cannot be.
    pub(super) fn surprise(&self, samples: &[f64]) -> f64 {
        let Gev {
            shape,
            location,
            scale,
        } = *self;
        if !SHAPES.contains(&shape) || !scale.is_finite() || scale <= 0.0 {
            return f64::INFINITY;
        }
        let mut sum = 0.0;
        for sample in samples {
            let z = (sample - location) / scale;
            // The logarithm of (1 - c z)^(1/c).
            let power = if shape.abs() < GUMBEL {
                -z
            } else {
                (-shape * z).ln_1p() / shape
            };
            sum += power.exp() - (1.0 - shape) * power;
            if !sum.is_finite() {
                return f64::INFINITY;
            }
        }
        #[allow(clippy::cast_precision_loss)] // a count
        let n = samples.len() as f64;
        sum + n * scale.ln()
    }

    /// The share of times that are at most `time`.
    #[must_use]
    pub fn cdf(&self, time: f64) -> f64 {
        let z = (time - self.location) / self.scale;
        if self.shape.abs() < GUMBEL {
            return (-(-z).exp()).exp();
        }
        let base = 1.0 - self.shape * z;
        if base <= 0.0 {
            // Past the longest time, or before the shortest.
            return if self.shape > 0.0 { 1.0 } else { 0.0 };
        }
        (-base.powf(1.0 / self.shape)).exp()
    }

    /// The time that this share of the times does not exceed. The share is clamped to 0 to 1.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let hidden = -share.clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON).ln();
        let z = if self.shape.abs() < GUMBEL {
            -hidden.ln()
        } else {
            (1.0 - hidden.powf(self.shape)) / self.shape
        };
        self.location + self.scale * z
    }
}
