//! Why a session cannot go on.

use thiserror::Error;

/// Why a session cannot go on.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are not TLS.
    #[error("the peer's bytes are no TLS record")]
    NotARecord,
    /// A record was altered or is not the peer's.
    #[error("a TLS record that does not decrypt")]
    Decrypt,
    /// A record without content type, or with too much in it.
    #[error("a malformed TLS record")]
    Malformed,
    /// The peer gave up.
    #[error("the peer sent TLS alert {0}")]
    Alert(u8),
    /// A message that has no place after the handshake.
    #[error("an unexpected TLS message ({0})")]
    Unexpected(&'static str),
    /// The peer sends more of something than the application data between pays for.
    #[error("too many TLS {0} for what they bring")]
    Overhead(&'static str),
    /// The keys that a link would begin with are not the first of its session.
    #[error("a TLS KeyUpdate before the link was open")]
    UpdatedTooEarly,
    /// TLS 1.2 knows no new keys without renegotiation, which Tor forbids (tor-spec 2.2).
    #[error("the TLS session's keys are used up")]
    UsedUp,
    /// A cipher that rustls offers and `records` does not know.
    #[error("a TLS cipher that is not known here")]
    UnknownCipher,
}
