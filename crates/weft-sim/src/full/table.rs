//! Candidates for a position, drawn by weight, some of them refused.

use rand::{Rng, RngExt};

use crate::draw::Alias;

/// Draws that may be refused before all candidates are looked through.
const TRIES: u32 = 32;

/// Candidates for a position and their weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Candidates {
    relays: Box<[u32]>,
    weights: Box<[f64]>,
}

/// Candidates, ready to be drawn.
#[derive(Clone, Debug)]
pub(super) struct Table {
    candidates: Candidates,
    /// None where no weight is above zero: then each is as likely as the others, as in C tor
    /// (`choose_array_element_by_weight`).
    alias: Option<Alias>,
}

impl Candidates {
    pub(super) fn new(candidates: impl Iterator<Item = (u32, f64)>) -> Candidates {
        let (relays, weights): (Vec<u32>, Vec<f64>) = candidates.unzip();
        Candidates {
            relays: relays.into(),
            weights: weights.into(),
        }
    }

    pub(super) fn relays(&self) -> &[u32] {
        &self.relays
    }
}

impl Table {
    pub(super) fn new(candidates: Candidates) -> Table {
        let alias = Alias::new(&candidates.weights).ok();
        Table { candidates, alias }
    }

    pub(super) fn len(&self) -> usize {
        self.candidates.relays.len()
    }

    /// A relay that is not refused, each with the probability of its weight over the sum of these
    /// relays' weights. `None` if all are refused.
    ///
    /// C tor removes refused relays from the list and draws from the rest. Drawing again until a
    /// relay is not refused gives the same probabilities, and few are refused.
    #[inline]
    pub(super) fn draw(&self, rng: &mut impl Rng, refused: impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(alias) = &self.alias {
            for _ in 0..TRIES {
                let relay = self.candidates.relays.get(alias.draw(rng) as usize)?;
                if !refused(*relay) {
                    return Some(*relay);
                }
            }
        }
        self.search(rng, refused)
    }

    /// Draws like [`Table::draw`], at a cost proportional to the number of candidates.
    #[cold]
    fn search(&self, rng: &mut impl Rng, refused: impl Fn(u32) -> bool) -> Option<u32> {
        let Candidates { relays, weights } = &self.candidates;
        let allowed = || {
            let both = relays.iter().zip(weights);
            both.filter(|(relay, _)| !refused(**relay))
        };
        let (count, sum) = allowed().fold((0u32, 0.0), |(count, sum), (_, weight)| {
            (count + 1, sum + weight)
        });
        if count == 0 {
            return None;
        }
        if sum > 0.0 {
            let mut left = rng.random::<f64>() * sum;
            let mut last = None;
            for (relay, weight) in allowed().filter(|(_, weight)| **weight > 0.0) {
                last = Some(*relay);
                left -= weight;
                if left < 0.0 {
                    break;
                }
            }
            return last;
        }
        let place = rng.random_range(0..count);
        allowed().nth(place as usize).map(|(relay, _)| *relay)
    }
}
