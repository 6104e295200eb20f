//! Draws in proportion to weights.

use rand::{Rng, RngExt as _};

/// Draws one of `candidates` in proportion to its weight. Where no weight is above zero, all are
/// equally likely. `None`: there is none.
pub(crate) fn draw(candidates: &[(usize, u64)], rng: &mut impl Rng) -> Option<usize> {
    let total: u128 = candidates.iter().map(|&(_, w)| u128::from(w)).sum();
    if total == 0 {
        let count = candidates.len();
        return match count {
            0 => None,
            _ => candidates
                .get(rng.random_range(0..count))
                .map(|&(index, _)| index),
        };
    }
    let mut left = rng.random_range(0..total);
    for &(index, weight) in candidates {
        match left.checked_sub(u128::from(weight)) {
            None => return Some(index),
            Some(rest) => left = rest,
        }
    }
    None
}
