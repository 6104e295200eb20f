//! Streams between two nodes without sockets: one where circuits begin, one where streams end.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod pair;
mod world;

use std::collections::BTreeMap;

use pair::{CIRCUIT, CLIENT, Pair, TwoHops, payload};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::{End, Resolved, Seen, Sendme};
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::edge::EdgeNews;
use weft_core::flow::Terms;
use weft_core::manager::RelayParams;
use weft_core::message::StreamAsk;
use weft_core::origin::{EndedBy, OriginCommand, OriginEvent};
use weft_core::stream_dos::{StreamDefense, StreamDosParams};
use world::{Circuit, OWN_ED, OWN_RSA, World, relay_identity};

/// Moves so much each way over several streams at once, and compares.
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
    assert_eq!(pair.exit.managers[thread].edge_out(edge), (&[][..], true));
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
    let waiting = pair.exit.managers[thread].edge_out(edge).0.len();
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
    let waiting = pair.exit.managers[thread].edge_out(edge).0.len();
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
    // Again: what was said is said again.
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
fn a_circuit_that_goes_takes_its_streams_along_and_says_so() {
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
        pair.exit.managers[thread].edge_out(edge).1,
        "its socket is to be closed"
    );
    let now = pair.exit.now;
    pair.exit.managers[thread].end_edge(edge, EndReason::DONE, now);
    // What is attached to a circuit that is no more waits again.
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
    honest.says(1, RelayCmd::CONNECTED, &[]);
    honest.says(1, RelayCmd::DATA, b"from the exit");
    assert_eq!(honest.read(), b"from the exit");
    for (command, data) in [
        (RelayCmd::DATA, &b"from the guard"[..]),
        (RelayCmd::END, &[6]),
        (RelayCmd::SENDME, &[]),
    ] {
        let mut forged = TwoHops::new(32);
        forged.says(1, RelayCmd::CONNECTED, &[]);
        forged.origin.events.clear();
        forged.says(0, command, data);
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
    // Not even before the exit has said anything.
    let mut forged = TwoHops::new(33);
    forged.says(0, RelayCmd::CONNECTED, &[]);
    assert_eq!(forged.origin.halves(), 0);
}

/// A client that the test plays cell by cell, with one stream open at the relay.
fn with_stream(seed: u64) -> (World, Circuit, (usize, u32)) {
    let mut world = World::new(1, seed);
    world.serve_streams = true;
    let client = world.link_on(0, CLIENT);
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.send(&mut world, 0, RelayCmd::BEGIN, b"example.com:80\0");
    world.settle();
    let (_, command, _) = circuit.backward(&mut world);
    assert_eq!(command, RelayCmd::CONNECTED);
    let edge = world.edges[0];
    (world, circuit, edge)
}

/// Sends so many DATA cells from the exit, and returns what the client must say in its SENDME for
/// the hundredth.
fn exit_sends(
    world: &mut World,
    circuit: &mut Circuit,
    edge: (usize, u32),
    cells: usize,
) -> Vec<Seen> {
    let mut digests = Vec::new();
    let mut seen = 0;
    for _ in 0..cells {
        let now = world.now;
        world.managers[edge.0].edge_data(edge.1, b"x", now);
        world.settle();
        let (_, command, _) = circuit.backward(world);
        assert_eq!(command, RelayCmd::DATA);
        seen += 1;
        if seen % 100 == 0 {
            digests.push(circuit.crypt.received(0).unwrap());
        }
    }
    digests
}

fn sendme(seen: Seen) -> Vec<u8> {
    Sendme {
        version: 1,
        seen: Some(seen),
    }
    .encode()
}

fn say_sendme(world: &mut World, circuit: &mut Circuit, data: &[u8]) {
    let cell = circuit.forward(world, 0, ChanCmd::RELAY, RelayCmd::SENDME, 0, data);
    world.receive(circuit.client.0, &cell);
    world.settle();
}

#[test]
fn a_sendme_proves_that_its_sender_read_what_it_acknowledges() {
    let (mut world, mut circuit, edge) = with_stream(20);
    let digests = exit_sends(&mut world, &mut circuit, edge, 100);
    say_sendme(&mut world, &mut circuit, &sendme(digests[0]));
    assert_eq!(world.halves(), 1);
    // Forged: the circuit ends (proposal 289).
    let digests = exit_sends(&mut world, &mut circuit, edge, 100);
    let mut forged = sendme(digests[0]);
    *forged.last_mut().unwrap() ^= 1;
    say_sendme(&mut world, &mut circuit, &forged);
    let destroy = world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(destroy.body()[0], DestroyReason::PROTOCOL.0);
    assert_eq!(world.halves(), 0);
    assert_eq!(world.totals().streams.flow_violations, 1);
}

#[test]
fn a_sendme_for_what_was_not_sent_ends_the_circuit() {
    let (mut world, mut circuit, edge) = with_stream(21);
    let digests = exit_sends(&mut world, &mut circuit, edge, 100);
    say_sendme(&mut world, &mut circuit, &sendme(digests[0]));
    say_sendme(&mut world, &mut circuit, &sendme(digests[0]));
    world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(world.halves(), 0);
}

#[test]
fn more_data_than_the_windows_allow_ends_the_circuit() {
    // The stream's window: 500 cells, of which each 50 that the socket takes bring 50 more.
    let (mut world, mut circuit, _) = with_stream(22);
    // Only small queues are answered by SENDMEs; full cells make it a large one.
    for _ in 0..1200 {
        circuit.send(&mut world, 0, RelayCmd::DATA, &[b'x'; 498]);
    }
    world.settle();
    assert_eq!(world.halves(), 0);
    assert_eq!(world.totals().streams.flow_violations, 1);
}

#[test]
fn a_sender_that_does_not_take_its_sendmes_has_a_thousand_cells() {
    for takes in [true, false] {
        let (mut world, mut circuit, _) = with_stream(23);
        world.room = if takes { u32::MAX } else { 0 };
        for _ in 0..1000 {
            circuit.send(&mut world, 0, RelayCmd::DATA, b"x");
            world.settle();
        }
        assert_eq!(
            world.halves(),
            1,
            "the window never closes on an honest client"
        );
        circuit.send(&mut world, 0, RelayCmd::DATA, b"x");
        world.settle();
        assert_eq!(world.halves(), usize::from(takes));
        assert_eq!(world.totals().streams.flow_violations, u64::from(!takes));
        let mut sendmes = 0;
        while takes && world.take(circuit.client.0).is_some() {
            sendmes += 1;
        }
        // Ten of the circuit's, for a hundred cells each; those of the stream for fifty.
        assert_eq!(sendmes, if takes { 30 } else { 0 });
    }
}

/// A relay message of a stream, from the client.
fn say(world: &mut World, circuit: &mut Circuit, stream: u16, command: RelayCmd, data: &[u8]) {
    let cell = circuit.forward(world, 0, ChanCmd::RELAY, command, stream, data);
    world.receive(circuit.client.0, &cell);
    world.settle();
}

/// What the relay has sent back since, by command.
fn answers(world: &mut World, circuit: &mut Circuit) -> Vec<RelayCmd> {
    let mut commands = Vec::new();
    while world.written[&circuit.client.0].front().is_some() {
        commands.push(circuit.backward(world).1);
    }
    commands
}

/// The circuit was ended for breaking the protocol, with nothing more said.
fn is_ended(world: &mut World, circuit: &Circuit) {
    let destroy = world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(destroy.body()[0], DestroyReason::PROTOCOL.0);
    assert_eq!(world.halves(), 0);
    world.audit();
}

#[test]
fn a_message_of_a_stream_that_never_was_ends_the_circuit() {
    for (stream, command) in [
        (2, RelayCmd::DATA),
        (2, RelayCmd::END),
        (2, RelayCmd::SENDME),
        (2, RelayCmd::XON),
        (2, RelayCmd::XOFF),
        (2, RelayCmd::CONNECTED),
        (2, RelayCmd::RESOLVED),
        (1, RelayCmd::CONNECTED),
        (1, RelayCmd::RESOLVED),
        // It is there.
        (1, RelayCmd::BEGIN),
        (1, RelayCmd::BEGIN_DIR),
        (1, RelayCmd::RESOLVE),
    ] {
        let (mut world, mut circuit, _) = with_stream(27);
        say(
            &mut world,
            &mut circuit,
            stream,
            command,
            b"example.org:80\0",
        );
        is_ended(&mut world, &circuit);
        // Nor is one let in that has no stream at all.
        let mut world = World::new(1, 28);
        let client = world.link_on(0, CLIENT);
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
        if stream == 2 {
            say(&mut world, &mut circuit, stream, command, &[]);
            is_ended(&mut world, &circuit);
        }
    }
}

#[test]
fn a_client_that_does_not_know_of_an_end_may_send_what_the_window_allows_and_no_more() {
    for last in [RelayCmd::DATA, RelayCmd::SENDME, RelayCmd::CONNECTED] {
        let (mut world, mut circuit, edge) = with_stream(29);
        for _ in 0..20 {
            say(&mut world, &mut circuit, 1, RelayCmd::DATA, b"in time");
        }
        // The exit sent 60 cells, of which 50 may be acknowledged.
        exit_sends(&mut world, &mut circuit, edge, 60);
        let now = world.now;
        world.managers[edge.0].end_edge(edge.1, EndReason::DONE, now);
        world.settle();
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::END]);
        say(&mut world, &mut circuit, 1, RelayCmd::SENDME, &[]);
        for _ in 0..480 {
            say(&mut world, &mut circuit, 1, RelayCmd::DATA, b"late");
        }
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::SENDME; 5]);
        assert_eq!(world.totals().streams.late, 481);
        say(&mut world, &mut circuit, 1, last, &[]);
        is_ended(&mut world, &circuit);
    }
}

#[test]
fn two_ends_that_cross_hurt_nobody_and_a_third_ends_the_circuit() {
    let (mut world, mut circuit, edge) = with_stream(30);
    let now = world.now;
    world.managers[edge.0].end_edge(edge.1, EndReason::DONE, now);
    say(&mut world, &mut circuit, 1, RelayCmd::END, &[6]);
    assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::END]);
    // Arti acknowledges what an application reads in the moment in which it closes.
    for _ in 0..10 {
        say(&mut world, &mut circuit, 1, RelayCmd::SENDME, &[]);
    }
    assert_eq!(world.halves(), 1);
    say(&mut world, &mut circuit, 1, RelayCmd::END, &[6]);
    is_ended(&mut world, &circuit);
}

#[test]
fn a_stream_that_is_refused_may_have_sent_its_first_words_already() {
    // No host and port; not a stream's number that is taken, nor anything's circuit to close.
    let refuse: [(RelayCmd, &[u8]); 2] = [(RelayCmd::BEGIN, b"nonsense"), (RelayCmd::RESOLVE, b"")];
    for (command, data) in refuse {
        let (mut world, mut circuit, _) = with_stream(34);
        say(&mut world, &mut circuit, 2, command, data);
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::END]);
        for _ in 0..500 {
            say(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
        }
        assert_eq!(world.halves(), 1);
        answers(&mut world, &mut circuit);
        // The number may be given again; the client that does so has nothing of the old stream.
        say(
            &mut world,
            &mut circuit,
            2,
            RelayCmd::BEGIN,
            b"example.com:80\0",
        );
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::CONNECTED]);
        say(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
        say(&mut world, &mut circuit, 2, RelayCmd::END, &[6]);
        assert_eq!(world.halves(), 1);
        say(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
        is_ended(&mut world, &circuit);
    }
}

#[test]
fn a_refusal_that_takes_its_time_leaves_the_same() {
    let (mut world, mut circuit, _) = with_stream(35);
    world.serve_streams = false;
    say(
        &mut world,
        &mut circuit,
        2,
        RelayCmd::BEGIN,
        b"example.com:80\0",
    );
    say(
        &mut world,
        &mut circuit,
        3,
        RelayCmd::RESOLVE,
        b"example.com\0",
    );
    for _ in 0..100 {
        say(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
    }
    answers(&mut world, &mut circuit);
    let [begin, resolve] = &world.streams[..] else {
        panic!("{:?}", world.streams);
    };
    let (begin, resolve) = (begin.at.addr, resolve.at.addr);
    let end = End::new(EndReason::EXITPOLICY);
    world.controller.refuse_stream(begin, &end);
    world.controller.resolved(
        resolve,
        Resolved {
            answers: Vec::new(),
        },
    );
    world.do_actions();
    world.settle();
    let said = answers(&mut world, &mut circuit);
    assert_eq!(said, [RelayCmd::END, RelayCmd::RESOLVED]);
    for _ in 0..400 {
        say(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
    }
    // The client gave up waiting, of both.
    say(&mut world, &mut circuit, 2, RelayCmd::END, &[6]);
    say(&mut world, &mut circuit, 3, RelayCmd::END, &[6]);
    assert_eq!(world.halves(), 1);
    answers(&mut world, &mut circuit);
    say(
        &mut world,
        &mut circuit,
        3,
        RelayCmd::DATA,
        b"to a question",
    );
    is_ended(&mut world, &circuit);
}

#[test]
fn drop_is_dropped_and_a_stream_without_a_number_ends_the_circuit() {
    let (mut world, mut circuit, edge) = with_stream(24);
    say(&mut world, &mut circuit, 0, RelayCmd::DROP, &[]);
    say(&mut world, &mut circuit, 77, RelayCmd::DROP, &[]);
    assert!(answers(&mut world, &mut circuit).is_empty());
    // The stream still works.
    say(&mut world, &mut circuit, 1, RelayCmd::DATA, b"still here");
    assert_eq!(world.managers[edge.0].edge_out(edge.1).0, b"still here");
    say(
        &mut world,
        &mut circuit,
        1,
        RelayCmd::END,
        &[EndReason::DONE.0],
    );
    let left = (&b"still here"[..], true);
    assert_eq!(world.managers[edge.0].edge_out(edge.1), left);
    say(&mut world, &mut circuit, 0, RelayCmd::BEGIN, b"a.com:80\0");
    is_ended(&mut world, &circuit);
}

#[test]
fn a_circuit_that_goes_on_still_ends_streams_here() {
    // A circuit may have streams at a relay that is not its last: Tor's leaky pipes.
    let mut world = World::new(2, 25);
    world.serve_streams = true;
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(4));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 4, next);
    circuit.send(&mut world, 0, RelayCmd::BEGIN, b"example.com:80\0");
    world.settle();
    let (hop, command, _) = circuit.backward(&mut world);
    assert_eq!((hop, command), (0, RelayCmd::CONNECTED));
    circuit.send(&mut world, 1, RelayCmd::DATA, b"passes");
    world.settle();
    assert_eq!(circuit.at_next(&mut world).2, b"passes");
}

/// What a relay answers to a third and fourth stream of a circuit that may open two, a BEGIN and a
/// RESOLVE.
fn past_the_limit(defense: StreamDefense) -> (World, Circuit) {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.stream_dos = StreamDosParams {
        enabled: true,
        rate: 1,
        burst: 2,
        defense,
    };
    let mut world = World::with_params(1, 26, params);
    world.serve_streams = true;
    let client = world.link_on(0, CLIENT);
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    let host = b"example.com:80\0";
    for stream in [1, 2] {
        let begin = circuit.forward(&mut world, 0, ChanCmd::RELAY, RelayCmd::BEGIN, stream, host);
        world.receive(circuit.client.0, &begin);
        world.settle();
        assert_eq!(circuit.backward(&mut world).1, RelayCmd::CONNECTED);
    }
    for (stream, command, data) in [
        (3, RelayCmd::BEGIN, &host[..]),
        (4, RelayCmd::RESOLVE, &b"example.com\0"[..]),
    ] {
        let cell = circuit.forward(&mut world, 0, ChanCmd::RELAY, command, stream, data);
        world.receive(circuit.client.0, &cell);
        world.settle();
    }
    (world, circuit)
}

#[test]
fn a_circuit_that_asks_for_too_many_streams_is_refused_them() {
    let (mut world, mut circuit) = past_the_limit(StreamDefense::RefuseStream);
    let (_, command, data) = circuit.backward(&mut world);
    assert_eq!((command, data[0]), (RelayCmd::END, EndReason::MISC.0));
    let (_, command, data) = circuit.backward(&mut world);
    assert_eq!((command, data[0]), (RelayCmd::RESOLVED, 0xf0));
    world.audit();
}

#[test]
fn a_circuit_that_asks_for_too_many_streams_is_closed_where_the_operator_wants_it() {
    let (mut world, circuit) = past_the_limit(StreamDefense::CloseCircuit);
    world.expect(circuit.client.0, ChanCmd::DESTROY);
    world.audit();
}

#[test]
fn too_many_streams_may_be_counted_alone() {
    let (mut world, mut circuit) = past_the_limit(StreamDefense::None);
    assert_eq!(circuit.backward(&mut world).1, RelayCmd::CONNECTED);
    assert_eq!(circuit.backward(&mut world).1, RelayCmd::CONNECTED);
}
