//! Violations of flow control by the far end of a circuit or stream.

use weft_cell::stream_msg::StreamMsgError;

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
