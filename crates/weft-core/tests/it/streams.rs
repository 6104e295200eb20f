//! Streams between two nodes without sockets: one where circuits begin, one where streams end.

use std::collections::BTreeMap;

use crate::pair::{CIRCUIT, Pair, TwoHops, payload};
use weft_cell::RelayCmd;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::End;
use weft_core::address::ConnectionId;
use weft_core::flow::Terms;
use weft_core::message::StreamAsk;
use weft_core::origin::{EndedBy, OriginCommand, OriginEvent};
use weft_core::stream::edge::EdgeNews;

/// Moves `length` bytes each way over several streams at once, and compares.
fn transfer(threads: u16, seed: u64, terms: Terms, length: usize) {
    let mut pair = Pair::new(threads, seed, terms);
    let streams: Vec<ConnectionId> = (0..3)
        .map(|number| {
            let id = pair.application(number % usize::from(threads), number as u64);
            pair.attach(id);
            id
        })
        .collect();
    assert_eq!(pair.exit.edges.len(), 3);
    let up: Vec<Vec<u8>> = (0..3).map(|n| payload(seed + n, length)).collect();
    let down: Vec<Vec<u8>> = (0..3).map(|n| payload(seed + 10 + n, length)).collect();
    let mut left: Vec<(&[u8], &[u8])> = up
        .iter()
        .map(|b| &b[..])
        .zip(down.iter().map(|b| &b[..]))
        .collect();
    let mut got: Vec<(Vec<u8>, Vec<u8>)> = vec![Default::default(); 3];
    for _ in 0..200_000 {
        let mut moved = false;
        for (number, id) in streams.iter().enumerate() {
            let (up_left, down_left) = &mut left[number];
            moved |= pair.write_application(*id, up_left);
            moved |= pair.write_exit(number, down_left);
            let (there, back) = &mut got[number];
            there.extend(pair.read_exit(number, 1 << 20));
            back.extend(pair.read_application(*id, 1 << 20));
        }
        pair.pump();
        let done = got
            .iter()
            .all(|(there, back)| there.len() == length && back.len() == length);
        if done {
            break;
        }
        let _ = moved;
    }
    for number in 0..3 {
        assert!(got[number].0 == up[number], "stream {number} up");
        assert!(got[number].1 == down[number], "stream {number} down");
    }
    pair.origin.audit();
    pair.exit.audit();
    // Ends in order: all that was written before is read.
    let (thread, edge) = pair.applications[&streams[0]];
    let now = pair.origin.now;
    pair.origin.managers[thread].end_edge(edge, EndReason::DONE, now);
    pair.pump();
    let (thread, edge) = pair.exit.edges[0];
    assert_eq!(
        pair.exit.managers[thread].edges().out(edge),
        (&[][..], true)
    );
}

#[test]
fn streams_carry_bytes_both_ways_with_fixed_windows() {
    transfer(1, 1, Terms::Windows, 1_000_000);
    transfer(3, 2, Terms::Windows, 700_000);
}

#[test]
fn streams_carry_bytes_both_ways_under_congestion_control() {
    for terms in [Terms::Vegas, Terms::VegasCgo] {
        transfer(1, 3, terms, 1_000_000);
        transfer(3, 4, terms, 700_000);
    }
}

#[test]
fn what_nobody_reads_waits_within_the_stream_s_window_and_hurts_no_other() {
    let mut pair = Pair::new(2, 5, Terms::Windows);
    let slow = pair.application(0, 0);
    let quick = pair.application(1, 1);
    pair.attach(slow);
    pair.attach(quick);
    let bytes = payload(1, 1_000_000);
    let mut left = &bytes[..];
    for _ in 0..100 {
        pair.write_application(slow, &mut left);
        pair.pump();
    }
    let (thread, edge) = pair.exit.edges[0];
    let waiting = pair.exit.managers[thread].edges().out(edge).0.len();
    assert!(waiting <= 500 * 498 && waiting > 490 * 480, "{waiting}");
    // The other stream of the same circuit goes on: its own window is open.
    let more = payload(2, 300_000);
    let (mut rest, mut got) = (&more[..], Vec::new());
    while got.len() < more.len() {
        pair.write_application(quick, &mut rest);
        pair.pump();
        got.extend(pair.read_exit(1, usize::MAX));
        pair.pump();
    }
    assert!(got == more);
    // And the slow one when it is read.
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        got.extend(pair.read_exit(0, 10_000));
        pair.pump();
        pair.write_application(slow, &mut left);
        pair.pump();
    }
    assert!(got == bytes);
}

#[test]
fn a_reader_that_is_slow_is_waited_for_by_xoff_and_xon() {
    let mut pair = Pair::new(2, 6, Terms::Vegas);
    let slow = pair.application(0, 0);
    pair.attach(slow);
    let bytes = payload(1, 3_000_000);
    let mut left = &bytes[..];
    for _ in 0..300 {
        pair.write_application(slow, &mut left);
        pair.pump();
    }
    assert!(!left.is_empty(), "XOFF stops the sender");
    let (thread, edge) = pair.exit.edges[0];
    let waiting = pair.exit.managers[thread].edges().out(edge).0.len();
    assert!(waiting < 2 << 20, "{waiting}");
    let mut got = Vec::new();
    for _ in 0..100_000 {
        got.extend(pair.read_exit(0, 50_000));
        pair.pump();
        pair.write_application(slow, &mut left);
        pair.pump();
        if got.len() == bytes.len() {
            break;
        }
    }
    assert!(got == bytes);
}

#[test]
fn a_stream_that_is_refused_waits_with_its_first_words_for_another_circuit() {
    let mut pair = Pair::new(2, 7, Terms::Windows);
    pair.exit.serve_streams = false;
    let id = pair.application(1, 0);
    pair.attach(id);
    // The application does not wait to be connected.
    let mut words = &b"GET / HTTP/1.0\r\n\r\n"[..];
    // Its edge asks the circuit's thread for credit first.
    pair.write_application(id, &mut words);
    pair.pump();
    pair.write_application(id, &mut words);
    assert!(words.is_empty());
    pair.pump();
    let asked = pair.exit.streams.pop().unwrap();
    let StreamAsk::Begin(begin) = &asked.ask else {
        panic!("{asked:?}");
    };
    assert_eq!((&begin.target[..], begin.port), (&b"example.com"[..], 80));
    let end = End {
        reason: EndReason::EXITPOLICY,
        addr: Some("192.0.2.1".parse().unwrap()),
        ttl: 60,
    };
    pair.exit.controller.refuse_stream(asked.at.addr, &end);
    pair.exit.do_actions();
    pair.pump();
    let ended = pair.origin.events.pop().unwrap();
    let OriginEvent::Ended {
        stream,
        circuit,
        reason,
        addr,
        by,
        waiting,
        ..
    } = ended
    else {
        panic!("{ended:?}");
    };
    assert_eq!(
        (stream, circuit, reason),
        (id, Some(CIRCUIT), EndReason::EXITPOLICY)
    );
    assert_eq!((addr, by, waiting), (end.addr, EndedBy::Exit, true));
    // Again: what was sent is sent again.
    pair.exit.serve_streams = true;
    pair.attach(id);
    assert_eq!(pair.read_exit(0, 100), b"GET / HTTP/1.0\r\n\r\n");
    assert!(
        pair.news(1)
            .iter()
            .any(|news| matches!(news, EdgeNews::Connected { .. }))
    );
}

#[test]
fn a_stream_that_a_new_policy_forbids_ends_and_another_goes_on() {
    let mut pair = Pair::new(2, 9, Terms::Windows);
    let (forbidden, allowed) = (pair.application(0, 0), pair.application(1, 1));
    pair.attach(forbidden);
    pair.attach(allowed);
    pair.origin.events.clear();
    let ended = pair.exit.controller.end_forbidden(|to| to.port() != 80);
    assert_eq!(ended, 1);
    pair.exit.do_actions();
    pair.pump();
    let ended: Vec<_> = (pair.origin.events.iter())
        .filter_map(|event| match event {
            OriginEvent::Ended { stream, reason, .. } => Some((*stream, *reason)),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [(forbidden, EndReason::EXITPOLICY)]);
    let (mut bytes, mut got) = (&b"still here"[..], Vec::new());
    for _ in 0..10 {
        pair.write_application(allowed, &mut bytes);
        pair.pump();
        got.extend(pair.read_exit(1, 100));
    }
    assert_eq!(got, b"still here");
}

#[test]
fn a_circuit_that_ends_takes_its_streams_along_and_reports_it() {
    let mut pair = Pair::new(2, 8, Terms::Windows);
    let open = pair.application(1, 0);
    pair.attach(open);
    pair.exit.serve_streams = false;
    let waits = pair.application(0, 1);
    pair.attach(waits);
    pair.origin.events.clear();
    pair.command(OriginCommand::CloseCircuit {
        circuit: CIRCUIT,
        reason: DestroyReason::FINISHED,
    });
    let ended: BTreeMap<ConnectionId, (EndedBy, bool)> = pair
        .origin
        .events
        .iter()
        .filter_map(|event| match event {
            OriginEvent::Ended {
                stream,
                by,
                waiting,
                ..
            } => Some((*stream, (*by, *waiting))),
            _ => None,
        })
        .collect();
    assert_eq!(ended[&open], (EndedBy::Circuit, false));
    assert_eq!(ended[&waits], (EndedBy::Circuit, true));
    assert!(pair.origin.events.iter().any(|event| matches!(
        event,
        OriginEvent::Closed {
            circuit: CIRCUIT,
            remote: false,
            ..
        }
    )));
    assert_eq!(pair.origin.halves() + pair.exit.halves(), 0);
    let (thread, edge) = pair.exit.edges[0];
    assert!(
        pair.exit.managers[thread].edges().out(edge).1,
        "its socket is to be closed"
    );
    let now = pair.exit.now;
    pair.exit.managers[thread].end_edge(edge, EndReason::DONE, now);
    // A stream attached to a circuit that no longer exists waits again.
    pair.attach(waits);
    assert!(matches!(
        pair.origin.events.last(),
        Some(OriginEvent::Ended {
            waiting: true,
            by: EndedBy::Circuit,
            ..
        })
    ));
}

#[test]
fn a_hop_before_the_exit_cannot_speak_for_it() {
    let mut honest = TwoHops::new(31);
    honest.sends(1, RelayCmd::CONNECTED, &[]);
    honest.sends(1, RelayCmd::DATA, b"from the exit");
    assert_eq!(honest.read(), b"from the exit");
    for (command, data) in [
        (RelayCmd::DATA, &b"from the guard"[..]),
        (RelayCmd::END, &[6]),
        (RelayCmd::SENDME, &[]),
    ] {
        let mut forged = TwoHops::new(32);
        forged.sends(1, RelayCmd::CONNECTED, &[]);
        forged.origin.events.clear();
        forged.sends(0, command, data);
        assert!(forged.read().is_empty());
        assert_eq!(
            forged.origin.halves(),
            0,
            "the circuit is ended by {command}"
        );
        let is_traffic = |event: &OriginEvent| matches!(event, OriginEvent::Traffic { .. });
        forged.origin.events.retain(|event| !is_traffic(event));
        assert!(matches!(
            forged.origin.events[..],
            [
                OriginEvent::Closed { .. },
                OriginEvent::Ended {
                    by: EndedBy::Circuit,
                    ..
                }
            ] | [
                OriginEvent::Ended {
                    by: EndedBy::Circuit,
                    ..
                },
                OriginEvent::Closed { .. }
            ]
        ));
    }
    // Not even before the exit has sent anything.
    let mut forged = TwoHops::new(33);
    forged.sends(0, RelayCmd::CONNECTED, &[]);
    assert_eq!(forged.origin.halves(), 0);
}
