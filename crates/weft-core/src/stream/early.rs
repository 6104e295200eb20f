//! Cells that arrive for a stream before it has an edge: optimistic data that waits for an exit's
//! name resolution.
//!
//! It waits at the half, under the rules that the edge will go on with. With fixed windows a stream
//! may bring 500 cells, and more breaks the protocol. Under congestion control it has no window: past
//! cc_xoff_exit XOFF asks it to stop (proposal 324, 4.1.1), and the edge sends the XON.

use std::time::Instant;

use weft_cell::Cell;
use weft_cell::relay::RelayBody;

use crate::flow::{CcParams, FlowMsg, Side, StreamFlow};

/// Cells that may wait with fixed windows: a stream's window.
pub(crate) const MAX_EARLY: usize = 500;
/// Cells that may wait under congestion control: the 500 cells after which we send XOFF (by the
/// consensus), and the cells that a fast circuit carries until XOFF has arrived. A stream that
/// brings more is ended.
pub const MAX_EARLY_XOFF: usize = 16_384;

/// Cells of a stream that has no edge yet.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// In order; each keeps its place in memory until it is written.
    #[allow(clippy::vec_box)]
    cells: Vec<Box<Cell>>,
    /// Bytes of data in them.
    bytes: usize,
    /// When XOFF is due, under congestion control; made for the first cell.
    flow: Option<StreamFlow>,
    /// XOFF was sent.
    xoff_sent: bool,
}

/// Action to take after a cell arrived.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Nothing: it waits.
    Waits,
    /// It waits, and XOFF must be sent.
    Xoff,
    /// It is one too many: the stream ends.
    TooMany(Box<Cell>),
    /// It is past the stream's window: the circuit ends.
    PastWindow(Box<Cell>),
}

impl Early {
    /// Keeps a cell. `cc`: the circuit has congestion control, by these parameters.
    pub(crate) fn push(&mut self, cell: Box<Cell>, cc: Option<&CcParams>, now: Instant) -> Kept {
        let count = self.cells.len();
        let Some(cc) = cc else {
            if count >= MAX_EARLY {
                return Kept::PastWindow(cell);
            }
            self.cells.push(cell);
            return Kept::Waits;
        };
        if count >= MAX_EARLY_XOFF {
            return Kept::TooMany(cell);
        }
        self.bytes += RelayBody::new(cell.body()).data().map_or(0, <[u8]>::len);
        self.cells.push(cell);
        let flow = (self.flow).get_or_insert_with(|| StreamFlow::xon_xoff(cc, Side::Exit));
        match flow.note_queue(self.bytes, 0, now) {
            Some(FlowMsg::Xoff) => {
                self.xoff_sent = true;
                Kept::Xoff
            }
            // Nothing was taken yet, so there is nothing else to send.
            _ => Kept::Waits,
        }
    }

    /// Memory that all of it takes.
    pub(crate) fn memory(&self) -> usize {
        self.cells.len() * size_of::<Cell>()
            + self.cells.capacity() * size_of::<Box<Cell>>()
            + self.flow.as_ref().map_or(0, StreamFlow::memory)
    }

    /// True if the cells that wait are within their bound, for tests.
    pub(crate) fn is_bounded(&self) -> bool {
        let most = match self.flow {
            Some(_) => MAX_EARLY_XOFF,
            None => MAX_EARLY,
        };
        self.cells.len() <= most
    }

    /// XOFF was sent, and is for the edge to take back.
    pub(crate) fn xoff_sent(&self) -> bool {
        self.xoff_sent
    }

    /// The cells, in order.
    #[allow(clippy::vec_box)] // each keeps its place in memory
    pub(crate) fn into_cells(self) -> Vec<Box<Cell>> {
        self.cells
    }
}
