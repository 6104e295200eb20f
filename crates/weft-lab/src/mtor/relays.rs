//! The relays of the networks: fast ones and slow ones of a real consensus, or of a synthetic one, as a consensus of their own.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use weft_sim::network::{Flags, Network, Relay};
use weft_sim::{read, sample, synth, write};

/// A relay with less than this weight, kB/s, is slow: 100 KiB/s (Yang and Li 2015, III.A), as for `MultipathMiddleBandwidth`.
pub(super) const SLOW_BELOW: u64 = 102;
/// The part of the relays that were slow: 2,740 of 7,069 (III.A and III.B).
pub(super) const SLOW_PART: f64 = 0.39;
/// The file's name beside the scenario.
pub(super) const FILE: &str = "relays-consensus";
/// Relays of the synthetic network that is sampled.
const SYNTHETIC: u32 = 6_500;

/// Where relays come from.
pub(super) fn network(consensus: Option<&Path>, seed: u64) -> Result<Network> {
    let mut network = match consensus {
        Some(path) => {
            let document = read::file(path)?;
            read::parse(&document.text, &path.display().to_string())?
        }
        None => synth::network(SYNTHETIC, seed)?,
    };
    network
        .relays
        .retain(|relay| relay.flags.has(Flags::VALID) && relay.or_port != 0);
    Ok(network)
}

/// The relays of a network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Relays {
    /// A consensus document.
    pub(super) text: String,
    pub(super) fast: u32,
    pub(super) slow: u32,
    /// kB/s of bandwidth for each unit of weight.
    pub(super) capacity: f64,
}

/// Parameters of the drawing of relays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) relays: u32,
    /// The part of them that are slow.
    pub(super) slow: f64,
    pub(super) bandwidth: Bandwidth,
}

/// Meaning of the relays' weights in kB/s.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bandwidth {
    /// Each unit is so much.
    Unit(f64),
    /// Fast relays have so much on average.
    OfFast(f64),
    /// Exits together have so much for each relay of the network.
    OfExits(f64),
}

impl Relays {
    /// Samples fast and slow relays of a network, classes and bandwidths as they are there ([`sample::sampled`]). Slow ones are middle
    /// relays, whatever flags they had: none is to be the only guard or exit of somebody.
    ///
    /// # Errors
    ///
    /// There are too few of one kind.
    pub(super) fn sampled(network: &Network, wanted: Wanted) -> Result<Relays> {
        let slow = ((f64::from(wanted.relays) * wanted.slow).round() as u32).min(wanted.relays);
        let fast = wanted.relays - slow;
        let is_slow = |relay: &Relay| relay.bandwidth < SLOW_BELOW;
        let part = |keep: &dyn Fn(&Relay) -> bool, count: u32, what: &str| {
            let relays = network.relays.iter().filter(|relay| keep(relay));
            let all = Network {
                relays: relays.cloned().collect(),
                ..network.clone()
            };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count == 0 {
                return Ok(Vec::new());
            }
            let kept = sample::sampled(&all, count, None);
            let kept = kept.with_context(|| format!("sampling relays that are {what}"))?;
            Ok::<_, anyhow::Error>(kept.relays)
        };
        let kept_fast = part(&|relay| !is_slow(relay), fast, "not slow")?;
        ensure!(
            !kept_fast.is_empty(),
            "--slow {}: no relay is left that is not slow",
            wanted.slow
        );
        let mut kept_slow = part(&is_slow, slow, "slow")?;
        for relay in &mut kept_slow {
            let flags = Flags::all().filter(|(flag, _)| relay.flags.has(*flag));
            let flags = flags.map(|(flag, _)| flag);
            let flags = flags.filter(|flag| ![Flags::GUARD, Flags::EXIT].contains(flag));
            relay.flags = flags.fold(Flags::default(), Flags::with);
            relay.policy = None;
        }
        let weight = |keep: &dyn Fn(&Relay) -> bool| {
            let relays = kept_fast.iter().filter(|relay| keep(relay));
            let weight: u64 = relays.map(|relay| relay.bandwidth).sum();
            weight.max(1) as f64
        };
        let is_exit =
            |relay: &Relay| relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
        let capacity = match wanted.bandwidth {
            Bandwidth::Unit(unit) => unit,
            Bandwidth::OfFast(mean) => mean * f64::from(fast) / weight(&|_| true),
            Bandwidth::OfExits(each) => each * f64::from(wanted.relays) / weight(&is_exit),
        };
        let mut relays = [kept_fast, kept_slow].concat();
        // In the order of a consensus.
        relays.sort_by_key(|relay| relay.fingerprint);
        let own = Network {
            relays,
            ..network.clone()
        };
        Ok(Relays {
            text: write::consensus(&own),
            fast,
            slow,
            // As it is written.
            capacity: (capacity.clamp(0.001, 1000.0) * 1e6).round() / 1e6,
        })
    }

    /// The keys of `[network]`.
    pub(super) fn toml(&self) -> String {
        format!("consensus = \"{FILE}\"\ncapacity = {:?}\n", self.capacity)
    }
}
