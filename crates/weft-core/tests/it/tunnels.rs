//! Tunnels: several circuits as one (conflux, proposal 329), between an origin and an exit without sockets, whose links
//! carry cells at their own pace.

use crate::legs::{NONCE, TUNNEL, Tunnel};
use crate::pair::{CIRCUIT, launch, payload};
use crate::world::{self, CLIENT, Circuit, World};
use proptest::prelude::*;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::conflux_msg::{DesiredUx, Link, Switch};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, HopIndex, ThreadId};
use weft_core::flow::Terms;
use weft_core::origin::{
    EndedBy, HopFlow, OriginCommand, OriginEvent, OriginId, StreamOpening, TunnelKind,
};
use weft_crypto::Tor1Keys;
use weft_crypto::relay_cell::RelayCrypt;

/// A relay message of a client: its command, stream and data.
type Message = (RelayCmd, u16, Vec<u8>);
/// A message of a hop to the origin.
type Answer = (RelayCmd, Vec<u8>);

/// Bytes of each transfer.
const LENGTH: usize = 400_000;

#[test]
fn a_stream_over_two_legs_loses_nothing_in_either_direction() {
    for (threads, seed, terms) in [
        (1, 1, Terms::Vegas),
        (2, 2, Terms::VegasCgo),
        (3, 3, Terms::Vegas),
    ] {
        let ux = DesiredUx::HighThroughput;
        let mut tunnel = Tunnel::conflux(threads, seed, 2, ux, terms);
        let id = tunnel.open_stream(0);
        let (up, down) = (payload(seed, LENGTH), payload(seed + 1, LENGTH));
        let (got_up, got_down) = tunnel.transfer(id, &up, &down);
        assert!(got_up == up && got_down == down, "seed {seed}");
        assert!(tunnel.sent_on_all_legs(), "seed {seed}");
        tunnel.audit();
        let totals = tunnel.exit.controller.totals();
        assert_eq!(totals.protocol_errors, 0);
    }
}

#[test]
fn what_comes_early_waits_and_is_handed_on_in_order() {
    let mut tunnel = Tunnel::new(2, 5, 2, DesiredUx::HighThroughput);
    let id = tunnel.open_stream(0);
    // One leg takes twenty times as long as the other.
    tunnel.pace = vec![1, 20];
    let down = payload(6, LENGTH);
    let (_, got) = tunnel.transfer(id, &[], &down);
    assert!(got == down);
    let (origin, _) = tunnel.totals();
    assert!(origin.reordered > 0, "{origin:?}");
    // More than one waited, and never more than all.
    let waited = origin.reorder_bytes_max;
    assert!(
        waited > 514 && waited <= 514 * origin.reordered,
        "{origin:?}"
    );
    tunnel.audit();
}

#[test]
fn least_delay_uses_one_leg_as_long_as_it_is_the_fastest() {
    let mut tunnel = Tunnel::new(1, 7, 2, DesiredUx::MinLatency);
    tunnel.pace = vec![1, 20];
    let id = tunnel.open_stream(0);
    let down = payload(8, LENGTH / 4);
    let (_, got) = tunnel.transfer(id, &[], &down);
    assert!(got == down);
    tunnel.audit();
}

#[test]
fn eight_legs_carry_one_stream() {
    let mut tunnel = Tunnel::new(4, 9, 8, DesiredUx::HighThroughput);
    let id = tunnel.open_stream(0);
    let down = payload(10, LENGTH);
    let (_, got) = tunnel.transfer(id, &[], &down);
    assert!(got == down);
    tunnel.audit();
}

#[test]
fn a_tunnel_closes_with_all_its_legs_and_leaves_nothing() {
    let mut tunnel = Tunnel::new(2, 11, 3, DesiredUx::HighThroughput);
    let id = tunnel.open_stream(0);
    tunnel.command(OriginCommand::CloseCircuit {
        circuit: TUNNEL,
        reason: DestroyReason::FINISHED,
    });
    tunnel.pump();
    let closed = tunnel.closed();
    assert!(closed.contains(&TUNNEL) && closed.len() == 4, "{closed:?}");
    assert!(tunnel.ended(id).is_some_and(|by| by == EndedBy::Circuit));
    tunnel.audit();
    assert_eq!(tunnel.halves(), (0, 0));
    assert_eq!(
        (
            tunnel.origin.controller.tunnels(),
            tunnel.exit.controller.tunnels()
        ),
        (0, 0)
    );
}

#[test]
fn a_leg_that_closes_in_use_ends_the_tunnel_as_between_c_tor_nodes() {
    let mut tunnel = Tunnel::new(2, 13, 2, DesiredUx::HighThroughput);
    let id = tunnel.open_stream(0);
    let down = payload(14, LENGTH);
    tunnel.write_some(id, &down[..LENGTH / 4]);
    tunnel.command(OriginCommand::CloseCircuit {
        circuit: OriginId(100),
        reason: DestroyReason::FINISHED,
    });
    tunnel.pump();
    tunnel.command(OriginCommand::CloseCircuit {
        circuit: OriginId(101),
        reason: DestroyReason::FINISHED,
    });
    tunnel.pump();
    assert!(tunnel.closed().contains(&TUNNEL));
    tunnel.audit();
    assert_eq!(tunnel.halves(), (0, 0));
}

#[test]
fn a_leg_that_carried_nothing_may_close_and_the_stream_goes_on() {
    // With least delay the slow leg is not used.
    let mut tunnel = Tunnel::new(2, 15, 2, DesiredUx::MinLatency);
    let id = tunnel.open_stream(0);
    let unused = tunnel.unused_leg().expect("one leg carries everything");
    tunnel.command(OriginCommand::CloseCircuit {
        circuit: unused,
        reason: DestroyReason::FINISHED,
    });
    tunnel.pump();
    assert_eq!(tunnel.closed(), [unused]);
    let down = payload(16, LENGTH / 4);
    let (_, got) = tunnel.transfer(id, &[], &down);
    assert!(got == down);
    tunnel.audit();
}

#[test]
fn a_lost_link_ends_its_leg_and_what_hangs_on_it() {
    let mut tunnel = Tunnel::new(2, 17, 2, DesiredUx::HighThroughput);
    let id = tunnel.open_stream(0);
    let down = payload(18, LENGTH);
    tunnel.write_some(id, &down[..LENGTH / 2]);
    tunnel.lose_link(0);
    tunnel.lose_link(1);
    tunnel.pump();
    assert!(tunnel.closed().contains(&TUNNEL));
    tunnel.audit();
    assert_eq!(tunnel.halves(), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_pace_of_links_keeps_the_order(
        seed in 0u64..1_000_000,
        threads in 1u16..4,
        pace in proptest::collection::vec(1u32..30, 2..5),
        ux in proptest::sample::select(DesiredUx::ALL.to_vec()),
    ) {
        let mut tunnel = Tunnel::new(threads, seed, pace.len(), ux);
        tunnel.pace = pace;
        let id = tunnel.open_stream(0);
        let (up, down) = (payload(seed, 60_000), payload(seed + 1, 120_000));
        let (got_up, got_down) = tunnel.transfer(id, &up, &down);
        prop_assert!(got_up == up && got_down == down);
        tunnel.audit();
    }
}

// ---- what an exit does not take ----

/// A relay that grants congestion control, and a circuit through it.
fn exit() -> (World, Circuit, ConnectionId) {
    let mut world = World::new(2, 21);
    world.sendme_inc = Some(31);
    world.serve_streams = true;
    let link = world.link_on(0, CLIENT);
    let circuit = Circuit::create(&mut world, link, 0x8000_0001);
    (world, circuit, link)
}

fn link_message(sent: u64, received: u64) -> [u8; 50] {
    Link {
        nonce: NONCE,
        last_seqno_sent: sent,
        last_seqno_recv: received,
        desired_ux: DesiredUx::HighThroughput,
    }
    .encode()
}

/// The client's message reaches the relay.
fn send(world: &mut World, circuit: &mut Circuit, command: RelayCmd, stream: u16, data: &[u8]) {
    let cell = circuit.forward(world, 0, ChanCmd::RELAY, command, stream, data);
    world.receive(circuit.client.0, &cell);
    world.settle();
}

/// Messages that the relay sent to the client: the commands of relay messages, or DESTROY.
fn answers(world: &mut World, circuit: &mut Circuit) -> Vec<String> {
    let mut answers = Vec::new();
    while let Some(cell) = world.take(circuit.client.0) {
        if cell.command() == ChanCmd::DESTROY {
            answers.push("DESTROY".to_owned());
            continue;
        }
        let mut body = *cell.body();
        assert_eq!(circuit.crypt.decrypt_backward(&mut body), Some(0));
        answers.push(RelayBody::new(&body).command().to_string());
    }
    answers
}

#[test]
fn an_exit_links_a_circuit_that_is_fit_for_it() {
    let (mut world, mut circuit, _) = exit();
    send(
        &mut world,
        &mut circuit,
        RelayCmd::CONFLUX_LINK,
        0,
        &link_message(0, 0),
    );
    assert_eq!(answers(&mut world, &mut circuit), ["CONFLUX_LINKED"]);
    send(
        &mut world,
        &mut circuit,
        RelayCmd::CONFLUX_LINKED_ACK,
        0,
        &[],
    );
    assert_eq!(answers(&mut world, &mut circuit), [""; 0]);
    world.audit_at_rest();
}

#[test]
fn what_no_client_sends_closes_the_circuit_alone() {
    let link = |sent, received| {
        (
            RelayCmd::CONFLUX_LINK,
            0,
            link_message(sent, received).to_vec(),
        )
    };
    let ack = || (RelayCmd::CONFLUX_LINKED_ACK, 0, Vec::new());
    let begin = |command| (command, 1, b"example.com:80\0\0\0\0\0".to_vec());
    let switch = |relative| {
        (
            RelayCmd::CONFLUX_SWITCH,
            0,
            Switch { relative }.encode().to_vec(),
        )
    };
    let cases: Vec<(&str, Vec<Message>)> = vec![
        ("LINK twice", vec![link(0, 0), link(0, 0)]),
        (
            "LINK cut short",
            vec![(RelayCmd::CONFLUX_LINK, 0, vec![1; 30])],
        ),
        (
            "LINK with a stream attached",
            vec![begin(RelayCmd::BEGIN), link(0, 0)],
        ),
        (
            "LINKED from a client",
            vec![(RelayCmd::CONFLUX_LINKED, 0, link_message(0, 0).to_vec())],
        ),
        ("ACK without LINK", vec![ack()]),
        ("ACK twice", vec![link(0, 0), ack(), ack()]),
        ("SWITCH without LINK", vec![switch(1)]),
        (
            "BEGIN_DIR on a leg",
            vec![link(0, 0), ack(), begin(RelayCmd::BEGIN_DIR)],
        ),
        ("messages sent that did not arrive", vec![link(1, 0)]),
        ("messages received that were not sent", vec![link(0, 1)]),
        (
            "EXTEND2 of a leg",
            vec![link(0, 0), ack(), (RelayCmd::EXTEND2, 0, vec![0; 100])],
        ),
        (
            "a rendezvous on a leg",
            vec![link(0, 0), (RelayCmd::ESTABLISH_RENDEZVOUS, 0, vec![7; 20])],
        ),
        (
            "LINK on a rendezvous",
            vec![(RelayCmd::ESTABLISH_RENDEZVOUS, 0, vec![7; 20]), link(0, 0)],
        ),
        (
            "a message past the end",
            vec![link(0, 0), ack(), switch(u32::MAX), begin(RelayCmd::BEGIN)],
        ),
    ];
    for (what, messages) in cases {
        let (mut world, mut circuit, connection) = exit();
        let mut other = Circuit::create(&mut world, connection, 0x8000_0002);
        for (command, stream, data) in messages {
            if world.is_open(connection) {
                send(&mut world, &mut circuit, command, stream, &data);
            }
        }
        let answers = answers(&mut world, &mut circuit);
        // A message far ahead waits for the others, at the cost of the client's own share of memory
        // alone.
        if what != "a message past the end" {
            assert_eq!(
                answers.last().map(String::as_str),
                Some("DESTROY"),
                "{what}: {answers:?}"
            );
            assert_eq!(world.controller.tunnels(), 0, "{what}");
        }
        world.audit_at_rest();
        send(
            &mut world,
            &mut other,
            RelayCmd::BEGIN,
            1,
            b"example.com:80\0\0\0\0\0",
        );
        assert!(
            world.take(connection).is_some(),
            "{what}: the other circuit goes on"
        );
    }
}

#[test]
fn an_exit_that_does_not_serve_conflux_closes_the_circuit() {
    let mut params = weft_core::params::RelayParams::new(world::OWN_RSA, world::OWN_ED);
    params.serve_conflux = false;
    let mut world = World::with_params(1, 23, params);
    world.sendme_inc = Some(31);
    let link = world.link_on(0, CLIENT);
    let mut circuit = Circuit::create(&mut world, link, 0x8000_0001);
    send(
        &mut world,
        &mut circuit,
        RelayCmd::CONFLUX_LINK,
        0,
        &link_message(0, 0),
    );
    assert_eq!(answers(&mut world, &mut circuit), ["DESTROY"]);
    // Nor does one whose circuit has no congestion control.
    let mut world = World::new(1, 24);
    let link = world.link_on(0, CLIENT);
    let mut circuit = Circuit::create(&mut world, link, 0x8000_0001);
    send(
        &mut world,
        &mut circuit,
        RelayCmd::CONFLUX_LINK,
        0,
        &link_message(0, 0),
    );
    assert_eq!(answers(&mut world, &mut circuit), ["DESTROY"]);
}

#[test]
fn what_waits_for_a_gap_is_bounded_and_accounted() {
    let (mut world, mut circuit, _) = exit();
    send(
        &mut world,
        &mut circuit,
        RelayCmd::CONFLUX_LINK,
        0,
        &link_message(0, 0),
    );
    send(
        &mut world,
        &mut circuit,
        RelayCmd::CONFLUX_LINKED_ACK,
        0,
        &[],
    );
    let skip = Switch { relative: 1 }.encode();
    send(&mut world, &mut circuit, RelayCmd::CONFLUX_SWITCH, 0, &skip);
    let before = world.managers[0].ledger(world.now).total();
    let mut closed = false;
    for n in 0..20_000u32 {
        if n == 1000 {
            let held = world.managers[0].ledger(world.now).total() - before;
            assert!(held > 1000 * 514, "{held}");
        }
        send(&mut world, &mut circuit, RelayCmd::DATA, 1, &[1; 100]);
        if answers(&mut world, &mut circuit)
            .iter()
            .any(|answer| answer == "DESTROY")
        {
            closed = true;
            break;
        }
    }
    assert!(closed);
    world.audit_at_rest();
    assert_eq!(world.controller.tunnels(), 0);
    assert_eq!(world.managers[0].totals().tunnels.overflowed, 1);
}

// ---- what an origin does not take ----

/// An origin's circuit of one hop, whose keys the test has.
struct OneHop {
    origin: World,
    link: ConnectionId,
    circ_id: u32,
    hop: RelayCrypt,
}

impl OneHop {
    fn new(seed: u64) -> Self {
        let mut origin = World::new(1, seed);
        let link = launch(&mut origin, CreateRequest::Fast { x: [1; 20] });
        origin.settle();
        let circ_id = origin.take(link).expect("CREATE_FAST").circ_id();
        let (y, kh) = ([2; 20], [3; 20]);
        origin.receive(link, &CreateReply::Fast { y, kh }.encode(circ_id).unwrap());
        let keys = Tor1Keys::from_key_material(&[5; Tor1Keys::LEN]);
        let mut one = OneHop {
            hop: RelayCrypt::new(&keys),
            origin,
            link,
            circ_id,
        };
        one.command(OriginCommand::AddHop {
            circuit: CIRCUIT,
            keys: Box::new(keys.into()),
            flow: HopFlow::Vegas { sendme_inc: 31 },
        });
        one
    }

    fn command(&mut self, command: OriginCommand) {
        self.origin.controller.origin(command, self.origin.now);
        self.origin.do_actions();
        self.origin.settle();
    }

    fn link(&mut self) {
        let ux = DesiredUx::HighThroughput;
        self.command(OriginCommand::Link {
            circuit: CIRCUIT,
            hop: HopIndex(0),
            tunnel: TUNNEL,
            kind: TunnelKind::Conflux { nonce: NONCE, ux },
        });
    }

    /// The commands that the origin sent.
    fn sent(&mut self) -> Vec<RelayCmd> {
        std::iter::from_fn(|| self.origin.take(self.link))
            .map(|cell| {
                let mut body = *cell.body();
                assert!(self.hop.decrypt_forward(&mut body));
                RelayBody::new(&body).command()
            })
            .collect()
    }

    fn sends(&mut self, command: RelayCmd, stream: u16, data: &[u8]) {
        let mut cell = Cell::new(self.circ_id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, stream, data, self.origin.rng()).unwrap();
        self.hop.originate_backward(cell.body_mut());
        self.origin.receive(self.link, &cell);
        self.origin.settle();
    }
}

#[test]
fn an_origin_takes_the_answer_to_its_own_link_once() {
    let mut wrong = link_message(0, 0);
    wrong[1] ^= 1;
    let cases: [(&str, bool, Vec<Answer>); 6] = [
        (
            "unasked",
            false,
            vec![(RelayCmd::CONFLUX_LINKED, link_message(0, 0).to_vec())],
        ),
        (
            "of another set",
            true,
            vec![(RelayCmd::CONFLUX_LINKED, wrong.to_vec())],
        ),
        (
            "cut short",
            true,
            vec![(RelayCmd::CONFLUX_LINKED, vec![1, 2])],
        ),
        (
            "twice",
            true,
            vec![(RelayCmd::CONFLUX_LINKED, link_message(0, 0).to_vec()); 2],
        ),
        (
            "a SWITCH before it",
            true,
            vec![(RelayCmd::CONFLUX_SWITCH, vec![0, 0, 0, 1])],
        ),
        (
            "messages lost before",
            true,
            vec![(RelayCmd::CONFLUX_LINKED, link_message(3, 0).to_vec())],
        ),
    ];
    for (what, linked, messages) in cases {
        let mut one = OneHop::new(41);
        if linked {
            one.link();
            assert_eq!(one.sent(), [RelayCmd::CONFLUX_LINK], "{what}");
        }
        for (command, data) in messages {
            one.sends(command, 0, &data);
        }
        let closed = |id| {
            let mut events = one.origin.events.iter();
            events
                .any(|event| matches!(event, OriginEvent::Closed { circuit, .. } if *circuit == id))
        };
        assert!(closed(CIRCUIT), "{what}");
        assert_eq!(closed(TUNNEL), linked, "{what}");
        one.origin.audit_at_rest();
        assert_eq!(one.origin.controller.tunnels(), 0, "{what}");
    }
}

#[test]
fn an_origin_acknowledges_and_attaches_to_the_tunnel_alone() {
    let mut one = OneHop::new(43);
    one.link();
    one.sends(RelayCmd::CONFLUX_LINKED, 0, &link_message(0, 0));
    assert_eq!(
        one.sent(),
        [RelayCmd::CONFLUX_LINK, RelayCmd::CONFLUX_LINKED_ACK]
    );
    for (circuit, expected) in [(CIRCUIT, vec![]), (TUNNEL, vec![RelayCmd::BEGIN_DIR])] {
        let id = ConnectionId(u64::MAX - circuit.0);
        one.origin.controller.place_at(id, ThreadId(0));
        one.origin.managers[0]
            .edges_mut()
            .adopt_application(id)
            .unwrap();
        one.command(OriginCommand::Attach {
            stream: id,
            circuit,
            hop: HopIndex(0),
            opening: StreamOpening::BeginDir,
        });
        assert_eq!(one.sent(), expected);
    }
    one.origin.audit_at_rest();
}
