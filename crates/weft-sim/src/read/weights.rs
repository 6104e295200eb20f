//! `bandwidth-weights`: read, or computed as authorities do (dir-spec 3.8.3).

use weft_policy::BandwidthTotals;

use super::number::number;
use crate::network::{Flags, Relay, Weights};

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

/// Weights for a network whose document has none, by the rules of this consensus method, 10 or
/// later. `None` where a class that must be divided by has no bandwidth. Where they cannot be
/// balanced, for example with a few exits among many middles, each is clamped to 0 to 1.
///
/// A `BadExit` does not count as an exit, as for authorities.
pub fn computed_weights(relays: &[Relay], method: u32, scale: u32) -> Option<Weights> {
    let mut totals = BandwidthTotals::of_method(method);
    for relay in relays {
        let exit = relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
        totals.add(relay.flags.has(Flags::GUARD), exit, relay.bandwidth);
    }
    let weights = totals.weights(scale)?;
    let part = |weight: u32| f64::from(weight) / f64::from(scale);
    // "Handle bridges and strange exit policies: Wgm=Wgg, Wem=Wee, Weg=Wed."
    Some(Weights {
        guard: [part(weights.wgg), part(weights.wgg), 0.0, part(weights.wgd)],
        middle: [1.0, part(weights.wmg), part(weights.wme), part(weights.wmd)],
        exit: [
            part(weights.wee),
            part(weights.wed),
            part(weights.wee),
            part(weights.wed),
        ],
    })
}
