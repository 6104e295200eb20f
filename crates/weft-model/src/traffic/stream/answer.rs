//! What the server sends besides its payload.

/// What the server answers to a request.
pub(super) const ANSWER: u8 = b'!';
/// The receipt: a big-endian number of bytes, and 1 if they were right, else 0.
pub(super) const RECEIPT: usize = 9;
