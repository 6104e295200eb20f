//! Answers of a node on a link, by its role there: every cell command, in every role.

use crate::world::{self, CLIENT, OWN_RSA, World, destroy_reason, relay_identity};
use weft_cell::circ_msg::CreateRequest;
use weft_cell::link_msg::{PaddingCommand, PaddingNegotiate};
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd, frame};
use weft_core::address::ConnectionId;
use weft_core::handshake::LinkRole;
use weft_core::message::FromController;
use weft_crypto::handshake::ntor;

/// A link of each kind, and whether the node is a client there.
const KINDS: [(&str, bool); 4] = [
    ("accepted from a client", false),
    ("accepted from a relay", false),
    ("opened as a relay", false),
    ("opened as a client", true),
];

/// A node with a link of this kind, on which nothing waits, and a circuit id that is the peer's to choose.
fn linked(kind: &str) -> (World, ConnectionId, u32) {
    let mut world = World::new(1, 9);
    match kind {
        "accepted from a client" => {
            let link = world.link_on(0, CLIENT);
            (world, link, 0x8000_0005)
        }
        "accepted from a relay" => {
            let link = world.link_on(0, relay_identity(9));
            (world, link, 0x8000_0005)
        }
        _ => {
            let role = match kind {
                "opened as a relay" => LinkRole::OpenedAsRelay,
                _ => LinkRole::OpenedAsClient,
            };
            let link = opened(&mut world, role);
            (world, link, 5)
        }
    }
}

/// A link that the node opens for a client's circuit, as a bridge or a relay does.
fn opened(world: &mut World, role: LinkRole) -> ConnectionId {
    let client = world.link_on(0, CLIENT);
    let connect = world::extend(world, client, 0x8000_0001, 9).unwrap();
    world.open_as(connect.connection, 0, role, relay_identity(9));
    world.settle();
    world.expect(connect.connection, ChanCmd::CREATE2);
    assert!(world.take(connect.connection).is_none());
    connect.connection
}

/// A CREATE_FAST.
fn create_fast(circ_id: u32) -> Cell {
    CreateRequest::Fast { x: [1; 20] }.encode(circ_id).unwrap()
}

/// A cell of this command that a server takes, if there is any.
fn lawful(world: &mut World, command: ChanCmd, circ_id: u32) -> Vec<u8> {
    let cell = match command {
        ChanCmd::CREATE_FAST => create_fast(circ_id),
        ChanCmd::CREATE2 => {
            let public = world.onion_keys.current_public();
            let state = ntor::ClientState::start(&OWN_RSA, &public, world.rng());
            let data = state.onionskin().to_vec();
            let handshake_type = 2;
            let create = CreateRequest::Create2 {
                handshake_type,
                data,
            };
            create.encode(circ_id).unwrap()
        }
        ChanCmd::PADDING_NEGOTIATE => PaddingNegotiate {
            version: 0,
            command: PaddingCommand::Stop,
            ito_low_ms: 0,
            ito_high_ms: 0,
        }
        .encode(),
        _ if command.is_var_cell() => {
            let mut bytes = Vec::new();
            frame::encode_variable(0, command, &[1; 40], &mut bytes).unwrap();
            return bytes;
        }
        _ => Cell::new(circ_id, command),
    };
    cell.as_bytes().to_vec()
}

/// Effects of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trace {
    /// The command of the answer, and the reason of a DESTROY.
    answer: Option<(ChanCmd, Option<DestroyReason>)>,
    /// Circuits that were made.
    circuits: usize,
    padding: u64,
    dropped: u64,
    violations: u64,
}

/// The trace that a command must leave for which no circuit is there.
fn expected(command: ChanCmd, as_client: bool) -> Trace {
    let none = Trace::default();
    let refused = Trace {
        answer: Some((ChanCmd::DESTROY, Some(DestroyReason::PROTOCOL))),
        violations: 1,
        ..none
    };
    let made = |answer| Trace {
        answer: Some((answer, None)),
        circuits: 1,
        ..none
    };
    let dropped = Trace { dropped: 1, ..none };
    match (command, as_client) {
        (ChanCmd::PADDING | ChanCmd::VPADDING, _) => Trace { padding: 1, ..none },
        // TAP, which no node accepts.
        (ChanCmd::CREATE, _) => refused,
        (ChanCmd::CREATE_FAST | ChanCmd::CREATE2, true) => refused,
        (ChanCmd::CREATE_FAST, false) => made(ChanCmd::CREATED_FAST),
        (ChanCmd::CREATE2, false) => made(ChanCmd::CREATED2),
        (ChanCmd::PADDING_NEGOTIATE, false) => none,
        (ChanCmd::PADDING_NEGOTIATE, true) => Trace {
            dropped: 1,
            violations: 1,
            ..none
        },
        // For no circuit, of the handshake, or unknown.
        _ => dropped,
    }
}

#[test]
fn every_cell_command_is_answered_by_servers_alone_in_every_role() {
    for (kind, as_client) in KINDS {
        for number in 0..=u8::MAX {
            let command = ChanCmd::from(number);
            let (mut world, link, circ_id) = linked(kind);
            let (before, halves) = (world.managers[0].totals(), world.halves());
            let bytes = lawful(&mut world, command, circ_id);
            world.receive_bytes(link, &bytes).unwrap();
            world.settle();
            let totals = world.managers[0].totals();
            let answer = world.take(link).map(|cell| {
                let reason = cell.command() == ChanCmd::DESTROY;
                (cell.command(), reason.then(|| destroy_reason(&cell)))
            });
            let trace = Trace {
                answer,
                circuits: world.halves() - halves,
                padding: totals.padding_received - before.padding_received,
                dropped: totals.cells_dropped - before.cells_dropped,
                violations: totals.protocol_errors - before.protocol_errors,
            };
            assert_eq!(trace, expected(command, as_client), "{command}, {kind}");
            assert!(world.take(link).is_none(), "{command}, {kind}");
            world.audit_at_rest();
        }
    }
}

#[test]
fn a_bridge_does_not_answer_create_on_links_that_it_opened() {
    let mut world = World::new(1, 9);
    let link = opened(&mut world, LinkRole::OpenedAsClient);
    // Going down is no difference to a client either.
    for draining in [false, true] {
        world.managers[0].handle_controller(FromController::Drain(draining), world.now);
        for circ_id in [5, 0x8000_0005] {
            world.receive(link, &create_fast(circ_id));
            world.settle();
            let answer = world.expect(link, ChanCmd::DESTROY);
            assert_eq!(answer.circ_id(), circ_id);
            assert_eq!(destroy_reason(&answer), DestroyReason::PROTOCOL);
        }
        world.receive(link, &create_fast(0));
        world.settle();
        assert!(world.take(link).is_none());
    }
    assert_eq!(world.controller.counts().onionskins, 1, "the client's own");
}

#[test]
fn circuits_of_clients_go_on_over_a_link_that_a_bridge_opened() {
    let mut world = World::new(1, 9);
    let link = opened(&mut world, LinkRole::OpenedAsClient);
    world.receive(link, &create_fast(5));
    world.settle();
    world.expect(link, ChanCmd::DESTROY);
    let client = world.link_on(0, CLIENT);
    let mut circuit = world::Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 9, link);
    circuit.answer(&mut world, b"still here");
    world.settle();
    assert_eq!(circuit.backward(&mut world).2, b"still here");
}

#[test]
fn a_relay_answers_create_on_links_on_which_it_proved_itself() {
    let mut world = World::new(1, 9);
    let link = opened(&mut world, LinkRole::OpenedAsRelay);
    let _circuit = world::Circuit::create(&mut world, link, 5);
    assert_eq!(world.controller.counts().onionskins, 2);
}
