//! Guards (guard-spec; C tor: entrynodes.c).
//!
//! [`Guards`] holds the samples that guard-spec calls guard selections: the one in ordinary use, and
//! one for a configuration that excludes most guards. [`sample`] is the algorithm on one of them,
//! [`circuits`] what becomes of circuits through guards, [`state`] the lines of C tor's state file,
//! [`bias`] the counters of path-spec 7.
//!
//! Arti's tor-guardmgr does the same. It is not used: its state is of another format, so that a C tor
//! that takes the DataDirectory back would find none of its guards; its clock and its randomness
//! cannot be handed in; and it wants a runtime, a state manager, and all of tor-proto (23 crates more
//! than Weft has).

mod bias;
mod circuits;
mod params;
mod sample;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::SystemTime;

use rand::Rng;

pub use bias::Suspicion;
pub use circuits::{GuardTicket, GuardUse, Outcome};
pub(crate) use params::GuardParams;

use crate::options::PathOptions;
use crate::relays::Relays;
use circuits::Circuit;
use sample::{Env, Sample};

/// What `GETINFO entry-guards` tells of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardInfo {
    /// SHA-1 of its RSA identity key.
    pub rsa: [u8; 20],
    /// Its name when it was sampled.
    pub nickname: String,
    /// How it is doing.
    pub status: GuardStatus,
    /// Whether it is one of those that circuits go through first.
    pub primary: bool,
}

/// How a guard is doing, in control-spec's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardStatus {
    /// `never-connected`
    NeverConnected,
    /// `unusable`, perhaps since then: unlisted, or excluded by the configuration.
    Unusable(Option<SystemTime>),
    /// `down` since then.
    Down(Option<SystemTime>),
    /// `up`
    Up,
}

/// What a guard is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardUsage {
    /// The first hop of a longer circuit.
    Traffic,
    /// A directory request.
    Directory,
}

/// All samples of guards, and the circuits that go through them.
#[derive(Debug)]
pub(crate) struct Guards {
    /// The ordinary sample, and the one for restrictive configurations.
    samples: [Sample; 2],
    /// Which of them is in use.
    current: usize,
    circuits: BTreeMap<GuardTicket, Circuit>,
    next_ticket: u64,
    /// Lines of other selections (bridges), and such as could not be read: kept as they are.
    foreign: Vec<String>,
    /// Something that belongs into the state file is new.
    changed: bool,
    /// Guards that look as if they fail circuits on purpose, to be told of.
    suspicions: Vec<(GuardInfo, Suspicion)>,
}

impl Guards {
    /// Guards as the values of `Guard` lines tell them.
    pub(crate) fn load<'a>(lines: impl Iterator<Item = &'a str>, now: SystemTime) -> Self {
        let mut guards = Self {
            samples: [Sample::new("default"), Sample::new("restricted")],
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

    /// Forgets all guards. Circuits that go through them have nothing to tell any more.
    pub(crate) fn drop_all(&mut self) {
        self.samples = [Sample::new("default"), Sample::new("restricted")];
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

    /// Whether there is something new for the state file since this was asked last.
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

    /// Chooses a guard; `exit` is the relay at the end of the path, whose family the guard must not
    /// be.
    pub(crate) fn select(
        &mut self,
        usage: GuardUsage,
        exit: Option<usize>,
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
        let (guard, state) = sample.select(usage, exit, restricted, &env, rng)?;
        let row = relays.by_rsa(&guard)?;
        let ticket = GuardTicket::new(self.next_ticket);
        self.next_ticket = self.next_ticket.wrapping_add(1);
        let exit = exit.and_then(|exit| relays.rows().get(exit));
        let exit = exit.map(|row| row.hop.rsa);
        let circuit = Circuit::new(self.current, guard, state, exit, now);
        self.circuits.insert(ticket, circuit);
        Some((row, ticket))
    }

    /// What is known of every guard in use, primary ones first.
    pub(crate) fn infos(&self) -> Vec<GuardInfo> {
        let Some(sample) = self.samples.get(self.current) else {
            return Vec::new();
        };
        let mut infos = sample.infos();
        infos.sort_by_key(|info| !info.primary);
        infos
    }

    /// Guards that have become suspect since this was asked last.
    pub(crate) fn take_suspicions(&mut self) -> Vec<(GuardInfo, Suspicion)> {
        std::mem::take(&mut self.suspicions)
    }
}
