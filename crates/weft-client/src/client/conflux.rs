//! Conflux: sets of circuits to one exit, over which streams are spread (proposal 329; C tor's conflux_pool.c).
//!
//! A set is built ahead of need: its legs are circuits with guards and middle relays of their own, which are linked one by one
//! once they are built. When all are linked, the set stands among the circuits under the name of its tunnel, and streams
//! prefer it. The connection threads spread what its streams send, and put together what arrives.

use std::time::Duration;

use rand::RngExt as _;
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::DestroyReason;
use weft_core::address::HopIndex;
use weft_core::origin::{OriginCommand, OriginId, TunnelKind};
use weft_log::Line;
use weft_path::{CircuitSelection, ExitWanted, LegWanted, PathError, RelayName, TargetPort, Usage};

use crate::chooser::{BuildNews, Chooser, Chosen};
use crate::circuit::{Circuit, Stage};
use crate::events::{CircuitPurpose, EndOfCircuit};
use crate::hop::Hop;
use crate::isolation::CircuitIsolation;
use crate::now::Now;
use crate::plan::Plan;
use crate::sets::{ConfluxParams, ConfluxSet, Leg};
use crate::stream::{Stream, StreamKind, StreamState};

use super::Client;

/// Sets begun in one turn at most.
const LAUNCHES: usize = 4;
/// For so long no set is begun after one failed, or where no path for one was found.
const PAUSE: Duration = Duration::from_secs(10);

impl<C: Chooser> Client<C> {
    /// Whether a stream may be put on a conflux set. Where circuits are chosen by weight, that is among circuits alone; and an
    /// exit that is asked for by name is reached by a circuit.
    pub(super) fn may_use_sets(&self, stream: &Stream) -> bool {
        self.config.selection == CircuitSelection::Default
            && !matches!(stream.kind, StreamKind::Directory(_))
            && (stream.exit.is_none() || stream.exit_optional)
    }

    /// The number of a set's legs; 0: it is no set.
    pub(super) fn legs_of(&self, id: OriginId) -> usize {
        self.sets.get(&id).map_or(0, |set| set.legs.len())
    }

    /// The rules by which sets are built; `None`: none is (`conflux_is_enabled`).
    fn set_rules(&self) -> Option<ConfluxParams> {
        let params = self.chooser.conflux()?;
        let enabled = self.config.conflux.unwrap_or(params.enabled);
        let used = self.config.selection == CircuitSelection::Default;
        (enabled && used && self.chooser.congestion().is_some()).then_some(params)
    }

    /// Whether no set is to be begun now.
    fn are_sets_paused(&self, now: Now) -> bool {
        let paused = self.no_sets_until.is_some_and(|until| now.mono < until);
        paused || self.is_launch_paused(now) || !self.chooser.is_ready()
    }

    /// Launches sets ahead of need, and legs in place of those that failed (`conflux_predict_new`).
    pub(super) fn predict_sets(&mut self, expected: &[TargetPort], now: Now) {
        let waiting: Vec<OriginId> = self
            .sets
            .iter()
            .filter(|(_, set)| !set.linked)
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
            let linked = self.sets.values().filter(|set| set.linked).count();
            let unlinked = self.sets.values();
            let unlinked = unlinked.filter(|set| !set.linked && !set.unusable).count();
            // As in C tor 0.4.9: a set that a stream has used may be another user's, and is no longer ahead of need.
            let ready = self
                .circuits
                .values()
                .filter(|circuit| circuit.is_set() && !circuit.unusable && circuit.dirty.is_none());
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

    /// What a new set's exit should allow, the best first: what streams wait for, the ports that nothing is ready for, each of
    /// these, and anything.
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
        let set = ConfluxSet {
            nonce: self.rng.random(),
            ux: self.config.conflux_ux,
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

    /// Launches a leg over a path that was chosen for it. False: its handshake cannot be begun.
    fn launch_leg(&mut self, set_id: OriginId, path: Chosen<C::Guard>, now: Now) -> bool {
        let Some(nonce) = self.sets.get(&set_id).map(|set| set.nonce) else {
            return false;
        };
        let guard = path.guard.clone();
        let plan = Plan {
            hops: path.hops.iter().map(Hop::from).collect(),
            exit: path.hops.last().cloned(),
            guard: path.guard,
            stable: true,
        };
        let leg = Leg {
            set: set_id,
            nonce,
            asked: None,
            round_trip: None,
        };
        let id = match self.launch_as(plan, CircuitPurpose::ConfluxUnlinked, Some(leg), now) {
            Ok(id) => id,
            Err(error) => {
                self.log(Line::warn(format!("Could not begin a circuit: {error}")));
                if let Some(guard) = guard {
                    self.chooser.forget(&guard);
                }
                return false;
            }
        };
        if let Some(set) = self.sets.get_mut(&set_id) {
            set.legs.push(id);
            set.launched = set.launched.saturating_add(1);
        }
        true
    }

    /// Launches the legs that a set lacks, or gives it up where too many have failed (`conflux_launch_leg`).
    fn mend_set(&mut self, id: OriginId, now: Now) {
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
    fn give_up_set(&mut self, id: OriginId, now: Now) {
        self.pause_sets(now);
        self.close_set(id, now);
    }

    /// A leg is built: the exit is asked to link it (`conflux_circuit_has_opened`).
    pub(super) fn link(&mut self, id: OriginId, now: Now) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let (hop, congestion) = (HopIndex(circuit.last_hop()), circuit.congestion);
        let Some(leg) = &mut circuit.leg else {
            return;
        };
        let Some(set) = self.sets.get_mut(&leg.set) else {
            return;
        };
        if !congestion {
            self.log(Line::info(format!(
                "{id} cannot be a leg of a conflux set: its exit granted no congestion control"
            )));
            let end = EndOfCircuit::Destroy(DestroyReason::PROTOCOL);
            self.close_circuit(id, end, now);
            return;
        }
        leg.asked = Some(now.mono);
        set.asked = true;
        let kind = TunnelKind::Conflux {
            nonce: set.nonce,
            ux: set.ux,
        };
        let tunnel = leg.set;
        self.command(OriginCommand::Link {
            circuit: id,
            hop,
            tunnel,
            kind,
        });
    }

    /// The exit has linked a leg. One that is slow is replaced (`record_rtt`); and where circuits are accepted by their round
    /// trips, this is one.
    pub(super) fn on_linked(&mut self, id: OriginId, tunnel: OriginId, took: Duration, now: Now) {
        let times = self.chooser.timeouts();
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let Some(leg) = circuit.leg.as_mut().filter(|leg| leg.set == tunnel) else {
            return;
        };
        if leg.asked.take().is_none() {
            return;
        }
        leg.round_trip = Some(took);
        circuit.round_trip = Some(took);
        let in_limit = times.round_trip.is_none_or(|limit| took <= limit);
        if times.probe {
            self.probes.asked += 1;
            match in_limit {
                true => self.probes.accepted += 1,
                false => self.probes.slow += 1,
            }
            self.chooser.built(BuildNews::RoundTrip { took }, now);
        }
        if took >= times.timeout || !in_limit {
            let took = took.as_millis();
            let line = format!("{id} is too slow for a leg of a conflux set: {took} ms");
            self.log(Line::info(line));
            let end = EndOfCircuit::Destroy(DestroyReason::PROTOCOL);
            self.close_circuit(id, end, now);
            return;
        }
        self.finish_set(tunnel, now);
    }

    /// Puts a set among the circuits when all its legs are linked (`try_finalize_set`).
    fn finish_set(&mut self, id: OriginId, now: Now) {
        let Some(set) = self.sets.get(&id).filter(|set| !set.linked) else {
            return;
        };
        let legs = set.legs.clone();
        let linked = |leg: &&OriginId| {
            let leg = self.circuits.get(leg).and_then(|circuit| circuit.leg);
            leg.is_some_and(|leg| leg.round_trip.is_some())
        };
        if legs.len() < set.wanted || legs.iter().filter(linked).count() < legs.len() {
            return;
        }
        let unusable = set.unusable;
        let Some(first) = legs.first().and_then(|leg| self.circuits.get(leg)) else {
            return;
        };
        let relaxed = legs
            .iter()
            .filter_map(|leg| self.circuits.get(leg))
            .any(|circuit| circuit.relaxed);
        let whole = Circuit {
            id,
            purpose: CircuitPurpose::ConfluxSet,
            stage: Stage::Open,
            hops: first.hops.clone(),
            built: first.built,
            exit: first.exit.clone(),
            stable: true,
            guard: None,
            created: first.created,
            created_wall: first.created_wall,
            began: None,
            took: None,
            probed: None,
            congestion: true,
            leg: None,
            round_trip: None,
            dirty: None,
            unusable,
            relaxed,
            isolation: CircuitIsolation::default(),
            weighed: Vec::new(),
            uses: 0,
            streams: std::collections::BTreeSet::new(),
            idle: first.idle,
            refused: Vec::new(),
        };
        self.circuits.insert(id, whole);
        if let Some(set) = self.sets.get_mut(&id) {
            set.linked = true;
        }
        for leg in legs {
            self.change_purpose(leg, CircuitPurpose::ConfluxLinked);
        }
        self.log(Line::info(format!("The conflux set {id} is ready")));
        self.serve(now);
    }

    /// A leg is only measured from now on.
    pub(super) fn leave_set(&mut self, id: OriginId, now: Now) {
        let circuit = self.circuits.get_mut(&id);
        if let Some(leg) = circuit.and_then(|circuit| circuit.leg.take()) {
            self.on_leg_gone(leg.set, id, now);
        }
    }

    /// A circuit is no leg of its set any more (`conflux_circuit_has_closed`). Before the set is complete, another takes its
    /// place. Afterwards the connection threads decide whether the set ends, or goes on with what it has.
    pub(super) fn on_leg_gone(&mut self, set_id: OriginId, leg: OriginId, now: Now) {
        let Some(set) = self.sets.get_mut(&set_id) else {
            return;
        };
        set.legs.retain(|other| *other != leg);
        match (set.legs.is_empty(), set.linked) {
            (true, true) => self.close_set(set_id, now),
            (true, false) => self.give_up_set(set_id, now),
            (false, true) => {}
            (false, false) => self.mend_set(set_id, now),
        }
    }

    /// A tunnel has ended on the connection threads; the ends of its legs and streams are reported one by one. What ends before
    /// all legs are linked is distinguished from those: the same name may be a tunnel's again.
    pub(super) fn on_set_closed(&mut self, id: OriginId, now: Now) {
        if self.sets.get(&id).is_some_and(|set| set.linked) {
            self.sets.remove(&id);
            self.circuits.remove(&id);
            self.serve(now);
        }
    }

    /// Ends a set and its legs.
    pub(super) fn close_set(&mut self, id: OriginId, now: Now) {
        let Some(set) = self.sets.remove(&id) else {
            return;
        };
        self.circuits.remove(&id);
        if set.asked {
            self.command(OriginCommand::CloseCircuit {
                circuit: id,
                reason: DestroyReason::FINISHED,
            });
        }
        for leg in set.legs {
            let end = EndOfCircuit::Destroy(DestroyReason::FINISHED);
            self.close_circuit(leg, end, now);
        }
    }

    /// Sets take no more streams; those that are not complete are closed in the next turn.
    pub(super) fn abandon_sets(&mut self) {
        for (id, set) in &mut self.sets {
            set.unusable = true;
            if let Some(circuit) = self.circuits.get_mut(id) {
                circuit.unusable = true;
            }
        }
        self.no_sets_until = None;
    }

    /// The same where torrc has sets no more.
    pub(super) fn drop_unwanted_sets(&mut self) {
        let by_weight = self.config.selection != CircuitSelection::Default;
        if self.config.conflux == Some(false) || by_weight {
            self.abandon_sets();
        }
    }

    /// Sets and legs that wait for nothing: those of sets that are given up, those whose sets have ended, and those that
    /// the exit does not link.
    pub(super) fn check_sets(&mut self, now: Now) {
        let abandoned: Vec<OriginId> = self
            .sets
            .iter()
            .filter(|(_, set)| set.unusable && !set.linked)
            .map(|(id, _)| *id)
            .collect();
        for id in abandoned {
            self.close_set(id, now);
        }
        let times = self.chooser.timeouts();
        let mut over = Vec::new();
        for circuit in self.circuits.values() {
            let Some(leg) = circuit.leg else {
                continue;
            };
            if !self.sets.contains_key(&leg.set) {
                over.push((circuit.id, DestroyReason::FINISHED));
            } else if leg
                .asked
                .is_some_and(|asked| now.since(asked) >= times.close)
            {
                over.push((circuit.id, DestroyReason::TIMEOUT));
            }
        }
        for (id, reason) in over {
            self.close_circuit(id, EndOfCircuit::Destroy(reason), now);
        }
    }
}

/// The path of another leg to this exit: its guard and its middle relay are none of those of the others' hops.
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
