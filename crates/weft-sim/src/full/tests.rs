//! Paths break no rule, and each is as likely as the rules make it.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::*;
use crate::network::{PortPolicy, Weights};

/// A relay as a test describes it.
#[derive(Clone, Debug)]
struct Draft {
    address: [u8; 4],
    ipv6: Option<u8>,
    flags: &'static str,
    bandwidth: u64,
    family: String,
    ids: &'static str,
    policy: &'static str,
}

fn draft(address: [u8; 4], flags: &'static str, bandwidth: u64) -> Draft {
    Draft {
        address,
        ipv6: None,
        flags,
        bandwidth,
        family: String::new(),
        ids: "",
        policy: "reject 1-65535",
    }
}

const GUARD: &str = "Running Valid Fast Stable V2Dir Guard";
const MIDDLE: &str = "Running Valid Fast Stable V2Dir";
const EXIT: &str = "Running Valid Fast Stable V2Dir Exit";
const BOTH: &str = "Running Valid Fast Stable V2Dir Guard Exit";

fn exit(address: [u8; 4], flags: &'static str, bandwidth: u64) -> Draft {
    Draft {
        policy: "accept 22,80,443",
        ..draft(address, flags, bandwidth)
    }
}

fn identity(place: usize) -> String {
    format!("${place:040X}")
}

/// The network of these relays, and their microdescriptors.
fn network(drafts: &[Draft]) -> (Network, Microdescs) {
    let mut microdescs = Microdescs::default();
    let relay = |(place, draft): (usize, &Draft)| {
        let mut text = format!("onion-key\nntor-onion-key {place}\n");
        for (word, value) in [("family", &*draft.family), ("family-ids", draft.ids)] {
            if !value.is_empty() {
                text += &format!("{word} {value}\n");
            }
        }
        text += &format!("p {}\n", draft.policy);
        let digest = Sha256::digest(&text).into();
        microdescs.add(text.into()).unwrap();
        let mut fingerprint = [0; 20];
        fingerprint[18..].copy_from_slice(&(place as u16).to_be_bytes());
        let flags = draft.flags.split(' ').map(Flags::named);
        Relay {
            nickname: format!("relay{place}").into(),
            fingerprint,
            address: draft.address.into(),
            or_port: 9001,
            ipv6: draft
                .ipv6
                .map(|net| Ipv6Addr::new(0x2001, net.into(), 7, 0, 0, 0, 0, place as u16)),
            flags: flags.fold(Flags::default(), Flags::with),
            bandwidth: draft.bandwidth,
            policy: None,
            microdesc: Some(digest),
        }
    };
    let relays = drafts.iter().enumerate().map(relay).collect();
    let network = Network {
        valid_after: "2021-08-29 19:00:00".into(),
        relays,
        weights: Weights {
            guard: [0.6, 0.6, 0.0, 0.3],
            middle: [1.0, 0.4, 0.1, 0.2],
            exit: [1.0, 0.9, 1.0, 0.8],
        },
    };
    (network, microdescs)
}

/// The rules, from the words of the documents and for one pair at a time.
fn related(drafts: &[Draft], one: usize, other: usize) -> bool {
    let (a, b) = (&drafts[one], &drafts[other]);
    let names = |a: &Draft, b: usize| {
        let mut words = a.family.split(' ');
        words.any(|word| {
            word.eq_ignore_ascii_case(&format!("relay{b}"))
                || word
                    .get(..41)
                    .is_some_and(|word| word.eq_ignore_ascii_case(&identity(b)))
        })
    };
    let share = |a: &str, b: &str| {
        a.split(' ')
            .any(|id| !id.is_empty() && b.split(' ').any(|other| id == other))
    };
    one == other
        || a.address[..2] == b.address[..2]
        || (a.ipv6.is_some() && a.ipv6 == b.ipv6)
        || (names(a, other) && names(b, one))
        || share(a.ids, b.ids)
}

fn any_network() -> impl Strategy<Value = Vec<Draft>> {
    let flags = prop::sample::select(vec![
        GUARD,
        GUARD,
        MIDDLE,
        EXIT,
        BOTH,
        "Running Valid Fast Exit",
        "Running Valid",
        "Running Fast Stable Guard V2Dir",
        "Running Valid Fast Stable V2Dir Guard Exit BadExit",
        "Running Valid Fast Stable MiddleOnly",
        "Valid Fast Stable Guard V2Dir",
    ]);
    let policy = prop::sample::select(vec![
        "accept 80,443",
        "accept 22,80",
        "reject 1-65535",
        "reject 25",
    ]);
    let ids = prop::sample::select(vec![
        "",
        "",
        "",
        "ed25519:a",
        "ed25519:b ed25519:c",
        "ed25519:c",
    ]);
    let relay = (
        0u8..30,
        0u8..8,
        flags,
        0u64..1000,
        prop::collection::vec(0usize..50, 0..8),
        policy,
        ids,
        any::<bool>(),
    );
    let relay = relay.prop_map(
        |(net, ipv6, flags, bandwidth, family, policy, ids, by_name)| {
            let word = |place: usize| match (by_name, place % 3) {
                (true, _) => format!("Relay{place}"),
                (false, 0) => identity(place),
                (false, 1) => identity(place) + "=somebody",
                (false, _) => identity(place).to_lowercase(),
            };
            Draft {
                address: [10, net, 1, bandwidth as u8],
                ipv6: (ipv6 < 4).then_some(ipv6),
                flags,
                bandwidth,
                family: family.into_iter().map(word).collect::<Vec<_>>().join(" "),
                ids,
                policy,
            }
        },
    );
    prop::collection::vec(relay, 6..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_circuit_breaks_a_rule(
        drafts in any_network(),
        seed: u64,
        rule in prop::sample::select(vec![
            GuardRule::Sampled { used: 1 },
            GuardRule::Sampled { used: 2 },
            GuardRule::Torps { guards: 3 },
            GuardRule::Fresh,
        ]),
        port in prop::sample::select(vec![22u16, 80, 443, 9999]),
    ) {
        let (network, microdescs) = network(&drafts);
        let options = ModelOptions { demand: Demand::equally([port]), guards: rule };
        let Ok(model) = Model::new(&network, Some(&microdescs), &options) else {
            return Ok(());
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut client = Client::default();
        for circuit in 0..200 {
            if circuit % 10 == 0 {
                client.forget();
            }
            let purpose = if circuit % 3 == 0 { Purpose::Internal } else { Purpose::External };
            let Ok(path) = model.path(&mut client, purpose, &mut rng) else {
                continue;
            };
            let [guard, middle, exit] = [path.guard, path.middle, path.exit].map(|relay| relay as usize);
            for (one, other) in [(guard, middle), (middle, exit), (guard, exit)] {
                prop_assert!(!related(&drafts, one, other), "{one} {other}");
            }
            let has = |relay: usize, flag: &str| drafts[relay].flags.split(' ').any(|word| word == flag);
            for relay in [guard, middle, exit] {
                prop_assert!(has(relay, "Running") && has(relay, "Valid"));
            }
            prop_assert!(has(guard, "Guard"));
            let is_stable = port == 22 || purpose == Purpose::Internal;
            prop_assert!(!is_stable || has(guard, "Stable"));
            prop_assert!(has(guard, "Fast"));
            // Fast and Stable are dropped for others where none is left that has them.
            let left = |relay: usize, refused: &[usize]| {
                has(relay, "Running") && has(relay, "Valid") && has(relay, "Fast")
                    && (!is_stable || has(relay, "Stable"))
                    && !refused.iter().any(|other| related(&drafts, relay, *other))
            };
            let some_left = (0..drafts.len()).any(|relay| left(relay, &[guard, exit]));
            prop_assert!(!some_left || left(middle, &[guard, exit]));
            if purpose == Purpose::External {
                prop_assert!(!has(exit, "BadExit"));
                let policy = PortPolicy::parse(drafts[exit].policy).unwrap();
                prop_assert!(policy.allows(port));
            }
        }
    }
}

/// Families, networks, weights and flags that make conflicts common.
fn tiny() -> Vec<Draft> {
    let mut drafts = vec![
        draft([10, 0, 0, 1], GUARD, 900),
        draft([10, 1, 0, 1], GUARD, 500),
        exit([10, 0, 9, 9], BOTH, 700),
        exit([10, 2, 0, 1], EXIT, 400),
        exit([10, 3, 0, 1], EXIT, 800),
        draft([10, 4, 0, 1], MIDDLE, 300),
        draft([10, 5, 0, 1], MIDDLE, 50),
        draft([10, 6, 0, 1], GUARD, 5),
    ];
    drafts[1].family = [identity(3), identity(4)].join(" ");
    drafts[3].family = identity(1);
    drafts[4].ids = "ed25519:a";
    drafts[5].ids = "ed25519:b ed25519:a";
    drafts[6].ipv6 = Some(1);
    drafts[4].ipv6 = Some(1);
    drafts
}

/// Exact probability of each path: the exit by weight, then the guard among the relays that do not
/// conflict with it, then the middle.
fn exactly(drafts: &[Draft], network: &Network, purpose: Purpose) -> HashMap<Path, f64> {
    let has = |relay: usize, flag: &str| drafts[relay].flags.split(' ').any(|word| word == flag);
    let all = || 0..drafts.len();
    let weight = |relay: usize, position| {
        drafts[relay].bandwidth as f64 * network.weights.of(position, network.relays[relay].flags)
    };
    let share = |chosen: Vec<usize>, position| {
        let sum: f64 = chosen.iter().map(|relay| weight(*relay, position)).sum();
        chosen
            .into_iter()
            .map(move |relay| (relay, weight(relay, position) / sum))
            .collect::<Vec<_>>()
    };
    let exits = match purpose {
        Purpose::External => {
            let exits = all().filter(|relay| drafts[*relay].policy.starts_with("accept"));
            share(exits.collect(), Position::Exit)
        }
        Purpose::Internal => share(all().collect(), Position::Middle),
    };
    let mut paths = HashMap::new();
    for (exit, first) in exits {
        let guards = all().filter(|relay| has(*relay, "Guard") && !related(drafts, *relay, exit));
        for (guard, second) in share(guards.collect(), Position::Guard) {
            let middles = all()
                .filter(|relay| !related(drafts, *relay, exit) && !related(drafts, *relay, guard));
            for (middle, third) in share(middles.collect(), Position::Middle) {
                let [guard, middle, exit] = [guard, middle, exit].map(|relay| relay as u32);
                let path = Path {
                    guard,
                    middle,
                    exit,
                };
                paths.insert(path, first * second * third);
            }
        }
    }
    paths
}

/// Pearson's statistic of counts against probabilities, and how many standard deviations it is above what
/// is expected of it.
fn excess(counts: &HashMap<Path, u32>, expected: &HashMap<Path, f64>, draws: u32) -> f64 {
    assert!(
        counts
            .keys()
            .all(|path| expected.get(path).is_some_and(|p| *p > 0.0))
    );
    let (mut sum, mut cells, mut rare, mut rare_expected) = (0.0, -1.0, 0.0, 0.0);
    for (path, probability) in expected {
        let count = f64::from(counts.get(path).copied().unwrap_or(0));
        let mean = probability * f64::from(draws);
        if mean < 10.0 {
            rare += count;
            rare_expected += mean;
            continue;
        }
        sum += (count - mean).powi(2) / mean;
        cells += 1.0;
    }
    if rare_expected > 0.0 {
        sum += (rare - rare_expected).powi(2) / rare_expected;
        cells += 1.0;
    }
    (sum - cells) / (2.0f64 * cells).sqrt()
}

fn check(rule: GuardRule, purpose: Purpose, seed: u64) {
    const DRAWS: u32 = 200_000;
    let drafts = tiny();
    let (network, microdescs) = network(&drafts);
    let options = ModelOptions {
        guards: rule,
        ..ModelOptions::default()
    };
    let model = Model::new(&network, Some(&microdescs), &options).unwrap();
    let expected = exactly(&drafts, &network, purpose);
    assert!((expected.values().sum::<f64>() - 1.0).abs() < 1e-9);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut counts = HashMap::new();
    for _ in 0..DRAWS {
        let path = model.path(&mut Client::default(), purpose, &mut rng);
        *counts.entry(path.unwrap()).or_insert(0) += 1;
    }
    let excess = excess(&counts, &expected, DRAWS);
    assert!(excess < 4.0, "{rule:?} {purpose:?}: {excess}");
}

#[test]
fn external_circuits_of_new_clients_are_as_likely_as_the_rules_make_them() {
    check(GuardRule::Sampled { used: 1 }, Purpose::External, 1);
    check(GuardRule::Fresh, Purpose::External, 2);
    check(GuardRule::Torps { guards: 1 }, Purpose::External, 3);
}

#[test]
fn internal_circuits_of_new_clients_are_as_likely_as_the_rules_make_them() {
    check(GuardRule::Sampled { used: 1 }, Purpose::Internal, 4);
    check(GuardRule::Fresh, Purpose::Internal, 5);
}

/// Ten guards far from each other, one exit far from all, many middle relays.
fn wide() -> Vec<Draft> {
    let guards = (0..10).map(|net| draft([10, net, 0, 1], GUARD, 100 + u64::from(net)));
    let middles = (20..40).map(|net| draft([10, net, 0, 1], MIDDLE, 100));
    let exits = [exit([11, 0, 0, 1], EXIT, 100)];
    guards.chain(middles).chain(exits).collect()
}

fn guards_used(drafts: &[Draft], rule: GuardRule, circuits: usize) -> HashMap<u32, u32> {
    let (network, microdescs) = network(drafts);
    let options = ModelOptions {
        guards: rule,
        ..ModelOptions::default()
    };
    let model = Model::new(&network, Some(&microdescs), &options).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut client = Client::default();
    let mut used = HashMap::new();
    for _ in 0..circuits {
        let path = model.path(&mut client, Purpose::External, &mut rng);
        *used.entry(path.unwrap().guard).or_insert(0) += 1;
    }
    used
}

#[test]
fn a_client_keeps_to_one_guard_to_two_or_to_three_by_the_rule() {
    let drafts = wide();
    let used = |rule| guards_used(&drafts, rule, 900);
    assert_eq!(used(GuardRule::Sampled { used: 1 }).len(), 1);
    let two = used(GuardRule::Sampled { used: 2 });
    assert_eq!(two.len(), 2);
    let three = used(GuardRule::Torps { guards: 3 });
    assert_eq!(three.len(), 3);
    assert!(
        two.values().all(|count| (380..520).contains(count)),
        "{two:?}"
    );
    assert!(
        three.values().all(|count| (240..360).contains(count)),
        "{three:?}"
    );
    assert_eq!(used(GuardRule::Fresh).len(), 10);
}

#[test]
fn another_guard_serves_only_where_the_first_is_of_the_exits_family() {
    let mut drafts = wide();
    // A second exit, in the network of guards 0 to 4, which are its family.
    let last = drafts.len();
    drafts.push(exit([11, 1, 0, 1], EXIT, 100));
    drafts[last].family = (0..5).map(identity).collect::<Vec<_>>().join(" ");
    for relay in drafts.iter_mut().take(5) {
        relay.family = identity(last);
    }
    let (network, microdescs) = network(&drafts);
    let model = Model::new(&network, Some(&microdescs), &ModelOptions::default()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..200 {
        let mut client = Client::default();
        let mut by_exit: HashMap<u32, Vec<u32>> = HashMap::new();
        for _ in 0..20 {
            let path = model
                .path(&mut client, Purpose::External, &mut rng)
                .unwrap();
            by_exit.entry(path.exit).or_default().push(path.guard);
        }
        let guards: Vec<u32> = by_exit
            .values_mut()
            .map(|guards| {
                guards.dedup();
                assert_eq!(guards.len(), 1);
                guards[0]
            })
            .collect();
        let with_family = by_exit.get(&(last as u32)).map(|guards| guards[0]);
        assert!(with_family.is_none_or(|guard| guard >= 5));
        // The first exit has nobody's family, so it gets the first guard of all.
        if guards.len() == 2 && guards[0] != guards[1] {
            assert!(by_exit[&(last as u32 - 1)][0] < 5);
        }
    }
}

#[test]
fn ports_need_exits_and_policies() {
    let drafts = wide();
    let (mut network, microdescs) = network(&drafts);
    let model = |network: &Network, microdescs: Option<&Microdescs>, demand| {
        let options = ModelOptions {
            demand,
            ..ModelOptions::default()
        };
        Model::new(network, microdescs, &options).map(|_| ())
    };
    let known = Some(&microdescs);
    assert_eq!(model(&network, known, Demand::equally([80, 22])), Ok(()));
    assert_eq!(
        model(&network, known, Demand::equally([80, 25])),
        Err(NoPaths::NoExits(25))
    );
    assert_eq!(model(&network, None, Demand::web()), Ok(()));
    assert_eq!(
        model(&network, None, Demand::equally([22])),
        Err(NoPaths::NoPolicies(22))
    );
    assert_eq!(
        model(&network, known, Demand::equally([])),
        Err(NoPaths::NoPorts)
    );
    let infinite = Demand {
        ports: vec![(80, f64::NAN)],
    };
    assert_eq!(model(&network, known, infinite), Err(NoPaths::NoPorts));
    for relay in &mut network.relays {
        relay.microdesc = None;
    }
    let other = model(&network, known, Demand::web());
    assert!(
        matches!(other, Err(NoPaths::OtherMicrodescs(_))),
        "{other:?}"
    );
    network.relays.clear();
    assert_eq!(model(&network, None, Demand::web()), Err(NoPaths::NoGuards));
}

#[test]
fn a_network_of_one_family_has_no_paths() {
    let mut drafts = wide();
    for relay in &mut drafts {
        relay.ids = "ed25519:all";
    }
    let (network, microdescs) = network(&drafts);
    let model = Model::new(&network, Some(&microdescs), &ModelOptions::default()).unwrap();
    assert_eq!(model.families().grouped(), drafts.len());
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for rule in [Purpose::External, Purpose::Internal] {
        let path = model.path(&mut Client::default(), rule, &mut rng);
        assert_eq!(path, Err(NoPaths::NoPath));
    }
}

#[test]
fn a_family_is_mutual_and_does_not_pass_on() {
    let mut drafts = wide();
    drafts[0].family = format!("{} {}", identity(1), identity(2));
    drafts[1].family = format!("RELAY0 {}", identity(2));
    drafts[2].family = "relay1 strangers".into();
    drafts[3].family = identity(0);
    let (network, microdescs) = network(&drafts);
    let families = Families::new(&network, &microdescs);
    assert!(families.related(0, 1) && families.related(1, 0));
    assert!(families.related(1, 2));
    assert!(!families.related(0, 2), "2 does not name 0");
    assert!(!families.related(0, 3), "0 does not name 3");
    assert!(!families.related(5, 6));
}
