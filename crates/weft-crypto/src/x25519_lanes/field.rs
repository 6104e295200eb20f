//! The field of curve25519, integers modulo p = 2²⁵⁵ − 19, eight elements at once.
//!
//! An element is five limbs of 51 bits, and one [`Lanes`] holds the same limb of eight elements. The
//! multiplication takes 52 bits of each factor and gives the low or the high 52 bits of the product
//! (Intel's IFMA). A high half therefore counts twice at the next limb.
//!
//! Two types keep the bounds. *Tight* limbs may be multiplied, *loose* ones may only be added,
//! subtracted once, and tightened:
//!
//! * tight: less than 2⁵¹ + 2¹⁷, so less than the 2⁵² that the multiplication sees;
//! * loose: at most 267 · 2⁵² < 2⁶¹, which is what a product has.
//!
//! The functions document how they keep to that; the tests run them on lanes that panic at any overflow.
//! Nothing branches or takes an address by a value.

use zeroize::Zeroizing;

/// Eight unsigned integers of 64 bits, one for each lane. No operation carries from lane to lane.
pub(super) trait Lanes: Copy {
    /// Proof that this processor supports the operations.
    type Can: Copy;
    /// These integers.
    fn new(can: Self::Can, lanes: [u64; 8]) -> Self;
    /// The integers.
    fn get(self) -> [u64; 8];
    /// The sum; it must stay below 2⁶⁴.
    fn add(self, other: Self) -> Self;
    /// The difference; it must not be negative.
    fn sub(self, other: Self) -> Self;
    /// Bit by bit, and.
    fn and(self, other: Self) -> Self;
    /// Shifted to the left; bits that leave are lost.
    fn shl<const N: u32>(self) -> Self;
    /// Shifted to the right.
    fn shr<const N: u32>(self) -> Self;
    /// `self` and the low 52 bits of the product of `a` and `b`, both less than 2⁵².
    fn low(self, a: Self, b: Self) -> Self;
    /// `self` and the high 52 bits of the product of `a` and `b`, both less than 2⁵².
    fn high(self, a: Self, b: Self) -> Self;
    /// In which lanes `self` and `bits` have a bit in common: bit 0 is lane 0.
    fn test(self, bits: Self) -> u8;
    /// `yes` in the lanes whose bit is set, `no` in the others.
    fn select(lanes: u8, yes: Self, no: Self) -> Self;
}

/// Bits of a limb.
const LIMB: u32 = 51;
/// The bits of a limb.
const MASK: u64 = (1 << LIMB) - 1;
/// (A − 2) / 4 of RFC 7748 5.
const A24: u64 = 121_665;

/// Eight elements that may be multiplied.
#[derive(Clone, Copy)]
pub(super) struct Tight<L>([L; 5]);

/// Eight elements as sums and products leave them.
#[derive(Clone, Copy)]
pub(super) struct Loose<L>([L; 5]);

/// The constants, in every lane.
#[derive(Clone, Copy)]
pub(super) struct Field<L> {
    zero: L,
    one: L,
    mask: L,
    nineteen: L,
    twice_nineteen: L,
    a24: L,
    /// 1024 p, limb by limb: more than any loose limb.
    multiple: [L; 5],
}

// Calls are inlined without exception below, because only so the instructions of `Zmm` come to stand
// in a function for which they are enabled.
#[allow(clippy::inline_always)]
impl<L: Lanes> Field<L> {
    /// The field on a processor that can.
    #[inline(always)]
    pub(super) fn new(can: L::Can) -> Self {
        let all = |value| L::new(can, [value; 8]);
        let high = all(MASK << 10);
        Self {
            zero: all(0),
            one: all(1),
            mask: all(MASK),
            nineteen: all(19),
            twice_nineteen: all(38),
            a24: all(A24),
            multiple: [all((MASK - 18) << 10), high, high, high, high],
        }
    }

    /// 0.
    #[inline(always)]
    pub(super) fn zero(&self) -> Loose<L> {
        Loose([self.zero; 5])
    }

    /// 1.
    #[inline(always)]
    pub(super) fn one(&self) -> Loose<L> {
        let mut limbs = [self.zero; 5];
        limbs[0] = self.one;
        Loose(limbs)
    }

    /// a + b. Limbs are less than 2⁶².
    #[inline(always)]
    pub(super) fn sum(&self, a: Loose<L>, b: Loose<L>) -> Tight<L> {
        self.tighten(each(a.0, b.0, L::add))
    }

    /// a − b, by a + 1024 p − b. No limb is negative: 1024 (2⁵¹ − 19) is more than 267 · 2⁵². Limbs
    /// are less than 2⁶².
    #[inline(always)]
    pub(super) fn difference(&self, a: Loose<L>, b: Loose<L>) -> Tight<L> {
        let more = each(a.0, self.multiple, L::add);
        self.tighten(each(more, b.0, L::sub))
    }

    /// a, tightened.
    #[inline(always)]
    pub(super) fn tight(&self, a: Loose<L>) -> Tight<L> {
        self.tighten(a.0)
    }

    /// Carries once from each limb to the next, all at the same time. Of limbs less than 2⁶³ the
    /// carries are less than 2¹², and 19 times the last one, which comes back to limb 0 because
    /// 2²⁵⁵ = 19, is less than 2¹⁷.
    #[inline(always)]
    fn tighten(&self, [a0, a1, a2, a3, a4]: [L; 5]) -> Tight<L> {
        Tight([
            a0.and(self.mask).low(a4.shr::<LIMB>(), self.nineteen),
            a1.and(self.mask).add(a0.shr::<LIMB>()),
            a2.and(self.mask).add(a1.shr::<LIMB>()),
            a3.and(self.mask).add(a2.shr::<LIMB>()),
            a4.and(self.mask).add(a3.shr::<LIMB>()),
        ])
    }

    /// a · b.
    ///
    /// Column k has the low halves of the products whose indices add up to k, and twice the high
    /// halves of those that add up to k − 1.
    #[inline(always)]
    pub(super) fn product(&self, a: Tight<L>, b: Tight<L>) -> Loose<L> {
        let ([a0, a1, a2, a3, a4], [b0, b1, b2, b3, b4]) = (a.0, b.0);
        let z = self.zero;
        let h1 = z.high(a0, b0);
        let h2 = z.high(a0, b1).high(a1, b0);
        let h3 = z.high(a0, b2).high(a1, b1).high(a2, b0);
        let h4 = z.high(a0, b3).high(a1, b2).high(a2, b1).high(a3, b0);
        let h5 = z.high(a0, b4).high(a1, b3).high(a2, b2).high(a3, b1);
        let h5 = h5.high(a4, b0);
        let h6 = z.high(a1, b4).high(a2, b3).high(a3, b2).high(a4, b1);
        let h7 = z.high(a2, b4).high(a3, b3).high(a4, b2);
        let h8 = z.high(a3, b4).high(a4, b3);
        let h9 = z.high(a4, b4);
        let c4 = twice(h4).low(a0, b4).low(a1, b3).low(a2, b2).low(a3, b1);
        fold(
            [
                z.low(a0, b0),
                twice(h1).low(a0, b1).low(a1, b0),
                twice(h2).low(a0, b2).low(a1, b1).low(a2, b0),
                twice(h3).low(a0, b3).low(a1, b2).low(a2, b1).low(a3, b0),
                c4.low(a4, b0),
            ],
            [
                twice(h5).low(a1, b4).low(a2, b3).low(a3, b2).low(a4, b1),
                twice(h6).low(a2, b4).low(a3, b3).low(a4, b2),
                twice(h7).low(a3, b4).low(a4, b3),
                twice(h8).low(a4, b4),
                twice(h9),
            ],
        )
    }

    /// a². As [`Self::product`], but products of different limbs are made once and count twice.
    #[inline(always)]
    pub(super) fn square(&self, a: Tight<L>) -> Loose<L> {
        let [a0, a1, a2, a3, a4] = a.0;
        let z = self.zero;
        let h1 = z.high(a0, a0);
        let h2 = twice(z.high(a0, a1));
        let h3 = twice(z.high(a0, a2)).high(a1, a1);
        let h4 = twice(z.high(a0, a3).high(a1, a2));
        let h5 = twice(z.high(a0, a4).high(a1, a3)).high(a2, a2);
        let h6 = twice(z.high(a1, a4).high(a2, a3));
        let h7 = twice(z.high(a2, a4)).high(a3, a3);
        let h8 = twice(z.high(a3, a4));
        let h9 = z.high(a4, a4);
        fold(
            [
                z.low(a0, a0),
                twice(h1.low(a0, a1)),
                twice(h2.low(a0, a2)).low(a1, a1),
                twice(h3.low(a0, a3).low(a1, a2)),
                twice(h4.low(a0, a4).low(a1, a3)).low(a2, a2),
            ],
            [
                twice(h5.low(a1, a4).low(a2, a3)),
                twice(h6.low(a2, a4)).low(a3, a3),
                twice(h7.low(a3, a4)),
                twice(h8).low(a4, a4),
                twice(h9),
            ],
        )
    }

    /// a + 121665 b. High halves are less than 2¹⁷; limbs are less than 2⁵⁴.
    #[inline(always)]
    pub(super) fn plus_a24(&self, a: Tight<L>, b: Tight<L>) -> Tight<L> {
        let ([a0, a1, a2, a3, a4], [b0, b1, b2, b3, b4]) = (a.0, b.0);
        let (z, a24) = (self.zero, self.a24);
        self.tighten([
            a0.low(b0, a24).low(z.high(b4, a24), self.twice_nineteen),
            a1.low(b1, a24).add(twice(z.high(b0, a24))),
            a2.low(b2, a24).add(twice(z.high(b1, a24))),
            a3.low(b3, a24).add(twice(z.high(b2, a24))),
            a4.low(b4, a24).add(twice(z.high(b3, a24))),
        ])
    }

    /// `yes` in the lanes whose bit is set, `no` in the others.
    #[inline(always)]
    pub(super) fn select(lanes: u8, yes: Tight<L>, no: Tight<L>) -> Tight<L> {
        Tight(each(yes.0, no.0, |yes, no| L::select(lanes, yes, no)))
    }

    /// 1 / a, 0 for 0, for each of `elements`: a to the power of p − 2 = 2²⁵⁵ − 21. That is one
    /// squaring after the other; those of several elements fill each other's waits.
    #[inline(always)]
    pub(super) fn invert<const N: usize>(&self, elements: [Tight<L>; N]) -> [Tight<L>; N] {
        let x1 = elements; // the names have the number of the exponent's bits: x5 is a to the power of 2⁵ − 1
        let t2 = self.squares(x1, 1);
        let t9 = self.products(x1, self.squares(t2, 2));
        let t11 = self.products(t2, t9);
        let x5 = self.products(t9, self.squares(t11, 1));
        let x10 = self.products(x5, self.squares(x5, 5));
        let x20 = self.products(x10, self.squares(x10, 10));
        let x40 = self.products(x20, self.squares(x20, 20));
        let x50 = self.products(x10, self.squares(x40, 10));
        let x100 = self.products(x50, self.squares(x50, 50));
        let x200 = self.products(x100, self.squares(x100, 100));
        let x250 = self.products(x50, self.squares(x200, 50));
        self.products(t11, self.squares(x250, 5))
    }

    /// Each of `elements` squared `times` times.
    #[inline(always)]
    fn squares<const N: usize>(&self, mut elements: [Tight<L>; N], times: u32) -> [Tight<L>; N] {
        for _ in 0..times {
            for element in &mut elements {
                *element = self.tight(self.square(*element));
            }
        }
        elements
    }

    /// Each of `a` by that of `b`.
    #[inline(always)]
    pub(super) fn products<const N: usize>(
        &self,
        mut a: [Tight<L>; N],
        b: [Tight<L>; N],
    ) -> [Tight<L>; N] {
        for (a, b) in a.iter_mut().zip(b) {
            *a = self.tight(self.product(*a, b));
        }
        a
    }
}

/// Tight bounds satisfy loose ones.
impl<L> From<Tight<L>> for Loose<L> {
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn from(tight: Tight<L>) -> Self {
        Self(tight.0)
    }
}

/// `operation` on each pair of limbs.
#[inline(always)]
#[allow(clippy::inline_always)] // as above
fn each<L: Lanes>(a: [L; 5], b: [L; 5], operation: impl Fn(L, L) -> L) -> [L; 5] {
    let ([a0, a1, a2, a3, a4], [b0, b1, b2, b3, b4]) = (a, b);
    [
        operation(a0, b0),
        operation(a1, b1),
        operation(a2, b2),
        operation(a3, b3),
        operation(a4, b4),
    ]
}

#[inline(always)]
#[allow(clippy::inline_always)] // as above
fn twice<L: Lanes>(a: L) -> L {
    a.add(a)
}

/// Ten columns as five limbs: column k + 5 counts 19 times in column k, because 2²⁵⁵ = 19.
///
/// Each half of a product is less than 2⁵². So column 0, with 1 of them, gets 19 times column 5,
/// which has 4 low ones and 5 high ones that count twice: 267 · 2⁵². The other columns stay below.
#[inline(always)]
#[allow(clippy::inline_always)] // as above
fn fold<L: Lanes>(columns: [L; 5], upper: [L; 5]) -> Loose<L> {
    Loose(each(columns, upper, |column, upper| {
        // 19 = 16 + 1 + 2
        let seventeen = upper.shl::<4>().add(upper);
        column.add(twice(upper)).add(seventeen)
    }))
}

// Inlined without exception, as above.
#[allow(clippy::inline_always)]
impl<L: Lanes> Tight<L> {
    /// Eight elements from their bytes. The top bit does not count, and values of p or more are
    /// taken modulo p (RFC 7748 5).
    #[inline(always)]
    pub(super) fn decode(can: L::Can, elements: &[[u8; 32]; 8]) -> Self {
        let mut limbs = [[0; 8]; 5];
        for (lane, bytes) in elements.iter().enumerate() {
            let [w0, w1, w2, w3] = words(bytes);
            let parts = [
                w0,
                w0 >> 51 | w1 << 13,
                w1 >> 38 | w2 << 26,
                w2 >> 25 | w3 << 39,
                w3 >> 12,
            ];
            for (limb, part) in limbs.iter_mut().zip(parts) {
                if let Some(limb) = limb.get_mut(lane) {
                    *limb = part & MASK;
                }
            }
        }
        let [l0, l1, l2, l3, l4] = limbs;
        let new = |limb| L::new(can, limb);
        Self([new(l0), new(l1), new(l2), new(l3), new(l4)])
    }

    /// Writes the elements' bytes to `elements`, each less than p.
    #[inline(always)]
    pub(super) fn encode(self, elements: &mut [[u8; 32]; 8]) {
        let [l0, l1, l2, l3, l4] = self.0;
        let limbs = Zeroizing::new([l0.get(), l1.get(), l2.get(), l3.get(), l4.get()]);
        for (lane, bytes) in elements.iter_mut().enumerate() {
            let mut element = Zeroizing::new([0; 5]);
            for (to, limb) in element.iter_mut().zip(limbs.iter()) {
                *to = limb.get(lane).copied().unwrap_or_default();
            }
            canonical(&mut element, bytes);
        }
    }
}

/// Writes the bytes of one tight element to `bytes`, less than p.
fn canonical([l0, l1, l2, l3, l4]: &mut [u64; 5], bytes: &mut [u8; 32]) {
    // Tight elements are less than 2p. The carry out of x + 19 is set where x is at least p.
    let mut carry = (*l0 + 19) >> LIMB;
    for limb in [&l1, &l2, &l3, &l4] {
        carry = (**limb + carry) >> LIMB;
    }
    *l0 += 19 * carry;
    *l1 += *l0 >> LIMB;
    *l2 += *l1 >> LIMB;
    *l3 += *l2 >> LIMB;
    *l4 += *l3 >> LIMB;
    for limb in [&mut *l0, l1, l2, l3, l4] {
        *limb &= MASK;
    }
    let words = [
        *l0 | *l1 << 51,
        *l1 >> 13 | *l2 << 38,
        *l2 >> 26 | *l3 << 25,
        *l3 >> 39 | *l4 << 12,
    ];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

/// Four words, the lowest first.
pub(super) fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::tests::Checked;
    use super::*;

    /// The largest tight and loose limbs; see the head of the file.
    const TIGHT: u64 = (1 << 51) + (1 << 17) - 1;
    const LOOSE: u64 = 267 << 52;

    fn limbs(limbs: [u64; 5]) -> [Checked; 5] {
        limbs.map(|limb| Checked::new((), [limb; 8]))
    }

    fn at_most(most: u64, limbs: [Checked; 5]) -> bool {
        limbs
            .map(Lanes::get)
            .as_flattened()
            .iter()
            .all(|limb| *limb <= most)
    }

    #[test]
    fn the_largest_limbs_stay_within_the_bounds() {
        let field = Field::<Checked>::new(());
        for set in 0..1 << 5 {
            let largest = |most| {
                limbs(std::array::from_fn(|i| match set >> i & 1 {
                    1 => most,
                    _ => 0,
                }))
            };
            let (tight, loose) = (Tight(largest(TIGHT)), Loose(largest(LOOSE)));
            // 52 bits are more than tight limbs have, and the multiplication bears them.
            let wide = Tight(largest((1 << 52) - 1));
            for factor in [Tight(limbs([TIGHT; 5])), wide] {
                assert!(at_most(LOOSE, field.product(tight, factor).0));
                assert!(at_most(LOOSE, field.product(factor, wide).0));
            }
            assert!(at_most(LOOSE, field.square(tight).0));
            assert!(at_most(LOOSE, field.square(wide).0));
            for other in [Loose(limbs([LOOSE; 5])), field.zero()] {
                assert!(at_most(TIGHT, field.sum(loose, other).0));
                assert!(at_most(TIGHT, field.difference(loose, other).0));
                assert!(at_most(TIGHT, field.difference(other, loose).0));
            }
            assert!(at_most(TIGHT, field.tight(loose).0));
            assert!(at_most(
                TIGHT,
                field.plus_a24(tight, Tight(limbs([TIGHT; 5]))).0
            ));
            assert!(at_most(TIGHT, field.plus_a24(wide, wide).0));
        }
    }

    #[test]
    fn what_is_not_less_than_p_is_taken_modulo_p() {
        for (low, expected) in [(MASK - 19, None), (MASK - 18, Some(0)), (MASK, Some(18))] {
            let mut bytes = [[0; 32]; 8];
            Tight(limbs([low, MASK, MASK, MASK, MASK])).encode(&mut bytes);
            let mut reduced = match expected {
                Some(_) => [0; 32],
                None => [0xff; 32],
            };
            // p − 1 ends in 0x7f and begins with 0xec.
            reduced[31] &= 0x7f;
            reduced[0] = expected.unwrap_or(0xec);
            assert_eq!(bytes, [reduced; 8]);
        }
        // The largest tight limbs, by hand: all ones, which is 18, and 2¹⁷ of each weight.
        let mut bytes = [[0; 32]; 8];
        Tight(limbs([TIGHT; 5])).encode(&mut bytes);
        let again = Tight::<Checked>::decode((), &bytes);
        let expected = [(1 << 17) + 18, 1 << 17, 1 << 17, 1 << 17, 1 << 17];
        assert_eq!(again.0, limbs(expected));
    }
}
