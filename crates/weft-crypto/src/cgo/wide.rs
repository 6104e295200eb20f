//! UIV+ by VAES and VPCLMULQDQ on 512-bit registers: four blocks in each instruction.
//!
//! A body is 31 blocks of key stream and 32 blocks to hash: eight registers of either, so a cell
//! never leaves the registers between the steps. POLYVAL sums products of blocks with powers of its
//! key before it reduces them, sixteen blocks at a time. Nothing that was just stored is loaded
//! again.
//!
//! Field elements are POLYVAL's (RFC 8452 section 3): little-endian, and a product is divided by
//! x¹²⁸.
//!
//! Miri knows few of these instructions; the tests compare with the portable implementation instead.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m512i, _mm_aesdec_si128, _mm_aesdeclast_si128, _mm_aesenc_si128,
    _mm_aesenclast_si128, _mm_aesimc_si128, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_set1_epi32,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_slli_si128, _mm_storeu_si128, _mm_xor_si128,
    _mm512_add_epi8, _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castsi512_si128, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi8, _mm512_permutex2var_epi8, _mm512_set_epi64,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_shuffle_i64x2, _mm512_storeu_si512,
    _mm512_xor_si512, _mm512_zextsi128_si512,
};
use std::marker::PhantomData;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::layout::{NEW_KEYS_FROM, REST_LEN, TAG_LEN, Tag, WIDE_KEY_LEN};
use super::way::Way;
use crate::relay_cell::BODY_LEN;

/// Bytes of a register.
const REGISTER: usize = 64;
/// Registers of key stream, and of the hashed bytes: the tag of the cell before, the cell's command
/// and the body after its tag.
const REGISTERS: usize = 8;
/// The last of them.
const LAST: usize = REGISTERS - 1;
const _: () = assert!(REST_LEN.div_ceil(REGISTER) == REGISTERS);
const _: () = assert!((TAG_LEN + 1 + REST_LEN).div_ceil(REGISTER) == REGISTERS);
/// Bytes that are hashed before the body: the tag and the command.
const HEADER: usize = TAG_LEN + 1;
/// Bytes of key stream in the last register.
const REST_TAIL: usize = REST_LEN % REGISTER;
/// Bytes to hash in the last register.
const HASH_TAIL: usize = (HEADER + REST_LEN) % REGISTER;
/// Registers whose products are summed before they are reduced, and registers of powers.
const GROUP: usize = 4;
const _: () = assert!(REGISTERS.is_multiple_of(GROUP));

/// That the processor has the instructions used here. Only [`Supported::detect`] makes one, which is
/// what makes the calls below sound.
#[derive(Clone, Copy)]
struct Supported(());

impl Supported {
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi"))
        .then_some(Self(()))
    }
}

/// UIV+: a permutation of a body, in the way of `W`. Wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Wide<W> {
    /// Powers of the key of the tweak's hash, the highest (4 · `GROUP`) first.
    powers: [__m128i; 4 * GROUP],
    /// Key schedule of the tag's cipher, in the order and the form in which `W` takes it.
    tag: [__m128i; 11],
    /// Key schedule of the key stream.
    stream: [__m128i; 11],
    /// Key of the hash that makes the key stream's counter from the tag.
    hash: __m128i,
    /// Proof that this processor can.
    #[zeroize(skip)]
    supported: Supported,
    #[zeroize(skip)]
    way: PhantomData<W>,
}

impl<W: Way> Wide<W> {
    /// The permutation under `keys`; `None` where the processor cannot.
    pub(super) fn new(keys: &[u8; WIDE_KEY_LEN]) -> Option<Self> {
        let supported = Supported::detect()?;
        // SAFETY: `supported` is true only where the processor has all the features.
        Some(unsafe { new(supported, keys) })
    }

    /// Permutes a body in place.
    #[inline]
    pub(super) fn apply(&self, before: &Tag, command: u8, body: &mut [u8; BODY_LEN]) {
        let Supported(()) = self.supported;
        let to = body.as_mut_ptr();
        // SAFETY: `self.supported` exists, so the processor has all the features. The pointer is
        // that of a body that may be read and written.
        unsafe { pass(self, before, command, to, to) };
    }

    /// Permutes `from` into `to`.
    #[inline]
    pub(super) fn apply_to(
        &self,
        before: &Tag,
        command: u8,
        from: &[u8; BODY_LEN],
        to: &mut [u8; BODY_LEN],
    ) {
        let Supported(()) = self.supported;
        // SAFETY: `self.supported` exists, so the processor has all the features. The pointers are
        // those of a body that may be read and of another that may be written.
        unsafe { pass(self, before, command, from.as_ptr(), to.as_mut_ptr()) };
    }

    /// Replaces the keys and the nonce by those after them.
    #[inline]
    pub(super) fn update(&mut self, nonce: &mut Tag) {
        let Supported(()) = self.supported;
        // SAFETY: `self.supported` exists, so the processor has all the features.
        unsafe { update(self, nonce) };
    }
}

/// 16 bytes as a register.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn load(bytes: &Tag) -> __m128i {
    // SAFETY: reads 16 bytes, which the reference has; no alignment is asked for.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// A register as 16 bytes.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn store(to: &mut Tag, what: __m128i) {
    // SAFETY: writes 16 bytes, which the reference has; no alignment is asked for.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), what) };
}

/// The keys in their working form.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn new<W: Way>(supported: Supported, keys: &[u8; WIDE_KEY_LEN]) -> Wide<W> {
    let none = _mm_setzero_si128();
    let mut wide = Wide {
        powers: [none; 4 * GROUP],
        tag: [none; 11],
        stream: [none; 11],
        hash: none,
        supported,
        way: PhantomData,
    };
    let mut parts = [none; 4];
    for (part, key) in parts.iter_mut().zip(keys.as_chunks().0) {
        *part = load(key);
    }
    set(&mut wide, parts);
    parts.zeroize();
    wide
}

/// Puts keys in their working form into `wide`: of the tag's cipher, the tweak's hash, the key
/// stream and its hash.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn set<W: Way>(wide: &mut Wide<W>, [tag, tweak, stream, hash]: [__m128i; 4]) {
    wide.tag = schedule(tag);
    if !W::ENCRYPTS {
        // FIPS 197 5.3.5: the keys in the other order, those in the middle transformed.
        wide.tag.reverse();
        for key in &mut wide.tag[1..10] {
            *key = _mm_aesimc_si128(*key);
        }
    }
    wide.stream = schedule(stream);
    wide.hash = hash;
    let powers = powers(tweak);
    for (place, power) in wide.powers.as_chunks_mut::<4>().0.iter_mut().zip(powers) {
        // SAFETY: writes 64 bytes, which `place` has; no alignment is asked for.
        unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), power) };
    }
}

/// One step of the AES-128 key schedule (FIPS 197 5.2).
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn next_key<const RCON: i32>(key: __m128i) -> __m128i {
    // The last word, rotated, in all four places: AES's shift of rows then changes nothing, and its
    // last round is the substitution and the addition of the constant.
    let rotated = _mm_shuffle_epi8(key, _mm_set1_epi32(0x0c0f_0e0d));
    let word = _mm_aesenclast_si128(rotated, _mm_set1_epi32(RCON));
    let mut sum = key;
    sum = _mm_xor_si128(sum, _mm_slli_si128::<4>(sum));
    sum = _mm_xor_si128(sum, _mm_slli_si128::<8>(sum));
    _mm_xor_si128(sum, word)
}

/// The AES-128 key schedule.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn schedule(k0: __m128i) -> [__m128i; 11] {
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
    [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10]
}

/// Sums of products that are not reduced yet, lane by lane: their low and high halves, and the part
/// to add in the middle.
struct Products {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

/// The products of the field elements in each lane.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn multiply(a: __m512i, b: __m512i) -> Products {
    Products {
        low: _mm512_clmulepi64_epi128::<0x00>(a, b),
        middle: _mm512_xor_si512(
            _mm512_clmulepi64_epi128::<0x01>(a, b),
            _mm512_clmulepi64_epi128::<0x10>(a, b),
        ),
        high: _mm512_clmulepi64_epi128::<0x11>(a, b),
    }
}

/// The sum of both.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn sum(a: Products, b: Products) -> Products {
    Products {
        low: _mm512_xor_si512(a.low, b.low),
        middle: _mm512_xor_si512(a.middle, b.middle),
        high: _mm512_xor_si512(a.high, b.high),
    }
}

/// The field elements that the products are: twice, the lowest 64 bits are taken away by adding that
/// multiple of the polynomial which has them, and with it the rest is divided by x⁶⁴.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn reduce(products: Products) -> __m512i {
    // x¹²⁸ + x¹²⁷ + x¹²⁶ + x¹²¹ + 1 without its first and last, divided by x⁶⁴.
    let polynomial = _mm512_set1_epi64(0xc200_0000_0000_0000_u64.cast_signed());
    let multiple = _mm512_clmulepi64_epi128::<0x00>(products.low, polynomial);
    let rest = _mm512_shuffle_epi32::<0x4e>(products.low);
    let rest = _mm512_xor_si512(_mm512_xor_si512(products.middle, rest), multiple);
    let multiple = _mm512_clmulepi64_epi128::<0x00>(rest, polynomial);
    let rest = _mm512_shuffle_epi32::<0x4e>(rest);
    _mm512_xor_si512(_mm512_xor_si512(products.high, rest), multiple)
}

/// The lowest lane, in every lane.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn first(lanes: __m512i) -> __m512i {
    _mm512_shuffle_i64x2::<0>(lanes, lanes)
}

/// The first powers of `key`, the highest first.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn powers(key: __m128i) -> [__m512i; GROUP] {
    let one = _mm512_broadcast_i32x4(key);
    let two = reduce(multiply(one, one));
    // Powers below each other: 2, 2, 2, 1; multiplied by the second power they are 4, 4, 4, 3.
    let low = _mm512_inserti32x4::<3>(two, key);
    let high = reduce(multiply(low, two));
    let lowest = _mm512_shuffle_i64x2::<0b11_10_11_10>(high, low);
    let mut powers = [lowest; GROUP];
    let mut done = 1;
    // Each time as many again: those there are, multiplied by the highest of them.
    while done < GROUP {
        let (rest, known) = powers.split_at_mut(GROUP - done);
        if let Some(highest) = known.first() {
            let highest = first(*highest);
            for (place, known) in rest.iter_mut().rev().zip(known.iter().rev()) {
                *place = reduce(multiply(*known, highest));
            }
        }
        done *= 2;
    }
    powers
}

/// The hash of the blocks, under the tweak's key, in every lane.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn hash<W>(wide: &Wide<W>, blocks: &[__m512i; REGISTERS]) -> __m512i {
    let mut powers = [_mm512_set1_epi64(0); GROUP];
    for (power, place) in powers.iter_mut().zip(wide.powers.as_chunks::<4>().0) {
        // SAFETY: reads 64 bytes, which `place` has; no alignment is asked for.
        *power = unsafe { _mm512_loadu_si512(place.as_ptr().cast()) };
    }
    let mut lanes = None;
    for group in blocks.as_chunks::<GROUP>().0 {
        let [block, more @ ..] = group;
        let [power, others @ ..] = &powers;
        let mut products = multiply(*block, *power);
        for (block, power) in more.iter().zip(others) {
            products = sum(products, multiply(*block, *power));
        }
        // The highest power is the distance in blocks of all that was hashed before.
        if let Some(lanes) = lanes {
            products = sum(products, multiply(lanes, first(*power)));
        }
        lanes = Some(reduce(products));
    }
    let lanes = lanes.unwrap_or(powers[0]);
    let lanes = _mm512_xor_si512(lanes, _mm512_shuffle_i64x2::<0b01_00_11_10>(lanes, lanes));
    _mm512_xor_si512(lanes, _mm512_shuffle_i64x2::<0b10_11_00_01>(lanes, lanes))
}

/// Enciphers the tag, as `W` does it, under the hash of its tweak.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn permute<W: Way>(wide: &Wide<W>, tag: __m128i, mask: __m512i) -> __m128i {
    let mask = _mm512_castsi512_si128(mask);
    let [first, middle @ .., last] = &wide.tag;
    // The mask is what waits longest.
    let mut block = _mm_xor_si128(_mm_xor_si128(tag, *first), mask);
    for key in middle {
        block = if W::ENCRYPTS {
            _mm_aesenc_si128(block, *key)
        } else {
            _mm_aesdec_si128(block, *key)
        };
    }
    let last = _mm_xor_si128(*last, mask);
    if W::ENCRYPTS {
        _mm_aesenclast_si128(block, last)
    } else {
        _mm_aesdeclast_si128(block, last)
    }
}

/// `N` registers of the key stream that `input` chooses, from block `from` on.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn key_stream<W, const N: usize>(wide: &Wide<W>, input: __m128i, from: u8) -> [__m512i; N] {
    let input = _mm512_broadcast_i32x4(input);
    let input = reduce(multiply(input, _mm512_broadcast_i32x4(wide.hash)));
    // So that no counter below carries into another byte, the last of each lane.
    let room = !(0x3f_u64 << 56);
    let start = _mm512_and_si512(input, lanes(u64::MAX, [room; 4]));
    let from = u64::from(from);
    let each = [from, from + 1, from + 2, from + 3].map(|number| number << 56);
    let mut counter = _mm512_add_epi8(start, lanes(0, each));
    let four = lanes(0, [4 << 56; 4]);
    let [whitening, middle @ .., last] = &wide.stream;
    let whitening = _mm512_broadcast_i32x4(*whitening);
    let mut blocks = [whitening; N];
    for block in &mut blocks {
        *block = _mm512_xor_si512(whitening, counter);
        counter = _mm512_add_epi8(counter, four);
    }
    for key in middle {
        let key = _mm512_broadcast_i32x4(*key);
        for block in &mut blocks {
            *block = _mm512_aesenc_epi128(*block, key);
        }
    }
    let last = _mm512_broadcast_i32x4(*last);
    for block in &mut blocks {
        *block = _mm512_aesenclast_epi128(*block, last);
    }
    blocks
}

/// A register of four lanes by their halves.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
fn lanes(low: u64, high: [u64; 4]) -> __m512i {
    let low = low.cast_signed();
    let [h0, h1, h2, h3] = high.map(u64::cast_signed);
    _mm512_set_epi64(h3, low, h2, low, h1, low, h0, low)
}

/// The lowest bytes of a register.
const fn lowest(bytes: usize) -> u64 {
    (1 << bytes) - 1
}

/// Permutes the body at `from` into that at `to`.
///
/// # Safety
///
/// `from` may be read and `to` written for [`BODY_LEN`] bytes, which are the same place or do not
/// overlap.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn pass<W: Way>(wide: &Wide<W>, before: &Tag, command: u8, from: *const u8, to: *mut u8) {
    // SAFETY: reads the first 16 bytes of the body.
    let tag = unsafe { _mm_loadu_si128(from.cast()) };
    let header = _mm512_inserti32x4::<1>(
        _mm512_zextsi128_si512(load(before)),
        _mm_cvtsi32_si128(command.into()),
    );
    if W::ENCRYPTS {
        let mut blocks = [header; REGISTERS];
        for (number, block) in blocks.iter_mut().enumerate() {
            let mask = match number {
                0 => !lowest(HEADER),
                LAST => lowest(HASH_TAIL),
                _ => u64::MAX,
            };
            // The header stands where the tag does, and a byte before it.
            let place = from.wrapping_add(number * REGISTER).wrapping_sub(1);
            // SAFETY: the mask selects the bytes of the first register after the tag and of the
            // last before the body's end. Nothing else is read.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, place.cast()) };
            *block = if number == 0 {
                _mm512_xor_si512(header, bytes)
            } else {
                bytes
            };
        }
        let tag = permute(wide, tag, hash(wide, &blocks));
        let stream = key_stream::<W, REGISTERS>(wide, tag, 0);
        // SAFETY: as promised to this function.
        unsafe { add(&stream, from, to) };
        // SAFETY: writes the first 16 bytes of the body.
        unsafe { _mm_storeu_si128(to.cast(), tag) };
    } else {
        let stream = key_stream::<W, REGISTERS>(wide, tag, 0);
        // SAFETY: as promised to this function.
        let rest = unsafe { add(&stream, from, to) };
        let mut blocks = rest;
        let (mut last, mut seam) = (header, AFTER_HEADER);
        for block in &mut blocks {
            let rest = *block;
            // SAFETY: reads the 64 bytes of a constant.
            let index = unsafe { _mm512_loadu_si512(seam.as_ptr().cast()) };
            *block = _mm512_permutex2var_epi8(last, index, rest);
            (last, seam) = (rest, AFTER_REST);
        }
        let tag = permute(wide, tag, hash(wide, &blocks));
        // SAFETY: writes the first 16 bytes of the body.
        unsafe { _mm_storeu_si128(to.cast(), tag) };
    }
}

/// Adds key stream to the body at `from` after its tag, writes the sum to that at `to`, and returns
/// it, with zeros after its end.
///
/// # Safety
///
/// As for [`pass`].
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
#[inline]
unsafe fn add(stream: &[__m512i; REGISTERS], from: *const u8, to: *mut u8) -> [__m512i; REGISTERS] {
    let mut sums = *stream;
    for (number, sum) in sums.iter_mut().enumerate() {
        let mask = match number {
            LAST => lowest(REST_TAIL),
            _ => u64::MAX,
        };
        let place = TAG_LEN + number * REGISTER;
        // SAFETY: the registers but the last lie within the body, and the mask leaves of the last
        // what does.
        unsafe {
            let data = _mm512_maskz_loadu_epi8(mask, from.add(place).cast());
            *sum = _mm512_xor_si512(_mm512_maskz_mov_epi8(mask, *sum), data);
            _mm512_mask_storeu_epi8(to.add(place).cast(), mask, *sum);
        }
    }
    sums
}

/// Replaces the keys and the nonce by those after them.
#[target_feature(enable = "aes,vaes,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512vbmi")]
fn update<W: Way>(wide: &mut Wide<W>, nonce: &mut Tag) {
    let [keys, next] = key_stream::<W, 2>(wide, load(nonce), NEW_KEYS_FROM);
    let keys = [
        _mm512_castsi512_si128(keys),
        _mm512_extracti32x4_epi32::<1>(keys),
        _mm512_extracti32x4_epi32::<2>(keys),
        _mm512_extracti32x4_epi32::<3>(keys),
    ];
    set(wide, keys);
    store(nonce, _mm512_castsi512_si128(next));
}

/// Of two registers, the header at the first one's beginning, then the second from its beginning.
const AFTER_HEADER: &[u8; REGISTER] = &seam(0);
/// Of two neighbouring registers of a body's rest, as many bytes as the header has from the first
/// one's end, then the second from its beginning.
const AFTER_REST: &[u8; REGISTER] = &seam(REGISTER - HEADER);

/// Indices of bytes in two registers: a header's length of bytes from byte `start` of the first on,
/// then the second from its beginning.
const fn seam(start: usize) -> [u8; REGISTER] {
    let mut bytes = [0; REGISTER];
    let mut i = 0;
    while i < REGISTER {
        #[allow(clippy::cast_possible_truncation, clippy::indexing_slicing)] // less than 128
        {
            bytes[i] = if i < HEADER {
                (start + i) as u8
            } else {
                (REGISTER + i - HEADER) as u8
            };
        }
        i += 1;
    }
    bytes
}
