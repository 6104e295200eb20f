//! Rounding, and noise of Laplace's distribution (C tor `round_uint64_to_next_multiple_of`, laplace.c).

use rand::{Rng, RngExt as _};

/// The next multiple of `bin`; the largest number where there is none.
pub(crate) fn round_up(number: u64, bin: u64) -> u64 {
    number.checked_next_multiple_of(bin).unwrap_or(u64::MAX)
}

/// Parameters of the noise on a number: the most that one user can change it by, and the privacy
/// budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    pub(crate) bin: u32,
    pub(crate) delta_f: u32,
    pub(crate) epsilon: f64,
}

impl Noise {
    /// The number, rounded up and with noise added, and the parameters, as in a line of the document.
    pub(crate) fn line(self, keyword: &str, number: u64, rng: &mut impl Rng) -> String {
        let Self {
            bin,
            delta_f,
            epsilon,
        } = self;
        let rounded = i64::try_from(round_up(number, bin.into())).unwrap_or(i64::MAX);
        let noise = laplace(0.0, f64::from(delta_f) / epsilon, rng.random());
        let number = rounded.saturating_add(noise);
        format!("{keyword} {number} delta_f={delta_f} epsilon={epsilon:.2} bin_size={bin}\n")
    }
}

/// The value of Laplace's distribution below which a share `p` of it lies.
fn laplace(mu: f64, b: f64, p: f64) -> i64 {
    if p <= 0.0 {
        return i64::MIN;
    }
    let side = if p > 0.5 { 1.0 } else { -1.0 };
    let value = mu - b * side * (1.0 - 2.0 * (p - 0.5).abs()).ln();
    #[expect(clippy::cast_possible_truncation, reason = "saturates, as in C tor")]
    let whole = value as i64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn numbers_are_rounded_up_as_in_c_tor() {
        for (number, bin, rounded) in [
            (0, 8, 0),
            (1, 8, 8),
            (8, 8, 8),
            (9, 8, 16),
            (u64::MAX - 3, 8, u64::MAX),
        ] {
            assert_eq!(round_up(number, bin), rounded);
        }
    }

    #[test]
    fn the_noise_is_that_of_c_tors_own_tests() {
        let of = |p| laplace(24.0, 24.0, p);
        assert_eq!(
            [of(0.0), of(0.01), of(0.5), of(0.51), of(0.99)],
            [i64::MIN, -69, 24, 24, 117]
        );
        let noise = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99].map(|p| laplace(0.0, 50.0, p));
        assert_eq!(noise, [i64::MIN, -80, -34, 0, 34, 80, 195]);
    }

    #[test]
    fn what_is_published_hides_one_users_part() {
        let noise = Noise {
            bin: 8,
            delta_f: 8,
            epsilon: 0.3,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let line = noise.line("x", 100, &mut rng);
            assert!(
                line.ends_with(" delta_f=8 epsilon=0.30 bin_size=8\n"),
                "{line}"
            );
            let number: i64 = line.split(' ').nth(1).unwrap().parse().unwrap();
            assert!((-400..600).contains(&number), "{number}");
            seen.insert(number);
        }
        assert!(seen.len() > 20, "{seen:?}");
    }

    proptest! {
        #[test]
        fn no_number_overflows(number: u64, p in 0.0_f64..1.0) {
            let _ = round_up(number, 10_000);
            let _ = laplace(0.0, 1e300, p);
            let noise = Noise { bin: 1024, delta_f: 2048, epsilon: 0.3 };
            noise.line("x", number, &mut ChaCha8Rng::seed_from_u64(number));
        }
    }
}
