//! Each circuit has a connection of its own to the next relay (PCTLS: Pahl et al. 2023, 5.1).

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::controller::{ControllerParams, Sharing};
use weft_core::dos::DosParams;
use weft_core::handshake::PeerIdentity;
use weft_core::params::RelayParams;
use world::{Circuit, Connect, OWN_ED, OWN_RSA, World, relay_identity};

/// The relay that all circuits are extended to.
const NEXT: u8 = 9;

/// A relay of two threads whose circuits have connections of their own, but for these bounds.
fn world(per_relay: usize, total: usize) -> World {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.report_load = true;
    let mut world = World::with_params(2, 1, params);
    world
        .controller
        .set_params(controller(Sharing::PerCircuit { per_relay, total }));
    world.list(&[NEXT]);
    world
}

fn controller(sharing: Sharing) -> ControllerParams {
    ControllerParams {
        max_connections: 1000,
        workers: 1,
        max_onionskins: 1000,
        max_onion_delay: Duration::from_secs(60),
        max_memory: 1 << 30,
        dos: DosParams::default(),
        sharing,
    }
}

/// Asks for so many extensions at once, of circuits with ids from `first`.
fn extend(world: &mut World, client: ConnectionId, first: u32, count: u32) {
    for id in first..first + count {
        let mut circuit = Circuit::create(world, client, 0x8000_0000 + id);
        circuit.send(
            world,
            0,
            RelayCmd::EXTEND2,
            &Circuit::extend_message(NEXT, &[1; 84]),
        );
    }
    world.settle();
}

/// Lets connections that the controller wants come up.
fn come_up(world: &mut World, connects: &[Connect]) {
    for connect in connects {
        let thread = usize::from(connect.thread.0);
        world.open(connect.connection, thread, true, relay_identity(NEXT));
        world.settle();
    }
}

/// The CREATE2s that have been sent on each connection.
fn creates(world: &mut World, connects: &[Connect]) -> BTreeMap<ConnectionId, usize> {
    let mut sent = BTreeMap::new();
    for connect in connects {
        let id = connect.connection;
        let count = std::iter::from_fn(|| world.take(id))
            .filter(|cell| cell.command() == ChanCmd::CREATE2)
            .count();
        sent.insert(id, count);
    }
    sent
}

/// The client ends a circuit.
fn end(world: &mut World, client: ConnectionId, id: u32) {
    let destroy = Destroy {
        reason: DestroyReason::REQUESTED,
    };
    world.receive(client, &destroy.encode(0x8000_0000 + id));
    world.settle();
}

#[test]
fn circuits_that_are_extended_at_once_get_a_connection_each_in_any_order() {
    // The paper's prototype has a race here: several circuits take the first connection that opens.
    for reversed in [false, true] {
        let mut world = world(64, 500);
        let client = world.link_on(0, PeerIdentity::Unauthenticated);
        extend(&mut world, client, 1, 8);
        let mut connects = world.connects.clone();
        assert_eq!(connects.len(), 8);
        if reversed {
            connects.reverse();
        }
        come_up(&mut world, &connects);
        let sent = creates(&mut world, &connects);
        assert!(sent.values().all(|count| *count == 1), "{sent:?}");
        let counts = world.controller.counts();
        assert_eq!((counts.connected, counts.connected_again), (8, 7));
        assert_eq!(counts.extends_shared, 0);
        world.audit();
    }
}

#[test]
fn past_the_bound_of_a_relay_circuits_share_and_fewest_come_first() {
    let mut world = world(3, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    // Seven at once: three connections, for which two or three wait each.
    extend(&mut world, client, 1, 7);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 3);
    come_up(&mut world, &connects);
    let sent = creates(&mut world, &connects);
    assert_eq!(sent.values().copied().collect::<Vec<_>>(), [3, 2, 2]);
    // The next two find connections that are open: those with two.
    extend(&mut world, client, 8, 2);
    let sent = creates(&mut world, &connects);
    assert_eq!(sent.values().copied().collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(world.connects.len(), 3);
    assert_eq!(world.controller.counts().extends_shared, 6);
    world.audit();
}

#[test]
fn past_the_bound_of_all_connections_circuits_share() {
    // The client's connection is one of three.
    let mut world = world(64, 3);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 6);
    assert_eq!(world.connects.len(), 2);
    let connects = world.connects.clone();
    come_up(&mut world, &connects);
    let sent = creates(&mut world, &connects);
    assert!(sent.values().all(|count| *count == 3), "{sent:?}");
}

#[test]
fn a_connection_whose_circuit_has_ended_takes_the_next_one() {
    let mut world = world(64, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 2);
    let connects = world.connects.clone();
    come_up(&mut world, &connects);
    creates(&mut world, &connects);
    end(&mut world, client, 2);
    extend(&mut world, client, 3, 1);
    assert_eq!(world.connects.len(), 2);
    let sent = creates(&mut world, &connects);
    assert_eq!(sent[&connects[0].connection], 0);
    assert_eq!(sent[&connects[1].connection], 1);
    assert_eq!(world.controller.counts().connected, 2);
}

#[test]
fn a_circuit_that_ended_while_its_connection_opened_leaves_it_to_the_next() {
    let mut world = world(64, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 1);
    let connects = world.connects.clone();
    end(&mut world, client, 1);
    come_up(&mut world, &connects);
    creates(&mut world, &connects);
    extend(&mut world, client, 2, 1);
    assert_eq!(world.connects.len(), 1);
    assert_eq!(creates(&mut world, &connects)[&connects[0].connection], 1);
    world.audit();
}

#[test]
fn a_connection_that_the_relay_opened_is_shared_only_at_the_bound() {
    let mut world = world(2, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    let theirs = world.link_from("127.0.0.9:9001", 0, relay_identity(NEXT));
    Circuit::create(&mut world, theirs, 0x8000_0001);
    extend(&mut world, client, 1, 1);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 1, "theirs carries a circuit");
    come_up(&mut world, &connects);
    assert_eq!(creates(&mut world, &connects)[&connects[0].connection], 1);
    // Two connections with a circuit each: the oldest takes the next one.
    extend(&mut world, client, 2, 1);
    world.expect(theirs, ChanCmd::CREATE2);
}

#[test]
fn a_connection_that_fails_leaves_its_circuit_to_one_that_is_open() {
    let mut world = world(64, 500);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 2);
    let connects = world.connects.clone();
    come_up(&mut world, &connects[..1]);
    let failed = connects[1];
    world.managers[usize::from(failed.thread.0)]
        .connection_failed(failed.connection, DestroyReason::CONNECTFAILED);
    world.settle();
    assert_eq!(
        creates(&mut world, &connects[..1])[&connects[0].connection],
        2
    );
    world.audit();
}

#[test]
fn it_can_be_switched_on_while_circuits_run() {
    let mut world = World::new(2, 1);
    world.list(&[NEXT]);
    let client = world.link_on(0, PeerIdentity::Unauthenticated);
    extend(&mut world, client, 1, 3);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 1);
    come_up(&mut world, &connects);
    assert_eq!(creates(&mut world, &connects)[&connects[0].connection], 3);

    let sharing = Sharing::PerCircuit {
        per_relay: 2,
        total: 500,
    };
    world.controller.set_params(controller(sharing));
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.report_load = true;
    world
        .controller
        .set_relay_params(&std::sync::Arc::new(params));
    world.settle();
    extend(&mut world, client, 4, 4);
    let connects = world.connects.clone();
    assert_eq!(connects.len(), 2);
    come_up(&mut world, &connects[1..]);
    let sent = creates(&mut world, &connects);
    // The first three wait for the second connection; then both have three, and one is open.
    assert_eq!(sent.values().copied().collect::<Vec<_>>(), [1, 3]);
}
