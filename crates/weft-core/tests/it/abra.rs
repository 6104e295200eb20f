//! A relay's weight: circuits ask for it, threads measure, the controller states it, circuits get it; and
//! what an origin does with those of its hops (docs/extensions/abra.md).

use std::time::Duration;

use crate::world::{CLIENT, Circuit, OWN_ED, OWN_RSA, World, destroy_reason, relay_identity};
use weft_cell::abra::{ASK, AbraReason, Statement};
use weft_cell::relay_command::RelayCommand;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::controller::AbraCounts;
use weft_core::params::RelayParams;

fn ask() -> RelayCmd {
    RelayCommand::AbraAsk.wire()
}

/// A relay that states its weight.
fn serving(threads: u16) -> World {
    World::new(threads, 3)
}

/// The link to the next hop.
fn next_hop(world: &mut World) -> ConnectionId {
    let next = world.link_on(0, relay_identity(9));
    world.settle();
    next
}

/// A circuit through it from a client on one of its threads to the next hop, whose link is on the first.
fn circuit_on(world: &mut World, thread: usize, next: ConnectionId) -> Circuit {
    let client = world.link_on(thread, CLIENT);
    world.settle();
    // DESTROYs of others.
    while world.take(next).is_some() {}
    let mut circuit = Circuit::create(world, client, 0x8000_0001);
    circuit.extend(world, 9, next);
    circuit
}

/// Lets milliseconds pass in which the relay's limits hold it back on all threads.
fn pass_limited(world: &mut World, time: Duration) {
    let end = world.now + time;
    while world.now < end {
        for manager in &mut world.managers {
            manager.note_limited();
        }
        world.pass(Duration::from_millis(250));
    }
}

/// The statements that a circuit was sent.
fn statements(world: &mut World, circuit: &mut Circuit) -> Vec<Statement> {
    let mut all = Vec::new();
    while let Some(mut cell) = world.take(circuit.client.0) {
        if cell.command() == ChanCmd::PADDING {
            continue;
        }
        assert_eq!(cell.command(), ChanCmd::RELAY);
        let hop = circuit.crypt.decrypt_backward(cell.body_mut());
        let body = weft_cell::relay::RelayBody::new(cell.body());
        assert_eq!(
            (hop, body.command(), body.stream_id()),
            (Some(0), RelayCommand::AbraWeight.wire(), 0)
        );
        all.push(Statement::decode(body.data().unwrap()).unwrap());
    }
    all
}

#[test]
fn a_circuit_that_asked_gets_a_statement_every_five_seconds() {
    let mut world = serving(2);
    let next = next_hop(&mut world);
    let mut circuit = circuit_on(&mut world, 1, next);
    circuit.send(&mut world, 0, ask(), &ASK);
    world.settle();
    // None had asked before: nothing is measured yet.
    assert_eq!(statements(&mut world, &mut circuit), []);
    world.pass(Duration::from_secs(7));
    assert!(!statements(&mut world, &mut circuit).is_empty());
    for _ in 0..4 {
        let before = world.statements;
        world.pass(Duration::from_secs(5));
        let [statement] = &statements(&mut world, &mut circuit)[..] else {
            panic!("one statement expected");
        };
        assert_eq!(statement.claim.weight, 0.0);
        assert_eq!(statement.claim.reason, AbraReason::BelowCapacity);
        // It was the newest one when it was sent.
        assert!(statement.claim.time + 1 >= before);
    }
    // A circuit that asks later has its answer at once, and it is the same.
    let mut other = circuit_on(&mut world, 0, next);
    other.send(&mut world, 0, ask(), &ASK);
    world.settle();
    let [answer] = &statements(&mut world, &mut other)[..] else {
        panic!("one statement expected");
    };
    assert_eq!(answer.claim.time, world.statements);
    assert_eq!(world.totals().abra_asked, 2);
}

#[test]
fn the_weight_of_a_relay_at_its_capacity_is_that_of_its_circuits_on_all_threads() {
    let mut world = serving(2);
    let next = next_hop(&mut world);
    let mut first = circuit_on(&mut world, 0, next);
    let mut other = circuit_on(&mut world, 1, next);
    first.send(&mut world, 0, ask(), &ASK);
    pass_limited(&mut world, Duration::from_secs(3));
    // In each bin of the test's world, which are longer, each circuit moves ten cells.
    for _ in 0..40 {
        for circuit in [&mut first, &mut other] {
            for _ in 0..10 {
                circuit.send(&mut world, 1, RelayCmd::DATA, &[5; 100]);
            }
        }
        pass_limited(&mut world, Duration::from_millis(250));
    }
    let statement = statements(&mut world, &mut first).pop().unwrap();
    assert_eq!(statement.claim.reason, AbraReason::OwnLimits);
    // 514 bytes of each cell in a tenth of a second.
    let rate = 10.0 * 514.0 * 8.0 * 10.0 / 1e6;
    let weight = world.controller.abra().weight;
    assert!((weight - 2.0 / rate).abs() < 1e-9, "{weight}");
    assert!((statement.claim.weight - weight).abs() < 1e-9);
}

#[test]
fn cells_in_both_directions_count() {
    let mut world = serving(2);
    let next = next_hop(&mut world);
    let mut circuit = circuit_on(&mut world, 1, next);
    circuit.send(&mut world, 0, ask(), &ASK);
    pass_limited(&mut world, Duration::from_secs(2));
    for _ in 0..8 {
        for _ in 0..3 {
            circuit.send(&mut world, 1, RelayCmd::DATA, &[5; 100]);
            circuit.answer(&mut world, &[6; 100]);
        }
        world.settle();
        pass_limited(&mut world, Duration::from_millis(250));
    }
    let AbraCounts { weight, .. } = world.controller.abra();
    // Statements of this relay's own count, too, where they fall into a bin: seven cells at most.
    let rate = |cells: f64| cells * 514.0 * 8.0 * 10.0 / 1e6;
    assert!(
        weight <= 1.0 / rate(6.0) + 1e-9 && weight >= 1.0 / rate(7.0) - 1e-9,
        "{weight}"
    );
}

#[test]
fn a_relay_that_does_not_serve_it_any_more_answers_nothing() {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    assert!(!params.serve_abra);
    let mut world = World::with_params(1, 1, params);
    let next = next_hop(&mut world);
    let mut circuit = circuit_on(&mut world, 0, next);
    for _ in 0..3 {
        circuit.send(&mut world, 0, ask(), &ASK);
    }
    world.pass(Duration::from_secs(10));
    assert_eq!(statements(&mut world, &mut circuit), []);
    assert_eq!(world.totals().protocol_errors, 0);
    assert_eq!(world.controller.abra().subscribers, 0);
    assert_ne!(world.halves(), 0);
}

#[test]
fn another_version_and_a_second_ask_within_a_second_close_the_circuit() {
    for bad in [&[][..], &[0], &[2], &[1, 0]] {
        let mut world = serving(1);
        let next = next_hop(&mut world);
        let mut circuit = circuit_on(&mut world, 0, next);
        circuit.send(&mut world, 0, ask(), bad);
        world.settle();
        assert_eq!(world.halves(), 0, "{bad:?}");
    }
    let mut world = serving(1);
    let next = next_hop(&mut world);
    let mut circuit = circuit_on(&mut world, 0, next);
    circuit.send(&mut world, 0, ask(), &ASK);
    world.pass(Duration::from_secs(1));
    circuit.send(&mut world, 0, ask(), &ASK);
    world.settle();
    assert_ne!(world.halves(), 0);
    statements(&mut world, &mut circuit);
    circuit.send(&mut world, 0, ask(), &ASK);
    world.settle();
    assert_eq!(world.halves(), 0);
    let destroy = world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(
        destroy_reason(&destroy),
        weft_cell::reason::DestroyReason::PROTOCOL
    );
}

#[test]
fn circuits_that_close_are_forgotten_and_nothing_is_measured_for_nobody() {
    let mut world = serving(2);
    let next = next_hop(&mut world);
    let mut links = Vec::new();
    for number in 0..8usize {
        let mut circuit = circuit_on(&mut world, number % 2, next);
        circuit.send(&mut world, 0, ask(), &ASK);
        world.settle();
        links.push(circuit.client.0);
    }
    world.pass(Duration::from_secs(3));
    assert_eq!(world.controller.abra().subscribers, 8);
    // Neither the first nor the last.
    for link in [3, 0, 5, 7, 1, 2, 6] {
        world.close(links[link]);
        world.settle();
        world.audit();
    }
    world.pass(Duration::from_secs(3));
    assert_eq!(world.controller.abra().subscribers, 1);
    world.close(links[4]);
    world.pass(Duration::from_secs(70));
    let stated = world.controller.abra().statements;
    world.pass(Duration::from_secs(10));
    assert_eq!(world.controller.abra().statements, stated);
    // And again for one that asks now.
    let mut circuit = circuit_on(&mut world, 1, next);
    circuit.send(&mut world, 0, ask(), &ASK);
    world.pass(Duration::from_secs(7));
    assert!(!statements(&mut world, &mut circuit).is_empty());
}

#[test]
fn a_circuit_that_is_joined_to_another_gets_no_more_statements() {
    let mut world = serving(2);
    let (one, other) = (world.link_on(0, CLIENT), world.link_on(1, CLIENT));
    let mut waiting = Circuit::create(&mut world, one, 0x8000_0001);
    let mut bringing = Circuit::create(&mut world, other, 0x8000_0001);
    waiting.send(&mut world, 0, ask(), &ASK);
    bringing.send(&mut world, 0, ask(), &ASK);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.controller.abra().subscribers, 2);
    let sent = |world: &World| world.totals().abra_sent;
    waiting.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[3; 20]);
    world.settle();
    bringing.send(&mut world, 0, RelayCmd::RENDEZVOUS1, &[3; 84]);
    world.settle();
    assert_eq!(world.totals().rendezvous.joined, 1);
    let before = sent(&world);
    world.pass(Duration::from_secs(12));
    assert_eq!(sent(&world), before);
    assert_eq!(world.controller.abra().subscribers, 0);
    assert_eq!(world.halves(), 2);
}

#[test]
fn a_client_that_does_not_read_gets_no_backlog_of_statements() {
    let mut world = serving(1);
    let next = next_hop(&mut world);
    let mut circuit = circuit_on(&mut world, 0, next);
    circuit.send(&mut world, 0, ask(), &ASK);
    world.pass(Duration::from_secs(2));
    world.room = 0;
    world.pass(Duration::from_secs(3000));
    // Answers that the queue takes before streams wait for it.
    assert!(
        world.totals().abra_sent <= 257,
        "{:?}",
        world.totals().abra_sent
    );
}
