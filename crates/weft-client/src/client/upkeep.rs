//! Timeouts: circuits that take too long, are used up, or were never used (C tor's
//! `circuit_expire_building` and `circuit_expire_old_circuits_clientside`).

use std::time::Duration;

use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::origin::OriginId;
use weft_log::Line;

use crate::chooser::{BuildNews, Chooser};
use crate::events::{CircuitPurpose, ClientEvent, EndOfCircuit, StreamEnd};

use crate::circuits::{Stage, first_hops};
use crate::now::Now;

use super::Client;

/// The clocks may disagree by this (C tor's `NUM_JUMPED_SECONDS_BEFORE_WARN`).
const CLOCK_TOLERANCE: Duration = Duration::from_secs(100);

impl<C: Chooser> Client<C> {
    /// Call about once a second.
    pub fn tick(&mut self, now: Now) {
        self.check_clock(now);
        self.check_use(now);
        self.launches.tick(self.config.new_circuit_period, now.mono);
        self.check_stream_times(now);
        self.check_build_times(now);
        self.check_probes(now);
        self.close_used_up(now);
        self.settle_guards(now);
        self.serve(now);
        self.predict(now);
        self.check_outage(now);
    }

    /// Where the time of day and the monotonic clock disagree, the machine slept, or its clock was set. Circuits are older than
    /// they seem and perhaps dead: new streams get new ones (C tor's `circuit_note_clock_jumped`).
    fn check_clock(&mut self, now: Now) {
        let before = std::mem::replace(&mut self.ticked, now);
        let passed = now.since(before.mono);
        let astray = match now.wall.duration_since(before.wall) {
            Ok(by_day) => by_day.abs_diff(passed),
            Err(back) => back.duration().saturating_add(passed),
        };
        if astray >= CLOCK_TOLERANCE {
            let line = "The clock was set, or the machine slept: circuits so far are abandoned";
            self.log(Line::info(line));
            self.abandon_circuits();
            self.launches.forgive();
        }
    }

    /// Circuits that take too long.
    fn check_build_times(&mut self, now: Now) {
        let times = self.chooser.timeouts();
        let any_open = self.is_any_open();
        let (mut late, mut mute) = (Vec::new(), Vec::new());
        for circuit in self.circuits.values_mut() {
            // The time before the CREATE is the link's, which has its own end.
            let Some(began) = circuit.began.filter(|_| circuit.is_building()) else {
                continue;
            };
            let age = now.since(began);
            if circuit.built == 0 && circuit.link.is_some() && age >= first_hops::PATIENCE {
                mute.push(circuit.id);
                continue;
            }
            // As C tor: the timeout is that of three hops; four take more messages.
            let timeout = match (circuit.purpose, circuit.hops.len()) {
                // Slow relays are what a leg of mTor is to have.
                (CircuitPurpose::Measure | CircuitPurpose::MtorUnlinked, _) => times.close,
                (_, 0..=3) => times.timeout,
                (_, hops) => {
                    let hops = u32::try_from(hops).unwrap_or(u32::MAX);
                    let trips = hops.saturating_mul(hops + 1) / 2;
                    times.timeout * trips / 6 + Duration::from_secs(1)
                }
            };
            if age < timeout {
                continue;
            }
            if !any_open && age < times.close {
                if !circuit.relaxed {
                    circuit.relaxed = true;
                    late.push((circuit.id, true));
                }
                continue;
            }
            late.push((circuit.id, false));
        }
        for (id, relaxed) in late {
            self.on_late(id, relaxed, now);
        }
        for id in mute {
            self.on_mute(id, now);
        }
    }

    /// The first hop of a circuit does not answer, over a link that is open.
    fn on_mute(&mut self, id: OriginId, now: Now) {
        self.outage.late(now.mono);
        let Some(circuit) = self.circuits.get(&id) else {
            return;
        };
        let counted = circuit.purpose.is_for_streams() && circuit.is_timed();
        if counted && !circuit.relaxed {
            let first_hop = false;
            self.chooser.built(BuildNews::TimedOut { first_hop }, now);
        }
        let end = EndOfCircuit::Destroy(DestroyReason::TIMEOUT);
        self.close_circuit(id, end, now);
    }

    /// A hop of a circuit has answered. A circuit that has taken too long by now is only measured from here on, even if it is
    /// complete: otherwise it would be used where the timeout is shorter than the time from one tick to the next (C tor:
    /// `circuit_build_times_handle_completed_hop`).
    pub(super) fn check_build_time(&mut self, id: OriginId, now: Now) {
        let times = self.chooser.timeouts();
        let Some(circuit) = self.circuits.get(&id) else {
            return;
        };
        let is_late = circuit.purpose.is_for_streams()
            && circuit.is_timed()
            && circuit.is_building()
            && circuit
                .began
                .is_some_and(|began| now.since(began) > times.timeout);
        if !is_late || !times.measure || !self.is_any_open() {
            return;
        }
        if circuit.relaxed {
            // It was counted when its time was extended.
            self.change_purpose(id, CircuitPurpose::Measure);
            self.leave_set(id, now);
        } else {
            self.on_late(id, false, now);
        }
    }

    /// Returns true if some open circuit of several hops can carry streams.
    pub(super) fn is_any_open(&self) -> bool {
        let mut circuits = self.circuits.values();
        circuits.any(|circuit| circuit.is_open() && circuit.hops.len() > 1)
    }

    /// Handles a circuit that took too long: it is counted, measured further, or closed.
    fn on_late(&mut self, id: OriginId, relaxed: bool, now: Now) {
        self.outage.late(now.mono);
        let times = self.chooser.timeouts();
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let first_hop = circuit.built > 0;
        let counted = circuit.purpose.is_for_streams() && circuit.is_timed();
        if relaxed {
            let line = format!("No circuits are opened. Relaxing timeout for {id}.");
            self.log(Line::info(line));
            if counted {
                self.chooser.built(BuildNews::TimedOut { first_hop }, now);
            }
            return;
        }
        if circuit.purpose == CircuitPurpose::Measure {
            // A first hop that does not answer says nothing about circuit build times.
            if first_hop {
                let began = circuit.began.unwrap_or(circuit.created);
                self.chooser.built(BuildNews::Abandoned { began }, now);
            }
            self.close_circuit(id, EndOfCircuit::MeasurementExpired, now);
            return;
        }
        if counted && !circuit.relaxed {
            self.chooser.built(BuildNews::TimedOut { first_hop }, now);
            if times.measure {
                self.change_purpose(id, CircuitPurpose::Measure);
                self.launches.note_timeout();
                self.leave_set(id, now);
                self.serve(now);
                return;
            }
        }
        let line = format!("Abandoning {id}: building it took too long");
        self.log(Line::info(line));
        let end = EndOfCircuit::Destroy(DestroyReason::TIMEOUT);
        self.close_circuit(id, end, now);
    }

    /// Gives a circuit another purpose.
    pub(super) fn change_purpose(&mut self, id: OriginId, purpose: CircuitPurpose) {
        if let Some(circuit) = self.circuits.get_mut(&id) {
            let was = std::mem::replace(&mut circuit.purpose, purpose);
            let circuit = circuit.info();
            if was != purpose {
                self.emit(ClientEvent::Purpose { circuit, was });
            }
        }
    }

    /// Circuits that are used up, and those that were made for nothing.
    fn close_used_up(&mut self, now: Now) {
        let mut over = Vec::new();
        for circuit in self.circuits.values() {
            if circuit.purpose.is_leg() || !circuit.streams.is_empty() {
                continue;
            }
            let is_over = match circuit.dirty {
                Some(_) => {
                    circuit.unusable || circuit.is_too_dirty(self.config.max_dirtiness, now.mono)
                }
                None if circuit.purpose == CircuitPurpose::Controller => false,
                None => match circuit.stage {
                    Stage::Building(_) | Stage::Probing => false,
                    Stage::Open | Stage::Waiting => {
                        circuit.unusable || now.since(circuit.created) >= circuit.idle
                    }
                },
            };
            // A controller's circuits are its own to close, unless streams have used them up.
            let keeps = circuit.purpose == CircuitPurpose::Controller && !circuit.unusable;
            if is_over && !(keeps && circuit.dirty.is_none()) && !circuit.is_building() {
                over.push(circuit.id);
            }
        }
        for id in over {
            let end = EndOfCircuit::Destroy(DestroyReason::FINISHED);
            match self.sets.contains_key(&id) {
                true => self.close_set(id, now),
                false => self.close_circuit(id, end, now),
            }
        }
        self.check_sets(now);
        self.check_tunnels(now);
    }

    /// Closes all circuits and streams: the network is disabled, or the node stops.
    pub fn close_all(&mut self, now: Now) {
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for id in streams {
            self.end(id, StreamEnd::Local(EndReason::MISC));
        }
        let sets: Vec<_> = self.sets.keys().copied().collect();
        for id in sets {
            self.close_set(id, now);
        }
        let circuits: Vec<_> = self.circuits.keys().copied().collect();
        for id in circuits {
            let end = EndOfCircuit::Destroy(DestroyReason::FINISHED);
            self.close_circuit(id, end, now);
        }
        if std::mem::take(&mut self.established) {
            self.emit(ClientEvent::Established(false));
        }
    }
}
