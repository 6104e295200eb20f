//! What newcomers take from relays that an authority knows. Anybody can make up any number of newcomers.

use weft_dir::descriptor::Moment;

use super::reachability::run_tests;
use super::rules::{authority_with, entries, entries_after, names, with_rsa_of, with_tests};
use super::*;
use crate::pins::Journal;

/// A relay that claims the address of another.
fn at_port_of(seed: u64, other: u64) -> OwnDescriptor {
    OwnDescriptor {
        ipv4: described(other).ipv4,
        ..described(seed)
    }
}

fn post_from(authority: &mut PrivateAuthority, relay: &OwnDescriptor, from: u8) -> Answer {
    let body = relay.sign(&moment()).unwrap().upload_body();
    authority.post(&body, [10, 0, 0, from].into(), now())
}

fn later(seconds: u64) -> Moment {
    Moment {
        published: now() + secs(seconds),
        ..moment()
    }
}

/// A relay that has something new.
fn with_contact(seed: u64, contact: &str) -> OwnDescriptor {
    OwnDescriptor {
        contact: Some(contact.into()),
        ..described(seed)
    }
}

#[test]
fn a_relay_that_claims_another_s_port_takes_its_place_only_once_it_is_reached_there() {
    let mut authority = authority_with(with_tests(|_| {}));
    upload(&mut authority, 2);
    run_tests(&mut authority, &[], now());
    assert_eq!(names(&entries(&mut authority)), ["relay2"]);
    let forged = at_port_of(3, 2);
    assert_eq!(post_from(&mut authority, &forged, 9).status, 200);
    assert_eq!(authority.relays(), 2);
    // At that port another key is proven.
    run_tests(&mut authority, &[3], now() + secs(5));
    assert_eq!(authority.relays(), 2);
    let found = entries_after(&mut authority, secs(10));
    assert_eq!(names(&found), ["relay2"]);
    // It came back with other keys, and its old ones are listed no more, although they were reached not long ago.
    assert_eq!(run_tests(&mut authority, &[], now() + secs(60)), 1);
    assert_eq!(authority.relays(), 1);
    let found = entries_after(&mut authority, secs(70));
    assert_eq!(names(&found), ["relay3"]);
    let gone = relay(2).rsa_id();
    let uptime = authority.history.uptime(&gone, now() + secs(90));
    assert_eq!(uptime, Duration::ZERO, "nobody watches it");
}

#[test]
fn nobody_takes_the_place_of_the_authority_itself_or_of_others_where_nothing_is_tested() {
    // Relay 1 is the authority.
    let mut authority = authority_with(with_tests(|_| {}));
    upload(&mut authority, 1);
    post_from(&mut authority, &at_port_of(2, 1), 9);
    run_tests(&mut authority, &[], now());
    assert_eq!(authority.relays(), 2);
    let mut untested = voted(&[1, 2]);
    assert_eq!(post_from(&mut untested, &at_port_of(3, 2), 9).status, 200);
    assert_eq!(untested.relays(), 3);
}

#[test]
fn where_an_authority_knows_all_that_it_can_made_up_relays_give_way_to_a_newcomer() {
    let mut authority = authority_with(AuthorityConfig {
        max_relays: 4,
        ..with_tests(|_| {})
    });
    upload(&mut authority, 2);
    run_tests(&mut authority, &[], now());
    for seed in 3..=5 {
        post_from(&mut authority, &described(seed), 9);
    }
    assert_eq!(post_from(&mut authority, &described(6), 7).status, 200);
    assert_eq!(authority.relays(), 4);
    for (seed, known) in [(2, true), (6, true)] {
        let id = relay(seed).rsa_id();
        assert_eq!(authority.routers.contains_key(&id), known, "{seed}");
    }
    // Once all run, a network with as many as any other gets no more.
    run_tests(&mut authority, &[], now() + secs(1));
    let full = post_from(&mut authority, &described(7), 9);
    assert_eq!(
        (full.status, &*full.reason),
        (400, "This private network is full.")
    );
    // A relay that is known publishes all the same.
    let newer = with_contact(2, "we").sign(&later(9)).unwrap().upload_body();
    let answer = authority.post(&newer, FROM, now() + secs(9));
    assert_eq!(answer.reason, "Descriptor accepted");
}

#[test]
fn documents_that_no_consensus_named_are_not_kept_after_newer_ones() {
    let mut authority = authority_with(with_tests(|_| {}));
    upload(&mut authority, 2);
    let first = signed(2, now());
    let path = |text: &str| {
        let digest = weft_dir::descriptor::signed_digest(text);
        format!("/tor/server/d/{}", hex::encode_upper(digest))
    };
    let status =
        |authority: &PrivateAuthority, text: &str| authority.get(&path(text), now()).status;
    assert_eq!(status(&authority, &first.router), 200);
    let mut newest = first.router;
    for seconds in 1..=9 {
        let next = with_contact(2, &seconds.to_string());
        let next = next.sign(&later(seconds)).unwrap();
        authority.post(&next.upload_body(), FROM, now() + secs(seconds));
        assert_eq!(status(&authority, &newest), 404, "{seconds}");
        newest = next.router;
    }
    // One that was listed is kept.
    run_tests(&mut authority, &[], now() + secs(9));
    assert_eq!(entries_after(&mut authority, secs(10)).len(), 1);
    let next = with_contact(2, "20").sign(&later(20)).unwrap();
    authority.post(&next.upload_body(), FROM, now() + secs(20));
    assert_eq!(status(&authority, &newest), 200);
    assert_eq!(status(&authority, &next.router), 200);
    // So is the descriptor of a relay that went, for a day.
    authority
        .tick(now() + secs(20) + router::MAX_AGE + secs(1))
        .unwrap();
    assert_eq!(authority.relays(), 0);
    assert_eq!(status(&authority, &newest), 200);
    assert_eq!(
        status(&authority, &next.router),
        404,
        "no consensus named it"
    );
}

#[test]
fn identities_belong_together_once_a_relay_was_reached_with_both() {
    let mut authority = authority_with(with_tests(|_| {}));
    let mixed = with_rsa_of(&described(2), &described(3));
    let refused = |answer: Answer| (answer.status == 400).then_some(answer.reason);
    upload(&mut authority, 2);
    // Nor while it is known.
    let reason = refused(post_from(&mut authority, &mixed, 9)).unwrap();
    assert!(reason.contains("keypair has changed"), "{reason}");
    assert_eq!(
        authority.pins.take_journal(),
        None,
        "made up is nothing to keep"
    );
    authority.tick(now() + router::MAX_AGE + secs(1)).unwrap();
    assert_eq!(refused(post_from(&mut authority, &mixed, 9)), None);
    run_tests(&mut authority, &[], now());
    assert!(matches!(
        authority.pins.take_journal(),
        Some(Journal::More(_))
    ));
    // Now it is kept, although the relay goes.
    authority.tick(now() + router::MAX_AGE + secs(1)).unwrap();
    assert_eq!(authority.relays(), 0);
    for other in [described(2), described(3)] {
        assert!(refused(post_from(&mut authority, &other, 9)).is_some());
    }
    assert_eq!(refused(post_from(&mut authority, &described(4), 9)), None);
}

#[test]
fn an_authority_without_the_journal_that_it_had_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let surroundings = server::Surroundings {
            allowed: Arc::new(|_| true),
            log: Arc::new(|_, _| {}),
            tester: None,
            folder: Some(folder.path().to_owned()),
        };
        let started = server::AuthorityHandle::start(authority(), Vec::new(), surroundings);
        started.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(start(), Ok(()));
    let journal = folder.path().join("key-pinning-journal");
    std::fs::create_dir(&journal).unwrap();
    let error = start().unwrap_err();
    let named = format!("cannot read {}: it is a directory", journal.display());
    assert_eq!(error, named);
    std::fs::remove_dir(&journal).unwrap();
    let file = std::fs::File::create(&journal).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let error = start().unwrap_err();
    assert!(error.contains("at most 16777216 bytes"), "{error}");
}
