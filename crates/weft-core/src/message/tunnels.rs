//! Messages about tunnels ([`crate::tunnel`]).

use std::time::Duration;

use weft_cell::Cell;
use weft_cell::mtor_msg::{SECRET_LEN, TunnelId};
use weft_cell::reason::DestroyReason;

use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId};
use crate::origin::TunnelKind;
use crate::tunnel::{Answer, Closing, Joining, Room, Sequence, TunnelName};

/// A relay message between a tunnel and one of its legs, as in [`EdgeCell`](super::EdgeCell).
#[derive(Debug)]
pub struct LegCell {
    /// The tunnel.
    pub tunnel: HalfAddr,
    /// The leg's half.
    pub leg: HalfAddr,
    /// The message.
    pub cell: Box<Cell>,
}

/// A control message between a tunnel and one of its legs.
#[derive(Debug)]
pub enum LegControl {
    /// A half wants to be a leg of this tunnel.
    Joins {
        /// The tunnel.
        to: HalfAddr,
        /// The half, and what it offers.
        joining: Box<Joining>,
    },
    /// The tunnel takes this half as a leg: the far end is sent CONFLUX_LINK or CONFLUX_LINKED.
    Taken {
        /// The leg.
        to: HalfAddr,
        /// The tunnel.
        tunnel: HalfAddr,
        /// Sequence numbers that the far end must know.
        sequence: Sequence,
        /// The tunnel's id, once it has one (mTor).
        id: Option<TunnelId>,
    },
    /// The far end has answered: the leg (of our own) is linked.
    Linked {
        /// The tunnel.
        to: HalfAddr,
        /// The leg.
        leg: HalfAddr,
        /// The circuit.
        circuit: OriginId,
        /// The answer.
        answer: Box<Answer>,
        /// Time until the answer.
        took: Duration,
    },
    /// A leg can take more.
    Room {
        /// The tunnel.
        to: HalfAddr,
        /// The leg.
        leg: HalfAddr,
        /// Free room of the leg, and acknowledgements since the last such message.
        room: Room,
    },
    /// No more is to be sent on a leg (mTor).
    Dropped {
        /// The tunnel.
        to: HalfAddr,
        /// The leg.
        leg: HalfAddr,
    },
    /// A leg has closed.
    Closed {
        /// The tunnel.
        to: HalfAddr,
        /// The leg.
        leg: HalfAddr,
        /// Final counts of the leg.
        closing: Closing,
    },
    /// The tunnel has closed, or does not take the leg.
    TunnelClosed {
        /// The leg, which must close too.
        to: HalfAddr,
        /// The tunnel.
        tunnel: HalfAddr,
        /// The reason for DESTROY.
        reason: DestroyReason,
    },
}

impl LegControl {
    /// The half this is for.
    pub fn to(&self) -> HalfAddr {
        match self {
            LegControl::Joins { to, .. }
            | LegControl::Taken { to, .. }
            | LegControl::Linked { to, .. }
            | LegControl::Room { to, .. }
            | LegControl::Dropped { to, .. }
            | LegControl::Closed { to, .. }
            | LegControl::TunnelClosed { to, .. } => *to,
        }
    }
}

/// A half that asks to become a leg of a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct LegRequest {
    /// The half.
    pub half: HalfAddr,
    /// The hop that the tunnel leads to, and the kind of tunnel, for a circuit of our own.
    pub ours: Option<(HopIndex, TunnelKind)>,
}

/// The tunnel that a circuit of another node asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelAsk {
    /// That of this name, which may not exist yet.
    Named(TunnelName),
    /// A new one, whose legs show this secret.
    New([u8; SECRET_LEN]),
    /// That of this name, which must exist.
    Existing(TunnelName),
}

/// From a connection thread to the relay controller.
#[derive(Debug)]
pub enum TunnelNews {
    /// A circuit asks to become a leg.
    Asked {
        /// Its half.
        half: HalfAddr,
        /// The link under it.
        connection: ConnectionId,
        /// The tunnel.
        ask: TunnelAsk,
    },
    /// The answer to [`TunnelOrder::Make`].
    Made {
        /// Its name.
        name: TunnelName,
        /// The first leg's half.
        by: HalfAddr,
        /// The tunnel. `None`: the half has closed.
        tunnel: Option<HalfAddr>,
    },
    /// A tunnel has closed.
    Closed {
        /// Its name, which another one may have by now.
        name: TunnelName,
        /// The tunnel.
        tunnel: HalfAddr,
    },
}

/// From the relay controller to a connection thread.
#[derive(Debug)]
pub enum TunnelOrder {
    /// Make a tunnel of this name beside its first leg; answer by [`TunnelNews::Made`].
    Make {
        /// The first leg.
        leg: LegRequest,
        /// The tunnel's name.
        name: TunnelName,
    },
    /// Give up a leg of our own (mTor).
    DropLeg {
        /// Its half.
        half: HalfAddr,
    },
    /// Have a half join a tunnel.
    Join {
        /// The half.
        leg: LegRequest,
        /// The tunnel.
        tunnel: HalfAddr,
    },
}
