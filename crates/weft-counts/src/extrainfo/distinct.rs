//! Counts the different things seen in a day, without keeping them.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use rand::{Rng, RngExt as _};

/// Things that one day counts at most: more than any relay sees. Further things are not counted,
/// and cost nothing.
const MOST: usize = 1 << 18;

/// Things already counted today, as hashes under a key of that day. The hashes do not reveal the
/// address or service, and the key is dropped at the end of the day.
#[derive(Clone, Debug)]
pub struct Distinct {
    key: [u64; 2],
    seen: BTreeSet<u64>,
}

impl Distinct {
    /// A day that begins.
    pub fn new(rng: &mut impl Rng) -> Self {
        Self {
            key: [rng.random(), rng.random()],
            seen: BTreeSet::new(),
        }
    }

    /// Notes a thing; whether it is the first time today.
    pub fn note(&mut self, thing: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, thing).hash(&mut hasher);
        self.seen.len() < MOST && self.seen.insert(hasher.finish())
    }

    /// Number of different things.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seen.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn each_thing_counts_once_and_a_flood_is_bounded() {
        let mut distinct = Distinct::new(&mut ChaCha8Rng::seed_from_u64(1));
        assert!(distinct.note([1_u8; 32]) && distinct.note([2_u8; 32]));
        assert!(!distinct.note([1_u8; 32]));
        assert_eq!(distinct.count(), 2);
        for number in 0..MOST {
            distinct.note(number);
        }
        assert_eq!(distinct.count(), MOST as u64);
        assert!(!distinct.note("one more"));
    }

    #[test]
    fn another_day_has_another_key() {
        let hashes = |seed| {
            let mut distinct = Distinct::new(&mut ChaCha8Rng::seed_from_u64(seed));
            distinct.note("x");
            distinct.seen
        };
        assert_ne!(hashes(1), hashes(2));
    }
}
