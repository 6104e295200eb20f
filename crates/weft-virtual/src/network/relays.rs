//! Relays as clients know them: of a synthetic network, of a consensus, with the roles of a scenario.

use weft_model::links::Rate;
use weft_policy::{ExitPolicy, PolicySettings};
use weft_sim::network::{Flags, Network, PortPolicy, Relay as Listed};
use weft_sim::{read, sample, synth};

use crate::roles::Roles;

/// Synthetic networks are samples of one of so many relays, as they were in 2021, or larger ones.
const WHOLE: u32 = 6_500;
/// C tor is no relay with less: 75 KiB/s.
const LEAST_BITS: u64 = 75 * 1_024 * 8;
/// No line is faster.
const MOST_BITS: u64 = 100_000_000_000;
/// Bits of a unit of a consensus' bandwidth, 1 kB/s.
const UNIT_BITS: u64 = 8_000;

/// A relay with these roles, of a scenario's host: stable, fast, and as an exit open to all ports.
pub(super) fn with_roles(roles: Roles, bandwidth: Option<Rate>) -> Listed {
    let mut flags = usable(Flags::default());
    if roles.guard {
        flags = flags.with(Flags::GUARD);
    }
    if roles.exit {
        flags = flags.with(Flags::EXIT);
    }
    Listed {
        nickname: "relay".into(),
        fingerprint: [0; 20],
        address: std::net::Ipv4Addr::UNSPECIFIED,
        or_port: 9001,
        ipv6: None,
        flags,
        bandwidth: bandwidth.map_or(1, |rate| (rate.bits() / UNIT_BITS).max(1)),
        policy: roles.exit.then(|| PortPolicy {
            accept: true,
            ranges: [(1, 65_535)].into(),
        }),
        microdesc: None,
    }
}

fn usable(flags: Flags) -> Flags {
    [
        Flags::RUNNING,
        Flags::VALID,
        Flags::FAST,
        Flags::STABLE,
        Flags::V2DIR,
    ]
    .into_iter()
    .fold(flags, Flags::with)
}

/// Positions in paths for which a relay's flags qualify it.
pub(super) fn roles(relay: &Listed) -> Roles {
    Roles {
        guard: relay.flags.has(Flags::GUARD),
        exit: relay.flags.has(Flags::EXIT),
    }
}

/// A synthetic network of so many relays: a sample of a large one ([`sample::sampled`]), so that classes and
/// bandwidths are those of the network of 2021. Without a number of guards or exits there is one of each at least.
pub(super) fn synthetic(
    relays: u32,
    guards: Option<u32>,
    exits: Option<u32>,
    seed: u64,
) -> Result<Vec<Listed>, String> {
    let whole = relays.saturating_mul(4).clamp(WHOLE, synth::RELAYS.most());
    let whole = synth::network(whole, seed).map_err(|error| error.to_string())?;
    let count = usize::try_from(relays).unwrap_or(usize::MAX);
    let of = |exits: Option<u32>| {
        let exits = exits.map(|exits| usize::try_from(exits).unwrap_or(usize::MAX));
        sample::sampled(&whole, count, exits).map_err(|error| error.to_string())
    };
    let mut network = of(exits)?;
    if !network.relays.iter().any(|relay| roles(relay).exit) {
        network = of(Some(1))?;
    }
    let now = network.relays.iter().filter(|one| roles(one).guard).count();
    let wanted = match guards {
        Some(guards) => usize::try_from(guards).unwrap_or(usize::MAX),
        None => now.max(1),
    };
    set_guards(&mut network.relays, wanted);
    Ok(network.relays.into_iter().map(as_usable).collect())
}

/// Makes so many relays guards: those that are, the fastest first, then other ones that are no exits, then exits.
fn set_guards(relays: &mut [Listed], count: usize) {
    let mut order: Vec<usize> = (0..relays.len()).collect();
    order.sort_by_key(|place| {
        relays.get(*place).map(|relay| {
            let roles = roles(relay);
            (!roles.guard, roles.exit, std::cmp::Reverse(relay.bandwidth))
        })
    });
    for (number, place) in order.into_iter().enumerate() {
        if let Some(relay) = relays.get_mut(place) {
            relay.flags = match number < count {
                true => relay.flags.with(Flags::GUARD),
                false => without(relay.flags, Flags::GUARD),
            };
        }
    }
}

fn without(flags: Flags, flag: Flags) -> Flags {
    Flags::all()
        .filter(|(one, _)| flags.has(*one) && *one != flag)
        .fold(Flags::default(), |all, (one, _)| all.with(one))
}

/// Guards are stable, fast and directories, as in every consensus; exits without a known policy are open to the web.
fn as_usable(mut relay: Listed) -> Listed {
    if relay.flags.has(Flags::BAD_EXIT) || relay.flags.has(Flags::MIDDLE_ONLY) {
        relay.flags = without(relay.flags, Flags::EXIT);
        relay.policy = None;
    }
    if relay.flags.has(Flags::MIDDLE_ONLY) {
        relay.flags = without(relay.flags, Flags::GUARD);
    }
    if relay.flags.has(Flags::GUARD) {
        relay.flags = usable(relay.flags);
    }
    relay.flags = relay.flags.with(Flags::RUNNING).with(Flags::VALID);
    if relay.flags.has(Flags::EXIT) && relay.policy.is_none() {
        // A consensus of microdescriptors has no policies; with the flag two of the ports 80, 443 and 6667 are open.
        relay.policy = Some(PortPolicy {
            accept: true,
            ranges: [(80, 80), (443, 443)].into(),
        });
    }
    relay
}

/// The relays of a consensus, or this part of them.
pub(super) fn of_consensus(
    text: &[u8],
    file: &str,
    scale: f64,
) -> Result<Vec<Listed>, read::ReadError> {
    let mut network: Network = read::parse(text, file)?;
    network
        .relays
        .retain(|relay| relay.flags.has(Flags::VALID) && relay.or_port != 0);
    let relays = match sample::scaled(&network, scale) {
        Ok(scaled) => scaled.relays,
        // A scale is checked when it is read.
        Err(_) => network.relays,
    };
    Ok(relays.into_iter().map(as_usable).collect())
}

/// Bits per second of a relay's line: so many kilobytes for each unit of its weight; with 1 as `weft lab net topology random`
/// has it.
pub(super) fn bits(relay: &Listed, capacity: f64) -> u64 {
    let bits = (relay.bandwidth.saturating_mul(UNIT_BITS) as f64 * capacity) as u64;
    bits.clamp(LEAST_BITS, MOST_BITS)
}

/// The policy that the relay enforces, by that which clients see.
pub(super) fn exit_policy(policy: Option<&PortPolicy>) -> ExitPolicy {
    let Some(policy) = policy else {
        return ExitPolicy::reject_all();
    };
    let (word, rest) = match policy.accept {
        true => ("accept", "reject *:*"),
        false => ("reject", "accept *:*"),
    };
    let mut rules: Vec<String> = policy
        .ranges
        .iter()
        .map(|(first, last)| format!("{word} *:{first}-{last}"))
        .collect();
    rules.push(rest.to_owned());
    let settings = PolicySettings {
        ipv6: false,
        reject_private: true,
        reduced: false,
    };
    // The rules are ours, so they are well-formed.
    ExitPolicy::parse(&[&rules.join(",")], settings, &mut Vec::new())
        .unwrap_or_else(|_| ExitPolicy::reject_all())
}
