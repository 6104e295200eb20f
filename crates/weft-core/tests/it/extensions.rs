//! Extensions of circuits: over links that are open, that have to be opened, or that fail meanwhile; what
//! they are refused for, and how they are truncated.

use std::time::Duration;

use crate::world::{
    CLIENT, Circuit, OWN_ED, OWN_RSA, World, destroy_reason, relay_identity, spliced,
};
use weft_cell::circ_msg::CreateRequest;
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::handshake::PeerIdentity;
use weft_core::origin::LinkFailure;
use weft_core::params::RelayParams;

#[test]
fn truncate_cuts_the_rest_off_and_the_circuit_can_be_extended_again() {
    for (from, to, other) in [(0, 0, 0), (0, 1, 2), (1, 2, 1), (2, 0, 1)] {
        for seed in 0..8 {
            let (mut world, mut circuit) = spliced(3, from, to, seed);
            let elsewhere = world.link_on(other, relay_identity(5));
            let (next, next_id) = circuit.next.unwrap();
            circuit.send(&mut world, 0, RelayCmd::TRUNCATE, &[3]);
            world.settle();
            let (hop, command, data) = circuit.backward(&mut world);
            assert_eq!((hop, command, data), (0, RelayCmd::TRUNCATED, vec![3]));
            let cell = world.expect(next, ChanCmd::DESTROY);
            assert_eq!(cell.circ_id(), next_id);
            assert_eq!(destroy_reason(&cell), DestroyReason::REQUESTED);
            assert_eq!(world.halves(), 1);

            // The client forgets the lost hop and goes another way.
            let mut again = Circuit {
                next: None,
                next_crypt: None,
                ..circuit
            };
            // Hop 1 of the client's keys is the lost one; the new hop is hop 2 of the list, so
            // only the relay's own hop is spoken to here.
            let keys_before = again.crypt.len();
            again.extend(&mut world, 5, elsewhere);
            assert_eq!(again.crypt.len(), keys_before + 1);
            assert_eq!(world.halves(), 2);
        }
    }
}

#[test]
fn truncates_without_end_close_the_circuit_of_a_client_that_does_not_read() {
    let (mut world, mut circuit) = spliced(1, 0, 0, 8);
    let (client, _) = circuit.client;
    world.room = 0;
    let bound = world.managers[0].params().max_queue_backward;
    for _ in 0..bound {
        circuit.send(&mut world, 0, RelayCmd::TRUNCATE, &[3]);
    }
    world.settle();
    assert_eq!(world.halves(), 1);
    circuit.send(&mut world, 0, RelayCmd::TRUNCATE, &[3]);
    world.settle();
    assert_eq!(world.halves(), 0);
    world.room = u32::MAX;
    world.settle();
    let destroy = world.expect(client, ChanCmd::DESTROY);
    assert_eq!(destroy_reason(&destroy), DestroyReason::RESOURCELIMIT);
}

#[test]
fn an_extension_opens_a_connection_when_there_is_none_and_others_wait_for_it() {
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        let client = world.link_on(0, CLIENT);
        let mut circuits: Vec<Circuit> = (1..=3)
            .map(|n| Circuit::create(&mut world, client, 0x8000_0000 + n))
            .collect();
        for circuit in &mut circuits {
            let message = Circuit::extend_message(9, &[1; 84]);
            circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
        }
        world.settle();
        let [connect] = world.connects[..] else {
            panic!("one connection serves all: {:?}", world.connects);
        };
        assert_eq!(connect.addr, "127.0.0.9:9001".parse().unwrap());
        let thread = usize::from(connect.thread.0);
        world.open(connect.connection, thread, true, relay_identity(9));
        world.settle();
        for _ in 0..3 {
            let create = world.expect(connect.connection, ChanCmd::CREATE2);
            assert!(create.circ_id() & 0x8000_0000 != 0, "we opened the link");
        }
    }
}

#[test]
fn a_connection_that_fails_ends_the_circuits_that_wait_for_it() {
    for seed in 0..10 {
        let mut world = World::new(2, seed);
        let client = world.link_on(0, CLIENT);
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
        let message = Circuit::extend_message(9, &[1; 84]);
        circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        let connect = world.connects[0];
        let thread = usize::from(connect.thread.0);
        world.managers[thread]
            .links_mut()
            .connection_failed(connect.connection, LinkFailure::Refused);
        world.settle();
        let cell = world.expect(client, ChanCmd::DESTROY);
        assert_eq!(destroy_reason(&cell), DestroyReason::CONNECTFAILED);
        assert_eq!(world.halves(), 0);
        assert_eq!(world.controller.connections(), 1);
    }
}

#[test]
fn a_client_that_goes_while_its_extension_is_under_way_leaves_nothing() {
    for seed in 0..30 {
        let mut world = World::new(3, seed);
        let client = world.link_on(0, CLIENT);
        let next = world.link_on(1, relay_identity(9));
        world.settle();
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
        let message = Circuit::extend_message(9, &[1; 84]);
        circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
        let reason = DestroyReason::NONE;
        world.receive(client, &Destroy { reason }.encode(0x8000_0001));
        world.settle();
        assert_eq!(world.halves(), 0, "seed {seed}");
        // If the next hop was asked at all, it was also sent a DESTROY.
        if let Some(create) = world.take(next) {
            assert_eq!(create.command(), ChanCmd::CREATE2);
            assert_eq!(
                world.expect(next, ChanCmd::DESTROY).circ_id(),
                create.circ_id()
            );
        }
    }
}

#[test]
fn a_wait_that_is_too_long_ends_the_circuit() {
    // For the onionskin.
    let mut world = World::new(2, 1);
    world.answer_onionskins = false;
    let client = world.link_on(0, CLIENT);
    let create = CreateRequest::Create2 {
        handshake_type: 2,
        data: vec![0; 84],
    };
    world.receive(client, &create.encode(0x8000_0001).unwrap());
    world.settle();
    world.pass(Duration::from_secs(59));
    assert_eq!(world.halves(), 1);
    world.pass(Duration::from_secs(2));
    assert_eq!(
        destroy_reason(&world.expect(client, ChanCmd::DESTROY)),
        DestroyReason::TIMEOUT
    );
    assert_eq!(world.halves(), 0);

    // For the next hop's CREATED2.
    let mut world = World::new(2, 1);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    let message = Circuit::extend_message(9, &[1; 84]);
    circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    world.expect(next, ChanCmd::CREATE2);
    world.pass(Duration::from_secs(61));
    assert_eq!(
        destroy_reason(&world.expect(client, ChanCmd::DESTROY)),
        DestroyReason::TIMEOUT
    );
    assert_eq!(world.halves(), 0);
}

#[test]
fn extensions_to_ourselves_the_previous_hop_nobody_or_a_private_place_end_the_circuit() {
    let refused = |params: RelayParams, previous: PeerIdentity, message: Vec<u8>| {
        let mut world = World::with_params(2, 5, params);
        let client = world.link_on(0, previous);
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
        circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        assert_eq!(
            destroy_reason(&world.expect(client, ChanCmd::DESTROY)),
            DestroyReason::PROTOCOL
        );
        assert!(world.connects.is_empty());
        assert_eq!(world.halves(), 0);
    };
    let mut open = RelayParams::new(OWN_RSA, OWN_ED);
    open.extend_to_private = true;
    refused(
        open.clone(),
        CLIENT,
        Circuit::extend_message(OWN_RSA.0[0], &[1; 84]),
    );
    refused(
        open.clone(),
        relay_identity(9),
        Circuit::extend_message(9, &[1; 84]),
    );
    // An identity of zeros, which only a hostile client writes.
    let mut nobody = Circuit::extend_message(7, &[1; 84]);
    for byte in nobody.iter_mut().skip(9).filter(|byte| **byte == 7) {
        *byte = 0;
    }
    refused(open.clone(), CLIENT, nobody);
    refused(open, CLIENT, b"no such message".to_vec());
    let closed = RelayParams::new(OWN_RSA, OWN_ED);
    refused(closed, CLIENT, Circuit::extend_message(9, &[1; 84]));
}

#[test]
fn extend_outside_relay_early_or_twice_ends_the_circuit() {
    let (mut world, mut circuit) = spliced(2, 0, 1, 8);
    let message = Circuit::extend_message(7, &[1; 84]);
    circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    assert_eq!(
        destroy_reason(&world.expect(circuit.client.0, ChanCmd::DESTROY)),
        DestroyReason::PROTOCOL
    );
    assert_eq!(world.halves(), 0);

    let mut world = World::new(1, 8);
    let client = world.link_on(0, CLIENT);
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    let cell = circuit.forward(
        &mut world,
        0,
        ChanCmd::RELAY,
        RelayCmd::EXTEND2,
        0,
        &message,
    );
    world.receive(client, &cell);
    world.settle();
    world.expect(client, ChanCmd::DESTROY);
    assert_eq!(world.halves(), 0);
}

#[test]
fn an_extension_has_its_own_time_however_old_the_circuit_is() {
    let mut world = World::new(2, 1);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    world.pass(Duration::from_secs(59));
    let message = Circuit::extend_message(5, &[1; 84]);
    circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    world.pass(Duration::from_secs(5));
    assert_eq!(
        world.halves(),
        1,
        "the CREATE's time is over, the EXTEND2's is not"
    );
    // Cut short and begun again: the first EXTEND2's time is not the second's.
    world.pass(Duration::from_secs(50));
    circuit.send(&mut world, 0, RelayCmd::TRUNCATE, &[0]);
    circuit.send(
        &mut world,
        0,
        RelayCmd::EXTEND2,
        &Circuit::extend_message(9, &[1; 84]),
    );
    world.settle();
    world.expect(next, ChanCmd::CREATE2);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.halves(), 2);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.halves(), 0);
}

#[test]
fn a_circuit_that_ends_before_its_create2_is_sent_is_not_destroyed_there() {
    let mut world = World::new(2, 4);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    world.room = 0;
    let message = Circuit::extend_message(9, &[1; 84]);
    circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    assert_eq!(world.halves(), 2);
    world.close(client);
    world.settle();
    world.room = u32::MAX;
    world.settle();
    assert!(world.take(next).is_none());
    assert_eq!(world.halves(), 0);
}

#[test]
fn an_extension_that_finds_its_link_gone_gets_another() {
    let mut world = World::new(2, 4);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    let message = Circuit::extend_message(9, &[1; 84]);
    circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    // The controller chooses the link; the link closes before the message arrives.
    world.carry_to_controller();
    world.close(next);
    world.settle();
    assert_eq!(world.connects.len(), 1, "a new connection is opened");
    assert_eq!(world.halves(), 1);
}
