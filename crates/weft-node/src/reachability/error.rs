//! The reasons why a probe did not reach this relay, with advice for the operator.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use weft_cell::circ_msg::CircMsgError;
use weft_cell::frame::FrameError;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayError;
use weft_core::handshake::HandshakeError as LinkHandshakeError;
use weft_crypto::circuit::EncryptError;
use weft_crypto::handshake::HandshakeError;

use weft_tls::LinkTlsError;

/// The task of the asked relay in which the probe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// TLS.
    Tls,
    /// The link handshake: prove its identity.
    LinkHandshake,
    /// Answer CREATE_FAST.
    CreateFast,
    /// Extend the circuit to this relay.
    Extend,
    /// Take cells for this relay.
    Drops,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tls => "the TLS handshake with it",
            Self::LinkHandshake => "the link handshake with it",
            Self::CreateFast => "making a circuit through it",
            Self::Extend => "waiting for it to extend the circuit to us",
            Self::Drops => "sending cells to us through it",
        })
    }
}

/// A failure of the link to the asked relay.
#[derive(Debug, Error)]
pub enum LinkFault {
    /// The probe's deadline has passed.
    #[error("no answer in time")]
    TimedOut,
    /// The relay closed.
    #[error("the relay closed the connection")]
    Closed,
    /// More bytes than any honest relay sends.
    #[error("the relay sent more than {limit} bytes")]
    TooMuch {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS failed.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The link handshake failed, mostly because the relay has another identity.
    #[error("{0}")]
    Handshake(Box<LinkHandshakeError>),
    /// The relay sent bytes that are no cell.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A malformed circuit message.
    #[error("{0}")]
    CircMsg(#[from] CircMsgError),
    /// A malformed relay message.
    #[error("{0}")]
    Relay(#[from] RelayError),
    /// The relay did not prove that it has the circuit's keys.
    #[error("{0}")]
    Circuit(#[from] HandshakeError),
    /// A message could not be encrypted: an error of ours.
    #[error("{0}")]
    Encrypt(#[from] EncryptError),
    /// An unexpected cell.
    #[error("the relay sent {0}, which has no place here")]
    Unexpected(String),
    /// A relay cell that was not encrypted with the circuit's keys.
    #[error("the relay sent a relay cell that is not encrypted for us")]
    Unrecognized,
    /// The relay itself closed the circuit.
    #[error("the relay closed the circuit (reason {0})")]
    Destroyed(DestroyReason),
}

impl From<LinkHandshakeError> for LinkFault {
    fn from(error: LinkHandshakeError) -> Self {
        Self::Handshake(Box::new(error))
    }
}

/// A probe that failed.
///
/// [`is_verdict`](Self::is_verdict) distinguishes failures of this relay's own port from those of the asked
/// relay.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// TLS could not be set up.
    #[error("could not begin a test of our own ORPort: {0}")]
    Setup(#[from] LinkTlsError),
    /// No socket with the configured source address.
    #[error(
        "could not begin a test of our own ORPort: no connection can be made from {bind} to \
         {via}: {source}; is the address one of this machine (OutboundBindAddress)?"
    )]
    Bind {
        /// The source address.
        bind: IpAddr,
        /// The relay to ask.
        via: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The relay to ask cannot be reached.
    #[error(
        "could not ask the relay at {via} to test our ORPort: connecting to it failed: {source}; \
         this shows nothing about our own port yet"
    )]
    Connect {
        /// The relay to ask.
        via: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Our own address or identity cannot be put into EXTEND2, or is refused there.
    #[error("our ORPort {own_addr} cannot be tested: {source}; is the Address right?")]
    OwnAddress {
        /// Our address.
        own_addr: SocketAddr,
        /// The encoder's error.
        source: CircMsgError,
    },
    /// The asked relay failed in one of its tasks.
    #[error(
        "could not ask the relay at {via} to test our ORPort: {step} failed: {source}; this shows \
         nothing about our own port yet"
    )]
    Via {
        /// The asked relay.
        via: SocketAddr,
        /// The task.
        step: Step,
        /// Its failure.
        source: LinkFault,
    },
    /// The relay reports that it could not reach us.
    #[error("the relay at {via} could not reach us at {own_addr} ({reason}): {}", what_to_check(*.reason))]
    NotReached {
        /// The asked relay.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// The reason in its DESTROY or TRUNCATED.
        reason: DestroyReason,
    },
    /// The relay did not answer the EXTEND2 in time, for example because its packets to us are dropped on
    /// the way.
    #[error(
        "the relay at {via} did not reach us at {own_addr} within {} seconds: does a firewall \
         drop connections to the port, or is it not forwarded to this machine?",
        .timeout.as_secs()
    )]
    NoAnswer {
        /// The asked relay.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// The time limit of the whole probe.
        timeout: Duration,
    },
    /// The relay reports that it reached our address and that the circuit was refused there.
    #[error(
        "the relay at {via} reached us at {own_addr}, but the circuit was refused there \
         ({reason}): is another relay, or another copy of this one with other onion keys, \
         running at that address?"
    )]
    Refused {
        /// The asked relay.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// The reason that was sent from our address.
        reason: DestroyReason,
    },
    /// The node that answered at our address does not have our onion key.
    #[error(
        "the relay at {via} extended a circuit to {own_addr}, but the node that answered there does \
         not have our onion key ({source}): is another copy of this relay running at that address?"
    )]
    NotUs {
        /// The asked relay.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// The error in the answer.
        source: HandshakeError,
    },
}

impl ProbeError {
    /// True if the asked relay did its tasks, so that this failure is one of our own port. Only
    /// that relay reports it: ask another before believing it.
    pub fn is_verdict(&self) -> bool {
        match self {
            Self::NotReached { .. }
            | Self::NoAnswer { .. }
            | Self::Refused { .. }
            | Self::NotUs { .. }
            | Self::OwnAddress { .. } => true,
            Self::Setup(_) | Self::Bind { .. } | Self::Connect { .. } | Self::Via { .. } => false,
        }
    }
}

/// The advice for the operator.
fn what_to_check(reason: DestroyReason) -> &'static str {
    match reason {
        DestroyReason::OR_IDENTITY => "does another relay answer at that address?",
        _ => "is the port open in the firewall, forwarded to this machine, and the Address right?",
    }
}
