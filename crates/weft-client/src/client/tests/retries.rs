//! Exits that refuse streams: the exits that are asked next, and the guards that are not blamed.

use std::net::IpAddr;

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::origin::AppRefusal;
use weft_path::Outcome;

use super::world::{Exits, World, rsa};

/// Ends a stream that was asked for, as its exit does.
fn end(world: &mut World, stream: ConnectionId, reason: EndReason) {
    let circuit = world.attached.remove(&stream);
    world.event(weft_core::origin::OriginEvent::Ended {
        stream,
        circuit,
        reason,
        addr: None,
        by: weft_core::origin::EndedBy::Exit,
        waiting: true,
        bytes: (0, 0),
    });
}

#[test]
fn all_streams_of_a_full_exit_go_to_another_one() {
    for reason in [EndReason::RESOURCELIMIT, EndReason::HIBERNATING] {
        let mut world = World::new(5, 1, "accept 80,443");
        world.relay(11).exits = Exits::Silent;
        world.ready();
        let hosts = ["a.example", "b.example", "c.example"];
        let streams = hosts.map(|host| world.connect(host, 80, None));
        for stream in streams {
            assert_eq!(world.exit_of(stream), rsa(11));
        }
        world.add(12, "accept 80,443", true);
        for stream in streams {
            end(&mut world, stream, reason);
        }
        for stream in streams {
            assert!(world.connected.contains(&stream), "{reason}: {stream}");
            assert_eq!(world.exit_of(stream), rsa(12));
        }
    }
}

#[test]
fn where_all_exits_are_full_a_stream_fails_and_asks_each_once() {
    let mut world = World::new(5, 3, "accept 80,443");
    for number in 11..=13 {
        world.relay(number).exits = Exits::Ends(EndReason::RESOURCELIMIT, None);
    }
    world.ready();
    let stream = world.connect("example.com", 80, None);
    world.wait(2);
    assert_eq!(world.refused[&stream], AppRefusal::General);
    assert_eq!(world.openings.len(), 3);
}

/// An exit's policy is known by ports alone: a refused address implies nothing about others, and a
/// web page has as many addresses as it likes that exits refuse.
#[test]
fn an_address_that_exits_refuse_costs_no_exit_for_others() {
    let mut world = World::new(5, 3, "accept 80,443");
    let addr = IpAddr::from([203, 0, 113, 9]);
    for number in 11..=13 {
        world.relay(number).exits = Exits::Ends(EndReason::EXITPOLICY, Some(addr));
    }
    world.ready();
    let stream = world.connect("203.0.113.9", 80, None);
    world.wait(2);
    assert_eq!(world.refused[&stream], AppRefusal::General);
    assert_eq!(world.openings.len(), 3, "each exit once");
    for number in 11..=13 {
        world.relay(number).exits = Exits::Connects;
    }
    let other = world.connect("example.org", 80, None);
    world.wait(1);
    assert!(world.connected.contains(&other));
}

/// A tagging guard makes an exit fail in ways that are not these (path-spec 7).
#[test]
fn an_exit_s_refusal_shows_that_the_circuit_works() {
    let shows = |reason| {
        let mut world = World::new(5, 1, "accept 80,443");
        world.relay(11).exits = Exits::Ends(reason, None);
        world.ready();
        world.connect("example.com", 80, None);
        let outcomes = &world.client.chooser_ref().outcomes;
        assert!(outcomes.contains(&(rsa(1), Outcome::Used)), "{reason}");
        outcomes.contains(&(rsa(1), Outcome::UseSucceeded))
    };
    for reason in [
        EndReason::CONNECTREFUSED,
        EndReason::EXITPOLICY,
        EndReason::RESOLVEFAILED,
        EndReason::TIMEOUT,
        EndReason::RESOURCELIMIT,
    ] {
        assert!(shows(reason), "{reason}");
    }
    for reason in [
        EndReason::TORPROTOCOL,
        EndReason::DESTROY,
        EndReason::INTERNAL,
    ] {
        assert!(!shows(reason), "{reason}");
    }
}

#[test]
fn no_stream_follows_on_a_circuit_whose_exit_complains_of_the_protocol() {
    for reason in [EndReason::TORPROTOCOL, EndReason::DESTROY] {
        let mut world = World::new(5, 1, "accept 80,443");
        world.relay(11).exits = Exits::Silent;
        world.ready();
        let first = world.connect("a.example", 80, None);
        let circuit = world.attached[&first];
        end(&mut world, first, reason);
        assert_eq!(world.refused[&first], AppRefusal::General);
        let next = world.connect("b.example", 80, None);
        assert_ne!(world.attached.get(&next), Some(&circuit));
    }
}
