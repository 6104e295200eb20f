//! RSA identities by the thousand: from pairs of a few primes, which take most of the time that a key takes (15 ms).
//! Two such keys that share a prime can be computed from their public halves: they are for measurements only.

use rand::CryptoRng;
use rsa::BigUint;
use rsa::traits::{PrivateKeyParts as _, PublicKeyParts as _};
use tor_llcrypto::pk::rsa::KeyPair;

/// Bits of a relay's RSA identity key (tor-spec 1.2).
const BITS: usize = 1024;
/// And its public exponent.
const EXPONENT: u32 = 65_537;

/// The primes made so far, and the next pair of them: each pair makes a key of its own.
#[derive(Debug, Default)]
pub(super) struct Primes {
    primes: Vec<BigUint>,
    /// The pair's second, which is greater, and its first.
    next: (usize, usize),
}

impl Primes {
    /// A key that was not given before.
    pub(super) fn next_key(&mut self, rng: &mut dyn CryptoRng) -> Result<KeyPair, String> {
        loop {
            let (second, first) = self.next;
            if first >= second {
                self.next = (second + 1, 0);
                continue;
            }
            if second >= self.primes.len() {
                let mut rng = &mut *rng;
                let fresh = KeyPair::generate(&mut rng).map_err(|error| error.to_string())?;
                self.primes.extend_from_slice(fresh.as_key().primes());
                continue;
            }
            self.next = (second, first + 1);
            let pair = (self.primes.get(first), self.primes.get(second));
            let (Some(p), Some(q)) = pair else {
                continue;
            };
            let key = rsa::RsaPrivateKey::from_p_q(p.clone(), q.clone(), EXPONENT.into());
            // Primes of different keys may make a product of a bit less, or not fit the exponent.
            if let Ok(key) = key
                && key.n().bits() == BITS
            {
                return Ok(key.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn a_hundred_keys_of_some_twenty_primes_differ_and_sign() {
        let mut rng = ChaCha12Rng::from_seed([7; 32]);
        let mut primes = Primes::default();
        let keys: Vec<KeyPair> = (0..100)
            .map(|_| primes.next_key(&mut rng).unwrap())
            .collect();
        assert!(primes.primes.len() < 30, "{}", primes.primes.len());
        let identities: BTreeSet<_> = keys
            .iter()
            .map(|key| key.to_public_key().to_rsa_identity())
            .collect();
        assert_eq!(identities.len(), keys.len());
        for key in &keys {
            assert!(
                key.to_public_key().exponent_is(EXPONENT) && key.to_public_key().bits() == BITS
            );
            let signature = key.sign(b"relay").unwrap();
            assert!(key.to_public_key().verify(b"relay", &signature).is_ok());
        }
    }
}
