//! One sample of guards: which relays are in it, which are primary, and which one the next circuit goes
//! through (guard-spec 4).

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use rand::{Rng, RngExt as _};
use weft_cell::identity::RsaIdentity;
use weft_planted::{Fault, planted};

use super::bias::PathBias;
use super::circuit::CircuitState;
use super::env::Env;
use super::info::{GuardInfo, GuardStatus, GuardUsage, Restriction};
use super::sampled::{Guard, Reachable};
use super::state::{self, BRIDGES};
use crate::bridges::Bridge;
use crate::draw::draw;
use crate::nodes::Recognised;

/// Place of the selection of bridges among all.
pub(super) const OF_BRIDGES: usize = 2;

/// Place of the sample that suits the configuration: 0, the ordinary one, 1, the one for few
/// guards, or 2, the one of bridges. Near the border between the first two the present sample stays
/// (entrynodes.c, `choose_guard_selection`).
pub(super) fn which(env: &Env<'_>, current: usize) -> usize {
    if env.options.use_bridges {
        return OF_BRIDGES;
    }
    let (mut all, mut passing) = (0.0, 0.0);
    for row in env.relays.rows() {
        if env.is_possible_guard(row) {
            all += 1.0;
            passing += f64::from(u8::from(env.allows_row(row)));
        }
    }
    let meaningful = all * env.relays.guard_params.meaningful_restriction;
    if passing >= (meaningful * 1.05).floor() {
        0
    } else if passing < (meaningful * 0.95).floor() {
        1
    } else {
        current.min(1)
    }
}

/// A sample of guards.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) name: &'static str,
    /// In the order in which they were sampled, which is the order of preference.
    pub(super) guards: Vec<Guard>,
    /// Identities of the primary guards, in that order.
    pub(super) primary: Vec<RsaIdentity>,
    primary_up_to_date: bool,
    next_sampled_idx: u32,
    next_confirmed_idx: u32,
    pub(super) last_on_internet: Option<SystemTime>,
    pub(super) changed: bool,
    /// Bridges without a descriptor that failed may be up again: they should be asked soon.
    pub(super) asks_bridges: bool,
}

/// Guards that are skipped besides the unusable ones.
#[derive(Clone, Copy)]
struct Without {
    confirmed: bool,
    primary: bool,
    pending: bool,
    no_descriptor: bool,
}

impl Sample {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            guards: Vec::new(),
            primary: Vec::new(),
            primary_up_to_date: false,
            next_sampled_idx: 0,
            next_confirmed_idx: 0,
            last_on_internet: None,
            changed: false,
            asks_bridges: false,
        }
    }

    /// Returns true if it is the sample of bridges.
    fn is_of_bridges(&self) -> bool {
        self.name == BRIDGES
    }

    /// Takes a guard from the state file.
    pub(super) fn load(&mut self, guard: Guard) {
        if self.find(&guard.rsa).is_none() {
            self.guards.push(guard);
        }
    }

    /// All guards of the state file are there: puts them in order and makes their numbers dense.
    pub(super) fn loaded(&mut self) {
        self.guards.sort_by_key(|guard| guard.sampled_idx);
        for (guard, idx) in self.guards.iter_mut().zip(0..) {
            guard.sampled_idx = idx;
            self.next_sampled_idx = idx + 1;
        }
        self.number_confirmed();
    }

    /// Makes the numbers of confirmed guards dense.
    fn number_confirmed(&mut self) {
        let mut confirmed: Vec<&mut (SystemTime, u32)> = self
            .guards
            .iter_mut()
            .filter_map(|guard| guard.confirmed.as_mut())
            .collect();
        if !planted(Fault::ConfirmedOrderLost) {
            confirmed.sort_by_key(|(_, idx)| *idx);
        }
        self.next_confirmed_idx = 0;
        for (_, idx) in confirmed {
            if std::mem::replace(idx, self.next_confirmed_idx) != self.next_confirmed_idx {
                self.changed = true;
            }
            self.next_confirmed_idx += 1;
        }
    }

    /// The values of `Guard` lines. `open` has the successes of circuits that are still open.
    pub(super) fn lines(&self, open: impl Fn(&RsaIdentity) -> (f64, f64)) -> Vec<String> {
        let line = |(guard, idx): (&Guard, u32)| {
            let bias = guard.bias.with_open(open(&guard.rsa));
            state::write(self.name, guard, &bias, idx)
        };
        self.guards.iter().zip(0..).map(line).collect()
    }

    pub(super) fn find(&self, rsa: &RsaIdentity) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.rsa == *rsa)
    }

    pub(super) fn find_mut(&mut self, rsa: &RsaIdentity) -> Option<&mut Guard> {
        self.guards.iter_mut().find(|guard| guard.rsa == *rsa)
    }

    pub(super) fn is_primary(&self, rsa: &RsaIdentity) -> bool {
        self.primary.contains(rsa)
    }

    pub(super) fn info(&self, guard: &Guard) -> GuardInfo {
        GuardInfo {
            rsa: guard.rsa,
            // In place of a name that is not known stands the identity.
            nickname: match guard.nickname.starts_with('$') {
                true => String::new(),
                false => guard.nickname.clone(),
            },
            status: if guard.confirmed.is_none() {
                GuardStatus::NeverConnected
            } else if !guard.listed {
                GuardStatus::Unusable(guard.unlisted_since)
            } else if !guard.filtered {
                GuardStatus::Unusable(None)
            } else if guard.reachable == Reachable::No {
                GuardStatus::Down(guard.failing_since)
            } else {
                GuardStatus::Up
            },
            primary: self.is_primary(&guard.rsa),
        }
    }

    pub(super) fn infos(&self) -> Vec<GuardInfo> {
        self.guards.iter().map(|guard| self.info(guard)).collect()
    }

    /// The consensus or the options are new (guard-spec 4.10).
    pub(super) fn update(&mut self, env: &Env<'_>, restricted: bool, rng: &mut impl Rng) {
        // A list of bridges in torrc does not expire.
        if self.is_of_bridges() || env.relays.is_reasonably_live(env.now) {
            self.note_listed(env, rng);
            self.prune(env);
        }
        self.filter(env);
        self.number_confirmed();
        self.update_primary(restricted, env, rng);
    }

    /// Updates the listing of each guard (guard-spec 4.2).
    fn note_listed(&mut self, env: &Env<'_>, rng: &mut impl Rng) {
        let slop = env.relays.guard_params.remove_unlisted_after / 5;
        for guard in &mut self.guards {
            let listed = match guard.bridge {
                Some(addr) => {
                    let here = env.relays.bridge(addr, &guard.rsa);
                    let mut all = env.relays.bridges().iter();
                    // One that has moved is the guard that it was.
                    let found = here.or_else(|| all.find(|one| one.rsa == Some(guard.rsa)));
                    if let Some(moved) = found.filter(|found| found.addr != addr) {
                        guard.bridge = Some(moved.addr);
                        self.changed = true;
                    }
                    found.is_some()
                }
                None => env.relays.is_listed_guard(&guard.rsa),
            };
            if listed {
                self.changed |= !guard.listed || guard.unlisted_since.is_some();
                guard.unlisted_since = None;
            } else if guard.unlisted_since.is_none() {
                guard.unlisted_since = Some(some_time_before(env.now, slop, rng));
                self.changed = true;
            }
            guard.listed = listed;
            if let Some(row) = env.relays.by_rsa(&guard.rsa)
                && let Some(row) = env.relays.rows().get(row)
                && row.hop.nickname != guard.nickname
            {
                guard.nickname.clone_from(&row.hop.nickname);
                self.changed = true;
            }
        }
    }

    /// Removes guards that have been unlisted or known for too long (guard-spec 4.2).
    fn prune(&mut self, env: &Env<'_>) {
        let before = |age: Duration| env.now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let (lifetime, confirmed_lifetime) = env.lifetimes();
        let unlisted_before = before(env.relays.guard_params.remove_unlisted_after);
        let sampled_before = before(lifetime);
        let confirmed_before = before(confirmed_lifetime);
        let old = self.guards.len();
        self.guards.retain(|guard| {
            let unlisted = !guard.listed
                && guard
                    .unlisted_since
                    .is_some_and(|since| since < unlisted_before);
            let old = match guard.confirmed {
                None => guard.sampled_on < sampled_before,
                Some((on, _)) => on < confirmed_before,
            };
            !unlisted && !old
        });
        self.changed |= self.guards.len() != old;
    }

    /// Updates the guards that the options allow.
    fn filter(&mut self, env: &Env<'_>) {
        for guard in &mut self.guards {
            let row = env.relays.by_rsa(&guard.rsa);
            let row = row.and_then(|row| env.relays.rows().get(row));
            guard.described = row.is_some();
            // A guard whose microdescriptor is not there stays in its place.
            let allowed = match (guard.bridge, row) {
                (Some(addr), _) => env.allows_bridge(addr, &guard.rsa),
                (None, Some(row)) => env.allows_row(row),
                (None, None) => env.allows(
                    &Recognised {
                        rsa: &guard.rsa,
                        ed25519: None,
                        nickname: &guard.nickname,
                        addrs: &[],
                    },
                    None,
                ),
            };
            guard.filtered = guard.listed && !guard.bias_disabled && allowed;
        }
    }

    /// Guards have changed so that others may be primary.
    pub(super) fn refilter(&mut self) {
        self.primary_up_to_date = false;
    }

    /// Works out again which guards are allowed and which primary, if something has changed.
    pub(super) fn bring_up_to_date(&mut self, restricted: bool, env: &Env<'_>, rng: &mut impl Rng) {
        if !self.primary_up_to_date {
            self.filter(env);
            self.update_primary(restricted, env, rng);
        }
    }

    pub(super) fn consider_retries(&mut self, now: SystemTime) {
        for guard in &mut self.guards {
            guard.consider_retry(self.primary.contains(&guard.rsa), now);
        }
    }

    /// Samples guards until enough of them can be used (guard-spec 4.3).
    pub(super) fn expand(&mut self, restricted: bool, env: &Env<'_>, rng: &mut impl Rng) {
        if self.is_of_bridges() {
            return self.expand_by_bridges(env, rng);
        }
        if !env.relays.is_reasonably_live(env.now) {
            return;
        }
        let params = &env.relays.guard_params;
        let mut guards_of_network = 0_usize;
        let mut eligible: Vec<(usize, u64)> = Vec::new();
        for (index, row) in env.relays.rows().iter().enumerate() {
            // Where few guards are allowed, they are filtered before they are sampled: otherwise
            // the sample might hold none of them.
            if !env.is_possible_guard(row) || (restricted && !env.allows_row(row)) {
                continue;
            }
            guards_of_network += 1;
            if self.find(&row.hop.rsa).is_none() {
                let [weight, ..] = row.weights;
                eligible.push((index, weight));
            }
        }
        if eligible.iter().all(|&(_, weight)| weight == 0) {
            for (index, weight) in &mut eligible {
                *weight = env
                    .relays
                    .rows()
                    .get(*index)
                    .map_or(0, |row| row.hop.bandwidth);
            }
        }
        let most = share(guards_of_network, params.max_sample_threshold)
            .min(params.max_sample_size)
            .max(params.min_filtered_sample);
        let mut usable = self.guards.iter().filter(|guard| guard.is_usable()).count();
        while usable < params.min_filtered_sample && self.guards.len() < most {
            let Some(index) = draw(&eligible, rng) else {
                return;
            };
            eligible.retain(|&(other, _)| other != index);
            let Some(row) = env.relays.rows().get(index) else {
                return;
            };
            let filtered = env.allows_row(row);
            usable += usize::from(filtered);
            let (rsa, nickname) = (row.hop.rsa, row.hop.nickname.clone());
            self.add(rsa, nickname, None, filtered, env, rng);
        }
    }

    /// Adds bridges of torrc in random order, until enough guards are usable.
    fn expand_by_bridges(&mut self, env: &Env<'_>, rng: &mut impl Rng) {
        let known = |bridge: &Bridge| bridge.rsa.is_none_or(|rsa| self.find(&rsa).is_some());
        let all = env.relays.bridges().iter();
        let mut left: Vec<&Bridge> = all.filter(|bridge| !known(bridge)).collect();
        let mut usable = self.guards.iter().filter(|guard| guard.is_usable()).count();
        while usable < env.relays.guard_params.min_filtered_sample && !left.is_empty() {
            let bridge = left.swap_remove(rng.random_range(0..left.len()));
            let Some(rsa) = bridge.rsa.filter(|rsa| self.find(rsa).is_none()) else {
                continue;
            };
            let nickname = match &bridge.hop {
                Some(hop) => hop.nickname.clone(),
                None => format!("${rsa}"),
            };
            let filtered = bridge.is_allowed(env.options);
            usable += usize::from(filtered);
            self.add(rsa, nickname, Some(bridge.addr), filtered, env, rng);
        }
    }

    /// Adds a guard at the end of the sample.
    fn add(
        &mut self,
        rsa: RsaIdentity,
        nickname: String,
        bridge: Option<SocketAddr>,
        filtered: bool,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) {
        self.guards.push(Guard {
            rsa,
            bridge,
            nickname,
            sampled_on: some_time_before(env.now, env.lifetimes().0 / 10, rng),
            sampled_idx: self.next_sampled_idx,
            sampled_by: Some(concat!("weft-", env!("CARGO_PKG_VERSION")).to_owned()),
            listed: true,
            unlisted_since: None,
            confirmed: None,
            bias: PathBias::default(),
            extra: Vec::new(),
            reachable: Reachable::Maybe,
            failing_since: None,
            last_tried: None,
            pending: false,
            filtered,
            described: env.relays.by_rsa(&rsa).is_some(),
            bias_noted: None,
            bias_disabled: false,
        });
        self.next_sampled_idx = self.next_sampled_idx.saturating_add(1);
        self.changed = true;
    }

    /// The first usable guard in the order of the sample, which is made larger if it is too small.
    fn first_usable(
        &mut self,
        without: Without,
        restriction: Restriction<'_>,
        restricted: bool,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) -> Option<RsaIdentity> {
        self.consider_retries(env.now);
        let count = self
            .guards
            .iter()
            .filter(|guard| guard.is_usable() && guard.obeys(restriction, env))
            .count();
        if count < env.relays.guard_params.min_filtered_sample {
            self.expand(restricted, env, rng);
        }
        self.guards
            .iter()
            .find(|guard| {
                guard.is_usable()
                    && guard.obeys(restriction, env)
                    && !(without.confirmed && guard.confirmed.is_some())
                    && !(without.primary && self.primary.contains(&guard.rsa))
                    && !(without.pending && guard.pending)
                    && !(without.no_descriptor && env.relays.by_rsa(&guard.rsa).is_none())
            })
            .map(|guard| guard.rsa)
    }

    /// Selects the primary guards (guard-spec 4.5): confirmed guards, then the previous primary
    /// guards, then others of the sample; in the order of the sample (proposal 310).
    fn update_primary(&mut self, restricted: bool, env: &Env<'_>, rng: &mut impl Rng) {
        let params = &env.relays.guard_params;
        let wanted = env.options.num_primary_guards.unwrap_or(params.n_primary);
        let before = std::mem::take(&mut self.primary);
        self.primary_up_to_date = true;
        let mut primary: Vec<RsaIdentity> = self
            .guards
            .iter()
            .filter(|guard| guard.filtered && guard.confirmed.is_some())
            .map(|guard| guard.rsa)
            .take(wanted)
            .collect();
        for id in before {
            let good = self.find(&id).is_some_and(|guard| guard.filtered);
            if primary.len() < wanted && good && !primary.contains(&id) {
                primary.push(id);
            }
        }
        self.primary = primary;
        while self.primary.len() < wanted {
            let without = Without {
                confirmed: true,
                primary: true,
                pending: false,
                no_descriptor: false,
            };
            match self.first_usable(without, Restriction::default(), restricted, env, rng) {
                Some(id) => self.primary.push(id),
                None => break,
            }
        }
        let (guards, primary) = (&self.guards, &mut self.primary);
        primary.sort_by_key(|id| guards.iter().position(|guard| guard.rsa == *id));
    }

    /// Chooses the guard of a circuit (guard-spec 4.6).
    pub(super) fn select(
        &mut self,
        usage: GuardUsage<'_>,
        restriction: Restriction<'_>,
        restricted: bool,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) -> Option<(RsaIdentity, CircuitState)> {
        self.bring_up_to_date(restricted, env, rng);
        if let Some(id) = self.select_primary(usage, restriction, env, rng) {
            return Some((id, CircuitState::UsableOnCompletion));
        }
        self.consider_retries(env.now);
        // A guard without a microdescriptor is of no use: not even its address is known.
        let confirmed = self.guards.iter().find(|guard| {
            guard.confirmed.is_some()
                && !self.primary.contains(&guard.rsa)
                && guard.obeys(restriction, env)
                && guard.is_usable()
                && !guard.pending
                && env.relays.by_rsa(&guard.rsa).is_some()
        });
        let id = match confirmed {
            Some(guard) => Some(guard.rsa),
            None => {
                let without = Without {
                    confirmed: true,
                    primary: true,
                    pending: true,
                    no_descriptor: true,
                };
                self.first_usable(without, restriction, restricted, env, rng)
            }
        };
        let Some(id) = id else {
            // Everything has failed: the next circuit starts from the top again.
            self.all_maybe_reachable();
            return None;
        };
        let guard = self.find_mut(&id)?;
        guard.pending = true;
        guard.last_tried = Some(env.now);
        Some((id, CircuitState::UsableIfNoBetterGuard))
    }

    fn select_primary(
        &mut self,
        usage: GuardUsage<'_>,
        restriction: Restriction<'_>,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) -> Option<RsaIdentity> {
        let params = &env.relays.guard_params;
        let wanted = match usage {
            GuardUsage::Traffic | GuardUsage::Leg(_) | GuardUsage::Entry(_) => env
                .options
                .num_entry_guards
                .unwrap_or(params.n_primary_to_use),
            GuardUsage::Directory => env
                .options
                .num_directory_guards
                .unwrap_or(params.n_primary_dir_to_use),
        };
        let mut usable = Vec::new();
        let mut considered = 0_usize;
        for id in self.primary.clone() {
            let Some(guard) = self.find_mut(&id) else {
                continue;
            };
            guard.consider_retry(true, env.now);
            if guard.obeys(restriction, env) {
                if guard.reachable == Reachable::No || env.relays.by_rsa(&id).is_none() {
                    continue;
                }
                guard.last_tried = Some(env.now);
                usable.push((usable.len(), id));
            }
            considered += 1;
            if considered >= wanted && !usable.is_empty() {
                break;
            }
        }
        let even: Vec<(usize, u64)> = usable.iter().map(|&(index, _)| (index, 1)).collect();
        let chosen = draw(&even, rng)?;
        usable.get(chosen).map(|&(_, id)| id)
    }

    /// Notes a circuit that failed at this guard (guard-spec 4.7).
    pub(super) fn note_failure(&mut self, rsa: &RsaIdentity, now: SystemTime) {
        if let Some(guard) = self.find_mut(rsa) {
            guard.reachable = Reachable::No;
            guard.pending = false;
            guard.failing_since.get_or_insert(now);
        }
    }

    /// Notes a circuit through this guard that was built (guard-spec 4.8); returns the circuit's new state.
    pub(super) fn note_success(
        &mut self,
        rsa: &RsaIdentity,
        state: CircuitState,
        restricted: bool,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) -> CircuitState {
        let last_on_internet = self.last_on_internet.replace(env.now);
        let lifetime = env.lifetimes().0;
        let next_confirmed_idx = self.next_confirmed_idx;
        let Some(guard) = self.find_mut(rsa) else {
            return CircuitState::Dead;
        };
        guard.reachable = Reachable::Yes;
        guard.failing_since = None;
        guard.pending = false;
        if guard.confirmed.is_none() {
            let on = some_time_before(env.now, lifetime / 10, rng);
            guard.confirmed = Some((on, next_confirmed_idx));
            self.next_confirmed_idx = next_confirmed_idx.saturating_add(1);
            self.changed = true;
            self.update_primary(restricted, env, rng);
        }
        let primary = self.is_primary(rsa);
        let was_down = last_on_internet.is_some_and(|last| {
            env.now.duration_since(last).unwrap_or_default()
                > env.relays.guard_params.internet_likely_down
        });
        if !primary && was_down {
            self.primary_maybe_reachable();
        }
        match state {
            CircuitState::UsableIfNoBetterGuard if !primary => CircuitState::WaitingForBetterGuard,
            _ => CircuitState::Complete,
        }
    }

    /// Any guard may be up again.
    pub(super) fn all_maybe_reachable(&mut self) {
        for guard in &mut self.guards {
            self.asks_bridges |= guard.maybe_reachable();
        }
    }

    fn primary_maybe_reachable(&mut self) {
        let primary = &self.primary;
        let of_them = |guard: &&mut Guard| primary.contains(&guard.rsa);
        for guard in self.guards.iter_mut().filter(of_them) {
            self.asks_bridges |= guard.maybe_reachable();
        }
    }

    /// Returns true if circuits through other guards may be used: every primary guard is down.
    pub(super) fn all_primary_down(&mut self, now: SystemTime) -> bool {
        for id in self.primary.clone() {
            if let Some(guard) = self.find_mut(&id) {
                guard.consider_retry(true, now);
                if guard.reachable != Reachable::No {
                    return false;
                }
            }
        }
        true
    }

    /// Returns true if guard `a` comes before guard `b` (guard-spec 4.6.1).
    pub(super) fn precedes(&self, a: &RsaIdentity, b: &RsaIdentity) -> bool {
        let (Some(a), Some(b)) = (self.find(a), self.find(b)) else {
            // A guard that is not in the sample any more comes last.
            return self.find(a).is_some() && self.find(b).is_none();
        };
        if a.rsa == b.rsa {
            return false;
        }
        match (a.confirmed, b.confirmed) {
            (Some((_, a)), Some((_, b))) => a < b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => match (a.pending, b.pending) {
                (true, true) => a.last_tried < b.last_tried,
                (a_pending, _) => a_pending,
            },
        }
    }

    /// Returns true if the restriction permits the guard.
    pub(super) fn obeys(
        &self,
        rsa: &RsaIdentity,
        restriction: Restriction<'_>,
        env: &Env<'_>,
    ) -> bool {
        self.find(rsa)
            .is_some_and(|guard| guard.obeys(restriction, env))
    }
}

/// A moment drawn from those up to `longest` before `now`: the state file must not show when exactly
/// the user was online (guard-spec 4.2).
fn some_time_before(now: SystemTime, longest: Duration, rng: &mut impl Rng) -> SystemTime {
    let back = Duration::from_secs(rng.random_range(0..=longest.as_secs()));
    now.checked_sub(back).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of the number of relays"
)]
fn share(count: usize, part: f64) -> usize {
    (count as f64 * part) as usize
}
