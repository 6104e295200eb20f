//! Why a request failed.

use std::io;
use std::time::Duration;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The failed operation.
        action: &'static str,
        /// The underlying error.
        source: io::Error,
    },
    /// No address could be connected to.
    #[error("nobody can be reached")]
    Unreachable,
    /// Something took too long.
    #[error("gave up after {} s: {waiting}", after.as_secs())]
    Timeout {
        /// The operation that timed out.
        waiting: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The head is not HTTP.
    #[error("the answer is not HTTP: {0}")]
    Malformed(&'static str),
    /// Something is larger than we read.
    #[error("the answer's {what} is larger than {limit} bytes")]
    TooLarge {
        /// `head`, `body`, `decompressed body`.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The connection ended before the answer did.
    #[error("the answer was cut off after {received} bytes")]
    Truncated {
        /// Bytes received.
        received: usize,
    },
    /// The body does not decompress.
    #[error("the answer's body does not decompress: {0}")]
    Decompression(io::Error),
}
