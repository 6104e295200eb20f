//! Exact weighted draws in constant time: Walker's alias method, built as Vose does.

use rand::Rng;

/// Draws places of a list of weights, each with the probability of its weight over their sum.
#[derive(Clone, Debug)]
pub struct Alias {
    /// Of each place: how likely it is kept, as a fraction of 2³², and which one takes the rest.
    slots: Box<[(u32, u32)]>,
}

/// Weights that nothing can be drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no weight is above zero, one is negative or no number, or there are 2³² of them")]
pub struct NoWeights;

impl Alias {
    /// Prepares draws.
    ///
    /// # Errors
    ///
    /// [`NoWeights`].
    pub fn new(weights: &[f64]) -> Result<Alias, NoWeights> {
        let sum: f64 = weights.iter().sum();
        let is_sound = weights.iter().all(|weight| *weight >= 0.0) && sum.is_finite() && sum > 0.0;
        let count = u32::try_from(weights.len()).map_err(|_| NoWeights)?;
        if !is_sound {
            return Err(NoWeights);
        }
        let mean = sum / f64::from(count);
        let mut left: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut slots: Vec<(u32, u32)> = (0..count).map(|place| (u32::MAX, place)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..count).partition(|place| left.get(*place as usize).is_some_and(|part| *part < 1.0));
        while let (Some(poor), Some(rich)) = (small.pop(), large.last().copied()) {
            let part = left.get(poor as usize).copied().unwrap_or(0.0);
            if let Some(slot) = slots.get_mut(poor as usize) {
                *slot = ((part * 4_294_967_296.0) as u32, rich);
            }
            let Some(rest) = left.get_mut(rich as usize) else {
                break;
            };
            *rest -= 1.0 - part;
            if *rest < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        // Places that rounding leaves unassigned draw themselves, unless their weight is zero.
        let heaviest = (0..count).max_by(|a, b| {
            let weight = |place: &u32| weights.get(*place as usize).copied().unwrap_or(0.0);
            weight(a).total_cmp(&weight(b))
        });
        for poor in small {
            if weights.get(poor as usize) == Some(&0.0)
                && let (Some(slot), Some(heaviest)) = (slots.get_mut(poor as usize), heaviest)
            {
                *slot = (0, heaviest);
            }
        }
        Ok(Alias {
            slots: slots.into(),
        })
    }

    /// A place.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u32 {
        let random = rng.next_u64();
        // The upper half chooses a place (Lemire's multiplication), the lower half decides.
        let place = (((random >> 32) * self.slots.len() as u64) >> 32) as u32;
        let (keep, other) = self.slots.get(place as usize).copied().unwrap_or_default();
        // A slot that keeps all names itself as the other: no branch, which would often be mispredicted.
        std::hint::select_unpredictable((random as u32) < keep, place, other)
    }
}
