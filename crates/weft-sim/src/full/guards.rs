//! The first relay of a circuit: a client keeps few guards and uses one of them most (guard-spec).

use rand::{Rng, RngExt};

use super::table::Table;
use crate::network::Flags;

/// A client's sample never has more guards than this (`DFLT_MAX_SAMPLE_SIZE` of C tor).
const MAX_SAMPLE: usize = 60;
/// A sample may have this many guards even where a fifth of the network's guards is less
/// (`DFLT_MIN_FILTERED_SAMPLE_SIZE`).
const MIN_SAMPLE: usize = 20;
/// Primary guards of the sample (`DFLT_N_PRIMARY_GUARDS`).
const PRIMARY: usize = 3;

/// Rule by which clients choose guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardRule {
    /// As C tor since 0.3: a sample of at most 60 guards, in the order in which they were drawn; the first
    /// three are primary, and of these the first `used` that suit a circuit are used, any of them equally
    /// often. `used` is 1 unless the consensus has `guard-n-primary-guards-to-use`. No guard ever fails,
    /// so that guards behind the primary ones serve only where all three are of the exit's family.
    Sampled {
        /// 1, 2 or 3.
        used: u8,
    },
    /// As TorPS: this number of guards, no two of one family, chosen equally often among the guards
    /// that suit a circuit. While fewer than that number less one suit a circuit, the client adds
    /// another guard.
    Torps {
        /// C tor had 3 until 2014, 1 later.
        guards: u8,
    },
    /// A new guard for each circuit: C tor with `UseEntryGuards 0`, as the modified client of Pahl
    /// et al. 2023, 4.4.
    Fresh,
}

/// State that a client keeps between circuits: its guards.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// In the order in which they were drawn.
    sample: Vec<u32>,
}

/// Constraints that a circuit puts on its guard.
pub(super) trait Suits {
    /// Returns true if the relay may be the guard of a circuit with this one's exit.
    fn suits(&self, guard: u32) -> bool;
    /// Returns true if two relays must not both be in a client's list, by TorPS's rule.
    fn clash(&self, one: u32, other: u32) -> bool;
}

/// The guards of a network.
#[derive(Clone, Debug)]
pub(super) struct Guards {
    table: Table,
    rule: GuardRule,
    /// Largest size of a client's sample.
    limit: usize,
}

impl GuardRule {
    /// Returns true if a relay with these flags may be a guard.
    pub(super) fn allows(self, flags: Flags) -> bool {
        let common = Flags::RUNNING.with(Flags::VALID).with(Flags::GUARD);
        let needed = match self {
            // `node_is_possible_guard`.
            GuardRule::Sampled { .. } => common
                .with(Flags::STABLE)
                .with(Flags::FAST)
                .with(Flags::V2DIR),
            // TorPS asks for Fast when it chooses among its guards, for every circuit.
            GuardRule::Torps { .. } => common,
            GuardRule::Fresh => common.with(Flags::FAST),
        };
        flags.has(needed)
    }
}

impl Guards {
    pub(super) fn new(table: Table, rule: GuardRule) -> Guards {
        let limit = match rule {
            GuardRule::Sampled { .. } => (table.len() / 5).clamp(MIN_SAMPLE, MAX_SAMPLE),
            _ => MAX_SAMPLE,
        };
        Guards { table, rule, limit }
    }

    /// A guard for a circuit of this client; none where all that it may have do not suit.
    pub(super) fn choose(
        &self,
        client: &mut Client,
        circuit: &impl Suits,
        rng: &mut impl Rng,
    ) -> Option<u32> {
        match self.rule {
            GuardRule::Sampled { used } => {
                self.first_suitable(client, usize::from(used), circuit, rng)
            }
            GuardRule::Torps { guards } => {
                self.any_suitable(client, usize::from(guards), circuit, rng)
            }
            GuardRule::Fresh => self.table.draw(rng, |guard| !circuit.suits(guard)),
        }
    }

    /// C tor's `select_primary_guard_for_circuit`, and the choice among other guards after it.
    fn first_suitable(
        &self,
        client: &mut Client,
        used: usize,
        circuit: &impl Suits,
        rng: &mut impl Rng,
    ) -> Option<u32> {
        let mut usable = [0; PRIMARY];
        let mut count = 0;
        for place in 0..PRIMARY {
            let Some(guard) = self.nth(client, place, rng) else {
                break;
            };
            if circuit.suits(guard)
                && let Some(slot) = usable.get_mut(count)
            {
                *slot = guard;
                count += 1;
            }
            // Guards that do not suit count as tried, too.
            if place + 1 >= used && count > 0 {
                break;
            }
        }
        match count {
            0 => {}
            1 => return usable.first().copied(),
            _ => return usable.get(rng.random_range(0..count)).copied(),
        }
        for place in PRIMARY..self.limit {
            let guard = self.nth(client, place, rng)?;
            if circuit.suits(guard) {
                return Some(guard);
            }
        }
        None
    }

    /// The guard at this place of the client's sample, drawn when it is first asked for.
    fn nth(&self, client: &mut Client, place: usize, rng: &mut impl Rng) -> Option<u32> {
        if place >= client.sample.len() {
            let sample = &client.sample;
            let guard = self.table.draw(rng, |guard| sample.contains(&guard))?;
            client.sample.push(guard);
        }
        client.sample.get(place).copied()
    }

    /// TorPS's `get_guards_for_circ`, and the choice among what it returns.
    fn any_suitable(
        &self,
        client: &mut Client,
        guards: usize,
        circuit: &impl Suits,
        rng: &mut impl Rng,
    ) -> Option<u32> {
        while client.sample.len() < guards && self.add(client, circuit, rng) {}
        let suitable = |client: &Client| {
            let sample = client.sample.iter();
            sample.filter(|guard| circuit.suits(**guard)).count()
        };
        let least = guards.saturating_sub(1).max(1);
        let mut count = suitable(client);
        while count < least && self.add(client, circuit, rng) {
            count = suitable(client);
        }
        let count = count.min(guards);
        if count == 0 {
            return None;
        }
        let mut suitable = client.sample.iter().filter(|guard| circuit.suits(**guard));
        suitable.nth(rng.random_range(0..count)).copied()
    }

    /// Takes another guard that clashes with none of the client's; false where there is none.
    fn add(&self, client: &mut Client, circuit: &impl Suits, rng: &mut impl Rng) -> bool {
        if client.sample.len() >= self.limit {
            return false;
        }
        let sample = &client.sample;
        let clashes = |guard| sample.iter().any(|kept| circuit.clash(*kept, guard));
        let guard = self.table.draw(rng, clashes);
        client.sample.extend(guard);
        guard.is_some()
    }
}

impl Client {
    /// Forgets all guards: another client.
    pub fn forget(&mut self) {
        self.sample.clear();
    }
}
