//! Circuits from their launch to their end (C tor's circuitbuild.c and the first half of
//! circuituse.c).

use std::collections::BTreeSet;
use std::time::Duration;

use rand::RngExt as _;
use weft_cell::circ_msg::CreateReply;
use weft_cell::reason::DestroyReason;
use weft_core::address::ConnectionId;
use weft_core::origin::{HopFlow, OriginCommand, OriginId};
use weft_log::Line;
use weft_path::{GuardUse, Outcome, PathError, Usage};
use weft_planted::{Fault, planted};

use crate::chooser::{BuildNews, Chooser};
use crate::circuits::{BuildError, Circuit, Hop, HopHandshake, Leg, Plan, Silence, Stage, extend2};
use crate::events::{
    CircuitEnd, CircuitInfo, CircuitPurpose, CircuitStatus, ClientEvent, EndOfCircuit,
};
use crate::isolation::CircuitIsolation;

use crate::now::Now;

use super::Client;

impl<C: Chooser> Client<C> {
    /// Chooses relays and launches a circuit.
    pub(super) fn launch(
        &mut self,
        usage: &Usage,
        purpose: CircuitPurpose,
        now: Now,
    ) -> Result<OriginId, PathError> {
        let chosen = self.chooser.path(usage, now, &mut self.rng)?;
        let stable = match usage {
            Usage::Exit(wanted) => {
                wanted.stable
                    || wanted
                        .ports
                        .iter()
                        .any(|port| self.config.long_lived_ports.contains(&port.port))
            }
            Usage::Leg(_) => true,
            Usage::Internal { stable } => *stable,
            Usage::Directory | Usage::Exact(_) => false,
        };
        let plan = Plan {
            hops: chosen.hops.iter().map(Hop::from).collect(),
            exit: chosen.hops.last().cloned(),
            guard: chosen.guard,
            stable,
        };
        self.launch_plan(plan, purpose, now).map_err(|error| {
            self.log(Line::warn(format!("Could not begin a circuit: {error}")));
            PathError::BadPath
        })
    }

    /// Launches a circuit over given relays.
    pub(super) fn launch_plan(
        &mut self,
        plan: Plan<C::Guard>,
        purpose: CircuitPurpose,
        now: Now,
    ) -> Result<OriginId, BuildError> {
        self.launch_as(plan, purpose, None, now)
    }

    /// Launches a circuit, perhaps as a leg of a conflux set or a tunnel.
    pub(super) fn launch_as(
        &mut self,
        plan: Plan<C::Guard>,
        purpose: CircuitPurpose,
        leg: Option<Leg>,
        now: Now,
    ) -> Result<OriginId, BuildError> {
        let congestion = self.congestion_for(plan.hops.len());
        let first = plan.hops.first().ok_or(BuildError::WrongReply)?;
        let (handshake, create) = HopHandshake::start(first, congestion, &mut self.rng)?;
        if plan.hops.len() > 1 {
            self.launches.note_launch(now.mono);
        }
        self.last_circuit += 1;
        let id = OriginId(self.last_circuit);
        let first = first.link();
        let remaining = self.predicted.remaining(self.config.predict_for, now.mono);
        // Up to a twentieth more, so that not all end at once.
        let more = self.rng.random_range(0..=remaining.as_secs() / 20);
        let circuit = Circuit {
            id,
            purpose,
            stage: Stage::Building(Some(handshake)),
            hops: plan.hops,
            built: 0,
            exit: plan.exit,
            stable: plan.stable,
            guard: plan.guard,
            created: now.mono,
            created_wall: now.wall,
            began: None,
            link: None,
            took: None,
            probed: None,
            congestion: false,
            leg,
            round_trip: None,
            dirty: None,
            unusable: false,
            relaxed: false,
            isolation: CircuitIsolation::default(),
            weighed: Vec::new(),
            uses: 0,
            streams: BTreeSet::new(),
            idle: remaining + Duration::from_secs(1 + more),
            refused: Vec::new(),
        };
        self.emit_circuit(&circuit, None);
        self.circuits.insert(id, circuit);
        self.command(OriginCommand::Launch {
            circuit: id,
            first,
            create,
        });
        Ok(id)
    }

    /// The consensus' cc_sendme_inc, if the circuit has several hops. Each of them is asked, though the last one alone has
    /// streams: Counter Galois Onion, which keeps relays from marking cells, is granted with congestion control only
    /// (TROVE-2026-033).
    fn congestion_for(&self, hops: usize) -> Option<u8> {
        self.chooser.congestion().filter(|_| hops > 1)
    }

    /// The CREATE was sent.
    pub(super) fn on_launched(&mut self, id: OriginId, link: ConnectionId, now: Now) {
        if let Some(circuit) = self.circuits.get_mut(&id) {
            circuit.began = Some(now.mono);
            circuit.link = Some(link);
        }
    }

    /// Handles the reply of a hop.
    pub(super) fn on_answered(&mut self, id: OriginId, reply: &CreateReply, now: Now) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let Stage::Building(handshake) = &mut circuit.stage else {
            return;
        };
        let Some(handshake) = handshake.take() else {
            return;
        };
        let hop = circuit.hops.get(circuit.built);
        let first = hop.filter(|_| circuit.built == 0).map(|hop| hop.rsa);
        let (keys, flow) = match handshake.finish(reply) {
            Ok(finished) => finished,
            Err(error) => {
                let nickname = hop.map_or("", |hop| &hop.nickname);
                let line = format!("{id}: the handshake with {nickname} failed: {error}");
                self.log(Line::info(line));
                let end = EndOfCircuit::Destroy(DestroyReason::PROTOCOL);
                self.close_circuit(id, end, now);
                return;
            }
        };
        if let Some(first) = first {
            self.first_hops.answered(&first);
        }
        circuit.built += 1;
        circuit.congestion = flow != HopFlow::Fixed;
        let built = circuit.built;
        let guard = circuit.guard.clone();
        if let Some(guard) = guard.filter(|_| built == 1 && circuit.hops.len() > 1) {
            let first = Outcome::FirstHop;
            self.chooser.guard(&guard, first, now, &mut self.rng);
        }
        let info = circuit.info();
        self.command(OriginCommand::AddHop {
            circuit: id,
            keys,
            flow,
        });
        // Of the last hop, too: BUILT follows.
        self.emit(ClientEvent::Circuit {
            circuit: info,
            reason: None,
        });
        self.check_build_time(id, now);
        self.extend_further(id, now);
    }

    /// Extends to the next hop, or completes the circuit.
    pub(super) fn extend_further(&mut self, id: OriginId, now: Now) {
        let Some(circuit) = self.circuits.get(&id) else {
            return;
        };
        let (built, total) = (circuit.built, circuit.hops.len());
        let Some(next) = circuit.hops.get(built) else {
            self.on_complete(id, now);
            return;
        };
        let congestion = self.congestion_for(total);
        let asked = HopHandshake::start(next, congestion, &mut self.rng)
            .and_then(|(state, create)| Ok((state, extend2(next, create)?)));
        match asked {
            Ok((state, extend2)) => {
                let Some(circuit) = self.circuits.get_mut(&id) else {
                    return;
                };
                circuit.stage = Stage::Building(Some(state));
                self.command(OriginCommand::Extend {
                    circuit: id,
                    extend2,
                });
            }
            Err(error) => {
                let line = format!("{id}: could not ask for hop {}: {error}", built + 1);
                self.log(Line::warn(line));
                let end = EndOfCircuit::Destroy(DestroyReason::INTERNAL);
                self.close_circuit(id, end, now);
            }
        }
    }

    /// The last hop has answered.
    fn on_complete(&mut self, id: OriginId, now: Now) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let measured = circuit.purpose == CircuitPurpose::Measure;
        let timed = (measured || circuit.purpose.is_for_streams()) && circuit.is_timed();
        let took = circuit.began.map(|began| now.since(began));
        circuit.took = circuit.took.or(took);
        // A circuit that a controller made longer was open before.
        circuit.stage = Stage::Waiting;
        let guard = circuit.guard.clone();
        if let Some(took) = took.filter(|_| timed) {
            let in_time = !measured;
            self.chooser.built(BuildNews::Built { took, in_time }, now);
        }
        if measured {
            let end = EndOfCircuit::MeasurementExpired;
            self.close_circuit(id, end, now);
            return;
        }
        let verdict = match guard {
            Some(guard) => self
                .chooser
                .guard(&guard, Outcome::Built, now, &mut self.rng),
            None => GuardUse::Now,
        };
        self.on_verdict(id, verdict, now);
        self.settle_guards(now);
    }

    /// Handles the verdict whether a circuit that is built may be used.
    pub(super) fn on_verdict(&mut self, id: OriginId, verdict: GuardUse, now: Now) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        if !matches!(circuit.stage, Stage::Waiting) {
            return;
        }
        match verdict {
            GuardUse::Now => {}
            GuardUse::Later => {
                let info = circuit.info();
                self.emit(ClientEvent::Circuit {
                    circuit: info,
                    reason: None,
                });
                return;
            }
            GuardUse::Never => {
                self.close_circuit(id, EndOfCircuit::GuardLimit, now);
                return;
            }
        }
        match circuit.purpose {
            CircuitPurpose::ConfluxUnlinked | CircuitPurpose::MtorUnlinked => {
                self.open(id, now);
                self.link(id, now);
            }
            _ => self.probe_or_open(id, now),
        }
    }

    /// A circuit carries streams from now on.
    pub(super) fn open(&mut self, id: OriginId, now: Now) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        circuit.stage = Stage::Open;
        // Before its isolation is cleared: the event names the user for whom it was built.
        let info = circuit.info();
        if circuit.streams.is_empty() && circuit.dirty.is_none() {
            // Streams that waited for it are tried again, in order.
            circuit.isolation.clear();
        }
        let several = circuit.hops.len() > 1;
        self.ask_weights(id);
        self.emit(ClientEvent::Circuit {
            circuit: info,
            reason: None,
        });
        if several {
            self.launches.note_success();
            if !self.established {
                self.established = true;
                self.emit(ClientEvent::Established(true));
            }
        }
        self.serve(now);
    }

    /// Handles circuits whose better guards have been reached, or not.
    pub(super) fn settle_guards(&mut self, now: Now) {
        for (guard, verdict) in self.chooser.settled_guards(now) {
            let waiting = self
                .circuits
                .values()
                .find(|circuit| circuit.guard.as_ref() == Some(&guard))
                .map(|circuit| circuit.id);
            if let Some(id) = waiting {
                self.on_verdict(id, verdict, now);
            }
        }
    }

    /// Handles the end of a circuit on the connection threads.
    pub(super) fn on_closed(
        &mut self,
        id: OriginId,
        reason: DestroyReason,
        remote: bool,
        now: Now,
    ) {
        if self.sets.contains_key(&id) {
            self.on_set_closed(id, now);
            return;
        }
        if !self.circuits.contains_key(&id) {
            return;
        }
        let end = CircuitEnd {
            reason: EndOfCircuit::Destroy(match remote {
                true => DestroyReason::DESTROYED,
                false => reason,
            }),
            remote: remote.then_some(reason),
        };
        self.remove_circuit(id, end, now);
    }

    /// Ends a circuit.
    pub(super) fn close_circuit(&mut self, id: OriginId, reason: EndOfCircuit, now: Now) {
        if !self.circuits.contains_key(&id) {
            return;
        }
        let destroy = match reason {
            EndOfCircuit::Destroy(reason) => reason,
            _ => DestroyReason::NONE,
        };
        self.command(OriginCommand::CloseCircuit {
            circuit: id,
            reason: destroy,
        });
        let end = CircuitEnd {
            reason,
            remote: None,
        };
        self.remove_circuit(id, end, now);
    }

    /// Removes a circuit that ended: updates its guard, the failures and the streams that wait. The
    /// connection threads report the end of its own streams one by one.
    fn remove_circuit(&mut self, id: OriginId, end: CircuitEnd, now: Now) {
        if planted(Fault::ClientKeepsCircuit) {
            return;
        }
        let Some(circuit) = self.circuits.remove(&id) else {
            return;
        };
        self.weights.leave(&circuit.weighed);
        let silent = self.check_first_hop(&circuit, end, now);
        let info = circuit.info();
        let failed = circuit.is_building();
        if failed {
            let remote = end
                .remote
                .map_or(String::new(), |remote| format!(" ({remote})"));
            self.log(Line::info(format!(
                "{id} failed with {} of {} hops: {}{remote}",
                circuit.built,
                circuit.hops.len(),
                end.reason.name(),
            )));
        }
        self.emit(ClientEvent::Circuit {
            circuit: CircuitInfo {
                status: match failed {
                    true => CircuitStatus::Failed,
                    false => CircuitStatus::Closed,
                },
                ..info
            },
            reason: Some(end),
        });
        if let Some(guard) = &circuit.guard {
            let outcome = fate(&circuit, end, silent);
            self.chooser.guard(guard, outcome, now, &mut self.rng);
            self.chooser.forget(guard);
        }
        let at_exit = circuit.built > 0 && circuit.built + 1 == circuit.hops.len();
        if let Some(exit) = circuit.exit.as_ref().filter(|_| failed && at_exit) {
            self.leave_unreachable_exit(&exit.rsa);
        }
        let killed = matches!(circuit.stage, Stage::Probing) && end.remote.is_some();
        if (failed || killed) && circuit.purpose == CircuitPurpose::General {
            self.launches.note_failure();
        }
        if circuit.purpose == CircuitPurpose::Directory && failed {
            self.fail_directory_streams(&circuit, end);
        }
        if let Some(leg) = circuit.leg {
            let refused = leg.asked.is_some() && end.remote.is_some();
            self.on_leg_gone(leg, id, refused, now);
        }
        self.settle_guards(now);
        self.serve(now);
    }

    /// Handles the end of a circuit whose first hop may not have answered. Returns what that shows of it.
    fn check_first_hop(
        &mut self,
        circuit: &Circuit<C::Guard>,
        end: CircuitEnd,
        now: Now,
    ) -> Option<Silence> {
        let first = circuit.hops.first().map(|hop| hop.rsa);
        let first = first.filter(|_| circuit.is_building() && circuit.built == 0)?;
        // An answer that does not prove the relay's key counts as no answer.
        let is_wrong = end.reason == EndOfCircuit::Destroy(DestroyReason::PROTOCOL);
        if end.remote.is_some() || is_wrong {
            return self.first_hops.refused(first, now.mono);
        }
        let (began, link) = (circuit.began?, circuit.link.filter(|_| is_late(end))?);
        let times = (began, now.mono);
        let silence = self.first_hops.silent(first, link, times)?;
        self.log(Line::info(format!(
            "{first} does not answer over a link that is open: new circuits get another one"
        )));
        self.command(OriginCommand::RetireLink { connection: link });
        Some(silence)
    }

    /// Returns true if circuits fail so often that none should be launched now.
    pub(super) fn is_launch_paused(&self, now: Now) -> bool {
        self.launches
            .is_paused(self.config.new_circuit_period, now.mono)
    }

    /// Emits the event of a circuit.
    fn emit_circuit(&mut self, circuit: &Circuit<C::Guard>, reason: Option<CircuitEnd>) {
        self.emit(ClientEvent::Circuit {
            circuit: circuit.info(),
            reason,
        });
    }
}

/// The outcome for the guard of a circuit that ended (C tor's `circuit_build_failed`).
fn fate<G>(circuit: &Circuit<G>, end: CircuitEnd, silent: Option<Silence>) -> Outcome {
    let ours = matches!(
        end.reason,
        EndOfCircuit::GuardLimit
            | EndOfCircuit::Destroy(DestroyReason::REQUESTED | DestroyReason::FINISHED)
    );
    // Files that are used up here are not the guard's fault.
    let full = end.reason == EndOfCircuit::Destroy(DestroyReason::RESOURCELIMIT);
    let unreachable = match circuit.began {
        None => end.remote.is_none() && !full,
        Some(_) => silent == Some(Silence::Unreachable),
    };
    match (circuit.is_building(), circuit.built) {
        (false, _) if end.remote.is_some() => Outcome::Collapsed,
        (false, _) => Outcome::Cancelled,
        (true, _) if ours => Outcome::Cancelled,
        // Only a connection that fails is the guard's fault, not a circuit over one that is open.
        (true, 0) if unreachable => Outcome::GuardFailed,
        (true, _) if is_late(end) => Outcome::TimedOut,
        (true, _) => Outcome::Failed,
    }
}

/// True for a circuit that was built for too long.
fn is_late(end: CircuitEnd) -> bool {
    matches!(
        end.reason,
        EndOfCircuit::MeasurementExpired | EndOfCircuit::Destroy(DestroyReason::TIMEOUT)
    )
}
