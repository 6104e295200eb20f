//! Descriptors that have nothing new, and what an authority does about them: nothing.

use weft_dir::descriptor::Moment;

use super::reachability::run_tests;
use super::rules::{authority_with, entries, with_tests};
use super::*;

fn later(seconds: u64, uptime: u64) -> Moment {
    Moment {
        published: now() + secs(seconds),
        uptime: secs(uptime),
        ..moment()
    }
}

/// Whether a descriptor of an hour later replaces the first one.
fn replaces(relay: &OwnDescriptor, moment: &Moment) -> bool {
    let mut authority = authority();
    // Relay 1 is the authority itself.
    assert_eq!(upload(&mut authority, 2).status, 200);
    let body = relay.sign(moment).unwrap().upload_body();
    let answer = authority.post(&body, FROM, moment.published);
    assert_eq!(answer.status, 200, "{}", answer.reason);
    !answer.not_new
}

#[test]
fn a_descriptor_replaces_the_older_one_if_it_has_something_new() {
    let hour = later(3600, 3677);
    let same = described(2);
    assert!(!replaces(&same, &hour));
    let restarted = later(3600, 8 * 3600);
    assert!(
        !replaces(&same, &later(3600, 0)),
        "an uptime may be off by six hours"
    );
    assert!(replaces(&same, &restarted));
    assert!(!replaces(&same, &later(7200, 7277)));
    assert!(replaces(&same, &later(7201, 7278)), "two hours have passed");
    for (observed, has_new) in [
        (moment().observed * 2, false),
        (moment().observed * 2 + 2, true),
    ] {
        let moment = Moment {
            observed,
            ..hour.clone()
        };
        assert_eq!(replaces(&same, &moment), has_new, "{observed}");
    }
    let without_tap = Moment {
        with_tap: false,
        ..hour.clone()
    };
    assert!(replaces(&same, &without_tap));
    let changes: [fn(&mut OwnDescriptor); 14] = [
        |relay| relay.nickname = "other".into(),
        |relay| relay.ipv4.set_port(9999),
        |relay| relay.ipv4.set_ip(Ipv4Addr::new(10, 0, 0, 9)),
        |relay| relay.ipv6 = Some("[2001:db8::1]:9001".parse().unwrap()),
        |relay| relay.platform = "Weft 9 on Linux".into(),
        |relay| relay.bandwidth_rate += 1,
        |relay| relay.bandwidth_burst += 1,
        |relay| relay.contact = Some("we".into()),
        |relay| relay.family = vec!["Enemy".into()],
        // Of the summary nothing changes.
        |relay| relay.exit_policy.insert(0, "reject 192.0.2.1:*".into()),
        |relay| relay.ipv6_policy = Some("accept 80".into()),
        |relay| relay.hidden_service_dir = false,
        |relay| relay.tunnelled_dir_server = false,
        |relay| relay.hibernating = true,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut relay = described(2);
        change(&mut relay);
        assert!(replaces(&relay, &hour), "{number}");
    }
}

#[test]
fn the_authority_s_own_descriptor_is_always_taken() {
    let mut authority = authority();
    upload(&mut authority, 1);
    let newer = described(1).sign(&later(60, 137)).unwrap().upload_body();
    let answer = authority.post(&newer, FROM, now() + secs(60));
    assert_eq!(answer, Answer::short(200, "Descriptor accepted"));
}

#[test]
fn only_what_is_new_is_news() {
    let mut authority = authority();
    upload(&mut authority, 2);
    assert!(authority.take_news() && !authority.take_news());
    assert!(upload(&mut authority, 2).not_new);
    let same = described(2).sign(&later(60, 137)).unwrap();
    assert!(authority.post(&same.upload_body(), FROM, now()).not_new);
    let forged = signed(2, now()).router.replace("uptime 77", "uptime 78");
    let refused = authority.post(forged.as_bytes(), FROM, now());
    assert_eq!(
        refused.status, 400,
        "it is not taken for the one that is known"
    );
    assert!(!authority.take_news());
    upload(&mut authority, 3);
    assert!(authority.take_news());
}

#[test]
fn relays_that_do_not_run_cause_no_consensus() {
    let mut authority = authority_with(with_tests(|_| {}));
    upload(&mut authority, 2);
    run_tests(&mut authority, &[], now());
    assert_eq!(entries(&mut authority).len(), 1);
    // The interval ends after 20 seconds.
    let due = |authority: &mut PrivateAuthority| authority.tick(now() + secs(5)).unwrap();
    upload(&mut authority, 3);
    assert_eq!(due(&mut authority), now() + secs(20));
    authority.configure(with_tests(|_| {}), now());
    authority.changed = false;
    let rsa = relay(3).rsa_id();
    authority.forget(&rsa, now());
    assert_eq!(due(&mut authority), now() + secs(20));
    // One that runs does.
    let moved = OwnDescriptor {
        contact: Some("we".into()),
        ..described(2)
    };
    let body = moved.sign(&later(5, 82)).unwrap().upload_body();
    assert_eq!(authority.post(&body, FROM, now() + secs(5)).status, 200);
    assert_eq!(due(&mut authority), now() + secs(8));
}
