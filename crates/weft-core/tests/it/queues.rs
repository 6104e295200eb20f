//! Waiting times of cells in circuits' queues, while they are measured.

use std::time::Duration;

use crate::world::{CLIENT, Circuit, OWN_ED, OWN_RSA, World, relay_identity};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::message::{CommandUse, QueueKind, QueueUse};
use weft_core::params::RelayParams;

const PERIOD: Duration = Duration::from_secs(1);

/// A circuit over two links, which are on two threads.
fn spliced(period: Option<Duration>) -> (World, Circuit) {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.measure_queues = period;
    let mut world = World::with_params(2, 1, params);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 9, next);
    (world, circuit)
}

/// Current reports of all threads: of the circuit's queue to the client, then of the other one.
fn reports(world: &mut World) -> Vec<QueueUse> {
    let now = world.now;
    let managers = world.managers.iter_mut();
    managers
        .flat_map(|manager| manager.take_queue_use(now))
        .collect()
}

fn of_command(used: &QueueUse, command: ChanCmd) -> CommandUse {
    let command = u8::from(command);
    let mut found = used.commands.iter().filter(|used| used.command == command);
    found.next().copied().unwrap_or_default()
}

#[test]
fn each_cell_is_counted_with_the_time_that_it_waited() {
    let (mut world, mut circuit) = spliced(Some(PERIOD));
    assert_eq!(reports(&mut world), [], "this only begins the period");
    // Nothing is chosen before two seconds have passed.
    world.room = 0;
    for _ in 0..3 {
        circuit.send(&mut world, 1, RelayCmd::DATA, b"x");
    }
    circuit.answer(&mut world, b"x");
    world.settle();
    world.now += 2 * PERIOD;
    world.room = u32::MAX;
    circuit.answer(&mut world, b"y");
    world.settle();
    let all = reports(&mut world);
    let [inbound, outbound] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(
        (inbound.kind, outbound.kind),
        (QueueKind::Inbound, QueueKind::Outbound)
    );
    assert_eq!(inbound.circuit, outbound.circuit);
    let (next, next_id) = circuit.next.unwrap();
    assert_eq!((inbound.connection, inbound.circ_id), circuit.client);
    assert_eq!((outbound.connection, outbound.circ_id), (next, next_id));
    // EXTENDED2 and two cells of data, of which the first waited.
    let relayed = of_command(inbound, ChanCmd::RELAY);
    assert_eq!((relayed.cells, relayed.waited), (3, 2 * PERIOD));
    assert_eq!(of_command(inbound, ChanCmd::CREATED2).cells, 1);
    let relayed = of_command(outbound, ChanCmd::RELAY);
    assert_eq!((relayed.cells, relayed.waited), (3, 6 * PERIOD));
    assert_eq!(outbound.total(), (4, 6 * PERIOD), "with CREATE2");
    assert!(!inbound.closed && !outbound.closed);
    // All of it was reported, and the next report is due in a second.
    circuit.answer(&mut world, b"z");
    world.settle();
    assert_eq!(reports(&mut world), []);
    world.now += PERIOD;
    assert_eq!(reports(&mut world).len(), 1);
}

#[test]
fn the_end_of_a_circuit_is_reported_at_once_with_what_was_not_reported_yet() {
    let (mut world, circuit) = spliced(Some(60 * PERIOD));
    let (client, id) = circuit.client;
    let reason = DestroyReason::REQUESTED;
    world.receive(client, &Destroy { reason }.encode(id));
    world.settle();
    let all = reports(&mut world);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.iter().all(|used| used.closed && used.total().0 > 0));
    // A circuit without a cell since the last report ends, too.
    let (mut world, circuit) = spliced(Some(PERIOD));
    reports(&mut world);
    world.now += PERIOD;
    assert_eq!(reports(&mut world).len(), 2);
    world.close(circuit.client.0);
    world.settle();
    let all = reports(&mut world);
    let over: Vec<_> = all
        .iter()
        .filter(|used| used.kind == QueueKind::Inbound)
        .collect();
    assert!(
        matches!(over.as_slice(), [one] if one.closed && one.commands.is_empty()),
        "{all:?}"
    );
}

#[test]
fn what_was_measured_on_a_link_that_moves_is_not_lost() {
    let (mut world, mut circuit) = spliced(Some(60 * PERIOD));
    let mut found = count(&reports(&mut world));
    for _ in 0..20 {
        circuit.send(&mut world, 1, RelayCmd::DATA, b"x");
        world.moves = 1;
        world.settle();
        found += count(&reports(&mut world));
    }
    let moved: u64 = (world.managers.iter())
        .map(|manager| manager.totals().links_moved)
        .sum();
    assert!(moved > 0, "the test would show nothing");
    world.now += 60 * PERIOD;
    found += count(&reports(&mut world));
    assert_eq!(found, 20);
}

#[test]
fn what_is_measured_counts_as_memory_and_is_forgotten_when_that_is_short() {
    let held = |world: &World| -> u64 {
        let managers = world.managers.iter();
        managers
            .map(|manager| manager.ledger(world.now).total())
            .sum()
    };
    let (mut measured, _circuit) = spliced(Some(60 * PERIOD));
    let (plain, _other) = spliced(None);
    reports(&mut measured);
    // A queue each way, with two commands in one and one in the other.
    let commands = 3 * size_of::<CommandUse>() as u64;
    assert!(held(&measured) >= held(&plain) + commands);
    // Nobody weighs that much.
    measured.free_heavier(u64::MAX, 1);
    measured.settle();
    measured.now += 60 * PERIOD;
    assert_eq!(reports(&mut measured), []);
    assert_eq!(measured.totals().killed_for_memory, 0);
}

fn count(all: &[QueueUse]) -> u64 {
    let outbound = all.iter().filter(|used| used.kind == QueueKind::Outbound);
    outbound
        .map(|used| of_command(used, ChanCmd::RELAY).cells)
        .sum()
}

#[test]
fn nothing_is_measured_unless_it_is_wanted() {
    let (mut world, mut circuit) = spliced(None);
    circuit.answer(&mut world, b"x");
    world.settle();
    world.now += 60 * PERIOD;
    assert_eq!(reports(&mut world), []);
}
