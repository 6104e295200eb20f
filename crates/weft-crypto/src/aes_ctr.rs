//! AES in counter mode with a zero initial counter, as Tor uses it everywhere.
//!
//! This is the hot path of a relay: every cell is one pass of it. It stands
//! behind these two types so that the implementation can be exchanged without
//! touching anything else. Only the encryption half of the key schedule is
//! kept (counter mode never decrypts), which halves the bytes per circuit.

use cipher::{KeyIvInit, StreamCipher};

/// A running AES-128-CTR key stream: one direction of one hop (tor-spec 0.3).
///
/// Wiped when dropped.
#[derive(Clone)]
pub(crate) struct Aes128Ctr(ctr::Ctr128BE<aes::Aes128Enc>);

impl Aes128Ctr {
    /// Starts the key stream of `key` at counter zero.
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self(ctr::Ctr128BE::new(key.into(), &[0; 16].into()))
    }

    /// Adds the next `data.len()` bytes of key stream to `data`, in place.
    #[inline]
    pub(crate) fn apply(&mut self, data: &mut [u8]) {
        self.0.apply_keystream(data);
    }
}

/// Adds the AES-256-CTR key stream of `key`, from its start, to `data`:
/// the one-message cipher of ntor-v3 (proposal 332).
pub(crate) fn aes256_ctr(key: &[u8; 32], data: &mut [u8]) {
    ctr::Ctr128BE::<aes::Aes256Enc>::new(key.into(), &[0; 16].into()).apply_keystream(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST SP 800-38A F.5.1 uses a non-zero counter; with a zero one, the
    /// first key stream block is the encryption of the zero block (FIPS 197
    /// style known answer: AES-128, zero key).
    #[test]
    fn zero_key_gives_the_known_first_blocks() {
        let mut stream = Aes128Ctr::new(&[0; 16]);
        let mut data = [0; 32];
        // Uneven pieces: the stream goes on where it stopped.
        let (first, second) = data.split_at_mut(13);
        stream.apply(first);
        stream.apply(second);
        assert_eq!(
            hex::encode(data),
            "66e94bd4ef8a2c3b884cfa59ca342b2e58e2fccefa7e3061367f1d57a4e7455a"
        );
    }

    #[test]
    fn aes256_zero_key_gives_the_known_first_block() {
        let mut data = [0; 16];
        aes256_ctr(&[0; 32], &mut data);
        assert_eq!(hex::encode(data), "dc95c078a2408989ad48a21492842087");
    }
}
