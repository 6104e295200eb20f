//! What shows that the network is not down.

use std::net::SocketAddr;

use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::address::ConnectionId;
use weft_core::origin::{EndedBy, LinkState, OriginEvent, OriginId};
use weft_core::traffic::{CircuitReport, CircuitTraffic};

use super::world::{World, rsa};
use crate::chooser::BuildNews;

impl World {
    /// Whether an event is taken as a sign of the network.
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
    // Of circuits and streams that are gone: what came last is a sign, too.
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
        link(LinkState::Failed),
        link(LinkState::Closed),
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
