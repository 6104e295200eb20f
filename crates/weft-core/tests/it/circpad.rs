//! Circuits that are padded because their clients ask for it (padding-spec 3).

use std::sync::Arc;
use std::time::Duration;

use crate::world::{CLIENT, Circuit, OWN_ED, OWN_RSA, World, relay_identity, spliced};
use weft_cell::circpad_msg::{CircpadCommand, CircpadNegotiate};
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::extensions::circpad::CircpadParams;
use weft_core::params::RelayParams;

const MSEC: Duration = Duration::from_millis(1);

const fn negotiate(command: CircpadCommand, machine: u8, counter: u32) -> CircpadNegotiate {
    CircpadNegotiate {
        command,
        machine,
        counter,
    }
}

const fn start(machine: u8, counter: u32) -> CircpadNegotiate {
    negotiate(CircpadCommand::Start, machine, counter)
}

const fn stop(machine: u8, counter: u32) -> CircpadNegotiate {
    negotiate(CircpadCommand::Stop, machine, counter)
}

fn ask(world: &mut World, circuit: &mut Circuit, message: CircpadNegotiate) {
    circuit.send_to_circuit(world, RelayCmd::PADDING_NEGOTIATE, &message.encode());
    world.settle();
}

fn is_answered(world: &mut World, circuit: &mut Circuit, message: CircpadNegotiate, granted: bool) {
    let (hop, command, data) = circuit.backward(world);
    assert_eq!((hop, command), (0, RelayCmd::PADDING_NEGOTIATED));
    assert_eq!(data, message.answer(granted));
}

/// DROPs within this number of milliseconds.
fn drops(world: &mut World, circuit: &mut Circuit, milliseconds: u32) -> usize {
    let mut drops = 0;
    for _ in 0..milliseconds {
        world.now += MSEC;
        world.tick();
        while world.written[&circuit.client.0]
            .front()
            .is_some_and(|cell| cell.command() == ChanCmd::RELAY)
        {
            let (hop, command, data) = circuit.backward(world);
            assert_eq!((hop, data.len()), (0, 0));
            assert_eq!(command, RelayCmd::DROP);
            drops += 1;
        }
    }
    drops
}

#[test]
fn a_client_that_is_introduced_gets_some_drops_and_then_the_machine_s_end() {
    for seed in 0..8 {
        let (mut world, mut circuit) = spliced(2, 0, 1, seed);
        ask(&mut world, &mut circuit, start(0, 1));
        is_answered(&mut world, &mut circuit, start(0, 1), true);
        let mut sent = 0;
        let mut milliseconds = 0;
        // The end of the machine comes behind its last DROP.
        loop {
            world.now += MSEC;
            milliseconds += 1;
            world.tick();
            let Some(cell) = world.written[&circuit.client.0].front() else {
                continue;
            };
            assert_eq!(cell.command(), ChanCmd::RELAY);
            let (_, command, data) = circuit.backward(&mut world);
            if command == RelayCmd::DROP {
                sent += 1;
                continue;
            }
            assert_eq!(command, RelayCmd::PADDING_NEGOTIATED);
            assert_eq!(data, stop(0, 1).answer(true));
            break;
        }
        assert!((7..10).contains(&sent), "{sent}");
        assert!((7..=100).contains(&milliseconds), "{milliseconds}");
        assert_eq!(drops(&mut world, &mut circuit, 50), 0);
        let totals = world.totals().circpad;
        assert_eq!((totals.started, totals.ended), (1, 1));
        assert_eq!(totals.drops_sent, sent);
        // The client's STOP crossed it: no answer. The next machine has the next number.
        ask(&mut world, &mut circuit, stop(0, 1));
        assert!(world.take(circuit.client.0).is_none());
        ask(&mut world, &mut circuit, start(0, 2));
        is_answered(&mut world, &mut circuit, start(0, 2), true);
        // With the circuit the machine ends.
        world.close(circuit.client.0);
        world.settle();
        world.pass(Duration::from_secs(1));
        assert_eq!((world.halves(), world.totals().circpad.ended), (0, 1));
    }
}

#[test]
fn a_client_at_its_rendezvous_gets_one_drop_under_any_encryption() {
    for cgo in [false, true] {
        let mut world = World::new(1, 1);
        let link = world.link_on(0, CLIENT);
        let mut circuit = match cgo {
            true => Circuit::create_cgo(&mut world, link, 0x8000_0001),
            false => Circuit::create(&mut world, link, 0x8000_0001),
        };
        ask(&mut world, &mut circuit, start(1, 1));
        is_answered(&mut world, &mut circuit, start(1, 1), true);
        assert_eq!(drops(&mut world, &mut circuit, 1), 1);
        assert_eq!(drops(&mut world, &mut circuit, 50), 0);
        // It stays until the client stops it; meanwhile there is no other.
        ask(&mut world, &mut circuit, start(0, 2));
        is_answered(&mut world, &mut circuit, start(0, 2), true);
        assert_eq!(drops(&mut world, &mut circuit, 50), 0);
        ask(&mut world, &mut circuit, stop(1, 1));
        is_answered(&mut world, &mut circuit, stop(1, 1), true);
        let totals = world.totals().circpad;
        assert_eq!(
            (totals.started, totals.stopped, totals.drops_sent),
            (1, 1, 1)
        );
    }
}

#[test]
fn a_machine_that_is_stopped_sends_nothing_more() {
    let (mut world, mut circuit) = spliced(1, 0, 0, 1);
    ask(&mut world, &mut circuit, start(0, 1));
    is_answered(&mut world, &mut circuit, start(0, 1), true);
    let before = drops(&mut world, &mut circuit, 15);
    assert!(before > 0);
    // Neither another's number nor another's counter stops it.
    ask(&mut world, &mut circuit, stop(1, 1));
    ask(&mut world, &mut circuit, stop(0, 7));
    assert!(drops(&mut world, &mut circuit, 10) > 0);
    ask(&mut world, &mut circuit, stop(0, 0));
    is_answered(&mut world, &mut circuit, stop(0, 0), true);
    assert_eq!(drops(&mut world, &mut circuit, 100), 0);
}

#[test]
fn drops_come_when_the_circuit_is_silent() {
    let (mut world, mut circuit) = spliced(1, 0, 0, 2);
    ask(&mut world, &mut circuit, start(0, 1));
    is_answered(&mut world, &mut circuit, start(0, 1), true);
    // A cell for the client every millisecond.
    for _ in 0..100 {
        world.now += MSEC;
        circuit.answer(&mut world, b"data");
        world.tick();
        let mut cell = world.expect(circuit.client.0, ChanCmd::RELAY);
        assert_eq!(circuit.crypt.decrypt_backward(cell.body_mut()), Some(1));
        assert!(world.take(circuit.client.0).is_none());
    }
    assert!(drops(&mut world, &mut circuit, 30) > 0);
}

#[test]
fn unknown_machines_are_refused_and_what_is_no_request_closes_the_circuit() {
    let (mut world, mut circuit) = spliced(1, 0, 0, 3);
    for machine in [2, 255] {
        ask(&mut world, &mut circuit, start(machine, 1));
        is_answered(&mut world, &mut circuit, start(machine, 1), false);
        ask(&mut world, &mut circuit, stop(machine, 9));
        assert!(world.take(circuit.client.0).is_none());
    }
    assert_eq!(world.totals().circpad.refused, 2);
    circuit.send_to_circuit(
        &mut world,
        RelayCmd::PADDING_NEGOTIATE,
        &[0, 2, 0, 0, 0, 0, 0],
    );
    world.settle();
    world.expect(circuit.client.0, ChanCmd::DESTROY);
    assert_eq!(world.halves(), 0);
}

#[test]
fn machines_go_with_their_link_to_another_thread() {
    for seed in 0..8 {
        let (mut world, mut circuit) = spliced(3, 0, 1, seed);
        ask(&mut world, &mut circuit, start(0, 1));
        is_answered(&mut world, &mut circuit, start(0, 1), true);
        let mut sent = 0;
        for _ in 0..12 {
            world.moves = 2;
            sent += drops(&mut world, &mut circuit, 2);
        }
        world.moves = 0;
        ask(&mut world, &mut circuit, stop(0, 1));
        is_answered(&mut world, &mut circuit, stop(0, 1), true);
        assert!(sent > 0 && world.totals().links_moved > 0, "{seed}");
    }
}

#[test]
fn the_consensus_can_switch_padding_off_and_a_full_queue_gets_none() {
    let params = |circpad: CircpadParams| {
        let mut params = RelayParams::new(OWN_RSA, OWN_ED);
        params.extend_to_private = true;
        params.circpad = circpad;
        params
    };
    let off = CircpadParams {
        disabled: true,
        ..CircpadParams::default()
    };
    let full = CircpadParams {
        max_circ_queued_cells: 2,
        ..CircpadParams::default()
    };
    for (circpad, room) in [(off, u32::MAX), (full, 0)] {
        let mut world = World::with_params(1, 1, params(circpad));
        let link = world.link_on(0, relay_identity(2));
        let mut circuit = Circuit::create(&mut world, link, 0x8000_0001);
        ask(&mut world, &mut circuit, start(0, 1));
        is_answered(&mut world, &mut circuit, start(0, 1), true);
        world.room = room;
        for _ in 0..200 {
            world.now += MSEC;
            world.tick();
        }
        let totals = world.totals().circpad;
        match circpad.disabled {
            true => assert_eq!((totals.drops_sent, totals.ended), (0, 0)),
            false => {
                assert_eq!((totals.drops_sent, totals.ended), (3, 1));
                assert!(totals.drops_held >= 4);
            }
        }
        // A new consensus holds for machines that are started from then on.
        world.room = u32::MAX;
        world.settle();
        world.written.get_mut(&link).unwrap().clear();
        let new = Arc::new(params(CircpadParams::default()));
        world.controller.set_relay_params(&new);
        world.do_actions();
        world.settle();
        assert_eq!(world.halves(), 1);
    }
}
