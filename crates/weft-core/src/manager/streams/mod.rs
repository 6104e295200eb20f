//! A half's side of its streams (tor-spec 6, 7.3, 7.4; Engler and Goldberg 2021, 4.2, 4.4): here what
//! arrives from the circuit for a stream, in `sending` what edges send, in `asked` how streams begin,
//! in `ended` how they end, and in `probe` the stream by which a circuit is measured.

mod asked;
mod ended;
mod probe;
mod sending;

use std::time::Instant;

use weft_cell::relay::RelayBody;
use weft_cell::relay_command::StreamMessage;
use weft_cell::stream_msg::Sendme;
use weft_cell::{Cell, RelayCmd};

use super::LocalConnectionManager;
use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{CircuitHalf, Role};
use crate::slots::HalfKey;

impl LocalConnectionManager {
    /// A message of a stream, or a SENDME of the circuit, from a hop.
    pub(super) fn on_stream_message(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        message: StreamMessage,
        cell: Box<Cell>,
        now: Instant,
    ) {
        let body = RelayBody::new(cell.body());
        let stream = body.stream_id();
        let Ok(length) = body.data().map(<[u8]>::len) else {
            self.pool.put(cell);
            return self.protocol_error(slot, "a relay message longer than its cell", now);
        };
        if stream == 0 {
            match message {
                StreamMessage::Sendme => self.on_circuit_sendme(slot, hop, &cell, now),
                StreamMessage::Data
                | StreamMessage::End
                | StreamMessage::Connected
                | StreamMessage::Resolved
                | StreamMessage::Xoff
                | StreamMessage::Xon => {
                    self.protocol_error(slot, "a stream message for no stream", now);
                }
            }
            self.pool.put(cell);
            return;
        }
        let counts = message == StreamMessage::Data && !self.is_tunnel(slot);
        if counts && !self.count_data(slot, hop, now) {
            self.pool.put(cell);
            return;
        }
        let from = self.halves.addr(slot);
        let half = self.halves.get_mut(slot);
        let (Some(from), Some((streams, traffic))) =
            (from, half.and_then(CircuitHalf::streams_and_traffic))
        else {
            self.pool.put(cell);
            return self.on_stray(slot, now);
        };
        let Some(edge) = streams.edge(stream, hop) else {
            return self.on_message_without_edge(from, hop, message, cell, now);
        };
        let at_relay = traffic.is_none();
        if let Some(traffic) = traffic {
            if !streams.may_answer(stream, message) {
                self.pool.put(cell);
                let what = "CONNECTED to RESOLVE, or RESOLVED to something else";
                return self.protocol_error(slot, what, now);
            }
            traffic.note_valid(length);
        }
        let ends = message.ends_stream();
        if ends {
            streams.remove(stream, &mut self.pool);
            if at_relay {
                streams.ended.far_end_ended();
            }
        }
        self.send_to_edge(from, edge, cell, now);
        if ends {
            // What it was lent, others may have.
            self.package(slot, hop, now);
        }
    }

    /// Whether a half is a tunnel: what arrives there was counted on a leg.
    fn is_tunnel(&self, slot: HalfKey) -> bool {
        let half = self.halves.get(slot);
        half.is_some_and(|half| matches!(half.role, Role::Tunnel(_)))
    }

    /// Counts a DATA cell against the circuit's window, and answers it with a SENDME when one is
    /// due. False: the circuit is no more.
    pub(in crate::manager) fn count_data(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        now: Instant,
    ) -> bool {
        let Some(half) = self.halves.get_mut(slot) else {
            return false;
        };
        let departed = half.queue.departed();
        let streams = half.streams_mut();
        let end = streams.and_then(|streams| streams.ends.get_mut(hop.index()));
        let Some(flow) = end.and_then(|end| end.flow.as_mut()) else {
            // A circuit that never had a stream.
            self.on_stray(slot, now);
            return false;
        };
        match flow.note_received(departed) {
            Ok(false) => true,
            Ok(true) => {
                self.send_circuit_sendme(slot, hop, now);
                true
            }
            Err(_) => {
                self.totals.streams.flow_violations += 1;
                self.protocol_error(slot, "more DATA than the circuit's window", now);
                false
            }
        }
    }

    /// Sends a SENDME for the circuit, with what proves that we received the cell that calls for it
    /// (tor-spec 7.3.1).
    fn send_circuit_sendme(&mut self, slot: HalfKey, hop: HopIndex, now: Instant) {
        let version = self.params.sendme_emit;
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let seen = match &half.role {
            Role::Backward(backward) => backward.crypt.as_ref().map(|crypt| crypt.received()),
            Role::Origin(origin) => origin.crypt.received(hop.index()),
            Role::Forward(_) | Role::Tunnel(_) => None,
        };
        let sendme = Sendme {
            version,
            seen: seen.filter(|_| version >= 1),
        };
        let data = sendme.encode();
        self.send_relay_msg(slot, hop, RelayCmd::SENDME, 0, &data, now);
        if let Some(half) = self.halves.get_mut(slot) {
            let number = half.queue.added();
            let streams = half.streams_mut();
            let end = streams.and_then(|streams| streams.ends.get_mut(hop.index()));
            if let Some(flow) = end.and_then(|end| end.flow.as_mut()) {
                flow.sendme_queued(number);
            }
        }
    }

    /// A SENDME for the circuit.
    fn on_circuit_sendme(&mut self, slot: HalfKey, hop: HopIndex, cell: &Cell, now: Instant) {
        let accept = self.params.sendme_accept;
        let Ok(data) = RelayBody::new(cell.body()).data() else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let blocked = half.blocked;
        let result = half
            .streams_mut()
            .and_then(|streams| streams.ends.get_mut(hop.index()))
            .and_then(|end| end.flow.as_mut())
            .map(|flow| (flow.sendme(data, accept, blocked, now), flow.increment()));
        let increment = result.as_ref().map_or(0, |(_, increment)| *increment);
        match result.map(|(result, _)| result) {
            Some(Ok(())) => {
                if let Some(leg) = &mut half.leg {
                    leg.acknowledged += increment;
                }
                if let Role::Origin(origin) = &mut half.role {
                    origin.traffic.note_valid(data.len());
                }
                self.package(slot, hop, now);
            }
            Some(Err(_)) | None => {
                self.totals.streams.flow_violations += 1;
                let what = "a SENDME for what was not sent, or with a wrong digest";
                self.protocol_error(slot, what, now);
            }
        }
    }

    /// An edge found that its stream's far end broke the rules.
    pub(in crate::manager) fn on_stream_broken(
        &mut self,
        half: HalfAddr,
        what: &'static str,
        now: Instant,
    ) {
        if self.halves.at(half).is_some() {
            self.totals.streams.flow_violations += 1;
            self.protocol_error(self.halves.slot(half), what, now);
        }
    }
}
