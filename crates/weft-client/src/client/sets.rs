//! Sets of circuits to one exit, whatever their policy: their legs are circuits, which are linked once they are built; and a
//! set that carries streams stands among the circuits under the name of its tunnel. The connection threads spread what its
//! streams send, and put together what arrives.

use std::time::Duration;

use weft_cell::reason::DestroyReason;
use weft_core::address::HopIndex;
use weft_core::origin::{OriginCommand, OriginId};
use weft_log::Line;

use crate::chooser::{BuildNews, Chooser, Chosen};
use crate::circuits::{Circuit, Hop, Leg, Plan, Set, Stage};
use crate::events::{CircuitPurpose, EndOfCircuit};
use crate::isolation::CircuitIsolation;
use crate::now::Now;

use super::Client;

impl<C: Chooser> Client<C> {
    /// The number of a set's legs; 0: it is not a set.
    pub(super) fn legs_of(&self, id: OriginId) -> usize {
        self.sets.get(&id).map_or(0, |set| set.legs.len())
    }

    /// Launches a leg over a path that was chosen for it. False: its handshake cannot be begun.
    pub(super) fn launch_leg(
        &mut self,
        set_id: OriginId,
        path: Chosen<C::Guard>,
        now: Now,
    ) -> bool {
        let Some(set) = self.sets.get(&set_id) else {
            return false;
        };
        let (purpose, stable) = match set.is_conflux() {
            true => (CircuitPurpose::ConfluxUnlinked, true),
            false => (CircuitPurpose::MtorUnlinked, false),
        };
        let leg = Leg::new(set_id, set.nonce);
        let guard = path.guard.clone();
        let plan = Plan {
            hops: path.hops.iter().map(Hop::from).collect(),
            exit: path.hops.last().cloned(),
            guard: path.guard,
            stable,
        };
        let id = match self.launch_as(plan, purpose, Some(leg), now) {
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

    /// The legs of a set, as circuits.
    pub(super) fn legs(&self, id: OriginId) -> impl Iterator<Item = (&Circuit<C::Guard>, Leg)> {
        let legs = self.sets.get(&id).map(|set| set.legs.as_slice());
        legs.unwrap_or_default().iter().filter_map(|leg| {
            let circuit = self.circuits.get(leg)?;
            Some((circuit, circuit.leg?))
        })
    }

    /// Links the legs that are built and wait for the first.
    fn link_waiting(&mut self, id: OriginId, now: Now) {
        let waiting: Vec<OriginId> = self
            .legs(id)
            .filter(|(circuit, leg)| circuit.is_open() && !leg.is_linked() && leg.asked.is_none())
            .map(|(circuit, _)| circuit.id)
            .collect();
        for leg in waiting {
            self.link(leg, now);
        }
    }

    /// A leg is built: the exit is asked to link it (`conflux_circuit_has_opened`), unless another leg is
    /// asking for a tunnel that this one is to join.
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
        if set.is_conflux() && !congestion {
            self.log(Line::info(format!(
                "{id} cannot be a leg of a conflux set: its exit granted no congestion control"
            )));
            let end = EndOfCircuit::Destroy(DestroyReason::PROTOCOL);
            self.close_circuit(id, end, now);
            return;
        }
        if !set.may_ask(id) {
            return;
        }
        leg.asked = Some(now.mono);
        set.asked = true;
        let kind = set.kind();
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
        let Some(set) = self.sets.get_mut(&tunnel) else {
            return;
        };
        set.note_linked();
        let is_conflux = set.is_conflux();
        self.link_waiting(tunnel, now);
        if !is_conflux {
            self.on_mtor_linked(tunnel, id, now);
            return;
        }
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
            leg.is_some_and(|leg| leg.is_linked())
        };
        if legs.len() < set.wanted || legs.iter().filter(linked).count() < legs.len() {
            return;
        }
        self.admit_set(id, CircuitPurpose::ConfluxSet, now);
        for leg in legs {
            self.change_purpose(leg, CircuitPurpose::ConfluxLinked);
        }
        self.log(Line::info(format!("The conflux set {id} is ready")));
        self.serve(now);
    }

    /// Puts a set among the circuits, with the relays of its first leg.
    pub(super) fn admit_set(&mut self, id: OriginId, purpose: CircuitPurpose, now: Now) {
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        let legs: Vec<_> = (set.legs.iter())
            .filter_map(|leg| self.circuits.get(leg))
            .collect();
        let Some(first) = legs.first() else {
            return;
        };
        let whole = Circuit {
            id,
            purpose,
            stage: Stage::Open,
            hops: first.hops.clone(),
            built: first.built,
            exit: first.exit.clone(),
            stable: first.stable,
            guard: None,
            created: now.mono,
            created_wall: now.wall,
            began: None,
            link: None,
            took: None,
            probed: None,
            congestion: first.congestion,
            leg: None,
            round_trip: None,
            dirty: None,
            unusable: set.unusable,
            relaxed: set.is_conflux() && legs.iter().any(|circuit| circuit.relaxed),
            isolation: CircuitIsolation::default(),
            weighed: Vec::new(),
            uses: 0,
            streams: std::collections::BTreeSet::new(),
            idle: first.idle,
            refused: Vec::new(),
        };
        set.linked = true;
        self.circuits.insert(id, whole);
    }

    /// A leg is only measured from now on.
    pub(super) fn leave_set(&mut self, id: OriginId, now: Now) {
        let circuit = self.circuits.get_mut(&id);
        if let Some(leg) = circuit.and_then(|circuit| circuit.leg.take()) {
            self.on_leg_gone(leg, id, false, now);
        }
    }

    /// A circuit has ceased to be a leg of its set (`conflux_circuit_has_closed`). Before the set
    /// is complete, another takes its place. Afterwards the connection threads decide whether the
    /// set ends, or continues with its other legs. `refused`: it was closed while it was being
    /// linked.
    pub(super) fn on_leg_gone(&mut self, leg: Leg, circuit: OriginId, refused: bool, now: Now) {
        let set_id = leg.set;
        let Some(set) = self.sets.get_mut(&set_id) else {
            return;
        };
        set.legs.retain(|other| *other != circuit);
        let is_conflux = set.is_conflux();
        let alone = !self.legs(set_id).any(|(_, leg)| leg.is_linked());
        if let Some(set) = self.sets.get_mut(&set_id) {
            set.note_gone(circuit, refused, alone);
        }
        self.link_waiting(set_id, now);
        if !is_conflux {
            self.on_mtor_leg_gone(leg, now);
            return;
        }
        let Some(set) = self.sets.get(&set_id) else {
            return;
        };
        match (set.legs.is_empty(), set.linked) {
            (true, true) => self.close_set(set_id, now),
            (true, false) => self.give_up_set(set_id, now),
            (false, true) => {}
            (false, false) => self.mend_set(set_id, now),
        }
    }

    /// A tunnel has ended on the connection threads; the ends of its legs and streams are reported
    /// one by one. A set that ends before all its legs are linked is handled differently: a new
    /// tunnel may get the same identifier.
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

    /// Some sets take no more streams; those that carried none yet are closed in the next turn.
    pub(super) fn abandon_sets(&mut self, which: impl Fn(&Set) -> bool) {
        for (id, set) in self.sets.iter_mut().filter(|(_, set)| which(set)) {
            set.unusable = true;
            if let Some(circuit) = self.circuits.get_mut(id) {
                circuit.unusable = true;
            }
        }
        self.no_sets_until = None;
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
