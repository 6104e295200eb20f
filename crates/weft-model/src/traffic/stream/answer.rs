//! Messages of the server besides its payload.

/// First byte that the server sends, in answer to a request.
pub(super) const ANSWER: u8 = b'!';
/// The receipt: a big-endian number of bytes, and 1 if they were right, else 0.
pub(super) const RECEIPT: usize = 9;
