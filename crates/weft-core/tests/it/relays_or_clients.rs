//! Classification of peers as relays or clients by the limits of connections and circuits.

use std::net::SocketAddr;

use crate::world::{CLIENT, Circuit, World, controller_params, extend, relay_identity};
use weft_cell::ChanCmd;
use weft_cell::circ_msg::CreateRequest;
use weft_core::address::ConnectionId;
use weft_core::limits::dos::DosParams;
use weft_core::origin::LinkFailure;

fn one_connection() -> DosParams {
    DosParams {
        connection_enabled: true,
        connection_max_concurrent: 2,
        ..DosParams::default()
    }
}

/// Number of further connections that an address may open.
fn more(world: &mut World, addr: &str) -> usize {
    let addr = addr.parse().unwrap();
    let accepted = std::iter::from_fn(|| world.controller.accepted(addr, world.now));
    let accepted: Vec<_> = accepted.take(10).collect();
    for (connection, _) in &accepted {
        let closed = weft_core::message::ToController::ConnectionClosed {
            connection: *connection,
            why: LinkFailure::Other,
        };
        world.controller.handle(closed, world.now);
    }
    accepted.len()
}

#[test]
fn an_identity_that_no_consensus_lists_does_not_make_a_relay() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(1000, one_connection()));
    world.list(&[5]);
    let at = "127.0.0.66:1";
    for _ in 0..2 {
        world.link_from(at, 0, relay_identity(77));
        world.settle();
    }
    assert_eq!(more(&mut world, at), 1, "as many as of a client");
    // One that connects from another address than the consensus has.
    let elsewhere = "127.0.0.67:1";
    for _ in 0..10 {
        world.link_from(elsewhere, 0, relay_identity(5));
        world.settle();
    }
    assert_eq!(more(&mut world, elsewhere), 3);
}

#[test]
fn what_comes_from_an_address_of_a_relay_is_not_counted_for_it() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(1000, one_connection()));
    let at = "127.0.0.5:1";
    assert_eq!(more(&mut world, at), 3, "nobody is known to be a relay");
    // From now on it is one's, whatever it did before.
    world.list(&[5]);
    for _ in 0..3 {
        assert_eq!(more(&mut world, at), 10);
        world.link_from(at, 0, CLIENT);
        world.settle();
    }
    // Mapped into IPv6 it is the same one.
    assert_eq!(more(&mut world, "[::ffff:127.0.0.5]:1"), 10);
    let counts = world.controller.counts();
    assert_eq!((counts.exempted, counts.refused_dos), (43, 1));
    // The open ones are charged when it is none any more, and then not again.
    world.list(&[6]);
    assert_eq!(more(&mut world, at), 0);
    world.list(&[5]);
    assert_eq!(more(&mut world, at), 10);
}

#[test]
fn a_relay_is_not_kept_out_by_as_many_connections_as_others_may_have() {
    let mut world = World::new(1, 1);
    let params = controller_params(320, DosParams::default());
    world.controller.set_params(params);
    world.list(&[9]);
    let accept = |world: &mut World, n: u32| {
        let addr = SocketAddr::new(std::net::IpAddr::V4((0x0a00_0000 + n).into()), 1);
        world.controller.accepted(addr, world.now)
    };
    // One by each of as many addresses as there is room for, all with circuits.
    for n in 0..300 {
        let (id, thread) = accept(&mut world, n).unwrap();
        world.open(id, usize::from(thread.0), false, CLIENT);
        let create = CreateRequest::Fast { x: [0; 20] };
        world.receive(id, &create.encode(0x8000_0001).unwrap());
    }
    world.settle();
    assert_eq!(accept(&mut world, 1000), None);
    // A relay has a place, and keeps it however many others come before its handshake is over.
    let relay = "127.0.0.9:1".parse().unwrap();
    let (first, thread) = world.controller.accepted(relay, world.now).unwrap();
    for n in 2000..3000 {
        accept(&mut world, n);
    }
    world.close_as_asked();
    world.open(first, usize::from(thread.0), false, relay_identity(9));
    world.settle();
    assert!(world.is_open(first));
    assert_eq!(world.controller.counts().exempted_full, 1);
    // A peer there that is no relay gets only few places, and only until that is known.
    let others = std::iter::from_fn(|| world.controller.accepted(relay, world.now));
    let others: Vec<_> = others.take(10).collect();
    assert_eq!(others.len(), 4);
    for (id, thread) in &others {
        world.open(*id, usize::from(thread.0), false, CLIENT);
    }
    world.settle();
    world.close_as_asked();
    assert!(others.iter().all(|(id, _)| !world.is_open(*id)));
    assert!(world.is_open(first));
    world.audit();
}

/// A connection from an address, if it is accepted, whose peer proves to be this.
fn link_if_accepted(
    world: &mut World,
    addr: &str,
    peer: weft_core::handshake::PeerIdentity,
) -> Option<ConnectionId> {
    let (id, thread) = world
        .controller
        .accepted(addr.parse().unwrap(), world.now)?;
    world.open(id, usize::from(thread.0), false, peer);
    world.settle();
    world.close_as_asked();
    Some(id)
}

#[test]
fn a_listed_relay_keeps_sixty_four_links_and_its_further_ones_give_way() {
    let mut world = World::new(1, 1);
    let params = controller_params(320, DosParams::default());
    world.controller.set_params(params);
    world.list(&[9]);
    let mut links = Vec::new();
    for _ in 0..400 {
        links.extend(link_if_accepted(
            &mut world,
            "127.0.0.9:1",
            relay_identity(9),
        ));
        assert!(world.controller.connections() <= 310, "half of the reserve");
    }
    let open = |world: &World| links.iter().filter(|id| world.is_open(**id)).count();
    // The newest displaced one of its own kind.
    assert_eq!(open(&world), 299);
    // Others displace those that are too many, until each has as many as the relay has of these.
    for n in 0..235 {
        let addr = format!("127.0.2.{n}:1");
        let client = link_if_accepted(&mut world, &addr, CLIENT).expect("a place");
        assert!(world.is_open(client));
    }
    assert_eq!(open(&world), 65, "one share, beside what is the relay's");
    assert!(links[..64].iter().all(|id| world.is_open(*id)));
    // A place of the 64 that is free again is the relay's.
    world.close(links[0]);
    world.settle();
    let next = link_if_accepted(&mut world, "127.0.0.9:1", relay_identity(9)).expect("a place");
    for n in 0..20 {
        link_if_accepted(&mut world, &format!("127.0.3.{n}:1"), CLIENT);
    }
    assert!(world.is_open(next));
    world.audit();
}

#[test]
fn connections_from_addresses_of_relays_leave_half_of_the_reserve_to_our_own() {
    let mut world = World::new(1, 1);
    let params = controller_params(320, DosParams::default());
    world.controller.set_params(params);
    let relays: Vec<u8> = (10..40).collect();
    world.list(&relays);
    let client = world.link_on(0, CLIENT);
    for n in 0..289 {
        let addr = format!("127.0.{}.{}:1", 2 + n / 200, n % 200);
        link_if_accepted(&mut world, &addr, CLIENT).expect("a place");
    }
    assert_eq!(world.controller.connections(), 290);
    // All of them connect, and go no further.
    for relay in relays.iter().chain(&relays) {
        let addr = format!("127.0.0.{relay}:1").parse().unwrap();
        world.controller.accepted(addr, world.now);
    }
    assert_eq!(world.controller.connections(), 310);
    for (circuit, relay) in (0x8000_0001..).zip(10..20) {
        assert!(extend(&mut world, client, circuit, relay).is_some());
    }
    assert_eq!(world.controller.connections(), 320);
}

#[test]
fn an_address_that_a_program_of_transports_states_exempts_from_nothing() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(1000, one_connection()));
    world.list(&[9]);
    let relay: SocketAddr = "127.0.0.9:1".parse().unwrap();
    let hand_over = |world: &mut World| world.controller.handed_over(relay, world.now);
    let taken: Vec<_> = std::iter::from_fn(|| hand_over(&mut world)).collect();
    assert_eq!(taken.len(), 3, "as many as of a client");
    assert_eq!(world.controller.counts().exempted, 0);
    for (id, thread) in &taken {
        world.open(*id, usize::from(thread.0), false, CLIENT);
    }
    world.settle();
    // The next consensus does not change that, nor for those that are open.
    world.list(&[9, 10]);
    assert!(hand_over(&mut world).is_none());
    // Connections from there are exempt, as before.
    assert_eq!(more(&mut world, "127.0.0.9:1"), 10);
    world.audit();
}

#[test]
fn a_relay_that_comes_by_a_transport_is_one_once_its_link_proves_it() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(1000, one_connection()));
    world.list(&[5]);
    let at: SocketAddr = "127.0.0.66:1".parse().unwrap();
    for _ in 0..6 {
        let (id, thread) = world.controller.handed_over(at, world.now).unwrap();
        world.open(id, usize::from(thread.0), false, relay_identity(5));
        world.settle();
    }
    assert_eq!(more(&mut world, "127.0.0.66:1"), 3);
    world.audit();
}

#[test]
fn links_are_judged_by_the_consensus_that_comes_while_they_are_open() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(1000, one_connection()));
    let at = "127.0.0.66:1";
    // Without a consensus, a peer that proves an identity is a relay.
    let links = [77, 77, 78].map(|relay| {
        let link = world.link_from(at, 0, relay_identity(relay));
        world.settle();
        link
    });
    assert_eq!(more(&mut world, at), 3);
    world.list(&[78]);
    assert_eq!(more(&mut world, at), 1);
    // A relay that is listed now is one from now on, and one that is not listed any more is none.
    world.list(&[77]);
    assert_eq!(more(&mut world, at), 2);
    world.list(&[77, 78]);
    assert_eq!(more(&mut world, at), 3);
    world.list(&[]);
    assert_eq!(more(&mut world, at), 0);
    for link in links {
        world.close(link);
    }
    world.settle();
    assert_eq!(more(&mut world, at), 3);
}

#[test]
fn circuits_of_an_unlisted_relay_are_limited_like_a_client_s() {
    let mut world = World::new(1, 1);
    let dos = DosParams {
        circuit_creation_enabled: true,
        circuit_creation_min_connections: 1,
        circuit_creation_burst: 3,
        ..DosParams::default()
    };
    world.controller.set_params(controller_params(1000, dos));
    world.list(&[5]);
    let listed = world.link_from("127.0.0.5:1", 0, relay_identity(5));
    let made_up = world.link_from("127.0.0.66:1", 0, relay_identity(77));
    world.settle();
    for id in 1..=4 {
        Circuit::create(&mut world, listed, 0x8000_0000 + id);
    }
    for id in 1..=2 {
        Circuit::create(&mut world, made_up, 0x8000_0000 + id);
    }
    let create = CreateRequest::Fast { x: [0; 20] };
    world.receive(made_up, &create.encode(0x8000_0003).unwrap());
    world.settle();
    world.expect(made_up, ChanCmd::DESTROY);
    assert_eq!(world.controller.counts().circuits_refused_dos, 1);
    assert_eq!(world.controller.counts().relay_onionskins.ntor.processed, 4);
}
