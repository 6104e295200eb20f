//! Distributions of delays, as `TGen`'s Markov models name them.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::{Rng, RngExt as _};

/// `TGen`'s ceiling of a drawn delay (`TGEN_MMODEL_DELAY_CEILING`).
const LONGEST: Duration = Duration::from_secs(600);

/// A distribution of delays. Its parameters are in microseconds, as in `TGen`'s files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Every value between two is as likely.
    Uniform {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
    /// Normal; values below 0 are set to 0.
    Normal {
        /// Mean.
        location: f64,
        /// Standard deviation.
        scale: f64,
    },
    /// The exponential function of a normal distribution.
    LogNormal {
        /// Mean of the logarithm.
        location: f64,
        /// Standard deviation of the logarithm.
        scale: f64,
    },
    /// Exponential.
    Exponential {
        /// The reciprocal of the mean.
        rate: f64,
    },
    /// Pareto.
    Pareto {
        /// The least value.
        scale: f64,
        /// The exponent.
        shape: f64,
    },
}

impl Delay {
    /// No delay at all.
    pub const NONE: Delay = Delay::Uniform {
        low: 0.0,
        high: 0.0,
    };

    /// Draws a delay, to the microsecond, at most ten minutes.
    pub fn sample(&self, rng: &mut impl Rng) -> Duration {
        let micros = match *self {
            Delay::Uniform { low, high } => low + (high - low) * uniform(rng),
            Delay::Normal { location, scale } => location + scale * normal(rng),
            Delay::LogNormal { location, scale } => (location + scale * normal(rng)).exp(),
            Delay::Exponential { rate } => -uniform(rng).ln() / rate,
            Delay::Pareto { scale, shape } => scale / uniform(rng).powf(1.0 / shape),
        };
        let ceiling = LONGEST.as_micros() as f64;
        // Not a number becomes 0 by the comparison with it.
        let micros = micros.round().max(0.0).min(ceiling);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 600,000,000"
        )]
        Duration::from_micros(micros as u64)
    }
}

/// Between 0 and 1, never 0.
fn uniform(rng: &mut impl Rng) -> f64 {
    1.0 - rng.random::<f64>()
}

/// Standard normal, by Box and Muller.
fn normal(rng: &mut impl Rng) -> f64 {
    let (u, v) = (uniform(rng), uniform(rng));
    (-2.0 * u.ln()).sqrt() * (TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    /// Mean and median, in microseconds, of many draws.
    fn drawn(delay: Delay) -> (f64, f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let mut all: Vec<f64> = (0..40_000)
            .map(|_| delay.sample(&mut rng).as_micros() as f64)
            .collect();
        all.sort_by(f64::total_cmp);
        (
            all.iter().sum::<f64>() / all.len() as f64,
            all[all.len() / 2],
        )
    }

    fn near(measured: f64, expected: f64) {
        assert!(
            (measured / expected - 1.0).abs() < 0.02,
            "{measured} is not near {expected}"
        );
    }

    #[test]
    fn draws_have_the_mean_and_median_of_their_distribution() {
        let (mean, median) = drawn(Delay::Uniform {
            low: 1e3,
            high: 3e3,
        });
        near(mean, 2e3);
        near(median, 2e3);
        let (mean, median) = drawn(Delay::Normal {
            location: 5e5,
            scale: 1e5,
        });
        near(mean, 5e5);
        near(median, 5e5);
        let (mean, median) = drawn(Delay::LogNormal {
            location: 8.0,
            scale: 0.5,
        });
        near(mean, (8.0f64 + 0.125).exp());
        near(median, 8f64.exp());
        let (mean, median) = drawn(Delay::Exponential { rate: 1e-4 });
        near(mean, 1e4);
        near(median, 1e4 * 2f64.ln());
        let (mean, median) = drawn(Delay::Pareto {
            scale: 1e3,
            shape: 4.0,
        });
        near(mean, 4e3 / 3.0);
        near(median, 1e3 * 2f64.powf(0.25));
    }

    #[test]
    fn absurd_parameters_draw_delays_within_the_bounds() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let absurd = [
            Delay::Normal {
                location: -1e300,
                scale: 1e300,
            },
            Delay::LogNormal {
                location: 1e300,
                scale: 0.0,
            },
            Delay::Exponential { rate: 0.0 },
            Delay::Pareto {
                scale: 0.0,
                shape: 0.0,
            },
            Delay::Uniform {
                low: f64::NAN,
                high: f64::INFINITY,
            },
        ];
        for delay in absurd {
            for _ in 0..100 {
                assert!(delay.sample(&mut rng) <= LONGEST, "{delay:?}");
            }
        }
    }
}
