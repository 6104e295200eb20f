//! Eight lanes in one 512-bit register, by AVX-512 with IFMA.
//!
//! Every operation is one or two instructions that take time independent of the values. They are
//! inlined into [`multiply`], which enables the features.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_mask_blend_epi64, _mm512_slli_epi64, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_sub_epi64, _mm512_test_epi64_mask,
};

use super::factors::{Factors, LANES};
use super::field::Lanes;
use super::ladder;

/// That the processor has the instructions used here. Only [`Supported::detect`] makes one, which is
/// what makes the calls below sound.
#[derive(Clone, Copy)]
pub(super) struct Supported(());

impl Supported {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma"))
            .then_some(Self(()))
    }
}

/// Eight lanes. Only [`Lanes::new`] makes the first one, which takes a [`Supported`]; so wherever
/// there is one, the processor has the instructions.
#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512i);

/// Calls an intrinsic.
macro_rules! instruction {
    ($call:expr) => {{
        // SAFETY: the intrinsics ask for avx512f and avx512ifma alone. Every caller has a `Zmm` or a
        // `Supported` among its arguments, so the processor has both.
        unsafe { $call }
    }};
}

// Inlined without exception: see `Field`.
#[allow(clippy::inline_always)]
impl Lanes for Zmm {
    type Can = Supported;

    #[inline(always)]
    fn new(Supported(()): Supported, lanes: [u64; 8]) -> Self {
        // SAFETY: `Supported` is made only where the processor has avx512f. Reads the 64 bytes of the array;
        // no alignment is asked for.
        Self(unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn get(self) -> [u64; 8] {
        let mut lanes = [0; 8];
        // SAFETY: there is a `Zmm`, so the processor has avx512f. Writes the 64 bytes of the array;
        // no alignment is asked for.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), self.0) };
        lanes
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(instruction!(_mm512_add_epi64(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(instruction!(_mm512_sub_epi64(self.0, other.0)))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(instruction!(_mm512_and_si512(self.0, other.0)))
    }

    #[inline(always)]
    fn shl<const N: u32>(self) -> Self {
        Self(instruction!(_mm512_slli_epi64::<N>(self.0)))
    }

    #[inline(always)]
    fn shr<const N: u32>(self) -> Self {
        Self(instruction!(_mm512_srli_epi64::<N>(self.0)))
    }

    #[inline(always)]
    fn low(self, a: Self, b: Self) -> Self {
        Self(instruction!(_mm512_madd52lo_epu64(self.0, a.0, b.0)))
    }

    #[inline(always)]
    fn high(self, a: Self, b: Self) -> Self {
        Self(instruction!(_mm512_madd52hi_epu64(self.0, a.0, b.0)))
    }

    #[inline(always)]
    fn test(self, bits: Self) -> u8 {
        instruction!(_mm512_test_epi64_mask(self.0, bits.0))
    }

    #[inline(always)]
    fn select(lanes: u8, yes: Self, no: Self) -> Self {
        Self(instruction!(_mm512_mask_blend_epi64(lanes, no.0, yes.0)))
    }
}

/// [`ladder::multiply`] in registers.
pub(super) fn multiply<const N: usize>(
    supported: Supported,
    groups: &[[Factors; LANES]; N],
    products: &mut [[[u8; 32]; LANES]; N],
) {
    // SAFETY: `supported` is made only where the processor has the features.
    unsafe { enabled(supported, groups, products) }
}

/// [`ladder::multiply`] with the instructions enabled.
#[target_feature(enable = "avx512f,avx512ifma")]
fn enabled<const N: usize>(
    supported: Supported,
    groups: &[[Factors; LANES]; N],
    products: &mut [[[u8; 32]; LANES]; N],
) {
    ladder::multiply::<Zmm, N>(supported, groups, products);
}
