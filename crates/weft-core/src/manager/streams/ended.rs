//! Streams that end, and messages of streams that have ended (see [`crate::stream::ended`]).

use std::time::Instant;

use weft_cell::Cell;
use weft_cell::reason::EndReason;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::StreamMessage;

use crate::address::{EdgeAddr, HalfAddr, HopIndex, StreamAddr};
use crate::circuit::half::CircuitHalf;
use crate::flow::Left;
use crate::manager::LocalConnectionManager;
use crate::message::{Control, EdgeControl};
use crate::slots::HalfKey;
use crate::stream::ended::Judgement;
use crate::stream::table::{Place, Stream};

impl LocalConnectionManager {
    /// A message of a stream without an edge: it is still being decided about, or it was ended on this
    /// side while the message was on its way.
    pub(super) fn on_message_without_edge(
        &mut self,
        from: HalfAddr,
        hop: HopIndex,
        message: StreamMessage,
        cell: Box<Cell>,
        now: Instant,
    ) {
        let slot = self.halves.slot(from);
        let stream = RelayBody::new(cell.body()).stream_id();
        let half = self.halves.get_mut(slot);
        let Some(streams) = half.and_then(CircuitHalf::streams_mut) else {
            self.pool.put(cell);
            return;
        };
        let found = streams.get_mut(stream);
        let over = |stream: &Stream| matches!(stream.edge, Place::Over(_));
        if (found.as_ref()).is_some_and(|stream| stream.hop != hop && !over(stream)) {
            // A hop before the exit sends in the exit's place.
            self.pool.put(cell);
            let what = "a message of a stream from a hop that it does not lead to";
            return self.protocol_error(slot, what, now);
        }
        match found.map(|stream| (stream.generation, &mut stream.edge)) {
            Some((generation, Place::Deciding(_))) => {
                let addr = StreamAddr {
                    half: from,
                    id: stream,
                    generation,
                };
                if message == StreamMessage::End {
                    let early = streams.refuse(addr).unwrap_or_default();
                    for early in early.into_cells() {
                        self.pool.put(early);
                    }
                    streams.ended.far_end_ended();
                    self.pool.put(cell);
                    self.cancel_stream_request(addr);
                } else {
                    let kept = streams.keep_early(stream, cell, &self.params.cc, now);
                    self.on_kept(addr, kept, now);
                }
            }
            // Of another hop: that was checked above.
            Some((_, Place::At(_))) => self.pool.put(cell),
            Some((_, Place::Probe(probe))) => {
                let probe = *probe;
                self.on_probe_answer(from, probe, message, &cell, now);
                self.pool.put(cell);
            }
            Some((_, Place::Over(_))) | None => self.on_late(slot, hop, message, cell, now),
        }
    }

    /// A message of a stream that this side has ended, or that never was.
    fn on_late(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        message: StreamMessage,
        cell: Box<Cell>,
        now: Instant,
    ) {
        let body = RelayBody::new(cell.body());
        let (stream, length) = (body.stream_id(), body.data().map_or(0, <[u8]>::len));
        let half = self.halves.get_mut(slot);
        let Some((streams, traffic)) = half.and_then(CircuitHalf::streams_and_traffic) else {
            self.pool.put(cell);
            return;
        };
        let judgement = streams.ended.judge(stream, hop, message, now);
        if message.ends_stream() {
            // Our own END, if it still waits for the circuit's window, is not needed any more.
            streams.remove(stream, &mut self.pool);
            // Of a stream that is remembered alone: an END for nothing must not allow more.
            if traffic.is_none() && judgement == Judgement::Expected {
                streams.ended.far_end_ended();
            }
        }
        match (judgement, traffic) {
            (Judgement::Expected, Some(traffic)) => traffic.note_valid(length),
            (Judgement::Overdue, Some(_)) => self.traffic.dropped_at_origin(),
            _ => {}
        }
        self.pool.put(cell);
        match judgement {
            Judgement::Forbidden => self.on_stray(slot, now),
            Judgement::Expected | Judgement::Overdue => self.totals.streams.late += 1,
        }
    }

    /// A message arrived of a stream that is not there, and nobody honest sends it.
    pub(super) fn on_stray(&mut self, slot: HalfKey, now: Instant) {
        self.totals.streams.stray += 1;
        let what = "a message of a stream that never was, or past what its rules had left";
        self.protocol_error(slot, what, now);
    }

    /// An edge is about to send END.
    pub(in crate::manager) fn on_ending(
        &mut self,
        stream: StreamAddr,
        connected: bool,
        left: Left,
    ) {
        let half = self.halves.at(stream.half);
        if let Some(streams) = half.and_then(CircuitHalf::streams_mut) {
            streams.edge_ends(stream, connected, left);
        }
    }

    /// Notifies an edge that it has no stream.
    pub(in crate::manager) fn detach(&mut self, edge: EdgeAddr, stream: StreamAddr) {
        self.send(Control::Edge(EdgeControl::Detached {
            to: edge,
            stream,
            reason: EndReason::DESTROY,
        }));
    }

    /// The streams of a half that is closing lose it.
    pub(in crate::manager) fn end_streams(&mut self, from: HalfAddr, half: &mut CircuitHalf) {
        let Some(streams) = half.streams_mut() else {
            return;
        };
        for end in &mut streams.ends {
            for (_, cell) in end.pending.drain(..) {
                self.pool.put(cell);
            }
        }
        for (id, stream) in streams.drain() {
            let addr = StreamAddr {
                half: from,
                id,
                generation: stream.generation,
            };
            match stream.edge {
                Place::At(edge) => self.detach(edge, addr),
                Place::Deciding(early) => {
                    for cell in early.into_cells() {
                        self.pool.put(cell);
                    }
                    self.cancel_stream_request(addr);
                }
                Place::Over(_) | Place::Probe(_) => {}
            }
        }
    }
}
