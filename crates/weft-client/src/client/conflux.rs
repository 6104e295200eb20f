//! Conflux: sets of circuits to one exit, over which streams are spread (proposal 329; C tor's conflux_pool.c).
//!
//! A set is built ahead of need: its legs are circuits with different guards and middle relays,
//! which are linked one by one once they are built. When all are linked, streams prefer it to
//! circuits.

use std::time::Duration;

use rand::RngExt as _;
use weft_cell::identity::RsaIdentity;
use weft_core::origin::OriginId;
use weft_log::Line;
use weft_path::{CircuitSelection, ExitWanted, LegWanted, PathError, RelayName, TargetPort, Usage};

use crate::chooser::{Chooser, Chosen};
use crate::circuits::{ConfluxParams, Numbered, Set, SetPolicy};
use crate::events::CircuitPurpose;
use crate::now::Now;
use crate::streams::{Stream, StreamKind, StreamState};

use super::Client;

/// Sets begun in one turn at most.
const LAUNCHES: usize = 4;
/// Pause before the next set after one failed, or after no path for one was found.
const PAUSE: Duration = Duration::from_secs(10);

impl<C: Chooser> Client<C> {
    /// Returns true if a stream may use a conflux set. Choice by weight is among single circuits
    /// only, and an exit that is requested by name is reached by a single circuit.
    pub(super) fn may_use_sets(&self, stream: &Stream) -> bool {
        self.config.selection == CircuitSelection::Default
            && !matches!(stream.kind, StreamKind::Directory(_))
            && !stream.is_tied()
    }

    /// The rules by which sets are built; `None`: none is (`conflux_is_enabled`).
    fn set_rules(&self) -> Option<ConfluxParams> {
        let params = self.chooser.conflux()?;
        let enabled = self.config.conflux.unwrap_or(params.enabled);
        let used = self.config.selection == CircuitSelection::Default;
        (enabled && used && self.chooser.congestion().is_some()).then_some(params)
    }

    /// Returns true if no set should be launched now.
    fn are_sets_paused(&self, now: Now) -> bool {
        let paused = self.no_sets_until.is_some_and(|until| now.mono < until);
        paused || self.is_launch_paused(now) || !self.chooser.is_ready()
    }

    /// Launches sets ahead of need, and legs in place of those that failed (`conflux_predict_new`).
    pub(super) fn predict_sets(&mut self, expected: &[TargetPort], now: Now) {
        let waiting: Vec<OriginId> = self
            .sets
            .iter()
            .filter(|(_, set)| set.is_conflux() && !set.linked)
            .map(|(id, _)| *id)
            .collect();
        for set in waiting {
            self.mend_set(set, now);
        }
        let Some(params) = self.set_rules().filter(|_| !expected.is_empty()) else {
            return;
        };
        let most = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        for _ in 0..LAUNCHES {
            let sets = || self.sets.values().filter(|set| set.is_conflux());
            let linked = sets().filter(|set| set.linked).count();
            let unlinked = sets().filter(|set| !set.linked && !set.unusable).count();
            // As in C tor 0.4.9: a set that a stream has used may be another user's, and is no longer ahead of need.
            let ready = self
                .circuits
                .values()
                .filter(|circuit| circuit.purpose == CircuitPurpose::ConfluxSet)
                .filter(|circuit| !circuit.unusable && circuit.dirty.is_none());
            if linked >= most(params.max_linked_set)
                || ready.count() + unlinked >= most(params.max_prebuilt_set)
                || self.are_sets_paused(now)
            {
                return;
            }
            if !self.launch_set(&params, expected, now) {
                self.pause_sets(now);
                return;
            }
        }
    }

    fn pause_sets(&mut self, now: Now) {
        self.no_sets_until = Some(now.mono + PAUSE);
    }

    /// Ports that a new set's exit should allow, the best combination first: the ports of waiting
    /// streams, the ports that no circuit is ready for, each of these alone, and any.
    fn wanted_of_sets(&self, expected: &[TargetPort], now: Now) -> Vec<Vec<TargetPort>> {
        let mut waiting: Vec<TargetPort> = self
            .streams
            .values()
            .filter(|stream| stream.state == StreamState::Waiting && self.may_use_sets(stream))
            .filter_map(Stream::target)
            .collect();
        waiting.sort_unstable();
        waiting.dedup();
        let missing: Vec<TargetPort> = expected
            .iter()
            .copied()
            .filter(|port| !self.is_handled(*port, now))
            .collect();
        let each: Vec<_> = missing.iter().map(|port| vec![*port]).collect();
        let mut all = vec![waiting, missing, expected.to_vec()];
        all.extend(each);
        all.retain(|ports| !ports.is_empty());
        all.push(Vec::new());
        all
    }

    /// Launches all legs of a new set (`launch_new_set`). False: there is no path for one of them.
    fn launch_set(&mut self, params: &ConfluxParams, expected: &[TargetPort], now: Now) -> bool {
        let mut paths: Vec<Chosen<C::Guard>> = Vec::new();
        let mut failure = None;
        for ports in self.wanted_of_sets(expected, now) {
            let wanted = ExitWanted {
                ports,
                stable: true,
                avoid: self.refusing.iter().copied().collect(),
                exit: None,
            };
            let usage = Usage::Leg(LegWanted {
                exit: wanted,
                ..LegWanted::default()
            });
            match self.chooser.path(&usage, now, &mut self.rng) {
                Ok(path) => {
                    paths.push(path);
                    break;
                }
                Err(PathError::NoExit(why)) => failure = Some(PathError::NoExit(why)),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let exit = paths.first().and_then(|path| path.hops.last());
        let exit = exit.map(|hop| hop.rsa);
        let wanted = usize::try_from(params.num_legs_set).unwrap_or(usize::MAX);
        while let Some(exit) = exit.filter(|_| paths.len() < wanted) {
            let hops = paths.iter().map(|path| path.hops.as_slice());
            let usage = leg_usage(exit, hops.map(|hops| hops.iter().map(|hop| hop.rsa)));
            match self.chooser.path(&usage, now, &mut self.rng) {
                Ok(path) => paths.push(path),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let Some(exit) = exit.filter(|_| paths.len() >= wanted) else {
            for guard in paths.into_iter().filter_map(|path| path.guard) {
                self.chooser.forget(&guard);
            }
            if let Some(error) = failure {
                self.log(Line::info(format!("No conflux set now: {error}")));
            }
            return false;
        };
        self.last_circuit += 1;
        let id = OriginId(self.last_circuit);
        let retries = usize::try_from(params.max_unlinked_leg_retry).unwrap_or(usize::MAX);
        // Where the exit can, it puts what is sent again in order, and a leg that closes costs no byte.
        let serves = paths.first().and_then(|path| path.hops.last());
        let numbered =
            (serves.filter(|exit| exit.serves_mtor())).map(|_| Numbered::new(self.rng.random()));
        let set = Set {
            nonce: self.rng.random(),
            ux: self.config.conflux_ux,
            policy: SetPolicy::Conflux,
            numbered,
            exit,
            legs: Vec::new(),
            wanted,
            launched: 0,
            most_launched: wanted.saturating_add(retries),
            asked: false,
            linked: false,
            unusable: false,
        };
        self.sets.insert(id, set);
        let mut paths = paths.into_iter();
        let launched = paths.all(|path| self.launch_leg(id, path, now));
        for guard in paths.filter_map(|path| path.guard) {
            self.chooser.forget(&guard);
        }
        if !launched {
            self.close_set(id, now);
        }
        launched
    }

    /// Launches the legs that a set lacks, or gives it up where too many have failed (`conflux_launch_leg`).
    pub(super) fn mend_set(&mut self, id: OriginId, now: Now) {
        loop {
            let Some(set) = self.sets.get(&id) else {
                return;
            };
            if set.linked || set.unusable || set.legs.len() >= set.wanted {
                return;
            }
            if self.config.disable_network || self.are_sets_paused(now) {
                return;
            }
            let hops = set.legs.iter().filter_map(|leg| self.circuits.get(leg));
            let usage = leg_usage(
                set.exit,
                hops.map(|circuit| circuit.hops.iter().map(|hop| hop.rsa)),
            );
            let path = match set.launched < set.most_launched {
                true => self.chooser.path(&usage, now, &mut self.rng),
                false => {
                    let line = format!("Too many legs of the conflux set {id} failed");
                    self.log(Line::info(line));
                    self.give_up_set(id, now);
                    return;
                }
            };
            let launched = match path {
                Ok(path) => self.launch_leg(id, path, now),
                Err(error) => {
                    let line = format!("No path for another leg of the conflux set {id}: {error}");
                    self.log(Line::info(line));
                    false
                }
            };
            if !launched {
                self.give_up_set(id, now);
                return;
            }
        }
    }

    /// Ends a set that cannot be completed.
    pub(super) fn give_up_set(&mut self, id: OriginId, now: Now) {
        self.pause_sets(now);
        self.close_set(id, now);
    }

    /// They take no more streams where torrc has them no more.
    pub(super) fn drop_unwanted_sets(&mut self) {
        let by_weight = self.config.selection != CircuitSelection::Default;
        if self.config.conflux == Some(false) || by_weight {
            self.abandon_sets(Set::is_conflux);
        }
    }
}

/// The path of another leg to this exit: its guard and its middle relay differ from those of the
/// other legs.
fn leg_usage<H: Iterator<Item = RsaIdentity>>(
    exit: RsaIdentity,
    others: impl Iterator<Item = H>,
) -> Usage {
    let mut wanted = LegWanted {
        exit: ExitWanted {
            ports: Vec::new(),
            stable: true,
            avoid: Vec::new(),
            exit: Some(RelayName::Rsa(exit)),
        },
        ..LegWanted::default()
    };
    for mut hops in others {
        wanted.guards.extend(hops.next());
        wanted.middles.extend(hops.next());
    }
    Usage::Leg(wanted)
}
