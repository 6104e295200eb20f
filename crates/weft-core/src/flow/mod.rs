//! Flow and congestion control: how much may be sent, and when to allow the other side more.
//!
//! Each end of a circuit has a [`CircuitFlow`], each end of a stream a [`StreamFlow`]. Both come in
//! two kinds, which the circuit's handshake chooses between: the fixed windows of tor-spec 7.3 and
//! 7.4, or Vegas on the circuit and XON/XOFF on its streams (proposal 324).
//!
//! Only DATA counts. The owner of a circuit asks [`CircuitFlow::room`] before it packages a DATA
//! cell and notes it afterwards; what the other side sends is checked here, and a [`FlowError`]
//! ends the circuit.

mod circuit;
mod params;
mod stream;
mod vegas;

#[cfg(test)]
mod tests;

pub use circuit::CircuitFlow;
pub use params::{CcParams, MAX_CWND, PathKind, VegasParams, accepts_sendme_inc};
pub use stream::{FlowMsg, Left, Side, StreamFlow};
pub use vegas::Rtt;

use weft_cell::stream_msg::StreamMsgError;
use weft_cell::{mtor_msg, relay, relay_v1};

/// What the two ends of a circuit agreed on, as far as its streams are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Terms {
    /// Fixed windows.
    Windows,
    /// Congestion control: XON and XOFF.
    Vegas,
    /// The same under Counter Galois Onion, which leaves less room in a cell.
    VegasCgo,
    /// XON and XOFF on the streams of a tunnel whose messages have a number (docs/extensions/mtor.md), which takes room.
    Numbered,
}

impl Terms {
    /// By congestion control and encryption.
    pub fn new(vegas: bool, cgo: bool) -> Self {
        match (vegas, cgo) {
            // No handshake grants CGO without congestion control.
            (false, _) => Terms::Windows,
            (true, false) => Terms::Vegas,
            (true, true) => Terms::VegasCgo,
        }
    }

    /// Whether streams have XON and XOFF.
    pub fn is_vegas(self) -> bool {
        self != Terms::Windows
    }

    /// Most bytes of data in one cell.
    pub(crate) fn max_data(self) -> usize {
        match self {
            Terms::Windows | Terms::Vegas => relay::MAX_DATA,
            Terms::VegasCgo => relay_v1::MAX_STREAM_DATA,
            Terms::Numbered => mtor_msg::MAX_SUBDATA,
        }
    }
}

/// The other side broke the rules of flow control, by mistake or to attack. The circuit must be
/// destroyed, with reason PROTOCOL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// A SENDME, XON or XOFF that cannot be read.
    #[error(transparent)]
    Malformed(#[from] StreamMsgError),
    /// A SENDME of a version that the consensus no longer accepts.
    #[error("SENDME of version {version} (accepted: {min} or later)")]
    Version {
        /// Its version.
        version: u8,
        /// sendme_accept_min_version.
        min: u8,
    },
    /// A circuit-level SENDME where none is due: one too many, too early, or a copy. It would make
    /// us send more than the circuit's relays can hold.
    #[error("SENDME for the circuit, but no cell waits for one")]
    UnexpectedSendme,
    /// A circuit-level SENDME whose digest is not that of the cell that it should answer: its
    /// sender did not receive what we sent (proposal 289).
    #[error("SENDME whose digest is not that of the cell that it answers")]
    ForgedSendme,
    /// A stream-level SENDME past the stream's window.
    #[error("SENDME that takes a stream's window past 500 cells")]
    UnexpectedStreamSendme,
    /// DATA past a window that we gave: its sender does not wait for SENDMEs.
    #[error("DATA past the {0} window")]
    TooMuchData(&'static str),
    /// A SENDME on a stream that has XON and XOFF, or the other way round.
    #[error("{0} on a stream with the other kind of flow control")]
    WrongKind(&'static str),
    /// XON or XOFF before anything could have caused it, a sign of a dropped-cell side channel
    /// (proposal 324, 4.1.4).
    #[error("{0} before enough was sent to cause it")]
    TooEarly(&'static str),
    /// XON or XOFF more often than what was sent could have caused, the same kind of sign.
    #[error("{0} more often than what was sent can have caused")]
    TooOften(&'static str),
}
