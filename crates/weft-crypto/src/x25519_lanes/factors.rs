//! Factors of one lane.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Multiplications in one register.
pub(crate) const LANES: usize = 8;

/// A scalar and a point's u-coordinate, in X25519's encoding. Wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Factors {
    /// Clamped when used.
    pub(super) scalar: [u8; 32],
    /// The top bit does not count.
    pub(super) point: [u8; 32],
}

impl Factors {
    /// A copy of both.
    pub(crate) fn new(scalar: &[u8; 32], point: &[u8; 32]) -> Self {
        Self {
            scalar: *scalar,
            point: *point,
        }
    }

    /// Factors of unused lanes.
    pub(super) const NONE: Self = Self {
        scalar: [0; 32],
        point: [0; 32],
    };
}
