//! Curve25519 as the handshakes use it: fresh key pairs, and a Diffie-Hellman
//! that refuses degenerate points.

use rand::CryptoRng;
use tor_llcrypto::pk::curve25519::{PublicKey, SharedSecret, StaticSecret};
use zeroize::Zeroizing;

use super::HandshakeError;

/// A Curve25519 key pair. The secret is wiped when dropped.
#[derive(Clone)]
pub(crate) struct Keypair {
    secret: StaticSecret,
    /// The public key's 32 bytes, as messages and hashes carry it.
    pub(crate) public: [u8; 32],
}

impl Keypair {
    /// The pair of a 32-byte secret (clamped when used).
    pub(crate) fn from_secret(secret: &[u8; 32]) -> Self {
        let secret = StaticSecret::from(*secret);
        let public = PublicKey::from(&secret).to_bytes();
        Self { secret, public }
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
        let shared = self.secret.diffie_hellman(&PublicKey::from(*theirs));
        // was_contributory looks at the result, in constant time.
        if shared.was_contributory() {
            Ok(shared)
        } else {
            Err(HandshakeError::DegenerateKey)
        }
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
    fn both_sides_agree() {
        let a = Keypair::from_secret(&[1; 32]);
        let b = Keypair::from_secret(&[2; 32]);
        assert_eq!(
            a.agree(&b.public).unwrap().as_bytes(),
            b.agree(&a.public).unwrap().as_bytes()
        );
    }
}
