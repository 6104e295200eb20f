//! The keys that a relay answers onionskins with.

use std::fmt;
use std::sync::Arc;

use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use super::curve::Keypair;

/// Keys with which a relay answers onionskins: its identities and its ntor onion keys. Cloning
/// shares the secrets; they are wiped with the last clone.
#[derive(Clone)]
pub struct OnionKeys(Arc<Keys>);

struct Keys {
    rsa_identity: RsaIdentity,
    ed_identity: Ed25519Identity,
    /// The ntor onion key that the descriptor lists.
    current: Keypair,
    /// The one before it, in its grace time (dir-spec 2.1.1's rotation).
    previous: Option<Keypair>,
}

impl OnionKeys {
    /// Keys from `current` and `previous`, the raw secrets of the ntor onion
    /// keys. `previous` only during its grace time.
    pub fn new(
        rsa_identity: RsaIdentity,
        ed_identity: Ed25519Identity,
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

    /// The relay's RSA identity, which ntor names the relay by.
    pub fn rsa_identity(&self) -> &RsaIdentity {
        &self.0.rsa_identity
    }

    /// The relay's Ed25519 identity, which ntor-v3 names the relay by.
    pub fn ed_identity(&self) -> &Ed25519Identity {
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
    pub(super) fn find(&self, public: &[u8; 32]) -> Option<&Keypair> {
        self.pairs().find(|pair| pair.public == *public)
    }
}

impl fmt::Debug for OnionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnionKeys(..)")
    }
}
