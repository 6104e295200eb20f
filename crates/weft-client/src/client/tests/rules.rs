//! No way of a stream to an exit leads around maps and rules, and no spelling of a name does.

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppRefusal, OriginId, StreamOpening};
use weft_path::RelayName;

use super::world::{Exits, World, rsa};
use crate::ControlError;
use crate::config::ClientConfig;
use crate::events::{CircuitPurpose, StreamNews};

fn configure(world: &mut World, change: impl FnOnce(&mut ClientConfig)) {
    let mut config = world.client.config().clone();
    change(&mut config);
    world.client.set_config(config, world.now);
    world.run();
}

/// A way in which a controller moves a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// No controller does.
    None,
    /// ATTACHSTREAM to a circuit.
    Attached,
    /// ATTACHSTREAM 0.
    Released,
    /// Streams are not held any more.
    ReleasedByOption,
    /// REDIRECTSTREAM of one that waits for a circuit.
    RedirectedWaiting,
    /// REDIRECTSTREAM of one that is held, then ATTACHSTREAM.
    RedirectedHeld,
    /// REDIRECTSTREAM of one whose exit does not answer, which is tried again.
    RedirectedAsked,
    /// A redirected stream with a BEGIN sent, which a controller attaches to another circuit.
    MovedWhileAsked,
}

const WAYS: [Way; 8] = [
    Way::None,
    Way::Attached,
    Way::Released,
    Way::ReleasedByOption,
    Way::RedirectedWaiting,
    Way::RedirectedHeld,
    Way::RedirectedAsked,
    Way::MovedWhileAsked,
];

/// A world with rules and maps, and a circuit of a controller.
fn world(held: bool) -> (World, OriginId) {
    let mut world = World::new(5, 2, "accept 1-65535");
    world.ready();
    configure(&mut world, |config| {
        config.leave_streams_unattached = held;
        config.reject_plaintext_ports = vec![23];
        let map = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        config.maps = vec![
            map("mapped.example", "private.example."),
            map("onion.example.", "abc.onion."),
            map("inside.example", "192.168.1.1."),
        ];
    });
    let names = [2, 3, 11].map(|number| RelayName::Rsa(rsa(number)));
    let purpose = CircuitPurpose::Controller;
    let circuit = world.client.new_circuit(&names, purpose, world.now);
    world.run();
    (world, circuit.unwrap())
}

/// Brings a stream for `host` and `port` to an exit in that way, if that can be.
fn ask(way: Way, host: &str, port: u16) -> (World, ConnectionId) {
    let held = matches!(
        way,
        Way::Attached | Way::Released | Way::ReleasedByOption | Way::RedirectedHeld
    );
    let (mut world, circuit) = world(held);
    let now = world.now;
    let attach = |world: &mut World, stream, to: Option<OriginId>| {
        let to = to.map(|circuit| (circuit, None));
        let attached = world.client.attach_stream(stream, to, world.now);
        world.run();
        let refused = world.refused.contains_key(&stream);
        let expected = match refused {
            true => Err(ControlError::Refused),
            false => Ok(()),
        };
        assert_eq!(attached, expected, "{way:?} {host}:{port}");
    };
    let redirect = |world: &mut World, stream| {
        let client = &mut world.client;
        client.redirect_stream(stream, host, Some(port)).unwrap();
    };
    let stream = match way {
        Way::None => world.connect(host, port, None),
        Way::Attached | Way::Released => {
            let stream = world.connect(host, port, None);
            attach(
                &mut world,
                stream,
                (way == Way::Attached).then_some(circuit),
            );
            stream
        }
        Way::ReleasedByOption => {
            let stream = world.connect(host, port, None);
            configure(&mut world, |config| config.leave_streams_unattached = false);
            stream
        }
        Way::RedirectedWaiting => {
            world.client.chooser().ready = false;
            world.client.close_all(now);
            world.run();
            let stream = world.connect("fine.example", 443, None);
            redirect(&mut world, stream);
            world.ready();
            stream
        }
        Way::RedirectedHeld => {
            let stream = world.connect("fine.example", 443, None);
            redirect(&mut world, stream);
            attach(&mut world, stream, Some(circuit));
            stream
        }
        Way::RedirectedAsked | Way::MovedWhileAsked => {
            for number in [11, 12] {
                world.relay(number).exits = Exits::Silent;
            }
            let stream = world.connect("fine.example", 443, None);
            redirect(&mut world, stream);
            for number in [11, 12] {
                world.relay(number).exits = Exits::Connects;
            }
            world.openings.clear();
            match way {
                Way::MovedWhileAsked => attach(&mut world, stream, Some(circuit)),
                _ => world.wait(11),
            }
            stream
        }
    };
    world.wait(5);
    (world, stream)
}

fn begun(world: &World, stream: ConnectionId) -> Vec<(String, u16)> {
    let openings = world.openings.iter().filter(|(id, _)| *id == stream);
    let begun = openings.map(|(_, opening)| match opening {
        StreamOpening::Begin { host, port, .. } => (host.clone(), *port),
        other => panic!("{other:?}"),
    });
    begun.collect()
}

#[test]
fn no_way_to_an_exit_leads_around_the_rules() {
    for (host, port) in [
        ("192.168.1.1", 80),
        ("192.168.1.1.", 80),
        ("[::1]", 80),
        ("::ffff:10.0.0.1", 80),
        ("inside.example", 80),
        ("fine.example", 23),
        ("fine.example", 0),
        ("onion.example", 80),
        ("Onion.Example.", 80),
        ("abc.onion", 80),
        ("abc.Onion.", 80),
        ("localhost", 80),
        ("LocalHost.", 80),
        ("local.", 80),
        ("printer.local", 80),
        ("printer.local.", 80),
        ("127.192.0.1", 80),
        ("abcdefghij.virtual.", 80),
        ("fine.example.relay11.exit", 80),
        ("fine.example.relay11.exit.", 80),
        ("two words", 80),
        ("fine.example:443", 80),
        ("", 80),
        (".", 80),
    ] {
        for way in WAYS {
            let (world, stream) = ask(way, host, port);
            let begun = begun(&world, stream);
            assert!(begun.is_empty(), "{way:?} {host}:{port}: {begun:?}");
            assert!(world.refused.contains_key(&stream), "{way:?} {host}:{port}");
        }
    }
}

#[test]
fn maps_apply_however_a_stream_gets_to_an_exit() {
    for (host, sent) in [
        ("mapped.example", "private.example"),
        ("Mapped.Example.", "private.example"),
        ("Other.Example.", "other.example"),
        ("192.0.2.7.", "192.0.2.7"),
    ] {
        for way in WAYS {
            let (world, stream) = ask(way, host, 80);
            let begun = begun(&world, stream);
            assert_eq!(begun, [(sent.to_owned(), 80)], "{way:?} {host}");
            assert!(world.connected.contains(&stream), "{way:?} {host}");
            let mapped = host.to_ascii_lowercase().starts_with("mapped");
            let remapped = world.news(stream);
            let remaps = remapped
                .iter()
                .filter(|news| matches!(news, StreamNews::Remap(_)));
            // A redirection by a controller is not an event, as in C tor.
            assert_eq!(remaps.count(), usize::from(mapped), "{way:?} {host}");
        }
    }
}

#[test]
fn a_redirected_stream_keeps_its_port_unless_it_gets_another() {
    let (mut world, circuit) = world(true);
    for (port, sent) in [(None, 443), (Some(80), 80)] {
        let stream = world.connect("fine.example", 443, None);
        let client = &mut world.client;
        client
            .redirect_stream(stream, "else.example", port)
            .unwrap();
        let to = Some((circuit, None));
        client.attach_stream(stream, to, world.now).unwrap();
        world.run();
        assert_eq!(begun(&world, stream), [("else.example".to_owned(), sent)]);
    }
}

#[test]
fn a_redirected_stream_leaves_the_exit_that_a_map_chose_for_it() {
    let (mut world, _) = world(true);
    world
        .client
        .map_address("a.example", "b.example.relay12.exit")
        .unwrap();
    let stream = world.connect("a.example", 80, None);
    world.client.attach_stream(stream, None, world.now).unwrap();
    world.run();
    assert_eq!(world.exit_of(stream), rsa(12));
    assert_eq!(begun(&world, stream), [("b.example".to_owned(), 80)]);
}

#[test]
fn a_rule_that_is_new_holds_for_streams_that_wait() {
    let mut world = World::new(5, 2, "accept 1-65535");
    let stream = world.connect("fine.example", 23, None);
    configure(&mut world, |config| {
        config.reject_plaintext_ports = vec![23];
    });
    assert_eq!(world.refused[&stream], AppRefusal::NotAllowed);
    assert!(world.openings.is_empty());
}

/// A lookup is not a connection: names of this machine may be looked up, as in C tor, but not onion
/// services.
#[test]
fn lookups_obey_the_rules_in_every_spelling() {
    for way in [Way::Attached, Way::Released, Way::None] {
        let (mut world, circuit) = world(way != Way::None);
        for name in ["abc.onion", "abc.onion.", "onion.example.", "127.192.0.1."] {
            let name = name.to_owned();
            let stream = world.ask(AppOpening::Resolve { name: name.clone() }, None);
            if way != Way::None {
                let to = (way == Way::Attached).then_some((circuit, None));
                let attached = world.client.attach_stream(stream, to, world.now);
                assert_eq!(attached, Err(ControlError::Refused), "{name}");
                world.run();
            }
            assert!(world.refused.contains_key(&stream), "{way:?} {name}");
        }
        let name = "192.0.2.7.".to_owned();
        let stream = world.ask(AppOpening::Resolve { name }, None);
        if way != Way::None {
            let to = (way == Way::Attached).then_some((circuit, None));
            let attached = world.client.attach_stream(stream, to, world.now);
            assert_eq!(attached, Ok(()), "it is answered");
            world.run();
        }
        assert!(world.answered.contains_key(&stream), "{way:?}");
        assert!(world.openings.is_empty(), "{way:?}");
    }
}

#[test]
fn a_reverse_lookup_that_is_redirected_asks_for_what_it_was_redirected_to() {
    let (mut world, circuit) = world(true);
    let to = Some((circuit, None));
    let addr = "192.0.2.1".parse().unwrap();
    for (host, sent) in [
        ("192.0.2.7", Some("7.2.0.192.in-addr.arpa")),
        ("10.0.0.1", None),
        ("name.example", None),
    ] {
        world.openings.clear();
        let stream = world.ask(AppOpening::ResolvePtr { addr }, None);
        let client = &mut world.client;
        client.redirect_stream(stream, host, None).unwrap();
        let _ = client.attach_stream(stream, to, world.now);
        world.run();
        let names = world.openings.iter().map(|(_, opening)| match opening {
            StreamOpening::Resolve { name } => name.as_str(),
            other => panic!("{other:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), Vec::from_iter(sent), "{host}");
    }
}

/// The exit's word for where a name leads passes the rules like any other destination.
#[test]
fn an_address_that_an_exit_found_is_checked_before_the_next_exit_gets_it() {
    let mut world = World::new(5, 2, "accept 80,443");
    configure(&mut world, |config| config.reject_internal_answers = false);
    for number in [11, 12] {
        let addr = Some([10, 0, 0, 1].into());
        world.relay(number).exits = Exits::Ends(EndReason::EXITPOLICY, addr);
    }
    world.ready();
    let stream = world.connect("example.com", 80, None);
    assert_eq!(begun(&world, stream), [("example.com".to_owned(), 80)]);
    assert_eq!(world.refused[&stream], AppRefusal::General);
}

#[test]
fn a_map_of_torrc_ends_with_its_line() {
    let (mut world, _) = world(false);
    let stream = world.connect("mapped.example", 80, None);
    assert_eq!(begun(&world, stream)[0].0, "private.example");
    world.client.map_address("c.example", "d.example").unwrap();
    configure(&mut world, |config| config.maps.clear());
    let stream = world.connect("mapped.example", 80, None);
    assert_eq!(begun(&world, stream)[0].0, "mapped.example");
    let stream = world.connect("c.example", 80, None);
    assert_eq!(
        begun(&world, stream)[0].0,
        "d.example",
        "a controller's stays"
    );
}
