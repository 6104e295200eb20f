//! Circuit-RTT: circuits are measured once they are built, and those whose round trip takes too long are not used
//! (docs/extensions/circuit-rtt.md; Schrock 2017, 4.2).

use std::time::Duration;

use rand::RngExt as _;
use weft_cell::reason::DestroyReason;
use weft_core::origin::{OriginCommand, OriginId};
use weft_log::Line;

use crate::chooser::{BuildNews, Chooser};
use crate::circuits::Stage;
use crate::events::{CircuitPurpose, EndOfCircuit};
use crate::now::Now;

use super::Client;

/// Counters of measured circuits, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Circuits that were measured or are being measured.
    pub asked: u64,
    /// Answers that came within the limit, or before there was one.
    pub accepted: u64,
    /// Answers that took too long.
    pub slow: u64,
    /// Answers by which an exit does not show that it had read the request.
    pub unproven: u64,
    /// Requests without an answer.
    pub unanswered: u64,
}

impl<C: Chooser> Client<C> {
    /// Counters of measured circuits so far.
    pub fn probes(&self) -> ProbeCounts {
        self.probes
    }

    /// A circuit is built and its guard is settled: it is opened, or measured before; or both at once, while too little is
    /// known for a limit.
    pub(super) fn probe_or_open(&mut self, id: OriginId, now: Now) {
        let times = self.chooser.timeouts();
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let wanted = times.probe
            && circuit.purpose == CircuitPurpose::General
            && circuit.hops.len() == 3
            && circuit.probed.is_none()
            && circuit.round_trip.is_none();
        if wanted {
            circuit.probed = Some(now.mono);
            if times.round_trip.is_some() {
                circuit.stage = Stage::Probing;
            }
            self.probes.asked += 1;
            let nonce = self.rng.random();
            self.command(OriginCommand::Probe { circuit: id, nonce });
        }
        if !wanted || times.round_trip.is_none() {
            self.open(id, now);
        }
    }

    /// The last hop of a circuit answered.
    pub(super) fn on_probed(&mut self, id: OriginId, took: Duration, refused: bool, now: Now) {
        let limit = self.chooser.timeouts().round_trip;
        let any_open = self.is_any_open();
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        if circuit.probed.take().is_none() {
            return;
        }
        let fast = limit.is_none_or(|limit| took <= limit);
        if refused {
            circuit.round_trip = Some(took);
            match fast {
                true => self.probes.accepted += 1,
                false => self.probes.slow += 1,
            }
            self.chooser.built(BuildNews::RoundTrip { took }, now);
        } else {
            // It may have been sent before the request was there.
            self.probes.unproven += 1;
            self.log(Line::info(format!(
                "{id} cannot be measured: its exit gave another answer than that it must give"
            )));
        }
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        if !matches!(circuit.stage, Stage::Probing) {
            return;
        }
        let accepted = fast && refused;
        match circuit.purpose {
            CircuitPurpose::General if !accepted && any_open => {
                self.give_up(id, now);
                self.close_circuit(id, EndOfCircuit::MeasurementExpired, now);
            }
            CircuitPurpose::Measure => {
                self.close_circuit(id, EndOfCircuit::MeasurementExpired, now);
            }
            _ => {
                circuit.relaxed |= !accepted;
                self.open(id, now);
            }
        }
    }

    /// A circuit is measured on, but is not used.
    fn give_up(&mut self, id: OriginId, now: Now) {
        self.change_purpose(id, CircuitPurpose::Measure);
        self.launches.note_timeout();
        self.serve(now);
    }

    /// Circuits whose answers take too long, or do not come.
    pub(super) fn check_probes(&mut self, now: Now) {
        let times = self.chooser.timeouts();
        let any_open = self.is_any_open();
        let (mut late, mut unanswered) = (Vec::new(), Vec::new());
        for circuit in self.circuits.values() {
            let Some(asked) = circuit.probed else {
                continue;
            };
            let age = now.since(asked);
            if age >= times.close {
                unanswered.push((circuit.id, age));
            } else if any_open
                && matches!(circuit.stage, Stage::Probing)
                && circuit.purpose == CircuitPurpose::General
                && times.round_trip.is_some_and(|limit| age > limit)
            {
                late.push(circuit.id);
            }
        }
        for id in late {
            self.give_up(id, now);
        }
        for (id, took) in unanswered {
            self.on_unanswered(id, took, now);
        }
    }

    /// The last hop of a circuit has not answered within `took`.
    fn on_unanswered(&mut self, id: OriginId, took: Duration, now: Now) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        circuit.probed = None;
        let waits = matches!(circuit.stage, Stage::Probing);
        self.probes.unanswered += 1;
        self.chooser.built(BuildNews::RoundTrip { took }, now);
        if waits {
            self.log(Line::info(format!(
                "Abandoning {id}: its exit does not answer"
            )));
            let end = EndOfCircuit::Destroy(DestroyReason::TIMEOUT);
            self.close_circuit(id, end, now);
        }
    }
}
