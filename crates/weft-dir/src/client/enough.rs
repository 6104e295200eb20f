//! Decides whether a client knows enough of the network to build circuits, as C tor computes it.
//!
//! The fraction of all paths, weighted as they would be chosen, whose relays' microdescriptors
//! are there (C tor `compute_frac_paths_available`, `frac_nodes_with_descriptors`). A directory
//! that trickles out relays to learn or to bias our paths gains nothing below that threshold.

use std::fmt;

use tor_netdoc::doc::netstatus::{MdConsensus, RelayWeight};
use tor_netdoc::types::relay_flags::RelayFlag;

use crate::microdesc::MdDigest;

/// Fraction of paths needed where neither torrc nor consensus sets it, in percent (C tor
/// `DFLT_PCT_USABLE_NEEDED`).
const NEEDED: i32 = 60;
/// Scale of bandwidth weights where the consensus does not set it.
const SCALE: i32 = 10_000;

/// A relay of the consensus, with its weight in each position.
#[derive(Clone, Debug)]
struct Candidate {
    /// Its microdescriptor.
    microdesc: MdDigest,
    /// Its weight as guard; `None`: it is not one.
    guard: Option<f64>,
    /// Its weight as middle.
    middle: f64,
    /// Its weight as exit; `None`: it is not one.
    exit: Option<f64>,
}

/// The weights of all relays of a consensus.
#[derive(Clone, Debug)]
pub(super) struct PathWeights {
    relays: Vec<Candidate>,
    /// `min_paths_for_circs_pct`, as a fraction.
    needed: f64,
}

/// Fractions of the network's paths that can be built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fractions {
    /// Of guards' bandwidth, 0 to 1.
    guard: f64,
    /// Of middles' bandwidth.
    middle: f64,
    /// Of exits' bandwidth, or of middles' if there is no exit.
    exit: f64,
    /// True if an exit is usable.
    has_exits: bool,
    /// Relays whose microdescriptors are there.
    pub(super) present: usize,
    /// Relays listed.
    pub(super) listed: usize,
}

/// Sums of weights, to make a fraction of.
#[derive(Default)]
struct Sum {
    /// Weight and number of all.
    all: (f64, u32),
    /// Weight and number of those that are there.
    present: (f64, u32),
}

impl Sum {
    /// One more relay.
    fn add(&mut self, weight: f64, present: bool) {
        self.all.0 += weight;
        self.all.1 += 1;
        if present {
            self.present.0 += weight;
            self.present.1 += 1;
        }
    }

    /// The fraction that is there; by number if nothing has weight.
    fn fraction(&self) -> f64 {
        if self.all.0 > 0.0 {
            self.present.0 / self.all.0
        } else if self.all.1 > 0 {
            f64::from(self.present.1) / f64::from(self.all.1)
        } else {
            0.0
        }
    }
}

impl PathWeights {
    /// The weights that `consensus` gives (dir-spec 3.8.3; path-spec 2.2).
    pub(super) fn new(consensus: &MdConsensus) -> Self {
        let scale = consensus.params().get("bwweightscale").copied();
        let scale = f64::from(scale.unwrap_or(SCALE).max(1));
        let weights = consensus.bandwidth_weights();
        let names = ["g", "m", "e", "d"];
        // In the order guard, middle, exit, both; without weights every relay counts by bandwidth.
        let position = |position: &str| -> Option<[f64; 4]> {
            let mut found = [0.0; 4];
            for (place, name) in found.iter_mut().zip(names) {
                *place = match (position, name) {
                    ("g", "e") => 0.0,
                    _ => {
                        let weight = weights.get(format!("W{position}{name}")).copied()?;
                        if weight < 0 {
                            return None;
                        }
                        f64::from(weight) / scale
                    }
                };
            }
            Some(found)
        };
        let [guards, middles, exits] = ["g", "m", "e"].map(|of| position(of).unwrap_or([1.0; 4]));
        let relays = consensus
            .relays()
            .iter()
            .map(|relay| {
                let has = |flag| relay.flags().contains(flag);
                let guard = has(RelayFlag::Guard);
                let exit = has(RelayFlag::Exit) && !has(RelayFlag::BadExit);
                let bandwidth = f64::from(match relay.weight() {
                    RelayWeight::Measured(bandwidth) | RelayWeight::Unmeasured(bandwidth) => {
                        *bandwidth
                    }
                    _ => 0,
                });
                let weight = |[g, m, e, d]: [f64; 4]| {
                    bandwidth
                        * match (guard, exit) {
                            (true, true) => d,
                            (true, false) => g,
                            (false, true) => e,
                            (false, false) => m,
                        }
                };
                Candidate {
                    microdesc: *relay.md_digest(),
                    guard: guard.then(|| weight(guards)),
                    middle: weight(middles),
                    exit: has(RelayFlag::Exit).then(|| weight(exits)),
                }
            })
            .collect();
        let needed = consensus.params().get("min_paths_for_circs_pct").copied();
        Self {
            relays,
            needed: f64::from(needed.unwrap_or(NEEDED).clamp(25, 95)) / 100.0,
        }
    }

    /// The microdescriptors of all relays.
    pub(super) fn microdescs(&self) -> impl Iterator<Item = &MdDigest> {
        self.relays.iter().map(|relay| &relay.microdesc)
    }

    /// The fraction of paths needed; `configured` is PathsNeededToBuildCircuits.
    pub(super) fn needed(&self, configured: Option<f64>) -> f64 {
        configured.unwrap_or(self.needed)
    }

    /// The fractions that are there if `have` is true for the microdescriptors that are there.
    pub(super) fn fractions(&self, have: impl Fn(&MdDigest) -> bool) -> Fractions {
        let (mut guards, mut middles, mut exits) = (Sum::default(), Sum::default(), Sum::default());
        let mut count = 0;
        let mut has_exits = false;
        for relay in &self.relays {
            let present = have(&relay.microdesc);
            count += usize::from(present);
            middles.add(relay.middle, present);
            if let Some(weight) = relay.guard {
                guards.add(weight, present);
            }
            if let Some(weight) = relay.exit {
                exits.add(weight, present);
                has_exits |= present;
            }
        }
        let middle = middles.fraction();
        let exit = if exits.all.1 == 0 {
            middle
        } else {
            exits.fraction()
        };
        Fractions {
            guard: guards.fraction(),
            middle,
            exit,
            has_exits,
            present: count,
            listed: self.relays.len(),
        }
    }
}

impl Fractions {
    /// The fraction of paths that can be built.
    pub(super) fn paths(&self) -> f64 {
        self.guard * self.middle * self.exit
    }

    /// True if an exit is usable.
    pub(super) fn has_exits(&self) -> bool {
        self.has_exits
    }
}

/// A fraction as a whole percentage.
fn percent(fraction: f64) -> String {
    format!("{:.0}", (fraction * 100.0).floor())
}

impl fmt::Display for Fractions {
    /// In C tor's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exits = if self.has_exits {
            "exit bw"
        } else {
            "end bw (no exits in consensus, using mid)"
        };
        write!(
            f,
            "we have {}/{}, and can only build {}% of likely paths. (We have {}% of guards bw, \
             {}% of midpoint bw, and {}% of {exits} = {}% of path bw.)",
            self.present,
            self.listed,
            percent(self.paths()),
            percent(self.guard),
            percent(self.middle),
            percent(self.exit),
            percent(self.paths()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relays in the order guard and exit, guard, middle, exit.
    fn network(exits: bool) -> PathWeights {
        let relay = |number: u8, guard: Option<f64>, middle: f64, exit: Option<f64>| Candidate {
            microdesc: [number; 32],
            guard,
            middle,
            exit: exit.filter(|_| exits),
        };
        PathWeights {
            relays: vec![
                relay(0, Some(0.0), 0.0, Some(30.0)),
                relay(1, Some(10.0), 5.0, None),
                relay(2, None, 15.0, None),
                relay(3, None, 0.0, Some(10.0)),
            ],
            needed: 0.6,
        }
    }

    #[test]
    fn paths_are_the_product_of_what_is_there_in_each_position() {
        let some = network(true).fractions(|digest| [0, 1].contains(&digest[0]));
        assert_eq!((some.guard, some.middle, some.exit), (1.0, 0.25, 0.75));
        assert_eq!(some.paths(), 0.1875);
        assert_eq!(
            some.to_string(),
            "we have 2/4, and can only build 18% of likely paths. (We have 100% of guards bw, 25% of \
             midpoint bw, and 75% of exit bw = 18% of path bw.)"
        );
        assert_eq!(network(true).fractions(|_| true).paths(), 1.0);
        assert_eq!(network(true).fractions(|_| false).paths(), 0.0);
    }

    #[test]
    fn a_network_without_exits_counts_its_middles() {
        let all = network(false).fractions(|_| true);
        assert_eq!(all.paths(), 1.0);
        assert!(!all.has_exits());
        // One whose exits are not there yet has to wait for them.
        let some = network(true).fractions(|digest| [1, 2].contains(&digest[0]));
        assert_eq!(some.paths(), 0.0);
    }

    #[test]
    fn relays_without_weight_count_by_number() {
        let relays = (0..4)
            .map(|number| Candidate {
                microdesc: [number; 32],
                guard: Some(0.0),
                middle: 0.0,
                exit: Some(0.0),
            })
            .collect();
        let weights = PathWeights {
            relays,
            needed: 0.6,
        };
        assert_eq!(weights.fractions(|digest| digest[0] < 2).paths(), 0.125);
        assert_eq!(weights.needed(None), 0.6);
        assert_eq!(weights.needed(Some(0.9)), 0.9);
    }
}
