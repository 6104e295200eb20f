//! Why a probe did not reach this relay, and what that means for its operator.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use weft_cell::circ_msg::CircMsgError;
use weft_cell::frame::FrameError;
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayError;
use weft_core::handshake::HandshakeError as LinkHandshakeError;
use weft_crypto::circuit::Unsaid;
use weft_crypto::handshake::HandshakeError;

use crate::tls::LinkTlsError;

/// What the relay that was asked had to do when the probe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its part of TLS.
    Tls,
    /// Its part of the link handshake: prove its identity.
    LinkHandshake,
    /// Answer CREATE_FAST.
    CreateFast,
    /// Extend the circuit to us.
    Extend,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tls => "the TLS handshake with it",
            Self::LinkHandshake => "the link handshake with it",
            Self::CreateFast => "making a circuit through it",
            Self::Extend => "waiting for it to extend the circuit to us",
        })
    }
}

/// What went wrong on the link to the relay that was asked.
#[derive(Debug, Error)]
pub enum LinkFault {
    /// The probe's time is up.
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
    /// The link handshake failed: above all, the relay is somebody else.
    #[error("{0}")]
    Handshake(Box<LinkHandshakeError>),
    /// What came is no cell.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A circuit message that cannot be read.
    #[error("{0}")]
    CircMsg(#[from] CircMsgError),
    /// A relay message that cannot be read.
    #[error("{0}")]
    Relay(#[from] RelayError),
    /// The relay did not prove that it has the circuit's keys.
    #[error("{0}")]
    Circuit(#[from] HandshakeError),
    /// The circuit has no way to say what is to be said: an error of ours.
    #[error("{0}")]
    Unsaid(#[from] Unsaid),
    /// A cell that has no place here.
    #[error("the relay sent {0}, which has no place here")]
    Unexpected(String),
    /// A relay cell that was not encrypted with the circuit's keys.
    #[error("the relay sent a relay cell that is not encrypted for us")]
    Unrecognized,
    /// The relay gave the circuit up by itself.
    #[error("the relay closed the circuit (reason {0})")]
    Destroyed(DestroyReason),
}

impl From<LinkHandshakeError> for LinkFault {
    fn from(error: LinkHandshakeError) -> Self {
        Self::Handshake(Box::new(error))
    }
}

/// Why a probe failed.
///
/// [`is_verdict`](Self::is_verdict) tells the failures that say something about this relay's own
/// port from those that only say that the wrong relay was asked.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// TLS could not be set up at all.
    #[error("could not begin a test of our own ORPort: {0}")]
    Setup(#[from] LinkTlsError),
    /// No socket with the source address that was asked for.
    #[error(
        "could not begin a test of our own ORPort: no connection can be made from {bind} to \
         {via}: {source}; is the address one of this machine (OutboundBindAddress)?"
    )]
    Bind {
        /// The source address.
        bind: IpAddr,
        /// The relay to be asked.
        via: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The relay to be asked cannot be reached.
    #[error(
        "could not ask the relay at {via} to test our ORPort: connecting to it failed: {source}; \
         this says nothing about our own port yet"
    )]
    Connect {
        /// The relay to be asked.
        via: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Our own address or identity cannot be put into EXTEND2, or is refused there.
    #[error("our ORPort {own_addr} cannot be tested: {source}; is the Address right?")]
    OwnAddress {
        /// Our address.
        own_addr: SocketAddr,
        /// What the encoder refused.
        source: CircMsgError,
    },
    /// The relay that was asked did not do its part.
    #[error(
        "could not ask the relay at {via} to test our ORPort: {step} failed: {source}; this says \
         nothing about our own port yet"
    )]
    Via {
        /// The relay that was asked.
        via: SocketAddr,
        /// What it had to do.
        step: Step,
        /// How it failed.
        source: LinkFault,
    },
    /// The relay says that it could not reach us.
    #[error("the relay at {via} could not reach us at {own_addr} ({reason}): {}", what_to_check(*.reason))]
    NotReached {
        /// The relay that was asked.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// What it said.
        reason: DestroyReason,
    },
    /// The relay did not say in time whether it reached us, as happens when its packets to us
    /// are dropped on the way.
    #[error(
        "the relay at {via} did not reach us at {own_addr} within {} seconds: does a firewall \
         drop connections to the port, or is it not forwarded to this machine?",
        .timeout.as_secs()
    )]
    NoAnswer {
        /// The relay that was asked.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// How long the whole probe took.
        timeout: Duration,
    },
    /// The relay reached us, it says, but we gave the circuit up.
    #[error(
        "the relay at {via} reached us at {own_addr}, but the circuit was refused there \
         ({reason}): is another relay, or another copy of this one with other onion keys, \
         running at that address?"
    )]
    Refused {
        /// The relay that was asked.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// What was said at our address.
        reason: DestroyReason,
    },
    /// Whoever answered does not have our onion key.
    #[error(
        "the relay at {via} extended a circuit to {own_addr}, but whoever answered there does \
         not have our onion key ({source}): is another copy of this relay running at that address?"
    )]
    NotUs {
        /// The relay that was asked.
        via: SocketAddr,
        /// Our address.
        own_addr: SocketAddr,
        /// Why the answer is not ours.
        source: HandshakeError,
    },
}

impl ProbeError {
    /// Whether the relay that was asked did its part, so that this failure is about our own
    /// port. Only the relay's word for it: ask another before believing.
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

/// What an operator may look at.
fn what_to_check(reason: DestroyReason) -> &'static str {
    match reason {
        DestroyReason::OR_IDENTITY => "does another relay answer at that address?",
        _ => "is the port open in the firewall, forwarded to this machine, and the Address right?",
    }
}
