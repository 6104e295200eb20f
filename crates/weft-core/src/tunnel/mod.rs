//! Tunnels: several circuits between a client and one relay over which the streams of one are spread (conflux sets of
//! proposal 329; Yang and Li 2015).
//!
//! A tunnel is a circuit half without a link: it has streams, and sends their messages on its *legs*, which are halves with links,
//! perhaps of other threads. To edges, to the controller and to the client thread it is a half like any other. Here is what it
//! decides: which leg takes the next message ([`Legs`]), and in which order what arrives is handed on ([`Reorder`]). What a leg
//! knows of it is [`LegSide`].

mod again;
mod copies;
mod legs;
mod outstanding;
mod reorder;
mod slow;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::conflux_msg::{DesiredUx, Link};
use weft_cell::mtor_msg::{SECRET_LEN, TunnelId};

use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId};
use crate::flow::Terms;
use crate::limits::bucket::TokenBucket;
use crate::memory::cells::CellQueue;
use crate::memory::ledger::{Cause, Held};
use crate::origin::TunnelKind;
use crate::origin::traffic::CircuitTraffic;
use crate::stream::table::Streams;

pub(crate) use again::Acknowledged;
pub use legs::Closing;
pub(crate) use legs::{Choice, Legs, Removed, Scheduling};
pub(crate) use outstanding::SPAN;
pub(crate) use reorder::{Arrival, MAX_REORDER, Reorder};

/// Legs that one tunnel has at most, those that are still being linked among them.
pub(crate) const MAX_LEGS: usize = 16;

/// What a tunnel is known by while its legs are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelName {
    /// The nonce of a conflux set whose legs end at this relay.
    Nonce([u8; 32]),
    /// The id that this relay gave a tunnel whose legs end here, and the secret that they show (mTor).
    Given(TunnelId, [u8; SECRET_LEN]),
    /// A tunnel of our own.
    Origin(OriginId),
}

/// How the messages of a tunnel are numbered, and what happens when a leg closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Conflux: messages are numbered by their place on their leg, and SWITCH; a leg that closes with some under way ends the tunnel.
    Conflux,
    /// mTor (docs/extensions/mtor.md): messages have their number in them; what a leg loses is sent again on others.
    Mtor,
}

/// How a half came to be a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegKind {
    /// Of a conflux set.
    Conflux {
        /// What both ends know the set by.
        nonce: [u8; 32],
        /// What our far end is asked to aim at; at a relay, what it was asked for.
        ux: DesiredUx,
    },
    /// Of a tunnel of mTor.
    Mtor {
        /// What JOIN shows.
        secret: [u8; SECRET_LEN],
        /// It joins by JOIN, not by MULTIPATH. Of our own that is known once the tunnel has taken it.
        join: bool,
    },
}

impl LegKind {
    /// The leg's tunnel's.
    pub(crate) fn policy(self) -> Policy {
        match self {
            LegKind::Conflux { .. } => Policy::Conflux,
            LegKind::Mtor { .. } => Policy::Mtor,
        }
    }
}

impl From<TunnelKind> for LegKind {
    fn from(kind: TunnelKind) -> Self {
        match kind {
            TunnelKind::Conflux { nonce, ux } => LegKind::Conflux { nonce, ux },
            TunnelKind::Mtor { secret } => LegKind::Mtor {
                secret,
                join: false,
            },
        }
    }
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
    /// What kind of leg.
    pub kind: LegKind,
    /// The circuit, if it is our own: the far end is asked next.
    pub ours: Option<OriginId>,
    /// CONFLUX_LINK's content, at a relay.
    pub asked: Option<Link>,
}

/// What the far end of a circuit of our own answered.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// CONFLUX_LINKED.
    Conflux(Link),
    /// MULTIPATH_ACK or JOINED.
    Mtor(TunnelId),
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
    /// What kind of leg.
    pub kind: LegKind,
    /// What CONFLUX_LINK had, until the tunnel has it.
    pub asked: Option<Link>,
    /// Counted cells that the tunnel may send, or has sent and have not arrived.
    pub granted: u32,
    /// The tunnel's messages that were sent on the circuit.
    pub taken: u64,
    /// Messages that were handed to the tunnel.
    pub given: u64,
    /// Cells that the far end has acknowledged, and the tunnel has not learnt of.
    pub acknowledged: u32,
    /// MTOR_DROP was sent or received: the tunnel's messages are not sent on it any more.
    pub dropped: bool,
    /// After MTOR_STOPPED: as many messages come in all.
    pub last: Option<u64>,
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
    pub(crate) fn new(hop: HopIndex, kind: LegKind, asked: Option<Link>) -> Self {
        LegSide {
            tunnel: None,
            hop,
            stage: Stage::Joining,
            kind,
            asked,
            granted: 0,
            taken: 0,
            given: 0,
            acknowledged: 0,
            dropped: false,
            last: None,
        }
    }
}

/// Messages of one tunnel that count for no stream and wait: XON, XOFF, CONNECTED and refusals. A far end that causes more does not
/// read what it asked for.
pub(crate) const MAX_WAITING: usize = 4096;

/// MTOR_ACKs that may come in a second: twice as many as one end sends.
const ACKS_PER_SECOND: u64 = 8;
/// MTOR_ACKs that may come at once: those that a leg held up for four minutes.
const ACKS_AT_ONCE: u64 = 1024;

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
    pub leg_terms: Terms,
    /// The rules of its streams.
    pub terms: Terms,
    /// How its messages are numbered.
    pub policy: Policy,
    /// The id that the far end gave it (mTor).
    pub id: Option<TunnelId>,
    /// Messages that do not count for a stream and wait for a leg (mTor).
    pub waiting: CellQueue,
    /// When the last message arrived.
    pub last_arrival: Option<Instant>,
    /// Messages that have arrived, on all legs.
    pub arrivals: u64,
    /// What MTOR_ACK named last.
    pub acknowledged: u64,
    /// MTOR_ACKs that may still arrive.
    pub acks: TokenBucket,
    /// Messages that arrived more than once (mTor).
    pub repeated: u64,
    /// The circuits begin here: what was carried.
    pub traffic: Option<CircuitTraffic>,
}

impl Tunnel {
    /// A tunnel without legs.
    pub(crate) fn new(
        name: TunnelName,
        policy: Policy,
        streams: Streams,
        leg_terms: Terms,
        now: Instant,
    ) -> Self {
        let (traffic, id) = match name {
            TunnelName::Origin(_) => (Some(CircuitTraffic::default()), None),
            TunnelName::Nonce(_) => (None, None),
            TunnelName::Given(id, _) => (None, Some(id)),
        };
        Tunnel {
            name,
            streams,
            legs: Legs::new(policy),
            reorder: Reorder::default(),
            leg_terms,
            terms: match policy {
                Policy::Conflux => leg_terms,
                Policy::Mtor => Terms::Numbered,
            },
            policy,
            id,
            waiting: CellQueue::default(),
            last_arrival: None,
            arrivals: 0,
            acknowledged: 1,
            acks: TokenBucket::new(ACKS_PER_SECOND, ACKS_AT_ONCE, now),
            repeated: 0,
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

    /// A message arrived once more. False: that happens too often, whatever the far end had to send again: what its legs carried when
    /// they closed, and as much as has arrived on legs that stood still.
    pub(crate) fn note_repeated(&mut self) -> bool {
        self.repeated += 1;
        let legs = self.legs.joined() + 1;
        self.repeated <= legs.saturating_mul(SPAN) + self.reorder.delivered()
    }

    /// Memory of the tunnel, its streams, what it has sent and what waits.
    pub(crate) fn held(&self, now: Instant) -> Held {
        self.streams.held(now)
            + self.reorder.held(now)
            + self.legs.held(now)
            + self.waiting.held(now)
            + Held::kept(size_of::<Tunnel>())
    }

    /// The connection that it is charged to: that of the first leg that has not closed.
    pub(crate) fn cause(&self) -> Cause {
        let open = self.legs.iter().find(|leg| leg.closing.is_none());
        match (self.name, open.or_else(|| self.legs.iter().next())) {
            (TunnelName::Nonce(_) | TunnelName::Given(..), Some(leg)) => {
                Cause::Connection(leg.link.connection)
            }
            _ => Cause::Own,
        }
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

/// A leg's round trip, with what it may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Counted cells that may be sent in addition.
    pub cells: u32,
    /// The circuit's round trip, if one was measured.
    pub rtt: Option<Duration>,
    /// Counted cells that the far end has received since this was sent last.
    pub acknowledged: u32,
}
