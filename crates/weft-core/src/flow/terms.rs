//! The rules of a circuit's streams.

use weft_cell::{mtor_msg, relay, relay_v1};

/// Stream rules that the two ends of a circuit negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Terms {
    /// Fixed windows.
    Windows,
    /// Congestion control: XON and XOFF.
    Vegas,
    /// Congestion control under Counter Galois Onion, which leaves less room in a cell.
    VegasCgo,
    /// XON and XOFF on the streams of a tunnel whose messages have a number (docs/extensions/mtor.md), which takes room.
    Numbered,
}

impl Terms {
    /// The terms for this congestion control and encryption.
    pub fn new(vegas: bool, cgo: bool) -> Self {
        match (vegas, cgo) {
            // No handshake grants CGO without congestion control.
            (false, _) => Terms::Windows,
            (true, false) => Terms::Vegas,
            (true, true) => Terms::VegasCgo,
        }
    }

    /// True if streams have XON and XOFF.
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
