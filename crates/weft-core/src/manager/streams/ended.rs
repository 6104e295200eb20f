//! Streams that end, and messages of streams that have ended (see [`crate::stream::ended`]).

use std::time::Instant;

use weft_cell::Cell;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::StreamMessage;

use super::StreamSide;
use crate::address::{HalfAddr, HopIndex, StreamAddr};
use crate::circuit::half::CircuitHalf;
use crate::flow::Left;
use crate::slots::HalfKey;
use crate::stream::ended::Judgement;
use crate::stream::table::{Place, Stream};

impl StreamSide<'_> {
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
        let slot = self.path.halves.slot(from);
        let stream = RelayBody::new(cell.body()).stream_id();
        let half = self.path.halves.get_mut(slot);
        let Some(streams) = half.and_then(CircuitHalf::streams_mut) else {
            self.path.pool.put(cell);
            return;
        };
        let found = streams.get_mut(stream);
        let over = |stream: &Stream| matches!(stream.edge, Place::Over(_));
        if (found.as_ref()).is_some_and(|stream| stream.hop != hop && !over(stream)) {
            // A hop before the exit sends in the exit's place.
            self.path.pool.put(cell);
            let what = "a message of a stream from a hop that it does not lead to";
            return self.path.protocol_error(slot, what, now);
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
                        self.path.pool.put(early);
                    }
                    streams.ended.far_end_ended();
                    self.path.pool.put(cell);
                    self.path.to_controller.cancel_stream(addr);
                } else {
                    let kept = streams.keep_early(stream, cell, &self.path.params.cc, now);
                    self.on_kept(addr, kept, now);
                }
            }
            // Of another hop: that was checked above.
            Some((_, Place::At(_))) => self.path.pool.put(cell),
            Some((_, Place::Probe(probe))) => {
                let probe = *probe;
                self.on_probe_answer(from, probe, message, &cell, now);
                self.path.pool.put(cell);
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
        let half = self.path.halves.get_mut(slot);
        let Some((streams, traffic)) = half.and_then(CircuitHalf::streams_and_traffic) else {
            self.path.pool.put(cell);
            return;
        };
        let judgement = streams.ended.judge(stream, hop, message, now);
        if message.ends_stream() {
            // Our own END, if it still waits for the circuit's window, is not needed any more.
            streams.remove(stream, &mut self.path.pool);
            // Of a stream that is remembered alone: an END for nothing must not allow more.
            if traffic.is_none() && judgement == Judgement::Expected {
                streams.ended.far_end_ended();
            }
        }
        match (judgement, traffic) {
            (Judgement::Expected, Some(traffic)) => traffic.note_valid(length),
            (Judgement::Overdue, Some(_)) => self.path.traffic.dropped_at_origin(),
            _ => {}
        }
        self.path.pool.put(cell);
        match judgement {
            Judgement::Forbidden => self.on_stray(slot, now),
            Judgement::Expected | Judgement::Overdue => self.path.totals.streams.late += 1,
        }
    }

    /// A message arrived of a stream that is not there, and nobody honest sends it.
    pub(super) fn on_stray(&mut self, slot: HalfKey, now: Instant) {
        self.path.totals.streams.stray += 1;
        let what = "a message of a stream that never was, or past what its rules had left";
        self.path.protocol_error(slot, what, now);
    }

    /// An edge is about to send END.
    pub(in crate::manager) fn on_ending(
        &mut self,
        stream: StreamAddr,
        connected: bool,
        left: Left,
    ) {
        let half = self.path.halves.at(stream.half);
        if let Some(streams) = half.and_then(CircuitHalf::streams_mut) {
            streams.edge_ends(stream, connected, left);
        }
    }
}
