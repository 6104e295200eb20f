//! Messages to edges ([`crate::stream::edge`]).

use weft_cell::Cell;
use weft_cell::reason::EndReason;

use crate::address::{EdgeAddr, HalfAddr, StreamAddr};
use crate::stream::edge::{Asked, StreamAt};

/// A relay message between a half and one of its edges: decrypted, with its command, stream id,
/// length and data where they lie in a cell, so that the data is where it will be encrypted.
#[derive(Debug)]
pub struct EdgeCell {
    /// The half.
    pub half: HalfAddr,
    /// The edge.
    pub edge: EdgeAddr,
    /// The message.
    pub cell: Box<Cell>,
}

/// A control message of a half's to an edge. It overtakes cells.
#[derive(Debug)]
pub enum EdgeControl {
    /// The answer to [`HalfControl::Attach`](super::HalfControl::Attach) (origin's side).
    Answered {
        /// The edge that asked.
        to: EdgeAddr,
        /// The request that this answers.
        asked: Asked,
        /// The stream, whose BEGIN is on its way. `None`: the circuit is closed, or took no stream.
        stream: Option<StreamAt>,
    },
    /// So many of the edge's cells were sent: as many more may come.
    Credit {
        /// The edge.
        to: EdgeAddr,
        /// The stream, which must still be the edge's.
        stream: StreamAddr,
        /// The number of cells.
        cells: u32,
    },
    /// XOFF was sent for what came before the edge existed. This overtakes it.
    XoffSent {
        /// The edge.
        to: EdgeAddr,
        /// The stream, which must still be the edge's.
        stream: StreamAddr,
    },
    /// The circuit is closed, or the stream does not wait for an edge.
    Detached {
        /// The edge.
        to: EdgeAddr,
        /// The stream, which must still be the edge's.
        stream: StreamAddr,
        /// Why.
        reason: EndReason,
    },
}

impl EdgeControl {
    /// The edge this is for.
    pub fn to(&self) -> EdgeAddr {
        match self {
            EdgeControl::Answered { to, .. }
            | EdgeControl::Credit { to, .. }
            | EdgeControl::XoffSent { to, .. }
            | EdgeControl::Detached { to, .. } => *to,
        }
    }
}
