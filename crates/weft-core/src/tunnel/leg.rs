//! A leg: where it comes from, and what it and its tunnel know of each other.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::conflux_msg::{DesiredUx, Link};
use weft_cell::mtor_msg::{SECRET_LEN, TunnelId};

use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId};
use crate::flow::Terms;
use crate::origin::TunnelKind;

/// Legs that one tunnel has at most, those that are still being linked among them.
pub(crate) const MAX_LEGS: usize = 16;

/// Numbering of a tunnel's messages, and the effect of a leg that closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Conflux: messages are numbered by their place on their leg, and SWITCH; a leg that closes with some under way ends the tunnel.
    Conflux,
    /// mTor (docs/extensions/mtor.md): messages have their number in them; what a leg loses is sent again on others.
    Mtor,
}

/// Protocol by which a half became a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegKind {
    /// A leg of a conflux set.
    Conflux {
        /// Identifies the set at both ends.
        nonce: [u8; 32],
        /// Goal that our far end is asked for; at a relay, the goal that it was asked for.
        ux: DesiredUx,
    },
    /// A leg of an mTor tunnel.
    Mtor {
        /// Secret that JOIN proves.
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

/// Sequence numbers that the two ends of a leg exchange.
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
    /// Rules that its streams would have.
    pub terms: Terms,
    /// Its link.
    pub link: LegLink,
    /// The kind of leg.
    pub kind: LegKind,
    /// The circuit, if it is our own: the far end is asked next.
    pub ours: Option<OriginId>,
    /// CONFLUX_LINK's content, at a relay.
    pub asked: Option<Link>,
}

/// Answer of the far end of a circuit of our own.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// CONFLUX_LINKED.
    Conflux(Link),
    /// MULTIPATH_ACK or JOINED.
    Mtor(TunnelId),
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

/// The tunnel that a half is a leg of.
#[derive(Debug)]
pub(crate) struct LegSide {
    /// Where the tunnel is, once that is known.
    pub tunnel: Option<HalfAddr>,
    /// The hop that the tunnel leads to.
    pub hop: HopIndex,
    pub stage: Stage,
    /// The kind of leg.
    pub kind: LegKind,
    /// Content of CONFLUX_LINK, until it is passed to the tunnel.
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

/// Progress of a leg.
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
