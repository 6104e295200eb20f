//! Which relays an authority lists, and with which flags.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_policy::AddressSet;

use super::server::{Surroundings, Tester};
use super::*;
use crate::descriptor::Moment;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

pub(super) fn authority_with(config: AuthorityConfig) -> PrivateAuthority {
    PrivateAuthority::new(config, keys(), None)
}

fn with_lists(lists: Lists) -> AuthorityConfig {
    AuthorityConfig { lists, ..config() }
}

fn with_flags(change: impl FnOnce(&mut FlagThresholds)) -> AuthorityConfig {
    let mut config = config();
    change(&mut config.flags);
    config
}

/// Relays are as they compare with each other, and none as steady or fast as it must be anyway.
fn compared(change: impl FnOnce(&mut FlagThresholds)) -> AuthorityConfig {
    with_flags(|flags| {
        flags.stable_uptime = secs(30 * DAY);
        flags.stable_mtbf = secs(5 * DAY);
        flags.fast_guarantee = 0;
        flags.guard_bandwidth_guarantee = 0;
        change(flags);
    })
}

pub(super) fn with_tests(change: impl FnOnce(&mut ReachabilityOptions)) -> AuthorityConfig {
    let mut config = config();
    config.reachability.test = true;
    change(&mut config.reachability);
    config
}

/// A relay at an address of its own, `10.0.0.SEED`.
fn at_address(seed: u8) -> OwnDescriptor {
    OwnDescriptor {
        ipv4: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, seed), 9001),
        ..described(seed.into())
    }
}

fn post_at(authority: &mut PrivateAuthority, relay: &OwnDescriptor, moment: &Moment) -> Answer {
    let body = relay.sign(moment).unwrap().upload_body();
    authority.post(&body, FROM, moment.published)
}

fn post(authority: &mut PrivateAuthority, relay: &OwnDescriptor) -> Answer {
    post_at(authority, relay, &moment())
}

/// Of the consensus that is made `after` this time: nicknames with all their lines.
pub(super) fn entries_after(
    authority: &mut PrivateAuthority,
    after: Duration,
) -> BTreeMap<String, String> {
    authority.changed = true;
    authority.tick(now() + after).unwrap();
    authority.audit().unwrap();
    let text = body(&authority.get(MICRODESC, now() + after));
    let text = text.split("\ndirectory-footer").next().unwrap();
    text.split("\nr ")
        .skip(1)
        .map(|entry| {
            let name = entry.split(' ').next().unwrap();
            (name.to_owned(), format!("{entry}\n"))
        })
        .collect()
}

pub(super) fn entries(authority: &mut PrivateAuthority) -> BTreeMap<String, String> {
    entries_after(authority, secs(4))
}

/// Nicknames of relays with a flag.
fn with_flag<'a>(entries: &'a BTreeMap<String, String>, flag: &str) -> Vec<&'a str> {
    let has = |entry: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix("s "));
        line.is_some_and(|line| line.split(' ').any(|one| one == flag))
    };
    let with = entries.iter().filter(|(_, entry)| has(entry));
    with.map(|(name, _)| name.as_str()).collect()
}

pub(super) fn names(entries: &BTreeMap<String, String>) -> Vec<&str> {
    entries.keys().map(String::as_str).collect()
}

fn list(rules: &str) -> AddressSet {
    AddressSet::parse(rules, &[]).unwrap()
}

#[test]
fn bad_exits_middle_hops_and_invalid_relays_are_listed_as_torrc_has_them() {
    let lists = Lists {
        bad_exit: list("10.0.0.2"),
        middle_only: list("10.0.0.3"),
        invalid: list("10.0.0.4"),
        reject: list("10.0.0.5"),
        list_bad_exits: true,
        list_middle_only: true,
        ..Lists::default()
    };
    let unlisted = Lists {
        list_bad_exits: false,
        list_middle_only: false,
        ..lists.clone()
    };
    let mut authority = authority_with(with_lists(lists));
    for seed in 1..=4 {
        assert_eq!(post(&mut authority, &at_address(seed)).status, 200);
    }
    let refused = post(&mut authority, &at_address(5));
    assert_eq!(refused.status, 400);
    assert!(refused.reason.starts_with("Suspicious relay address range"));
    let found = entries(&mut authority);
    assert_eq!(names(&found), ["relay1", "relay2", "relay3"], "valid ones");
    assert_eq!(with_flag(&found, "BadExit"), ["relay2", "relay3"]);
    assert_eq!(with_flag(&found, "MiddleOnly"), ["relay3"]);
    assert_eq!(with_flag(&found, "Exit"), ["relay1", "relay2"]);
    for flag in ["Guard", "HSDir", "V2Dir"] {
        assert_eq!(with_flag(&found, flag), ["relay1", "relay2"], "{flag}");
    }
    let known = "known-flags Authority BadExit Exit Fast Guard HSDir MiddleOnly NoEdConsensus ";
    assert!(body(&authority.get(MICRODESC, now())).contains(known));
    // Lists alone do not give flags.
    authority.configure(with_lists(unlisted), now());
    let found = entries_after(&mut authority, secs(8));
    assert!(with_flag(&found, "BadExit").is_empty() && with_flag(&found, "MiddleOnly").is_empty());
    assert_eq!(with_flag(&found, "Guard").len(), 3);
    let known = "known-flags Authority Exit Fast Guard HSDir NoEdConsensus ";
    assert!(body(&authority.get(MICRODESC, now())).contains(known));
}

#[test]
fn relays_that_approved_routers_names_lose_flags() {
    let id = |seed: u64| hex::encode_upper(relay(seed).rsa_id().as_bytes());
    let text = format!(
        "!stripguard {}\n!striphsdir {}\n!stripv2dir {}\n!reject {}\n",
        id(1),
        id(2),
        id(3),
        id(4)
    );
    let (named, bad) = NamedRelays::parse(text.as_bytes());
    assert!(bad.is_empty());
    let mut authority = authority_with(with_lists(Lists {
        named,
        ..Lists::default()
    }));
    for seed in 1..=3 {
        upload(&mut authority, seed);
    }
    assert!(
        upload(&mut authority, 4)
            .reason
            .contains("is marked rejected")
    );
    let found = entries(&mut authority);
    assert_eq!(with_flag(&found, "Guard"), ["relay2", "relay3"]);
    assert_eq!(with_flag(&found, "HSDir"), ["relay1", "relay3"]);
    assert_eq!(with_flag(&found, "V2Dir"), ["relay1", "relay2"]);
}

#[test]
fn a_relay_that_is_rejected_from_now_on_is_forgotten() {
    let mut authority = authority();
    for seed in 1..=2 {
        post(&mut authority, &at_address(seed));
    }
    assert_eq!(entries(&mut authority).len(), 2);
    let reject = Lists {
        reject: list("10.0.0.2"),
        ..Lists::default()
    };
    authority.configure(with_lists(reject), now());
    assert_eq!(authority.relays(), 1);
    let found = entries_after(&mut authority, secs(8));
    assert_eq!(names(&found), ["relay1"]);
}

#[test]
fn old_relays_of_c_tor_are_refused_and_recommended_versions_are_in_the_consensus() {
    let config = AuthorityConfig {
        lists: Lists {
            minimal_version: "0.4.9.0-alpha-dev".into(),
            ..Lists::default()
        },
        client_versions: vec!["0.4.9.11,0.4.8.21".into()],
        server_versions: vec!["0.4.9.11".into()],
        ..config()
    };
    let mut authority = authority_with(config);
    let of_version = |seed, platform: &str| OwnDescriptor {
        platform: platform.into(),
        ..described(seed)
    };
    let old = post(&mut authority, &of_version(1, "Tor 0.4.8.21 on Linux"));
    let reason = "Tor version is insecure or unsupported. Please upgrade!";
    assert_eq!(old, Answer::short(400, reason));
    let new = post(&mut authority, &of_version(2, "Tor 0.4.9.11 on Linux"));
    assert_eq!(new.status, 200);
    assert_eq!(names(&entries(&mut authority)), ["relay2"]);
    let text = body(&authority.get(MICRODESC, now()));
    let versions = "\nclient-versions 0.4.8.21,0.4.9.11\nserver-versions 0.4.9.11\n";
    assert!(text.contains(versions), "{text}");
}

#[test]
fn of_relays_at_one_address_the_authority_and_the_fastest_are_listed() {
    let mut authority = authority_with(with_flags(|flags| flags.max_per_address = 2));
    // The first is the authority's own.
    for (seed, observed) in [(1, 1_000), (2, 9_000), (3, 50_000), (4, 20_000)] {
        let moment = Moment {
            observed,
            ..moment()
        };
        post_at(&mut authority, &described(seed), &moment);
    }
    post(&mut authority, &at_address(5));
    let found = entries(&mut authority);
    assert_eq!(names(&found), ["relay1", "relay3", "relay5"]);
    let text = body(&authority.get(MICRODESC, now()));
    assert!(text.contains("\nparams AuthDirMaxServersPerAddr=2 "));
    authority.configure(config(), now());
    assert_eq!(entries_after(&mut authority, secs(8)).len(), 5);
}

#[test]
fn the_faster_half_of_uptimes_is_stable_until_mtbf_is_known() {
    let mut authority = authority_with(compared(|_| {}));
    for (seed, uptime) in [(1, 100), (2, 200), (3, 300)] {
        let moment = Moment {
            uptime: secs(uptime),
            ..moment()
        };
        post_at(&mut authority, &described(seed), &moment);
    }
    let found = entries(&mut authority);
    assert_eq!(with_flag(&found, "Stable"), ["relay2", "relay3"]);
    // What is not Stable is neither a guard nor a directory of onion services.
    assert_eq!(with_flag(&found, "HSDir"), ["relay2", "relay3"]);
    assert_eq!(with_flag(&found, "Guard"), ["relay2", "relay3"]);
    authority.configure(compared(|flags| flags.stable_uptime = secs(60)), now());
    let found = entries_after(&mut authority, secs(8));
    assert_eq!(with_flag(&found, "Stable").len(), 3);
}

/// Eight relays of these bandwidths, in kilobytes per second.
fn of_bandwidths(config: AuthorityConfig, bandwidths: [u64; 8]) -> PrivateAuthority {
    let mut authority = authority_with(config);
    for (seed, kilobytes) in (1..).zip(bandwidths) {
        let moment = Moment {
            observed: kilobytes * 1000,
            ..moment()
        };
        post_at(&mut authority, &described(seed), &moment);
    }
    authority
}

const BANDWIDTHS: [u64; 8] = [100, 200, 300, 400, 500, 600, 700, 800];

#[test]
fn fast_are_all_but_an_eighth_unless_torrc_has_another_bound() {
    let fast = |config| {
        let mut authority = of_bandwidths(config, BANDWIDTHS);
        let found = entries(&mut authority);
        with_flag(&found, "Fast").len()
    };
    assert_eq!(fast(compared(|_| {})), 7);
    assert_eq!(fast(compared(|flags| flags.fast_guarantee = 100_000)), 8);
    assert_eq!(fast(compared(|flags| flags.min_fast = 450_000)), 4);
    let mut most = compared(|_| {});
    most.params.insert("FastFlagMaxThreshold".into(), 99_000);
    assert_eq!(fast(most), 8);
    // Slow relays do not count where a threshold keeps them out.
    assert_eq!(fast(compared(|flags| flags.min_exit = 600_000)), 3);
}

#[test]
fn guards_are_as_fast_as_torrc_has_it() {
    let guards = |config| {
        let mut authority = of_bandwidths(config, BANDWIDTHS);
        let found = entries(&mut authority);
        with_flag(&found, "Guard").len()
    };
    // All are exits: without others there is nothing to compare with.
    assert_eq!(guards(compared(|_| {})), 7);
    let no_exits = |change: fn(&mut FlagThresholds)| {
        let mut config = compared(change);
        let bad_exits = Lists {
            bad_exit: list("127.0.0.1"),
            ..Lists::default()
        };
        config.lists = bad_exits;
        guards(config)
    };
    assert_eq!(no_exits(|_| {}), 2, "the fastest quarter");
    assert_eq!(no_exits(|flags| flags.guard_bandwidth_fraction = 0.5), 4);
    assert_eq!(no_exits(|flags| flags.guard_bandwidth_fraction = 1.0), 1);
    let guaranteed = |flags: &mut FlagThresholds| flags.guard_bandwidth_guarantee = 600_000;
    assert_eq!(no_exits(guaranteed), 3);
}

#[test]
fn where_enough_is_measured_claims_do_not_count() {
    let config = |min_measured| {
        let mut config = compared(|flags| flags.min_measured = min_measured);
        let measured = [(2, 5000), (3, 6000)];
        config.bandwidths = measured.map(|(seed, kb)| (relay(seed).rsa_id(), kb)).into();
        config
    };
    let mut authority = of_bandwidths(config(2), BANDWIDTHS);
    let found = entries(&mut authority);
    assert!(found["relay8"].contains("\nw Bandwidth=800\n"));
    assert_eq!(with_flag(&found, "Fast").len(), 7);
    authority.configure(config(1), now());
    let found = entries_after(&mut authority, secs(8));
    assert!(found["relay8"].contains("\nw Bandwidth=1\n"));
    assert_eq!(with_flag(&found, "Fast"), ["relay2", "relay3"]);
}

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

/// Relays 2 and 3 for this many hours, of which the latter is down for three.
fn watched(config: AuthorityConfig, hours: u64) -> PrivateAuthority {
    let mut authority = authority_with(config);
    for seed in 2..=3 {
        upload(&mut authority, seed);
    }
    for minutes in (0..hours * 60).step_by(20) {
        let at = now() + secs(minutes * 60);
        let down = (60..240).contains(&minutes);
        let down: &[u64] = if down { &[3] } else { &[] };
        run_tests(&mut authority, down, at);
        authority.changed = true;
        authority.tick(at).unwrap();
    }
    authority
}

fn steady(change: impl FnOnce(&mut FlagThresholds)) -> AuthorityConfig {
    let mut config = compared(change);
    config.reachability.test = true;
    config
}

#[test]
fn guards_and_stable_relays_have_run_without_failing() {
    let mut authority = watched(steady(|_| {}), 10);
    let found = entries_after(&mut authority, secs(10 * HOUR));
    assert_eq!(names(&found), ["relay2", "relay3"]);
    // Of two, the median is the lower: so it is what must be guaranteed that decides.
    assert_eq!(with_flag(&found, "Stable").len(), 2);
    let id = |seed: u64| relay(seed).rsa_id();
    let at = now() + secs(10 * HOUR);
    assert!(authority.history.mtbf(&id(3), at) < authority.history.mtbf(&id(2), at));
    assert!(authority.history.fractional_uptime(&id(3), at) < 0.9);
    assert_eq!(authority.history.fractional_uptime(&id(2), at), 1.0);
    upload_at(&mut authority, 4, at);
    run_tests(&mut authority, &[], at);
    let mut guards = |uptime: f64, seconds: u64| {
        authority.configure(
            steady(|flags| {
                flags.guard_uptime_fraction = uptime;
                flags.stable_mtbf = Duration::ZERO;
            }),
            now(),
        );
        let found = entries_after(&mut authority, secs(10 * HOUR + seconds));
        let guards = with_flag(&found, "Guard");
        guards
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    // With a third relay that has always run, the median is to run always.
    assert_eq!(guards(0.98, 300), ["relay2", "relay4"]);
    assert_eq!(guards(0.5, 310), ["relay2", "relay3", "relay4"]);
}

fn upload_at(authority: &mut PrivateAuthority, seed: u64, published: SystemTime) {
    let answer = authority.post(&signed(seed, published).upload_body(), FROM, published);
    assert_eq!(answer.status, 200, "{}", answer.reason);
}

#[test]
fn stable_relays_are_those_with_a_long_time_between_failures_or_a_guaranteed_one() {
    let stable = |mtbf: u64| {
        let mut authority = watched(steady(|flags| flags.stable_mtbf = secs(mtbf)), 10);
        // The median of three is that of a relay that runs for five hours more.
        let at = now() + secs(10 * HOUR);
        upload_at(&mut authority, 4, at);
        for hours in 10..15 {
            for minutes in (0..60).step_by(10) {
                let at = now() + secs(hours * HOUR + minutes * 60);
                run_tests(&mut authority, &[], at);
            }
        }
        let found = entries_after(&mut authority, secs(15 * HOUR));
        let stable = with_flag(&found, "Stable");
        stable
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    // Relay 2: 15 hours. Relay 3: an hour and three quarters, 11 hours. Relay 4: 5 hours.
    assert_eq!(stable(5 * DAY), ["relay2", "relay3"]);
    assert_eq!(stable(4 * HOUR), ["relay2", "relay3", "relay4"]);
}

#[test]
fn guards_must_be_known_for_as_long_as_most_relays_or_for_a_guaranteed_time() {
    let guards = |time_known: u64| {
        let mut config = with_flags(|flags| flags.guard_time_known = secs(time_known));
        config.reachability.test = true;
        let mut authority = authority_with(config);
        for seed in 2..=9 {
            upload(&mut authority, seed);
        }
        run_tests(&mut authority, &[], now());
        upload_at(&mut authority, 10, now() + secs(600));
        run_tests(&mut authority, &[], now() + secs(600));
        let found = entries_after(&mut authority, secs(610));
        with_flag(&found, "Guard").len()
    };
    // Of nine relays, the second shortest time counts.
    assert_eq!(guards(8 * DAY), 8);
    assert_eq!(guards(10), 9);
}

/// A relay with the Ed25519 identity of one and the RSA identity of another, at the latter's address.
pub(super) fn with_rsa_of(ed: &OwnDescriptor, rsa: &OwnDescriptor) -> OwnDescriptor {
    let (ed, id) = (&ed.keys, &rsa.keys.rsa_identity);
    OwnDescriptor {
        keys: Arc::new(crate::descriptor::DescriptorKeys {
            rsa_identity: KeyPair::from(id.as_key().clone()),
            ed_identity: ed.ed_identity,
            signing: tor_llcrypto::pk::ed25519::ExpandedKeypair::from_secret_key_bytes(
                ed.signing.to_secret_key_bytes(),
            )
            .unwrap(),
            signing_cert: ed.signing_cert.clone(),
            ntor: ed.ntor.clone(),
            tap: KeyPair::from(ed.tap.as_key().clone()),
            families: Vec::new(),
        }),
        ..rsa.clone()
    }
}

#[test]
fn without_pinning_the_newest_relay_of_an_ed25519_identity_is_listed() {
    let (old, new) = (described(2), described(3));
    let later = Moment {
        published: now() + secs(1),
        ..moment()
    };
    for pin_keys in [true, false] {
        let mut authority = authority_with(AuthorityConfig {
            pin_keys,
            ..config()
        });
        post(&mut authority, &old);
        let answer = post_at(&mut authority, &with_rsa_of(&old, &new), &later);
        assert_eq!(answer.status, if pin_keys { 400 } else { 200 });
        let found = entries_after(&mut authority, secs(5));
        let listed = if pin_keys { "relay2" } else { "relay3" };
        assert_eq!(names(&found), [listed]);
    }
}

#[test]
fn a_legacy_key_signs_as_well() {
    let legacy = TestAuthority::new(4);
    let signing = KeyPair::from(legacy.signing.as_key().clone());
    let legacy_keys = AuthorityKeys::new(signing, legacy.cert.clone(), now()).unwrap();
    let mut authority = PrivateAuthority::new(config(), keys(), Some(legacy_keys));
    upload(&mut authority, 1);
    entries(&mut authority);
    let text = body(&authority.get(MICRODESC, now()));
    for id in [KEYS.id(), legacy.id()] {
        let path = format!("/tor/keys/fp/{}", hex::encode_upper(id.as_bytes()));
        let mut certs = Certs::default();
        certs.add(&body(&authority.get(&path, now())), &[id], now());
        // Either alone is enough for those who trust it.
        let verified = verify(&text, &[id], &certs, now(), REASONABLY_LIVE);
        assert!(verified.is_ok(), "{:?}", verified.err());
        let trusted = format!("{MICRODESC}/{}", hex::encode_upper(id.as_bytes()));
        assert_eq!(authority.get(&trusted, now()).status, 200);
    }
    assert_eq!(text.matches("\ndir-source auth").count(), 2);
    assert_eq!(authority.get("/tor/keys/all", now()).body.len(), 2);
    assert_eq!(authority.get("/tor/keys/authority", now()).body.len(), 1);
}

#[tokio::test]
async fn under_load_only_relays_are_answered_at_the_dirport() {
    for (reject, expected) in [(true, "503 Directory busy"), (false, "200 OK")] {
        let mut authority = authority_with(AuthorityConfig {
            reject_under_load: reject,
            ..config()
        });
        post(&mut authority, &at_address(2));
        authority.tick(now() + secs(4)).unwrap();
        let server = AuthorityServer::new(authority, Arc::new(ManualClock::new(now())));
        server.set_busy(true);
        let ask = async |peer: [u8; 4], limited| {
            let (mut ours, theirs) = tokio::io::duplex(1 << 20);
            let server = server.clone();
            let serving = tokio::spawn(async move {
                server.serve_limited(theirs, peer.into(), limited).await;
            });
            let request = format!("GET {MICRODESC} HTTP/1.0\r\n\r\n");
            ours.write_all(request.as_bytes()).await.unwrap();
            ours.shutdown().await.unwrap();
            let mut answer = Vec::new();
            ours.read_to_end(&mut answer).await.unwrap();
            drop(ours);
            serving.await.unwrap();
            status_line(&answer)
        };
        let stranger = ask([10, 0, 0, 9], true).await;
        assert!(stranger.contains(expected), "{stranger}");
        assert!(ask([10, 0, 0, 2], true).await.contains("200 OK"), "a relay");
        assert!(
            ask([10, 0, 0, 9], false).await.contains("200 OK"),
            "a circuit"
        );
        server.set_busy(false);
        assert!(ask([10, 0, 0, 9], true).await.contains("200 OK"));
    }
}

/// A whole authority with threads: relays are tested by threads of its own, and what it learns outlives it.
#[test]
fn an_authority_tests_relays_and_keeps_what_it_knows_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let tester: Tester = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        true
    });
    let started = SystemTime::now();
    let signing = KeyPair::from(KEYS.signing.as_key().clone());
    let cert = TestAuthority::new_at(3, started).cert;
    let keys = AuthorityKeys::new(signing, cert, started).unwrap();
    let mut authority = PrivateAuthority::new(with_tests(|_| {}), keys, None);
    let body = crate::testing::relay_at(2, started)
        .sign(&Moment {
            published: started,
            ..moment()
        })
        .unwrap()
        .upload_body();
    assert_eq!(authority.post(&body, FROM, started).status, 200);
    let surroundings = Surroundings {
        allowed: Arc::new(|_| true),
        log: Arc::new(|_, _| {}),
        tester: Some(tester),
        folder: Some(folder.path().to_owned()),
    };
    let handle = server::AuthorityHandle::start(authority, Vec::new(), surroundings).unwrap();
    for _ in 0..600 {
        if handle
            .server
            .authority()
            .history
            .write(started)
            .contains("\nR ")
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(handle);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let id = hex::encode_upper(relay(2).rsa_id().as_bytes());
    let stability = std::fs::read_to_string(folder.path().join("router-stability")).unwrap();
    assert!(
        stability.contains(&format!("\nR {id}\n+MTBF 0 0.00000 S=")),
        "{stability}"
    );
    // The next one knows both, and a torn last line hurts nobody.
    let pins = folder.path().join("key-pinning-journal");
    let text = std::fs::read_to_string(&pins).unwrap();
    std::fs::write(&pins, text.trim_end()).unwrap();
    let storage = storage::Storage::new(folder.path().to_owned());
    let mut next = authority_with(config());
    let log = storage.load(&mut next, SystemTime::now()).unwrap();
    assert!(log[0].1.starts_with("Loaded 1 entries"), "{log:?}");
    assert_eq!(next.history.write(started).matches("\nR ").count(), 1);
    let rsa = relay(2).rsa_id();
    let other = described(3).keys.ed_identity;
    assert!(next.pins.contradicts(&rsa, &other));
    std::fs::write(folder.path().join("router-stability"), "nonsense").unwrap();
    let log = storage.load(&mut next, SystemTime::now()).unwrap();
    assert!(log[1].1.contains("cannot read router-stability"), "{log:?}");
}
