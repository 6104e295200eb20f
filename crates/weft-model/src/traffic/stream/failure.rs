//! Why a stream is not complete.

use serde::{Deserialize, Serialize};

/// In which part of a stream it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// No connection to the proxy or the server.
    Connect,
    /// The proxy opened no connection.
    Proxy,
    /// The connection ended, or broke.
    Closed,
    /// The limit of time of the plan.
    Timeout,
    /// No byte moved for longer than the plan's `stall`.
    Stall,
    /// Bytes arrived that were not sent.
    Corrupt,
    /// The other end speaks another protocol.
    Protocol,
}

impl FailureKind {
    /// Its name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::Connect => "connect",
            FailureKind::Proxy => "proxy",
            FailureKind::Closed => "closed",
            FailureKind::Timeout => "timeout",
            FailureKind::Stall => "stall",
            FailureKind::Corrupt => "corrupt",
            FailureKind::Protocol => "protocol",
        }
    }

    /// `TGen`'s code of the same (`tgen-stream.c`, `tgen-transport.c`), which tornettools counts.
    #[must_use]
    pub const fn tgen_code(self) -> &'static str {
        match self {
            FailureKind::Connect => "PROXY-CONNECT",
            FailureKind::Proxy => "PROXY-STATUS",
            FailureKind::Closed => "READEOF",
            FailureKind::Timeout => "TIMEOUT",
            FailureKind::Stall => "STALLOUT",
            FailureKind::Corrupt => "CHECKSUM",
            FailureKind::Protocol => "HEADER",
        }
    }
}

/// Why a stream is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub struct Failure {
    /// In which part.
    pub kind: FailureKind,
    /// Description for reports.
    pub message: String,
}

impl Failure {
    /// A failure with its message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { kind, message }
    }
}
