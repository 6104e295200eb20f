//! Messages between connection threads: of the control lane and of the cell lane.

use weft_cell::hs_msg::IntroduceStatus;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, RelayCmd};

use super::controller::FromController;
use super::edges::{EdgeCell, EdgeControl};
use super::transfer::{TransferCell, TransferControl};
use super::tunnels::{LegCell, LegControl};
use crate::address::{EdgeAddr, HalfAddr, HopIndex, StreamAddr};
use crate::flow::Left;
use crate::stream::edge::Asked;

/// One relay cell on its way to the half that owns the next link. Its circuit id is meaningless
/// here; the receiving half writes its own.
#[derive(Debug)]
pub struct HalfCell {
    /// The half that it comes from, which must be the receiver's peer.
    pub from: HalfAddr,
    /// The half that sends it on.
    pub to: HalfAddr,
    /// RELAY or RELAY_EARLY and the body.
    pub cell: Box<Cell>,
}

/// A message of the cell lane.
#[derive(Debug)]
pub enum LaneMsg {
    /// From half to half.
    Relay(HalfCell),
    /// From a half to one of its edges.
    ToEdge(EdgeCell),
    /// From an edge to its half.
    FromEdge(EdgeCell),
    /// From a tunnel to one of its legs.
    ToLeg(LegCell),
    /// From a leg to its tunnel.
    FromLeg(LegCell),
    /// About a link that moves.
    Transfer(TransferCell),
}

impl LaneMsg {
    /// The cell, if it is one.
    pub fn cell(&self) -> Option<&Cell> {
        match self {
            LaneMsg::Relay(HalfCell { cell, .. })
            | LaneMsg::ToEdge(EdgeCell { cell, .. })
            | LaneMsg::FromEdge(EdgeCell { cell, .. })
            | LaneMsg::ToLeg(LegCell { cell, .. })
            | LaneMsg::FromLeg(LegCell { cell, .. }) => Some(cell),
            LaneMsg::Transfer(_) => None,
        }
    }
}

/// A message of the control lane.
#[derive(Debug)]
pub enum Control {
    /// For a half.
    Half(HalfControl),
    /// For an edge.
    Edge(EdgeControl),
    /// About a link that moves.
    Transfer(TransferControl),
}

/// A control message of a half's, or of an edge's, to a half. It overtakes cells.
#[derive(Debug)]
pub enum HalfControl {
    /// The edge of a stream that the circuit asked for exists (exit's side).
    EdgeMade {
        /// The stream.
        stream: StreamAddr,
        /// Its edge.
        edge: EdgeAddr,
    },
    /// A stream's edge has bytes to send, and no credit.
    CreditAsked {
        /// The stream.
        stream: StreamAddr,
    },
    /// A stream's edge has sent nothing for a while, and gives its credit back.
    CreditReturned {
        /// The stream.
        stream: StreamAddr,
        /// Cells.
        cells: u32,
    },
    /// A stream's far end broke the rules: the circuit is closed.
    Broken {
        /// The half.
        to: HalfAddr,
        /// The violation.
        what: &'static str,
    },
    /// An edge is about to send END: its far end does not know yet.
    Ending {
        /// The stream.
        stream: StreamAddr,
        /// The far end has not answered yet.
        connected: bool,
        /// Messages that the far end may still send.
        left: Left,
    },
    /// An edge wants a stream on this circuit (origin's side).
    Attach {
        /// The edge that asks.
        edge: EdgeAddr,
        /// Its request, with the half.
        asked: Asked,
        /// The hop that opens it.
        hop: HopIndex,
        /// BEGIN, BEGIN_DIR or RESOLVE.
        command: RelayCmd,
        /// The message's data.
        data: Vec<u8>,
    },
    /// The far half exists and its CREATE2 is on its way: cells may follow.
    Joined {
        /// The half that asked to be extended.
        to: HalfAddr,
        /// The new half.
        peer: HalfAddr,
        /// Number of the extension that this answers.
        extension: u32,
    },
    /// The next hop answered CREATED2: becomes an EXTENDED2, sent backward.
    Created {
        /// The half that asked to be extended.
        to: HalfAddr,
        /// The far half, which must still be its peer.
        from: HalfAddr,
        /// The next hop's handshake.
        handshake: Vec<u8>,
    },
    /// Two circuits toward their own origins were spliced at this rendezvous point
    /// (rend-spec-v3 4.1).
    Spliced {
        /// The half that waited with a cookie.
        to: HalfAddr,
        /// The half that brought the RENDEZVOUS1.
        peer: HalfAddr,
        /// RENDEZVOUS1's handshake data, delivered as RENDEZVOUS2.
        handshake: Vec<u8>,
    },
    /// The answer to an INTRODUCE1 that was for a service here (rend-spec-v3 3.2).
    Introduced {
        /// The client's half.
        to: HalfAddr,
        /// Status to send to the client.
        status: IntroduceStatus,
    },
    /// The circuit is over on the sender's side.
    Destroyed {
        /// The half that must close too.
        to: HalfAddr,
        /// The half that closed; no longer anyone's peer.
        from: HalfAddr,
        /// The reason for DESTROY on the other link.
        reason: DestroyReason,
        /// It closed because its queue was full: the other end of the circuit sent too much.
        overflowed: bool,
    },
    /// Between a tunnel and one of its legs.
    Leg(LegControl),
    /// A message of the controller's, which sends to the thread where a half was made.
    Controller {
        /// The half.
        to: HalfAddr,
        /// The message.
        message: Box<FromController>,
    },
    /// The extension could not be made; nothing was joined.
    ExtendFailed {
        /// The half that asked.
        to: HalfAddr,
        /// Number of the extension that this answers.
        extension: u32,
        /// The reason for DESTROY.
        reason: DestroyReason,
    },
}

impl From<HalfControl> for Control {
    fn from(control: HalfControl) -> Self {
        Control::Half(control)
    }
}

impl From<EdgeControl> for Control {
    fn from(control: EdgeControl) -> Self {
        Control::Edge(control)
    }
}

impl HalfControl {
    /// The half this is for.
    pub fn to(&self) -> HalfAddr {
        match self {
            HalfControl::EdgeMade { stream, .. }
            | HalfControl::CreditAsked { stream }
            | HalfControl::CreditReturned { stream, .. }
            | HalfControl::Ending { stream, .. } => stream.half,
            HalfControl::Attach { asked, .. } => asked.half,
            HalfControl::Leg(control) => control.to(),
            HalfControl::Controller { to, .. }
            | HalfControl::Broken { to, .. }
            | HalfControl::Joined { to, .. }
            | HalfControl::Created { to, .. }
            | HalfControl::Spliced { to, .. }
            | HalfControl::Introduced { to, .. }
            | HalfControl::Destroyed { to, .. }
            | HalfControl::ExtendFailed { to, .. } => *to,
        }
    }
}

impl From<LegControl> for HalfControl {
    fn from(control: LegControl) -> Self {
        HalfControl::Leg(control)
    }
}

impl From<LegControl> for Control {
    fn from(control: LegControl) -> Self {
        Control::Half(control.into())
    }
}
