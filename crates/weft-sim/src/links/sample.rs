//! The results of one repetition, and of all repetitions on one document.

use std::collections::BTreeMap;
use std::time::Duration;

use super::count::{Links, Tally};
use crate::network::Network;

/// Where classes of bandwidth begin, in the consensus's kilobytes per second.
pub const CLASSES: [u64; 8] = [0, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];

/// One repetition on one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Of all links.
    pub all: Links,
    /// Of those between first and second hops.
    pub guard_middle: Links,
    /// Of those between second and third hops.
    pub middle_exit: Links,
    /// Links by the number of circuits on them.
    pub by_circuits: BTreeMap<u64, u64>,
    /// Circuits without a shared link, with one, with two.
    pub circuits_by_shared: [u64; 3],
    /// Relays in circuits.
    pub relays_used: u64,
    /// Relays in shared links.
    pub relays_in_shared: u64,
    /// By [`CLASSES`].
    pub classes: [ClassCounts; CLASSES.len()],
}

/// Relays of a class of bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// In the network.
    pub relays: u64,
    /// In shared links.
    pub in_shared: u64,
    /// Ends of shared links; a link has two.
    pub ends: u64,
}

impl Sample {
    /// Links that carry exactly this number of circuits.
    pub fn links_with(&self, circuits: u64) -> f64 {
        self.by_circuits.get(&circuits).copied().unwrap_or(0) as f64
    }

    /// Of all links, percent.
    pub fn percent_with(&self, circuits: u64) -> f64 {
        self.links_with(circuits) * 100.0 / self.all.links.max(1) as f64
    }

    /// A tally, by class of bandwidth.
    pub fn new(tally: Tally, network: &Network) -> Sample {
        let mut classes = [ClassCounts::default(); CLASSES.len()];
        let mut relays_in_shared = 0;
        for (relay, shared) in network.relays.iter().zip(&tally.shared_of_relay) {
            let class = CLASSES.partition_point(|begin| *begin <= relay.bandwidth) - 1;
            let Some(class) = classes.get_mut(class) else {
                continue;
            };
            class.relays += 1;
            class.in_shared += u64::from(*shared > 0);
            class.ends += u64::from(*shared);
            relays_in_shared += u64::from(*shared > 0);
        }
        Sample {
            all: tally.all,
            guard_middle: tally.guard_middle,
            middle_exit: tally.middle_exit,
            by_circuits: tally.by_circuits,
            circuits_by_shared: tally.circuits_by_shared,
            relays_used: tally.relays_used,
            relays_in_shared,
            classes,
        }
    }
}

/// The results of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentResult {
    /// Its file.
    pub name: String,
    /// Its `valid-after`.
    pub valid_after: String,
    /// Relays, after scaling.
    pub relays: usize,
    /// Relays with the flag Guard.
    pub guards: usize,
    /// Relays with the flag Exit and without BadExit.
    pub exits: usize,
    /// One for each repetition.
    pub samples: Vec<Sample>,
    /// Duration of parsing, after unpacking.
    pub parse: Duration,
    /// Duration of drawing and counting.
    pub elapsed: Duration,
}
