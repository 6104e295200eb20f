//! The `bandwidth-weights` of a consensus (dir-spec 3.8.3, in the arithmetic of C tor's
//! `networkstatus_compute_bw_weights_v10`).

use std::fmt;

/// `bwweightscale` where a consensus has no such parameter.
pub const WEIGHT_SCALE: u32 = 10_000;
/// The first consensus method that begins all sums at 1.
const METHOD_OF_SUMS_FROM_ONE: u32 = 26;

/// Rounding error that a whole may have, on any scale (C tor).
const MARGIN: i128 = 10;

/// Bandwidth in a consensus, in its units, by the possible uses of its relays.
///
/// No computation overflows: a sum is at most `u64::MAX`, a scale is 32 bits, and `i128` holds their products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthTotals {
    /// Of guards that are not exits.
    guard: u64,
    /// Of relays that are neither.
    middle: u64,
    /// Of exits that are not guards.
    exit: u64,
    /// Of relays that are both.
    both: u64,
}

/// The totals as signed numbers, which can be subtracted.
#[derive(Clone, Copy, Debug)]
struct Sums {
    g: i128,
    m: i128,
    e: i128,
    d: i128,
}

impl BandwidthTotals {
    /// Totals of no relay for a document of this consensus method: 1 each from method 26 on, so that nothing is divided
    /// by zero, 0 each before.
    pub fn of_method(method: u32) -> Self {
        let none = u64::from(method >= METHOD_OF_SUMS_FROM_ONE);
        Self {
            guard: none,
            middle: none,
            exit: none,
            both: none,
        }
    }

    /// Counts a relay of this bandwidth. A `BadExit` does not count as an exit.
    pub fn add(&mut self, guard: bool, exit: bool, bandwidth: u64) {
        let total = match (guard, exit) {
            (true, true) => &mut self.both,
            (true, false) => &mut self.guard,
            (false, true) => &mut self.exit,
            (false, false) => &mut self.middle,
        };
        *total = total.saturating_add(bandwidth);
    }

    /// The weights, as parts of `scale` (`bwweightscale`). `None`: a class that must be divided by has no bandwidth.
    pub fn weights(&self, scale: u32) -> Option<BandwidthWeights> {
        let sums = Sums {
            g: self.guard.into(),
            m: self.middle.into(),
            e: self.exit.into(),
            d: self.both.into(),
        };
        let w = i128::from(scale);
        let (parts, is_balanced) = sums.weights(w)?;
        let part = |part: i128| u32::try_from(part.clamp(0, w)).unwrap_or(scale);
        Some(BandwidthWeights {
            scale,
            is_balanced,
            wgg: part(parts.wgg),
            wgd: part(parts.wgd),
            wmg: part(parts.wmg),
            wme: part(parts.wme),
            wmd: part(parts.wmd),
            wee: part(parts.wee),
            wed: part(parts.wed),
        })
    }
}

impl Sums {
    /// The weights of scale `w`, and whether they are balanced.
    fn weights(self, w: i128) -> Option<(Parts, bool)> {
        let Sums { g, m, e, d } = self;
        let total = g + m + e + d;
        let checked = |parts: Parts| (parts, parts.check(self, w).is_ok());
        let (exits_scarce, guards_scarce) = (3 * e < total, 3 * g < total);
        if !exits_scarce && !guards_scarce {
            // Case 1: neither is scarce; relays that are both are split in three.
            let wee = (w * (e + g + m)).checked_div(3 * e)?;
            let wmg = (w * (2 * g - e - m)).checked_div(3 * g)?;
            return Some(checked(Parts {
                wgd: w / 3,
                wed: w / 3,
                wmd: w / 3,
                wee,
                wme: w - wee,
                wmg,
                wgg: w - wmg,
            }));
        }
        if exits_scarce && guards_scarce {
            return self.both_scarce(w);
        }
        let scarcer = e.min(g);
        if 3 * (scarcer + d) < total {
            // Case 3a: one is scarce, and all that are both do not make up for it.
            let parts = if g < e {
                let wme = match e < m {
                    true => 0,
                    false => (w * (e - m)).checked_div(2 * e)?,
                };
                Parts {
                    wgg: w,
                    wgd: w,
                    wme,
                    wee: w - wme,
                    ..Parts::default()
                }
            } else {
                let wmg = match g < m {
                    true => 0,
                    false => (w * (g - m)).checked_div(2 * g)?,
                };
                Parts {
                    wee: w,
                    wed: w,
                    wmg,
                    wgg: w - wmg,
                    ..Parts::default()
                }
            };
            return Some((parts, true));
        }
        // Case 3b: those that are both make up for the scarce one.
        let parts = if g < e {
            let wgd = (w * (d - 2 * g + e + m)).checked_div(3 * d)?;
            let wee = (w * (e + m)).checked_div(2 * e)?;
            Parts {
                wgg: w,
                wgd,
                wmg: 0,
                wee,
                wme: w - wee,
                wmd: (w - wgd) / 2,
                wed: (w - wgd) / 2,
            }
        } else {
            let wed = (w * (d - 2 * e + g + m)).checked_div(3 * d)?;
            let wgg = (w * (g + m)).checked_div(2 * g)?;
            Parts {
                wee: w,
                wed,
                wme: 0,
                wgg,
                wmg: w - wgg,
                wmd: (w - wed) / 2,
                wgd: (w - wed) / 2,
            }
        };
        Some(checked(parts))
    }

    /// Case 2: guards and exits are both scarce.
    fn both_scarce(self, w: i128) -> Option<(Parts, bool)> {
        let Sums { g, m, e, d } = self;
        let full = Parts {
            wgg: w,
            wee: w,
            ..Parts::default()
        };
        if e.min(g) + d < e.max(g) {
            // 2a: those that are both all help the scarcer.
            let parts = match e < g {
                true => Parts { wed: w, ..full },
                false => Parts { wgd: w, ..full },
            };
            return Some((parts, true));
        }
        let first = || {
            let wed = (w * (d - 2 * e + 4 * g - 2 * m)).checked_div(3 * d)?;
            Some(Parts {
                wee: (w * (e - g + m)).checked_div(e)?,
                wed,
                wme: (w * (g - m)).checked_div(e)?,
                wmd: (w - wed) / 2,
                wgd: (w - wed) / 2,
                ..full
            })
        };
        if let Some(first) = first().filter(|first| first.check(self, w).is_ok()) {
            return Some((first, true));
        }
        let wed = (w * (d - 2 * e + g + m)).checked_div(3 * d)?;
        let wmd = (w * (d - 2 * m + g + e)).checked_div(3 * d)?.max(0);
        let second = Parts {
            wed,
            wmd,
            wgd: w - wed - wmd,
            ..full
        };
        let is_balanced = matches!(second.check(self, w), Ok(()) | Err(Unbalanced::Middle));
        Some((second, is_balanced))
    }
}

/// Why weights are not balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unbalanced {
    /// One is below zero or above the scale.
    Range,
    /// The parts of one kind of relay do not make a whole.
    Sum,
    /// Guards and exits would not be loaded alike.
    Ends,
    /// Guards and middles would not be loaded alike.
    Middle,
}

/// The weights that the balance decides, before they are cut to the scale.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    wgg: i128,
    wgd: i128,
    wmg: i128,
    wme: i128,
    wmd: i128,
    wee: i128,
    wed: i128,
}

impl Parts {
    /// Checks that positions are loaded equally (C tor `networkstatus_check_weights`).
    fn check(&self, sums: Sums, w: i128) -> Result<(), Unbalanced> {
        let wholes = [
            self.wed + self.wmd + self.wgd,
            self.wmg + self.wgg,
            self.wme + self.wee,
        ];
        if wholes.iter().any(|whole| (whole - w).abs() > MARGIN) {
            return Err(Unbalanced::Sum);
        }
        let parts = [
            self.wgg, self.wgd, self.wmg, self.wme, self.wmd, self.wee, self.wed,
        ];
        // From here on no product overflows.
        if parts.iter().any(|part| !(0..=w).contains(part)) {
            return Err(Unbalanced::Range);
        }
        let Sums { g, m, e, d } = sums;
        let guards = g * self.wgg + d * self.wgd;
        let exits = e * self.wee + d * self.wed;
        let middles = m * w + d * self.wmd + e * self.wme + g * self.wmg;
        let far = |a: i128, b: i128| (a - b).abs() > ((g + m + e + d) * MARGIN) / 3;
        if far(guards, exits) {
            return Err(Unbalanced::Ends);
        }
        if far(guards, middles) {
            return Err(Unbalanced::Middle);
        }
        Ok(())
    }
}

/// Weights of relays of each kind (last letter) in each position (middle letter), as parts of the
/// scale: 0 to `scale`. The weights without a field follow from these: `Wmm` is the scale, `Wgm` is
/// `Wgg`, `Wem` is `Wee`, `Weg` is `Wed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // dir-spec's names
pub struct BandwidthWeights {
    pub scale: u32,
    /// True if all positions are loaded equally. Weights that are not balanced are cut to the
    /// scale; authorities publish none then.
    pub is_balanced: bool,
    pub wgg: u32,
    pub wgd: u32,
    pub wmg: u32,
    pub wme: u32,
    pub wmd: u32,
    pub wee: u32,
    pub wed: u32,
}

impl fmt::Display for BandwidthWeights {
    /// The arguments of `bandwidth-weights`, sorted, with C tor's choices for those that the
    /// balance leaves open.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BandwidthWeights {
            scale,
            is_balanced: _,
            wgg,
            wgd,
            wmg,
            wme,
            wmd,
            wee,
            wed,
        } = self;
        write!(
            f,
            "Wbd={wmd} Wbe={wme} Wbg={wmg} Wbm={scale} Wdb={scale} Web={scale} Wed={wed} \
             Wee={wee} Weg={wed} Wem={wee} Wgb={scale} Wgd={wgd} Wgg={wgg} Wgm={wgg} Wmb={scale} \
             Wmd={wmd} Wme={wme} Wmg={wmg} Wmm={scale}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn totals(method: u32, guard: u64, middle: u64, exit: u64, both: u64) -> BandwidthTotals {
        let mut totals = BandwidthTotals::of_method(method);
        for (is_guard, is_exit, bandwidth) in [
            (true, false, guard),
            (false, false, middle),
            (false, true, exit),
            (true, true, both),
        ] {
            totals.add(is_guard, is_exit, bandwidth);
        }
        totals
    }

    fn balanced(guard: u64, middle: u64, exit: u64, both: u64) -> String {
        let weights = totals(33, guard, middle, exit, both).weights(WEIGHT_SCALE);
        let weights = weights.expect("no sum is 0");
        assert!(weights.is_balanced, "{weights}");
        weights.to_string()
    }

    #[test]
    fn where_nothing_is_scarce_no_position_is_loaded_more_than_another() {
        let text = balanced(1000, 1000, 1000, 0);
        assert!(
            text.contains("Wgg=10000") || text.contains("Wgg=9999"),
            "{text}"
        );
        assert!(text.starts_with("Wbd=3333 "), "{text}");
    }

    #[test]
    fn scarce_exits_are_kept_for_the_last_hop() {
        let text = balanced(5000, 4000, 100, 50);
        assert!(text.contains("Wed=10000 Wee=10000"), "{text}");
        assert!(text.contains("Wgd=0"), "{text}");
    }

    #[test]
    fn scarce_guards_are_kept_for_the_first_hop() {
        let text = balanced(100, 4000, 5000, 50);
        assert!(text.contains("Wgd=10000 Wgg=10000"), "{text}");
    }

    #[test]
    fn a_network_of_exits_that_are_guards_splits_them() {
        let text = balanced(0, 0, 0, 900);
        assert!(
            text.contains("Wed=333") && text.contains("Wgd=333"),
            "{text}"
        );
    }

    /// A third is not rounded: of 10, 3 are less.
    #[test]
    fn what_has_a_little_less_than_a_third_is_scarce() {
        let weights = totals(25, 3, 3, 4, 0).weights(WEIGHT_SCALE).unwrap();
        assert_eq!((weights.wgg, weights.wgd), (10_000, 10_000));
        assert_eq!((weights.wme, weights.wee), (1250, 8750));
    }

    #[test]
    fn a_few_exits_and_guards_among_many_middles_cannot_be_balanced() {
        let weights = totals(33, 10, 1000, 10, 50).weights(WEIGHT_SCALE).unwrap();
        assert!(!weights.is_balanced);
        assert_eq!((weights.wed, weights.wmd, weights.wgd), (10_000, 0, 0));
    }

    #[test]
    fn a_small_scale_is_balanced_within_its_rounding() {
        let weights = totals(33, 1000, 1000, 1000, 500).weights(100).unwrap();
        assert!(weights.is_balanced, "{weights}");
        assert_eq!((weights.wgd, weights.wmd, weights.wed), (33, 33, 33));
    }

    #[test]
    fn sums_begin_at_one_from_method_26_on() {
        assert_eq!(totals(25, 0, 0, 0, 0).weights(WEIGHT_SCALE), None);
        assert!(totals(26, 0, 0, 0, 0).weights(WEIGHT_SCALE).is_some());
    }

    #[test]
    fn weights_are_the_same_parts_of_the_largest_scale() {
        let huge = i32::MAX as u32;
        for (g, m, e, d) in [
            (1 << 43, 1 << 43, 1 << 43, 1 << 20),
            (u64::MAX, u64::MAX, u64::MAX, u64::MAX),
            (u64::MAX, 1, u64::MAX, 1),
            (1, u64::MAX, 1, u64::MAX),
            (0, u64::MAX, u64::MAX, 0),
        ] {
            let totals = totals(33, g, m, e, d);
            let small = totals.weights(WEIGHT_SCALE).unwrap();
            let large = totals.weights(huge).unwrap();
            let parts = |of: BandwidthWeights| {
                [of.wgg, of.wgd, of.wmg, of.wme, of.wmd, of.wee, of.wed]
                    .map(|part| f64::from(part) / f64::from(of.scale))
            };
            for (one, other) in parts(small).iter().zip(parts(large)) {
                assert!((one - other).abs() < 0.0005, "{small}, {large}");
            }
        }
    }

    proptest! {
        #[test]
        fn weights_are_never_outside_their_scale(
            method in 25_u32..27, scale in 1..=i32::MAX as u32,
            guard in any::<u64>(), middle in any::<u64>(), exit in any::<u64>(), both in any::<u64>()
        ) {
            if let Some(weights) = totals(method, guard, middle, exit, both).weights(scale) {
                for word in weights.to_string().split(' ') {
                    let value: u32 = word.split_once('=').unwrap().1.parse().unwrap();
                    prop_assert!(value <= scale, "{weights}");
                }
            }
        }
    }
}
