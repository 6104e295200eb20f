//! How a connection ends, and what the log says of it.

use std::io;
use std::time::Instant;

use weft_cell::reason::DestroyReason;
use weft_core::handshake::{ErrorClass, HANDSHAKE_TIMEOUT, HandshakeError};
use weft_core::manager::LinkError;
use weft_proxy::ProxyError;

use super::connection::{Connection, Phase, Proxying, WriteError};
use super::{ConnectionThread, ThreadParams};
use crate::logging::safe;
use crate::tls::LinkTlsError;
use crate::tls::records::RecordError;

impl ConnectionThread {
    /// Closes a connection and everything on it.
    pub(super) fn close(&mut self, token: usize, reason: &CloseReason, now: Instant) {
        let Some(mut connection) = self.connections.try_remove(token) else {
            return;
        };
        self.by_id.remove(&connection.id);
        // Deregistering fails only for sockets that the kernel has forgotten.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        self.log_close(&connection, reason, now);
        match connection.phase {
            Phase::Open(link, _) => {
                if let Some(entry) = self.by_link.get_mut(link as usize) {
                    *entry = None;
                }
                self.manager.close_link(link, now);
            }
            Phase::Handshake(_) | Phase::Passing => {
                let reason = match reason {
                    CloseReason::Handshake(error) if error.class() == ErrorClass::WrongIdentity => {
                        DestroyReason::OR_IDENTITY
                    }
                    CloseReason::Io(_) | CloseReason::Proxy(_) | CloseReason::HandshakeTimeout => {
                        DestroyReason::CONNECTFAILED
                    }
                    _ => DestroyReason::CHANNEL_CLOSED,
                };
                self.manager.connection_failed(connection.id, reason);
            }
        }
    }

    /// One line about a connection that ended, as loud as its reason deserves.
    pub(super) fn log_close(
        &mut self,
        connection: &Connection,
        reason: &CloseReason,
        now: Instant,
    ) {
        let (id, peer) = (connection.id, safe(connection.peer));
        if let Phase::Handshake(shaking) = &connection.phase
            && let Some(Proxying { proxy, .. }) = &shaking.proxy
        {
            if !matches!(reason, CloseReason::Told)
                && let Some(more) = self.quiet_proxy.check(now)
            {
                let (kind, at) = (proxy.protocol.name(), safe(proxy.addr));
                tracing::warn!(
                    "The {kind} proxy at {at} gave no connection to {peer}: {reason}. Weft does not \
                     connect without it: make sure that it runs and may be used{more}"
                );
            }
            return;
        }
        match reason {
            CloseReason::Handshake(error)
                if matches!(
                    error.class(),
                    ErrorClass::WrongIdentity | ErrorClass::AuthenticationFailed
                ) && connection.initiated =>
            {
                if let Some(more) = self.quiet.check(now) {
                    tracing::warn!("The relay at {peer} is not who it should be: {error}{more}");
                }
            }
            CloseReason::Handshake(_)
            | CloseReason::Link(_)
            | CloseReason::Record(RecordError::Overhead(_) | RecordError::Unexpected(_))
            | CloseReason::Tls(LinkTlsError::Records(_)) => {
                if let Some(more) = self.quiet_protocol.check(now) {
                    let line = format_args!("Closing {id} to {peer}: {reason}{more}");
                    protocol_warning(&self.params, line);
                }
            }
            CloseReason::Stuck => {
                let line = format_args!("Closing {id} to {peer}: {reason}");
                protocol_warning(&self.params, line);
            }
            _ => tracing::debug!("Closing {id} to {peer}: {reason}"),
        }
    }
}

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
    Told,
}

/// A line about a peer that breaks the protocol, as loud as `ProtocolWarnings` says.
pub(super) fn protocol_warning(params: &ThreadParams, line: std::fmt::Arguments<'_>) {
    if params.protocol_warnings {
        tracing::warn!("{line}");
    } else {
        tracing::info!("{line}");
    }
}

impl From<WriteError> for CloseReason {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Io(error) => CloseReason::Io(error),
            WriteError::Record(error) => CloseReason::Record(error),
        }
    }
}
