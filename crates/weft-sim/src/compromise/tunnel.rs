//! Clients whose traffic takes several circuits at once, by the formula of Yang and Li 2015, section VI.
//!
//! The circuits of a tunnel share their exit and have guards of the client's guard set, each its own.
//! The client is compromised if the exit and one of these guards are the adversary's.

use serde::Serialize;

use crate::network::{Network, Position};

/// Guards of a tunnel's circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guards {
    /// Different guards of a set of this size; all of the set, if the tunnel has more circuits.
    Set(u32),
    /// Different ones of a set that is as large as the tunnel is wide, if that is more than three. The
    /// numbers printed in Yang and Li (2015) are these.
    AsMany,
    /// One for all circuits.
    Common,
}

impl Guards {
    /// Number of different guards that a tunnel with this number of circuits uses.
    pub fn used(self, circuits: u32) -> u32 {
        match self {
            Guards::Set(size) => circuits.min(size),
            Guards::AsMany => circuits,
            Guards::Common => circuits.min(1),
        }
    }

    /// Size of the guard set.
    fn set(self, circuits: u32) -> u32 {
        match self {
            Guards::Set(size) => size,
            Guards::AsMany => circuits.max(3),
            Guards::Common => 3,
        }
    }
}

/// Shares of the bandwidth that clients choose from which belong to an adversary, 0 to 1.
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

    /// Shares of `network` that this consensus weight is, if the adversary runs `guards_to_exits`
    /// parts of guards for one of exits (the paper: 5). Its relays are weighed as relays with only
    /// the one flag, and count as part of the network: nothing is added to the totals.
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

/// Probability that a client with a tunnel of this number of circuits is compromised: the paper's
/// sum over the number of the adversary's relays in the guard set.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{EXIT, GUARD, network};

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
    fn coefficients_are_pascals() {
        assert_eq!(choose(5, 2), 10.0);
        assert_eq!(choose(3, 0), 1.0);
        assert_eq!(choose(2, 3), 0.0);
    }
}
