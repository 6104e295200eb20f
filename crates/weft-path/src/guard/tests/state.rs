//! Guards in the state file, as C tor writes them there.

use std::collections::BTreeSet;

use super::super::*;
use super::world::World;
use crate::options::PathOptions;
use crate::testing::{TestNet, now};

/// Lines as a C tor 0.4.9 writes them, one with a field of the future.
const CTOR: [&str; 5] = [
    "in=default rsa_id=0007111111111111111111111111111111111111 nickname=relay7 \
     sampled_on=2026-11-12T03:04:05 sampled_idx=1 sampled_by=0.4.9.11 listed=1 \
     confirmed_on=2026-11-13T21:22:23 confirmed_idx=0 pb_use_attempts=4.000000 \
     pb_use_successes=4.000000 pb_circ_attempts=9.000000 pb_circ_successes=8.500000 \
     pb_successful_circuits_closed=8.000000 pb_timeouts=0.500000",
    "in=default rsa_id=0003111111111111111111111111111111111111 nickname=relay3 \
     sampled_on=2026-11-10T03:04:05 sampled_idx=0 sampled_by=0.4.9.11 listed=1 future=x",
    "in=default rsa_id=0009111111111111111111111111111111111111 nickname=relay9 \
     sampled_on=2026-11-11T03:04:05 sampled_idx=2 sampled_by=0.4.9.11 \
     unlisted_since=2026-11-20T01:02:03 listed=0",
    "in=bridges rsa_id=0123456789ABCDEF0123456789ABCDEF01234567 bridge_addr=192.0.2.1:443 \
     sampled_on=2026-11-11T03:04:05 sampled_idx=0 sampled_by=0.4.9.11 listed=1",
    "in=default rsa_id=notanidentity",
];

#[test]
fn c_tors_lines_are_read_and_written_back() {
    let guards = Guards::load(CTOR.into_iter(), now());
    let lines = guards.lines();
    // Lines of other samples are in front; the rest in the order of the sample.
    assert_eq!(lines, [CTOR[4], CTOR[1], CTOR[0], CTOR[2], CTOR[3]]);
    assert_eq!(
        Guards::load(lines.iter().map(String::as_str), now()).lines(),
        lines
    );
}

#[test]
fn c_tors_guards_go_on_as_ours() {
    let mut world = World::with(TestNet::alike(150), PathOptions::default(), &CTOR);
    // The confirmed one, and the one before it in the sample; 9 is listed again.
    let primary = world.primary();
    assert!(primary.contains(&3) && primary.contains(&7) && primary.contains(&9));
    assert_eq!(world.select().0, 3);
    assert!(world.guards.take_changed());
    assert!(!world.guards.take_changed());
    let lines = world.guards.lines();
    assert!(lines.iter().any(|line| line == CTOR[0]), "{lines:?}");
    assert!(lines.contains(&CTOR[1].to_owned()));
    let ninth = lines.iter().find(|line| line.contains("relay9")).unwrap();
    assert!(
        ninth.ends_with("sampled_idx=2 sampled_by=0.4.9.11 listed=1"),
        "{ninth}"
    );
}

#[test]
fn what_is_written_is_what_was() {
    let mut world = World::new(TestNet::alike(150));
    for _ in 0..5 {
        let (_, ticket) = world.select();
        for outcome in [Outcome::FirstHop, Outcome::Built, Outcome::Used] {
            world.outcome(ticket, outcome);
        }
        world.outcome(ticket, Outcome::GuardFailed);
        world.forget(ticket);
    }
    let lines = world.guards.lines();
    let again = Guards::load(lines.iter().map(String::as_str), now());
    assert_eq!(again.lines(), lines);
}

#[test]
fn dates_on_disk_do_not_show_when_the_user_was_online() {
    let world = World::new(TestNet::alike(150));
    let dates: BTreeSet<String> = world
        .guards
        .lines()
        .iter()
        .filter_map(|line| line.split(' ').find(|word| word.starts_with("sampled_on=")))
        .map(str::to_owned)
        .collect();
    assert_eq!(dates.len(), 20);
    assert!(
        dates
            .iter()
            .all(|date| date.as_str() <= "sampled_on=2026-11-21T01:00:00")
    );
    assert!(
        dates
            .iter()
            .all(|date| date.as_str() >= "sampled_on=2026-11-09T01:00:00")
    );
}
