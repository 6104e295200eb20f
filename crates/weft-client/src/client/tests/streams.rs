//! Streams: refused, kept apart, tried again, held for controllers.

use std::net::IpAddr;

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Answer, AnswerKind, BeginFlags, Resolved};
use weft_core::origin::{AppOpening, AppRefusal, OriginEvent, StreamOpening};
use weft_log::SafeLogging;
use weft_path::{Outcome, RelayName};

use super::world::{Exits, Manner, World, rsa};
use crate::circuits::Hop;
use crate::config::{ClientConfig, ListenerConfig};
use crate::events::{
    CircuitPurpose, ClientEvent, RemapSource, StreamEnd, StreamNews, StreamStatus,
};
use crate::isolation::Isolation;
use crate::{ControlError, DirectoryTarget, Output};

fn configure(world: &mut World, change: impl FnOnce(&mut ClientConfig)) {
    let mut config = world.client.config().clone();
    change(&mut config);
    world.client.set_config(config, world.now);
    world.run();
}

#[test]
fn a_stream_waits_for_the_directory_and_for_a_circuit() {
    let mut world = World::new(1, 2, "accept 80,443");
    let stream = world.connect("Example.com", 80, None);
    assert!(world.refused.is_empty());
    world.ready();
    assert!(world.connected.contains(&stream));
    let (_, opening) = &world.openings[0];
    assert_eq!(
        *opening,
        StreamOpening::Begin {
            host: "example.com".to_owned(),
            port: 80,
            // The exit has no IPv6.
            flags: BeginFlags::default(),
        }
    );
    let kinds = world.news(stream);
    assert_eq!(
        kinds,
        [
            StreamNews::New,
            StreamNews::SentConnect,
            StreamNews::Succeeded
        ]
    );
}

#[test]
fn an_application_does_not_wait_longer_than_socks_timeout() {
    let mut world = World::new(1, 2, "accept 80,443");
    let stream = world.connect("example.com", 80, None);
    world.wait(119);
    assert!(world.refused.is_empty());
    world.wait(1);
    assert_eq!(world.refused[&stream], AppRefusal::TtlExpired);
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    for (host, port, why) in [
        ("127.0.0.1", 80, AppRefusal::General),
        ("10.1.2.3", 80, AppRefusal::General),
        ("::1", 80, AppRefusal::General),
        ("localhost", 80, AppRefusal::General),
        ("printer.local", 80, AppRefusal::General),
        ("example.com", 0, AppRefusal::General),
        // No exit takes it.
        ("example.com", 25, AppRefusal::General),
    ] {
        let stream = world.connect(host, port, None);
        assert_eq!(world.refused.get(&stream), Some(&why), "{host}:{port}");
    }
    configure(&mut world, |config| {
        config.reject_plaintext_ports = vec![80]
    });
    let stream = world.connect("example.com", 80, None);
    assert_eq!(world.refused[&stream], AppRefusal::NotAllowed);
    configure(&mut world, |config| {
        config.reject_plaintext_ports.clear();
        config.reject_internal = false;
    });
    let stream = world.connect("127.0.0.1", 80, None);
    assert!(world.connected.contains(&stream));
}

#[test]
fn a_listener_refuses_what_it_does_not_take() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    configure(&mut world, |config| {
        config.listeners = vec![ListenerConfig {
            ipv4: false,
            dns: false,
            ..ListenerConfig::default()
        }];
    });
    for host in ["192.0.2.200", "example.com"] {
        let stream = world.connect(host, 80, None);
        assert_eq!(world.refused[&stream], AppRefusal::NotAllowed, "{host}");
    }
}

#[test]
fn streams_of_two_logins_never_share_a_circuit_and_those_of_one_do() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    let a1 = world.connect("example.com", 80, Some("a"));
    let b1 = world.connect("example.com", 80, Some("b"));
    let a2 = world.connect("example.org", 443, Some("a"));
    let none = world.connect("example.com", 80, None);
    let on = |stream| world.attached[&stream];
    assert_eq!(on(a1), on(a2));
    assert_ne!(on(a1), on(b1));
    assert_ne!(on(none), on(a1));
    assert_ne!(on(none), on(b1));
}

#[test]
fn streams_that_wait_together_get_a_circuit_for_each_login() {
    let mut world = World::new(1, 2, "accept 80,443");
    let streams: Vec<_> = (0..8)
        .map(|number| world.connect("example.com", 80, Some(&number.to_string())))
        .collect();
    world.ready();
    let mut circuits: Vec<_> = streams.iter().map(|id| world.attached[id]).collect();
    circuits.sort();
    circuits.dedup();
    assert_eq!(circuits.len(), 8);
}

#[test]
fn isolation_by_destination_is_a_matter_of_the_listener() {
    let mut world = World::new(1, 2, "accept 80,443");
    configure(&mut world, |config| {
        config.listeners = vec![ListenerConfig {
            isolation: Isolation::DEFAULT | Isolation::DEST_ADDR | Isolation::DEST_PORT,
            ..ListenerConfig::default()
        }];
    });
    world.ready();
    let a = world.connect("a.example", 80, None);
    let b = world.connect("b.example", 80, None);
    let a2 = world.connect("A.example", 80, None);
    let port = world.connect("a.example", 443, None);
    assert_ne!(world.attached[&a], world.attached[&b]);
    assert_eq!(world.attached[&a], world.attached[&a2]);
    assert_ne!(world.attached[&a], world.attached[&port]);
}

#[test]
fn newnym_leaves_old_streams_and_gives_new_ones_new_circuits() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    let before = world.connect("example.com", 80, None);
    world.client.new_identity(world.now);
    world.run();
    let after = world.connect("example.com", 80, None);
    assert_ne!(world.attached[&before], world.attached[&after]);
    assert!(world.connected.contains(&before));
}

#[test]
fn where_other_relays_are_wanted_streams_get_other_circuits() {
    let mut world = World::new(3, 2, "accept 80,443");
    world.ready();
    let before = world.connect("example.com", 80, None);
    world.client.abandon_circuits();
    let after = world.connect("example.com", 80, None);
    assert_ne!(world.attached[&before], world.attached[&after]);
    assert!(world.connected.contains(&before) && world.connected.contains(&after));
}

#[test]
fn a_silent_exit_is_left_after_ten_seconds() {
    let mut world = World::new(3, 2, "accept 80,443");
    world.ready();
    world.relay(11).exits = Exits::Silent;
    world.relay(12).exits = Exits::Silent;
    let stream = world.connect("example.com", 80, None);
    let first = world.attached[&stream];
    world.wait(9);
    assert_eq!(world.attached[&stream], first);
    world.relay(11).exits = Exits::Connects;
    world.relay(12).exits = Exits::Connects;
    world.wait(1);
    assert!(world.connected.contains(&stream));
    assert_ne!(world.attached[&stream], first);
    assert!(
        world
            .news(stream)
            .iter()
            .any(|news| matches!(news, StreamNews::Detached(_)))
    );
}

#[test]
fn an_exit_that_refuses_for_its_policy_is_not_asked_again() {
    let mut world = World::new(5, 4, "accept 80,443");
    for number in 11..=13 {
        world.relay(number).exits = Exits::Ends(EndReason::EXITPOLICY, None);
    }
    world.ready();
    let stream = world.connect("example.com", 80, None);
    world.wait(1);
    assert!(world.connected.contains(&stream));
    assert_eq!(world.exit_of(stream), rsa(14));
    // Others that come do not try them either.
    let begun = world.openings.len();
    let next = world.connect("example.org", 80, None);
    assert!(world.connected.contains(&next));
    assert_eq!(world.openings.len(), begun + 1);
}

#[test]
fn an_address_that_the_exit_found_is_asked_of_the_next_exit() {
    let mut world = World::new(5, 2, "accept 80,443");
    let addr = IpAddr::from([203, 0, 113, 9]);
    for number in [11, 12] {
        world.relay(number).exits = Exits::Ends(EndReason::EXITPOLICY, Some(addr));
    }
    world.ready();
    let stream = world.connect("example.com", 80, None);
    let asked: Vec<_> = world
        .openings
        .iter()
        .map(|(_, opening)| match opening {
            StreamOpening::Begin { host, .. } => host.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(asked[0], "example.com");
    assert_eq!(asked[1], "203.0.113.9");
    assert!(
        world
            .news(stream)
            .contains(&StreamNews::Remap(RemapSource::Exit))
    );
    world.wait(5);
    assert_eq!(world.refused[&stream], AppRefusal::General);
}

#[test]
fn an_exit_that_answers_with_an_internal_address_is_not_believed() {
    let mut world = World::new(5, 2, "accept 80,443");
    let addr = IpAddr::from([10, 0, 0, 1]);
    for number in [11, 12] {
        world.relay(number).exits = Exits::Ends(EndReason::EXITPOLICY, Some(addr));
    }
    world.ready();
    let stream = world.connect("example.com", 80, None);
    assert_eq!(world.openings.len(), 1);
    assert_eq!(world.refused[&stream], AppRefusal::NotAllowed);
}

/// The address in the events of a lookup is the one that its application gets, and an internal one is in none.
#[test]
fn what_an_exit_found_is_told_as_the_application_gets_it() {
    let v4 = |octets: [u8; 4]| AnswerKind::Ipv4(octets.into());
    let v6 = AnswerKind::Ipv6([0x2606, 0x4700, 0, 0, 0, 0, 0, 1].into());
    let all = [v4([10, 0, 0, 1]), v4([203, 0, 113, 5]), v6];
    let hidden = [v4([10, 0, 0, 1])];
    for (prefer_ipv6, answers, told, reason) in [
        (true, &all[..], &["2606:4700::1"][..], EndReason::DONE),
        (false, &all[..], &["203.0.113.5"], EndReason::DONE),
        (true, &hidden[..], &[], EndReason::TORPROTOCOL),
    ] {
        let mut world = World::new(5, 2, "accept 80,443");
        configure(&mut world, |config| {
            config.listeners = vec![ListenerConfig {
                prefer_ipv6,
                ..ListenerConfig::default()
            }];
        });
        for number in [11, 12] {
            world.relay(number).exits = Exits::Silent;
        }
        world.ready();
        let name = "example.com".to_owned();
        let stream = world.ask(AppOpening::Resolve { name }, None);
        let answers = answers.iter().map(|kind| Answer {
            kind: kind.clone(),
            ttl: 60,
        });
        let resolved = Resolved {
            answers: answers.collect(),
        };
        let circuit = world.attached[&stream];
        world.event(OriginEvent::Resolved {
            stream,
            circuit,
            resolved,
        });
        let mut hosts = Vec::new();
        for event in &world.events {
            match event {
                ClientEvent::Stream {
                    stream,
                    what: StreamNews::Remap(RemapSource::Exit),
                } => hosts.push(stream.host.clone()),
                ClientEvent::Mapped { to: Some(to), .. } => assert_ne!(to, "10.0.0.1"),
                _ => {}
            }
        }
        assert_eq!(hosts, told);
        let end = StreamNews::Closed(StreamEnd::Local(reason));
        assert_eq!(world.news(stream).last(), Some(&end));
    }
}

#[test]
fn a_name_that_does_not_resolve_is_tried_at_three_exits() {
    let mut world = World::new(5, 5, "accept 80,443");
    for number in 11..=15 {
        world.relay(number).exits = Exits::Ends(EndReason::RESOLVEFAILED, None);
    }
    world.ready();
    let stream = world.connect("nowhere.example", 80, None);
    world.wait(2);
    assert_eq!(world.refused[&stream], AppRefusal::HostUnreachable);
    assert_eq!(world.openings.len(), 3);
}

#[test]
fn reasons_that_another_exit_would_not_change_end_the_stream_at_once() {
    for (reason, why) in [
        (EndReason::CONNECTREFUSED, AppRefusal::ConnectionRefused),
        (EndReason::DONE, AppRefusal::ConnectionRefused),
        (EndReason::CONNRESET, AppRefusal::ConnectionRefused),
        (EndReason::TIMEOUT, AppRefusal::TtlExpired),
        (EndReason::TORPROTOCOL, AppRefusal::General),
    ] {
        let mut world = World::new(5, 2, "accept 80,443");
        for number in [11, 12] {
            world.relay(number).exits = Exits::Ends(reason, None);
        }
        world.ready();
        let stream = world.connect("example.com", 80, None);
        assert_eq!(world.refused[&stream], why, "{reason}");
        assert_eq!(world.openings.len(), 1);
    }
}

#[test]
fn a_circuit_that_dies_takes_open_streams_with_it_and_not_those_that_wait() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.ready();
    let open = world.connect("example.com", 80, None);
    world.relay(11).exits = Exits::Silent;
    world.relay(12).exits = Exits::Silent;
    let waits = world.connect("example.com", 80, None);
    let circuit = world.attached[&open];
    assert_eq!(world.attached[&waits], circuit);
    world.relay(11).exits = Exits::Connects;
    world.relay(12).exits = Exits::Connects;
    world.destroy(circuit);
    assert!(world.connected.contains(&waits));
    assert_ne!(world.attached[&waits], circuit);
    assert!(!world.attached.contains_key(&open));
    assert!(world.refused.is_empty());
}

#[test]
fn lookups_are_answered_here_or_by_an_exit() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.ready();
    let literal = world.ask(
        AppOpening::Resolve {
            name: "192.0.2.7".to_owned(),
        },
        None,
    );
    let answer = &world.answered[&literal].answers[0].kind;
    assert_eq!(*answer, AnswerKind::Ipv4([192, 0, 2, 7].into()));
    let internal = world.ask(
        AppOpening::ResolvePtr {
            addr: IpAddr::from([10, 0, 0, 1]),
        },
        None,
    );
    let answer = &world.answered[&internal].answers[0].kind;
    assert_eq!(*answer, AnswerKind::Error);
    let name = world.ask(
        AppOpening::Resolve {
            name: "example.com".to_owned(),
        },
        None,
    );
    assert!(!world.answered.contains_key(&name));
    assert!(matches!(world.openings[0].1, StreamOpening::Resolve { .. }));
    assert_eq!(world.client.streams().count(), 0);
}

#[test]
fn a_controller_s_lookup_of_an_address_leaves_nothing_behind() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.ready();
    let what = AppOpening::Resolve {
        name: "192.0.2.9".to_owned(),
    };
    let stream = world.client.look_up(what, world.now).unwrap();
    world.run();
    let looked =
        |output: &Output| matches!(output, Output::LookedUp { stream: id, .. } if *id == stream);
    assert!(world.outputs.iter().any(looked));
    // Its edge is notified, and so closed.
    assert!(world.answered.contains_key(&stream));
}

#[test]
fn a_destination_is_kept_to_its_exit_while_that_works() {
    let mut world = World::new(7, 6, "accept 80,443");
    configure(&mut world, |config| {
        config.track_hosts = vec![".example.com".to_owned()];
    });
    world.ready();
    let first = world.connect("WWW.example.com", 80, Some("a"));
    let exit = world.exit_of(first);
    // Others, which share no circuit, too.
    for user in ["b", "c", "d", "e"] {
        let stream = world.connect("www.example.com", 443, Some(user));
        world.wait(1);
        assert_eq!(world.exit_of(stream), exit);
    }
    // It does not work any more: another will do, and is kept to from then on.
    world.relays.get_mut(&exit).unwrap().exits = Exits::Ends(EndReason::RESOLVEFAILED, None);
    let next = world.connect("www.example.com", 80, Some("f"));
    world.wait(1);
    let other = world.exit_of(next);
    assert!(world.connected.contains(&next) && other != exit);
    let stream = world.connect("www.example.com", 80, Some("g"));
    world.wait(1);
    assert_eq!(world.exit_of(stream), other);
    // Nor if it cannot be reached.
    world.relays.get_mut(&other).unwrap().manner = Manner::Refuses;
    let stream = world.connect("www.example.com", 80, Some("h"));
    world.wait(3);
    assert!(world.connected.contains(&stream) && world.exit_of(stream) != other);
}

#[test]
fn maps_lead_elsewhere_and_to_chosen_exits() {
    let mut world = World::new(5, 3, "accept 80,443");
    world.ready();
    world
        .client
        .map_address("a.example", "b.example.relay13.exit")
        .unwrap();
    let stream = world.connect("a.example", 80, None);
    assert_eq!(world.exit_of(stream), rsa(13));
    let (_, opening) = world.openings.last().unwrap();
    assert!(matches!(opening, StreamOpening::Begin { host, .. } if host == "b.example"));
    world
        .client
        .map_address("c.example", "d.example.nobody.exit")
        .unwrap();
    let stream = world.connect("c.example", 80, None);
    assert!(world.refused.contains_key(&stream));
    world.client.map_address("e.example", "f.Onion").unwrap();
    let begun = world.openings.len();
    let stream = world.connect("e.example", 80, None);
    assert_eq!(
        world.refused.get(&stream),
        Some(&AppRefusal::OnionService(0))
    );
    assert_eq!(world.openings.len(), begun);
    let logged = |output: &Output| match output {
        Output::Log(line) => {
            let text = line.render(SafeLogging::Off).to_ascii_lowercase();
            text.contains("f.onion is an onion service")
        }
        _ => false,
    };
    assert!(world.outputs.iter().any(logged), "by MapAddress, too");
}

#[test]
fn streams_wait_for_a_controller_where_it_wants_so() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.ready();
    configure(&mut world, |config| config.leave_streams_unattached = true);
    let stream = world.connect("example.com", 80, None);
    let info = world.client.streams().next().unwrap();
    assert_eq!(info.status, StreamStatus::ControllerWait);
    let now = world.now;
    let names = [2, 3, 11].map(|number| RelayName::Rsa(rsa(number)));
    let circuit = world
        .client
        .new_circuit(&names, CircuitPurpose::Controller, now)
        .unwrap();
    assert_eq!(
        world
            .client
            .attach_stream(stream, Some((circuit, None)), now),
        Err(ControlError::NotOpen)
    );
    world.run();
    assert_eq!(
        world
            .client
            .attach_stream(stream, Some((circuit, Some(1))), now),
        Err(ControlError::NoHop)
    );
    world
        .client
        .attach_stream(stream, Some((circuit, None)), now)
        .unwrap();
    world.run();
    assert_eq!(world.attached[&stream], circuit);
    assert!(world.connected.contains(&stream));
    let other = world.connect("example.com", 80, None);
    world.client.attach_stream(other, None, now).unwrap();
    world.run();
    assert!(world.connected.contains(&other));
    assert_ne!(world.attached[&other], circuit);
    let refused = world.connect("example.com", 80, None);
    world
        .client
        .close_stream(refused, EndReason::MISC, now)
        .unwrap();
    world.run();
    assert!(world.refused.contains_key(&refused));
}

fn fallback(number: u8) -> Hop {
    Hop {
        rsa: rsa(number),
        ed25519: None,
        ntor: None,
        addrs: vec![format!("192.0.2.{number}:9001").parse().unwrap()],
        ntor_v3: false,
        congestion_control: false,
        cgo: false,
        abra: false,
        bandwidth: 0,
        nickname: format!("fallback{number}"),
    }
}

#[test]
fn directory_streams_go_over_one_hop_and_share_it() {
    let mut world = World::new(5, 2, "accept 80,443");
    let target = DirectoryTarget::Relay(fallback(1));
    let open = |world: &mut World| {
        let id = world.client.open_directory(&target, world.now).unwrap();
        world.client.serve_now(world.now);
        world.run();
        id
    };
    let first = open(&mut world);
    let second = open(&mut world);
    assert_eq!(world.launches, 1);
    assert_eq!(world.attached[&first], world.attached[&second]);
    let ready = |id| {
        world
            .outputs
            .iter()
            .any(|output| matches!(output, Output::DirectoryReady { stream, .. } if *stream == id))
    };
    assert!(ready(first) && ready(second));
    assert_eq!(world.openings[0].1, StreamOpening::BeginDir);
    // No application's stream goes there.
    let info = world.list();
    assert_eq!(info.len(), 1);
    assert_eq!(info[0].path.len(), 1);
    let stream = world.connect("example.com", 80, None);
    assert!(!world.attached.contains_key(&stream));
}

#[test]
fn a_directory_that_cannot_be_reached_is_reported() {
    for manner in [Manner::Unreachable, Manner::Refuses] {
        let mut world = World::new(5, 2, "accept 80,443");
        world.relay(1).manner = manner;
        let target = DirectoryTarget::Relay(fallback(1));
        let id = world.client.open_directory(&target, world.now).unwrap();
        world.client.serve_now(world.now);
        world.run();
        let gone = world
            .outputs
            .iter()
            .any(|output| matches!(output, Output::DirectoryGone { stream, .. } if *stream == id));
        assert!(gone, "{manner:?}");
        assert_eq!(world.client.streams().count(), 0);
        assert!(world.closed_streams.contains(&id));
        world.all_ends_were_told();
    }
}

#[test]
fn a_directory_guard_is_chosen_and_gets_its_outcome() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.relay(1).manner = Manner::Unreachable;
    world.client.chooser().ready = true;
    let target = DirectoryTarget::Guard;
    for _ in 0..2 {
        let _ = world.client.open_directory(&target, world.now);
        world.client.serve_now(world.now);
        world.run();
    }
    let ready = world
        .outputs
        .iter()
        .any(|output| matches!(output, Output::DirectoryReady { name, .. } if name == "relay2"));
    assert!(ready);
}

/// A client's circuit to a bridge whose fingerprint it does not know.
#[test]
fn a_circuit_to_an_address_alone_is_to_the_relay_that_proved_to_be_there() {
    let mut world = World::new(5, 2, "accept 80,443");
    let addr = "192.0.2.1:9001".parse().unwrap();
    for _ in 0..2 {
        world.client.meet(addr, world.now).unwrap();
    }
    world.run();
    assert_eq!(world.launches, 1);
    assert_eq!(world.list()[0].path[0].0, rsa(1));
    // It is met, and requests go over the same circuit.
    let target = DirectoryTarget::Relay(fallback(1));
    let id = world.client.open_directory(&target, world.now).unwrap();
    world.client.serve_now(world.now);
    world.run();
    assert_eq!(world.launches, 1);
    assert_eq!(world.client.directory_of(id), Some(rsa(1)));
    assert!(world.attached.contains_key(&id));
    let disabled = ClientConfig {
        disable_network: true,
        ..ClientConfig::default()
    };
    world.client.set_config(disabled, world.now);
    assert!(world.client.meet(addr, world.now).is_err());
}

#[test]
fn two_relays_that_are_met_at_once_are_two() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.relay(2).manner = Manner::Unreachable;
    for number in [1, 2] {
        let addr = format!("192.0.2.{number}:9001").parse().unwrap();
        world.client.meet(addr, world.now).unwrap();
    }
    world.run();
    assert_eq!(world.launches, 2);
    let open: Vec<_> = world
        .list()
        .iter()
        .map(|circuit| circuit.path[0].0)
        .collect();
    assert_eq!(open, [rsa(1)]);
}

#[test]
fn a_bridge_that_is_asked_for_its_descriptor_gets_its_outcome_as_a_guard() {
    for (manner, wanted) in [
        (Manner::Good, Outcome::Built),
        (Manner::Unreachable, Outcome::GuardFailed),
    ] {
        let mut world = World::new(5, 2, "accept 80,443");
        world.relay(1).manner = manner;
        world.client.chooser().bridges.insert(rsa(1));
        let target = DirectoryTarget::Relay(fallback(1));
        world.client.open_directory(&target, world.now).unwrap();
        world.client.serve_now(world.now);
        world.run();
        assert_eq!(world.client.chooser().outcomes[0], (rsa(1), wanted));
        // Authorities and fallbacks are no guards.
        let target = DirectoryTarget::Relay(fallback(2));
        world.client.open_directory(&target, world.now).unwrap();
        world.client.serve_now(world.now);
        world.run();
        let mut outcomes = world.client.chooser().outcomes.iter();
        assert!(outcomes.all(|(guard, _)| *guard == rsa(1)));
    }
}

#[test]
fn what_is_gone_does_no_harm() {
    let mut world = World::new(5, 2, "accept 80,443");
    world.ready();
    let stream = world.connect("example.com", 80, None);
    let circuit = world.attached[&stream];
    world.client.close(circuit, false, world.now).unwrap();
    world.run();
    world.event(OriginEvent::Connected {
        stream,
        circuit,
        addr: None,
        ttl: 0,
    });
    world.event(OriginEvent::Launched {
        circuit,
        connection: weft_core::address::ConnectionId(1),
    });
    assert!(!world.list().iter().any(|info| info.id == circuit));
}

#[test]
fn a_name_that_is_looked_up_gets_a_virtual_address_that_leads_to_it() {
    let mut world = World::new(1, 2, "accept 80,443");
    world.ready();
    let lookup = |world: &mut World, name: &str| {
        let name = name.to_owned();
        let stream = world.ask(AppOpening::Resolve { name }, None);
        world.run();
        let resolved = &world.answered[&stream];
        match resolved.answers.as_slice() {
            [one] => one.kind.clone(),
            other => panic!("{other:?}"),
        }
    };
    let name = "a.test".to_owned();
    world.ask(AppOpening::Resolve { name }, None);
    world.run();
    assert_eq!(world.openings.len(), 1, "an exit is asked");
    configure(&mut world, |config| {
        config.automap = weft_config::Automap::new(&[".test".to_owned()]);
        config.listeners = vec![ListenerConfig::default()];
    });
    let asked = world.openings.len();
    let AnswerKind::Ipv6(address) = lookup(&mut world, "A.test") else {
        panic!("IPv6 is preferred");
    };
    assert_eq!(lookup(&mut world, "a.test"), AnswerKind::Ipv6(address));
    configure(&mut world, |config| {
        config.listeners[0].prefer_ipv6_automap = false;
        config.listeners[0].prefer_ipv6 = false;
    });
    let AnswerKind::Ipv4(four) = lookup(&mut world, "a.test") else {
        panic!("IPv4 is preferred");
    };
    assert_eq!(world.openings.len(), asked, "no exit was asked");
    for address in [address.to_string(), four.to_string()] {
        let stream = world.connect(&address, 80, None);
        world.run();
        assert!(world.connected.contains(&stream), "{address}");
        let (_, opening) = world.openings.last().unwrap();
        assert!(
            matches!(opening, StreamOpening::Begin { host, .. } if host == "a.test"),
            "{opening:?}"
        );
    }
    // After NEWNYM the old one is nobody's, and a name gets another.
    world.client.new_identity(world.now);
    world.run();
    let stream = world.connect(&four.to_string(), 80, None);
    world.run();
    assert_eq!(world.refused[&stream], AppRefusal::General);
    let AnswerKind::Ipv4(fresh) = lookup(&mut world, "a.test") else {
        panic!("IPv4 is preferred");
    };
    assert_ne!(fresh, four);
    // Names that are not to have any more lose theirs, and nobody else gets what is sent there.
    configure(&mut world, |config| {
        config.automap = weft_config::Automap::default()
    });
    let stream = world.connect(&fresh.to_string(), 80, None);
    world.run();
    assert_eq!(world.refused[&stream], AppRefusal::General);
}

#[test]
fn a_dormant_client_keeps_nothing_ready_until_an_application_asks() {
    let mut world = World::new(1, 2, "accept 80,443");
    configure(&mut world, |config| {
        config.dormancy.timeout = Some(std::time::Duration::from_secs(1200));
    });
    world.client.go_dormant();
    world.ready();
    world.wait(60);
    assert_eq!(world.launches, 0);
    let stream = world.connect("example.com", 80, None);
    assert!(!world.client.is_dormant() && world.connected.contains(&stream));
    world.wait(5);
    assert!(world.launches > 1, "circuits are kept ready again");
    // An open stream is use.
    world.wait(1800);
    assert!(!world.client.is_dormant());
    let circuit = world.attached.remove(&stream);
    world.event(OriginEvent::Ended {
        stream,
        circuit,
        reason: EndReason::DONE,
        addr: None,
        by: weft_core::origin::EndedBy::Exit,
        waiting: false,
        bytes: (0, 0),
    });
    world.wait(1800);
    assert!(world.client.is_dormant());
}
