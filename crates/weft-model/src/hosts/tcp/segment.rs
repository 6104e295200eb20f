//! Packets between both ends.

/// Bytes of the stream, from one place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Place of the first byte.
    pub from: u64,
    /// Number of bytes.
    pub length: u32,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All bytes before it have arrived.
    pub cumulative: u64,
    /// Bytes that have arrived behind a hole: the segments next to the latest one.
    pub selective: Option<(u64, u64)>,
    /// End of the receive window.
    pub window_end: u64,
}
