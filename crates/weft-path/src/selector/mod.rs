//! Paths: an exit that fits, a guard, and a relay in between (path-spec 2.2).

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tunnel_tests;

use std::sync::Arc;
use std::time::SystemTime;

use rand::Rng;
use tor_netdir::NetDir;
use weft_cell::identity::RsaIdentity;
use weft_planted::{Fault, planted};

use crate::bridges::Bridge;
use crate::draw::draw;
use crate::guard::{GuardInfo, GuardUsage, GuardUse, Guards, Outcome, Restriction, Suspicion};
use crate::options::{PathBiasOptions, PathOptions};
use crate::path::{ExitWanted, Hop, LegKind, LegWanted, Path, PathError, Usage};
use crate::relays::{Position, Relays, Row};
use crate::ticket::GuardTicket;

/// Hops of a path (DEFAULT_ROUTE_LEN).
const HOPS: usize = 3;
/// The most hops of a path that a controller names: the limit of RELAY_EARLY cells (tor-spec 5.6).
const MOST_HOPS: usize = 8;

/// Chooses paths. Not `Sync`: it belongs to one thread.
#[derive(Debug)]
pub struct Selector {
    options: PathOptions,
    /// Relays of the consensus.
    consensus: Option<Arc<Relays>>,
    /// Relays that paths are chosen from: those of the consensus, with the bridges if these are
    /// used.
    relays: Option<Arc<Relays>>,
    bridges: Vec<Bridge>,
    guards: Guards,
}

impl Selector {
    /// Without a directory. `guard_lines`: the values of the state file's `Guard` lines.
    #[must_use]
    pub fn new<'a>(
        options: PathOptions,
        guard_lines: impl IntoIterator<Item = &'a str>,
        now: SystemTime,
    ) -> Self {
        let mut guards = Guards::load(guard_lines.into_iter(), now);
        guards.begin(&options);
        Self {
            options,
            consensus: None,
            relays: None,
            bridges: Vec::new(),
            guards,
        }
    }

    /// There is a new directory. True: the guards are others now, so that circuits that exist
    /// should carry no new streams.
    pub fn set_netdir(&mut self, netdir: &NetDir, now: SystemTime, rng: &mut impl Rng) -> bool {
        self.set_relays(Arc::new(Relays::new(netdir)), now, rng)
    }

    /// Sets relays that were parsed already, and that other selectors may share. True: see
    /// [`set_netdir`](Self::set_netdir).
    pub fn set_relays(&mut self, relays: Arc<Relays>, now: SystemTime, rng: &mut impl Rng) -> bool {
        self.consensus = Some(relays);
        self.follow(now, rng)
    }

    /// Replaces the bridges and their descriptors. True: see [`set_netdir`](Self::set_netdir).
    pub fn set_bridges(
        &mut self,
        bridges: Vec<Bridge>,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> bool {
        self.bridges = bridges;
        self.follow(now, rng)
    }

    /// Relays, bridges or options are new.
    fn follow(&mut self, now: SystemTime, rng: &mut impl Rng) -> bool {
        self.relays = match (self.options.use_bridges, &self.consensus) {
            (false, consensus) => consensus.clone(),
            (true, consensus) => {
                let consensus = consensus.as_deref();
                Some(Arc::new(Relays::with_bridges(consensus, &self.bridges)))
            }
        };
        match &self.relays {
            Some(relays) => self.guards.update(relays, &self.options, now, rng),
            None => false,
        }
    }

    /// A ticket for a circuit to this guard, to ask it for its descriptor. `None`: it is not a
    /// guard in use.
    pub fn ticket_of(&mut self, rsa: &RsaIdentity, now: SystemTime) -> Option<GuardTicket> {
        self.guards.ticket_of(rsa, now)
    }

    /// Returns true if bridges without a descriptor may be up again, as found since the last call.
    pub fn take_asks_bridges(&mut self) -> bool {
        self.guards.take_asks_bridges()
    }

    /// Returns true if a directory request can be sent through a guard without a consensus: a
    /// bridge with a descriptor is not known to be down (entrynodes.c, `num_bridges_usable`).
    #[must_use]
    pub fn has_usable_bridge(&self) -> bool {
        self.options.use_bridges
            && (self.relays.as_ref()).is_some_and(|relays| self.guards.has_usable(relays))
    }

    /// The configuration is new. True: see [`set_netdir`](Self::set_netdir).
    pub fn set_options(
        &mut self,
        options: PathOptions,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> bool {
        if self.options == options {
            return false;
        }
        self.options = options;
        self.follow(now, rng)
    }

    /// Drops all guards, and draws others.
    pub fn drop_guards(&mut self, now: SystemTime, rng: &mut impl Rng) {
        self.guards.drop_all();
        if let Some(relays) = &self.relays {
            self.guards.update(relays, &self.options, now, rng);
        }
    }

    /// Sets the consensus's parameters of path bias; torrc's settings have precedence.
    pub fn set_path_bias(&mut self, consensus: &PathBiasOptions) {
        self.options.path_bias = self.options.path_bias_set.over(consensus);
    }

    /// The relays that are known.
    #[must_use]
    pub fn relays(&self) -> Option<&Relays> {
        self.relays.as_deref()
    }

    /// The options in use.
    #[must_use]
    pub fn options(&self) -> &PathOptions {
        &self.options
    }

    /// Chooses a path. Its guard's ticket must come back by [`forget`](Self::forget) when the
    /// circuit is closed, however it ended.
    ///
    /// # Errors
    /// No path fits. [`PathError::NoGuard`] may pass by itself; wait a little before asking again.
    pub fn path(
        &mut self,
        usage: &Usage,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Result<Path, PathError> {
        let relays = self.relays.as_ref().ok_or(PathError::NoDirectory)?;
        if self.consensus.is_none() && *usage != Usage::Directory {
            return Err(PathError::NoDirectory);
        }
        let pick = Pick {
            relays,
            options: &self.options,
        };
        match usage {
            Usage::Exact(names) => {
                let rows = pick.exact(names)?;
                Ok(pick.finish(&rows, None))
            }
            Usage::Directory => {
                let free = Restriction::default();
                let (row, guard) =
                    pick.guard(&mut self.guards, GuardUsage::Directory, free, now, rng)?;
                Ok(pick.finish(&[row], guard))
            }
            Usage::Exit(wanted) => {
                let stable = wanted.stable || pick.wants_stable(wanted);
                let exit = pick.exit(wanted, stable, |_| true, rng)?;
                self.around(exit, stable, &LegWanted::default(), now, rng)
            }
            Usage::Leg(wanted) => {
                let stable = wanted.exit.stable || pick.wants_stable(&wanted.exit);
                let speaks = match wanted.kind {
                    LegKind::Conflux => Hop::joins_sets,
                    LegKind::Mtor => Hop::serves_mtor,
                };
                let exit = pick.exit(&wanted.exit, stable, speaks, rng)?;
                self.around(exit, stable, wanted, now, rng)
            }
            Usage::Internal { stable } => {
                let end = pick.middle(&[], *stable, rng, |_| true)?;
                self.around(end, *stable, &LegWanted::default(), now, rng)
            }
        }
    }

    /// Puts a guard and a middle relay in front of the last one, as `others` requires.
    fn around(
        &mut self,
        end: usize,
        stable: bool,
        others: &LegWanted,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Result<Path, PathError> {
        let relays = self.relays.as_ref().ok_or(PathError::NoDirectory)?;
        let pick = Pick {
            relays,
            options: &self.options,
        };
        let (usage, avoid): (_, &[RsaIdentity]) = match (others.entry, others.kind) {
            (Some(entry), _) => (GuardUsage::Entry(entry), &[]),
            (None, LegKind::Conflux) => (GuardUsage::Traffic, &others.guards),
            (None, LegKind::Mtor) if others.guards.is_empty() => (GuardUsage::Traffic, &[]),
            (None, LegKind::Mtor) => (GuardUsage::Leg(&others.guards), &[]),
        };
        let restriction = Restriction {
            exit: Some(end),
            avoid,
        };
        let (first, guard) = pick.guard(&mut self.guards, usage, restriction, now, rng)?;
        let mut rows = vec![first];
        while rows.len() + 1 < HOPS {
            let so_far: Vec<usize> = rows.iter().copied().chain([end]).collect();
            match pick.between(&so_far, others, stable, rng) {
                Ok(row) => rows.push(row),
                Err(error) => {
                    if let Some(guard) = guard {
                        self.guards.forget(guard, &self.options);
                    }
                    return Err(error);
                }
            }
        }
        rows.push(end);
        Ok(pick.finish(&rows, guard))
    }

    /// Notes how a circuit went; returns whether it may carry streams.
    pub fn guard_outcome(
        &mut self,
        guard: GuardTicket,
        outcome: Outcome,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> GuardUse {
        match &self.relays {
            Some(relays) => self
                .guards
                .outcome(guard, outcome, relays, &self.options, now, rng),
            None => GuardUse::Never,
        }
    }

    /// Forgets a circuit that is closed: its ticket means nothing from now on.
    pub fn forget(&mut self, guard: GuardTicket) {
        self.guards.forget(guard, &self.options);
    }

    /// Circuits that had to wait ([`GuardUse::Later`]) and need not any longer. To be asked after
    /// every [`Outcome::Built`] and [`Outcome::GuardFailed`], and every second as long as a circuit
    /// waits.
    pub fn poll_guards(&mut self, now: SystemTime) -> Vec<(GuardTicket, GuardUse)> {
        match &self.relays {
            Some(relays) => self.guards.poll(relays, &self.options, now),
            None => Vec::new(),
        }
    }

    /// The guards, those that are used first in front.
    #[must_use]
    pub fn guards(&self) -> Vec<GuardInfo> {
        self.guards.infos()
    }

    /// Guards through which fewer circuits succeed than should, for a log line; each once.
    pub fn take_suspicions(&mut self) -> Vec<(GuardInfo, Suspicion)> {
        self.guards.take_suspicions()
    }

    /// The values of the state file's `Guard` lines, if one of them has changed since this was
    /// asked last. C tor waits 30 s after a change that matters before it writes, or 10 minutes.
    pub fn state_lines(&mut self) -> Option<Vec<String>> {
        self.guards.take_changed().then(|| self.guards.lines())
    }

    /// The values of the state file's `Guard` lines, changed or not.
    #[must_use]
    pub fn all_state_lines(&self) -> Vec<String> {
        self.guards.lines()
    }
}

/// Relays and options of one choice of a path.
struct Pick<'a> {
    relays: &'a Relays,
    options: &'a PathOptions,
}

impl Pick<'_> {
    fn wants_stable(&self, wanted: &ExitWanted) -> bool {
        wanted
            .ports
            .iter()
            .any(|target| self.options.long_lived_ports.contains(&target.port))
    }

    fn related(&self, a: usize, b: usize) -> bool {
        if planted(Fault::RelayTwiceInPath) {
            return false;
        }
        let subnets = self.options.enforce_distinct_subnets;
        self.relays.related_by(self.options, a, b, subnets)
    }

    /// Returns true if a relay may be anywhere in a path.
    fn is_allowed(&self, row: &Row) -> bool {
        !row.bridge
            && !self.options.exclude_nodes.contains(&row.recognised())
            && self.options.own_identity != Some(row.hop.rsa)
    }

    /// Draws among the relays that `fits`, in proportion to their weights.
    fn draw(
        &self,
        position: Position,
        rng: &mut impl Rng,
        fits: impl Fn(usize, &Row) -> bool,
    ) -> Option<usize> {
        let fitting = || {
            self.relays
                .rows()
                .iter()
                .enumerate()
                .filter(|&(index, row)| fits(index, row))
        };
        let weighted: Vec<(usize, u64)> = fitting()
            .map(|(index, row)| (index, row.weight(position)))
            .collect();
        if weighted.iter().any(|&(_, weight)| weight > 0) {
            return draw(&weighted, rng);
        }
        // A consensus without bandwidth-weights, as in small networks, or one with zero weights for
        // this position: bandwidths alone count, and without bandwidths all relays are equally
        // likely.
        let bare: Vec<(usize, u64)> = fitting()
            .map(|(index, row)| (index, row.hop.bandwidth))
            .collect();
        draw(&bare, rng)
    }

    /// Draws a relay that is stable and fast, or at least fits (nodelist.c,
    /// `router_choose_random_node`: flags are given up before a path is).
    fn draw_relaxing(
        &self,
        position: Position,
        stable: bool,
        rng: &mut impl Rng,
        fits: impl Fn(usize, &Row) -> bool,
    ) -> Option<usize> {
        self.draw(position, rng, |index, row| {
            row.fast && (row.hop.is_stable || !stable) && fits(index, row)
        })
        .or_else(|| self.draw(position, rng, &fits))
    }

    fn exit(
        &self,
        wanted: &ExitWanted,
        stable: bool,
        speaks: impl Fn(&Hop) -> bool,
        rng: &mut impl Rng,
    ) -> Result<usize, PathError> {
        let allowed = |row: &Row| {
            self.is_allowed(row)
                && !self.options.exclude_exit_nodes.contains(&row.recognised())
                && speaks(&row.hop)
        };
        if let Some(name) = &wanted.exit {
            // An exit that is named is used, unless it is excluded.
            let index = self
                .relays
                .index(name)
                .ok_or_else(|| PathError::UnknownRelay(name.to_string()))?;
            let row = self.relays.rows().get(index);
            return match row {
                Some(row) if allowed(row) => Ok(index),
                _ => Err(PathError::NoExit(" (the one named is excluded)")),
            };
        }
        let serves = |row: &Row| match wanted.ports.as_slice() {
            [] => row.hop.policy_v4.allows_some_port() || row.hop.policy_v6.allows_some_port(),
            ports => ports.iter().all(|&target| row.hop.allows(target)),
        };
        let chosen = |row: &Row| {
            self.options
                .exit_nodes
                .as_ref()
                .is_none_or(|set| set.contains(&row.recognised()))
        };
        let fits = |row: &Row| {
            serves(row) && allowed(row) && chosen(row) && !wanted.avoid.contains(&row.hop.rsa)
        };
        self.draw_relaxing(Position::Exit, stable, rng, |_, row| fits(row))
            .ok_or(PathError::NoExit(if self.options.exit_nodes.is_some() {
                " (ExitNodes is set)"
            } else {
                ""
            }))
    }

    /// Returns true if a relay may follow `so_far`, in the middle or at the end of a path without
    /// an exit.
    fn can_be_middle(&self, so_far: &[usize], index: usize, row: &Row) -> bool {
        // The last relay of a path without an exit is not in the middle.
        let chosen = so_far.is_empty()
            || (self.options.middle_nodes.as_ref())
                .is_none_or(|set| set.contains(&row.recognised()));
        self.is_allowed(row) && chosen && so_far.iter().all(|&other| !self.related(index, other))
    }

    /// A relay that fits, is not in `so_far` and not related to these.
    fn middle(
        &self,
        so_far: &[usize],
        stable: bool,
        rng: &mut impl Rng,
        fits: impl Fn(&Row) -> bool,
    ) -> Result<usize, PathError> {
        self.draw_relaxing(Position::Middle, stable, rng, |index, row| {
            fits(row) && self.can_be_middle(so_far, index, row)
        })
        .ok_or(PathError::NoMiddle)
    }

    /// Chooses the middle relay of a leg.
    fn between(
        &self,
        so_far: &[usize],
        leg: &LegWanted,
        stable: bool,
        rng: &mut impl Rng,
    ) -> Result<usize, PathError> {
        let legs = |row: &Row| legs_of(&leg.middles, &row.hop.rsa);
        let most = match leg.kind {
            LegKind::Conflux => 0,
            LegKind::Mtor => leg.middles.len(),
        };
        let slow = leg.middle_below.and_then(|below| {
            (0..=most).find_map(|wanted| {
                let fits = |index, row: &Row| {
                    row.hop.bandwidth < u64::from(below)
                        && legs(row) == wanted
                        && self.can_be_middle(so_far, index, row)
                };
                self.draw(Position::Middle, rng, |index, row| {
                    (row.hop.is_stable || !stable) && fits(index, row)
                })
                .or_else(|| self.draw(Position::Middle, rng, fits))
            })
        });
        let any = |rng: &mut _| {
            (0..=most).find_map(|wanted| {
                let free = self.middle(so_far, stable, rng, |row| legs(row) == wanted);
                free.ok()
            })
        };
        slow.or_else(|| any(rng)).ok_or(PathError::NoMiddle)
    }

    fn guard(
        &self,
        guards: &mut Guards,
        usage: GuardUsage<'_>,
        restriction: Restriction<'_>,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Result<(usize, Option<GuardTicket>), PathError> {
        let none = match usage {
            GuardUsage::Entry(rsa) => PathError::EntryUnusable(rsa),
            _ => PathError::NoGuard,
        };
        if self.options.use_entry_guards {
            return guards
                .select(usage, restriction, self.relays, self.options, now, rng)
                .map(|(row, ticket)| (row, Some(ticket)))
                .ok_or(none);
        }
        let fits = |index: usize, row: &Row| {
            self.is_allowed(row)
                && self.options.reachable.choose(&row.hop.addrs).is_some()
                && self
                    .options
                    .entry_nodes
                    .as_ref()
                    .is_none_or(|set| set.contains(&row.recognised()))
                && (usage != GuardUsage::Directory || row.hop.is_dir_cache)
                && !restriction.avoid.contains(&row.hop.rsa)
                && (restriction.exit).is_none_or(|exit| !self.related(index, exit))
        };
        let others = match usage {
            GuardUsage::Entry(rsa) => {
                let row = self.relays.by_rsa(&rsa).filter(|&index| {
                    (self.relays.rows().get(index)).is_some_and(|row| fits(index, row))
                });
                return row.map(|row| (row, None)).ok_or(none);
            }
            GuardUsage::Leg(others) => others,
            GuardUsage::Traffic | GuardUsage::Directory => &[],
        };
        // Guards by flag where there are any (circuitbuild.c, `choose_good_entry_server`).
        self.draw_fewest(others, rng, |index, row| {
            row.possible_guard && fits(index, row)
        })
        .or_else(|| {
            self.draw_fewest(others, rng, |index, row| {
                !row.middle_only && fits(index, row)
            })
        })
        .map(|row| (row, None))
        .ok_or(none)
    }

    /// Draws a first hop among those that have the fewest legs, by the guards of the other legs.
    fn draw_fewest(
        &self,
        others: &[RsaIdentity],
        rng: &mut impl Rng,
        fits: impl Fn(usize, &Row) -> bool,
    ) -> Option<usize> {
        (0..=others.len()).find_map(|wanted| {
            self.draw(Position::Guard, rng, |index, row| {
                legs_of(others, &row.hop.rsa) == wanted && fits(index, row)
            })
        })
    }

    fn exact(&self, names: &[crate::nodes::RelayName]) -> Result<Vec<usize>, PathError> {
        if names.is_empty() || names.len() > MOST_HOPS {
            return Err(PathError::BadPath);
        }
        let rows = names
            .iter()
            .map(|name| {
                self.relays
                    .index(name)
                    .ok_or_else(|| PathError::UnknownRelay(name.to_string()))
            })
            .collect::<Result<Vec<usize>, PathError>>()?;
        // A relay does not extend to itself (tor-spec 5.3).
        if rows.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(PathError::BadPath);
        }
        Ok(rows)
    }

    fn finish(&self, rows: &[usize], guard: Option<GuardTicket>) -> Path {
        let mut hops: Vec<Hop> = rows
            .iter()
            .filter_map(|&row| self.relays.rows().get(row))
            .map(|row| row.hop.clone())
            .collect();
        if let Some(first) = hops.first_mut() {
            // The one that we connect to ourselves.
            let chosen = self.options.reachable.choose(&first.addrs);
            first.addrs = chosen.into_iter().collect();
        }
        Path { hops, guard }
    }
}

/// Legs in this list that use the relay.
fn legs_of(legs: &[RsaIdentity], rsa: &RsaIdentity) -> usize {
    legs.iter().filter(|other| *other == rsa).count()
}
