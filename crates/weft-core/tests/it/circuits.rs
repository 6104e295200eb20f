//! Circuits across connection threads: extended, carrying data and destroyed across every pair of
//! threads, in every order that a seed can make of the messages between them.

use std::time::Duration;

use crate::world::{CLIENT, Circuit, World, destroy_reason, relay_identity, spliced};
use weft_cell::circ_msg::CreateRequest;
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::controller::{FamilyCounts, Handled, HandshakeCounts};

#[test]
fn data_crosses_every_pair_of_threads_in_order_and_both_ways() {
    for from in 0..4 {
        for to in 0..4 {
            for seed in 0..4 {
                let (mut world, mut circuit) = spliced(4, from, to, seed);
                for n in 0..50u8 {
                    circuit.send(&mut world, 1, RelayCmd::DATA, &[n; 300]);
                    circuit.answer(&mut world, &[n; 498]);
                    if n % 7 == 0 {
                        world.settle();
                    }
                }
                world.settle();
                for n in 0..50u8 {
                    let (_, command, data) = circuit.at_next(&mut world);
                    assert_eq!((command, data), (RelayCmd::DATA, vec![n; 300]));
                    let (hop, command, data) = circuit.backward(&mut world);
                    assert_eq!((hop, command, data), (1, RelayCmd::DATA, vec![n; 498]));
                }
            }
        }
    }
}

#[test]
fn a_circuit_ends_on_both_sides_however_it_ends() {
    for from in 0..3 {
        for to in 0..3 {
            for seed in 0..6 {
                // The client destroys it.
                let (mut world, circuit) = spliced(3, from, to, seed);
                let (client, id) = circuit.client;
                let (next, next_id) = circuit.next.unwrap();
                let reason = DestroyReason::REQUESTED;
                world.receive(client, &Destroy { reason }.encode(id));
                world.settle();
                let cell = world.expect(next, ChanCmd::DESTROY);
                assert_eq!(cell.circ_id(), next_id);
                assert_eq!(destroy_reason(&cell), DestroyReason::DESTROYED);
                assert!(world.take(client).is_none());
                assert_eq!(world.halves(), 0);

                // The next hop destroys it.
                let (mut world, circuit) = spliced(3, from, to, seed);
                let (client, id) = circuit.client;
                let (next, next_id) = circuit.next.unwrap();
                world.receive(next, &Destroy { reason }.encode(next_id));
                world.settle();
                let cell = world.expect(client, ChanCmd::DESTROY);
                assert_eq!(cell.circ_id(), id);
                assert_eq!(destroy_reason(&cell), DestroyReason::DESTROYED);
                assert!(world.take(next).is_none());
                assert_eq!(world.halves(), 0);

                // Either connection goes away.
                for (gone, left) in [(client, next), (next, client)] {
                    let (mut world, circuit) = spliced(3, from, to, seed);
                    assert_eq!(circuit.client.0, client);
                    world.close(gone);
                    world.settle();
                    let cell = world.expect(left, ChanCmd::DESTROY);
                    assert_eq!(destroy_reason(&cell), DestroyReason::CHANNEL_CLOSED);
                    assert_eq!(world.halves(), 0);
                }

                // Both sides at once: no side is notified twice, nothing remains.
                let (mut world, circuit) = spliced(3, from, to, seed);
                world.receive(
                    circuit.client.0,
                    &Destroy { reason }.encode(circuit.client.1),
                );
                let (next, next_id) = circuit.next.unwrap();
                if from != to {
                    world.receive(next, &Destroy { reason }.encode(next_id));
                }
                world.settle();
                assert_eq!(world.halves(), 0);
            }
        }
    }
}

/// A CREATE2 that the next hop has is followed by DESTROY, whatever waits behind it; one that still waits is not.
#[test]
fn cells_that_wait_behind_a_create2_do_not_keep_its_circuit_at_the_next_hop() {
    for sent in [true, false] {
        for (from, to) in [(0, 0), (0, 1)] {
            let mut world = World::new(2, 1);
            let client = world.link_on(from, CLIENT);
            let next = world.link_on(to, relay_identity(9));
            let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
            if !sent {
                world.room = 0;
            }
            let message = Circuit::extend_message(9, &[1; 84]);
            circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
            world.settle();
            world.room = 0;
            // The next hop has not answered, and the client sends it cells that this node does not
            // recognize.
            for _ in 0..3 {
                world.receive(client, &Cell::new(0x8000_0001, ChanCmd::RELAY));
            }
            let reason = DestroyReason::NONE;
            world.receive(client, &Destroy { reason }.encode(0x8000_0001));
            world.settle();
            if sent {
                let create = world.expect(next, ChanCmd::CREATE2);
                let destroy = world.expect(next, ChanCmd::DESTROY);
                assert_eq!(destroy.circ_id(), create.circ_id());
            }
            assert!(world.take(next).is_none());
            assert_eq!(world.halves(), 0);
        }
    }
}

#[test]
fn relay_early_is_passed_on_counted_and_never_goes_toward_the_origin() {
    let (mut world, mut circuit) = spliced(2, 0, 1, 3);
    // One of eight went with EXTEND2.
    for _ in 0..7 {
        let cell = circuit.forward(
            &mut world,
            1,
            ChanCmd::RELAY_EARLY,
            RelayCmd::DATA,
            1,
            b"early",
        );
        world.receive(circuit.client.0, &cell);
    }
    world.settle();
    for _ in 0..7 {
        let (outer, _, data) = circuit.at_next(&mut world);
        assert_eq!((outer, &data[..]), (ChanCmd::RELAY_EARLY, &b"early"[..]));
    }
    let ninth = circuit.forward(&mut world, 1, ChanCmd::RELAY_EARLY, RelayCmd::DATA, 1, b"");
    world.receive(circuit.client.0, &ninth);
    world.settle();
    assert_eq!(
        destroy_reason(&world.expect(circuit.client.0, ChanCmd::DESTROY)),
        DestroyReason::PROTOCOL
    );

    let (mut world, circuit) = spliced(2, 0, 1, 3);
    let (next, next_id) = circuit.next.unwrap();
    world.receive(next, &Cell::new(next_id, ChanCmd::RELAY_EARLY));
    world.settle();
    for end in [next, circuit.client.0] {
        assert_eq!(
            destroy_reason(&world.expect(end, ChanCmd::DESTROY)),
            DestroyReason::PROTOCOL
        );
    }
}

#[test]
fn circuit_ids_follow_the_rules_of_the_side_that_opened_the_link() {
    let mut world = World::new(1, 2);
    let client = world.link_on(0, CLIENT);
    let create = CreateRequest::Fast { x: [1; 20] };
    // The peer opened the link: its ids have the high bit.
    world.receive(client, &create.encode(1).unwrap());
    world.settle();
    let cell = world.expect(client, ChanCmd::DESTROY);
    assert_eq!(
        (cell.circ_id(), destroy_reason(&cell)),
        (1, DestroyReason::PROTOCOL)
    );
    world.receive(client, &create.encode(0x8000_0001).unwrap());
    world.settle();
    world.expect(client, ChanCmd::CREATED_FAST);
    // A second one for the same id is dropped, not answered.
    world.receive(client, &create.encode(0x8000_0001).unwrap());
    // So is one for no circuit at all.
    world.receive(client, &create.encode(0).unwrap());
    world.settle();
    assert!(world.take(client).is_none());
    assert_eq!(world.halves(), 1);
    // TAP is over.
    world.receive(client, &Cell::new(0x8000_0002, ChanCmd::CREATE));
    world.settle();
    assert_eq!(
        destroy_reason(&world.expect(client, ChanCmd::DESTROY)),
        DestroyReason::PROTOCOL
    );
}

#[test]
fn what_is_not_a_circuit_s_business_ends_that_circuit_and_no_other() {
    let (mut world, mut circuit) = spliced(2, 0, 1, 4);
    let (client, _) = circuit.client;
    let mut other = Circuit::create(&mut world, client, 0x8000_0002);
    // An unrecognized cell on a circuit that ends here.
    world.receive(client, &Cell::new(0x8000_0002, ChanCmd::RELAY));
    world.settle();
    assert_eq!(
        world.expect(client, ChanCmd::DESTROY).circ_id(),
        0x8000_0002
    );
    other.next = None;
    // CREATED2 again, from the next hop, and for circuits that do not exist.
    let (next, next_id) = circuit.next.unwrap();
    world.receive(next, &Cell::new(12345, ChanCmd::CREATED2));
    world.receive(next, &Cell::new(12345, ChanCmd::RELAY));
    world.receive(next, &Cell::new(0, ChanCmd::PADDING));
    world.receive(next, &Cell::new(0, ChanCmd::NETINFO));
    world.settle();
    circuit.send(&mut world, 1, RelayCmd::DATA, b"still here");
    world.settle();
    assert_eq!(circuit.at_next(&mut world).2, b"still here");
    world.receive(next, &Cell::new(next_id, ChanCmd::CREATED2));
    world.settle();
    world.expect(next, ChanCmd::DESTROY);
    world.expect(client, ChanCmd::DESTROY);
    assert_eq!(world.halves(), 0);
}

#[test]
fn a_queue_that_nobody_reads_dies_at_its_bound_and_hurts_no_other() {
    let (mut world, mut circuit) = spliced(2, 0, 1, 4);
    let (client, _) = circuit.client;
    let (next, _) = circuit.next.unwrap();
    let quiet_client = world.link_on(0, CLIENT);
    let elsewhere = world.link_on(1, relay_identity(5));
    world.settle();
    let mut quiet = Circuit::create(&mut world, quiet_client, 0x8000_0001);
    quiet.extend(&mut world, 5, elsewhere);
    world.room = 0;
    let bound = world.managers[0].params().max_queue_forward;
    for _ in 0..=bound {
        assert_eq!(world.halves(), 4);
        circuit.send(&mut world, 1, RelayCmd::DATA, &[0; 10]);
        world.settle();
    }
    world.room = u32::MAX;
    world.settle();
    assert_eq!(
        destroy_reason(&world.expect(next, ChanCmd::DESTROY)),
        DestroyReason::RESOURCELIMIT
    );
    assert_eq!(world.halves(), 2);
    assert_eq!(
        destroy_reason(&world.expect(client, ChanCmd::DESTROY)),
        DestroyReason::RESOURCELIMIT
    );
    quiet.send(&mut world, 1, RelayCmd::DATA, b"unharmed");
    world.settle();
    assert_eq!(quiet.at_next(&mut world).2, b"unharmed");
    let totals = world.totals();
    assert_eq!(
        (totals.queues_overflowed, totals.queues_overflowed_forward),
        (1, 1)
    );
}

#[test]
fn what_peers_send_is_counted_and_every_circuit_once() {
    let (mut world, mut circuit) = spliced(2, 0, 1, 4);
    let (client, id) = circuit.client;
    let circuits = |world: &World| -> usize { world.managers.iter().map(|it| it.circuits()).sum() };
    assert_eq!((world.halves(), circuits(&world)), (2, 1));
    circuit.send(&mut world, 0, RelayCmd::DROP, b"");
    circuit.send(&mut world, 0, RelayCmd::DROP, b"");
    world.settle();
    assert_eq!(world.totals().drops_received, 2);
    assert_eq!(world.totals().destroys_received, 0);
    let reason = DestroyReason::REQUESTED;
    world.receive(client, &Destroy { reason }.encode(id));
    // For a circuit that does not exist, too.
    world.receive(client, &Destroy { reason }.encode(id + 1));
    world.settle();
    assert_eq!(world.totals().destroys_received, 2);
    assert_eq!(circuits(&world), 0);
}

#[test]
fn connections_and_the_onionskins_of_relays_are_counted_by_kind() {
    let mut world = World::new(1, 1);
    let client = world.link_on(0, CLIENT);
    let relay = world.link_on(0, relay_identity(5));
    world.settle();
    Circuit::create(&mut world, client, 0x8000_0001);
    let counts = world.controller.counts();
    assert_eq!(counts.relay_onionskins, HandshakeCounts::default());
    Circuit::create(&mut world, relay, 0x8000_0001);
    let counts = world.controller.counts();
    let one = Handled {
        processed: 1,
        dropped: 0,
    };
    assert_eq!(counts.relay_onionskins.ntor, one);
    assert_eq!(counts.onionskins, 2);
    let two = FamilyCounts { ipv4: 2, ipv6: 0 };
    assert_eq!(counts.booked.received, two);
    assert_eq!(world.controller.open_connections().received, two);
    world.close(client);
    world.settle();
    assert_eq!(world.controller.open_connections().received.ipv4, 1);
    assert_eq!(world.controller.counts().booked.received, two);
}

#[test]
fn the_oldest_queues_die_first_when_memory_is_short() {
    let (mut world, mut old) = spliced(2, 0, 1, 4);
    let (client, _) = old.client;
    let (next, _) = old.next.unwrap();
    let mut young = Circuit::create(&mut world, client, 0x8000_0002);
    young.extend(&mut world, 9, next);
    world.room = 0;
    old.send(&mut world, 1, RelayCmd::DATA, b"old");
    world.settle();
    world.now += Duration::from_secs(10);
    young.send(&mut world, 1, RelayCmd::DATA, b"young");
    world.settle();
    world.free_heavier_on(1, 1, 1);
    let totals = world.totals();
    assert_eq!(totals.killed_for_memory, 1);
    assert!(totals.freed_for_memory > 514, "{totals:?}");
    world.room = u32::MAX;
    world.settle();
    assert_eq!(world.halves(), 2);
    assert_eq!(
        world.expect(client, ChanCmd::DESTROY).circ_id(),
        old.client.1
    );
    assert_eq!(young.at_next(&mut world).2, b"young");
    world.expect(next, ChanCmd::DESTROY);
}

#[test]
fn a_draining_relay_refuses_new_circuits_and_keeps_the_old() {
    let (mut world, mut circuit) = spliced(2, 0, 1, 4);
    world.controller.set_draining(true);
    world.do_actions();
    world.settle();
    let create = CreateRequest::Fast { x: [1; 20] };
    world.receive(circuit.client.0, &create.encode(0x8000_0009).unwrap());
    world.settle();
    assert_eq!(
        destroy_reason(&world.expect(circuit.client.0, ChanCmd::DESTROY)),
        DestroyReason::HIBERNATING
    );
    circuit.send(&mut world, 1, RelayCmd::DATA, b"old");
    world.settle();
    assert_eq!(circuit.at_next(&mut world).2, b"old");
    // One that has slept takes them again.
    world.controller.set_draining(false);
    world.do_actions();
    world.settle();
    world.receive(circuit.client.0, &create.encode(0x8000_000a).unwrap());
    world.settle();
    world.expect(circuit.client.0, ChanCmd::CREATED_FAST);
}

/// Lets minutes pass. The links that closed in each of them.
fn closed_by_minute(world: &mut World, minutes: u64) -> Vec<(u64, ConnectionId)> {
    let mut closed = Vec::new();
    for minute in 1..=minutes {
        for _ in 0..60 {
            world.now += Duration::from_secs(1);
            world.tick();
        }
        closed.extend(world.closed.drain(..).map(|id| (minute, id)));
    }
    closed
}

#[test]
fn links_without_circuits_expire_and_links_with_circuits_do_not() {
    let (mut world, circuit) = spliced(2, 0, 1, 4);
    world.list(&[5, 6]);
    let links = |world: &mut World, peer| -> Vec<ConnectionId> {
        let links = (0..8).map(|thread| world.link_on(thread % 2, peer));
        links.collect()
    };
    let clients = links(&mut world, CLIENT);
    // An identity proves nothing: anybody can make one.
    let made_up = links(&mut world, relay_identity(77));
    let relays = links(&mut world, relay_identity(5));
    world.settle();
    // C tor: 3 to 4.5 minutes, and what the consensus has, a quarter more or less.
    let closed = closed_by_minute(&mut world, 80);
    let minutes = |of: &[ConnectionId]| -> Vec<u64> {
        let of_these = closed.iter().filter(|(_, id)| of.contains(id));
        of_these.map(|(minute, _)| *minute).collect()
    };
    for (of, from, to) in [(&clients, 3, 5), (&made_up, 3, 5), (&relays, 45, 75)] {
        let minutes = minutes(of);
        assert_eq!(minutes.len(), of.len());
        assert!(
            minutes.iter().all(|minute| (from..=to).contains(minute)),
            "{minutes:?}"
        );
        assert_ne!(
            minutes.first(),
            minutes.last(),
            "each has a time of its own"
        );
    }
    assert!(circuit.next.is_some());
    assert_eq!(world.halves(), 2);
}

#[test]
fn how_long_a_link_may_be_idle_follows_the_consensus_wherever_the_link_is() {
    let mut world = World::new(2, 4);
    world.list(&[5]);
    let [listed, other] = [5, 6].map(|relay| world.link_on(0, relay_identity(relay)));
    world.settle();
    // One moves while it becomes known.
    world.moves = 3;
    world.list(&[6]);
    world.do_actions();
    world.settle();
    world.moves = 0;
    let closed = closed_by_minute(&mut world, 5);
    assert_eq!(
        closed.iter().map(|(_, id)| *id).collect::<Vec<_>>(),
        [listed]
    );
    assert!(world.is_open(other));
    world.list(&[]);
    world.do_actions();
    world.settle();
    assert_eq!(closed_by_minute(&mut world, 1), [(1, other)]);
}

#[test]
fn a_peer_that_makes_us_answer_and_does_not_read_is_cut_off() {
    let mut world = World::new(1, 4);
    let client = world.link_on(0, CLIENT);
    let link = world.managers[0].links().of(client).unwrap();
    let now = world.now;
    let create = CreateRequest::Fast { x: [1; 20] }.encode(1).unwrap();
    let mut refused = false;
    for _ in 0..200_000 {
        if world.managers[0]
            .receive(link, create.as_bytes(), now)
            .is_err()
        {
            refused = true;
            break;
        }
    }
    assert!(refused);
}

#[test]
fn a_bulk_circuit_does_not_starve_an_interactive_one_on_the_same_link() {
    let (mut world, mut bulk) = spliced(1, 0, 0, 4);
    let (client, _) = bulk.client;
    let (next, _) = bulk.next.unwrap();
    let mut interactive = Circuit::create(&mut world, client, 0x8000_0002);
    interactive.extend(&mut world, 9, next);
    // The link takes ten cells a run; the bulk circuit keeps a hundred waiting, and more each
    // round. The interactive cell goes in the first run.
    world.room = 10;
    for round in 0..20u8 {
        for _ in 0..100 {
            bulk.send(&mut world, 1, RelayCmd::DATA, &[0; 498]);
        }
        interactive.send(&mut world, 1, RelayCmd::DATA, &[round]);
        world.settle();
        let (_, interactive_id) = interactive.next.unwrap();
        let mut waited = 0;
        loop {
            let cell = world
                .take(next)
                .expect("the interactive cell is among the first");
            if cell.circ_id() == interactive_id {
                break;
            }
            waited += 1;
        }
        assert!(waited < 10, "round {round}: {waited} bulk cells went first");
        world.written.get_mut(&next).unwrap().clear();
    }
}

#[test]
fn the_end_of_one_link_does_not_cut_off_the_peers_of_its_circuits() {
    let mut world = World::new(1, 4);
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(0, relay_identity(9));
    world.settle();
    // More than are made into cells at once.
    let count = 600;
    for n in 0..count {
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001 + n);
        circuit.extend(&mut world, 9, next);
    }
    world.not_reading.push(next);
    world.close(client);
    world.settle();
    world.receive(next, &Cell::new(0, ChanCmd::PADDING));
    world.not_reading.clear();
    world.settle();
    let destroys = world.written[&next].len();
    assert_eq!(destroys, usize::try_from(count).unwrap());
}
