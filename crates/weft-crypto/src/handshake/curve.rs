//! Curve25519 as the handshakes use it: fresh key pairs, and a Diffie-Hellman
//! that refuses degenerate points.
//!
//! The arithmetic is aws-lc's, which links use already: an onionskin, two
//! agreements and a key, takes less than half of what it takes by
//! curve25519-dalek (docs/performance.md).

use std::sync::Arc;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use rand::CryptoRng;
use zeroize::Zeroizing;

use super::HandshakeError;

/// A Curve25519 key pair. The secret is wiped when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Keypair {
    /// `None` only if the library had no memory for it: then nothing can be
    /// agreed on.
    secret: Option<Arc<PrivateKey>>,
    /// The public key's 32 bytes, as messages and hashes carry it.
    pub(crate) public: [u8; 32],
}

/// What both sides agreed on. Wiped when dropped.
pub(crate) struct SharedSecret(Zeroizing<[u8; 32]>);

impl SharedSecret {
    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Keypair {
    /// The pair of a 32-byte secret (clamped when used).
    pub(crate) fn from_secret(secret: &[u8; 32]) -> Self {
        let mut public = [0; 32];
        let secret = PrivateKey::from_private_key(&X25519, secret).ok();
        let secret = secret.filter(|secret| match secret.compute_public_key() {
            Ok(key) if key.as_ref().len() == public.len() => {
                public.copy_from_slice(key.as_ref());
                true
            }
            _ => false,
        });
        Self {
            secret: secret.map(Arc::new),
            public,
        }
    }

    /// KEYGEN() of the specifications.
    pub(crate) fn generate<R: CryptoRng + ?Sized>(rng: &mut R) -> Self {
        let mut secret = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut secret[..]);
        Self::from_secret(&secret)
    }

    /// EXP(theirs, ours). An all-zero result, which a peer reaches by sending
    /// a point of small order, is refused (tor-spec 5.1.4: "the point at
    /// infinity").
    pub(crate) fn agree(&self, theirs: &[u8; 32]) -> Result<SharedSecret, HandshakeError> {
        let secret = self.secret.as_deref().ok_or(HandshakeError::Internal(
            "making a curve25519 key: no memory",
        ))?;
        // The library refuses an all-zero result (RFC 7748 6.1).
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        agree(secret, theirs, HandshakeError::DegenerateKey, |shared| {
            let mut bytes = Zeroizing::new([0; 32]);
            if shared.len() != bytes.len() {
                return Err(HandshakeError::Internal("agreeing on a curve25519 secret"));
            }
            bytes.copy_from_slice(shared);
            Ok(SharedSecret(bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_small_order_are_refused() {
        let ours = Keypair::from_secret(&[7; 32]);
        let mut one = [0; 32];
        one[0] = 1;
        // Order 8 (RFC 7748's contributory-behaviour discussion; the list of
        // https://cr.yp.to/ecdh.html).
        let order_8: [u8; 32] =
            hex::decode("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
                .unwrap()
                .try_into()
                .unwrap();
        for point in [[0; 32], one, order_8] {
            assert!(matches!(
                ours.agree(&point),
                Err(HandshakeError::DegenerateKey)
            ));
        }
        assert!(ours.agree(&Keypair::from_secret(&[8; 32]).public).is_ok());
    }

    #[test]
    fn another_implementation_finds_the_same() {
        use tor_llcrypto::pk::curve25519::{PublicKey, StaticSecret};
        for n in 0..32 {
            let (a, b) = ([n + 1; 32], [0xff - n; 32]);
            let (theirs, ours) = (StaticSecret::from(a), Keypair::from_secret(&b));
            let public = PublicKey::from(&theirs).to_bytes();
            assert_eq!(Keypair::from_secret(&a).public, public);
            let expected = theirs.diffie_hellman(&PublicKey::from(ours.public));
            assert_eq!(ours.agree(&public).unwrap().as_bytes(), expected.as_bytes());
            // The top bit of a public key does not count (RFC 7748 5).
            let mut high = public;
            high[31] |= 0x80;
            assert_eq!(ours.agree(&high).unwrap().as_bytes(), expected.as_bytes());
        }
    }

    #[test]
    fn both_sides_agree() {
        let a = Keypair::from_secret(&[1; 32]);
        let b = Keypair::from_secret(&[2; 32]);
        assert_eq!(
            a.agree(&b.public).unwrap().as_bytes(),
            b.agree(&a.public).unwrap().as_bytes()
        );
    }
}
