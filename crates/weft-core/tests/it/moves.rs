//! Links move from thread to thread while everything goes on: no cell is lost, none comes twice or early, and nothing
//! is left behind.

use std::net::SocketAddr;
use std::time::Duration;

use crate::world::{
    CLIENT, Circuit, OWN_ED, OWN_RSA, World, destroy_reason, relay_identity, spliced,
};
use rand::RngExt as _;
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::memory::ledger::Ledger;
use weft_core::message::{Report, RingDepths, ToController, Totals};
use weft_core::moves::routes::MOST_CIRCUITS;
use weft_core::params::RelayParams;

const SEEDS: u64 = 60;

/// Lets some things happen, with moves among them.
fn shuffle(world: &mut World) {
    for _ in 0..world.rng().random_range(0..6) {
        if world.rng().random_bool(0.3) {
            world.move_any();
        }
        let pick = world.rng().random_range(0..1 << 16);
        world.step(pick);
    }
}

/// The move of this link, and nothing else.
fn move_to(world: &mut World, connection: ConnectionId, to: u16) {
    assert!(world.controller.move_link(connection, ThreadId(to)));
    world.do_actions();
    world.settle();
}

#[test]
fn cells_arrive_once_and_in_order_while_the_links_of_a_circuit_move() {
    for seed in 0..SEEDS {
        let threads = 2 + (seed % 3) as u16;
        let (mut world, mut circuit) = spliced(threads, 0, 1, seed);
        for number in 0..150u32 {
            let data = number.to_be_bytes();
            circuit.send(&mut world, 1, RelayCmd::DATA, &data);
            circuit.answer(&mut world, &data);
            shuffle(&mut world);
        }
        world.settle();
        for number in 0..150u32 {
            let expected = number.to_be_bytes().to_vec();
            let forward = circuit.at_next(&mut world);
            assert_eq!(forward, (ChanCmd::RELAY, RelayCmd::DATA, expected.clone()));
            let backward = circuit.backward(&mut world);
            assert_eq!(backward, (1, RelayCmd::DATA, expected), "seed {seed}");
        }
        assert_eq!(world.totals().cells_dropped, 0);
        let moved = world.totals();
        assert!(
            moved.links_moved > 10 && moved.halves_moved >= moved.links_moved,
            "{moved:?}"
        );
        world.close(circuit.client.0);
        world.settle();
        assert_eq!(world.halves(), 0);
        world.audit_at_rest();
    }
}

#[test]
fn circuits_are_made_and_extended_while_links_move() {
    for seed in 0..SEEDS {
        let mut world = World::new(3, seed);
        world.moves = 3;
        let clients = [world.link_on(0, CLIENT), world.link_on(1, CLIENT)];
        let next = world.link_on(2, relay_identity(9));
        world.settle();
        for round in 0..10u32 {
            let client = clients[(round % 2) as usize];
            let mut circuit = Circuit::create(&mut world, client, 0x8000_0001 + round);
            circuit.extend(&mut world, 9, next);
            circuit.send(&mut world, 1, RelayCmd::DATA, b"there");
            circuit.answer(&mut world, b"back");
            world.settle();
            assert_eq!(circuit.at_next(&mut world).2, b"there");
            assert_eq!(circuit.backward(&mut world).2, b"back");
        }
        assert_eq!(world.halves(), 20);
    }
}

#[test]
fn a_half_keeps_its_address_when_its_link_moves_on_and_comes_home() {
    for seed in 0..10 {
        let (mut world, mut circuit) = spliced(3, 0, 1, seed);
        let (client, next) = (circuit.client.0, circuit.next.unwrap().0);
        let before = world.managers[0].inspect().joints();
        for to in [1, 2, 0, 2] {
            move_to(&mut world, client, to);
            let thread = usize::from(to);
            let joints = world.managers[thread].inspect().joints();
            assert!(
                before.iter().all(|joint| joints.contains(joint)),
                "{joints:?}"
            );
            circuit.send(&mut world, 1, RelayCmd::DATA, b"there");
            circuit.answer(&mut world, b"back");
            world.settle();
            assert_eq!(circuit.at_next(&mut world).2, b"there");
            assert_eq!(circuit.backward(&mut world).2, b"back");
        }
        assert!(
            !world.controller.move_link(client, ThreadId(2)),
            "it is there"
        );
        assert!(
            !world.controller.move_link(client, ThreadId(9)),
            "there is no such thread"
        );
        assert!(!world.controller.move_link(ConnectionId(999), ThreadId(0)));
        world.close(next);
        world.settle();
        assert_eq!(world.halves(), 0);
        assert!(
            world
                .managers
                .iter()
                .all(|manager| manager.inspect().routes() == 0)
        );
    }
}

#[test]
fn links_and_circuits_end_while_links_move() {
    for seed in 0..4 * SEEDS {
        let (mut world, mut circuit) = spliced(3, 0, 1, seed);
        let (client, next) = (circuit.client, circuit.next.unwrap());
        for number in 0..5u32 {
            circuit.send(&mut world, 1, RelayCmd::DATA, &number.to_be_bytes());
            shuffle(&mut world);
        }
        let destroy = |circ_id| {
            Destroy {
                reason: DestroyReason::NONE,
            }
            .encode(circ_id)
        };
        let ends_next = match seed % 5 {
            0 => {
                world.close(client.0);
                true
            }
            1 => {
                world.close(next.0);
                false
            }
            2 => {
                world.receive(client.0, &destroy(client.1));
                true
            }
            3 => {
                world.receive(next.0, &destroy(next.1));
                false
            }
            _ => {
                // Both at once, each on its way.
                world.receive(next.0, &destroy(next.1));
                world.receive(client.0, &destroy(client.1));
                shuffle(&mut world);
                world.settle();
                assert_eq!(world.halves(), 0, "seed {seed}");
                continue;
            }
        };
        world.settle();
        assert_eq!(world.halves(), 0, "seed {seed}");
        let asked = if ends_next { next } else { client };
        let mut last = None;
        while let Some(cell) = world.take(asked.0) {
            last = Some(cell);
        }
        let last = last.expect("a DESTROY at least");
        assert_eq!(
            (last.command(), last.circ_id()),
            (ChanCmd::DESTROY, asked.1)
        );
        let _ = destroy_reason(&last);
    }
}

#[test]
fn an_extension_that_comes_while_its_link_moves_is_made() {
    for seed in 0..SEEDS {
        let mut world = World::new(3, seed);
        let client = world.link_on(0, CLIENT);
        let next = world.link_on(1, relay_identity(9));
        world.settle();
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
        // The onionskin's answer, the join and CREATED2 each find a link on its way.
        assert!(world.controller.move_link(next, ThreadId(2)));
        world.do_actions();
        for _ in 0..world.rng().random_range(0..8) {
            let pick = world.rng().random_range(0..1 << 16);
            world.step(pick);
        }
        world.moves = 4;
        circuit.extend(&mut world, 9, next);
        assert!(world.totals().links_moved >= 1);
    }
}

#[test]
fn circuits_are_truncated_while_links_move() {
    for seed in 0..SEEDS {
        let (mut world, mut circuit) = spliced(3, 0, 1, seed);
        world.moves = 3;
        let (client, next) = (circuit.client.0, circuit.next.unwrap().0);
        for round in 0..3u32 {
            circuit.send(&mut world, 0, RelayCmd::TRUNCATE, &[0]);
            shuffle(&mut world);
            world.settle();
            assert_eq!(circuit.backward(&mut world).1, RelayCmd::TRUNCATED);
            let (_, circ_id) = circuit.next.unwrap();
            assert_eq!(world.expect(next, ChanCmd::DESTROY).circ_id(), circ_id);
            circuit = Circuit::create(&mut world, client, 0x8000_0010 + round);
            circuit.extend(&mut world, 9, next);
        }
    }
}

#[test]
fn what_waits_in_queues_moves_with_its_link_and_is_counted_there() {
    let (mut world, mut circuit) = spliced(3, 0, 1, 1);
    let next = circuit.next.unwrap().0;
    world.room = 0;
    for number in 0..500u32 {
        circuit.send(&mut world, 1, RelayCmd::DATA, &number.to_be_bytes());
    }
    world.settle();
    let now = world.now;
    let held = |world: &World, thread: usize| world.managers[thread].ledger(now).owned();
    let (before, all) = (held(&world, 1), world.held());
    assert!(before > 500 * 514);
    move_to(&mut world, next, 2);
    assert!(
        held(&world, 1) < 50_000 && held(&world, 2) >= before,
        "{}",
        held(&world, 2)
    );
    assert!(world.held() < all + 100_000);
    world.room = u32::MAX;
    world.settle();
    for number in 0..500u32 {
        assert_eq!(circuit.at_next(&mut world).2, number.to_be_bytes());
    }
}

#[test]
fn what_is_kept_back_for_a_link_on_its_way_is_bounded_and_counted() {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.max_queue_forward = 100_000;
    let mut world = World::with_params(2, 1, params);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(1, relay_identity(9));
    world.settle();
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 9, next);
    assert!(world.controller.move_link(next, ThreadId(0)));
    world.do_actions();
    // Until the client's thread keeps back what is for the link, and not until the link has come.
    let mut steps = 0;
    while !world.managers[0].inspect().is_transferring() {
        world.step(steps);
        steps += 1;
    }
    let before = world.managers[0].ledger(world.now).total();
    let mut sent = 0u32;
    while !world.managers[0].holds_much() {
        circuit.send(&mut world, 1, RelayCmd::DATA, &sent.to_be_bytes());
        sent += 1;
        assert!(sent <= 5000, "a thread stops reading");
    }
    let after = world.managers[0].ledger(world.now).total();
    assert!(after - before >= u64::from(sent) * 514, "{before} {after}");
    world.settle();
    assert!(!world.managers[0].holds_much());
    for number in 0..sent {
        assert_eq!(circuit.at_next(&mut world).2, number.to_be_bytes());
    }
}

#[test]
fn a_link_with_too_many_circuits_to_be_packed_in_one_turn_stays() {
    let mut world = World::new(2, 1);
    let client = world.link_on(0, CLIENT);
    world.settle();
    let create = |world: &mut World, number: usize| {
        let circ_id = 0x8000_0001 + u32::try_from(number).unwrap();
        Circuit::create(world, client, circ_id)
    };
    for number in 0..MOST_CIRCUITS {
        create(&mut world, number);
    }
    move_to(&mut world, client, 1);
    assert_eq!(world.totals().links_moved, 1);
    create(&mut world, MOST_CIRCUITS);
    move_to(&mut world, client, 0);
    assert_eq!(world.totals().links_moved, 1, "it stays");
    assert!(!world.controller.is_moving(), "and others can move");
    assert_eq!(world.halves(), MOST_CIRCUITS + 1);
}

/// The report of a thread that holds nothing, and has worked for this time.
fn report(thread: u16, cpu: Duration) -> Report {
    Report {
        thread: ThreadId(thread),
        bytes_per_second: 0.0,
        ledger: Ledger::default(),
        buffered: 0,
        memory_rounds: 0,
        links: 0,
        halves: 0,
        circuits: 0,
        edges: 0,
        heaviest: Vec::new(),
        rings: RingDepths::default(),
        directions: Default::default(),
        exit_ports: Default::default(),
        activity: Default::default(),
        cpu,
        totals: Totals::default(),
    }
}

#[test]
fn threads_that_are_not_in_use_get_no_links_until_those_that_are_have_much_to_do() {
    let mut world = World::new(3, 1);
    world.controller.adapt_threads(3);
    assert_eq!(world.controller.threads_in_use(), 1);
    let peer = SocketAddr::from(([127, 0, 0, 1], 9001));
    let threads = |world: &mut World| -> Vec<u16> {
        let accepted = (0..6).map(|_| world.controller.accepted(peer, world.now));
        let mut threads: Vec<u16> = accepted.map(|accepted| accepted.unwrap().1.0).collect();
        threads.sort_unstable();
        threads
    };
    assert_eq!(threads(&mut world), [0; 6]);
    // Two seconds, in which the first works all the time.
    for quarter in 0..9 {
        world.now += Duration::from_millis(250);
        for thread in 0..3 {
            let cpu = match thread {
                0 => Duration::from_millis(250 * quarter),
                _ => Duration::ZERO,
            };
            let report = ToController::Report(Box::new(report(thread, cpu)));
            world.controller.handle(report, world.now);
        }
    }
    assert_eq!(world.controller.threads_in_use(), 2);
    assert_eq!(threads(&mut world)[..3], [1, 1, 1]);
}
