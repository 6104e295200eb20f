//! Payloads as functions of a seed, and their hashes.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::Digest as _;

/// Bytes made, sent or read at a time.
pub(super) const CHUNK: usize = 64 * 1024;

/// A SHA-256 hash.
pub(super) type Digest = [u8; 32];

/// A running SHA-256.
#[derive(Clone, Debug, Default)]
pub(super) struct Hasher(sha2::Sha256);

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn digest(self) -> Digest {
        self.0.finalize().into()
    }
}

/// The rest of a payload, and the hash of what has been taken from it.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: ChaCha8Rng,
    left: u64,
    hash: Hasher,
}

impl Payload {
    /// The payload of this seed and length.
    pub(super) fn new(seed: u64, length: u64) -> Payload {
        Payload {
            bytes: ChaCha8Rng::seed_from_u64(seed),
            left: length,
            hash: Hasher::default(),
        }
    }

    /// Puts the next bytes at the beginning of `buffer` and returns how many: all that fit, 0 at the
    /// end. The length of the buffers does not change the payload if it is a multiple of 64.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let chunk = &mut buffer[..count];
        self.bytes.fill_bytes(chunk);
        self.hash.update(chunk);
        self.left -= count as u64;
        count
    }

    /// The hash of what was taken.
    pub(super) fn digest(self) -> Digest {
        self.hash.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(seed: u64, length: u64, chunk: usize) -> (Vec<u8>, Digest) {
        let mut payload = Payload::new(seed, length);
        let (mut all, mut buffer) = (Vec::new(), vec![0; chunk]);
        loop {
            let count = payload.fill(&mut buffer);
            if count == 0 {
                return (all, payload.digest());
            }
            all.extend_from_slice(&buffer[..count]);
        }
    }

    #[test]
    fn a_payload_depends_on_its_seed_alone() {
        assert_eq!(whole(1, 10_000, 64), whole(1, 10_000, CHUNK));
        assert_ne!(whole(1, 10_000, 64).1, whole(2, 10_000, 64).1);
        assert_eq!(whole(1, 10_000, 64).0.len(), 10_000);
    }
}
