//! ABRA: relays are asked how scarce their bandwidth is, and streams get circuits by the answers (docs/extensions/abra.md;
//! Schrock 2017, 3.2).

use weft_core::address::{ConnectionId, HopIndex};
use weft_core::origin::{OriginCommand, OriginId};
use weft_log::Line;
use weft_path::{Candidate, CircuitSelection, choose};

use crate::chooser::Chooser;
use crate::circuits::{Circuit, StatementCounts};
use crate::events::CircuitPurpose;
use crate::now::Now;
use crate::streams::StreamKind;

use super::Client;

impl<C: Chooser> Client<C> {
    /// Counters of relays' statements so far.
    pub fn statements(&self) -> StatementCounts {
        self.weights.counts
    }

    /// Relays whose weights are remembered.
    #[cfg(test)]
    pub(super) fn weighed_relays(&self) -> usize {
        self.weights.len()
    }

    /// The weight of an open circuit, in 1/(Mbit/s), if streams get circuits by their weights.
    pub(super) fn weight_of(&self, circuit: &Circuit<C::Guard>, now: Now) -> Option<f64> {
        let is_asked = !circuit.weighed.is_empty();
        is_asked.then(|| self.candidate(circuit, now).weight)
    }

    /// A circuit as one that a stream may use.
    fn candidate(&self, circuit: &Circuit<C::Guard>, now: Now) -> Candidate {
        let bandwidths = circuit.hops.iter().map(|hop| hop.bandwidth);
        let bandwidth = bandwidths.min().unwrap_or(0) as f64;
        self.weights.candidate(&circuit.weighed, bandwidth, now)
    }

    /// A circuit is open: those of its relays that announce it are asked for their weights.
    pub(super) fn ask_weights(&mut self, id: OriginId) {
        let Some(circuit) = self.circuits.get_mut(&id) else {
            return;
        };
        let wanted = self.config.selection.asks_weights()
            && circuit.purpose == CircuitPurpose::General
            && circuit.is_open()
            && circuit.weighed.is_empty();
        if !wanted {
            return;
        }
        circuit.weighed = self.weights.enter(&circuit.hops);
        let hops = circuit.hops.iter().enumerate();
        let serving = hops.filter(|(_, hop)| hop.abra && hop.ed25519.is_some());
        let asked: Vec<usize> = serving.map(|(place, _)| place).collect();
        for place in asked {
            self.weights.counts.asked += 1;
            self.command(OriginCommand::AskWeight {
                circuit: id,
                hop: HopIndex::from_index(place),
            });
        }
    }

    /// Asks the relays of all circuits for their weights: the settings have changed.
    pub(super) fn ask_all_weights(&mut self) {
        let all: Vec<OriginId> = self.circuits.keys().copied().collect();
        for id in all {
            self.ask_weights(id);
        }
    }

    /// A hop stated its weight.
    pub(super) fn on_weight(&mut self, id: OriginId, hop: HopIndex, statement: &[u8], now: Now) {
        let Some(circuit) = self.circuits.get(&id) else {
            return;
        };
        let place = circuit.weighed.get(hop.index());
        let (Some(place), Some(relay)) = (place, circuit.hops.get(hop.index())) else {
            return;
        };
        let identity = match (self.config.check_statements, relay.ed25519) {
            (false, _) => None,
            // One that cannot be checked was not asked, and does not count.
            (true, None) => return,
            (true, known) => known,
        };
        let nickname = relay.nickname.clone();
        let result = (self.weights).state(*place, statement, identity.as_ref(), now);
        if let Err(why) = result
            && let Some(more) = self.ignored.check(now.mono)
        {
            self.log(Line::warn(format!(
                "Ignoring what the relay {nickname} states of its bandwidth: {why}{more}"
            )));
        }
    }

    /// A circuit by weight: of those that a stream may use, but for slow ones where there are others.
    pub(super) fn lightest_circuit(&mut self, stream: ConnectionId, now: Now) -> Option<OriginId> {
        let stream = self.streams.get(&stream)?;
        if matches!(stream.kind, StreamKind::Directory(_)) {
            return self.best_circuit(stream, true, now);
        }
        if self.config.selection == CircuitSelection::AbraStay
            && let Some(circuit) = self.best_circuit(stream, true, now)
            && let Some(best) = self.circuits.get(&circuit)
            && self.candidate(best, now).weight <= 0.0
        {
            return Some(circuit);
        }
        let acceptable = self.circuits.values();
        let acceptable: Vec<_> = acceptable
            .filter(|circuit| circuit.is_open() && !circuit.is_set())
            .filter(|circuit| self.is_acceptable(circuit, stream, now))
            .collect();
        let some_fast = acceptable.iter().any(|circuit| !circuit.relaxed);
        let (ids, candidates): (Vec<OriginId>, Vec<Candidate>) = acceptable
            .into_iter()
            .filter(|circuit| !(circuit.relaxed && some_fast))
            .map(|circuit| (circuit.id, self.candidate(circuit, now)))
            .unzip();
        let place = choose(&candidates, &mut self.rng)?;
        ids.get(place).copied()
    }
}
