//! The results of a handshake.

use weft_core::origin::AppRequest;

use crate::notice::Notice;

/// Bytes of a connection that a handshake needs at once, at most: the head of an HTTP request. Anything
/// beyond is data for the destination.
pub const MAX_HANDSHAKE: usize = 8192;

/// The caller's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more.
    NeedMore,
    /// Drop the first `used` bytes and send `reply`; then call again.
    Reply {
        /// Bytes that were consumed.
        used: usize,
        /// The reply that the application waits for.
        reply: Vec<u8>,
    },
    /// The request is complete. The bytes after the first `used` are for the destination
    /// (optimistic data).
    Request {
        /// Bytes that were consumed.
        used: usize,
        /// The request.
        request: AppRequest,
    },
    /// The answer is known without a circuit: send it and close.
    Answered {
        /// The answer.
        reply: Vec<u8>,
    },
}

/// A handshake that failed: send the reply, if there is one, and close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reply; may be empty.
    pub reply: Vec<u8>,
    /// The reason, for the log. Boxed, so that a `Result` with a failure stays small.
    pub notice: Box<Notice>,
}
