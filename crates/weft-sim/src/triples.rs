//! Circuits of three different relays, drawn as clients draw them, and how likely each relay is in one.
//!
//! The exit is drawn first, then a guard that is another relay, then a middle that is neither, each by
//! its weight at that position (path-spec 2.2). Families and subnets play no part here.

use rand::{Rng, RngExt as _};

use crate::draw::Alias;
use crate::network::{Flags, Network, Position, Relay};

/// The relays that may have a position.
#[derive(Clone, Debug)]
struct Choice {
    /// Places in the network.
    relays: Vec<u32>,
    /// Probability of drawing each relay, in the same order; sums to 1.
    chances: Vec<f64>,
    alias: Alias,
}

/// Draws circuits of a network.
#[derive(Clone, Debug)]
pub struct Triples {
    guard: Choice,
    middle: Choice,
    exit: Choice,
    relays: usize,
}

/// A circuit: places in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triple {
    /// First hop.
    pub guard: u32,
    /// Second hop.
    pub middle: u32,
    /// Third hop.
    pub exit: u32,
}

impl Triple {
    /// Its relays.
    pub fn relays(self) -> [u32; 3] {
        [self.guard, self.middle, self.exit]
    }
}

/// Why a network has no circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCircuits {
    /// No relay may take a position.
    #[error(
        "the network has no relay that can be {} of a circuit: flags and weights leave none",
        match .0 {
            Position::Guard => "the guard",
            Position::Middle => "the middle",
            Position::Exit => "the exit",
        }
    )]
    NoRelay(Position),
    /// There may be too few different relays.
    #[error("the network has too few relays for circuits of three different ones")]
    TooFew,
}

impl Triples {
    /// Prepares draws. Relays must be running and valid, and `Fast` unless `any_speed`: clients use no
    /// others for general circuits (path-spec 2.2). Guards have the Guard flag; exits have the Exit
    /// flag and no BadExit.
    ///
    /// # Errors
    ///
    /// [`NoCircuits`].
    pub fn new(network: &Network, any_speed: bool) -> Result<Triples, NoCircuits> {
        let wanted = match any_speed {
            true => Flags::RUNNING.with(Flags::VALID),
            false => Flags::RUNNING.with(Flags::VALID).with(Flags::FAST),
        };
        let choose = |position: Position| {
            let may = |relay: &&Relay| {
                relay.flags.has(wanted)
                    && match position {
                        Position::Guard => relay.flags.has(Flags::GUARD),
                        Position::Middle => true,
                        Position::Exit => {
                            relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT)
                        }
                    }
            };
            let weigh =
                |relay: &Relay| relay.bandwidth as f64 * network.weights.of(position, relay.flags);
            Choice::new(
                (0..)
                    .zip(&network.relays)
                    .filter(|(_, relay)| may(relay))
                    .map(|(place, relay)| (place, weigh(relay))),
            )
            .ok_or(NoCircuits::NoRelay(position))
        };
        let triples = Triples {
            guard: choose(Position::Guard)?,
            middle: choose(Position::Middle)?,
            exit: choose(Position::Exit)?,
            relays: network.relays.len(),
        };
        match triples.is_always_possible() {
            true => Ok(triples),
            false => Err(NoCircuits::TooFew),
        }
    }

    /// Returns true if for each exit and guard that may be drawn a relay remains for the middle.
    fn is_always_possible(&self) -> bool {
        let exit = |relay: &u32| self.exit.relays.contains(relay);
        let guard = |relay: &u32| self.guard.relays.contains(relay);
        let guards = match &*self.guard.relays {
            [only] => !exit(only),
            _ => true,
        };
        let middles = match &*self.middle.relays {
            [only] => !exit(only) && !guard(only),
            [one, other] => !(exit(one) && guard(other) || guard(one) && exit(other)),
            _ => true,
        };
        guards && middles
    }

    /// A circuit.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> Triple {
        let exit = self.exit.draw(rng);
        let guard = self.guard.draw_other(rng, [exit, exit]);
        Triple {
            guard,
            middle: self.middle.draw_other(rng, [exit, guard]),
            exit,
        }
    }

    /// A circuit through one of these guards. The guard is not the exit, if there is another.
    pub fn draw_through(&self, guards: &[u32], rng: &mut impl Rng) -> Option<Triple> {
        let exit = self.exit.draw(rng);
        let free = || guards.iter().filter(|guard| **guard != exit);
        let count = free().count();
        if count == 0 {
            return None;
        }
        let guard = *free().nth(rng.random_range(0..count))?;
        Some(Triple {
            guard,
            middle: self.middle.draw_other(rng, [exit, guard]),
            exit,
        })
    }

    /// So many different guards, in the order in which they are drawn, or all if there are fewer.
    pub fn draw_guards(&self, count: usize, rng: &mut impl Rng) -> Vec<u32> {
        let count = count.min(self.guard.relays.len());
        let mut guards: Vec<u32> = Vec::with_capacity(count);
        while guards.len() < count {
            let Some(next) = self.guard.draw_but(rng, &guards) else {
                break;
            };
            guards.push(next);
        }
        guards
    }

    /// Probability that each relay is in a circuit, at any position, by place in the network.
    /// Exact: the sum over all pairs of exit and guard.
    pub fn involvement(&self) -> Vec<f64> {
        let middle = self.middle.by_relay(self.relays);
        let chance = |relay: u32| middle.get(relay as usize).copied().unwrap_or(0.0);
        let guard = self.guard.by_relay(self.relays);
        // Probability that each relay is exit or guard, and the normalized weight of the pairs that
        // contain it.
        let mut ends = vec![0.0; self.relays];
        let mut taken = vec![0.0; self.relays];
        let mut whole = 0.0;
        for (exit, of_exit) in self.exit.relays.iter().zip(&self.exit.chances) {
            let others = 1.0 - guard.get(*exit as usize).copied().unwrap_or(0.0);
            let mut with_exit = 0.0;
            for (guard, of_guard) in self.guard.relays.iter().zip(&self.guard.chances) {
                if guard == exit {
                    continue;
                }
                let pair = of_exit * of_guard / others;
                let left = pair / (1.0 - chance(*exit) - chance(*guard));
                add(&mut ends, *guard, pair);
                add(&mut taken, *guard, left);
                with_exit += left;
            }
            add(&mut ends, *exit, *of_exit);
            add(&mut taken, *exit, with_exit);
            whole += with_exit;
        }
        let rest = taken.iter().zip(&middle);
        ends.iter()
            .zip(rest)
            .map(|(end, (taken, chance))| (end + chance * (whole - taken)).clamp(0.0, 1.0))
            .collect()
    }

    /// Probability that guard and exit of a circuit are both among the marked relays. Exact.
    pub fn compromised(&self, is_marked: &[bool]) -> f64 {
        let marked = |relay: &u32| is_marked.get(*relay as usize) == Some(&true);
        let guard = self.guard.by_relay(self.relays);
        let of_guard = |relay: &u32| guard.get(*relay as usize).copied().unwrap_or(0.0);
        let all: f64 = self
            .guard
            .relays
            .iter()
            .filter(|one| marked(one))
            .map(of_guard)
            .sum();
        let exits = self.exit.relays.iter().zip(&self.exit.chances);
        exits
            .filter(|(exit, _)| marked(exit))
            .map(|(exit, chance)| {
                let own = of_guard(exit);
                chance * (all - own) / (1.0 - own)
            })
            .sum()
    }
}

fn add(sums: &mut [f64], relay: u32, part: f64) {
    if let Some(sum) = sums.get_mut(relay as usize) {
        *sum += part;
    }
}

impl Choice {
    /// Of relays with weights. Whose weight is nothing is left out.
    fn new(weighed: impl Iterator<Item = (u32, f64)>) -> Option<Choice> {
        let (relays, weights): (Vec<u32>, Vec<f64>) =
            weighed.filter(|(_, weight)| *weight > 0.0).unzip();
        let alias = Alias::new(&weights).ok()?;
        let sum: f64 = weights.iter().sum();
        Some(Choice {
            relays,
            chances: weights.iter().map(|weight| weight / sum).collect(),
            alias,
        })
    }

    #[inline]
    fn draw(&self, rng: &mut impl Rng) -> u32 {
        let place = self.alias.draw(rng);
        self.relays.get(place as usize).copied().unwrap_or(0)
    }

    /// One that is neither of these. Draws again, which is exact; after many draws in vain, which take
    /// a relay of nearly all weight, it draws among the others.
    #[inline]
    fn draw_other(&self, rng: &mut impl Rng, taken: [u32; 2]) -> u32 {
        for _ in 0..32 {
            let relay = self.draw(rng);
            if !taken.contains(&relay) {
                return relay;
            }
        }
        // `Triples::is_always_possible` has seen that there is one.
        self.draw_slowly(rng, &taken).unwrap_or(0)
    }

    /// A relay that is not among these, if there is another.
    fn draw_but(&self, rng: &mut impl Rng, taken: &[u32]) -> Option<u32> {
        for _ in 0..32 {
            let relay = self.draw(rng);
            if !taken.contains(&relay) {
                return Some(relay);
            }
        }
        self.draw_slowly(rng, taken)
    }

    #[cold]
    fn draw_slowly(&self, rng: &mut impl Rng, taken: &[u32]) -> Option<u32> {
        let free = || {
            let all = self.relays.iter().zip(&self.chances);
            all.filter(|(relay, _)| !taken.contains(relay))
        };
        let sum: f64 = free().map(|(_, chance)| chance).sum();
        let mut left = rng.random::<f64>() * sum;
        for (relay, chance) in free() {
            left -= chance;
            if left < 0.0 {
                return Some(*relay);
            }
        }
        free().next_back().map(|(relay, _)| *relay)
    }

    fn by_relay(&self, relays: usize) -> Vec<f64> {
        let mut all = vec![0.0; relays];
        for (relay, chance) in self.relays.iter().zip(&self.chances) {
            add(&mut all, *relay, *chance);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;
    use crate::testing::{EXIT, GUARD, MIDDLE, network};

    #[test]
    fn draws_are_as_likely_as_they_are_computed() {
        let both = GUARD.with(EXIT);
        let network = network(&[
            (GUARD, 500),
            (GUARD, 100),
            (both, 300),
            (EXIT, 200),
            (EXIT, 50),
            (MIDDLE, 80),
            (MIDDLE, 10),
        ]);
        let triples = Triples::new(&network, false).expect("circuits");
        let is_marked = [true, false, true, true, false, false, true];
        let (mut seen, mut compromised) = ([0u32; 7], 0u32);
        let (mut rng, rounds) = (generator(1, 0, 0), 200_000);
        for _ in 0..rounds {
            let triple = triples.draw(&mut rng);
            let [guard, middle, exit] = triple.relays();
            assert!(guard != middle && middle != exit && exit != guard);
            for relay in triple.relays() {
                seen[relay as usize] += 1;
            }
            compromised += u32::from(is_marked[guard as usize] && is_marked[exit as usize]);
        }
        // Four standard errors.
        let is_near = |count: u32, chance: f64| {
            let n = f64::from(rounds);
            let error = (chance * (1.0 - chance) / n).sqrt();
            (f64::from(count) / n - chance).abs() <= 4.0 * error + 1e-12
        };
        let chances = triples.involvement();
        assert!((chances.iter().sum::<f64>() - 3.0).abs() < 1e-9);
        for (count, chance) in seen.iter().zip(&chances) {
            assert!(is_near(*count, *chance), "{count} {chance}");
        }
        assert!(is_near(compromised, triples.compromised(&is_marked)));
    }

    #[test]
    fn a_relay_of_nearly_all_weight_does_not_hold_draws_up() {
        let both = GUARD.with(EXIT);
        let network = network(&[(both, u64::from(u32::MAX)), (both, 1), (both, 1)]);
        let triples = Triples::new(&network, false).expect("circuits");
        let mut rng = generator(2, 0, 0);
        for _ in 0..100 {
            let mut relays = triples.draw(&mut rng).relays();
            relays.sort_unstable();
            assert_eq!(relays, [0, 1, 2]);
            let mut guards = triples.draw_guards(9, &mut rng);
            guards.sort_unstable();
            assert_eq!(guards, [0, 1, 2]);
        }
    }

    #[test]
    fn networks_without_circuits_are_refused() {
        let refused = |relays: &[(Flags, u64)]| Triples::new(&network(relays), false).err();
        assert_eq!(
            refused(&[(GUARD, 1), (MIDDLE, 1)]),
            Some(NoCircuits::NoRelay(Position::Exit))
        );
        assert_eq!(
            refused(&[(EXIT, 1), (MIDDLE, 1)]),
            Some(NoCircuits::NoRelay(Position::Guard))
        );
        assert_eq!(refused(&[(GUARD, 1), (EXIT, 1)]), Some(NoCircuits::TooFew));
        assert_eq!(
            refused(&[(GUARD, 0), (EXIT, 1)]),
            Some(NoCircuits::NoRelay(Position::Guard))
        );
        let one_of_each = [(GUARD, 1), (EXIT, 1), (MIDDLE, 1)];
        let mut alone = network(&one_of_each);
        alone.weights.middle = [1.0, 0.0, 0.0, 0.0];
        assert!(Triples::new(&alone, false).is_ok());
    }
}
