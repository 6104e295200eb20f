//! Why connections are closed, and writing fails.

use std::io;

use weft_core::handshake::{HANDSHAKE_TIMEOUT, HandshakeError};
use weft_core::manager::LinkError;
use weft_proxy::ProxyError;
use weft_tls::LinkTlsError;
use weft_tls::records::RecordError;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CloseReason {
    #[error("the peer closed the connection")]
    Ended,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Proxy(#[from] ProxyError),
    #[error("{0}")]
    Tls(#[from] LinkTlsError),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("no opened link after {} seconds", HANDSHAKE_TIMEOUT.as_secs())]
    HandshakeTimeout,
    #[error("unused for too long")]
    Idle,
    #[error("the peer takes nothing of what is to be written")]
    Stuck,
    #[error("memory is short, and it holds much of it")]
    Memory,
    #[error("the controller closed it")]
    Requested,
}

/// What went wrong while cells were written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The TLS session cannot go on.
    #[error("{0}")]
    Record(#[from] RecordError),
}

impl From<WriteError> for CloseReason {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Io(error) => CloseReason::Io(error),
            WriteError::Record(error) => CloseReason::Record(error),
        }
    }
}
