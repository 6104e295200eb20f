//! Random numbers that are functions of a seed and of the place of the work, never of a thread.
//!
//! The generator is xoshiro256++ (Blackman and Vigna): fast, of period 2²⁵⁶ − 1, and no secret. Nothing
//! here protects a secret.

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

/// The random number generator of all simulations.
pub type Generator = Xoshiro256PlusPlus;

/// Circuits that are drawn from one generator.
pub const CHUNK: usize = 65_536;

/// The generator of a chunk of a repetition. Simulations that are made of the same seed for different
/// purposes have different numbers of `repetition`.
pub fn generator(seed: u64, repetition: u64, chunk: u64) -> Generator {
    let mixed = [seed, repetition, chunk].into_iter().fold(0, |sum, word| {
        mix(sum ^ mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    });
    Generator::seed_from_u64(mixed)
}

/// A seed that depends on a text, too: documents that are simulated with one seed get different
/// draws.
pub fn seed_for(seed: u64, text: &str) -> u64 {
    text.bytes()
        .fold(mix(seed), |sum, byte| mix(sum ^ u64::from(byte)))
}

/// The end of SplitMix64 (Steele, Lea and Flood): a bijection that scatters all bits.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).wrapping_add(0x2545_f491_4f6c_dd1d)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::Rng as _;

    use super::*;

    #[test]
    fn every_chunk_has_numbers_of_its_own() {
        let mut seen = BTreeSet::new();
        for seed in 0..10 {
            for repetition in 0..10 {
                for chunk in 0..10 {
                    assert!(seen.insert(generator(seed, repetition, chunk).next_u64()));
                }
            }
        }
    }
}
