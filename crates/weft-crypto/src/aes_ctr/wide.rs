//! AES-128-CTR by VAES on 512-bit registers: four blocks in each instruction.
//!
//! A cell's body is 509 bytes, so the key stream of one cell begins anywhere in a block and spans up
//! to 33 of them. [`pass`] makes the whole of it in nine registers at once, which hides the latency
//! of the AES instructions, shifts it by where in the first block it begins, and adds it on the way
//! from one place to another. Nothing that was just stored is loaded again: on the data path
//! older stores often wait for memory, and such a load would wait for all of them.
//!
//! Miri knows none of these instructions; the tests compare with the portable implementation
//! instead, at every offset.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, _mm_aeskeygenassist_si128, _mm_loadu_si128, _mm_shuffle_epi32, _mm_slli_si128,
    _mm_storeu_si128, _mm_xor_si128, _mm512_add_epi8, _mm512_add_epi64, _mm512_aesenc_epi128,
    _mm512_aesenclast_epi128, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_permutex2var_epi8, _mm512_set_epi64,
    _mm512_set1_epi8, _mm512_set1_epi64, _mm512_shuffle_epi8, _mm512_xor_si512,
};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a register.
const REGISTER: usize = 64;
/// Registers of key stream made at once: enough for a cell's body at any offset.
const REGISTERS: usize = 9;
/// Bytes of an AES block.
const BLOCK: usize = 16;
/// The most bytes that one pass can add to, at any offset.
const PASS: usize = REGISTERS * REGISTER - (BLOCK - 1);

/// That the processor has the instructions used here. Only [`Supported::detect`] makes one, which is
/// what makes the calls below sound.
#[derive(Clone, Copy)]
struct Supported(());

impl Supported {
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi"))
        .then_some(Self(()))
    }
}

/// A running key stream. Wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Wide {
    /// The key schedule.
    round_keys: [[u8; BLOCK]; 11],
    /// Bytes of key stream used. A circuit never sees 2⁶⁴ blocks, so the upper half of the counter
    /// stays zero.
    position: u64,
    /// Proof that this processor can.
    #[zeroize(skip)]
    supported: Supported,
}

impl Wide {
    /// Starts the key stream of `key` at counter zero; `None` where the processor cannot.
    pub(super) fn new(key: &[u8; 16]) -> Option<Self> {
        let supported = Supported::detect()?;
        Some(Self {
            // SAFETY: `supported` is true only where the processor has AES.
            round_keys: unsafe { expand(key) },
            position: 0,
            supported,
        })
    }

    /// Bytes of key stream used.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Adds the next `data.len()` bytes of key stream to `data`, in place.
    #[inline]
    pub(super) fn apply(&mut self, data: &mut [u8]) {
        let Supported(()) = self.supported;
        for piece in data.chunks_mut(PASS) {
            let to = piece.as_mut_ptr();
            // SAFETY: `self.supported` exists, so the processor has all the features. `piece` may be
            // read and written for its length, which is at most PASS.
            unsafe { pass(&self.round_keys, self.position, to, to, piece.len()) };
            self.position += piece.len() as u64;
        }
    }

    /// Adds the next `from.len()` bytes of key stream to `from` and writes the sum to `to`.
    #[inline]
    pub(super) fn apply_to<const N: usize>(&mut self, from: &[u8; N], to: &mut [u8; N]) {
        const { assert!(N <= PASS) };
        let Supported(()) = self.supported;
        // SAFETY: `self.supported` exists, so the processor has all the features. `from` may be read
        // and `to` written for N bytes, at most PASS.
        unsafe {
            let (from, to) = (from.as_ptr(), to.as_mut_ptr());
            pass(&self.round_keys, self.position, from, to, N);
        }
        self.position += N as u64;
    }
}

/// One step of the AES-128 key schedule (FIPS 197 5.2).
#[target_feature(enable = "aes")]
fn next_key<const RCON: i32>(key: __m128i) -> __m128i {
    let word = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<RCON>(key));
    let mut sum = key;
    sum = _mm_xor_si128(sum, _mm_slli_si128::<4>(sum));
    sum = _mm_xor_si128(sum, _mm_slli_si128::<8>(sum));
    _mm_xor_si128(sum, word)
}

/// The AES-128 key schedule.
#[target_feature(enable = "aes")]
fn expand(key: &[u8; 16]) -> [[u8; BLOCK]; 11] {
    let k0 = load(key);
    let k1 = next_key::<0x01>(k0);
    let k2 = next_key::<0x02>(k1);
    let k3 = next_key::<0x04>(k2);
    let k4 = next_key::<0x08>(k3);
    let k5 = next_key::<0x10>(k4);
    let k6 = next_key::<0x20>(k5);
    let k7 = next_key::<0x40>(k6);
    let k8 = next_key::<0x80>(k7);
    let k9 = next_key::<0x1b>(k8);
    let k10 = next_key::<0x36>(k9);
    [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10].map(|key| {
        let mut bytes = [0; BLOCK];
        // SAFETY: `bytes` has the 16 bytes that are written; no alignment is asked for.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), key) };
        bytes
    })
}

/// 16 bytes as a register.
#[target_feature(enable = "sse2")]
#[inline]
fn load(bytes: &[u8; BLOCK]) -> __m128i {
    // SAFETY: reads 16 bytes, which the reference has; no alignment is asked for.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Adds key stream from byte `position` on to `length` bytes at `from` and writes them to `to`.
///
/// # Safety
///
/// `from` may be read and `to` written for `length` bytes, which are the same place or do not
/// overlap. `length` is at most [`PASS`].
#[target_feature(enable = "aes,vaes,avx512f,avx512bw,avx512vbmi")]
unsafe fn pass(
    round_keys: &[[u8; BLOCK]; 11],
    position: u64,
    from: *const u8,
    to: *mut u8,
    length: usize,
) {
    let first = (position / BLOCK as u64).cast_signed();
    // Each 128-bit lane is one block: the counter's low half, big-endian, in its upper 64 bits.
    let swap = _mm512_set_epi64(
        0x0809_0a0b_0c0d_0e0f,
        0x0001_0203_0405_0607,
        0x0809_0a0b_0c0d_0e0f,
        0x0001_0203_0405_0607,
        0x0809_0a0b_0c0d_0e0f,
        0x0001_0203_0405_0607,
        0x0809_0a0b_0c0d_0e0f,
        0x0001_0203_0405_0607,
    );
    let four = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
    let one_each = _mm512_set_epi64(3, 0, 2, 0, 1, 0, 0, 0);
    let upper = _mm512_set_epi64(-1, 0, -1, 0, -1, 0, -1, 0);
    let base = _mm512_and_si512(_mm512_set1_epi64(first), upper);
    let mut counter = _mm512_add_epi64(base, one_each);
    let whitening = _mm512_broadcast_i32x4(load(&round_keys[0]));
    let mut blocks = [whitening; REGISTERS];
    for block in &mut blocks {
        *block = _mm512_xor_si512(whitening, _mm512_shuffle_epi8(counter, swap));
        counter = _mm512_add_epi64(counter, four);
    }
    for key in &round_keys[1..10] {
        let key = _mm512_broadcast_i32x4(load(key));
        for block in &mut blocks {
            *block = _mm512_aesenc_epi128(*block, key);
        }
    }
    let last = _mm512_broadcast_i32x4(load(&round_keys[10]));
    for block in &mut blocks {
        *block = _mm512_aesenclast_epi128(*block, last);
    }
    // Indices of bytes in two neighbouring registers: from the offset in the first block on.
    #[allow(clippy::cast_possible_truncation)] // less than 16
    let offset = (position % BLOCK as u64) as i8;
    // SAFETY: reads the 64 bytes of a constant.
    let upwards = unsafe { _mm512_loadu_si512(UPWARDS.as_ptr().cast()) };
    let index = _mm512_add_epi8(upwards, _mm512_set1_epi8(offset));
    let mut done = 0;
    for (i, block) in blocks.iter().enumerate() {
        if done >= length {
            break;
        }
        // Behind the last register nothing is taken: PASS leaves room for the offset.
        let next = blocks.get(i + 1).unwrap_or(block);
        let stream = _mm512_permutex2var_epi8(*block, index, *next);
        let mask = match length - done {
            rest @ 0..REGISTER => (1u64 << rest) - 1,
            _ => u64::MAX,
        };
        // SAFETY: `done` is less than `length`, and the mask covers at most the `length - done` bytes
        // that remain: nothing else is read or written.
        unsafe {
            let data = _mm512_maskz_loadu_epi8(mask, from.add(done).cast());
            let sum = _mm512_xor_si512(data, stream);
            _mm512_mask_storeu_epi8(to.add(done).cast(), mask, sum);
        }
        done += REGISTER;
    }
}

/// 0, 1, 2 and so on.
const UPWARDS: [u8; REGISTER] = {
    let mut bytes = [0; REGISTER];
    let mut i = 0;
    while i < REGISTER {
        #[allow(clippy::cast_possible_truncation, clippy::indexing_slicing)] // less than 64
        {
            bytes[i] = i as u8;
        }
        i += 1;
    }
    bytes
};
