//! Choices that the clients of a virtual network made, recorded: for each, the circuits that the
//! client could have chosen, with their relays and the weights that it knew of them.
//!
//! A file has a JSON object in each line: a [`Network`], and after it the [`Choice`]s that were made in it; then perhaps another
//! network.

use std::io::{BufRead, Read as _};

use serde::{Deserialize, Serialize};
use weft_path::Candidate;

use super::replay::{Grant, Lie, Quantiles, adversary, smallest};
use super::{ADVERSARIES, PERCENT, Refused, weight};
use crate::parallel;

/// Bytes of a line at most.
const LONGEST: u64 = 16 << 20;
/// Choices of a file at most.
const MOST: usize = 2_000_000;
/// Circuits of a choice at most.
const MOST_CIRCUITS: usize = 1000;
/// Relays of a circuit at most.
const MOST_HOPS: usize = 8;
/// The largest weight that a relay states (docs/extensions/abra.md).
const MOST_WEIGHT: f64 = 1e6;

/// A relay of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Its host.
    pub name: String,
    /// Its bandwidth by the consensus, by which circuits without a bottleneck are chosen.
    pub bandwidth: u64,
    /// It was an adversary's when choices were recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adversary: bool,
}

/// The relays of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Circuits name them by their places.
    pub relays: Vec<Relay>,
}

/// A circuit that a client could have chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circuit {
    /// Places of its relays, the first hop first.
    pub relays: Vec<u32>,
    /// The weight of each, in 1/(Mbit/s). `null`: the client did not know it.
    pub weights: Vec<Option<f64>>,
}

/// A choice that a client made for a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The client's host.
    pub client: String,
    /// When, in seconds since the beginning.
    pub at_s: f64,
    /// The place of the circuit that was chosen.
    pub chosen: usize,
    /// All that could have been.
    pub circuits: Vec<Circuit>,
}

/// The choices that were made in one network.
#[derive(Clone, Debug, PartialEq)]
pub struct Pools {
    /// Its relays.
    pub network: Network,
    /// The choices.
    pub choices: Vec<Choice>,
}

/// Error in a file of recorded choices.
#[derive(Debug, thiserror::Error)]
pub enum PoolsError {
    /// A line is neither of both.
    #[error("line {line}: it is no network and no choice of a client: {why}")]
    Line {
        /// From 1.
        line: usize,
        /// In words.
        why: String,
    },
    /// Choices without relays.
    #[error("line {0}: a choice comes before the first network; the first line has \"relays\"")]
    NoNetwork(usize),
    /// A choice contradicts itself or its network.
    #[error("line {line}: {why}")]
    Choice {
        /// From 1.
        line: usize,
        /// In words.
        why: String,
    },
    /// Too long, or no text.
    #[error("line {0}: it is longer than {LONGEST} bytes, or no text")]
    Text(usize),
    /// Too many.
    #[error("line {0}: there are more than {MOST} choices")]
    TooMany(usize),
    /// None.
    #[error("it has no choice")]
    None,
    /// The system.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

/// Reads a file.
///
/// # Errors
///
/// A line is malformed: the error names it.
pub fn read(mut from: impl BufRead) -> Result<Vec<Pools>, PoolsError> {
    let mut all: Vec<Pools> = Vec::new();
    let (mut line, mut count) = (0, 0);
    loop {
        line += 1;
        let mut bytes = Vec::new();
        from.by_ref().take(LONGEST).read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        let is_whole = bytes.ends_with(b"\n") || (bytes.len() as u64) < LONGEST;
        let text = String::from_utf8(bytes).ok().filter(|_| is_whole);
        let text = text.ok_or(PoolsError::Text(line))?;
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        let not_read = |error: serde_json::Error| PoolsError::Line {
            line,
            // The position in the line is right, the line is not.
            why: error.to_string().replace("at line 1 column", "at column"),
        };
        if !text.contains("\"circuits\"") {
            let network = serde_json::from_str(text).map_err(not_read)?;
            all.push(Pools {
                network,
                choices: Vec::new(),
            });
            continue;
        }
        let choice: Choice = serde_json::from_str(text).map_err(not_read)?;
        let pools = all.last_mut().ok_or(PoolsError::NoNetwork(line))?;
        check(&choice, &pools.network).map_err(|why| PoolsError::Choice { line, why })?;
        count += 1;
        if count > MOST {
            return Err(PoolsError::TooMany(line));
        }
        pools.choices.push(choice);
    }
    all.retain(|pools| !pools.choices.is_empty());
    match all.is_empty() {
        true => Err(PoolsError::None),
        false => Ok(all),
    }
}

/// Returns the reason for which this choice cannot be in that network.
fn check(choice: &Choice, network: &Network) -> Result<(), String> {
    let count = choice.circuits.len();
    if count == 0 || count > MOST_CIRCUITS {
        return Err(format!(
            "{count} circuits; a choice has 1 to {MOST_CIRCUITS}"
        ));
    }
    if choice.chosen >= count {
        let chosen = choice.chosen;
        return Err(format!("circuit {chosen} is chosen, of {count} from 0"));
    }
    let is_weight = |weight: &f64| (0.0..=MOST_WEIGHT).contains(weight);
    for circuit in &choice.circuits {
        let hops = circuit.relays.len();
        if hops == 0 || hops > MOST_HOPS || circuit.weights.len() != hops {
            let weights = circuit.weights.len();
            return Err(format!(
                "a circuit of {hops} relays with {weights} weights; it has 1 to {MOST_HOPS}, each with its weight"
            ));
        }
        let known = network.relays.len();
        if let Some(relay) = circuit
            .relays
            .iter()
            .find(|relay| **relay as usize >= known)
        {
            return Err(format!(
                "there is no relay {relay}; the network has {known}, from 0"
            ));
        }
        if let Some(weight) = circuit.weights.iter().flatten().find(|one| !is_weight(one)) {
            return Err(format!(
                "the weight {weight} is not from 0 to {MOST_WEIGHT}"
            ));
        }
    }
    Ok(())
}

/// As a file.
///
/// # Errors
///
/// A number is not finite, which no run records.
pub fn text(all: &[Pools]) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for pools in all {
        text += &serde_json::to_string(&pools.network)?;
        text.push('\n');
        for choice in &pools.choices {
            text += &serde_json::to_string(choice)?;
            text.push('\n');
        }
    }
    Ok(text)
}

/// Success of an adversary with this share, in percent of choices, over adversaries and networks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PoolPoint {
    /// Share of the network that the adversary owns, 0 to 1; `None`: the adversary is the one that
    /// was in the network when choices were recorded.
    pub fraction: Option<f64>,
    /// Circuits compromised with the weights that were recorded.
    pub honest: Quantiles,
    /// If its relays had stated 0.
    pub lying: Quantiles,
    /// Lying relays, the smallest of which reports [`TINY`](super::TINY) instead of 0.
    pub tiny: Quantiles,
    /// Where clients choose any circuit of their pools.
    pub blind: Quantiles,
    /// Of the circuits that were chosen in the run.
    pub chosen: Quantiles,
}

/// Makes the choices again by the rule that clients have, for the given number of adversaries with
/// each of these shares of each network, and first for the recorded adversary, if there is one in
/// each network. `done` is called for each adversary.
///
/// # Errors
///
/// [`Refused`].
pub fn replay(
    all: &[Pools],
    fractions: &[f64],
    (grant, adversaries, seed, threads): (Grant, u32, u64, usize),
    done: impl Fn() + Sync,
) -> Result<Vec<PoolPoint>, Refused> {
    for part in fractions {
        PERCENT.check("percent", part * 100.0)?;
    }
    ADVERSARIES.check("adversaries", adversaries)?;
    if all.iter().all(|pools| pools.choices.is_empty()) {
        return Err(Refused::NoChoices);
    }
    let mut points = Vec::new();
    let recorded: Vec<Vec<bool>> = (all.iter())
        .map(|pools| {
            pools
                .network
                .relays
                .iter()
                .map(|relay| relay.adversary)
                .collect()
        })
        .collect();
    if recorded.iter().all(|is_bad| is_bad.contains(&true)) {
        let each = all.iter().zip(&recorded);
        let each: Vec<[f64; 5]> = each.map(|(pools, is_bad)| success(pools, is_bad)).collect();
        points.push(point(None, &each));
    }
    let bandwidths: Vec<Vec<f64>> = (all.iter())
        .map(|pools| {
            pools
                .network
                .relays
                .iter()
                .map(|relay| relay.bandwidth as f64)
                .collect()
        })
        .collect();
    let count = adversaries as usize;
    let results = parallel::map(
        fractions.len() * count,
        threads,
        |piece| {
            let fraction = fractions.get(piece / count).copied().unwrap_or(0.0);
            let number = (piece % count) as u64;
            // Of each network others.
            let drawn = (0..).zip(all.iter().zip(&bandwidths));
            let each = drawn.map(|(network, (pools, bandwidths))| {
                let number = (network << 32) | number;
                success(
                    pools,
                    &adversary(bandwidths, fraction, grant, (seed, number)),
                )
            });
            let each: Vec<[f64; 5]> = each.collect();
            done();
            each
        },
        || (),
    );
    for (fraction, results) in fractions.iter().zip(results.chunks(count)) {
        let each: Vec<[f64; 5]> = results.iter().flatten().copied().collect();
        points.push(point(Some(*fraction), &each));
    }
    Ok(points)
}

fn point(fraction: Option<f64>, each: &[[f64; 5]]) -> PoolPoint {
    let over = |place: usize| {
        let shares = each.iter().filter_map(|one| one.get(place));
        Quantiles::of(&shares.map(|share| share * 100.0).collect::<Vec<f64>>())
    };
    PoolPoint {
        fraction,
        honest: over(0),
        lying: over(1),
        tiny: over(2),
        blind: over(3),
        chosen: over(4),
    }
}

/// Means over all choices: the probability that clients choose a compromised circuit with the
/// recorded weights, with each of both lies and blindly, and the share of recorded choices that are
/// compromised.
fn success(pools: &Pools, is_bad: &[bool]) -> [f64; 5] {
    let bad = |relay: &u32| is_bad.get(*relay as usize) == Some(&true);
    let (mut pool, mut chances) = (Vec::new(), Vec::new());
    let mut sums = [0.0; 5];
    let relays = &pools.network.relays;
    let bandwidths: Vec<f64> = relays.iter().map(|one| one.bandwidth as f64).collect();
    let smallest = smallest(is_bad, &bandwidths);
    for choice in &pools.choices {
        let compromised: Vec<bool> = (choice.circuits.iter())
            .map(|circuit| {
                let mut ends = circuit
                    .relays
                    .first()
                    .into_iter()
                    .chain(circuit.relays.last());
                ends.all(bad)
            })
            .collect();
        let count = compromised.iter().filter(|is| **is).count();
        if count == 0 {
            continue;
        }
        let [by_weight @ .., blind, chosen] = &mut sums;
        for (sum, lie) in by_weight.iter_mut().zip(Lie::ALL) {
            pool.clear();
            let circuits = choice.circuits.iter();
            pool.extend(circuits.map(|circuit| {
                candidate(circuit, &pools.network, |relay, weight| {
                    lie.told(relay, (is_bad, smallest), weight)
                })
            }));
            weight::chances(&pool, &mut chances);
            let pairs = chances.iter().zip(&compromised);
            *sum += pairs
                .filter(|(_, is)| **is)
                .map(|(chance, _)| chance)
                .sum::<f64>();
        }
        *blind += count as f64 / choice.circuits.len() as f64;
        *chosen += f64::from(compromised.get(choice.chosen) == Some(&true));
    }
    sums.map(|sum| sum / (pools.choices.len() as f64).max(1.0))
}

/// A circuit with the statements of its relays that the client knows; `told` gives them.
fn candidate(
    circuit: &Circuit,
    network: &Network,
    told: impl Fn(usize, Option<f64>) -> Option<f64>,
) -> Candidate {
    let stated = circuit.relays.iter().zip(&circuit.weights);
    let weights = stated.map(|(relay, weight)| told(*relay as usize, *weight));
    let of = |relay: &u32| {
        network
            .relays
            .get(*relay as usize)
            .map_or(0, |one| one.bandwidth)
    };
    let bandwidth = circuit.relays.iter().map(of).min().unwrap_or(0) as f64;
    Candidate::new(weights, bandwidth)
}

/// Share of choices in which a circuit without bottlenecks was there, and the mean number of circuits.
#[must_use]
pub fn shape(all: &[Pools]) -> (f64, f64) {
    let (mut free, mut circuits, mut count) = (0.0, 0.0, 0.0);
    for pools in all {
        for choice in &pools.choices {
            let seen = choice.circuits.iter();
            let seen: Vec<Candidate> = seen
                .map(|one| candidate(one, &pools.network, |_, weight| weight))
                .collect();
            free += f64::from(seen.iter().any(|one| one.weight <= 0.0));
            circuits += seen.len() as f64;
            count += 1.0;
        }
    }
    let count = f64::max(count, 1.0);
    (free / count, circuits / count)
}

#[cfg(test)]
mod tests;
