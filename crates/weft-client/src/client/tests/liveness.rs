//! Signs that the network is up.

use std::net::SocketAddr;

use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::address::ConnectionId;
use weft_core::origin::traffic::{CircuitReport, CircuitTraffic};
use weft_core::origin::{EndedBy, LinkFailure, LinkState, OriginEvent, OriginId};
use weft_log::{SafeLogging, Severity};

use super::world::{Manner, World, rsa};
use crate::chooser::BuildNews;
use crate::output::Output;

impl World {
    /// Returns true if the client takes an event as a sign that the network is up.
    fn shows_life(&mut self, event: OriginEvent) -> bool {
        self.client.chooser().built.clear();
        let now = self.now;
        self.client.on_event(event, now);
        self.client.chooser_ref().built.contains(&BuildNews::Alive)
    }
}

#[test]
fn whatever_the_network_sends_shows_that_it_is_live_and_nothing_else_does() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.ready();
    // Signs from circuits and streams that have ended count, too.
    let (circuit, stream) = (OriginId(9_999), ConnectionId(77));
    let link = |state| OriginEvent::Link {
        connection: ConnectionId(1),
        rsa: rsa(1),
        addr: SocketAddr::from(([10, 0, 0, 1], 9001)),
        state,
    };
    let closed = |remote| OriginEvent::Closed {
        circuit,
        reason: DestroyReason::FINISHED,
        remote,
    };
    let ended = |by| OriginEvent::Ended {
        stream,
        circuit: Some(circuit),
        reason: EndReason::DONE,
        addr: None,
        by,
        waiting: false,
        bytes: (0, 0),
    };
    let traffic = |read, written| OriginEvent::Traffic {
        streams: Vec::new(),
        circuits: vec![CircuitReport {
            circuit,
            traffic: CircuitTraffic {
                read,
                written,
                ..CircuitTraffic::default()
            },
            congestion: None,
        }],
    };
    let weight = OriginEvent::Weight {
        circuit,
        hop: weft_core::address::HopIndex(0),
        statement: Vec::new(),
    };
    for event in [
        link(LinkState::Connected),
        closed(true),
        ended(EndedBy::Exit),
        traffic(509, 0),
        weight,
    ] {
        assert!(world.shows_life(event.clone()), "{event:?}");
    }
    for event in [
        link(LinkState::Launched),
        link(LinkState::Failed(LinkFailure::Refused)),
        link(LinkState::Closed(LinkFailure::Done)),
        closed(false),
        ended(EndedBy::Application),
        ended(EndedBy::Circuit),
        traffic(0, 509),
        OriginEvent::Launched {
            circuit,
            connection: ConnectionId(1),
        },
    ] {
        assert!(!world.shows_life(event.clone()), "{event:?}");
    }
}

impl World {
    /// The notices so far about a network that does not answer.
    fn notices(&self) -> Vec<String> {
        let notice = |output: &Output| match output {
            Output::Log(line) if line.severity() == Severity::Notice => {
                Some(line.render(SafeLogging::All))
            }
            _ => None,
        };
        let all = self.outputs.iter().filter_map(notice);
        all.filter(|line| line.contains("network")).collect()
    }
}

#[test]
fn a_network_that_vanishes_and_comes_back_is_noticed() {
    let mut world = World::new(1, 3, "accept 80,443");
    world.ready();
    world.wait(2);
    assert!(world.client.is_established());
    for relay in world.relays.values_mut() {
        relay.manner = Manner::Unreachable;
    }
    let circuits: Vec<OriginId> = world.list().iter().map(|circuit| circuit.id).collect();
    for circuit in circuits {
        world.destroy(circuit);
    }
    for port in 0..5 {
        world.connect("host.example", 80 + port % 2 * 363, None);
    }
    world.wait(9);
    assert_eq!(world.notices(), [""; 0]);
    world.wait(20);
    let notices = world.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    for part in [
        "5 streams of applications wait",
        "(Connection refused; CONNECTREFUSED)",
    ] {
        assert!(notices[0].contains(part), "{notices:?}");
    }
    world.event(OriginEvent::Link {
        connection: ConnectionId(1),
        rsa: rsa(1),
        addr: SocketAddr::from(([10, 0, 0, 1], 9001)),
        state: LinkState::Connected,
    });
    let notices = world.notices();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(
        notices[1].contains("The network answers again"),
        "{notices:?}"
    );
}
