//! Relays are chosen in proportion to their weights, and excluded ones never.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use weft_cell::identity::RsaIdentity;

use crate::testing::{TestNet, TestRelay, assert_in_proportion, ed25519, id_of, now, rsa, secs};
use crate::{
    AddressRule, Bridge, ExitWanted, GuardTicket, GuardUse, Hop, LegWanted, NodeSet, Outcome, Path,
    PathBiasOptions, PathError, PathOptions, Reachable, RelayName, Selector, StatedFamily,
    Suspicion, TargetPort, Usage,
};

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn selector(net: &TestNet, options: PathOptions, seed: u64) -> Selector {
    let mut selector = Selector::new(options, [], now());
    selector.set_netdir(&net.netdir(), now(), &mut rng(seed));
    selector
}

/// No guards, so that each path has a new first hop.
fn unguarded() -> PathOptions {
    PathOptions {
        use_entry_guards: false,
        ..PathOptions::default()
    }
}

fn port(port: u16) -> TargetPort {
    TargetPort { ipv6: false, port }
}

fn web() -> Usage {
    Usage::Exit(ExitWanted {
        ports: vec![port(443)],
        ..ExitWanted::default()
    })
}

fn ids(path: &Path) -> Vec<u16> {
    path.hops.iter().map(|hop| id_of(&hop.rsa)).collect()
}

/// The weight of a relay at a position by dir-spec 3.8.3, from the document's words.
fn weight(net: &TestNet, relay: &TestRelay, position: char) -> f64 {
    let has = |flag| relay.flags.contains(flag);
    let kind = match (has("Guard"), has("Exit")) {
        (true, true) => 'd',
        (true, false) => 'g',
        (false, true) => 'e',
        (false, false) => 'm',
    };
    let named = |name: &str| {
        let mut words = net.weights.split_ascii_whitespace();
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.unwrap().parse::<f64>().unwrap()
    };
    f64::from(relay.bandwidth) * named(&format!("W{position}{kind}"))
}

#[test]
fn exits_and_ends_are_drawn_in_proportion_to_their_weights() {
    let net = TestNet::mixed(36);
    let mut selector = selector(&net, unguarded(), 1);
    let mut rng = rng(2);
    for (usage, position) in [(web(), 'e'), (Usage::Internal { stable: false }, 'm')] {
        let mut counts = vec![0; 36];
        for _ in 0..30_000 {
            let path = selector.path(&usage, now(), &mut rng).unwrap();
            counts[usize::from(*ids(&path).last().unwrap())] += 1;
        }
        let weights: Vec<f64> = net
            .relays
            .iter()
            .map(|relay| match position {
                'e' if relay.policy.is_empty() => 0.0,
                _ => weight(&net, relay, position),
            })
            .collect();
        assert_in_proportion(&counts, &weights);
    }
}

#[test]
fn middles_are_drawn_in_proportion_among_those_that_are_left() {
    // One guard and one exit, so that all that is left to chance is the middle.
    let mut net = TestNet::mixed(30);
    for relay in &mut net.relays {
        if relay.id > 1 {
            relay
                .flags
                .retain(|flag| *flag != "Guard" && *flag != "Exit");
            relay.policy = "";
        }
    }
    net.relays[0].flags = ["Exit", "Fast", "Stable", "V2Dir"].into();
    net.relays[0].policy = "accept 1-65535";
    net.relays[1].flags = ["Fast", "Guard", "Stable", "V2Dir"].into();
    let mut selector = selector(&net, PathOptions::default(), 3);
    let mut rng = rng(4);
    let mut counts = vec![0; 30];
    for _ in 0..20_000 {
        let path = selector.path(&web(), now(), &mut rng).unwrap();
        let ids = ids(&path);
        assert_eq!((ids[0], ids[2]), (1, 0));
        counts[usize::from(ids[1])] += 1;
        selector.forget(path.guard.unwrap());
    }
    let weights: Vec<f64> = net
        .relays
        .iter()
        .map(|relay| match relay.id {
            0 | 1 => 0.0,
            _ => weight(&net, relay, 'm'),
        })
        .collect();
    assert_in_proportion(&counts, &weights);
}

#[test]
fn first_guards_are_drawn_in_proportion_to_their_weights() {
    let net = TestNet::mixed(36);
    let relays = net.relays();
    let mut counts = vec![0; 36];
    for seed in 0..6000 {
        let mut rng = rng(seed);
        let mut selector = Selector::new(PathOptions::default(), [], now());
        selector.set_relays(relays.clone().into(), now(), &mut rng);
        counts[usize::from(id_of(&selector.guards()[0].rsa))] += 1;
    }
    let weights: Vec<f64> = net
        .relays
        .iter()
        .map(|relay| match relay.flags.contains("Guard") {
            true => weight(&net, relay, 'g'),
            false => 0.0,
        })
        .collect();
    assert_in_proportion(&counts, &weights);
}

#[test]
fn without_weights_bandwidths_count_and_without_bandwidths_all_are_alike() {
    for (bandwidth, seed) in [(true, 5), (false, 6)] {
        let mut net = TestNet::mixed(24);
        net.weights.clear();
        if !bandwidth {
            net.relays.iter_mut().for_each(|relay| relay.bandwidth = 0);
        }
        let mut selector = selector(&net, unguarded(), seed);
        let mut rng = rng(seed);
        let mut counts = vec![0; 24];
        for _ in 0..20_000 {
            let path = selector.path(&web(), now(), &mut rng).unwrap();
            counts[usize::from(ids(&path)[2])] += 1;
        }
        let weights: Vec<f64> = net
            .relays
            .iter()
            .map(|relay| match relay.policy.is_empty() {
                true => 0.0,
                false if bandwidth => f64::from(relay.bandwidth),
                false => 1.0,
            })
            .collect();
        assert_in_proportion(&counts, &weights);
    }
}

/// Paths of which the first three guards work and then fail; the circuit of the last one waits.
fn all_primary_fail(selector: &mut Selector, rng: &mut ChaCha12Rng) -> GuardTicket {
    for _ in 0..3 {
        let guard = selector.path(&web(), now(), rng).unwrap().guard.unwrap();
        selector.guard_outcome(guard, Outcome::Built, now(), rng);
        selector.guard_outcome(guard, Outcome::GuardFailed, now(), rng);
        selector.forget(guard);
    }
    selector.path(&web(), now(), rng).unwrap().guard.unwrap()
}

#[test]
fn a_circuit_through_another_guard_waits_and_one_that_is_forgotten_means_nothing() {
    let (net, mut rng) = (TestNet::alike(150), rng(5));
    let mut selector = selector(&net, PathOptions::default(), 1);
    let guard = all_primary_fail(&mut selector, &mut rng);
    let outcome = selector.guard_outcome(guard, Outcome::Built, now(), &mut rng);
    assert_eq!(outcome, GuardUse::Later);
    assert_eq!(selector.poll_guards(now()), [(guard, GuardUse::Now)]);
    selector.forget(guard);
    let outcome = selector.guard_outcome(guard, Outcome::Built, now(), &mut rng);
    assert_eq!(outcome, GuardUse::Never);
}

#[test]
fn guards_are_written_when_they_have_changed() {
    let (net, mut rng) = (TestNet::alike(150), rng(5));
    let mut selector = selector(&net, PathOptions::default(), 1);
    let lines = selector.state_lines().unwrap();
    assert_eq!(lines.len(), 20);
    assert!(lines.iter().all(|line| line.starts_with("in=default ")));
    assert_eq!(selector.state_lines(), None);
    assert_eq!(selector.all_state_lines(), lines);
    selector.drop_guards(now(), &mut rng);
    let others = selector.state_lines().unwrap();
    assert_eq!(others.len(), 20);
    assert_ne!(others, lines);
}

#[test]
fn options_that_allow_few_guards_are_a_change_of_guards_and_the_same_again_are_none() {
    let (net, mut rng) = (TestNet::alike(150), rng(5));
    let mut selector = selector(&net, PathOptions::default(), 1);
    let few = PathOptions {
        entry_nodes: Some(set("relay1,relay2,relay3")),
        ..PathOptions::default()
    };
    assert!(!selector.set_options(PathOptions::default(), now(), &mut rng));
    assert!(selector.set_options(few.clone(), now(), &mut rng));
    assert_eq!(selector.options(), &few);
    assert_eq!(selector.guards().len(), 3);
    assert!(!selector.set_options(few, now(), &mut rng));
    assert_eq!(selector.relays().unwrap().len(), 150);
}

#[test]
fn a_guard_that_fails_circuits_is_reported_by_the_consensus_s_thresholds() {
    let (net, mut rng) = (TestNet::alike(150), rng(5));
    let mut selector = selector(&net, PathOptions::default(), 1);
    selector.set_path_bias(&PathBiasOptions {
        circ_threshold: 2.0,
        ..PathBiasOptions::default()
    });
    let mut reported = Vec::new();
    for _ in 0..4 {
        let guard = selector
            .path(&web(), now(), &mut rng)
            .unwrap()
            .guard
            .unwrap();
        for outcome in [Outcome::FirstHop, Outcome::Built, Outcome::Collapsed] {
            selector.guard_outcome(guard, outcome, now(), &mut rng);
        }
        selector.forget(guard);
        reported.extend(selector.take_suspicions());
    }
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].1, Suspicion::Extreme);
    assert_eq!(reported[0].0.rsa, selector.guards()[0].rsa);
}

#[test]
fn only_guards_in_use_have_tickets() {
    let net = TestNet::alike(150);
    let mut selector = selector(&net, PathOptions::default(), 1);
    let guards: BTreeSet<u16> = selector
        .guards()
        .iter()
        .map(|guard| id_of(&guard.rsa))
        .collect();
    for id in 0..150 {
        let ticket = selector.ticket_of(&rsa(id), now());
        assert_eq!(ticket.is_some(), guards.contains(&id), "{id}");
    }
}

#[test]
fn documents_arrive_whole() {
    let mut net = TestNet::alike(8);
    net.relays[0].addr_v6 = Some("[2001:db8::1]:9002".to_owned());
    net.relays[0].policy_v6 = "accept 443";
    net.relays[1].protocols = "Link=4-5 Relay=1-3 FlowCtrl=1";
    net.relays[2].flags = ["BadExit", "Exit", "Fast", "Guard", "Stable"].into();
    net.relays[3].flags.insert("MiddleOnly");
    let relays = net.relays();
    let hop = |id: u16| relays.find(&RelayName::Rsa(rsa(id))).unwrap();
    let first = hop(0);
    assert_eq!(first.ed25519, ed25519(0));
    assert_eq!(hop(3).ntor, [3; 32]);
    assert_eq!(first.nickname, "relay0");
    let addrs: Vec<String> = first.addrs.iter().map(ToString::to_string).collect();
    assert_eq!(addrs, ["11.1.1.1:9001", "[2001:db8::1]:9002"]);
    assert!(first.supports_cc && first.supports_ntor_v3 && first.is_dir_cache && first.is_exit);
    assert!(first.allows(port(80)) && !first.allows(port(22)));
    let v6 = |port| TargetPort { ipv6: true, port };
    assert!(first.allows(v6(443)) && !first.allows(v6(80)));
    assert!(!hop(1).supports_cc && !hop(1).supports_ntor_v3);
    // A bad exit is not an exit, whatever it allows; nor is a relay with `MiddleOnly`.
    assert!(!hop(2).is_exit && !hop(2).allows(port(80)) && !hop(2).is_dir_cache);
    assert!(!hop(3).allows(port(80)));
    // By other names.
    assert_eq!(relays.find(&RelayName::Ed25519(ed25519(5))), Some(hop(5)));
    assert_eq!(relays.find(&"RELAY6".parse().unwrap()), Some(hop(6)));
    assert_eq!(relays.find(&"nobody".parse().unwrap()), None);
    assert_eq!(relays.len(), 8);
}

/// TROVE-2026-067. Authorities strip the flags of such a relay; whether they did is not relied on.
#[test]
fn relays_for_the_middle_are_neither_guards_nor_exits() {
    let mut net = TestNet::alike(8);
    for relay in &mut net.relays {
        relay.flags.extend(["Exit", "Guard"]);
        relay.policy = "accept 80,443";
        if relay.id >= 4 {
            relay.flags.insert("MiddleOnly");
        }
    }
    let relays = net.relays();
    for id in 0..8 {
        let row = relays.by_rsa(&rsa(id)).unwrap();
        let row = &relays.rows()[row];
        assert_eq!(
            (row.possible_guard, row.hop.is_exit),
            (id < 4, id < 4),
            "{id}"
        );
        assert_eq!(relays.is_listed_guard(&rsa(id)), id < 4, "{id}");
    }
    let mut middles = BTreeSet::new();
    for use_entry_guards in [false, true] {
        let options = PathOptions {
            use_entry_guards,
            ..PathOptions::default()
        };
        let mut selector = selector(&net, options, 9);
        let mut rng = rng(9);
        for _ in 0..200 {
            let path = selector.path(&web(), now(), &mut rng).unwrap();
            let [first, middle, exit] = ids(&path)[..] else {
                panic!("three hops");
            };
            assert!(first < 4 && exit < 4, "{first} {middle} {exit}");
            middles.insert(middle);
        }
    }
    assert!(middles.iter().any(|middle| *middle >= 4), "{middles:?}");
}

#[test]
fn ports_by_name_and_address_and_long_lived_ones_choose_exits() {
    let mut net = TestNet::alike(12);
    for relay in &mut net.relays {
        match relay.id {
            0 => relay.policy = "accept 22",
            1 => {
                relay.policy = "accept 22";
                relay.flags.remove("Stable");
            }
            2 => relay.policy_v6 = "accept 80",
            _ => {}
        }
    }
    let mut selector = selector(&net, unguarded(), 7);
    let mut rng = rng(8);
    let mut exits = |ports: Vec<TargetPort>, avoid: Vec<RsaIdentity>| -> BTreeSet<u16> {
        let usage = Usage::Exit(ExitWanted {
            ports,
            avoid,
            ..ExitWanted::default()
        });
        (0..200)
            .filter_map(|_| selector.path(&usage, now(), &mut rng).ok())
            .map(|path| ids(&path)[2])
            .collect()
    };
    // 22 is a long-lived port.
    assert_eq!(exits(vec![port(22)], vec![]), [0].into());
    // Better an unstable exit than none.
    assert_eq!(exits(vec![port(22)], vec![rsa(0)]), [1].into());
    let v6 = TargetPort {
        ipv6: true,
        port: 80,
    };
    assert_eq!(exits(vec![v6], vec![]), [2].into());
    assert_eq!(exits(vec![port(443), v6], vec![]), [2].into());
    assert!(exits(vec![port(25)], vec![]).is_empty());
    assert_eq!(exits(vec![port(80), port(443)], vec![]).len(), 10);
    assert_eq!(exits(vec![], vec![]).len(), 12);
}

#[test]
fn options_limit_which_relays_may_be_where() {
    let net = TestNet::alike(20);
    let options = PathOptions {
        exit_nodes: Some(set("relay1,relay2,relay3")),
        entry_nodes: Some(set("relay3,relay4,relay5")),
        middle_nodes: Some(set("relay1,relay6,relay7,11.9.0.0/16")),
        exclude_nodes: set("relay5,relay7"),
        exclude_exit_nodes: set("relay2,relay6"),
        ..PathOptions::default()
    };
    for use_entry_guards in [true, false] {
        let options = PathOptions {
            use_entry_guards,
            ..options.clone()
        };
        let mut selector = selector(&net, options, 9);
        let mut rng = rng(10);
        let mut seen = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        for _ in 0..300 {
            let path = selector.path(&web(), now(), &mut rng).unwrap();
            for (seen, id) in seen.iter_mut().zip(ids(&path)) {
                seen.insert(id);
            }
        }
        // Relay 3 may be the exit, and then a guard is another; relay 8 is at 11.9.1.1.
        assert!(seen[0].is_subset(&[3, 4].into()), "{seen:?}");
        assert_eq!(seen[1], [1, 6, 8].into());
        assert_eq!(seen[2], [1, 3].into());
    }
}

#[test]
fn an_exit_that_is_named_is_the_exit_unless_it_is_excluded() {
    let net = TestNet::alike(10);
    let options = PathOptions {
        exclude_exit_nodes: set("relay3"),
        exit_nodes: Some(set("relay1")),
        ..PathOptions::default()
    };
    let mut selector = selector(&net, options, 11);
    let mut rng = rng(12);
    let mut named = |name: &str| {
        let usage = Usage::Exit(ExitWanted {
            // Even to a port that its summary does not allow.
            ports: vec![port(25)],
            exit: Some(name.parse().unwrap()),
            ..ExitWanted::default()
        });
        selector
            .path(&usage, now(), &mut rng)
            .map(|path| ids(&path)[2])
    };
    assert_eq!(named("relay2"), Ok(2));
    assert!(matches!(named("relay3"), Err(PathError::NoExit(_))));
    let unknown = PathError::UnknownRelay("relay99".to_owned());
    assert_eq!(named("relay99"), Err(unknown));
}

/// A leg to any exit with conflux, or to that of the first, by other relays than these paths.
fn leg(others: &[Path]) -> Usage {
    let at = |place: usize| others.iter().map(|path| path.hops[place].rsa).collect();
    let exit = others.first().map(|path| RelayName::Rsa(path.hops[2].rsa));
    Usage::Leg(LegWanted {
        exit: ExitWanted {
            exit,
            ..ExitWanted::default()
        },
        guards: at(0),
        middles: at(1),
        ..LegWanted::default()
    })
}

#[test]
fn legs_of_a_set_share_the_exit_and_nothing_else() {
    let mut net = TestNet::alike(20);
    for relay in &mut net.relays {
        relay.protocols = match relay.id {
            0..3 => "Conflux=1 DirCache=2 FlowCtrl=1-2 Link=4-5 Relay=1-4",
            // Conflux needs congestion control.
            3 => "Conflux=1 DirCache=2 FlowCtrl=1 Link=4-5 Relay=1-4",
            _ => relay.protocols,
        };
    }
    assert!((net.relays().conflux_share() - 0.15).abs() < 1e-9);
    for options in [PathOptions::default(), unguarded()] {
        let mut selector = selector(&net, options, 13);
        let mut rng = rng(14);
        for _ in 0..50 {
            let mut legs = Vec::new();
            while legs.len() < 3 {
                legs.push(selector.path(&leg(&legs), now(), &mut rng).unwrap());
            }
            let at = |place: usize| -> BTreeSet<u16> {
                legs.iter().map(|leg| ids(leg)[place]).collect()
            };
            assert_eq!((at(0).len(), at(1).len(), at(2).len()), (3, 3, 1));
            assert!(at(2).is_subset(&[0, 1, 2].into()), "{:?}", at(2));
            assert!(at(0).is_disjoint(&at(2)));
            for guard in legs.iter().filter_map(|leg| leg.guard) {
                selector.forget(guard);
            }
        }
    }
}

#[test]
fn a_second_leg_needs_a_second_guard_and_primary_guards_come_first() {
    let mut net = TestNet::alike(20);
    for relay in &mut net.relays {
        relay.protocols = "Conflux=1 DirCache=2 FlowCtrl=1-2 Link=4-5 Relay=1-4";
    }
    let mut rng = rng(16);
    let mut of_many = selector(&net, PathOptions::default(), 15);
    for _ in 0..20 {
        let primary: BTreeSet<RsaIdentity> = (of_many.guards().into_iter())
            .filter(|guard| guard.primary)
            .map(|guard| guard.rsa)
            .collect();
        let first = of_many.path(&leg(&[]), now(), &mut rng).unwrap();
        let second = of_many.path(&leg(std::slice::from_ref(&first)), now(), &mut rng);
        let second = second.unwrap();
        for path in [&first, &second] {
            assert!(primary.contains(&path.hops[0].rsa));
        }
        // Both may be used at once, as soon as they are built.
        let guard = second.guard.unwrap();
        let built = of_many.guard_outcome(guard, Outcome::Built, now(), &mut rng);
        assert_eq!(built, crate::GuardUse::Now);
        for guard in [first.guard, second.guard].into_iter().flatten() {
            of_many.forget(guard);
        }
    }
    let one = PathOptions {
        entry_nodes: Some(set("relay7")),
        exclude_exit_nodes: set("relay7"),
        ..PathOptions::default()
    };
    let mut of_one = selector(&net, one, 17);
    let first = of_one.path(&leg(&[]), now(), &mut rng).unwrap();
    let second = of_one.path(&leg(&[first]), now(), &mut rng);
    assert!(matches!(second, Err(PathError::NoGuard)));
}

#[test]
fn controllers_get_the_path_that_they_name() {
    let net = TestNet::alike(10);
    let mut selector = selector(&net, PathOptions::default(), 13);
    let mut rng = rng(14);
    let mut path = |names: &[&str]| {
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        selector.path(&Usage::Exact(names), now(), &mut rng)
    };
    let four = path(&["relay4", "relay2", "relay4", "relay1"]).unwrap();
    assert_eq!(ids(&four), [4, 2, 4, 1]);
    assert!(four.guard.is_none());
    assert_eq!(path(&[]).unwrap_err(), PathError::BadPath);
    assert_eq!(path(&["relay1", "relay1"]).unwrap_err(), PathError::BadPath);
    let longest = ["relay1", "relay2"].repeat(4);
    assert_eq!(path(&longest).unwrap().hops.len(), 8);
    let longer = [&longest[..], &["relay1"]].concat();
    assert_eq!(path(&longer).unwrap_err(), PathError::BadPath);
}

#[test]
fn the_error_names_what_is_missing() {
    let mut rng = rng(15);
    let mut empty = Selector::new(PathOptions::default(), [], now());
    assert_eq!(
        empty.path(&web(), now(), &mut rng).unwrap_err(),
        PathError::NoDirectory
    );
    let net = TestNet::alike(5);
    let with = |options| selector(&net, options, 16);
    let mut error = |options| with(options).path(&web(), now(), &mut rng).unwrap_err();
    let nobody = Some(set("nobody"));
    assert_eq!(
        error(PathOptions {
            exit_nodes: nobody.clone(),
            ..PathOptions::default()
        }),
        PathError::NoExit(" (ExitNodes is set)")
    );
    assert_eq!(
        error(PathOptions {
            entry_nodes: nobody.clone(),
            ..PathOptions::default()
        }),
        PathError::NoGuard
    );
    assert_eq!(
        error(PathOptions {
            middle_nodes: nobody,
            ..PathOptions::default()
        }),
        PathError::NoMiddle
    );
}

#[test]
fn directory_requests_go_through_several_guards() {
    let net = TestNet::mixed(36);
    let mut selector = selector(&net, PathOptions::default(), 17);
    let mut rng = rng(18);
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let path = selector.path(&Usage::Directory, now(), &mut rng).unwrap();
        assert_eq!(path.hops.len(), 1);
        assert!(path.hops[0].is_dir_cache);
        seen.insert(path.hops[0].rsa);
        selector.forget(path.guard.unwrap());
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn without_guards_a_first_hop_is_no_relay_for_the_middle_and_serves_the_directory() {
    let mut net = TestNet::alike(12);
    for relay in &mut net.relays {
        // The one guard is excluded.
        if relay.id < 11 {
            relay.flags.remove("Guard");
        }
        if relay.id < 4 {
            relay.flags.extend(["MiddleOnly"]);
        }
        if relay.id >= 8 {
            relay.flags.remove("V2Dir");
            relay.protocols = "FlowCtrl=1-2 Link=4-5 Relay=1-4";
        }
    }
    let options = PathOptions {
        exclude_nodes: set("relay11"),
        ..unguarded()
    };
    let mut selector = selector(&net, options, 17);
    let mut rng = rng(18);
    let mut first_hops = |usage: &Usage| -> BTreeSet<u16> {
        let path = |_| ids(&selector.path(usage, now(), &mut rng).unwrap())[0];
        (0..300).map(path).collect()
    };
    assert_eq!(first_hops(&web()), (4..11).collect());
    assert_eq!(first_hops(&Usage::Directory), (4..8).collect());
}

#[test]
fn guards_are_reached_by_families_of_addresses_that_are_allowed() {
    let mut net = TestNet::alike(40);
    for relay in &mut net.relays[..5] {
        relay.addr_v6 = Some(format!("[2001:db8:{}::1]:9001", relay.id));
    }
    for (ipv4, ipv6, prefer_ipv6, by_ipv4) in [
        (true, false, false, true),
        (false, true, false, false),
        (true, true, false, true),
        (true, true, true, false),
    ] {
        let options = PathOptions {
            reachable: Reachable {
                ipv4,
                ipv6,
                prefer_ipv6,
                rules: None,
            },
            entry_nodes: Some(set("relay1")),
            ..PathOptions::default()
        };
        let mut selector = selector(&net, options, 21);
        let path = selector.path(&web(), now(), &mut rng(22)).unwrap();
        let addrs = &path.hops[0].addrs;
        assert_eq!(addrs.len(), 1);
        assert_eq!(addrs[0].is_ipv4(), by_ipv4);
    }
    let options = PathOptions {
        reachable: Reachable {
            ipv4: false,
            ..Reachable::default()
        },
        ..PathOptions::default()
    };
    let mut selector = selector(&net, options, 23);
    for _ in 0..20 {
        let path = selector.path(&web(), now(), &mut rng(24)).unwrap();
        assert!(id_of(&path.hops[0].rsa) < 5);
    }
}

#[test]
fn guards_that_cannot_be_reached_are_not_chosen_with_guards_or_without() {
    let mut net = TestNet::alike(40);
    for relay in &mut net.relays[..5] {
        relay.addr_v6 = Some(format!("[2001:db8:{}::1]:9001", relay.id));
    }
    // By IPv6, and there to these networks alone.
    let rules = (0..3).map(|id| AddressRule {
        accept: true,
        network: format!("2001:db8:{id}::").parse().unwrap(),
        bits: 48,
        ports: 9001..=9001,
    });
    for use_entry_guards in [true, false] {
        let options = PathOptions {
            use_entry_guards,
            // Their IPv6 addresses are in one.
            enforce_distinct_subnets: false,
            reachable: Reachable {
                rules: Some(rules.clone().collect()),
                ..Reachable::default()
            },
            ..PathOptions::default()
        };
        let mut selector = selector(&net, options.clone(), 25);
        for usage in [web(), Usage::Directory] {
            for turn in 0..20 {
                let path = selector.path(&usage, now(), &mut rng(turn)).unwrap();
                let first = &path.hops[0];
                assert!(id_of(&first.rsa) < 3, "{usage:?} {first:?}");
                assert!(first.addrs.len() == 1 && options.reachable.allows(first.addrs[0]));
                // Hops that other relays connect to keep all their addresses.
                assert!(path.hops[1..].iter().all(|hop| !hop.addrs.is_empty()));
            }
        }
    }
}

#[test]
fn a_network_of_three_relays_has_paths() {
    let net = TestNet::alike(3);
    let options = PathOptions {
        enforce_distinct_subnets: false,
        ..PathOptions::default()
    };
    let mut selector = selector(&net, options, 19);
    let mut rng = rng(20);
    for turn in 0..100 {
        let path = selector.path(&web(), now() + secs(turn), &mut rng).unwrap();
        let ids: BTreeSet<u16> = ids(&path).into_iter().collect();
        assert_eq!(ids.len(), 3);
        let guard = path.guard.unwrap();
        selector.guard_outcome(guard, Outcome::Built, now(), &mut rng);
        selector.forget(guard);
    }
}

/// A network whose relays are related in every way, and options of all sorts.
fn tangled(seed: u64) -> (TestNet, PathOptions) {
    let mut rng = rng(seed);
    let count = rng.random_range(8..40);
    let mut net = TestNet::mixed(count);
    for relay in &mut net.relays {
        let id = relay.id;
        relay.addr = format!("10.{}.{}.{}:9001", rng.random_range(0..count), id, id + 1);
        if rng.random_bool(0.3) {
            let subnet = rng.random_range(0..4);
            relay.addr_v6 = Some(format!("[2001:{subnet:x}::{:x}]:9001", id + 1));
        }
        if rng.random_bool(0.5) {
            relay.family = (0..3).map(|_| rng.random_range(0..count)).collect();
            relay.family.push(id);
        }
        if rng.random_bool(0.3) {
            relay.family_keys.push(rng.random_range(0..5));
        }
        for flag in ["Fast", "Stable", "V2Dir"] {
            if rng.random_bool(0.15) {
                relay.flags.remove(flag);
            }
        }
    }
    let mut some = |share: f64| -> String {
        let names = (0..count).filter(|_| rng.random_bool(share));
        names
            .map(|id| format!("relay{id}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let options = PathOptions {
        exclude_nodes: set(&some(0.1)),
        exclude_exit_nodes: set(&some(0.1)),
        node_families: vec![set(&some(0.1)), set(&some(0.1))],
        own_identity: Some(rsa(1)),
        ..PathOptions::default()
    };
    let options = PathOptions {
        enforce_distinct_subnets: rng.random_bool(0.7),
        use_entry_guards: rng.random_bool(0.7),
        exit_nodes: rng.random_bool(0.2).then(|| set("relay2,relay5,relay8")),
        ..options
    };
    (net, options)
}

/// Returns true if two relays of a network must not be in one path, by the words of path-spec 2.2.
fn must_not_meet(a: &TestRelay, b: &TestRelay, options: &PathOptions) -> bool {
    let prefix = |addr: &str, groups: usize, between: char| -> Vec<String> {
        let parts = addr.split(between).take(groups);
        parts.map(str::to_owned).collect()
    };
    let same_v4 = prefix(&a.addr, 2, '.') == prefix(&b.addr, 2, '.');
    let same_v6 = match (&a.addr_v6, &b.addr_v6) {
        (Some(a), Some(b)) => prefix(a, 2, ':') == prefix(b, 2, ':'),
        _ => false,
    };
    let named = |set: &NodeSet, relay: &TestRelay| {
        let text = set.to_string();
        text.split(',').any(|name| name == relay.nickname)
    };
    a.id == b.id
        || (a.family.contains(&b.id) && b.family.contains(&a.id))
        || a.family_keys.iter().any(|key| b.family_keys.contains(key))
        || (options.enforce_distinct_subnets && (same_v4 || same_v6))
        || options
            .node_families
            .iter()
            .any(|set| named(set, a) && named(set, b))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_path_breaks_a_rule(seed: u64) {
        let (net, options) = tangled(seed);
        let mut selector = selector(&net, options.clone(), seed);
        let mut rng = rng(seed ^ 1);
        for turn in 0..60 {
            let usage = if turn % 4 == 0 { Usage::Internal { stable: turn % 8 == 0 } } else { web() };
            let Ok(path) = selector.path(&usage, now(), &mut rng) else {
                continue;
            };
            prop_assert_eq!(path.hops.len(), 3);
            let hops: Vec<&TestRelay> = path
                .hops
                .iter()
                .map(|hop| &net.relays[usize::from(id_of(&hop.rsa))])
                .collect();
            for (at, a) in hops.iter().enumerate() {
                for b in &hops[at + 1..] {
                    prop_assert!(!must_not_meet(a, b, &options), "{:?} {:?}", a, b);
                }
                prop_assert!(a.id != 1, "the relay's own");
                prop_assert!(!options.exclude_nodes.to_string().split(',').any(|n| n == a.nickname));
            }
            if turn % 4 != 0 {
                prop_assert!(path.hops[2].allows(port(443)));
                let excluded = options.exclude_exit_nodes.to_string();
                prop_assert!(!excluded.split(',').any(|n| n == hops[2].nickname));
                if options.exit_nodes.is_some() {
                    prop_assert!([2, 5, 8].contains(&hops[2].id));
                }
            }
            if let Some(guard) = path.guard {
                prop_assert!(hops[0].flags.contains("Guard") && hops[0].flags.contains("V2Dir"));
                let outcome = if turn % 3 == 0 { Outcome::GuardFailed } else { Outcome::Built };
                selector.guard_outcome(guard, outcome, now(), &mut rng);
                if turn % 2 == 0 {
                    selector.forget(guard);
                }
            }
        }
    }
}

#[test]
fn paths_begin_at_bridges_and_lead_over_them_nowhere_else() {
    let options = PathOptions {
        use_bridges: true,
        ..PathOptions::default()
    };
    let net = TestNet::alike(8);
    let mut rng = rng(3);
    let mut selector = Selector::new(options, [], now());
    let error = |selector: &mut Selector, rng: &mut _| selector.path(&web(), now(), rng).err();
    assert!(!selector.has_usable_bridge());
    let addr = "192.0.2.1:443".parse().unwrap();
    let hop = |id: u16| {
        let ids = (rsa(id), ed25519(id));
        Hop::of_bridge(
            addr,
            "bridge".to_owned(),
            ids,
            [1; 32],
            &"Relay=1-4".parse().unwrap(),
        )
    };
    let bridge = |id| Bridge {
        addr,
        rsa: Some(rsa(id)),
        hop: Some(hop(id)),
        family: StatedFamily::default(),
    };
    selector.set_bridges(vec![bridge(300)], now(), &mut rng);
    // Without a consensus a bridge can be asked for one, and that is all.
    assert!(selector.has_usable_bridge());
    let path = selector.path(&Usage::Directory, now(), &mut rng).unwrap();
    assert_eq!((ids(&path), &path.hops[0].addrs), (vec![300], &vec![addr]));
    selector.forget(path.guard.unwrap());
    assert_eq!(error(&mut selector, &mut rng), Some(PathError::NoDirectory));
    selector.set_netdir(&net.netdir(), now(), &mut rng);
    for _ in 0..300 {
        let path = selector.path(&web(), now(), &mut rng).unwrap();
        let ids = ids(&path);
        assert_eq!((ids[0], ids.len()), (300, 3));
        assert!(ids[1..].iter().all(|id| *id < 8), "{ids:?}");
        selector.forget(path.guard.unwrap());
    }
    // Also one that the consensus lists is a first hop alone, at the address of torrc.
    selector.set_bridges(vec![bridge(3)], now(), &mut rng);
    for _ in 0..300 {
        let path = selector.path(&web(), now(), &mut rng).unwrap();
        assert_eq!(path.hops[0].addrs, [addr]);
        assert!(ids(&path)[1..].iter().all(|id| *id != 3));
        selector.forget(path.guard.unwrap());
    }
    selector.set_bridges(Vec::new(), now(), &mut rng);
    assert_eq!(error(&mut selector, &mut rng), Some(PathError::NoGuard));
}
