//! Synthetic networks, for simulations without documents.
//!
//! Shares of flags, bandwidths, policies and networks are those of the consensus of 2021-08-29
//! 19:00. None of its relays exists.

use std::net::{Ipv4Addr, Ipv6Addr};

use rand::RngExt as _;
use weft_stats::bounds::{Bounds, OutOfBounds};

use crate::network::{Flags, Network, PortPolicy, Relay};
use crate::random::{Generator, generator};
use crate::read::computed_weights;

/// Relays of a network: each class has one and a circuit three, and they have different addresses.
pub const RELAYS: Bounds<u32> = Bounds::new(10, 1_000_000);

/// The consensus method whose weights it has.
pub(crate) const METHOD: u32 = 30;

/// A class of relays.
struct Class {
    flags: &'static [Flags],
    /// Of 10,000 relays.
    share: u32,
    /// Its bandwidths, kilobytes per second, at [`STEPS`].
    bandwidths: [u64; STEPS.len()],
}

/// Parts of a class, from its slowest relays on: finer where a few have much.
const STEPS: [f64; 24] = [
    0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8,
    0.85, 0.9, 0.95, 0.97, 0.99, 0.995, 1.0,
];

/// Both, guard, exit, neither.
const CLASSES: [Class; 4] = [
    Class {
        flags: &[Flags::GUARD, Flags::EXIT, Flags::FAST, Flags::STABLE],
        share: 1608,
        bandwidths: [
            1020, 4100, 5230, 6130, 7200, 8600, 9600, 11_000, 12_600, 14_000, 16_000, 19_000,
            22_000, 25_000, 29_000, 34_000, 40_700, 49_000, 58_900, 75_600, 93_200, 118_000,
            124_000, 190_000,
        ],
    },
    Class {
        flags: &[Flags::GUARD, Flags::FAST, Flags::STABLE],
        share: 4522,
        bandwidths: [
            207, 2300, 3000, 3950, 4900, 6000, 7260, 8720, 10_000, 12_000, 13_000, 15_000, 17_000,
            19_000, 23_000, 28_000, 34_000, 42_000, 53_900, 70_400, 83_900, 110_000, 140_000,
            180_000,
        ],
    },
    Class {
        flags: &[Flags::EXIT],
        share: 329,
        bandwidths: [
            1, 12, 49, 160, 270, 360, 520, 683, 806, 1100, 1310, 2400, 4500, 8900, 12_000, 17_600,
            30_000, 37_000, 48_400, 65_400, 70_600, 76_000, 85_000, 140_000,
        ],
    },
    Class {
        flags: &[],
        share: 3541,
        bandwidths: [
            0, 13, 26, 56, 94, 150, 210, 260, 390, 540, 680, 762, 910, 1200, 1520, 2000, 3300,
            5600, 9310, 17_100, 28_800, 56_000, 77_000, 130_000,
        ],
    },
];

/// First and last ports.
type Ranges = &'static [(u16, u16)];

/// Policies of exits, and how many of 1,300 exits have them: all but mail; the reduced policy; the
/// web; everything but the ports that are abused; everything.
const POLICIES: [(u32, bool, Ranges); 5] = [
    (160, false, &[(22, 22), (25, 25)]),
    (
        740,
        true,
        &[
            (20, 23),
            (43, 43),
            (53, 53),
            (79, 81),
            (88, 88),
            (110, 110),
            (143, 143),
            (443, 443),
            (563, 563),
            (993, 993),
            (995, 995),
            (5222, 5223),
            (6697, 6697),
            (8080, 8080),
            (8443, 8443),
            (9418, 9418),
        ],
    ),
    (300, true, &[(53, 53), (80, 80), (443, 443)]),
    (
        56,
        false,
        &[(25, 25), (119, 119), (135, 139), (445, 445), (563, 563)],
    ),
    (44, true, &[(1, 65_535)]),
];

/// Different /16 networks of 6,727 relays.
const NETWORKS: u64 = 2357;

/// A network of the given number of relays. Its class shares and bandwidths depend on the size
/// alone, all else on the seed.
///
/// # Errors
///
/// Relays out of [`RELAYS`].
pub fn network(relays: u32, seed: u64) -> Result<Network, OutOfBounds> {
    RELAYS.check("relays", relays)?;
    let mut random = generator(seed, u64::from(relays), 0);
    let mut all = Vec::with_capacity(relays as usize);
    let mut begun = 0;
    for class in &CLASSES {
        begun += class.share;
        // Sums are rounded, so that all together are as many as asked for; but each class has one.
        let until = (u64::from(relays) * u64::from(begun) / 10_000) as usize;
        let count = until.saturating_sub(all.len()).max(1);
        for place in 0..count {
            if all.len() < relays as usize {
                let bandwidth = at(&class.bandwidths, (place as f64 + 0.5) / count as f64);
                all.push(relay(class, bandwidth, relays, &mut random));
            }
        }
    }
    all.sort_by_key(|relay| relay.fingerprint);
    // A million identities of 160 bits do not meet.
    all.dedup_by_key(|relay| relay.fingerprint);
    for (number, relay) in (1..).zip(&mut all) {
        relay.nickname = format!("synth{number}").into();
    }
    // Every class has bandwidth from that size on.
    let weights =
        computed_weights(&all, METHOD, 10_000).ok_or_else(|| RELAYS.refusal("relays", relays))?;
    Ok(Network {
        valid_after: "2021-08-29 19:00:00".to_owned(),
        relays: all,
        weights,
    })
}

/// The bandwidth at this part of the class: between two known ones in geometric proportion.
fn at(bandwidths: &[u64; STEPS.len()], part: f64) -> u64 {
    let behind = STEPS
        .partition_point(|step| *step <= part)
        .clamp(1, STEPS.len() - 1);
    let known = |place: usize| {
        let step = STEPS.get(place).copied().unwrap_or(0.0);
        // One more, as there are relays of bandwidth 0.
        (
            step,
            bandwidths.get(place).copied().unwrap_or(0) as f64 + 1.0,
        )
    };
    let ((from, low), (to, high)) = (known(behind - 1), known(behind));
    let bandwidth = low * (high / low).powf((part - from) / (to - from));
    (bandwidth - 1.0).round() as u64
}

fn relay(class: &Class, bandwidth: u64, relays: u32, random: &mut Generator) -> Relay {
    let mut flags = [Flags::RUNNING, Flags::VALID, Flags::V2DIR]
        .iter()
        .chain(class.flags)
        .fold(Flags::default(), |flags, flag| flags.with(*flag));
    // Of the relays that are not guards, three quarters and more are stable and fast.
    if random.random_bool(0.76) {
        flags = flags.with(Flags::STABLE);
    }
    if bandwidth >= 100 {
        flags = flags.with(Flags::FAST);
    }
    if flags.has(Flags::STABLE) && random.random_bool(0.7) {
        flags = flags.with(Flags::HSDIR);
    }
    // Some networks have many relays, most have one or two.
    let networks = (u64::from(relays) * NETWORKS / 6727).clamp(3, 50_000) as f64;
    let skewed = random.random::<f64>().powf(1.7);
    // Spread over the addresses that hosts can have.
    let network = ((skewed * networks) as u64 * 40_503 % 50_000) as u16;
    let [one, two] = (256 + network).to_be_bytes();
    let address = Ipv4Addr::new(one, two, random.random(), random.random_range(1..=254));
    let ipv6 = random.random_bool(0.36).then(|| {
        // From the prefix for documentation.
        let low = random.random::<u64>();
        Ipv6Addr::from((0x2001_0db8_u128 << 96) | (u128::from(network) << 80) | u128::from(low))
    });
    let policy = match flags.has(Flags::EXIT) {
        true => exit_policy(random),
        false => PortPolicy {
            accept: false,
            ranges: [(1, 65_535)].into(),
        },
    };
    Relay {
        nickname: "synth".into(),
        fingerprint: random.random(),
        address,
        or_port: 9001,
        ipv6,
        flags,
        bandwidth,
        policy: Some(policy),
        microdesc: None,
    }
}

fn exit_policy(random: &mut Generator) -> PortPolicy {
    let all = POLICIES.iter().map(|(count, _, _)| count).sum();
    let mut place = random.random_range(0..all);
    for (count, accept, ranges) in POLICIES {
        if place < count {
            return PortPolicy {
                accept,
                ranges: ranges.into(),
            };
        }
        place -= count;
    }
    PortPolicy {
        accept: true,
        ranges: [(80, 80), (443, 443)].into(),
    }
}
