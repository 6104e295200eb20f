//! Flags of relays that have run for long, or without failing.

use super::reachability::run_tests;
use super::rules::*;
use super::*;

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
