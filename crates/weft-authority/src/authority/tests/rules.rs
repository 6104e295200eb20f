//! Which relays an authority lists, and with which flags.

use std::net::SocketAddrV4;

use weft_dir::descriptor::Moment;
use weft_policy::AddressSet;

use super::reachability::run_tests;
use super::*;

pub(super) const HOUR: u64 = 3600;
pub(super) const DAY: u64 = 24 * HOUR;

pub(super) fn authority_with(config: AuthorityConfig) -> PrivateAuthority {
    PrivateAuthority::new(config, keys(), None)
}

pub(super) fn with_lists(lists: Lists) -> AuthorityConfig {
    AuthorityConfig { lists, ..config() }
}

pub(super) fn with_flags(change: impl FnOnce(&mut FlagThresholds)) -> AuthorityConfig {
    let mut config = config();
    change(&mut config.flags);
    config
}

/// Relays are as they compare with each other, and none as steady or fast as it must be anyway.
pub(super) fn compared(change: impl FnOnce(&mut FlagThresholds)) -> AuthorityConfig {
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
pub(super) fn at_address(seed: u8) -> OwnDescriptor {
    OwnDescriptor {
        ipv4: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, seed), 9001),
        ..described(seed.into())
    }
}

pub(super) fn post_at(
    authority: &mut PrivateAuthority,
    relay: &OwnDescriptor,
    moment: &Moment,
) -> Answer {
    let body = relay.sign(moment).unwrap().upload_body();
    authority.post(&body, FROM, moment.published)
}

pub(super) fn post(authority: &mut PrivateAuthority, relay: &OwnDescriptor) -> Answer {
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
pub(super) fn with_flag<'a>(entries: &'a BTreeMap<String, String>, flag: &str) -> Vec<&'a str> {
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

pub(super) fn list(rules: &str) -> AddressSet {
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
    let mut authority = authority_with(with_lists(lists.clone()));
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
    // Votes of torrc do not bring them back.
    let mut all = with_lists(lists);
    let granted = || Granted {
        relays: vec![at_address(3).rsa_id()],
        ..Granted::default()
    };
    (all.exits, all.guards, all.hidden_service_dirs) = (granted(), granted(), granted());
    authority.configure(all, now());
    let found = entries_after(&mut authority, secs(6));
    for flag in ["Exit", "Guard", "HSDir", "V2Dir"] {
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

/// A relay with the Ed25519 identity of one and the RSA identity of another, at the latter's address.
pub(super) fn with_rsa_of(ed: &OwnDescriptor, rsa: &OwnDescriptor) -> OwnDescriptor {
    let (ed, id) = (&ed.keys, &rsa.keys.rsa_identity);
    OwnDescriptor {
        keys: Arc::new(weft_dir::descriptor::DescriptorKeys {
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

/// TROVE-2026-064.
#[test]
fn relays_that_are_not_reached_crowd_nobody_out_and_nobody_loses_a_history() {
    let mut config = with_tests(|_| {});
    config.flags.max_per_address = 2;
    let mut authority = authority_with(config);
    // All are at one address; the first is the authority's own.
    for (seed, observed) in [(1, 1_000), (2, 9_000), (3, 50_000), (4, 90_000)] {
        let moment = Moment {
            observed,
            ..moment()
        };
        post_at(&mut authority, &described(seed), &moment);
    }
    run_tests(&mut authority, &[4], now());
    assert_eq!(names(&entries(&mut authority)), ["relay1", "relay3"]);
    // One that there was no place for has run all the same.
    let at = now() + secs(100);
    let of = |seed| relay(seed).rsa_id();
    assert_eq!(authority.history.uptime(&of(2), at), secs(100));
    assert_eq!(authority.history.uptime(&of(3), at), secs(100));
}

/// A relay that claims another one's IPv6 address is not reached there.
#[test]
fn relays_that_are_not_reached_by_ipv6_crowd_nobody_out_there() {
    let mut config = with_tests(|tests| tests.ipv6 = false);
    config.flags.max_per_address = 2;
    let mut authority = authority_with(config);
    let at = |seed, observed| {
        let descriptor = OwnDescriptor {
            ipv6: Some("[2001:db8::1]:9001".parse().unwrap()),
            ..at_address(seed)
        };
        let moment = Moment {
            observed,
            ..moment()
        };
        (descriptor, moment)
    };
    for (seed, observed) in [(2, 1_000), (3, 50_000), (4, 90_000)] {
        let (descriptor, moment) = at(seed, observed);
        post_at(&mut authority, &descriptor, &moment);
    }
    run_tests(&mut authority, &[], now());
    let listed = entries(&mut authority);
    assert_eq!(names(&listed), ["relay2", "relay3", "relay4"]);
}

/// C tor 0.4.9.12: TAP keys are wanted for clients of 0.4.8 alone.
#[test]
fn tap_keys_are_wanted_where_torrc_says_so() {
    let without = Moment {
        with_tap: false,
        ..moment()
    };
    let consensus = |authority: &PrivateAuthority| body(&authority.get(MICRODESC, now()));
    let mut authority = authority_with(config());
    assert_eq!(post_at(&mut authority, &described(2), &without).status, 200);
    assert_eq!(post(&mut authority, &described(3)).status, 200);
    assert_eq!(names(&entries(&mut authority)), ["relay2", "relay3"]);
    assert!(consensus(&authority).contains("\nconsensus-method 36\n"));
    let lists = Lists {
        needs_tap: true,
        ..Lists::default()
    };
    authority.configure(with_lists(lists), now());
    let refused = post_at(&mut authority, &described(4), &without);
    assert_eq!(
        (refused.status, &*refused.reason),
        (400, "Missing TAP key in descriptor.")
    );
    assert_eq!(names(&entries_after(&mut authority, secs(8))), ["relay3"]);
    assert!(consensus(&authority).contains("\nconsensus-method 35\n"));
}

/// TROVE-2026-062. The certificate that ends here is that of the onion key; tor-netdoc takes the earliest of all.
#[test]
fn a_descriptor_ends_with_the_first_of_its_certificates() {
    let mut authority = authority_with(config());
    let short = Moment {
        onion_key_lifetime: secs(2 * HOUR),
        ..moment()
    };
    post(&mut authority, &described(1));
    assert_eq!(post_at(&mut authority, &described(2), &short).status, 200);
    assert_eq!(names(&entries(&mut authority)), ["relay1", "relay2"]);
    let before = entries_after(&mut authority, secs(HOUR));
    assert_eq!(names(&before), ["relay1", "relay2"]);
    // Certificates have whole hours.
    let after = entries_after(&mut authority, secs(3 * HOUR + 4));
    assert_eq!(names(&after), ["relay1"]);
    let late = now() + secs(3 * HOUR + 4);
    let body = described(3).sign(&short).unwrap().upload_body();
    assert_eq!(authority.post(&body, FROM, late).status, 400);
}
