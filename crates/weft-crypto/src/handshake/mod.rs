//! The handshakes that give a circuit its keys: the relay's and the client's
//! sides of CREATE_FAST ([`fast`]), ntor ([`ntor`]) and ntor-v3 ([`ntor_v3`]).
//!
//! A relay calls the `server` function of the module that the request names.
//! TAP, which no client of today speaks, is refused.

mod curve;
pub mod fast;
pub mod ntor;
pub mod ntor_v3;

use std::fmt;
use std::sync::Arc;

use curve::Keypair;

/// What a relay answers onionskins with: its identities and its ntor onion
/// keys. Cloning shares the secrets; they are wiped with the last clone.
#[derive(Clone)]
pub struct OnionKeys(Arc<Keys>);

struct Keys {
    /// SHA-1 of the RSA identity key.
    rsa_identity: [u8; 20],
    /// The ed25519 master identity key.
    ed_identity: [u8; 32],
    /// The ntor onion key that the descriptor lists.
    current: Keypair,
    /// The one before it, in its grace time (dir-spec 2.1.1's rotation).
    previous: Option<Keypair>,
}

impl OnionKeys {
    /// Keys from `current` and `previous`, the raw secrets of the ntor onion
    /// keys. `previous` only during its grace time.
    pub fn new(
        rsa_identity: [u8; 20],
        ed_identity: [u8; 32],
        current: &[u8; 32],
        previous: Option<&[u8; 32]>,
    ) -> Self {
        Self(Arc::new(Keys {
            rsa_identity,
            ed_identity,
            current: Keypair::from_secret(current),
            previous: previous.map(Keypair::from_secret),
        }))
    }

    /// SHA-1 of the relay's RSA identity key.
    pub fn rsa_identity(&self) -> &[u8; 20] {
        &self.0.rsa_identity
    }

    /// The relay's ed25519 master identity key.
    pub fn ed_identity(&self) -> &[u8; 32] {
        &self.0.ed_identity
    }

    /// The current public onion key.
    pub fn current_public(&self) -> [u8; 32] {
        self.0.current.public
    }

    /// All public onion keys that are answered, the current one first.
    pub fn publics(&self) -> impl Iterator<Item = [u8; 32]> {
        self.pairs().map(|pair| pair.public)
    }

    fn pairs(&self) -> impl Iterator<Item = &Keypair> {
        std::iter::once(&self.0.current).chain(self.0.previous.as_ref())
    }

    /// The key pair whose public key is `public`. Public keys are no secret,
    /// so this need not take the same time for each.
    fn find(&self, public: &[u8; 32]) -> Option<&Keypair> {
        self.pairs().find(|pair| pair.public == *public)
    }
}

impl fmt::Debug for OnionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnionKeys(..)")
    }
}

/// What a relay grants in its replies to ntor-v3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyParams {
    /// Congestion control for clients that ask for it: the consensus's
    /// cc_sendme_inc, in cells (proposal 324). `None`, the default: off, as a
    /// relay must have it that does not claim FlowCtrl=2.
    pub sendme_inc: Option<u8>,
}

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
    #[error("reading the extensions of an ntor-v3 handshake")]
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `digits` as an array.
    pub(crate) fn array<const N: usize>(digits: &str) -> [u8; N] {
        hex::decode(digits).unwrap().try_into().unwrap()
    }

    /// A relay's keys, with a previous onion key.
    pub(crate) fn onion_keys() -> OnionKeys {
        OnionKeys::new([1; 20], [2; 32], &[3; 32], Some(&[4; 32]))
    }

    #[test]
    fn the_current_onion_key_comes_first() {
        let keys = onion_keys();
        let publics: Vec<_> = keys.publics().collect();
        assert_eq!(
            publics,
            [
                Keypair::from_secret(&[3; 32]).public,
                Keypair::from_secret(&[4; 32]).public
            ]
        );
        assert_eq!(keys.current_public(), publics[0]);
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", onion_keys()), "OnionKeys(..)");
    }
}
