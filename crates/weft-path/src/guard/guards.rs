//! All samples of guards, and which of them is in use.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rand::Rng;
use weft_cell::identity::RsaIdentity;

use super::bias::Suspicion;
use super::circuit::{CircuitState, GuardedCircuit};
use super::env::Env;
use super::info::{GuardInfo, GuardUsage, Restriction};
use super::sample::{self, Sample};
use super::sampled::Guard;
use super::state::{self, BRIDGES};
use crate::options::PathOptions;
use crate::relays::Relays;
use crate::ticket::GuardTicket;

/// All samples of guards, and the circuits that go through them.
#[derive(Debug)]
pub(crate) struct Guards {
    /// The ordinary sample, the one for restrictive configurations, and that of bridges.
    pub(super) samples: [Sample; 3],
    /// Place of the sample in use.
    pub(super) current: usize,
    pub(super) circuits: BTreeMap<GuardTicket, GuardedCircuit>,
    next_ticket: u64,
    /// Lines of other selections, and such as could not be read: kept as they are.
    foreign: Vec<String>,
    /// Something that belongs into the state file is new.
    changed: bool,
    /// Guards that look as if they fail circuits on purpose; the caller has not asked for them yet.
    pub(super) suspicions: Vec<(GuardInfo, Suspicion)>,
}

impl Guards {
    /// Guards from the values of `Guard` lines.
    pub(crate) fn load<'a>(lines: impl Iterator<Item = &'a str>, now: SystemTime) -> Self {
        let mut guards = Self {
            samples: no_guards(),
            current: 0,
            circuits: BTreeMap::new(),
            next_ticket: 0,
            foreign: Vec::new(),
            changed: false,
            suspicions: Vec::new(),
        };
        for line in lines {
            let sample = state::parse(line, now).and_then(|(name, guard)| {
                let sample = guards.samples.iter_mut().find(|s| s.name == name)?;
                Some((sample, guard))
            });
            match sample {
                Some((sample, guard)) => sample.load(guard),
                None => guards.foreign.push(line.to_owned()),
            }
        }
        for sample in &mut guards.samples {
            sample.loaded();
        }
        guards
    }

    /// Sets the first options: their choice of a sample is not a change.
    pub(crate) fn begin(&mut self, options: &PathOptions) {
        if options.use_bridges {
            self.current = sample::OF_BRIDGES;
        }
    }

    /// Forgets all guards. Outcomes of circuits that go through them change nothing any more.
    pub(crate) fn drop_all(&mut self) {
        self.samples = no_guards();
        self.changed = true;
    }

    /// The values of `Guard` lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.foreign.clone();
        for (index, sample) in self.samples.iter().enumerate() {
            lines.extend(sample.lines(|guard| self.open_successes(index, guard)));
        }
        lines
    }

    /// Returns true if something for the state file has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        let changed = self.samples.iter_mut().fold(self.changed, |changed, s| {
            std::mem::take(&mut s.changed) || changed
        });
        self.changed = false;
        changed
    }

    /// The consensus or the options are new (guard-spec, "When a consensus changes"). True: another
    /// sample is in use from now on, so that older circuits should carry no new streams.
    pub(crate) fn update(
        &mut self,
        relays: &Relays,
        options: &PathOptions,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> bool {
        let env = Env {
            relays,
            options,
            now,
        };
        let chosen = sample::which(&env, self.current);
        let switched = std::mem::replace(&mut self.current, chosen) != chosen;
        // The other sample is as it was when it is needed again (`guards_update_all`).
        if let Some(sample) = self.samples.get_mut(chosen) {
            sample.update(&env, chosen != 0, rng);
        }
        switched
    }

    /// A ticket for a circuit to this guard that path selection did not choose: a bridge is asked
    /// for its descriptor (entrynodes.c, `get_guard_state_for_bridge_desc_fetch`). `None`: it is
    /// not a guard in use.
    pub(crate) fn ticket_of(&mut self, rsa: &RsaIdentity, now: SystemTime) -> Option<GuardTicket> {
        let guard = self.samples.get_mut(self.current)?.find_mut(rsa)?;
        guard.last_tried = Some(now);
        let state = CircuitState::UsableOnCompletion;
        let circuit = GuardedCircuit::new(self.current, *rsa, state, now);
        Some(self.follow(circuit))
    }

    /// Returns true if bridges without a descriptor may be up again, as found since the last call.
    pub(crate) fn take_asks_bridges(&mut self) -> bool {
        let sample = self.samples.get_mut(self.current);
        sample.is_some_and(|sample| std::mem::take(&mut sample.asks_bridges))
    }

    /// A ticket for a circuit.
    fn follow(&mut self, circuit: GuardedCircuit) -> GuardTicket {
        let ticket = GuardTicket::new(self.next_ticket);
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.circuits.insert(ticket, circuit);
        ticket
    }

    /// Chooses a guard.
    pub(crate) fn select(
        &mut self,
        usage: GuardUsage<'_>,
        restriction: Restriction<'_>,
        relays: &Relays,
        options: &PathOptions,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Option<(usize, GuardTicket)> {
        let env = Env {
            relays,
            options,
            now,
        };
        let restricted = self.current != 0;
        let sample = self.samples.get_mut(self.current)?;
        let (guard, state) = match usage {
            GuardUsage::Traffic | GuardUsage::Directory => {
                sample.select(usage, restriction, restricted, &env, rng)?
            }
            GuardUsage::Leg(others) => {
                sample.select_spread(others, restriction, restricted, &env, rng)?
            }
            GuardUsage::Entry(rsa) => {
                sample.select_exactly(&rsa, restriction, restricted, &env, rng)?
            }
        };
        let row = relays.by_rsa(&guard)?;
        let mut circuit = GuardedCircuit::new(self.current, guard, state, now);
        let exit = restriction.exit.and_then(|exit| relays.rows().get(exit));
        circuit.exit = exit.map(|row| row.hop.rsa);
        circuit.avoid = restriction.avoid.to_vec();
        Some((row, self.follow(circuit)))
    }

    /// Returns true if some guard in use seems usable and its row is known.
    pub(crate) fn has_usable(&self, relays: &Relays) -> bool {
        let sample = self.samples.get(self.current);
        let usable = |guard: &Guard| guard.is_usable() && relays.by_rsa(&guard.rsa).is_some();
        sample.is_some_and(|sample| sample.guards.iter().any(usable))
    }

    /// Information about every guard in use, primary guards first.
    pub(crate) fn infos(&self) -> Vec<GuardInfo> {
        let Some(sample) = self.samples.get(self.current) else {
            return Vec::new();
        };
        let mut infos = sample.infos();
        infos.sort_by_key(|info| !info.primary);
        infos
    }

    /// Guards that have become suspect since the last call.
    pub(crate) fn take_suspicions(&mut self) -> Vec<(GuardInfo, Suspicion)> {
        std::mem::take(&mut self.suspicions)
    }
}

fn no_guards() -> [Sample; 3] {
    ["default", "restricted", BRIDGES].map(Sample::new)
}
