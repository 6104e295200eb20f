//! Which of its open circuits a client gives to a stream (Schrock 2017, 3.2; Geddes et al. 2016).

use rand::{Rng, RngExt as _};

/// How a client chooses among the open circuits that a stream may use: `CircuitSelection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CircuitSelection {
    /// As C tor: the one that is in use and has been so for the shortest time, and otherwise the newest.
    #[default]
    Default,
    /// By what its relays state of their bandwidth, with [`choose`].
    Abra,
    /// As by default, while that circuit has weight 0; otherwise as `Abra`. So streams stay together on a circuit whose congestion
    /// window has grown, until there is a reason to leave it.
    AbraStay,
}

impl CircuitSelection {
    /// Relays are asked for their weights.
    #[must_use]
    pub fn asks_weights(self) -> bool {
        matches!(self, Self::Abra | Self::AbraStay)
    }
}

/// A circuit that a stream may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The sum of its relays' weights, in 1/(Mbit/s): 0 if no relay is a bottleneck.
    pub weight: f64,
    /// The bandwidth of its smallest relay, by the consensus.
    pub bandwidth: f64,
}

impl Candidate {
    /// What is no positive number weighs nothing.
    fn is_free(&self) -> bool {
        self.weight.is_nan() || self.weight <= 0.0
    }
}

/// How likely each of some circuits is to be chosen. If some have weight 0, one of these, in proportion to bandwidth; otherwise
/// any, in inverse proportion to weight.
///
/// The paper has "biased towards" for both cases, and no formula. Proportions are what Tor's clients use for relays; and with
/// 1/weight two circuits that share a bottleneck are chosen, together, as often as one that has half their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Some have weight 0.
    free: bool,
    /// Of these, some have bandwidth.
    known: bool,
}

impl Shares {
    /// Among these.
    #[must_use]
    pub fn among(candidates: &[Candidate]) -> Self {
        let mut shares = Shares {
            free: false,
            known: false,
        };
        for one in candidates.iter().filter(|one| one.is_free()) {
            shares.free = true;
            shares.known |= one.bandwidth > 0.0;
        }
        shares
    }

    /// The share of one of them, not negative. The sum of all is positive.
    #[must_use]
    pub fn of(self, one: &Candidate) -> f64 {
        match (self.free, one.is_free()) {
            (true, true) if self.known => one.bandwidth.clamp(0.0, MOST),
            (true, true) => 1.0,
            (true, false) => 0.0,
            (false, _) => 1.0 / one.weight.clamp(LEAST, MOST),
        }
    }
}

/// Chooses a circuit by [`Shares`]: its place. `None`: there is none.
pub fn choose(candidates: &[Candidate], rng: &mut (impl Rng + ?Sized)) -> Option<usize> {
    let shares = Shares::among(candidates);
    let total: f64 = candidates.iter().map(|one| shares.of(one)).sum();
    let mut left = rng.random_range(0.0..1.0) * total;
    let mut last = None;
    for (place, one) in candidates.iter().enumerate() {
        let share = shares.of(one);
        if share > 0.0 {
            last = Some(place);
            if left < share {
                break;
            }
            left -= share;
        }
    }
    last
}

/// Numbers that are smaller or larger count as these: so that sums of shares are numbers.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e18;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    fn of(weight: f64, bandwidth: f64) -> Candidate {
        Candidate { weight, bandwidth }
    }

    /// How often each is chosen, of 10,000 times.
    fn counts(candidates: &[Candidate]) -> Vec<u32> {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let mut counts = vec![0; candidates.len()];
        for _ in 0..10_000 {
            counts[choose(candidates, &mut rng).unwrap()] += 1;
        }
        counts
    }

    fn near(count: u32, expected: u32) -> bool {
        count.abs_diff(expected) < 200
    }

    #[test]
    fn among_circuits_without_a_bottleneck_bandwidth_decides() {
        let all = counts(&[of(0.0, 100.0), of(2.0, 1e6), of(0.0, 300.0), of(0.0, 0.0)]);
        assert!(near(all[0], 2500) && near(all[2], 7500), "{all:?}");
        assert_eq!((all[1], all[3]), (0, 0));
    }

    #[test]
    fn where_every_circuit_has_a_bottleneck_the_lighter_is_the_likelier() {
        let all = counts(&[of(1.0, 1.0), of(3.0, 1e6)]);
        assert!(near(all[0], 7500) && near(all[1], 2500), "{all:?}");
    }

    #[test]
    fn circuits_of_unknown_bandwidth_are_as_likely() {
        let all = counts(&[of(0.0, 0.0), of(0.0, 0.0), of(1.0, 5.0)]);
        assert!(near(all[0], 5000) && near(all[1], 5000), "{all:?}");
    }

    #[test]
    fn none_of_none_is_chosen() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        assert_eq!(choose(&[], &mut rng), None);
        assert_eq!(choose(&[of(4.0, 0.0)], &mut rng), Some(0));
    }

    proptest! {
        #[test]
        fn some_circuit_is_chosen_whatever_weights_are(
            weights in proptest::collection::vec((any::<f64>(), any::<f64>()), 1..40),
            seed in any::<u64>(),
        ) {
            let all: Vec<Candidate> = weights.iter().map(|(w, b)| of(*w, *b)).collect();
            let place = choose(&all, &mut ChaCha12Rng::seed_from_u64(seed)).unwrap();
            prop_assert!(all[place].is_free() || !all.iter().any(Candidate::is_free));
        }
    }
}
