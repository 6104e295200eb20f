//! Tunnels: several circuits between a client and one relay over which the streams of one are spread (conflux sets of
//! proposal 329; Yang and Li 2015).
//!
//! A tunnel is a circuit half without a link: it has streams, and sends their messages on its
//! *legs*, which are halves with links, perhaps of other threads. Edges, the controller and the
//! client thread treat it like any other half. Its decisions are here: the leg that takes the next
//! message ([`Legs`]), and the order in which arriving messages are handed on ([`Reorder`]).
//! [`LegSide`] is a leg's view of its tunnel.

mod again;
mod copies;
mod leg;
mod legs;
mod outstanding;
mod reorder;
mod slow;
#[cfg(test)]
mod tests;

use std::time::Instant;

use weft_cell::conflux_msg::DesiredUx;
use weft_cell::mtor_msg::{SECRET_LEN, TunnelId};

use crate::address::OriginId;
use crate::flow::Terms;
use crate::limits::bucket::TokenBucket;
use crate::memory::cells::CellQueue;
use crate::memory::ledger::{Cause, Held};
use crate::origin::traffic::CircuitTraffic;
use crate::stream::table::Streams;

pub(crate) use again::Acknowledged;
pub use leg::{Answer, Joining, LegKind, LegLink, Policy, Room, Sequence};
pub(crate) use leg::{LegSide, MAX_LEGS, Stage};
pub use legs::Closing;
pub(crate) use legs::{Choice, Legs, Removed, Scheduling};
pub(crate) use outstanding::SPAN;
pub(crate) use reorder::{Arrival, MAX_REORDER, Reorder};

/// Name of a tunnel while its legs are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelName {
    /// The nonce of a conflux set whose legs end at this relay.
    Nonce([u8; 32]),
    /// The id that this relay gave a tunnel whose legs end here, and the secret that they show (mTor).
    Given(TunnelId, [u8; SECRET_LEN]),
    /// A tunnel of our own.
    Origin(OriginId),
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

/// The state of a tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// The controller's name for it.
    pub name: TunnelName,
    /// Its streams. They have one end, whatever hop of its circuits the tunnel leads to.
    pub streams: Streams,
    /// Its legs.
    pub legs: Legs,
    /// Messages that arrived too early.
    pub reorder: Reorder,
    /// Rules that the first leg negotiated, and all others must match.
    pub leg_terms: Terms,
    /// The rules of its streams.
    pub terms: Terms,
    /// Numbering of its messages.
    pub policy: Policy,
    /// The id that the far end gave it (mTor).
    pub id: Option<TunnelId>,
    /// Messages that do not count for a stream and wait for a leg (mTor).
    pub waiting: CellQueue,
    /// When the last message arrived.
    pub last_arrival: Option<Instant>,
    /// Messages that have arrived, on all legs.
    pub arrivals: u64,
    /// Number in the last MTOR_ACK.
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

    /// Sequence numbers that both ends must know before a leg is linked.
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
