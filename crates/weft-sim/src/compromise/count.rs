//! Counts the clients with tunnels that adversaries compromise.

use rand::seq::SliceRandom as _;
use weft_path::PathError;
use weft_stats::Spread;

use super::clients::{Clients, Entry, Tunnel};
use super::tunnel::Adversary;
use crate::parallel;
use crate::random::{Generator, generator};

/// Clients of a group, which face the same adversaries. Confidence intervals are of the means of
/// groups, since an adversary's successes against its clients are not independent.
pub(super) const GROUP: u64 = 100;
/// Adversaries that each client is held against.
const ADVERSARIES: usize = 20;

/// Relays that an adversary owns: drawn without regard to bandwidth, until the next one would
/// exceed its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grant {
    /// These shares of the guards and exits that clients draw from. Each relay serves as only one
    /// of both, as in the formula.
    Shares(Adversary),
    /// Relays of any flags, with this share of all bandwidth.
    Bandwidth(f64),
}

/// Size of a count, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Clients.
    pub clients: u64,
    /// The widest tunnel, circuits: 1 to 16.
    pub circuits: u32,
    /// The result is a function of this.
    pub seed: u64,
    /// Threads; they change nothing in the result.
    pub threads: usize,
}

impl Sample {
    /// Pieces that the work is cut into, each a group of clients.
    pub fn groups(self) -> u64 {
        groups(self.clients)
    }
}

/// Number of groups of [`GROUP`] clients.
pub(super) fn groups(clients: u64) -> u64 {
    clients.div_ceil(GROUP)
}

/// Results of [`count`].
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    groups: Vec<Group>,
    circuits: usize,
}

/// Results of a group of clients.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    /// By grant, entry and circuits: the share of the clients that is compromised.
    shares: Vec<f64>,
    /// By grant: its adversaries' shares of guards and exits.
    adversaries: Vec<Vec<Adversary>>,
}

/// A share with its error, as far as known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Of the clients, 0 to 1.
    pub share: f64,
    /// Its standard error; `None`: there are too few clients for one.
    pub error: Option<f64>,
    /// Half the width of its 95 % confidence interval.
    pub ci95: Option<f64>,
}

impl Counted {
    /// Share of compromised clients whose tunnels have this number of circuits, by the places of
    /// grant and entry.
    pub fn share(&self, grant: usize, entry: usize, circuits: u32) -> Share {
        let place = place(grant, entry, circuits as usize, self.circuits);
        let groups = self.groups.iter();
        let shares: Vec<f64> = groups
            .filter_map(|group| group.shares.get(place).copied())
            .collect();
        let spread = Spread::of(&shares);
        let stddev = spread.and_then(|spread| spread.stddev);
        Share {
            share: spread.map_or(0.0, |spread| spread.mean),
            error: stddev.map(|stddev| stddev / (shares.len() as f64).sqrt()),
            ci95: spread.and_then(|spread| spread.ci95),
        }
    }

    /// Shares that the adversaries of a grant own.
    pub fn adversaries(&self, grant: usize) -> impl Iterator<Item = Adversary> {
        let groups = self.groups.iter();
        groups.flat_map(move |group| group.adversaries.get(grant).into_iter().flatten().copied())
    }
}

/// Entries that are counted.
const ENTRIES: usize = 2;

fn place(grant: usize, entry: usize, circuits: usize, most: usize) -> usize {
    (grant * ENTRIES + entry) * most + circuits.saturating_sub(1)
}

/// Counts. Each client builds a tunnel of `sample.circuits` circuits with each of these entries (one or two); a narrower one
/// has the first of them.
///
/// # Errors
///
/// [`PathError`]: the network has no path for one of the circuits.
pub fn count(
    clients: &Clients,
    bandwidths: &[u64],
    entries: &[Entry],
    grants: &[Grant],
    sample: Sample,
    done: impl Fn() + Sync,
) -> Result<Counted, PathError> {
    let most = sample.circuits as usize;
    let work = |number: usize| -> Result<Group, PathError> {
        let mut rng = generator(sample.seed, u64::from(sample.circuits), number as u64);
        let begun = number as u64 * GROUP;
        let mut tunnels: Vec<(usize, Tunnel)> = Vec::new();
        let size = GROUP.min(sample.clients - begun);
        for _ in 0..size {
            let mut client = clients.client(&mut rng);
            for (place, entry) in entries.iter().enumerate().take(ENTRIES) {
                tunnels.push((place, client.tunnel(sample.circuits, *entry, &mut rng)?));
            }
        }
        let mut group = Group {
            shares: vec![0.0; grants.len() * ENTRIES * most],
            adversaries: Vec::with_capacity(grants.len()),
        };
        let part = 1.0 / (size as f64 * ADVERSARIES as f64);
        for (number, grant) in grants.iter().enumerate() {
            let mut of_grant = Vec::with_capacity(ADVERSARIES);
            for _ in 0..ADVERSARIES {
                let relays = granted(clients, bandwidths, *grant, &mut rng);
                of_grant.push(relays.shares(clients));
                for (entry, tunnel) in &tunnels {
                    let Some(first) = relays.first_circuit(tunnel) else {
                        continue;
                    };
                    // All tunnels from this width on have the circuit.
                    for circuits in first..=most {
                        let place = place(number, *entry, circuits, most);
                        if let Some(share) = group.shares.get_mut(place) {
                            *share += part;
                        }
                    }
                }
            }
            group.adversaries.push(of_grant);
        }
        Ok(group)
    };
    let groups = usize::try_from(sample.groups()).unwrap_or(usize::MAX);
    let groups = parallel::map(groups, sample.threads, work, done);
    Ok(Counted {
        groups: groups.into_iter().collect::<Result<_, _>>()?,
        circuits: most,
    })
}

/// The relays of an adversary, by place.
struct Marked {
    guards: Vec<bool>,
    exits: Vec<bool>,
}

impl Marked {
    /// The first circuit of a tunnel, from 1, that has the adversary at both ends.
    fn first_circuit(&self, tunnel: &Tunnel) -> Option<usize> {
        let has = |marks: &[bool], relay: u32| marks.get(relay as usize) == Some(&true);
        if !has(&self.exits, tunnel.exit) {
            return None;
        }
        let mut guards = tunnel.guards.iter();
        Some(1 + guards.position(|guard| has(&self.guards, *guard))?)
    }

    fn shares(&self, clients: &Clients) -> Adversary {
        let share = |marks: &[bool], weights: &[u64]| {
            let of = |wanted: bool| -> u128 {
                let both = marks.iter().zip(weights);
                both.filter(|(mark, _)| **mark || !wanted)
                    .map(|(_, weight)| u128::from(*weight))
                    .sum()
            };
            of(true) as f64 / (of(false) as f64).max(1.0)
        };
        Adversary {
            guards: share(&self.guards, clients.guard_weights()),
            exits: share(&self.exits, clients.exit_weights()),
        }
    }
}

fn granted(clients: &Clients, bandwidths: &[u64], grant: Grant, rng: &mut Generator) -> Marked {
    match grant {
        Grant::Shares(adversary) => Marked {
            guards: part(clients.guard_weights(), adversary.guards, rng),
            exits: part(clients.exit_weights(), adversary.exits, rng),
        },
        Grant::Bandwidth(share) => {
            let marks = part(bandwidths, share, rng);
            Marked {
                guards: marks.clone(),
                exits: marks,
            }
        }
    }
}

/// Marks relays in random order until they have this share of all weight.
fn part(weights: &[u64], share: f64, rng: &mut Generator) -> Vec<bool> {
    let mut order: Vec<(usize, u64)> = weights.iter().copied().enumerate().collect();
    order.retain(|(_, weight)| *weight > 0);
    let all: u128 = order.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut left = (all as f64 * share.clamp(0.0, 1.0)) as u128;
    order.shuffle(rng);
    let mut marks = vec![false; weights.len()];
    for (relay, weight) in order {
        let weight = u128::from(weight);
        if weight <= left
            && let Some(mark) = marks.get_mut(relay)
        {
            left -= weight;
            *mark = true;
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compromise::tunnel::{Guards, probability};
    use crate::synth;

    const FIFTH: Adversary = Adversary {
        guards: 0.2,
        exits: 0.2,
    };

    #[test]
    fn counts_are_near_the_formula_and_do_not_depend_on_threads() {
        let network = synth::network(1500, 1).expect("a network");
        let clients = Clients::new(&network);
        let bandwidths: Vec<u64> = network.relays.iter().map(|one| one.bandwidth).collect();
        let sample = Sample {
            clients: 2000,
            circuits: 6,
            seed: 1,
            threads: 2,
        };
        let entries = [Entry::Distinct, Entry::Common];
        let grants = [Grant::Shares(FIFTH), Grant::Bandwidth(0.2)];
        let counted = count(&clients, &bandwidths, &entries, &grants, sample, || ());
        let counted = counted.expect("paths");
        for (entry, guards) in [(0, Guards::AsMany), (1, Guards::Common)] {
            for circuits in 1..=6 {
                let formula = probability(circuits, guards, FIFTH);
                let share = counted.share(0, entry, circuits);
                let error = share.error.expect("twenty groups");
                // Guards are different relays: the adversary's share of those that are left is a little larger.
                let off = (share.share - formula).abs();
                assert!(
                    off < 4.0 * error + 0.03 * formula,
                    "{circuits} {share:?} {formula}"
                );
            }
        }
        for adversary in counted.adversaries(0) {
            assert!((adversary.guards - 0.2).abs() < 0.001, "{adversary:?}");
            assert!((adversary.exits - 0.2).abs() < 0.005, "{adversary:?}");
        }
        assert_eq!(counted.adversaries(1).count(), 20 * ADVERSARIES);
        let alone = Sample {
            threads: 1,
            ..sample
        };
        let again = count(&clients, &bandwidths, &entries, &grants, alone, || ());
        assert_eq!(again, Ok(counted));
    }

    #[test]
    fn few_clients_have_no_interval() {
        let network = synth::network(300, 1).expect("a network");
        let clients = Clients::new(&network);
        let sample = Sample {
            clients: 30,
            circuits: 2,
            seed: 1,
            threads: 1,
        };
        let grants = [Grant::Shares(FIFTH)];
        let counted = count(&clients, &[], &[Entry::Distinct], &grants, sample, || ());
        let share = counted.expect("paths").share(0, 0, 2);
        assert!(share.share > 0.0 && share.error.is_none() && share.ci95.is_none());
    }

    #[test]
    fn parts_have_what_they_may_have() {
        let mut rng = generator(1, 1, 1);
        let weights: Vec<u64> = (0..1000).map(|weight| weight % 97).collect();
        let all: u64 = weights.iter().sum();
        for share in [0.0, 0.013, 0.2, 1.0] {
            let marks = part(&weights, share, &mut rng);
            let both = marks.iter().zip(&weights);
            let has: u64 = both.filter(|(mark, _)| **mark).map(|(_, one)| one).sum();
            assert!((has as f64 / all as f64 - share).abs() < 0.0001, "{share}");
        }
    }
}
