//! Options of torrc about links, as a whole relay without sockets follows them: keepalives, links
//! that stand still, protocol complaints, clients that are their own only hop.

use std::time::Duration;

use weft_cell::circ_msg::CreateRequest;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::controller::{ControllerParams, Sharing};
use weft_core::handshake::PeerIdentity;
use weft_core::limits::dos::DosParams;
use weft_core::manager::{Expiry, ProtocolViolation};
use weft_core::message::ToController;
use weft_core::origin::{LinkState, LinkStep, LinkTarget, OriginCommand, OriginEvent, OriginId};
use weft_core::params::RelayParams;

use crate::world::{CLIENT, Circuit, OWN_ED, OWN_RSA, World, relay_identity};

const MINUTE: Duration = Duration::from_secs(60);

/// One thread whose links get a keepalive after a minute of silence, and no netflow padding.
fn world_with_keepalives() -> World {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    params.extend_to_private = true;
    params.keepalive = MINUTE;
    params.padding.low = Duration::ZERO;
    params.padding.high = Duration::ZERO;
    World::with_params(1, 3, params)
}

#[test]
fn a_silent_link_gets_a_keepalive_and_one_that_was_written_to_does_not() {
    let mut world = world_with_keepalives();
    let silent = world.link_on(0, relay_identity(5));
    let busy = world.link_on(0, CLIENT);
    let _circuit = Circuit::create(&mut world, busy, 0x8000_0001);
    while world.take(busy).is_some() {}
    for _ in 0..2 {
        for seconds in [30, 29] {
            world.pass(Duration::from_secs(seconds));
            assert!(world.take(silent).is_none());
            // A CREATE that is refused is answered by DESTROY.
            world.receive(busy, &Cell::new(7, ChanCmd::CREATE2));
            world.settle();
            world.expect(busy, ChanCmd::DESTROY);
        }
        world.pass(Duration::from_secs(1));
        world.expect(silent, ChanCmd::PADDING);
        assert!(world.take(silent).is_none(), "one is enough");
        assert!(world.take(busy).is_none());
    }
}

#[test]
fn a_link_whose_peer_takes_nothing_is_stuck_after_ten_periods() {
    let mut world = world_with_keepalives();
    let stuck = world.link_on(0, CLIENT);
    let reading = world.link_on(0, CLIENT);
    let _circuits = [
        Circuit::create(&mut world, stuck, 0x8000_0001),
        Circuit::create(&mut world, reading, 0x8000_0001),
    ];
    world.not_reading.push(stuck);
    world.pass(10 * MINUTE);
    assert_eq!(world.closed, []);
    // The keepalive waits since the end of the first minute; nothing was written since the start.
    let now = world.now + MINUTE;
    assert_eq!(
        world.managers[0].handle_timeout(now),
        [(stuck, Expiry::Stuck)]
    );
}

#[test]
fn what_breaks_the_protocol_is_logged_once_per_turn_and_counted_always() {
    let mut world = world_with_keepalives();
    let client = world.link_on(0, CLIENT);
    let _circuit = Circuit::create(&mut world, client, 0x8000_0001);
    assert_eq!(world.managers[0].take_violation(), None);
    world.receive(client, &Cell::new(0x8000_0001, ChanCmd::RELAY));
    world.receive(client, &Cell::new(7, ChanCmd::CREATE2));
    assert_eq!(
        world.managers[0].take_violation(),
        Some(ProtocolViolation {
            connection: client,
            what: "a relay cell that nobody on the circuit recognizes",
        })
    );
    assert_eq!(world.managers[0].take_violation(), None);
    assert_eq!(world.managers[0].totals().protocol_errors, 2);
}

#[test]
fn a_rendezvous_point_can_refuse_clients_that_come_directly() {
    let mut world = world_with_keepalives();
    world.controller.set_params(ControllerParams {
        max_connections: 100,
        workers: 1,
        max_onionskins: 100,
        max_onion_delay: Duration::from_secs(60),
        onion_cutoff: Duration::from_secs(5),
        max_memory: 1 << 30,
        dos: DosParams {
            refuse_single_hop_rendezvous: true,
            ..DosParams::default()
        },
        sharing: Sharing::All,
    });
    let client = world.link_on(0, CLIENT);
    let relay = world.link_on(0, relay_identity(5));
    let mut direct = Circuit::create(&mut world, client, 0x8000_0001);
    let mut relayed = Circuit::create(&mut world, relay, 0x8000_0001);
    direct.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 20]);
    world.settle();
    assert!(world.take(client).is_none(), "no answer of any kind");
    assert_eq!(world.controller.dos_counts().single_hop, 1);
    relayed.send(&mut world, 0, RelayCmd::ESTABLISH_RENDEZVOUS, &[5; 20]);
    world.settle();
    let (_, command, _) = relayed.backward(&mut world);
    assert_eq!(command, RelayCmd::RENDEZVOUS_ESTABLISHED);
}

#[test]
fn cells_that_a_bandwidth_limit_holds_back_count_as_room_taken() {
    let mut world = world_with_keepalives();
    let client = world.link_on(0, CLIENT);
    let next = world.link_on(0, relay_identity(5));
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 5, next);
    while world.take(next).is_some() {}
    for _ in 0..20 {
        circuit.send(&mut world, 1, RelayCmd::DATA, &[0; 100]);
    }
    let link = world.managers[0].links().of(next).unwrap();
    for _ in 0..3 {
        let now = world.now;
        world.managers[0].schedule(now, |_| 8);
        assert_eq!(
            world.managers[0].links_mut().outgoing(link).unwrap().len(),
            8
        );
    }
}

#[test]
fn a_link_whose_keys_near_their_end_gets_no_new_circuits_and_expires_when_idle() {
    let mut world = world_with_keepalives();
    let client = world.link_on(0, CLIENT);
    let worn = world.link_on(0, relay_identity(5));
    let mut before = Circuit::create(&mut world, client, 0x8000_0001);
    before.extend(&mut world, 5, worn);
    let link = world.managers[0].links().of(worn).unwrap();
    // All but a fifth of 1000 records is left, and then one less: from then on it is worn.
    world.managers[0].links_mut().keys_used(link, 199, 801);
    world.settle();
    let mut between = Circuit::create(&mut world, client, 0x8000_0002);
    between.extend(&mut world, 5, worn);
    for used in 200..203 {
        world.managers[0]
            .links_mut()
            .keys_used(link, used, 1000 - used);
    }
    world.settle();
    assert!(world.connects.is_empty());

    // The next circuit gets a new connection, and later ones share it.
    let mut after = Circuit::create(&mut world, client, 0x8000_0003);
    let message = Circuit::extend_message(5, &[1; 84]);
    after.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    let [connect] = world.connects[..] else {
        panic!("one connection was to be opened: {:?}", world.connects);
    };
    let thread = usize::from(connect.thread.0);
    world.open(connect.connection, thread, true, relay_identity(5));
    world.settle();
    world.expect(connect.connection, ChanCmd::CREATE2);
    let mut later = Circuit::create(&mut world, client, 0x8000_0004);
    later.extend(&mut world, 5, connect.connection);
    assert_eq!(world.connects.len(), 1);

    // Circuits on it go on, for as long as they like, and close it when they end.
    world.pass(10 * MINUTE);
    for circuit in [&mut before, &mut between] {
        circuit.send(&mut world, 1, RelayCmd::DATA, b"still here");
        world.settle();
        while let Some(cell) = world.written.get(&worn).and_then(|cells| cells.front()) {
            if cell.command() != ChanCmd::PADDING {
                break;
            }
            world.take(worn);
        }
        assert_eq!(circuit.at_next(&mut world).2, b"still here");
    }
    let reason = weft_cell::reason::DestroyReason::NONE;
    for circ_id in [0x8000_0001, 0x8000_0002] {
        world.receive(
            client,
            &weft_cell::link_msg::Destroy { reason }.encode(circ_id),
        );
    }
    world.settle();
    assert!(world.is_open(worn));
    world.pass(MINUTE);
    assert_eq!(world.closed, [worn]);
    assert!(world.is_open(connect.connection));
    world.audit();
}

/// A link that `end` excludes from new circuits gets none, and keeps those that it has.
fn only_old_circuits_go_on(end: impl FnOnce(&mut World, ConnectionId)) {
    let mut world = world_with_keepalives();
    let client = world.link_on(0, CLIENT);
    let old = world.link_on(0, relay_identity(5));
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    circuit.extend(&mut world, 5, old);
    let mut other = Circuit::create(&mut world, client, 0x8000_0002);
    end(&mut world, old);
    let message = Circuit::extend_message(5, &[1; 84]);
    other.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    assert_eq!(world.connects.len(), 1);
    circuit.send(&mut world, 1, RelayCmd::DATA, b"still here");
    world.settle();
    assert_eq!(circuit.at_next(&mut world).2, b"still here");
}

#[test]
fn a_link_of_a_week_gets_no_new_circuits() {
    // Past the timers, which a week of would keep busy.
    only_old_circuits_go_on(|world, _| world.now += 7 * 24 * 60 * MINUTE);
}

/// A full link to a relay does not block the relay: the next circuits get another link.
#[test]
fn a_link_that_is_full_gets_no_new_circuits_and_another_is_opened() {
    let mut params = RelayParams::new(OWN_RSA, OWN_ED);
    (params.extend_to_private, params.max_circuits_per_link) = (true, 2);
    for (from, to) in [(0, 0), (0, 1)] {
        let mut world = World::with_params(2, 1, params.clone());
        world.list(&[5]);
        let full = world.link_on(to, relay_identity(5));
        let attacker = world.link_on(from, CLIENT);
        for id in 1..3 {
            let mut circuit = Circuit::create(&mut world, attacker, 0x8000_0000 + id);
            circuit.extend(&mut world, 5, full);
        }
        let client = world.link_on(from, CLIENT);
        let mut circuits: Vec<Circuit> = (1..3)
            .map(|id| Circuit::create(&mut world, client, 0x8000_0000 + id))
            .collect();
        let message = Circuit::extend_message(5, &[1; 84]);
        circuits[0].send(&mut world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        let [connect] = world.connects[..] else {
            panic!("one connection was to be opened: {:?}", world.connects);
        };
        let thread = usize::from(connect.thread.0);
        world.open(connect.connection, thread, true, relay_identity(5));
        world.settle();
        world.expect(connect.connection, ChanCmd::CREATE2);
        circuits[1].extend(&mut world, 5, connect.connection);
        assert!(world.take(full).is_none() && world.take(client).is_none());
        assert_eq!(world.connects.len(), 1);
        world.audit();
    }
}

/// Events about links that a client gets.
fn of_links(world: &mut World) -> Vec<String> {
    world.do_actions();
    let events = std::mem::take(&mut world.events).into_iter();
    let of_link = |event| match event {
        OriginEvent::Link { rsa, state, .. } => Some(format!("{rsa} {state:?}")),
        OriginEvent::LinkStep { rsa, step } => Some(format!("{rsa} {step:?}")),
        _ => None,
    };
    events.filter_map(of_link).collect()
}

#[test]
fn a_client_learns_how_far_the_links_are_that_its_node_opens() {
    for is_client in [true, false] {
        let mut world = World::new(1, 1);
        if is_client {
            world.controller.serve_client();
        }
        let stranger = world.link_from("127.0.0.66:1", 0, CLIENT);
        let launch = OriginCommand::Launch {
            circuit: OriginId(7),
            first: LinkTarget {
                addrs: vec!["127.0.0.9:9001".parse().unwrap()],
                rsa: OWN_RSA,
                ed25519: Some(OWN_ED),
            },
            create: CreateRequest::Fast { x: [1; 20] },
        };
        world.controller.origin(launch, world.now);
        world.do_actions();
        let connect = world.connects.pop().unwrap();
        let report = |world: &mut World, connection, step| {
            let reached = ToController::LinkStep { connection, step };
            world.controller.handle(reached, world.now);
        };
        report(&mut world, connect.connection, LinkStep::ProxyConnected);
        report(&mut world, connect.connection, LinkStep::Connected);
        report(&mut world, stranger, LinkStep::Connected);
        let identity = PeerIdentity::Relay {
            rsa: OWN_RSA,
            ed25519: OWN_ED,
        };
        let thread = usize::from(connect.thread.0);
        world.open(connect.connection, thread, true, identity);
        world.settle();
        report(&mut world, connect.connection, LinkStep::Encrypted);
        let expected = [
            format!("{OWN_RSA} {:?}", LinkState::Launched),
            format!("{OWN_RSA} {:?}", LinkStep::ProxyConnected),
            format!("{OWN_RSA} {:?}", LinkStep::Connected),
            format!("{OWN_RSA} {:?}", LinkState::Connected),
        ];
        let expected: Vec<String> = expected.into_iter().filter(|_| is_client).collect();
        assert_eq!(of_links(&mut world), expected);
    }
}

/// A client retires a link whose far end leaves CREATEs unanswered.
#[test]
fn a_link_that_is_retired_gets_no_new_circuits_and_keeps_those_that_it_has() {
    only_old_circuits_go_on(|world, connection| {
        let retire = OriginCommand::RetireLink { connection };
        world.controller.origin(retire, world.now);
    });
}
