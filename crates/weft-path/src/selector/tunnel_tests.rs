//! Paths of a tunnel's legs: exits, guards, middle relays of low bandwidth.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_cell::identity::RsaIdentity;

use crate::testing::{TestNet, assert_in_proportion, id_of, now, rsa, secs};
use crate::{
    ExitWanted, GuardUse, LegKind, LegWanted, Outcome, Path, PathError, PathOptions, RelayName,
    Selector, Usage,
};

const MTOR: &str = "DirCache=2 FlowCtrl=1 Link=4-5 Relay=1-3 WeftMtor=1";

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

fn selector(net: &TestNet, options: PathOptions) -> Selector {
    let mut selector = Selector::new(options, [], now());
    selector.set_netdir(&net.netdir(), now(), &mut rng(1));
    selector
}

fn unguarded() -> PathOptions {
    PathOptions {
        use_entry_guards: false,
        ..PathOptions::default()
    }
}

/// Of these relays, the first `exits` are exits with tunnels, and no guards; relays from `slow` on have a weight below 100.
fn net(count: u16, exits: u16, slow: u16) -> TestNet {
    let mut net = TestNet::alike(count);
    for relay in &mut net.relays {
        if relay.id < exits {
            relay.protocols = MTOR;
            relay.flags.remove("Guard");
        } else {
            relay.flags.remove("Exit");
            relay.policy = "";
        }
        if relay.id >= slow {
            relay.flags.remove("Guard");
            relay.flags.remove("Fast");
            relay.bandwidth = 10 + u32::from(relay.id) % 40;
        }
    }
    net
}

/// The next leg of a tunnel that has these.
fn leg(others: &[Path]) -> LegWanted {
    let at = |place: usize| others.iter().map(|path| path.hops[place].rsa).collect();
    let exit = others.first().map(|path| RelayName::Rsa(path.hops[2].rsa));
    LegWanted {
        kind: LegKind::Mtor,
        exit: ExitWanted {
            exit,
            ..ExitWanted::default()
        },
        guards: at(0),
        middles: at(1),
        middle_below: Some(100),
        ..LegWanted::default()
    }
}

/// A tunnel of `count` legs, whose circuits are all in use as soon as they are built.
fn tunnel(selector: &mut Selector, count: usize, common: bool, rng: &mut ChaCha12Rng) -> Vec<Path> {
    let mut legs: Vec<Path> = Vec::new();
    while legs.len() < count {
        let mut wanted = leg(&legs);
        if common {
            wanted.entry = legs.first().map(|path| path.hops[0].rsa);
        }
        let path = selector.path(&Usage::Leg(wanted), now(), rng).unwrap();
        legs.push(path);
    }
    for guard in legs.iter().filter_map(|leg| leg.guard) {
        let built = selector.guard_outcome(guard, Outcome::Built, now(), rng);
        assert_eq!(built, GuardUse::Now);
    }
    legs
}

fn forget(selector: &mut Selector, legs: &[Path]) {
    for guard in legs.iter().filter_map(|leg| leg.guard) {
        selector.forget(guard);
    }
}

/// Legs of each relay at a place of the path.
fn counts(legs: &[Path], place: usize) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for leg in legs {
        *counts.entry(id_of(&leg.hops[place].rsa)).or_default() += 1;
    }
    counts
}

fn set(counts: &BTreeMap<u16, usize>) -> BTreeSet<u16> {
    counts.keys().copied().collect()
}

#[test]
fn legs_have_guards_and_slow_middles_of_their_own_and_share_an_exit_with_tunnels() {
    let net = net(60, 4, 40);
    for options in [PathOptions::default(), unguarded()] {
        let mut selector = selector(&net, options);
        let mut rng = rng(2);
        let (mut exits, mut middles) = (BTreeSet::new(), BTreeSet::new());
        for count in [1, 3, 5, 16] {
            for _ in 0..20 {
                let legs = tunnel(&mut selector, count, false, &mut rng);
                let [guards, slow, exit] = [0, 1, 2].map(|place| counts(&legs, place));
                assert_eq!((guards.len(), slow.len(), exit.len()), (count, count, 1));
                assert!(guards.keys().all(|id| (4..40).contains(id)), "{guards:?}");
                assert!(slow.keys().all(|id| *id >= 40), "{slow:?}");
                exits.extend(exit.into_keys());
                middles.extend(slow.into_keys());
                forget(&mut selector, &legs);
            }
        }
        // No congestion control, and none but those with WeftMtor=1.
        assert_eq!(exits, (0..4).collect());
        assert_eq!(middles, (40..60).collect());
    }
}

#[test]
fn a_tunnel_ends_at_an_exit_that_has_tunnels() {
    let mut net = net(40, 3, 30);
    for relay in &mut net.relays[5..20] {
        relay.flags.insert("Exit");
        relay.policy = "accept 80,443";
    }
    let mut selector = selector(&net, PathOptions::default());
    let mut rng = rng(7);
    for _ in 0..60 {
        let path = selector.path(&Usage::Leg(leg(&[])), now(), &mut rng);
        let path = path.unwrap();
        assert!(id_of(&path.hops[2].rsa) < 3);
        forget(&mut selector, &[path]);
    }
}

#[test]
fn tunnels_of_one_client_go_through_the_same_guards_primary_ones_first() {
    let net = net(60, 4, 40);
    let mut selector = selector(&net, PathOptions::default());
    let mut rng = rng(3);
    let first = tunnel(&mut selector, 5, false, &mut rng);
    let guards: Vec<RsaIdentity> = selector.guards().iter().map(|guard| guard.rsa).collect();
    let of =
        |legs: &[Path]| -> Vec<RsaIdentity> { legs.iter().map(|leg| leg.hops[0].rsa).collect() };
    assert_eq!(of(&first), guards[..5]);
    // Also at the same time.
    let second = tunnel(&mut selector, 5, false, &mut rng);
    assert_eq!(counts(&second, 0), counts(&first, 0));
    forget(&mut selector, &first);
    // A guard that fails makes room for the next.
    let (down, _) = (second[1].hops[0].rsa, second[1].guard.unwrap());
    selector.guard_outcome(
        second[1].guard.unwrap(),
        Outcome::GuardFailed,
        now(),
        &mut rng,
    );
    forget(&mut selector, &second);
    let third = tunnel(&mut selector, 5, false, &mut rng);
    let mut expected = set(&counts(&first, 0));
    expected.remove(&id_of(&down));
    assert!(set(&counts(&third, 0)).is_superset(&expected));
    assert!(!of(&third).contains(&down));
}

#[test]
fn where_guards_are_fewer_than_legs_each_has_as_many_as_the_others() {
    for options in [PathOptions::default(), unguarded()] {
        // Guards 2, 3 and 4.
        let mut selector = selector(&net(20, 2, 5), options);
        let mut rng = rng(4);
        let legs = tunnel(&mut selector, 5, false, &mut rng);
        let mut each: Vec<usize> = counts(&legs, 0).into_values().collect();
        each.sort_unstable();
        assert_eq!(each, [1, 2, 2]);
        // Legs of a conflux set do not share guards.
        let wanted = LegWanted {
            kind: LegKind::Conflux,
            ..leg(&legs)
        };
        let error = selector.path(&Usage::Leg(wanted), now(), &mut rng);
        assert!(matches!(error, Err(PathError::NoExit(_))), "{error:?}");
    }
}

#[test]
fn one_entry_is_that_of_the_first_leg_and_counts_every_leg() {
    let net = net(60, 4, 40);
    for (options, guarded) in [(PathOptions::default(), true), (unguarded(), false)] {
        let mut selector = selector(&net, options);
        let mut rng = rng(5);
        let legs = tunnel(&mut selector, 5, true, &mut rng);
        assert_eq!(counts(&legs, 0).len(), 1);
        assert_eq!(counts(&legs, 1).len(), 5);
        assert!(legs.iter().all(|leg| leg.guard.is_some() == guarded));
        let tickets: BTreeSet<_> = legs.iter().filter_map(|leg| leg.guard).collect();
        assert_eq!(tickets.len(), if guarded { 5 } else { 0 });
    }
}

#[test]
fn an_entry_that_cannot_be_used_is_named_in_the_error() {
    let net = net(60, 4, 40);
    let mut rng = rng(6);
    let mut of = selector(&net, PathOptions::default());
    let first = tunnel(&mut of, 1, true, &mut rng);
    let guard = first[0].hops[0].rsa;
    let by = |entry| LegWanted {
        entry: Some(entry),
        ..leg(&first)
    };
    // The exit itself, an unknown relay, and one that is not a guard of this client.
    let exit = first[0].hops[2].rsa;
    let guards: Vec<RsaIdentity> = of.guards().iter().map(|guard| guard.rsa).collect();
    let other = (4..40).map(rsa).find(|id| !guards.contains(id)).unwrap();
    for entry in [exit, rsa(999), other] {
        let error = of.path(&Usage::Leg(by(entry)), now(), &mut rng);
        assert_eq!(error.unwrap_err(), PathError::EntryUnusable(entry));
    }
    // One that is down, until it is tried again.
    let second = of.path(&Usage::Leg(by(guard)), now(), &mut rng).unwrap();
    let ticket = second.guard.unwrap();
    of.guard_outcome(ticket, Outcome::GuardFailed, now(), &mut rng);
    let error = of
        .path(&Usage::Leg(by(guard)), now(), &mut rng)
        .unwrap_err();
    assert_eq!(error, PathError::EntryUnusable(guard));
    assert!(error.to_string().contains(&guard.to_string()));
    let later = now() + secs(700);
    of.path(&Usage::Leg(by(guard)), later, &mut rng).unwrap();
    // Without guards, any relay that can be a first hop.
    let mut free = selector(&net, unguarded());
    let path = free.path(&Usage::Leg(by(guard)), now(), &mut rng).unwrap();
    assert_eq!(path.hops[0].rsa, guard);
    let error = free.path(&Usage::Leg(by(exit)), now(), &mut rng);
    assert_eq!(error.unwrap_err(), PathError::EntryUnusable(exit));
}

#[test]
fn slow_middles_are_drawn_by_weight_whatever_flags_they_have() {
    let net = net(40, 2, 20);
    let mut selector = selector(&net, PathOptions::default());
    let mut rng = rng(7);
    let mut drawn = vec![0; 40];
    for _ in 0..20_000 {
        let path = selector
            .path(&Usage::Leg(leg(&[])), now(), &mut rng)
            .unwrap();
        drawn[usize::from(id_of(&path.hops[1].rsa))] += 1;
        forget(&mut selector, &[path]);
    }
    let weights: Vec<f64> = (net.relays.iter())
        .map(|relay| f64::from(if relay.id < 20 { 0 } else { relay.bandwidth }))
        .collect();
    assert_in_proportion(&drawn, &weights);
}

#[test]
fn where_slow_middles_are_few_they_are_shared_and_where_there_are_none_others_serve() {
    // Relays 18 and 19 are slow.
    let mut few = selector(&net(20, 2, 18), PathOptions::default());
    let mut rng = rng(8);
    let mut each: Vec<usize> = counts(&tunnel(&mut few, 5, false, &mut rng), 1)
        .into_values()
        .collect();
    each.sort_unstable();
    assert_eq!(each, [2, 3]);
    // None is: others, and not the same.
    let mut none = selector(&net(20, 2, 20), PathOptions::default());
    let legs = tunnel(&mut none, 5, false, &mut rng);
    assert_eq!(counts(&legs, 1).len(), 5);
    // Two guards, one exit: each guard is the middle of the other.
    let mut least = selector(&net(3, 1, 3), PathOptions::default());
    let legs = tunnel(&mut least, 5, false, &mut rng);
    assert_eq!((counts(&legs, 0).len(), counts(&legs, 1).len()), (2, 2));
    // Without a bound any relay by its weight.
    let mut of = selector(&net(20, 2, 18), PathOptions::default());
    let wanted = LegWanted {
        middle_below: None,
        ..leg(&[])
    };
    let path = of.path(&Usage::Leg(wanted), now(), &mut rng).unwrap();
    assert!(id_of(&path.hops[1].rsa) < 18);
}
