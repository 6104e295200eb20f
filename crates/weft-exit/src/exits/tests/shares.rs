//! Name queries are shared among previous hops and circuits.

use weft_cell::identity::RsaIdentity;

use super::super::*;
use super::fixtures::*;
use crate::names::{MAX_QUEUED, MAX_WAITING};

/// A stream of one of a hop's circuits.
fn stream_of(circuit: u32, number: u32) -> StreamAt {
    let mut at = stream(1);
    at.addr.half.slot = weft_core::slots::HalfKey(circuit);
    at.addr.generation = number;
    at
}

/// A BEGIN by one of some relays, on one of its circuits.
fn begin_by(exits: &mut Exits, relay: u8, at: StreamAt, name: &str, now: Instant) -> Vec<String> {
    let hop = PreviousHop::Relay(RsaIdentity([relay; 20]));
    exits.begin(at, hop, PreviousKind::Relay, &begin(name, 80, 0), now);
    done(exits)
}

#[test]
fn a_silent_name_server_does_not_keep_others_from_names() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set_at_once(16);
    // A thousand BEGINs a second on one circuit, for names that no server answers, until all places to
    // wait are taken.
    let mut ended = 0;
    for number in 0..10_000 {
        let name = format!("n{number}.silent.example");
        let done = begin_by(&mut exits, 1, stream_of(1, number), &name, now);
        ended += done
            .iter()
            .filter(|shown| shown.contains("end RESOLVEFAILED"))
            .count();
    }
    assert_eq!(exits.names.len(), (MAX_QUEUED + 16, 16));
    assert_eq!(ended, 10_000 - MAX_QUEUED - 16);
    assert_eq!(exits.counts().look_ups_refused, ended as u64);
    exits.audit().unwrap();
    // The names of another relay's streams are looked up at once, and answered.
    for number in 0..5 {
        let name = format!("n{number}.example");
        let done = begin_by(&mut exits, 2, stream_of(2, number), &name, now);
        let asked = [format!("ask V4 {name}"), format!("ask V6 {name}")];
        assert_eq!(done[..2], asked);
        assert!(done[2].starts_with("cancel V4 n") && done[3].starts_with("cancel V6 n"));
        let done = answer_both(&mut exits, &name, Ok("8.8.8.8"), Err(DnsError::NoData), now);
        assert!(
            done.contains(&"1 connect 8.8.8.8:80".to_owned()),
            "{done:?}"
        );
    }
    // So are those of other circuits of the same relay.
    let done = begin_by(&mut exits, 1, stream_of(3, 0), "own.example", now);
    assert_eq!(done[..2], ["ask V4 own.example", "ask V6 own.example"]);
}

#[test]
fn names_wait_for_their_turn_before_they_are_refused() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set(settings(&["accept *:*"], false, true));
    exits.set_at_once(2);
    for number in 0..4 {
        let name = format!("n{number}.example");
        begin_by(&mut exits, 1, stream_of(number % 2, number), &name, now);
    }
    begin_by(&mut exits, 2, stream_of(9, 0), "other.example", now);
    assert_eq!(exits.names.len(), (5, 2));
    let mut asked = Vec::new();
    for name in ["n1.example", "other.example"] {
        exits.answered(answer(name, QueryKind::V4, Ok("8.8.8.8")), now);
        asked.extend(actions(&mut exits));
    }
    assert_eq!(
        asked,
        [
            "1 connect 8.8.8.8:80",
            "ask V4 n2.example",
            "1 connect 8.8.8.8:80",
            "ask V4 n3.example"
        ]
    );
    assert_eq!(exits.counts().look_ups_refused, 0);
}

#[test]
fn a_name_that_others_wait_for_outlives_its_first_stream() {
    let (mut exits, now) = exits(&["accept *:*"]);
    exits.set_at_once(1);
    begin_by(&mut exits, 1, stream_of(1, 0), "first.example", now);
    begin_by(&mut exits, 1, stream_of(1, 1), "wanted.example", now);
    begin_by(&mut exits, 2, stream_of(2, 0), "wanted.example", now);
    for number in 2..9_000 {
        let name = format!("n{number}.example");
        begin_by(&mut exits, 1, stream_of(1, number), &name, now);
    }
    exits.audit().unwrap();
    assert!(exits.names.get_mut(b"wanted.example").is_some());
    let done = answer_both(
        &mut exits,
        "wanted.example",
        Ok("8.8.8.8"),
        Err(DnsError::NoData),
        now,
    );
    assert_eq!(done, ["1 connect 8.8.8.8:80"]);
}

#[test]
fn streams_that_wait_for_one_name_do_not_keep_out_others() {
    let (mut exits, now) = exits(&["accept *:*"]);
    for number in 0..70_000 {
        begin_by(&mut exits, 1, stream_of(1, number), "silent.example", now);
    }
    assert_eq!(exits.counts().waiting, MAX_WAITING);
    let mut other = stream_of(2, 0);
    other.addr.id = 7;
    let done = begin_by(&mut exits, 2, other, "silent.example", now);
    assert_eq!(done, ["1 end RESOLVEFAILED"], "the attacker's");
    assert_eq!(exits.counts().look_ups_refused, 70_001 - MAX_WAITING as u64);
    // Queries without an answer time out.
    exits.tick(now + 299 * SEC);
    assert!(actions(&mut exits).is_empty());
    exits.tick(now + 300 * SEC);
    let mut ended = actions(&mut exits);
    assert_eq!(ended.len(), MAX_WAITING);
    assert_eq!(ended.pop().as_deref(), Some("7 end TIMEOUT"));
    assert!(ended.iter().all(|shown| shown == "1 end TIMEOUT"));
    assert_eq!((exits.counts().waiting, exits.names.len()), (0, (0, 0)));
}
