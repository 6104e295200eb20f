//! Clients whose traffic takes several circuits at once (Yang and Li 2015, section VI).
//!
//! The circuits of a tunnel share their exit and have guards of the client's guard set, each its own.
//! The client is compromised if the exit and one of these guards are the adversary's.

use rand::{Rng, RngExt as _};
use serde::Serialize;

use crate::network::{Network, Position};
use crate::parallel;
use crate::random::{CHUNK, generator};
use crate::triples::Triples;

/// Which guards the circuits of a tunnel have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guards {
    /// Different ones of a set of so many; with more circuits than that, all of it.
    Set(u32),
    /// Different ones of a set that is as large as the tunnel is wide, if that is more than three. The
    /// numbers printed in Yang and Li (2015) are these.
    AsMany,
    /// One for all circuits.
    Common,
}

impl Guards {
    /// How many different guards a tunnel of so many circuits uses.
    pub fn used(self, circuits: u32) -> u32 {
        match self {
            Guards::Set(size) => circuits.min(size),
            Guards::AsMany => circuits,
            Guards::Common => circuits.min(1),
        }
    }

    /// How large the guard set is.
    fn set(self, circuits: u32) -> u32 {
        match self {
            Guards::Set(size) => size,
            Guards::AsMany => circuits.max(3),
            Guards::Common => 3,
        }
    }
}

/// What an adversary has of the bandwidth that clients choose from, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Adversary {
    /// Of guards (the paper's f_gbw).
    pub guards: f64,
    /// Of exits (f_xbw).
    pub exits: f64,
}

impl Adversary {
    /// The realistic adversary of Table III, by the paper's numbers.
    pub const TABLE_III: Adversary = Adversary {
        guards: 0.0263,
        exits: 0.0447,
    };

    /// What so much consensus weight is of a network's, if so many parts are guards' for each that is
    /// exits' (the paper: 5). It is weighed as that of relays with the one flag, and not added to what
    /// is there: the adversary's relays are taken to be among the network's.
    pub fn of_weight(weight: f64, guards_to_exits: f64, network: &Network) -> Option<Adversary> {
        let exits = weight / (1.0 + guards_to_exits);
        let whole = |position: Position| -> f64 {
            let relays = network.relays.iter();
            relays
                .map(|one| one.bandwidth as f64 * network.weights.of(position, one.flags))
                .sum()
        };
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| (part / whole).min(1.0));
        let [_, guard, ..] = network.weights.guard;
        let [_, _, exit, _] = network.weights.exit;
        Some(Adversary {
            guards: share((weight - exits) * guard, whole(Position::Guard))?,
            exits: share(exits * exit, whole(Position::Exit))?,
        })
    }
}

/// How likely a client with a tunnel of so many circuits is compromised: the paper's sum over the
/// number of the adversary's relays in the guard set.
pub fn probability(circuits: u32, guards: Guards, adversary: Adversary) -> f64 {
    let (set, used) = (guards.set(circuits), guards.used(circuits));
    let sum: f64 = (0..=set)
        .map(|bad| {
            let binomial = choose(set, bad)
                * adversary.guards.powf(f64::from(bad))
                * (1.0 - adversary.guards).powf(f64::from(set - bad));
            binomial * (1.0 - choose(set - bad, used) / choose(set, used))
        })
        .sum();
    adversary.exits * sum
}

/// The binomial coefficient; 0 where fewer are there than are chosen.
fn choose(of: u32, these: u32) -> f64 {
    match these <= of {
        true => (1..=these)
            .map(|k| f64::from(of - these + k) / f64::from(k))
            .product(),
        false => 0.0,
    }
}

/// A share that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Counted {
    /// Clients.
    pub clients: u64,
    /// Those that are compromised.
    pub compromised: u64,
}

impl Counted {
    /// The share.
    pub fn share(self) -> f64 {
        self.compromised as f64 / (self.clients as f64).max(1.0)
    }

    /// The standard error of the share, if it is this.
    pub fn error(self, share: f64) -> f64 {
        (share * (1.0 - share) / (self.clients as f64).max(1.0)).sqrt()
    }
}

/// How a count is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Clients.
    pub clients: u64,
    /// The result is a function of this.
    pub seed: u64,
    /// Threads; they change nothing in the result.
    pub threads: usize,
}

impl Sample {
    /// Counts the clients for which `compromised` is true.
    fn count(
        self,
        repetition: u64,
        compromised: impl Fn(&mut crate::random::Generator) -> bool + Sync,
    ) -> Counted {
        let chunks = self.clients.div_ceil(CHUNK as u64);
        let counts = parallel::map(
            usize::try_from(chunks).unwrap_or(usize::MAX),
            self.threads,
            |chunk| {
                let mut rng = generator(self.seed, repetition, chunk as u64);
                let rest = self.clients - (chunk * CHUNK) as u64;
                let clients = 0..rest.min(CHUNK as u64);
                clients.filter(|_| compromised(&mut rng)).count() as u64
            },
            || (),
        );
        Counted {
            clients: self.clients,
            compromised: counts.into_iter().sum(),
        }
    }
}

/// The same by counting: every client draws its guard set, the guards of its circuits, and an exit,
/// each the adversary's with the chances given.
pub fn count(circuits: u32, guards: Guards, adversary: Adversary, sample: Sample) -> Counted {
    let (set, used) = (guards.set(circuits), guards.used(circuits));
    let numbers = (u64::from(set) << 40) | (u64::from(used) << 20) | u64::from(circuits);
    sample.count(numbers, |rng| {
        let bad = (0..set)
            .filter(|_| rng.random::<f64>() < adversary.guards)
            .count() as u32;
        let is_exit = rng.random::<f64>() < adversary.exits;
        is_exit && chooses_bad(rng, set, bad, used)
    })
}

/// Whether some of so many different ones of a set are among its bad ones.
fn chooses_bad(rng: &mut impl Rng, set: u32, bad: u32, used: u32) -> bool {
    (0..used).any(|taken| rng.random_range(0..set - taken) < bad)
}

/// The same with the relays of a network: every client draws its guard set as clients do, different
/// relays by weight, and an exit that is none of the guards that it uses. The formula knows neither
/// that guards differ nor that the exit does; this measures the difference.
pub fn count_in(
    triples: &Triples,
    is_bad: &[bool],
    (circuits, guards): (u32, Guards),
    sample: Sample,
) -> Counted {
    let bad = |relay: u32| is_bad.get(relay as usize) == Some(&true);
    let (set, used) = (guards.set(circuits), guards.used(circuits));
    let numbers = (1 << 60) | u64::from(circuits);
    sample.count(numbers, |rng| {
        let mut guards = triples.draw_guards(set as usize, rng);
        let used = (used as usize).min(guards.len());
        for place in 0..used {
            let other = rng.random_range(place..guards.len());
            guards.swap(place, other);
        }
        guards.truncate(used);
        triples.draw_exit_but(&guards, rng).is_some_and(bad) && guards.into_iter().any(bad)
    })
}

/// What the marked relays have of guards' and exits' bandwidth.
pub fn shares(triples: &Triples, is_bad: &[bool]) -> Adversary {
    let share = |position: Position| -> f64 {
        let chances = triples.chances(position);
        let all = chances.iter().zip(is_bad);
        all.filter(|(_, bad)| **bad).map(|(chance, _)| chance).sum()
    };
    Adversary {
        guards: share(Position::Guard),
        exits: share(Position::Exit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EXIT, GUARD, mixed, network};

    const FIFTH: Adversary = Adversary {
        guards: 0.2,
        exits: 0.2,
    };

    /// In percent with two digits, as the paper prints them.
    fn printed(share: f64) -> String {
        format!("{:.2}", share * 100.0)
    }

    #[test]
    fn the_numbers_of_figure_7_and_table_iii_come_out() {
        assert_eq!(printed(probability(1, Guards::AsMany, FIFTH)), "4.00");
        assert_eq!(printed(probability(5, Guards::AsMany, FIFTH)), "13.45");
        let table = (1..=5).map(|m| probability(m, Guards::AsMany, Adversary::TABLE_III));
        let table: Vec<String> = table.map(printed).collect();
        assert_eq!(table, ["0.12", "0.23", "0.34", "0.45", "0.56"]);
        // With the guard set of three that its formula has, no tunnel uses more than three.
        let five = probability(5, Guards::Set(3), FIFTH);
        assert_eq!(five, probability(3, Guards::Set(3), FIFTH));
        assert_eq!(printed(five), "9.76");
        let common = probability(5, Guards::Common, FIFTH);
        assert_eq!(printed(common), "4.00");
    }

    #[test]
    fn the_exits_of_table_iii_are_weighed_with_the_weight_of_guards() {
        // Section VI-B: consensus weights of 2015-03-20, and of the adversary, 5:1.
        let mut network = network(&[
            (GUARD, 17_761_271),
            (EXIT, 983_520),
            (GUARD.with(crate::network::Flags::EXIT), 9_466_357),
        ]);
        network.weights.guard = [0.0, 1.0, 0.0, 0.0];
        let adversary = Adversary::of_weight(560_210.0, 5.0, &network).expect("weights");
        assert_eq!(printed(adversary.guards), "2.63");
        assert_eq!(printed(adversary.exits), "0.89");
        let guards_over_exits = 466_841.7 / (983_520.0 + 9_466_357.0);
        assert_eq!(printed(guards_over_exits), "4.47");
    }

    #[test]
    fn counting_agrees_with_the_formula() {
        let sample = Sample {
            clients: 200_000,
            seed: 3,
            threads: 2,
        };
        for guards in [Guards::Set(3), Guards::AsMany, Guards::Common] {
            for circuits in 1..=5 {
                let chance = probability(circuits, guards, FIFTH);
                let counted = count(circuits, guards, FIFTH, sample);
                let off = (counted.share() - chance).abs();
                assert!(off < 4.0 * counted.error(chance), "{guards:?} {circuits}");
            }
        }
        let one = count(3, Guards::AsMany, FIFTH, sample);
        let alone = Sample {
            threads: 1,
            ..sample
        };
        assert_eq!(one, count(3, Guards::AsMany, FIFTH, alone));
    }

    #[test]
    fn a_network_of_many_relays_is_near_the_formula() {
        let network = mixed(700);
        let triples = Triples::new(&network, false).expect("circuits");
        let is_bad: Vec<bool> = (0..700).map(|number| number % 5 == 0).collect();
        let adversary = shares(&triples, &is_bad);
        let sample = Sample {
            clients: 50_000,
            seed: 4,
            threads: 2,
        };
        for circuits in [1, 3] {
            let chance = probability(circuits, Guards::Set(3), adversary);
            let counted = count_in(&triples, &is_bad, (circuits, Guards::Set(3)), sample);
            // Different relays make a difference beyond that of the sample, but a small one.
            assert!(
                (counted.share() / chance - 1.0).abs() < 0.1,
                "{counted:?} {chance}"
            );
        }
    }

    #[test]
    fn coefficients_are_pascals() {
        assert_eq!(choose(5, 2), 10.0);
        assert_eq!(choose(3, 0), 1.0);
        assert_eq!(choose(2, 3), 0.0);
    }
}
