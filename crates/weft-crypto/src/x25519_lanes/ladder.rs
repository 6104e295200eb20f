//! X25519 (RFC 7748 5) on lanes: Montgomery's ladder, which does the same steps for every scalar.

use zeroize::Zeroizing;

use super::factors::{Factors, LANES};
use super::field::{self, Field, Lanes, Tight};

/// Bits of a scalar that count: the top one never does.
const SCALAR_BITS: u32 = 255;

/// Writes the product of each pair of `groups` to its place in `products`.
// Inlined without exception: see `Field`.
#[inline(always)]
#[allow(clippy::inline_always)]
pub(super) fn multiply<L: Lanes, const N: usize>(
    can: L::Can,
    groups: &[[Factors; LANES]; N],
    products: &mut [[[u8; 32]; LANES]; N],
) {
    let field = Field::<L>::new(can);
    let top = L::new(can, [1 << 63; LANES]);
    // Loops, where `map` would read better: its closures might not be inlined.
    let one = field.tight(field.one());
    let (mut numerators, mut denominators) = ([one; N], [one; N]);
    for ((group, numerator), denominator) in
        groups.iter().zip(&mut numerators).zip(&mut denominators)
    {
        let mut points = [[0; 32]; LANES];
        let mut words = Zeroizing::new([[0; LANES]; 4]);
        for (lane, (factors, point)) in group.iter().zip(&mut points).enumerate() {
            *point = factors.point;
            let scalar = clamp(&factors.scalar);
            for (lanes, word) in words.iter_mut().zip(field::words(&scalar)) {
                if let Some(to) = lanes.get_mut(lane) {
                    *to = word;
                }
            }
        }
        let [w0, w1, w2, w3] = &*words;
        let new = |words: &[u64; LANES]| L::new(can, *words);
        let words = [new(w0), new(w1), new(w2), new(w3)];
        let point = Tight::decode(can, &points);
        (*numerator, *denominator) = ladder(&field, top, words, point);
    }
    let elements = field.products(numerators, field.invert(denominators));
    for (to, elements) in products.iter_mut().zip(elements) {
        elements.encode(to);
    }
}

/// The scalar that 32 bytes stand for (RFC 7748 5, decodeScalar25519).
fn clamp(bytes: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    let mut scalar = Zeroizing::new(*bytes);
    let [first, .., last] = &mut *scalar;
    *first &= 0xf8;
    *last = (*last & 0x7f) | 0x40;
    scalar
}

/// The ladder of RFC 7748 5, by its names: numerator and denominator of the product. `words` are the
/// scalars', the lowest first; `top` has the top bit of a word.
///
/// RFC 7748 swaps the two points before a step. Here the sums and differences of their coordinates
/// are selected for the doubling instead. The addition needs no swap: it would change the sign of
/// DA − CB, which is squared.
#[inline(always)]
#[allow(clippy::inline_always)] // as above
fn ladder<L: Lanes>(
    field: &Field<L>,
    top: L,
    [w0, w1, w2, w3]: [L; 4],
    point: Tight<L>,
) -> (Tight<L>, Tight<L>) {
    let (mut x2, mut z2) = (field.one(), field.zero());
    let (mut x3, mut z3) = (point.into(), field.one());
    let mut last = 0;
    let w3 = w3.shl::<1>();
    for (mut word, bits) in [(w3, SCALAR_BITS - 3 * 64), (w2, 64), (w1, 64), (w0, 64)] {
        for _ in 0..bits {
            let bit = word.test(top);
            word = word.shl::<1>();
            let swap = bit ^ last;
            last = bit;
            let (a, b) = (field.sum(x2, z2), field.difference(x2, z2));
            let (c, d) = (field.sum(x3, z3), field.difference(x3, z3));
            let aa = field.tight(field.square(Field::select(swap, c, a)));
            let bb = field.tight(field.square(Field::select(swap, d, b)));
            let (da, cb) = (field.product(d, a), field.product(c, b));
            x3 = field.square(field.sum(da, cb));
            let square = field.tight(field.square(field.difference(da, cb)));
            z3 = field.product(point, square);
            let e = field.difference(aa.into(), bb.into());
            x2 = field.product(aa, bb);
            z2 = field.product(e, field.plus_a24(aa, e));
        }
    }
    // The lowest bits of a clamped scalar are zero, so nothing is left to swap; but that is not for
    // the ladder to know.
    (
        Field::select(last, field.tight(x3), field.tight(x2)),
        Field::select(last, field.tight(z3), field.tight(z2)),
    )
}
