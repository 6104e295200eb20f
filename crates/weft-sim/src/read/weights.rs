//! `bandwidth-weights`: read, or computed as authorities do (dir-spec 3.8.3).

use super::number::number;
use crate::network::{Flags, Relay, Weights};

/// `bwweightscale` where the consensus has no such parameter.
pub(super) const WEIGHT_SCALE: u32 = 10_000;

/// From the first consensus method that begins all sums at 1.
const METHOD_OF_SUMS_FROM_ONE: u32 = 26;

/// The words of a `bandwidth-weights` line.
pub(super) fn read<'a>(
    words: impl Iterator<Item = &'a str>,
    scale: u32,
) -> Result<Weights, String> {
    const NAMES: [&str; 11] = [
        "Wgm", "Wgg", "Wgd", "Wmm", "Wmg", "Wme", "Wmd", "Wem", "Weg", "Wee", "Wed",
    ];
    let mut values = [None; NAMES.len()];
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!("{word:?} is no weight"));
        };
        let Some(place) = NAMES.iter().position(|known| *known == name) else {
            continue;
        };
        let value: u32 = number(Some(value), name)?;
        if value > scale {
            return Err(format!("{word} is above the scale of {scale}"));
        }
        if let Some(place) = values.get_mut(place) {
            *place = Some(f64::from(value) / f64::from(scale));
        }
    }
    if let Some(missing) = NAMES.iter().zip(values).find(|(_, value)| value.is_none()) {
        return Err(format!("{} is missing", missing.0));
    }
    let [wgm, wgg, wgd, wmm, wmg, wme, wmd, wem, weg, wee, wed] =
        values.map(Option::unwrap_or_default);
    Ok(Weights {
        guard: [wgm, wgg, 0.0, wgd],
        middle: [wmm, wmg, wme, wmd],
        exit: [wem, weg, wee, wed],
    })
}

/// The bandwidth of relays by class.
#[derive(Clone, Copy, Debug)]
struct Sums {
    guard: i64,
    middle: i64,
    exit: i64,
    both: i64,
}

/// Weights for a network whose document has none, by the rules of consensus method 10 and later; sums
/// begin at 1 from method 26 on. `None` where a class that must be divided by has no bandwidth.
///
/// As for authorities, an exit that is a `BadExit` is none.
pub fn computed_weights(relays: &[Relay], method: u32, scale: u32) -> Option<Weights> {
    let begin = i64::from(method >= METHOD_OF_SUMS_FROM_ONE);
    let mut sums = Sums {
        guard: begin,
        middle: begin,
        exit: begin,
        both: begin,
    };
    for relay in relays {
        let exit = relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
        let sum = match (relay.flags.has(Flags::GUARD), exit) {
            (true, true) => &mut sums.both,
            (true, false) => &mut sums.guard,
            (false, true) => &mut sums.exit,
            (false, false) => &mut sums.middle,
        };
        *sum = sum.checked_add(i64::try_from(relay.bandwidth).ok()?)?;
    }
    sums.weights(scale.into())
}

/// Weights as integers of the scale, in dir-spec's names.
#[derive(Clone, Copy, Debug)]
struct Solution {
    wgg: i64,
    wgd: i64,
    wmg: i64,
    wme: i64,
    wmd: i64,
    wee: i64,
    wed: i64,
}

impl Solution {
    fn is_within(&self, scale: i64) -> bool {
        let Solution {
            wgg,
            wgd,
            wmg,
            wme,
            wmd,
            wee,
            wed,
        } = *self;
        [wgg, wgd, wmg, wme, wmd, wee, wed]
            .iter()
            .all(|weight| (0..=scale).contains(weight))
    }
}

impl Sums {
    fn weights(self, scale: i64) -> Option<Weights> {
        let solution = self.solution(scale)?;
        let part = |weight: i64| weight.clamp(0, scale) as f64 / scale as f64;
        let Solution {
            wgg,
            wgd,
            wmg,
            wme,
            wmd,
            wee,
            wed,
        } = solution;
        // "Handle bridges and strange exit policies: Wgm=Wgg, Wem=Wee, Weg=Wed."
        Some(Weights {
            guard: [part(wgg), part(wgg), 0.0, part(wgd)],
            middle: [1.0, part(wmg), part(wme), part(wmd)],
            exit: [part(wee), part(wed), part(wee), part(wed)],
        })
    }

    fn solution(self, w: i64) -> Option<Solution> {
        let (g, m, e, d) = (self.guard, self.middle, self.exit, self.both);
        let t = g.checked_add(m)?.checked_add(e)?.checked_add(d)?;
        let third = t / 3;
        if t == 0 {
            return None;
        }
        Some(match (e < third, g < third) {
            // Case 1: neither is scarce.
            (false, false) => {
                let wee = ratio(w, e + g + m, 3 * e)?;
                let wmg = ratio(w, 2 * g - e - m, 3 * g)?;
                Solution {
                    wgd: w / 3,
                    wed: w / 3,
                    wmd: w / 3,
                    wee,
                    wme: w - wee,
                    wmg,
                    wgg: w - wmg,
                }
            }
            (true, true) => self.both_scarce(w, third)?,
            (_, true) => self.guards_scarce(w, third)?,
            (true, _) => self.exits_scarce(w, third)?,
        })
    }

    /// Case 2.
    fn both_scarce(self, w: i64, third: i64) -> Option<Solution> {
        let (g, m, e, d) = (self.guard, self.middle, self.exit, self.both);
        let (rare, common) = (e.min(g), e.max(g));
        let whole = Solution {
            wgg: w,
            wee: w,
            wmg: 0,
            wme: 0,
            wmd: 0,
            wed: 0,
            wgd: 0,
        };
        if rare + d < common {
            return Some(match e < g {
                true => Solution { wed: w, ..whole },
                false => Solution { wgd: w, ..whole },
            });
        }
        let balanced = || {
            let wed = ratio(w, d - 2 * e + 4 * g - 2 * m, 3 * d)?;
            Some(Solution {
                wee: ratio(w, e - g + m, e)?,
                wed,
                wme: ratio(w, g - m, e)?,
                wmd: (w - wed) / 2,
                wgd: (w - wed) / 2,
                ..whole
            })
        };
        if m <= third
            && let Some(balanced) = balanced()
            && balanced.is_within(w)
        {
            return Some(balanced);
        }
        let wed = ratio(w, d - 2 * e + g + m, 3 * d)?;
        let wmd = match m > third {
            true => 0,
            false => ratio(w, d - 2 * m + g + e, 3 * d)?,
        };
        Some(Solution {
            wed,
            wmd,
            wgd: w - wed - wmd,
            ..whole
        })
    }

    /// Case 3, S = G.
    fn guards_scarce(self, w: i64, third: i64) -> Option<Solution> {
        let (g, m, e, d) = (self.guard, self.middle, self.exit, self.both);
        if g + d < third {
            let wme = match e < m {
                true => 0,
                false => ratio(w, e - m, 2 * e)?,
            };
            return Some(Solution {
                wgg: w,
                wgd: w,
                wmd: 0,
                wed: 0,
                wmg: 0,
                wme,
                wee: w - wme,
            });
        }
        let wgd = ratio(w, d - 2 * g + e + m, 3 * d)?;
        let wee = ratio(w, e + m, 2 * e)?;
        Some(Solution {
            wgg: w,
            wgd,
            wmg: 0,
            wee,
            wme: w - wee,
            wmd: (w - wgd) / 2,
            wed: (w - wgd) / 2,
        })
    }

    /// Case 3, S = E: as with S = G, guards and exits having changed places.
    fn exits_scarce(self, w: i64, third: i64) -> Option<Solution> {
        let exchanged = Self {
            guard: self.exit,
            exit: self.guard,
            ..self
        };
        let found = exchanged.guards_scarce(w, third)?;
        Some(Solution {
            wgg: found.wee,
            wee: found.wgg,
            wgd: found.wed,
            wed: found.wgd,
            wmg: found.wme,
            wme: found.wmg,
            wmd: found.wmd,
        })
    }
}

/// `w × part / whole` in integers, as authorities divide: towards zero.
fn ratio(w: i64, part: i64, whole: i64) -> Option<i64> {
    let quotient = (i128::from(w) * i128::from(part)).checked_div(i128::from(whole))?;
    i64::try_from(quotient).ok()
}
