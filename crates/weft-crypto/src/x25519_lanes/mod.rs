//! X25519 of eight pairs of factors at once, in the lanes of 512-bit registers.
//!
//! AVX-512's multiplication of 52 bits makes eight products of two limbs at a time, where aws-lc makes
//! one of 64 bits: eight multiplications together take as long as two of aws-lc's
//! (docs/performance.md). A relay under load has that many onionskins to answer at once, three
//! multiplications each.
//!
//! [`field`] is the arithmetic and [`ladder`] the algorithm, both without unsafe code and written for
//! any [`field::Lanes`]. [`zmm`] is those of the processor. The tests have others, which do the same
//! on integers and panic at any overflow; a processor without AVX-512 tests those alone.
//!
//! Lanes share nothing: no instruction here carries from lane to lane, and no inversion is shared.
//! Scalars and products are wiped. Like aws-lc's code, this leaves on the stack what lay there on the
//! way between them.

mod factors;
mod field;
mod ladder;
#[cfg(target_arch = "x86_64")]
mod zmm;

use zeroize::Zeroizing;

pub(crate) use factors::{Factors, LANES};

/// Registers' worth of multiplications done together at most.
pub(crate) const GROUPS: usize = 3;

/// Multiplies in lanes, on a processor that can.
#[derive(Clone, Copy)]
pub(crate) struct Multiplier(
    #[cfg(target_arch = "x86_64")] zmm::Supported,
    #[cfg(not(target_arch = "x86_64"))] std::convert::Infallible,
);

impl Multiplier {
    /// Asks the processor, which is cheap.
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return zmm::Supported::detect().map(Self);
        #[cfg(not(target_arch = "x86_64"))]
        return None;
    }

    /// The product of each pair, X25519(scalar, point), in their order. All zeros, where the point
    /// has a small order, is a product like others here.
    pub(crate) fn multiply(self, factors: &[Factors]) -> Vec<Zeroizing<[u8; 32]>> {
        let mut products = Vec::with_capacity(factors.len());
        for factors in factors.chunks(LANES * GROUPS) {
            match factors.len().div_ceil(LANES) {
                1 => self.groups::<1>(factors, &mut products),
                2 => self.groups::<2>(factors, &mut products),
                _ => self.groups::<GROUPS>(factors, &mut products),
            }
        }
        products
    }

    /// [`Self::multiply`] for factors that fit into `N` groups.
    fn groups<const N: usize>(self, factors: &[Factors], products: &mut Vec<Zeroizing<[u8; 32]>>) {
        let mut groups = [const { [const { Factors::NONE }; LANES] }; N];
        for (to, factors) in groups.as_flattened_mut().iter_mut().zip(factors) {
            to.clone_from(factors);
        }
        let mut results = Zeroizing::new([[[0; 32]; LANES]; N]);
        #[cfg(target_arch = "x86_64")]
        zmm::multiply(self.0, &groups, &mut results);
        #[cfg(not(target_arch = "x86_64"))]
        match self.0 {}
        let results = results.as_flattened().iter().take(factors.len());
        products.extend(results.map(|product| Zeroizing::new(*product)));
    }
}

#[cfg(test)]
mod tests;
