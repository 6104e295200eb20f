//! Tests whether relays run, and what comes of them.

use std::net::SocketAddr;

use weft_dir::descriptor::Moment;

use super::rules::*;
use super::*;

/// Runs the tests that are due; relays that are not reached are those of `down`.
pub(super) fn run_tests(authority: &mut PrivateAuthority, down: &[u64], at: SystemTime) -> usize {
    let down: Vec<RsaIdentity> = down.iter().map(|seed| relay(*seed).rsa_id()).collect();
    let (tests, _) = authority.begin_tests(at);
    for test in &tests {
        authority.tested(test, !down.contains(&test.rsa), at);
    }
    tests.len()
}

#[test]
fn relays_that_are_not_reached_are_not_listed() {
    let mut authority = authority_with(with_tests(|_| {}));
    for seed in 1..=3 {
        upload(&mut authority, seed);
    }
    // We ourselves run, and nobody tests that.
    let (tests, next) = authority.begin_tests(now());
    assert_eq!((tests.len(), next), (2, None));
    assert_eq!(
        authority.begin_tests(now()).0.len(),
        0,
        "they are under way"
    );
    let ed = |seed| described(seed).keys.ed_identity;
    for test in &tests {
        let two = test.rsa == relay(2).rsa_id();
        assert_eq!(test.ed25519, Some(ed(if two { 2 } else { 3 })));
        authority.tested(test, two, now());
    }
    assert_eq!(names(&entries(&mut authority)), ["relay1", "relay2"]);
    // The one that failed is tested again soon, the other one after a cycle.
    let (_, next) = authority.begin_tests(now() + secs(29));
    assert_eq!(next, Some(now() + secs(30)));
    assert_eq!(run_tests(&mut authority, &[], now() + secs(30)), 1);
    assert_eq!(entries_after(&mut authority, secs(31)).len(), 3);
    assert_eq!(run_tests(&mut authority, &[], now() + secs(1279)), 0);
    assert_eq!(run_tests(&mut authority, &[2], now() + secs(1280)), 1);
    // Forty-five minutes after it was reached last it is down.
    let found = entries_after(&mut authority, secs(45 * 60 - 1));
    assert_eq!(names(&found), ["relay1", "relay2", "relay3"]);
    let found = entries_after(&mut authority, secs(45 * 60 + 4));
    assert_eq!(names(&found), ["relay1", "relay3"]);
}

#[test]
fn no_more_tests_run_than_there_are_places_and_each_place_is_free_after_its_test() {
    let mut authority = authority_with(with_tests(|_| {}));
    for seed in 2..=12 {
        upload(&mut authority, seed);
    }
    let (first, _) = authority.begin_tests(now());
    assert_eq!(first.len(), 8, "none of them was ever reached");
    assert!(authority.begin_tests(now()).0.is_empty());
    // A relay that is forgotten meanwhile keeps its place until its test ends.
    let first_id = first[0].rsa.to_string();
    let rejected = format!("!reject {}", first_id.trim_start_matches('$'));
    let rejected = Lists {
        named: NamedRelays::parse(rejected.as_bytes()).0,
        ..Lists::default()
    };
    let mut config = with_tests(|_| {});
    config.lists = rejected;
    authority.configure(config, now());
    assert_eq!(authority.relays(), 10);
    authority.tick(now()).unwrap();
    assert!(authority.begin_tests(now()).0.is_empty());
    authority.tested(&first[0], true, now());
    assert_eq!(authority.begin_tests(now()).0.len(), 1);
    for test in &first[1..] {
        authority.tested(test, true, now());
    }
    assert_eq!(authority.begin_tests(now()).0.len(), 2, "all others");
}

#[test]
fn a_test_of_an_older_identity_is_none_of_the_new_one() {
    let mut config = with_tests(|_| {});
    config.pin_keys = false;
    let mut authority = authority_with(config);
    upload(&mut authority, 2);
    let (tests, _) = authority.begin_tests(now());
    let later = Moment {
        published: now() + secs(1),
        ..moment()
    };
    let heir = with_rsa_of(&described(3), &described(2));
    assert_eq!(post_at(&mut authority, &heir, &later).status, 200);
    authority.tested(&tests[0], true, now() + secs(1));
    let (tests, _) = authority.begin_tests(now() + secs(1));
    assert_eq!(tests[0].ed25519, Some(described(3).keys.ed_identity));
    assert_eq!(
        authority.history.uptime(&tests[0].rsa, now() + secs(9)),
        Duration::ZERO
    );
}

#[test]
fn a_relay_that_moves_or_wakes_is_tested_at_once() {
    let mut authority = authority_with(with_tests(|options| options.test_ed25519 = false));
    upload(&mut authority, 2);
    let (tests, _) = authority.begin_tests(now());
    assert_eq!(tests[0].ed25519, None, "the RSA identity is enough");
    authority.tested(&tests[0], true, now());
    let later = |seconds| Moment {
        published: now() + secs(seconds),
        ..moment()
    };
    post_at(&mut authority, &described(2), &later(10));
    assert_eq!(run_tests(&mut authority, &[], now() + secs(10)), 0);
    let moved = |hibernating| OwnDescriptor {
        hibernating,
        ..at_address(2)
    };
    post_at(&mut authority, &moved(false), &later(20));
    assert_eq!(run_tests(&mut authority, &[], now() + secs(20)), 1);
    // A test of the old address says nothing about the new one.
    let (_, next) = authority.begin_tests(now() + secs(20));
    authority.tested(&tests[0], true, now() + secs(20));
    assert_ne!(next, None);
    assert_eq!(run_tests(&mut authority, &[], now() + secs(20)), 1);
    post_at(&mut authority, &moved(true), &later(30));
    post_at(&mut authority, &moved(false), &later(40));
    assert_eq!(run_tests(&mut authority, &[], now() + secs(40)), 1);
}

#[test]
fn ipv6_addresses_are_listed_by_an_authority_that_reaches_them() {
    let dual = |seed| OwnDescriptor {
        ipv6: Some("[2001:db8::1]:9001".parse().unwrap()),
        ..described(seed)
    };
    let mut authority = authority_with(with_tests(|_| {}));
    post(&mut authority, &dual(2));
    assert_eq!(run_tests(&mut authority, &[], now()), 1);
    let found = entries(&mut authority);
    assert!(!found["relay2"].contains("\na "), "{found:?}");
    authority.configure(with_tests(|options| options.ipv6 = true), now());
    let (tests, _) = authority.begin_tests(now() + secs(8));
    let v6: SocketAddr = "[2001:db8::1]:9001".parse().unwrap();
    assert_eq!(
        tests.iter().map(|test| test.address).collect::<Vec<_>>(),
        [v6]
    );
    authority.changed = true;
    let before = authority.valid_after();
    authority.tick(now() + secs(8)).unwrap();
    assert_eq!(authority.valid_after(), before, "nobody runs");
    authority.tested(&tests[0], true, now() + secs(8));
    let found = entries_after(&mut authority, secs(12));
    assert!(
        found["relay2"].contains("\na [2001:db8::1]:9001\n"),
        "{found:?}"
    );
}

#[test]
fn an_authority_that_must_learn_who_runs_makes_no_consensus_before() {
    let config = with_tests(|options| options.time_to_learn = secs(60));
    let mut authority = authority_with(config);
    authority.tick(now()).unwrap();
    upload(&mut authority, 1);
    assert_eq!(authority.tick(now() + secs(30)).unwrap(), now() + secs(60));
    assert_eq!(authority.valid_after(), None);
    authority.tick(now() + secs(60)).unwrap();
    assert!(authority.valid_after().is_some());
}
