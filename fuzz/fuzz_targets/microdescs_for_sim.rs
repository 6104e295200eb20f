//! Microdescriptors as the simulator reads them, and paths through the network that they describe.
//!
//! Input: texts of microdescriptors, after a byte that chooses the generator's seed and the rule for
//! guards. Each microdescriptor makes a relay, whose flags come from its digest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weft_sim::full::families::Families;
use weft_sim::full::{Client, Demand, GuardRule, Model, ModelOptions, Purpose};
use weft_sim::microdesc::Microdescs;
use weft_sim::network::{Flags, Network, Relay, Weights};

/// Enough for families among them; pairs are looked at.
const MAX_RELAYS: usize = 64;

fuzz_target!(|input: &[u8]| {
    let Some((choice, text)) = input.split_first() else {
        return;
    };
    let mut microdescs = Microdescs::default();
    let Ok(read) = microdescs.add(text.to_vec()) else {
        assert!(microdescs.is_empty());
        return;
    };
    assert!((1..=read).contains(&microdescs.len()));
    let mut digests: Vec<[u8; 32]> = microdescs.digests().copied().collect();
    digests.sort_unstable();
    let network = network(&digests[..digests.len().min(MAX_RELAYS)]);
    assert_eq!(microdescs.matched(&network), Ok(network.relays.len()));

    let families = Families::new(&network, &microdescs);
    let relays = network.relays.len() as u32;
    for one in 0..relays {
        for other in 0..one {
            assert_eq!(families.related(one, other), families.related(other, one));
        }
    }
    let guards = match choice % 3 {
        0 => GuardRule::Sampled { used: 1 },
        1 => GuardRule::Torps { guards: 3 },
        _ => GuardRule::Fresh,
    };
    let options = ModelOptions {
        demand: Demand::equally([80, 22]),
        guards,
    };
    let Ok(model) = Model::new(&network, Some(&microdescs), &options) else {
        return;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(u64::from(*choice));
    let mut client = Client::default();
    for purpose in [Purpose::External, Purpose::Internal].repeat(4) {
        if let Ok(path) = model.path(&mut client, purpose, &mut rng) {
            assert!(!model.conflict(path.guard, path.middle));
            assert!(!model.conflict(path.middle, path.exit));
            assert!(!model.conflict(path.guard, path.exit));
        }
    }
});

/// A relay for each of these microdescriptors: `relay0`, `relay1`, …, with identities 0, 1, ….
fn network(digests: &[[u8; 32]]) -> Network {
    let relay = |(place, digest): (usize, &[u8; 32])| {
        let mut fingerprint = [0; 20];
        fingerprint[19] = place as u8;
        let always = Flags::RUNNING.with(Flags::VALID).with(Flags::FAST);
        let sometimes = [Flags::GUARD, Flags::EXIT, Flags::STABLE, Flags::V2DIR];
        let mut bit = 0;
        let flags = sometimes.into_iter().fold(always, |flags, flag| {
            bit += 1;
            if digest[0] >> bit & 1 == 0 {
                flags.with(flag)
            } else {
                flags
            }
        });
        Relay {
            nickname: format!("relay{place}").into(),
            fingerprint,
            address: [10, digest[1] & 15, 0, place as u8].into(),
            or_port: 9001,
            ipv6: None,
            flags,
            bandwidth: u64::from(digest[2]),
            policy: None,
            microdesc: Some(*digest),
        }
    };
    Network {
        valid_after: String::new(),
        relays: digests.iter().enumerate().map(relay).collect(),
        weights: Weights {
            guard: [1.0, 1.0, 0.0, 0.5],
            middle: [1.0, 0.5, 0.0, 0.0],
            exit: [1.0, 1.0, 1.0, 1.0],
        },
    }
}
