//! Lanes against RFC 7748, against aws-lc, and against lanes that panic at any overflow.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weft_testing::not_run;

use super::field::Lanes;
use super::*;
use crate::handshake::tests::array;

/// Lanes as integers. Every operation panics where the real ones would lose bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Checked([u64; 8]);

impl Checked {
    fn each(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|i| operation(self.0[i], other.0[i])))
    }

    /// The products, whose factors must be such that the instruction sees all of them.
    fn product(a: Self, b: Self) -> [u128; 8] {
        std::array::from_fn(|i| {
            assert!(a.0[i] < 1 << 52 && b.0[i] < 1 << 52);
            u128::from(a.0[i]) * u128::from(b.0[i])
        })
    }

    fn plus(self, parts: [u128; 8]) -> Self {
        self.add(Self(parts.map(|part| u64::try_from(part).unwrap())))
    }
}

impl Lanes for Checked {
    type Can = ();

    fn new((): (), lanes: [u64; 8]) -> Self {
        Self(lanes)
    }

    fn get(self) -> [u64; 8] {
        self.0
    }

    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a.checked_add(b).unwrap())
    }

    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| a.checked_sub(b).unwrap())
    }

    fn and(self, other: Self) -> Self {
        self.each(other, |a, b| a & b)
    }

    fn shl<const N: u32>(self) -> Self {
        Self(self.0.map(|lane| lane << N))
    }

    fn shr<const N: u32>(self) -> Self {
        Self(self.0.map(|lane| lane >> N))
    }

    fn low(self, a: Self, b: Self) -> Self {
        self.plus(Self::product(a, b).map(|product| product & ((1 << 52) - 1)))
    }

    fn high(self, a: Self, b: Self) -> Self {
        self.plus(Self::product(a, b).map(|product| product >> 52))
    }

    fn test(self, bits: Self) -> u8 {
        let lanes = self.and(bits).0.into_iter().enumerate();
        lanes.fold(0, |mask, (i, lane)| mask | u8::from(lane != 0) << i)
    }

    fn select(lanes: u8, yes: Self, no: Self) -> Self {
        Self(std::array::from_fn(|i| match lanes >> i & 1 {
            1 => yes.0[i],
            _ => no.0[i],
        }))
    }
}

/// The products of `factors` on [`Checked`] lanes.
fn checked(factors: &[Factors]) -> Vec<[u8; 32]> {
    let mut products = Vec::new();
    for factors in factors.chunks(LANES) {
        let mut group = [const { Factors::NONE }; LANES];
        group[..factors.len()].clone_from_slice(factors);
        let mut results = [[[0; 32]; LANES]];
        ladder::multiply::<Checked, 1>((), &[group], &mut results);
        products.extend_from_slice(&results[0][..factors.len()]);
    }
    products
}

/// This processor's lanes, if it has them; a test that has no use for them is reported.
macro_rules! processor {
    () => {{
        let multiplier = Multiplier::detect();
        if multiplier.is_none() {
            not_run!("this processor has no AVX-512 IFMA, whose lanes this tests");
        }
        multiplier
    }};
}

/// The products of `factors`, by the processor.
fn fast(multiplier: Multiplier, factors: &[Factors]) -> Vec<[u8; 32]> {
    let products = multiplier.multiply(factors);
    products.iter().map(|product| **product).collect()
}

/// aws-lc's product; it refuses one that is all zeros.
fn aws_lc(factors: &Factors) -> [u8; 32] {
    let scalar = PrivateKey::from_private_key(&X25519, &factors.scalar).unwrap();
    let point = UnparsedPublicKey::new(&X25519, factors.point);
    agree(&scalar, point, (), |product| {
        Ok(product.try_into().unwrap())
    })
    .unwrap_or_default()
}

fn factors(scalar: [u8; 32], point: [u8; 32]) -> Factors {
    Factors::new(&scalar, &point)
}

fn random(rng: &mut ChaCha8Rng) -> [u8; 32] {
    let mut bytes = [0; 32];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Points at which arithmetic goes wrong first: of small order, on the curve and on its twist; not
/// less than p; with limbs of all ones or all zeros; with the top bit.
fn edges() -> Vec<[u8; 32]> {
    let mut edges: Vec<[u8; 32]> = [
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ]
    .map(array)
    .to_vec();
    // 0 to 31, and p − 19 to p + 18 = 2²⁵⁵ − 1.
    for n in 0..32 {
        let mut bytes = [0; 32];
        bytes[0] = n;
        edges.push(bytes);
    }
    for n in 0xda..=0xff {
        let mut bytes = [0xff; 32];
        (bytes[0], bytes[31]) = (n, 0x7f);
        edges.push(bytes);
    }
    // Each limb all ones, and all but each.
    for limb in 0..5 {
        let mut bytes = [0; 32];
        for bit in limb * 51..(limb + 1) * 51 {
            bytes[bit / 8] |= 1 << (bit % 8);
        }
        edges.push(bytes);
        edges.push(bytes.map(|byte| !byte));
    }
    let high = edges.iter().map(|bytes| {
        let mut high = *bytes;
        high[31] ^= 0x80;
        high
    });
    let high: Vec<_> = high.collect();
    edges.extend(high);
    edges
}

/// Scalars of few and of many bits.
fn edge_scalars() -> [[u8; 32]; 4] {
    let mut order_less_one: [u8; 32] =
        array("ecd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    order_less_one[31] |= 0x40;
    [[0; 32], [0xff; 32], [0x55; 32], order_less_one]
}

/// RFC 7748 5.2, the single vectors.
#[test]
fn the_published_products() {
    let cases = [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ];
    let all = cases.map(|(scalar, point, _)| factors(array(scalar), array(point)));
    let expected = cases.map(|(_, _, product)| array(product));
    assert_eq!(checked(&all), expected);
    if let Some(multiplier) = processor!() {
        assert_eq!(fast(multiplier, &all), expected);
    }
}

/// RFC 7748 5.2: the product of a scalar and a point is the next scalar, and the scalar the next
/// point.
#[test]
fn a_thousand_products_of_products() {
    let Some(multiplier) = processor!() else {
        return;
    };
    let mut nine = [0; 32];
    nine[0] = 9;
    let mut pairs: [Factors; LANES] = std::array::from_fn(|_| factors(nine, nine));
    for n in 0..1000 {
        let products = fast(multiplier, &pairs);
        for (pair, product) in pairs.iter_mut().zip(products) {
            *pair = factors(product, pair.scalar);
        }
        if n == 0 {
            let first = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
            assert!(pairs.iter().all(|pair| pair.scalar == array(first)));
        }
    }
    let last = "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51";
    assert!(pairs.iter().all(|pair| pair.scalar == array(last)));
}

#[test]
fn another_implementation_finds_the_same() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut all: Vec<_> = (0..256)
        .map(|_| factors(random(&mut rng), random(&mut rng)))
        .collect();
    let expected = |all: &[Factors]| -> Vec<_> { all.iter().map(aws_lc).collect() };
    // The checked lanes are slow: a few.
    assert!(checked(&all[..24]) == expected(&all[..24]));
    let Some(multiplier) = processor!() else {
        return;
    };
    assert!(fast(multiplier, &all[..24]) == expected(&all[..24]));
    for pair in &mut all {
        pair.point[31] |= 0x80;
    }
    assert!(fast(multiplier, &all) == expected(&all));
}

#[test]
fn points_at_the_edges() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut all = Vec::new();
    for point in edges() {
        for scalar in edge_scalars() {
            all.push(factors(scalar, point));
        }
        all.push(factors(random(&mut rng), point));
    }
    let expected: Vec<_> = all.iter().map(aws_lc).collect();
    if let Some(multiplier) = processor!() {
        assert!(fast(multiplier, &all) == expected);
    }
    // The checked lanes are slow: one scalar for each point.
    let some: Vec<_> = all.iter().step_by(6).cloned().collect();
    let expected: Vec<_> = expected.into_iter().step_by(6).collect();
    assert!(checked(&some) == expected);
}

#[test]
fn a_lane_does_not_depend_on_the_others() {
    let Some(multiplier) = processor!() else {
        return;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let pair = factors(random(&mut rng), random(&mut rng));
    let expected = aws_lc(&pair);
    let edges = edges();
    for lane in 0..LANES * GROUPS {
        // Beside it random pairs and degenerate ones.
        let mut all: Vec<_> = (0..LANES * GROUPS)
            .map(|i| match i % 2 {
                0 => factors(random(&mut rng), random(&mut rng)),
                _ => factors([0xff; 32], edges[(i + lane) % edges.len()]),
            })
            .collect();
        all[lane] = pair.clone();
        let products = multiplier.multiply(&all);
        assert!(*products[lane] == expected, "lane {lane}");
        for (product, pair) in products.iter().zip(&all) {
            assert!(**product == aws_lc(pair));
        }
    }
}

#[test]
fn any_number_is_multiplied() {
    let Some(multiplier) = processor!() else {
        return;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let all: Vec<_> = (0..LANES * GROUPS + 9)
        .map(|_| factors(random(&mut rng), random(&mut rng)))
        .collect();
    let expected: Vec<_> = all.iter().map(aws_lc).collect();
    for n in 0..=all.len() {
        let products = multiplier.multiply(&all[..n]);
        assert!(
            products
                .iter()
                .map(|product| **product)
                .eq(expected[..n].iter().copied())
        );
    }
}
