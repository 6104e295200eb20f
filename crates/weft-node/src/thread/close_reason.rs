//! Why connections are closed, and writing fails.

use std::io;

use weft_core::handshake::{ErrorClass, HANDSHAKE_TIMEOUT, HandshakeError};
use weft_core::manager::LinkError;
use weft_core::origin::LinkFailure;
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

impl CloseReason {
    /// Its name on the control port and for circuits.
    pub(super) fn failure(&self) -> LinkFailure {
        match self {
            Self::Ended | Self::Idle => LinkFailure::Done,
            Self::Io(error) => io_failure(error),
            Self::Proxy(_) => LinkFailure::Proxy,
            Self::Handshake(error) if error.class() == ErrorClass::WrongIdentity => {
                LinkFailure::Identity
            }
            Self::Handshake(error) if error.outside().is_some() => LinkFailure::Clock,
            Self::Tls(_) | Self::Record(_) | Self::Handshake(_) | Self::Link(_) => {
                LinkFailure::Handshake
            }
            Self::HandshakeTimeout => LinkFailure::Timeout,
            Self::Memory => LinkFailure::Resource,
            Self::Stuck | Self::Requested => LinkFailure::Other,
        }
    }
}

/// The failure that an error of a socket is, as C tor classifies it (`errno_to_orconn_end_reason`).
pub(crate) fn io_failure(error: &io::Error) -> LinkFailure {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => LinkFailure::Refused,
        ErrorKind::NotConnected
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::HostUnreachable => LinkFailure::NoRoute,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => LinkFailure::Reset,
        ErrorKind::TimedOut => LinkFailure::Timeout,
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => LinkFailure::Done,
        ErrorKind::AddrNotAvailable
        | ErrorKind::AddrInUse
        | ErrorKind::OutOfMemory
        | ErrorKind::PermissionDenied => LinkFailure::Resource,
        _ => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS) => LinkFailure::Resource,
            _ => LinkFailure::Other,
        },
    }
}

/// Error of writing cells.
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
