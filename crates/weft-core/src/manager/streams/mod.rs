//! A half's side of its streams (tor-spec 6, 7.3, 7.4; Engler and Goldberg 2021, 4.2, 4.4): here what
//! arrives from the circuit and from edges for a stream, in `asked` how streams begin, in `ended` how they end, and in
//! `probe` the stream by which a circuit is measured.

mod asked;
mod ended;
mod probe;

use std::time::Instant;

use weft_cell::relay::RelayBody;
use weft_cell::relay_command::{FlowControl, StreamMessage, flow_control};
use weft_cell::stream_msg::Sendme;
use weft_cell::{Cell, RelayCmd};
use weft_planted::{Fault, planted};

use super::path::CellPath;
use crate::address::{HalfAddr, HopIndex, StreamAddr};
use crate::circuit::half::{CircuitHalf, Role};
use crate::message::EdgeCell;
use crate::slots::HalfKey;

/// A half's side of its streams: messages between the circuit and what is at the streams' other ends, their edges.
///
/// It reaches edges by messages alone, which wait in the outboxes.
#[derive(Debug)]
pub(super) struct StreamSide<'a> {
    pub(super) path: &'a mut CellPath,
}

impl StreamSide<'_> {
    // ---- what edges send ----

    /// A message of an edge's, to be sent on the circuit.
    pub(in crate::manager) fn handle_from_edge(&mut self, message: EdgeCell, now: Instant) {
        let EdgeCell { half, edge, cell } = message;
        let command = RelayBody::new(cell.body()).command();
        let hop = self
            .path
            .halves
            .at(half)
            .and_then(CircuitHalf::streams_mut)
            .and_then(|streams| streams.accept(&cell, edge));
        let Some((hop, end)) = hop else {
            // The stream has ended while this was on its way. Another may have its id by now.
            self.path.totals.cells_dropped += 1;
            self.path.pool.put(cell);
            return;
        };
        match flow_control(command) {
            FlowControl::Counted | FlowControl::InOrder => {
                end.pending.push_back((edge, cell));
                self.path.package(self.path.halves.slot(half), hop, now);
            }
            FlowControl::Free => {
                self.path
                    .seal_and_enqueue(self.path.halves.slot(half), hop, cell, now);
            }
        }
    }

    /// A stream's edge has bytes to send, and no credit.
    pub(in crate::manager) fn on_credit_asked(&mut self, stream: StreamAddr, now: Instant) {
        if planted(Fault::CreditRequestLost) {
            return;
        }
        let half = self.path.halves.at(stream.half);
        let streams = half.and_then(CircuitHalf::streams_mut);
        if let Some(hop) = streams.and_then(|streams| streams.ask(stream)) {
            self.path
                .package(self.path.halves.slot(stream.half), hop, now);
        }
    }

    /// A stream's edge gives credit back: others may have it.
    pub(in crate::manager) fn on_credit_returned(
        &mut self,
        stream: StreamAddr,
        cells: u32,
        now: Instant,
    ) {
        if planted(Fault::CreditReturnLost) {
            return;
        }
        let half = self.path.halves.at(stream.half);
        let streams = half.and_then(CircuitHalf::streams_mut);
        if let Some(hop) = streams.and_then(|streams| streams.returned(stream, cells)) {
            self.path
                .package(self.path.halves.slot(stream.half), hop, now);
        }
    }

    // ---- what arrives from the circuit ----

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
            self.path.pool.put(cell);
            return self
                .path
                .protocol_error(slot, "a relay message longer than its cell", now);
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
                    self.path
                        .protocol_error(slot, "a stream message for no stream", now);
                }
            }
            self.path.pool.put(cell);
            return;
        }
        let counts = message == StreamMessage::Data && !self.path.halves.is_tunnel(slot);
        if counts && !self.count_data(slot, hop, now) {
            self.path.pool.put(cell);
            return;
        }
        let from = self.path.halves.addr(slot);
        let half = self.path.halves.get_mut(slot);
        let (Some(from), Some((streams, traffic))) =
            (from, half.and_then(CircuitHalf::streams_and_traffic))
        else {
            self.path.pool.put(cell);
            return self.on_stray(slot, now);
        };
        let Some(edge) = streams.edge(stream, hop) else {
            return self.on_message_without_edge(from, hop, message, cell, now);
        };
        let at_relay = traffic.is_none();
        if let Some(traffic) = traffic {
            if !streams.may_answer(stream, message) {
                self.path.pool.put(cell);
                let what = "CONNECTED to RESOLVE, or RESOLVED to something else";
                return self.path.protocol_error(slot, what, now);
            }
            traffic.note_valid(length);
        }
        let ends = message.ends_stream();
        if ends {
            streams.remove(stream, &mut self.path.pool);
            if at_relay {
                streams.ended.far_end_ended();
            }
        }
        self.path.outboxes.send_to_edge(from, edge, cell);
        if ends {
            // What it was lent, others may have.
            self.path.package(slot, hop, now);
        }
    }

    /// Counts a DATA cell against the circuit's window, and answers it with a SENDME when one is
    /// due. False: the circuit is no more.
    pub(in crate::manager) fn count_data(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        now: Instant,
    ) -> bool {
        let Some(half) = self.path.halves.get_mut(slot) else {
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
                self.path.totals.streams.flow_violations += 1;
                self.path
                    .protocol_error(slot, "more DATA than the circuit's window", now);
                false
            }
        }
    }

    /// Sends a SENDME for the circuit, with what proves that we received the cell that calls for it
    /// (tor-spec 7.3.1).
    fn send_circuit_sendme(&mut self, slot: HalfKey, hop: HopIndex, now: Instant) {
        let version = self.path.params.sendme_emit;
        let Some(half) = self.path.halves.get_mut(slot) else {
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
        self.path
            .send_relay_msg(slot, hop, RelayCmd::SENDME, 0, &data, now);
        if let Some(half) = self.path.halves.get_mut(slot) {
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
        let accept = self.path.params.sendme_accept;
        let Ok(data) = RelayBody::new(cell.body()).data() else {
            return;
        };
        let Some(half) = self.path.halves.get_mut(slot) else {
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
                self.path.package(slot, hop, now);
            }
            Some(Err(_)) | None => {
                self.path.totals.streams.flow_violations += 1;
                let what = "a SENDME for what was not sent, or with a wrong digest";
                self.path.protocol_error(slot, what, now);
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
        if self.path.halves.at(half).is_some() {
            self.path.totals.streams.flow_violations += 1;
            self.path
                .protocol_error(self.path.halves.slot(half), what, now);
        }
    }
}
