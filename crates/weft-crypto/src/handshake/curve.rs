//! Curve25519 as the handshakes use it: fresh key pairs, and a Diffie-Hellman
//! that refuses degenerate points.
//!
//! The arithmetic is aws-lc's, which links use already: an onionskin, two
//! agreements and a key, takes less than half of what it takes by
//! curve25519-dalek (docs/performance.md). Several onionskins at once take a
//! third of that in lanes ([`exchange_all`]), where the processor has them,
//! and one by itself a little less.

use std::sync::Arc;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use rand::CryptoRng;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::error::HandshakeError;
use crate::x25519_lanes::{Factors, LANES, Multiplier};

/// The base point's u-coordinate (RFC 7748 4.1).
const BASE: [u8; 32] = {
    let mut base = [0; 32];
    base[0] = 9;
    base
};

const NO_MEMORY: HandshakeError = HandshakeError::Internal("making a curve25519 key: no memory");

/// A Curve25519 key pair. The secret is wiped when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Keypair {
    /// The secret as it was given.
    scalar: Zeroizing<[u8; 32]>,
    /// The secret in aws-lc's form. `None` only if the library could not allocate memory: then no
    /// secret can be agreed on.
    secret: Option<Arc<PrivateKey>>,
    /// The public key's 32 bytes, as messages and hashes carry it.
    pub(crate) public: [u8; 32],
}

/// Secret that both sides agreed on. Wiped when dropped.
pub(crate) struct SharedSecret(Zeroizing<[u8; 32]>);

impl SharedSecret {
    /// A product that was made elsewhere. All zeros is refused, as in
    /// [`Keypair::agree`], in constant time for all others.
    fn new(product: &Zeroizing<[u8; 32]>) -> Result<Self, HandshakeError> {
        match bool::from(product.ct_eq(&[0; 32])) {
            true => Err(HandshakeError::DegenerateKey),
            false => Ok(Self(product.clone())),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Keypair {
    /// The pair of a 32-byte secret (clamped when used).
    pub(crate) fn from_secret(secret: &[u8; 32]) -> Self {
        let scalar = Zeroizing::new(*secret);
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
            scalar,
            secret: secret.map(Arc::new),
            public,
        }
    }

    /// The public key, if there was memory for it.
    fn checked_public(&self) -> Result<[u8; 32], HandshakeError> {
        match self.secret {
            Some(_) => Ok(self.public),
            None => Err(NO_MEMORY),
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
        let secret = self.secret.as_deref().ok_or(NO_MEMORY)?;
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

/// Values that a relay computes to answer a client with a fresh key y.
pub(crate) struct Exchange {
    /// Y, the public key of y.
    pub(crate) y: [u8; 32],
    /// EXP(X, y).
    pub(crate) xy: SharedSecret,
    /// EXP(X, b).
    pub(crate) xb: SharedSecret,
}

/// The exchanges with several clients at once, in lanes: for each the relay's
/// onion key b that it chose and its key X. A client's bad key fails its own
/// exchange only.
pub(crate) fn exchange_all<R: CryptoRng + ?Sized>(
    multiplier: Multiplier,
    clients: &[(&Keypair, [u8; 32])],
    rng: &mut R,
) -> Vec<Result<Exchange, HandshakeError>> {
    let secrets: Vec<_> = clients
        .iter()
        .map(|_| {
            let mut y = Zeroizing::new([0; 32]);
            rng.fill_bytes(&mut y[..]);
            y
        })
        .collect();
    let (in_lanes, alone) = secrets.split_at(clients.len() - publics_alone(clients.len()));

    // With room for all, so that none is moved and left behind unwiped.
    let mut factors = Vec::with_capacity(3 * clients.len());
    for ((b, x), y) in clients.iter().zip(&secrets) {
        factors.extend([y, &b.scalar].map(|scalar| Factors::new(scalar, x)));
    }
    factors.extend(in_lanes.iter().map(|y| Factors::new(y, &BASE)));
    let products = multiplier.multiply(&factors);
    let (shared, publics) = products.split_at(2 * clients.len());
    let publics = publics.iter().map(|public| Ok(**public));
    let publics = publics.chain(
        alone
            .iter()
            .map(|y| Keypair::from_secret(y).checked_public()),
    );
    let each = shared.as_chunks().0.iter().zip(publics);
    each.map(|([xy, xb], y)| {
        Ok(Exchange {
            y: y?,
            xy: SharedSecret::new(xy)?,
            xb: SharedSecret::new(xb)?,
        })
    })
    .collect()
}

/// Number of public keys, of `clients` exchanges, that are better made by aws-lc: the keys that
/// would begin another register. A key by aws-lc takes a sixth of the time of a register, however
/// few of its lanes are used; other products take half.
fn publics_alone(clients: usize) -> usize {
    match 3 * clients % LANES {
        rest if rest <= clients && rest <= 6 => rest,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

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

    #[test]
    fn a_register_is_not_begun_for_a_few_public_keys() {
        let alone: Vec<_> = (0..=8).map(publics_alone).collect();
        assert_eq!(alone, [0, 0, 0, 1, 4, 0, 2, 5, 0]);
    }

    #[test]
    fn exchanges_at_once_are_those_made_singly() {
        let Some(multiplier) = Multiplier::detect() else {
            weft_testing::not_run!("this processor has no AVX-512 IFMA, whose lanes this tests");
            return;
        };
        let (b, other_b) = (
            Keypair::from_secret(&[1; 32]),
            Keypair::from_secret(&[2; 32]),
        );
        for n in 1..=20 {
            let clients: Vec<_> = (0..n)
                .map(|i| match i % 5 {
                    // 0 is a point of small order.
                    3 => (&b, [0; 32]),
                    1 => (&other_b, Keypair::from_secret(&[i + 0x40; 32]).public),
                    _ => (&b, Keypair::from_secret(&[i + 0x40; 32]).public),
                })
                .collect();
            let exchanges = exchange_all(
                multiplier,
                &clients,
                &mut ChaCha8Rng::seed_from_u64(n.into()),
            );
            assert_eq!(exchanges.len(), clients.len());
            let mut rng = ChaCha8Rng::seed_from_u64(n.into());
            for ((b, x), exchange) in clients.iter().zip(exchanges) {
                let y = Keypair::generate(&mut rng);
                if *x == [0; 32] {
                    assert!(matches!(exchange, Err(HandshakeError::DegenerateKey)));
                    continue;
                }
                let exchange = exchange.unwrap();
                assert_eq!(exchange.y, y.public);
                assert_eq!(exchange.xy.as_bytes(), y.agree(x).unwrap().as_bytes());
                assert_eq!(exchange.xb.as_bytes(), b.agree(x).unwrap().as_bytes());
            }
        }
    }
}
