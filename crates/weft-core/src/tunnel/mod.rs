//! Tunnels: several circuits between a client and one relay over which the streams of one are spread (conflux sets of
//! proposal 329; Yang and Li 2015).
//!
//! A tunnel is a circuit half without a link: it has streams, and sends their messages on its *legs*, which are halves with links,
//! perhaps of other threads. To edges, to the controller and to the client thread it is a half like any other. Here is what it
//! decides: which leg takes the next message ([`Legs`]), and in which order what arrives is handed on ([`Reorder`]). What a leg
//! knows of it is [`LegSide`].

mod legs;
mod reorder;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::conflux_msg::{DesiredUx, Link};

use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId};
use crate::flow::Terms;
use crate::ledger::Held;
use crate::origin::TunnelKind;
use crate::streams::Streams;
use crate::traffic::CircuitTraffic;

pub use legs::Closing;
pub(crate) use legs::{Choice, Legs, Removed, Scheduling};
pub(crate) use reorder::{Arrival, Reorder};

/// Legs that one tunnel has at most, those that are still being linked among them.
pub(crate) const MAX_LEGS: usize = 16;

/// What a tunnel is known by while its legs are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelName {
    /// The nonce of a conflux set whose legs end at this relay.
    Nonce([u8; 32]),
    /// A tunnel of our own.
    Origin(OriginId),
}

/// Where a leg's circuit comes from: what a stream's request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegLink {
    /// The link's connection.
    pub connection: ConnectionId,
    /// The network of its peer's address.
    pub network: IpAddr,
    /// The link's peer is no relay.
    pub from_client: bool,
}

/// What the two ends of a leg know of each other's sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Messages that the tunnel has sent.
    pub sent: u64,
    /// Messages that it has handed on.
    pub received: u64,
}

/// A half that wants to be a leg.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    /// The half.
    pub leg: HalfAddr,
    /// What its streams' rules would be.
    pub terms: Terms,
    /// Its link.
    pub link: LegLink,
    /// CONFLUX_LINK's content. `None`: the circuit is our own, and the far end is asked next.
    pub asked: Option<Link>,
}

/// The tunnel that a half is a leg of.
#[derive(Debug)]
pub(crate) struct LegSide {
    /// Where the tunnel is, once that is known.
    pub tunnel: Option<HalfAddr>,
    /// The hop that the tunnel leads to.
    pub hop: HopIndex,
    /// How far it has come.
    pub stage: Stage,
    /// What the far end knows the set by.
    pub nonce: [u8; 32],
    /// What the far end asked for, or (of our own) is asked for.
    pub ux: DesiredUx,
    /// What CONFLUX_LINK had, until the tunnel has it.
    pub asked: Option<Link>,
    /// Counted cells that the tunnel may send, or has sent and have not arrived.
    pub granted: u32,
    /// The tunnel's messages that were sent on the circuit.
    pub taken: u64,
    /// Messages that were handed to the tunnel.
    pub given: u64,
}

/// How far a leg has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for the tunnel.
    Joining,
    /// CONFLUX_LINK (of our own) or CONFLUX_LINKED (at a relay) was sent then; the answer has not arrived.
    Linking(Instant),
    /// The answer has arrived.
    Linked,
}

impl LegSide {
    /// A leg that has not met its tunnel.
    pub(crate) fn new(hop: HopIndex, nonce: [u8; 32], ux: DesiredUx, asked: Option<Link>) -> Self {
        LegSide {
            tunnel: None,
            hop,
            stage: Stage::Joining,
            nonce,
            ux,
            asked,
            granted: 0,
            taken: 0,
            given: 0,
        }
    }
}

/// A leg lends in batches of this many, if the tunnel still has some.
pub(crate) const LEG_BATCH: u32 = 16;

/// The state of a tunnel. See the module.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// What the controller knows it by.
    pub name: TunnelName,
    /// Its streams. They have one end, whatever hop of its circuits the tunnel leads to.
    pub streams: Streams,
    /// Its legs.
    pub legs: Legs,
    /// What has arrived too early.
    pub reorder: Reorder,
    /// What the first leg agreed on, and all others must.
    pub terms: Terms,
    /// The circuits begin here: what was carried.
    pub traffic: Option<CircuitTraffic>,
}

impl Tunnel {
    /// A tunnel without legs.
    pub(crate) fn new(name: TunnelName, streams: Streams, terms: Terms) -> Self {
        let traffic = match name {
            TunnelName::Origin(_) => Some(CircuitTraffic::default()),
            TunnelName::Nonce(_) => None,
        };
        Tunnel {
            name,
            streams,
            legs: Legs::default(),
            reorder: Reorder::default(),
            terms,
            traffic,
        }
    }

    /// What both ends must know before a leg is linked.
    pub(crate) fn sequence(&self) -> Sequence {
        Sequence {
            sent: self.legs.sent(),
            received: self.reorder.delivered(),
        }
    }

    /// What it holds.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let mut held = self.streams.held(now);
        held += self.reorder.held(now);
        held.bytes += size_of::<Tunnel>() + self.legs.memory();
        held
    }
}

/// The scheduling that serves what a far end asked for, as in C tor.
pub(crate) fn scheduling(ux: DesiredUx) -> Scheduling {
    match ux {
        DesiredUx::NoOpinion | DesiredUx::HighThroughput => Scheduling::LowRtt,
        DesiredUx::MinLatency | DesiredUx::LowMemLatency | DesiredUx::LowMemThroughput => {
            Scheduling::MinRtt
        }
    }
}

/// What a client asks the far end for, of a tunnel of this kind.
pub(crate) fn asked_of(kind: TunnelKind) -> ([u8; 32], DesiredUx) {
    match kind {
        TunnelKind::Conflux { nonce, ux } => (nonce, ux),
    }
}

/// A leg's round trip, with what it may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Counted cells that may be sent in addition.
    pub cells: u32,
    /// The circuit's round trip, if one was measured.
    pub rtt: Option<Duration>,
}
