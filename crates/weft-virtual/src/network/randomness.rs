//! The randomness of a network.

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

/// Purpose of random numbers. Each has a separate stream, so that more clients change no relay.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Keys,
    Places,
    Users,
    Adversary,
}

pub(super) fn random(seed: u64, purpose: Purpose) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(purpose as u64 + 1);
    rng
}
