//! Choice of an open circuit for a stream (Schrock 2017, 3.2; Geddes et al. 2016).

use rand::{Rng, RngExt as _};

/// Rule by which a client chooses among the open circuits that a stream may use:
/// `CircuitSelection`.
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
    /// A circuit whose relays state these weights. A relay that states no weight has none:
    /// statements of others do not affect it.
    #[must_use]
    pub fn new(stated: impl IntoIterator<Item = Option<f64>>, bandwidth: f64) -> Self {
        Candidate {
            // Not `sum`, which makes -0 of nothing.
            weight: stated
                .into_iter()
                .flatten()
                .fold(0.0, |sum, weight| sum + weight),
            bandwidth,
        }
    }

    /// Its share among others: its bandwidth, and the less of that the more it weighs. It depends
    /// on this circuit alone, so a relay's statement can only lower the chance of its own circuits.
    ///
    /// The paper is "biased towards" circuits without a bottleneck and, among others, light ones;
    /// it has no formula. With [`SCARCE`] a bottleneck of a few Mbit/s leaves a few thousandths of
    /// a share. Among bottlenecks that serve circuits equally fast, a relay's weight grows with its
    /// bandwidth, so bandwidth over weight compares their speeds.
    #[must_use]
    pub fn share(&self) -> f64 {
        let weight = match self.weight > 0.0 {
            true => self.weight.min(MOST),
            // NaN, too.
            false => 0.0,
        };
        // One that is unknown counts as the least.
        let bandwidth = match self.bandwidth > 1.0 {
            true => self.bandwidth.min(MOST),
            false => 1.0,
        };
        bandwidth * SCARCE / (SCARCE + weight)
    }
}

/// Chooses a circuit in proportion to its share; returns its place. `None`: there are no
/// candidates.
pub fn choose(candidates: &[Candidate], rng: &mut (impl Rng + ?Sized)) -> Option<usize> {
    let total: f64 = candidates.iter().map(Candidate::share).sum();
    let mut left = rng.random_range(0.0..1.0) * total;
    let mut last = None;
    for (place, one) in candidates.iter().enumerate() {
        let share = one.share();
        last = Some(place);
        if left < share {
            break;
        }
        left -= share;
    }
    last
}

/// The weight that halves a share, in 1/(Mbit/s): of a relay that one circuit of 1 Gbit/s fills.
pub const SCARCE: f64 = 1e-3;
/// Numbers that are larger count as this: so that sums of shares are numbers.
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

    /// Choices of each candidate in 10,000 draws.
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
        let all = counts(&[of(0.0, 100.0), of(2.0, 300.0), of(0.0, 300.0), of(0.0, 0.0)]);
        assert!(near(all[0], 2500) && near(all[2], 7500), "{all:?}");
        assert!(all[1] < 20 && all[3] < 60, "{all:?}");
    }

    #[test]
    fn where_every_circuit_has_a_bottleneck_the_lighter_is_the_likelier() {
        let all = counts(&[of(1.0, 10.0), of(3.0, 10.0)]);
        assert!(near(all[0], 7500) && near(all[1], 2500), "{all:?}");
    }

    #[test]
    fn circuits_of_unknown_bandwidth_are_as_likely() {
        let all = counts(&[of(0.0, 0.0), of(0.0, f64::NAN), of(1.0, 0.0)]);
        assert!(near(all[0], 5000) && near(all[1], 5000), "{all:?}");
    }

    #[test]
    fn what_is_not_stated_weighs_nothing() {
        let one = Candidate::new([None, Some(0.5), None], 7.0);
        assert_eq!(one, of(0.5, 7.0));
        let none = Candidate::new([None; 3], 7.0);
        assert_eq!(none.weight.to_string(), "0");
        let share = Candidate::new([None; 3], 7.0).share();
        assert_eq!(share, Candidate::new([Some(0.0); 3], 7.0).share());
    }

    #[test]
    fn none_of_none_is_chosen() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        assert_eq!(choose(&[], &mut rng), None);
        assert_eq!(choose(&[of(4.0, 0.0)], &mut rng), Some(0));
    }

    /// The chances of circuits, and of those that a relay is in together.
    fn chances(circuits: &[Vec<usize>], stated: &[Option<f64>]) -> Vec<f64> {
        let share = |circuit: &Vec<usize>| {
            let stated = circuit.iter().map(|relay| stated[*relay]);
            let bandwidth = circuit.iter().map(|relay| relay * 37 % 101 + 1).min();
            Candidate::new(stated, bandwidth.unwrap() as f64).share()
        };
        let shares: Vec<f64> = circuits.iter().map(share).collect();
        let sum: f64 = shares.iter().sum();
        shares.iter().map(|share| share / sum).collect()
    }

    proptest! {
        /// Relays state any weights. One of them then states a weight and before stated none: its own circuits get no better
        /// chance, the others no worse one, and the others keep their proportions.
        #[test]
        fn a_statement_can_only_lower_the_chance_of_its_own_circuits(
            circuits in proptest::collection::vec(proptest::collection::vec(0..9_usize, 3), 1..12),
            mut stated in proptest::collection::vec(proptest::option::of(0.0..1e6_f64), 9),
            relay in 0..9_usize,
            weight in prop_oneof![Just(0.0), Just(f64::MIN_POSITIVE), Just(1e-12), 0.0..1.0, 0.0..1e6_f64],
        ) {
            stated[relay] = None;
            let silent = chances(&circuits, &stated);
            stated[relay] = Some(weight);
            let speaks = chances(&circuits, &stated);
            let (mut before, mut after) = (0.0, 0.0);
            let mut grown: Option<f64> = None;
            for (circuit, (silent, speaks)) in circuits.iter().zip(silent.iter().zip(&speaks)) {
                if circuit.contains(&relay) {
                    before += silent;
                    after += speaks;
                    continue;
                }
                let by = speaks / silent;
                prop_assert!(by >= 1.0 - 1e-9);
                prop_assert!(grown.is_none_or(|grown| (by / grown - 1.0).abs() < 1e-9));
                grown = Some(by);
            }
            prop_assert!(after <= before + 1e-9);
        }

        #[test]
        fn some_circuit_is_chosen_whatever_weights_are(
            weights in proptest::collection::vec((any::<f64>(), any::<f64>()), 1..40),
            seed in any::<u64>(),
        ) {
            let all: Vec<Candidate> = weights.iter().map(|(w, b)| of(*w, *b)).collect();
            prop_assert!(choose(&all, &mut ChaCha12Rng::seed_from_u64(seed)).is_some());
            prop_assert!(all.iter().all(|one| one.share() > 0.0 && one.share().is_finite()));
        }
    }
}
