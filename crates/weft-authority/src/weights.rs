//! The `bandwidth-weights` of a consensus (dir-spec 3.8.3, in the arithmetic of C tor's
//! `networkstatus_compute_bw_weights_v10`).

use std::fmt;

/// What weights are parts of, where there is no `bwweightscale` parameter.
pub(super) const SCALE: i64 = 10_000;
/// What a bandwidth counts at most, so that no sum or product below overflows.
const LARGEST: u64 = 1 << 40;

/// Bandwidth in a consensus, by what the relays that have it may be used for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    /// Of guards that are not exits.
    guard: i64,
    /// Of relays that are neither.
    middle: i64,
    /// Of exits that are not guards.
    exit: i64,
    /// Of relays that are both.
    both: i64,
}

impl Default for Totals {
    /// C tor starts at one for each, so that nothing is divided by zero.
    fn default() -> Self {
        Self {
            guard: 1,
            middle: 1,
            exit: 1,
            both: 1,
        }
    }
}

impl Totals {
    /// Counts a relay of this bandwidth.
    pub(super) fn add(&mut self, guard: bool, exit: bool, bandwidth: u64) {
        let total = match (guard, exit) {
            (true, true) => &mut self.both,
            (true, false) => &mut self.guard,
            (false, true) => &mut self.exit,
            (false, false) => &mut self.middle,
        };
        let bandwidth = i64::try_from(bandwidth.min(LARGEST)).unwrap_or(0);
        *total = total.saturating_add(bandwidth).min(1 << 44);
    }

    /// The weights, unless they cannot be balanced.
    pub(super) fn weights(self, scale: i64) -> Option<Weights> {
        let Totals {
            guard: g,
            middle: m,
            exit: e,
            both: d,
        } = self;
        let total = g + m + e + d;
        let checked = |weights: Weights| weights.check(self, scale).map(|()| weights);
        let base = Weights {
            scale,
            ..Weights::default()
        };
        let (exits_scarce, guards_scarce) = (3 * e < total, 3 * g < total);
        if !exits_scarce && !guards_scarce {
            // Case 1: neither is scarce; relays that are both are split in three.
            let (wee, wmg) = (
                scale * (e + g + m) / (3 * e),
                scale * (2 * g - e - m) / (3 * g),
            );
            return checked(Weights {
                wgd: scale / 3,
                wed: scale / 3,
                wmd: scale / 3,
                wee,
                wme: scale - wee,
                wmg,
                wgg: scale - wmg,
                ..base
            })
            .ok();
        }
        if exits_scarce && guards_scarce {
            return self.both_scarce(base);
        }
        let scarcer = e.min(g);
        if 3 * (scarcer + d) < total {
            // Case 3a: one is scarce, and all that are both do not make up for it.
            return Some(if g < e {
                let wme = if e < m { 0 } else { scale * (e - m) / (2 * e) };
                Weights {
                    wgg: scale,
                    wgd: scale,
                    wme,
                    wee: scale - wme,
                    ..base
                }
            } else {
                let wmg = if g < m { 0 } else { scale * (g - m) / (2 * g) };
                Weights {
                    wee: scale,
                    wed: scale,
                    wmg,
                    wgg: scale - wmg,
                    ..base
                }
            });
        }
        // Case 3b: those that are both make up for the scarce one.
        let weights = if g < e {
            let (wgd, wee) = (
                scale * (d - 2 * g + e + m) / (3 * d),
                scale * (e + m) / (2 * e),
            );
            Weights {
                wgg: scale,
                wgd,
                wee,
                wme: scale - wee,
                wmd: (scale - wgd) / 2,
                wed: (scale - wgd) / 2,
                ..base
            }
        } else {
            let (wed, wgg) = (
                scale * (d - 2 * e + g + m) / (3 * d),
                scale * (g + m) / (2 * g),
            );
            Weights {
                wee: scale,
                wed,
                wgg,
                wmg: scale - wgg,
                wmd: (scale - wed) / 2,
                wgd: (scale - wed) / 2,
                ..base
            }
        };
        checked(weights).ok()
    }

    /// Case 2: guards and exits are both scarce.
    fn both_scarce(self, base: Weights) -> Option<Weights> {
        let Totals {
            guard: g,
            middle: m,
            exit: e,
            both: d,
        } = self;
        let scale = base.scale;
        let full = Weights {
            wgg: scale,
            wee: scale,
            ..base
        };
        if e.min(g) + d < e.max(g) {
            // 2a: those that are both all help the scarcer.
            return Some(if e < g {
                Weights { wed: scale, ..full }
            } else {
                Weights { wgd: scale, ..full }
            });
        }
        let wed = scale * (d - 2 * e + 4 * g - 2 * m) / (3 * d);
        let first = Weights {
            wee: scale * (e - g + m) / e,
            wed,
            wme: scale * (g - m) / e,
            wmd: (scale - wed) / 2,
            wgd: (scale - wed) / 2,
            ..full
        };
        if first.check(self, scale).is_ok() {
            return Some(first);
        }
        let wed = scale * (d - 2 * e + g + m) / (3 * d);
        let wmd = (scale * (d - 2 * m + g + e) / (3 * d)).max(0);
        let second = Weights {
            wed,
            wmd,
            wgd: scale - wed - wmd,
            ..full
        };
        match second.check(self, scale) {
            Ok(()) | Err(Unbalanced::Middle) => Some(second),
            Err(_) => None,
        }
    }
}

/// What is wrong with weights.
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

/// How much relays of each kind (last letter) count in each position (middle letter).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weights {
    scale: i64,
    wgg: i64,
    wgd: i64,
    wmg: i64,
    wme: i64,
    wmd: i64,
    wee: i64,
    wed: i64,
}

impl Weights {
    /// Whether positions are loaded alike (C tor `networkstatus_check_weights`).
    fn check(&self, totals: Totals, scale: i64) -> Result<(), Unbalanced> {
        // Rounding may take a part in a thousand of the scale (C tor: 10 of 10000).
        let margin = scale / 1000;
        let sums = [
            self.wed + self.wmd + self.wgd,
            self.wmg + self.wgg,
            self.wme + self.wee,
        ];
        if sums.iter().any(|sum| (sum - scale).abs() > margin) {
            return Err(Unbalanced::Sum);
        }
        let parts = [
            self.wgg, self.wgd, self.wmg, self.wme, self.wmd, self.wee, self.wed,
        ];
        if parts.iter().any(|part| !(0..=scale).contains(part)) {
            return Err(Unbalanced::Range);
        }
        let Totals {
            guard: g,
            middle: m,
            exit: e,
            both: d,
        } = totals;
        let total = i128::from(g + m + e + d);
        let load = |own: i64, part: i64, both: i64| {
            i128::from(own) * i128::from(part) + i128::from(d) * i128::from(both)
        };
        let guards = load(g, self.wgg, self.wgd);
        let exits = load(e, self.wee, self.wed);
        let middles = load(m, scale, self.wmd)
            + i128::from(e) * i128::from(self.wme)
            + i128::from(g) * i128::from(self.wmg);
        let far = |a: i128, b: i128| (a - b).abs() > (total * i128::from(margin)) / 3;
        if far(guards, exits) {
            return Err(Unbalanced::Ends);
        }
        if far(guards, middles) {
            return Err(Unbalanced::Middle);
        }
        Ok(())
    }
}

impl fmt::Display for Weights {
    /// The arguments of `bandwidth-weights`, sorted, with C tor's choices for those that the
    /// balance leaves open.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Weights {
            scale,
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

    fn totals(guard: u64, middle: u64, exit: u64, both: u64) -> Totals {
        let mut totals = Totals::default();
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

    #[test]
    fn where_nothing_is_scarce_no_position_is_loaded_more_than_another() {
        let text = totals(1000, 1000, 1000, 0)
            .weights(SCALE)
            .unwrap()
            .to_string();
        assert!(
            text.contains("Wgg=10000") || text.contains("Wgg=9999"),
            "{text}"
        );
        assert!(text.starts_with("Wbd=3333 "), "{text}");
    }

    #[test]
    fn scarce_exits_are_kept_for_the_last_hop() {
        let text = totals(5000, 4000, 100, 50)
            .weights(SCALE)
            .unwrap()
            .to_string();
        assert!(text.contains("Wed=10000 Wee=10000"), "{text}");
        assert!(text.contains("Wgd=0"), "{text}");
    }

    #[test]
    fn scarce_guards_are_kept_for_the_first_hop() {
        let text = totals(100, 4000, 5000, 50)
            .weights(SCALE)
            .unwrap()
            .to_string();
        assert!(text.contains("Wgd=10000 Wgg=10000"), "{text}");
    }

    #[test]
    fn a_network_of_exits_that_are_guards_splits_them() {
        let text = totals(0, 0, 0, 900).weights(SCALE).unwrap().to_string();
        assert!(
            text.contains("Wed=333") && text.contains("Wgd=333"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn weights_are_never_outside_their_scale(
            guard in any::<u64>(), middle in any::<u64>(), exit in any::<u64>(), both in any::<u64>()
        ) {
            if let Some(weights) = totals(guard, middle, exit, both).weights(SCALE) {
                for word in weights.to_string().split(' ') {
                    let value: i64 = word.split_once('=').unwrap().1.parse().unwrap();
                    prop_assert!((-1..=SCALE).contains(&value), "{weights}");
                }
            }
        }
    }
}
