//! One client asks for everything that clients share, and the others do not notice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::world::{
    CLIENT, Circuit, Connect, OWN_ED, OWN_RSA, World, controller_params, destroy_reason, extend,
    relay_identity,
};
use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::End;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::ConnectionId;
use weft_core::handshake::PeerIdentity;
use weft_core::limits::dos::DosParams;
use weft_core::manager::MAX_REQUESTS;
use weft_core::origin::LinkFailure;
use weft_core::params::RelayParams;
use weft_core::slots::HalfKey;

/// EXTEND2s of one link, each to another address that leads nowhere. The circuits of it that end.
fn extend_nowhere(
    world: &mut World,
    link: ConnectionId,
    to: u8,
    addrs: std::ops::Range<u16>,
) -> Vec<u32> {
    let mut ended = Vec::new();
    for port in addrs {
        let mut circuit = Circuit::create(world, link, 0x8000_0000 + u32::from(port) + 1);
        let message = Circuit::extend_message_at(to, &format!("127.0.1.1:{port}"), [to; 32].into());
        circuit.send(world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        ended.extend(destroyed(world, link));
        world.close_as_asked();
    }
    ended
}

/// The circuits of a link that the relay has ended for want of room.
fn destroyed(world: &mut World, link: ConnectionId) -> Vec<u32> {
    let cells = std::iter::from_fn(|| world.take(link));
    let ended = cells.map(|cell| {
        assert_eq!(cell.command(), ChanCmd::DESTROY);
        let reason = Destroy::decode(cell.body()).reason;
        assert_eq!(reason, DestroyReason::RESOURCELIMIT);
        cell.circ_id()
    });
    ended.collect()
}

/// Lets a connection that the controller wants come up as a relay's.
fn come_up(world: &mut World, connect: Connect, relay: u8) {
    let thread = usize::from(connect.thread.0);
    world.open(connect.connection, thread, true, relay_identity(relay));
    world.settle();
}

#[test]
fn dead_addresses_named_for_a_relay_do_not_keep_others_from_it() {
    for listed in [true, false] {
        let mut world = World::new(2, 1);
        if listed {
            world.list(&[9]);
        }
        let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
        extend_nowhere(&mut world, attacker, 9, 1..9);
        assert_eq!(world.connects.len(), 8);
        let client = world.link_on(0, CLIENT);
        let connect = extend(&mut world, client, 0x8000_0001, 9).expect("a connection");
        assert_eq!(connect.addr, "127.0.0.9:9001".parse().unwrap());
        come_up(&mut world, connect, 9);
        world.expect(connect.connection, ChanCmd::CREATE2);
        // It is there for those that were sent astray, too.
        for _ in 0..8 {
            world.expect(connect.connection, ChanCmd::CREATE2);
        }
    }
}

#[test]
fn dead_addresses_do_not_keep_others_from_any_relay() {
    let mut world = World::new(2, 1);
    // A quarter of these may be opened at once to unknown addresses.
    world
        .controller
        .set_params(controller_params(100, DosParams::default()));
    world.list(&[5, 9]);
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    let mut ended = Vec::new();
    for to in 20..60 {
        ended.extend(extend_nowhere(
            &mut world,
            attacker,
            to,
            u16::from(to)..u16::from(to) + 1,
        ));
        assert!(world.controller.open_connections().initiated.ipv4 <= 25);
    }
    assert_eq!(world.connects.len(), 25);
    // The displaced ones have failed: they were the oldest.
    let oldest: Vec<u32> = (0x8000_0015..0x8000_0015 + 15).collect();
    assert_eq!(ended, oldest);
    // An unlisted relay can be reached, and a listed one without any of them giving way.
    let client = world.link_on(0, relay_identity(5));
    let unlisted = extend(&mut world, client, 0x8000_0001, 7).expect("a connection");
    assert_eq!(destroyed(&mut world, attacker).len(), 1);
    world.close_as_asked();
    let listed = extend(&mut world, client, 0x8000_0002, 9).expect("a connection");
    assert!(world.take(attacker).is_none());
    for (connect, relay) in [(unlisted, 7), (listed, 9)] {
        come_up(&mut world, connect, relay);
        world.expect(connect.connection, ChanCmd::CREATE2);
    }
    // The attacker's next ones displace its own.
    let ended = extend_nowhere(&mut world, attacker, 60, 60..70);
    assert_eq!(ended.len(), 10, "the unlisted relay keeps its place");
    assert!(world.take(client).is_none());
    assert_eq!(world.controller.counts().connections_displaced, 26);
    world.audit();
}

#[test]
fn identities_that_somebody_makes_up_are_one_hop() {
    let mut world = World::new(2, 1);
    // A quarter of these may be opened at once to unknown addresses.
    world
        .controller
        .set_params(controller_params(100, DosParams::default()));
    world.list(&[5]);
    let client = world.link_on(0, CLIENT);
    let mut made_up = Vec::new();
    for number in 0..25_u8 {
        let link = world.link_from("127.0.0.66:1", 0, relay_identity(100 + number));
        world.settle();
        let nowhere = 100 + u16::from(number);
        extend_nowhere(&mut world, link, 20 + number, nowhere..nowhere + 1);
        made_up.push(link);
    }
    assert_eq!(world.connects.len(), 25);
    // Someone else may have half of the places, not one among 26.
    for number in 0..12_u8 {
        let to = 200 + number;
        extend(&mut world, client, 0x8000_0001 + u32::from(number), to).expect("a connection");
        assert!(world.take(client).is_none());
        world.close_as_asked();
    }
    let ended = made_up
        .iter()
        .map(|link| destroyed(&mut world, *link).len());
    assert_eq!(ended.sum::<usize>(), 12);
    assert_eq!(world.controller.counts().connections_displaced, 12);
    world.audit();
}

#[test]
fn what_others_wait_for_is_not_closed_with_its_first_asker() {
    let mut world = World::new(2, 1);
    world
        .controller
        .set_params(controller_params(100, DosParams::default()));
    world.list(&[5]);
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    let client = world.link_on(0, relay_identity(5));
    // The attacker is first to ask for an unlisted relay, and then has everything displaced.
    let unlisted = extend(&mut world, attacker, 0x8000_0001, 7).expect("a connection");
    assert!(extend(&mut world, client, 0x8000_0001, 7).is_none());
    let ended = extend_nowhere(&mut world, attacker, 20, 100..200);
    assert_eq!(ended.first(), Some(&0x8000_0001));
    assert!(world.take(client).is_none());
    come_up(&mut world, unlisted, 7);
    world.expect(unlisted.connection, ChanCmd::CREATE2);
    assert!(
        world.take(unlisted.connection).is_none(),
        "one of the two has failed"
    );
}

#[test]
fn a_listed_relay_is_looked_for_where_it_is_listed() {
    // Of IPv4 and IPv6 one is chosen at random.
    for seed in 0..16 {
        let mut params = RelayParams::new(OWN_RSA, OWN_ED);
        (params.extend_to_private, params.extend_over_ipv6) = (true, true);
        let mut world = World::with_params(1, seed, params);
        world.list(&[9]);
        let client = world.link_on(0, CLIENT);
        let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
        let message = weft_cell::circ_msg::Extend2 {
            ipv4: Some("127.0.0.9:9001".parse().unwrap()),
            ipv6: Some("[::1]:9001".parse().unwrap()),
            rsa: Some([9; 20].into()),
            handshake_type: 2,
            handshake: vec![1; 84],
            ..Default::default()
        };
        circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message.encode().unwrap());
        world.settle();
        let addrs: Vec<SocketAddr> = world.connects.iter().map(|one| one.addr).collect();
        assert_eq!(addrs, ["127.0.0.9:9001".parse().unwrap()], "seed {seed}");
    }
}

#[test]
fn a_wrong_ed25519_identity_hurts_only_who_named_it() {
    let mut world = World::new(2, 1);
    world.list(&[9]);
    let attacker = world.link_on(0, CLIENT);
    let mut astray = Circuit::create(&mut world, attacker, 0x8000_0001);
    let message = Circuit::extend_message_at(9, "127.0.0.9:9001", [1; 32].into());
    astray.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    let client = world.link_on(0, CLIENT);
    assert!(extend(&mut world, client, 0x8000_0001, 9).is_none());
    let connect = world.connects[0];
    come_up(&mut world, connect, 9);
    world.expect(connect.connection, ChanCmd::CREATE2);
    assert!(world.take(connect.connection).is_none());
    let destroy = world.expect(attacker, ChanCmd::DESTROY);
    assert_eq!(
        Destroy::decode(destroy.body()).reason,
        DestroyReason::OR_IDENTITY
    );
}

/// An EXTEND2 to relay 9 with this ed25519 identity.
fn extend_with(world: &mut World, link: ConnectionId, id: u32, ed25519: u8) {
    let mut circuit = Circuit::create(world, link, id);
    let message = Circuit::extend_message_at(9, "127.0.0.9:9001", [ed25519; 32].into());
    circuit.send(world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
}

#[test]
fn made_up_ed25519_identities_of_a_relay_open_no_connections() {
    for listed in [true, false] {
        let mut world = World::new(2, 1);
        if listed {
            world.list(&[9]);
        }
        let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
        for number in 1..9 {
            extend_with(
                &mut world,
                attacker,
                0x8000_0000 + u32::from(number),
                number,
            );
            if number == 1 {
                let connect = world.connects[0];
                come_up(&mut world, connect, 9);
            }
            let destroy = world.expect(attacker, ChanCmd::DESTROY);
            let reason = Destroy::decode(destroy.body()).reason;
            assert_eq!(reason, DestroyReason::OR_IDENTITY, "{number}");
        }
        // Others have the relay's connection.
        let connect = world.connects[0];
        assert_eq!(world.connects.len(), 1, "{:?}", world.connects);
        let client = world.link_on(0, CLIENT);
        extend_with(&mut world, client, 0x8000_0001, 9);
        world.expect(connect.connection, ChanCmd::CREATE2);
        // Once it is closed, the relay is looked for again, whichever identity it has then.
        world.close(connect.connection);
        world.settle();
        world.connects.clear();
        extend_with(&mut world, attacker, 0x8000_0011, 10);
        assert_eq!(world.connects.len(), 1);
        world.audit();
    }
}

/// A peer with no more than a relay's RSA key connects from elsewhere, and does not block the
/// relay.
#[test]
fn a_link_that_a_peer_opened_shows_nothing_about_a_relay_s_address() {
    let mut world = World::new(1, 1);
    world.list(&[9]);
    let thief = PeerIdentity::Relay {
        rsa: [9; 20].into(),
        ed25519: [1; 32].into(),
    };
    world.link_from("127.0.0.66:1", 0, thief);
    world.settle();
    let client = world.link_on(0, CLIENT);
    extend_with(&mut world, client, 0x8000_0001, 9);
    let connect = world.connects[0];
    come_up(&mut world, connect, 9);
    world.expect(connect.connection, ChanCmd::CREATE2);
}

#[test]
fn a_listed_relay_is_reached_when_there_are_as_many_connections_as_others_may_have() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(32, DosParams::default()));
    world.list(&[9]);
    let client = world.link_on(0, CLIENT);
    for _ in 1..30 {
        let link = world.link_from("127.0.0.2:1", 0, CLIENT);
        use_link(&mut world, link, 0x8000_0001);
    }
    world.settle();
    let peer = "127.0.0.2:1".parse().unwrap();
    assert!(world.controller.accepted(peer, world.now).is_none());
    assert!(extend(&mut world, client, 0x8000_0001, 7).is_none());
    assert_eq!(destroyed(&mut world, client), [0x8000_0001]);
    assert!(extend(&mut world, client, 0x8000_0002, 9).is_some());
}

/// Sends BEGINs on one circuit, each of which gets a socket at once. Returns how many streams of the
/// circuit `displaced` ended meanwhile for want of room.
fn begin(
    world: &mut World,
    circuit: &mut Circuit,
    streams: std::ops::Range<u16>,
    displaced: &mut Circuit,
) -> usize {
    world.serve_streams = true;
    let mut ended = 0;
    for stream in streams {
        let data = b"192.0.2.1:80\0";
        let cell = circuit.forward(world, 0, ChanCmd::RELAY, RelayCmd::BEGIN, stream, data);
        world.receive(circuit.client.0, &cell);
        world.settle();
        let (_, command, _) = circuit.backward(world);
        assert_eq!(command, RelayCmd::CONNECTED);
        while !world.written[&displaced.client.0].is_empty() {
            let (_, command, data) = displaced.backward(world);
            assert_eq!(command, RelayCmd::END);
            assert_eq!(End::decode(&data).reason, EndReason::RESOURCELIMIT);
            ended += 1;
        }
        close_sockets(world);
    }
    ended
}

/// Closes the sockets of streams that have ended, as their threads do.
fn close_sockets(world: &mut World) {
    for (thread, edge) in std::mem::take(&mut world.edges) {
        let manager = &mut world.managers[thread];
        match manager.edges().id(edge).is_some() && manager.edges().out(edge).1 {
            true => manager.end_edge(edge, EndReason::DONE, world.now),
            false => world.edges.push((thread, edge)),
        }
    }
    world.settle();
}

#[test]
fn streams_of_one_hop_do_not_use_up_an_exit_s_files() {
    for threads in [1, 3] {
        let mut world = World::new(threads, 1);
        world
            .controller
            .set_params(controller_params(320, DosParams::default()));
        world.list(&[5, 6]);
        // The attacker shares its previous hop with an honest circuit, and no hop with another.
        let hop = world.link_from("127.0.0.5:1", 0, relay_identity(5));
        let other = world.link_from("127.0.0.6:1", 0, relay_identity(6));
        world.settle();
        let mut attacker = Circuit::create(&mut world, hop, 0x8000_0001);
        let mut idle = Circuit::create(&mut world, other, 0x8000_0009);
        // With the two links that is all that is not left for listed relays.
        begin(&mut world, &mut attacker, 1..299, &mut idle);
        let mut near = Circuit::create(&mut world, other, 0x8000_0001);
        assert_eq!(begin(&mut world, &mut near, 1..101, &mut attacker), 100);
        assert_eq!(world.controller.counts().open_displaced, 100);
        // A client's link is admitted in the same way.
        world.link_from("127.0.0.77:1", 0, CLIENT);
        world.settle();
        let (_, command, _) = attacker.backward(&mut world);
        assert_eq!(command, RelayCmd::END);
        assert!(world.take(near.client.0).is_none());
        world.audit();
    }
}

/// Has a client make a circuit.
fn use_link(world: &mut World, link: ConnectionId, circ_id: u32) {
    let create = CreateRequest::Fast { x: [0; 20] };
    world.receive(link, &create.encode(circ_id).unwrap());
}

#[test]
fn silent_links_give_way_to_others_and_those_with_circuits_do_not() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(320, DosParams::default()));
    let open: Vec<ConnectionId> = (1..=100)
        .map(|client| world.link_from(&format!("127.0.1.{client}:1"), 0, CLIENT))
        .collect();
    for link in &open {
        use_link(&mut world, *link, 0x8000_0001);
    }
    world.settle();
    // As many addresses as connections, and none sends anything.
    let accept = |world: &mut World, net: u8, client: u16| {
        let addr = format!("127.{net}.{}.{}:1", client / 250, client % 250);
        let accepted = world.controller.accepted(addr.parse().unwrap(), world.now);
        accepted.map(|(connection, _)| connection)
    };
    let silent: Vec<ConnectionId> = (0..200)
        .map(|client| accept(&mut world, 2, client).unwrap())
        .collect();
    assert_eq!(world.controller.counts().open_displaced, 0);
    // A newcomer takes the place of the oldest of them, as soon as that is closed.
    for (client, oldest) in (0..200).zip(&silent) {
        let newcomer = accept(&mut world, 3, client).unwrap();
        world.open(newcomer, 0, false, CLIENT);
        use_link(&mut world, newcomer, 0x8000_0001);
        world.carry_to_controller();
        let closed = weft_core::message::ToController::ConnectionClosed {
            connection: *oldest,
            why: LinkFailure::Other,
        };
        world.controller.handle(closed, world.now);
    }
    assert_eq!(world.controller.counts().open_displaced, 200);
    // All of them are of use now: none gives way to one that has as many.
    assert!(accept(&mut world, 4, 0).is_none());
    assert!(open.iter().all(|link| world.is_open(*link)));
    assert_eq!(world.controller.counts().refused_full, 1);
}

/// A client's link from an address, if the relay has a place for it, with a circuit.
fn client_in_use(world: &mut World, addr: &str) -> Option<ConnectionId> {
    let addr = addr.parse().unwrap();
    let (link, thread) = world.controller.accepted(addr, world.now)?;
    world.open(link, usize::from(thread.0), false, CLIENT);
    use_link(world, link, 0x8000_0001);
    world.settle();
    world.close_as_asked();
    Some(link)
}

/// The end of a circuit of a client's.
fn end_circuit(world: &mut World, link: ConnectionId, circ_id: u32) {
    let reason = DestroyReason::NONE;
    world.receive(link, &Destroy { reason }.encode(circ_id));
    world.settle();
}

#[test]
fn the_link_that_has_had_no_circuit_for_longest_gives_way_to_newcomers() {
    let mut world = World::new(1, 1);
    // Thirty are for anybody.
    let params = controller_params(32, DosParams::default());
    world.controller.set_params(params);
    let mut links: Vec<ConnectionId> = (0..22)
        .map(|n| client_in_use(&mut world, &format!("127.0.1.{n}:1")).unwrap())
        .collect();
    let greedy = "127.0.9.9:1";
    links.extend((0..8).map(|_| client_in_use(&mut world, greedy).unwrap()));
    // Idle, and which of them for longer.
    for index in [7, 3, 5] {
        end_circuit(&mut world, links[index], 0x8000_0001);
        world.pass(Duration::from_secs(1));
    }
    use_link(&mut world, links[3], 0x8000_0002);
    world.settle();
    // The hop with most displaces no other.
    assert_eq!(client_in_use(&mut world, greedy), None);
    let mut newcomers = Vec::new();
    for (n, idle) in [7, 5].into_iter().enumerate() {
        assert!(world.is_open(links[idle]));
        newcomers.extend(client_in_use(&mut world, &format!("127.0.2.{n}:1")));
        assert_eq!(newcomers.len(), n + 1);
        assert!(!world.is_open(links[idle]));
    }
    // No link is idle any more.
    newcomers.extend(client_in_use(&mut world, "127.0.2.9:1"));
    let is_open = |id: &&ConnectionId| world.is_open(**id);
    assert_eq!(links[22..].iter().filter(is_open).count(), 7);
    assert_eq!(links[..22].iter().filter(is_open).count(), 20);
    assert_eq!(newcomers.iter().filter(is_open).count(), 3);
    world.audit();
}

/// A made-up relay.
fn made_up(number: u32) -> PeerIdentity {
    let (mut rsa, mut ed25519) = ([0xee; 20], [0xed; 32]);
    rsa[..4].copy_from_slice(&number.to_be_bytes());
    ed25519[..4].copy_from_slice(&number.to_be_bytes());
    PeerIdentity::Relay {
        rsa: rsa.into(),
        ed25519: ed25519.into(),
    }
}

/// EXTEND2 to a made-up relay.
fn extend_to_made_up(number: u32) -> Vec<u8> {
    let PeerIdentity::Relay { rsa, ed25519 } = made_up(number) else {
        unreachable!("a relay");
    };
    let message = Extend2 {
        ipv4: Some("127.0.9.9:9001".parse().unwrap()),
        rsa: Some(rsa),
        ed25519: Some(ed25519),
        handshake_type: 2,
        handshake: vec![1; 84],
        ..Extend2::default()
    };
    message.encode().unwrap()
}

#[test]
fn open_connections_to_made_up_relays_leave_the_files_to_others() {
    let mut world = World::new(1, 1);
    // Three hundred are for all, and a quarter of all for unknown relays.
    let params = controller_params(320, DosParams::default());
    world.controller.set_params(params);
    world.list(&[5]);
    let attacker = client_in_use(&mut world, "127.0.0.66:1").unwrap();
    world.expect(attacker, ChanCmd::CREATED_FAST);
    let mut honest: Vec<ConnectionId> = (0..3)
        .map(|n| client_in_use(&mut world, &format!("127.0.1.{n}:1")).unwrap())
        .collect();
    let initiated = |world: &World| world.controller.open_connections().initiated.ipv4;
    for number in 0..240 {
        let circ_id = 0x8000_0002 + number;
        let mut circuit = Circuit::create(&mut world, attacker, circ_id);
        let message = extend_to_made_up(number);
        circuit.send(&mut world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        let connect = world.connects.pop().expect("one of its own gives way");
        world.open(connect.connection, 0, true, made_up(number));
        world.settle();
        world.expect(connect.connection, ChanCmd::CREATE2);
        // The circuit is not needed any more.
        end_circuit(&mut world, attacker, circ_id);
        while world.take(attacker).is_some() {}
        if number % 8 == 7 {
            world.pass(Duration::from_millis(250));
        }
        world.close_as_asked();
        assert!(initiated(&world) <= 80);
    }
    assert_eq!(initiated(&world), 80);
    assert_eq!(world.controller.counts().connections_displaced, 160);
    // Everybody has a place: what the attacker's circuits left gives way.
    for n in 0..290 {
        let addr = format!("127.0.{}.{}:1", 2 + n / 250, n % 250);
        honest.extend(client_in_use(&mut world, &addr));
    }
    assert_eq!(honest.len(), 293);
    assert!(honest.iter().all(|link| world.is_open(*link)));
    assert_eq!(initiated(&world), 6);
    // The rest closes soon.
    for _ in 0..5 {
        world.now += std::time::Duration::from_secs(60);
        world.tick();
    }
    assert_eq!(initiated(&world), 0);
    world.audit();
}

#[test]
fn connections_to_made_up_relays_that_are_in_use_do_not_displace_each_other() {
    let mut world = World::new(1, 1);
    // Eight of them may lead to unknown relays.
    let params = controller_params(32, DosParams::default());
    world.controller.set_params(params);
    world.list(&[5]);
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    let client = world.link_from("127.0.0.67:1", 0, CLIENT);
    let extend = |world: &mut World, link, number| {
        let mut circuit = Circuit::create(world, link, 0x8000_0001 + number);
        let message = extend_to_made_up(number);
        circuit.send(world, 0, RelayCmd::EXTEND2, &message);
        world.settle();
        let connect = world.connects.pop()?;
        world.open(connect.connection, 0, true, made_up(number));
        world.settle();
        world.close_as_asked();
        Some(connect.connection)
    };
    let mut opened = Vec::new();
    for number in 0..8 {
        opened.extend(extend(&mut world, attacker, number));
    }
    assert_eq!(opened.len(), 8);
    assert_eq!(extend(&mut world, attacker, 8), None);
    assert_eq!(destroyed(&mut world, attacker), [0x8000_0009]);
    // Another client has half of them.
    for number in 20..24 {
        let connection = extend(&mut world, client, number).expect("a place");
        assert!(world.is_open(connection));
    }
    assert_eq!(extend(&mut world, client, 24), None);
    let open = opened.iter().filter(|id| world.is_open(**id)).count();
    assert_eq!(open, 4);
    world.audit();
}

#[test]
fn extensions_that_wait_for_one_relay_do_not_keep_others_waiting_outside() {
    let mut world = World::new(1, 1);
    world.list(&[5, 9]);
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    let client = world.link_on(0, relay_identity(5));
    let connect = extend(&mut world, client, 0x8000_0001, 9).expect("a connection");
    // More than may wait for everything together. (Circuits of the test's own would be slow.)
    for extension in 0..20_000 {
        let request = weft_core::message::ExtendRequest {
            from: weft_core::message::Requester::Half {
                half: weft_core::address::HalfAddr {
                    thread: weft_core::address::ThreadId(0),
                    slot: HalfKey(1_000_000),
                    generation: 0,
                },
                connection: attacker,
                extension,
            },
            addrs: vec![connect.addr],
            rsa: [9; 20].into(),
            ed25519: None,
            create: std::sync::Arc::new(CreateRequest::Fast { x: [0; 20] }),
        };
        let message = weft_core::message::ToController::Extend(request);
        world.controller.handle(message, world.now);
    }
    assert_eq!(world.controller.counts().extends_failed, 20_001 - (1 << 14));
    world.settle();
    assert!(extend(&mut world, client, 0x8000_0002, 9).is_none());
    assert!(world.take(client).is_none());
}

#[test]
fn onionskins_of_one_client_do_not_keep_out_those_of_others() {
    let mut world = World::new(1, 1);
    // 64 are with the worker, which does not answer, and 36 wait.
    world
        .controller
        .set_params(controller_params(100, DosParams::default()));
    world.answer_onionskins = false;
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    let client = world.link_on(0, CLIENT);
    let create = |id: u32| {
        let data = vec![0; 84];
        let create = CreateRequest::Create2 {
            handshake_type: 2,
            data,
        };
        create.encode(0x8000_0000 + id).unwrap()
    };
    for id in 1..=1000 {
        world.receive(attacker, &create(id));
        world.settle();
    }
    assert_eq!(world.controller.onionskins(), 100);
    assert_eq!(world.controller.counts().onionskins_dropped, 900);
    for id in 1..=10 {
        world.receive(client, &create(id));
        world.settle();
    }
    assert!(world.take(client).is_none(), "none is refused");
    assert_eq!(world.controller.onionskins(), 100);
    assert_eq!(world.controller.counts().onionskins_dropped, 910);
    let mut refused: BTreeMap<ConnectionId, usize> = BTreeMap::new();
    while world.take(attacker).is_some() {
        *refused.entry(attacker).or_default() += 1;
    }
    assert_eq!(refused[&attacker], 910);
}

#[test]
fn an_onionskin_that_has_waited_too_long_is_refused_in_place_of_answered() {
    let mut world = World::new(1, 1);
    world.answer_onionskins = false;
    let client = world.link_on(0, CLIENT);
    // 64 are with the worker.
    for id in 1..=66 {
        let create = CreateRequest::Create2 {
            handshake_type: 2,
            data: vec![0; 84],
        };
        world.receive(client, &create.encode(0x8000_0000 + id).unwrap());
        world.settle();
    }
    assert_eq!(world.with_workers.len(), 64);
    world.pass(Duration::from_secs(4));
    let answer = |world: &mut World, place: usize| {
        let (half, kind) = world.with_workers[place];
        let refused = Err(DestroyReason::PROTOCOL);
        let now = world.now;
        world
            .controller
            .onionskin_answered(half, kind, None, refused, now);
        world.do_actions();
        world.settle();
        destroy_reason(&world.expect(client, ChanCmd::DESTROY))
    };
    assert_eq!(answer(&mut world, 0), DestroyReason::PROTOCOL);
    assert_eq!(
        world.with_workers.len(),
        65,
        "four seconds are not too long"
    );
    world.pass(Duration::from_secs(2));
    assert_eq!(answer(&mut world, 1), DestroyReason::RESOURCELIMIT);
    assert_eq!(
        destroy_reason(&world.expect(client, ChanCmd::DESTROY)),
        DestroyReason::PROTOCOL
    );
    assert_eq!(world.with_workers.len(), 65);
    assert_eq!(world.controller.counts().onionskins_dropped, 1);
    assert_eq!(world.controller.onionskins(), 63);
}

#[test]
fn requests_of_one_client_delay_and_displace_its_own_while_the_controller_is_behind() {
    let mut world = World::new(1, 1);
    let attacker = world.link_from("127.0.0.66:1", 0, CLIENT);
    let client = world.link_on(0, CLIENT);
    let mut flood = Circuit::create(&mut world, attacker, 0x8000_0001);
    let mut circuit = Circuit::create(&mut world, client, 0x8000_0001);
    let mut extending = Circuit::create(&mut world, client, 0x8000_0002);
    world.is_behind = true;
    let more = 100;
    let send_relay_msg = |world: &mut World, circuit: &mut Circuit, command, stream| {
        let data: &[u8] = match command {
            RelayCmd::BEGIN => b"example.com:80\0",
            _ => &[6],
        };
        let cell = circuit.forward(world, 0, ChanCmd::RELAY, command, stream, data);
        world.receive(circuit.client.0, &cell);
        world.settle();
    };
    for stream in 1..=u16::try_from(MAX_REQUESTS).unwrap() + more {
        send_relay_msg(&mut world, &mut flood, RelayCmd::BEGIN, stream);
    }
    // The streams that found no room are the oldest.
    for _ in 0..more {
        let (_, command, data) = flood.backward(&mut world);
        assert_eq!(command, RelayCmd::END);
        assert_eq!(End::decode(&data).reason, EndReason::RESOURCELIMIT);
    }
    assert_eq!(world.totals().requests_displaced, u64::from(more));
    // A stream that ends while it waits is not asked for.
    send_relay_msg(&mut world, &mut flood, RelayCmd::END, 4000);
    send_relay_msg(&mut world, &mut circuit, RelayCmd::BEGIN, 7);
    let create = CreateRequest::Fast { x: [0; 20] };
    world.receive(client, &create.encode(0x8000_0003).unwrap());
    let message = Circuit::extend_message(9, &[1; 84]);
    extending.send(&mut world, 0, RelayCmd::EXTEND2, &message);
    world.settle();
    assert!(world.take(client).is_none(), "nobody else is refused");
    world.is_behind = false;
    world.settle();
    // The other two places were the CREATE's and the EXTEND2's.
    assert_eq!(world.streams.len(), MAX_REQUESTS - 2);
    let mut asked = world.streams.iter().map(|request| request.connection);
    let turn = asked.position(|connection| connection == client).unwrap();
    assert!(turn <= 2, "it comes after {turn} others");
    world.expect(client, ChanCmd::CREATED_FAST);
    assert_eq!(world.connects.len(), 1);
    world.close(attacker);
    world.settle();
    world.audit();
}

#[test]
fn other_files_of_the_node_are_under_the_same_limit() {
    let mut world = World::new(1, 1);
    world
        .controller
        .set_params(controller_params(320, DosParams::default()));
    let peer = "127.0.0.2:1".parse().unwrap();
    world.controller.set_other_files(200, 99);
    assert!(world.controller.has_room_for_other());
    assert!(world.controller.accepted(peer, world.now).is_some());
    assert!(!world.controller.has_room_for_other());
    assert_eq!(world.controller.open_files_of_own(), 201);
    world.controller.set_other_files(30, 300);
    assert!(world.controller.accepted(peer, world.now).is_none());
    world.controller.set_other_files(0, 0);
    assert!(world.controller.accepted(peer, world.now).is_some());
}
