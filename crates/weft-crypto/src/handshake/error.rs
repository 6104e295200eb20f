//! Why a handshake failed.

/// Why a handshake failed. On the relay's side the circuit is destroyed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// A CREATE2 of type TAP.
    #[error("answering a CREATE2: TAP handshakes are obsolete and not supported")]
    Tap,
    /// A CREATE2 of an unknown type.
    #[error("answering a CREATE2: unknown handshake type {0:#06x}")]
    UnknownType(u16),
    /// A message of the wrong length.
    #[error("reading a message of the {handshake} handshake: {got} bytes instead of {expected}")]
    WrongLength {
        /// The handshake's name.
        handshake: &'static str,
        /// The right length in bytes.
        expected: usize,
        /// The length received, in bytes.
        got: usize,
    },
    /// A message shorter than its fixed part.
    #[error(
        "reading a message of the {handshake} handshake: {got} bytes, but at least {least} are needed"
    )]
    TooShort {
        /// The handshake's name.
        handshake: &'static str,
        /// The least length in bytes.
        least: usize,
        /// The length received, in bytes.
        got: usize,
    },
    /// The client meant another relay.
    #[error("answering an {handshake} onionskin: it is for a relay of another identity")]
    WrongIdentity {
        /// The handshake's name.
        handshake: &'static str,
    },
    /// The client used an onion key that is not, or no longer, held.
    #[error(
        "answering an {handshake} onionskin: it is for an onion key that this relay does not \
         hold; the client's directory information is too old, or this relay's onion keys were \
         replaced by hand"
    )]
    UnknownOnionKey {
        /// The handshake's name.
        handshake: &'static str,
    },
    /// The peer's public key leads to an all-zero shared secret.
    #[error("agreeing on a circuit's keys: the peer sent a degenerate curve25519 key")]
    DegenerateKey,
    /// A MAC or digest does not match.
    #[error(
        "checking a message of the {handshake} handshake: it was altered, or made with other keys"
    )]
    BadAuthenticator {
        /// The handshake's name.
        handshake: &'static str,
    },
    /// The message inside ntor-v3 is not a list of extensions.
    #[error("reading the extensions of an ntor-v3 handshake: {0}")]
    BadExtensions(#[source] tor_cell::Error),
    /// The client requires a subprotocol that this relay cannot switch on.
    #[error(
        "answering an ntor-v3 onionskin: it requires a subprotocol that this relay does not offer"
    )]
    UnsupportedSubprotocol,
    /// A step that cannot fail did.
    #[error("{0} failed: an error in Weft; please report it")]
    Internal(&'static str),
}
