//! Limits on a client's streams that end at this relay, and the reactions when it exceeds them:
//! SENDMEs that prove nothing, data beyond the windows, messages after an END, too many streams.
//! The test plays the client cell by cell.

use crate::world::{CLIENT, Circuit, OWN_ED, OWN_RSA, World, controller_params, relay_identity};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::{End, Resolved, Seen, Sendme};
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::limits::dos::DosParams;
use weft_core::limits::stream_dos::{StreamDefense, StreamDosParams};
use weft_core::params::RelayParams;
use weft_core::slots::EdgeKey;

/// A client that the test plays cell by cell, with one stream open at the relay.
fn with_stream(seed: u64) -> (World, Circuit, (usize, EdgeKey)) {
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

/// Sends this number of DATA cells from the exit, and returns the digest that the client must put
/// into its SENDME for the hundredth.
fn exit_sends(
    world: &mut World,
    circuit: &mut Circuit,
    edge: (usize, EdgeKey),
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

fn send_sendme(world: &mut World, circuit: &mut Circuit, data: &[u8]) {
    let cell = circuit.forward(world, 0, ChanCmd::RELAY, RelayCmd::SENDME, 0, data);
    world.receive(circuit.client.0, &cell);
    world.settle();
}

#[test]
fn a_sendme_proves_that_its_sender_read_what_it_acknowledges() {
    let (mut world, mut circuit, edge) = with_stream(20);
    let digests = exit_sends(&mut world, &mut circuit, edge, 100);
    send_sendme(&mut world, &mut circuit, &sendme(digests[0]));
    assert_eq!(world.halves(), 1);
    // Forged: the circuit ends (proposal 289).
    let digests = exit_sends(&mut world, &mut circuit, edge, 100);
    let mut forged = sendme(digests[0]);
    *forged.last_mut().unwrap() ^= 1;
    send_sendme(&mut world, &mut circuit, &forged);
    let destroy = world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(destroy.body()[0], DestroyReason::PROTOCOL.0);
    assert_eq!(world.halves(), 0);
    assert_eq!(world.totals().streams.flow_violations, 1);
}

#[test]
fn a_sendme_for_what_was_not_sent_ends_the_circuit() {
    let (mut world, mut circuit, edge) = with_stream(21);
    let digests = exit_sends(&mut world, &mut circuit, edge, 100);
    send_sendme(&mut world, &mut circuit, &sendme(digests[0]));
    send_sendme(&mut world, &mut circuit, &sendme(digests[0]));
    world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(world.halves(), 0);
}

#[test]
fn more_data_than_the_windows_allow_ends_the_circuit() {
    // The stream's window: 500 cells; each 50 that the socket takes open it by 50 more.
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
fn send_relay_msg(
    world: &mut World,
    circuit: &mut Circuit,
    stream: u16,
    command: RelayCmd,
    data: &[u8],
) {
    let cell = circuit.forward(world, 0, ChanCmd::RELAY, command, stream, data);
    world.receive(circuit.client.0, &cell);
    world.settle();
}

/// Commands that the relay has sent back since the last call.
fn answers(world: &mut World, circuit: &mut Circuit) -> Vec<RelayCmd> {
    let mut commands = Vec::new();
    while world.written[&circuit.client.0].front().is_some() {
        commands.push(circuit.backward(world).1);
    }
    commands
}

/// The circuit was ended for breaking the protocol, with nothing more sent.
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
        send_relay_msg(
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
            send_relay_msg(&mut world, &mut circuit, stream, command, &[]);
            is_ended(&mut world, &circuit);
        }
    }
}

#[test]
fn a_client_that_does_not_know_of_an_end_may_send_what_the_window_allows_and_no_more() {
    for last in [RelayCmd::DATA, RelayCmd::SENDME, RelayCmd::CONNECTED] {
        let (mut world, mut circuit, edge) = with_stream(29);
        for _ in 0..20 {
            send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::DATA, b"in time");
        }
        // The exit sent 60 cells, of which 50 may be acknowledged.
        exit_sends(&mut world, &mut circuit, edge, 60);
        let now = world.now;
        world.managers[edge.0].end_edge(edge.1, EndReason::DONE, now);
        world.settle();
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::END]);
        send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::SENDME, &[]);
        for _ in 0..480 {
            send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::DATA, b"late");
        }
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::SENDME; 5]);
        assert_eq!(world.totals().streams.late, 481);
        send_relay_msg(&mut world, &mut circuit, 1, last, &[]);
        is_ended(&mut world, &circuit);
    }
}

#[test]
fn two_ends_that_cross_hurt_nobody_and_a_third_ends_the_circuit() {
    let (mut world, mut circuit, edge) = with_stream(30);
    let now = world.now;
    world.managers[edge.0].end_edge(edge.1, EndReason::DONE, now);
    send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::END, &[6]);
    assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::END]);
    // Arti acknowledges what an application reads in the moment in which it closes.
    for _ in 0..10 {
        send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::SENDME, &[]);
    }
    assert_eq!(world.halves(), 1);
    send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::END, &[6]);
    is_ended(&mut world, &circuit);
}

#[test]
fn a_stream_that_is_refused_may_have_sent_its_first_words_already() {
    // No host and port; not a stream's number that is taken, nor anything's circuit to close.
    let refuse: [(RelayCmd, &[u8]); 2] = [(RelayCmd::BEGIN, b"nonsense"), (RelayCmd::RESOLVE, b"")];
    for (command, data) in refuse {
        let (mut world, mut circuit, _) = with_stream(34);
        send_relay_msg(&mut world, &mut circuit, 2, command, data);
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::END]);
        for _ in 0..500 {
            send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
        }
        assert_eq!(world.halves(), 1);
        answers(&mut world, &mut circuit);
        // The number may be given again; the client that does so has nothing of the old stream.
        send_relay_msg(
            &mut world,
            &mut circuit,
            2,
            RelayCmd::BEGIN,
            b"example.com:80\0",
        );
        assert_eq!(answers(&mut world, &mut circuit), [RelayCmd::CONNECTED]);
        send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
        send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::END, &[6]);
        assert_eq!(world.halves(), 1);
        send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
        is_ended(&mut world, &circuit);
    }
}

#[test]
fn a_refusal_that_takes_its_time_leaves_the_same() {
    let (mut world, mut circuit, _) = with_stream(35);
    world.serve_streams = false;
    send_relay_msg(
        &mut world,
        &mut circuit,
        2,
        RelayCmd::BEGIN,
        b"example.com:80\0",
    );
    send_relay_msg(
        &mut world,
        &mut circuit,
        3,
        RelayCmd::RESOLVE,
        b"example.com\0",
    );
    for _ in 0..100 {
        send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
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
    let sent = answers(&mut world, &mut circuit);
    assert_eq!(sent, [RelayCmd::END, RelayCmd::RESOLVED]);
    for _ in 0..400 {
        send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::DATA, b"GET /");
    }
    // The client gave up waiting, of both.
    send_relay_msg(&mut world, &mut circuit, 2, RelayCmd::END, &[6]);
    send_relay_msg(&mut world, &mut circuit, 3, RelayCmd::END, &[6]);
    assert_eq!(world.halves(), 1);
    answers(&mut world, &mut circuit);
    send_relay_msg(
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
    send_relay_msg(&mut world, &mut circuit, 0, RelayCmd::DROP, &[]);
    send_relay_msg(&mut world, &mut circuit, 77, RelayCmd::DROP, &[]);
    assert!(answers(&mut world, &mut circuit).is_empty());
    // The stream still works.
    send_relay_msg(&mut world, &mut circuit, 1, RelayCmd::DATA, b"still here");
    assert_eq!(world.managers[edge.0].edges().out(edge.1).0, b"still here");
    send_relay_msg(
        &mut world,
        &mut circuit,
        1,
        RelayCmd::END,
        &[EndReason::DONE.0],
    );
    let left = (&b"still here"[..], true);
    assert_eq!(world.managers[edge.0].edges().out(edge.1), left);
    send_relay_msg(&mut world, &mut circuit, 0, RelayCmd::BEGIN, b"a.com:80\0");
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

/// A relay's reaction to a third and fourth stream of a circuit that may open two: a BEGIN and a
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

#[test]
fn a_circuit_has_so_many_streams_and_no_more() {
    let mut world = World::new(1, 29);
    // More files than streams.
    let params = controller_params(100_000, DosParams::default());
    world.controller.set_params(params);
    world.serve_streams = true;
    let client = world.link_on(0, CLIENT);
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    let host = b"example.com:80\0";
    for stream in 1..=16_385 {
        send_relay_msg(&mut world, &mut circuit, stream, RelayCmd::BEGIN, host);
        let (_, command, data) = circuit.backward(&mut world);
        match stream {
            16_385 => {
                assert_eq!(command, RelayCmd::END);
                assert_eq!(End::decode(&data).reason, EndReason::RESOURCELIMIT);
            }
            _ => assert_eq!(command, RelayCmd::CONNECTED, "{stream}"),
        }
    }
    assert_eq!((world.edges.len(), world.halves()), (16_384, 1));
}
