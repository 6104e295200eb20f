//! Streams that a circuit asks for at this node (tor-spec 6.2, 6.4): the request, the decision about it,
//! which the controller makes, and what arrives before it is made.

use std::time::Instant;

use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::StreamOpener;
use weft_cell::stream_msg::{Answer, AnswerKind, Begin, End, Resolve, Resolved, Xoff};
use weft_cell::{Cell, RelayCmd};

use super::StreamSide;
use crate::address::{EdgeAddr, HopIndex, StreamAddr};
use crate::circuit::half::{CircuitHalf, Role};
use crate::flow::Left;
use crate::limits::stream_dos::StreamVerdict;
use crate::manager::path::closing::Notify;
use crate::message::{Asker, Control, EdgeControl, StreamAsk, StreamRequest, ToController};
use crate::slots::HalfKey;
use crate::stream::early::{Early, Kept};
use crate::stream::edge::StreamAt;
use crate::stream::table::Place;

impl StreamSide<'_> {
    /// BEGIN, BEGIN_DIR or RESOLVE of the circuit's origin.
    pub(in crate::manager) fn on_stream_asked(
        &mut self,
        slot: HalfKey,
        opener: StreamOpener,
        cell: &Cell,
        now: Instant,
    ) {
        let body = RelayBody::new(cell.body());
        let stream = body.stream_id();
        let Ok(data) = body.data() else {
            return self
                .path
                .protocol_error(slot, "a relay message longer than its cell", now);
        };
        if stream == 0 {
            return self
                .path
                .protocol_error(slot, "a stream with the number 0", now);
        }
        if let Some(streams) = self
            .path
            .halves
            .get_mut(slot)
            .and_then(CircuitHalf::streams_mut)
        {
            if streams.has(stream) {
                // An END before it would have come before it: no client gives a number twice.
                let what = "BEGIN, BEGIN_DIR or RESOLVE for a stream that is there";
                return self.path.protocol_error(slot, what, now);
            }
            streams.ended.forget(stream);
        }
        let totals = &mut self.path.totals.streams;
        let ask = match opener {
            StreamOpener::Begin => {
                totals.begin += 1;
                Begin::decode(data).ok().map(StreamAsk::Begin)
            }
            StreamOpener::Resolve => {
                totals.resolve += 1;
                Resolve::decode(data).ok().map(StreamAsk::Resolve)
            }
            StreamOpener::BeginDir => {
                totals.begin_dir += 1;
                Some(StreamAsk::BeginDir)
            }
        };
        let Some(ask) = ask else {
            return self.refuse_stream(slot, stream, EndReason::TORPROTOCOL, now);
        };
        if self.path.draining {
            return self.refuse_stream(slot, stream, EndReason::HIBERNATING, now);
        }
        if opener != StreamOpener::BeginDir && !self.may_open(slot, stream, opener, now) {
            return;
        }
        self.ask_for_stream(slot, stream, ask, now);
    }

    /// True if the circuit may open one more stream that leads out of the network. Otherwise the
    /// stream is refused, or the circuit closed.
    fn may_open(&mut self, slot: HalfKey, stream: u16, opener: StreamOpener, now: Instant) -> bool {
        let streams = match self.path.halves.get_mut(slot).map(|half| &mut half.role) {
            Some(Role::Backward(backward)) if backward.purpose.is_general() => {
                backward.streams_or_new(&self.path.params.cc)
            }
            Some(Role::Tunnel(tunnel)) => &mut tunnel.streams,
            // It is refused for that.
            Some(Role::Backward(_)) => return true,
            Some(Role::Forward(_) | Role::Origin(_)) | None => return false,
        };
        let verdict = streams.asked(&self.path.params.stream_dos, now);
        self.path.totals.streams.too_many += u64::from(verdict.is_too_many());
        match verdict {
            StreamVerdict::Allow | StreamVerdict::Count => return true,
            StreamVerdict::RefuseStream if opener == StreamOpener::Resolve => {
                let resolved = Resolved {
                    answers: vec![Answer {
                        kind: AnswerKind::TransientError,
                        ttl: 60,
                    }],
                };
                let data = resolved.encode().unwrap_or_default();
                streams.ended_at_once(stream, HopIndex::ORIGIN, Left::NOTHING, now);
                self.path.send_relay_msg(
                    slot,
                    HopIndex::ORIGIN,
                    RelayCmd::RESOLVED,
                    stream,
                    &data,
                    now,
                );
            }
            StreamVerdict::RefuseStream => {
                self.refuse_stream(slot, stream, EndReason::MISC, now);
            }
            StreamVerdict::CloseCircuit => {
                self.path
                    .close_half(slot, DestroyReason::RESOURCELIMIT, Notify::Both, now);
            }
        }
        false
    }

    /// Enters the stream, and asks the controller to decide about it.
    fn ask_for_stream(&mut self, slot: HalfKey, stream: u16, ask: StreamAsk, now: Instant) {
        let Some(half) = self.path.halves.addr(slot) else {
            return;
        };
        let Some(state) = self.path.halves.get(slot) else {
            return;
        };
        let hop = HopIndex::ORIGIN;
        let (Some(link), Some(terms)) = (self.path.charged(slot), state.terms(hop)) else {
            return;
        };
        let state = self.path.halves.get_mut(slot).map(|half| &mut half.role);
        let streams = match state {
            Some(Role::Backward(backward)) if backward.purpose.is_general() => {
                backward.streams_or_new(&self.path.params.cc)
            }
            Some(Role::Tunnel(tunnel)) => &mut tunnel.streams,
            _ => return self.refuse_stream(slot, stream, EndReason::EXITPOLICY, now),
        };
        let early = Place::Deciding(Early::default());
        let Some(generation) = streams.add(stream, HopIndex::ORIGIN, early) else {
            return self.refuse_stream(slot, stream, EndReason::RESOURCELIMIT, now);
        };
        let addr = StreamAddr {
            half,
            id: stream,
            generation,
        };
        let request = StreamRequest {
            at: StreamAt { addr, terms },
            connection: link.connection,
            from_client: link.from_client,
            ask,
        };
        let request = ToController::Stream(request);
        self.path
            .ask(link.network, Asker::Stream(addr), request, now);
    }

    /// A cell arrived for a stream that has no edge yet.
    pub(super) fn on_kept(&mut self, stream: StreamAddr, kept: Kept, now: Instant) {
        let (slot, id) = (self.path.halves.slot(stream.half), stream.id);
        match kept {
            Kept::Waits => {}
            Kept::Xoff => {
                let xoff = Xoff { version: 0 }.encode();
                self.path
                    .send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::XOFF, id, &xoff, now);
            }
            Kept::TooMany(cell) => {
                self.path.pool.put(cell);
                self.path.totals.streams.overflowed += 1;
                let left = self.path.left_of_new(slot);
                if self.path.end_deciding(stream, left, now) {
                    self.refuse_stream(slot, id, EndReason::RESOURCELIMIT, now);
                    self.path.to_controller.cancel_stream(stream);
                }
            }
            Kept::PastWindow(cell) => {
                self.path.pool.put(cell);
                self.path.totals.streams.flow_violations += 1;
                let what = "more DATA than the window of a stream that is not open yet";
                self.path.protocol_error(slot, what, now);
            }
        }
    }

    // ---- decided ----

    /// The edge of a stream that the circuit asked for exists. If the stream does not wait for it
    /// (any more), the edge is detached.
    pub(in crate::manager) fn on_edge_made(
        &mut self,
        stream: StreamAddr,
        edge: EdgeAddr,
        now: Instant,
    ) {
        let half = self.path.halves.at(stream.half);
        let early = half
            .and_then(CircuitHalf::streams_mut)
            .and_then(|streams| streams.place(stream, edge));
        match early {
            Some(early) => {
                if early.xoff_sent() {
                    self.path
                        .outboxes
                        .send(Control::Edge(EdgeControl::XoffSent { to: edge, stream }));
                }
                for cell in early.into_cells() {
                    self.path.outboxes.send_to_edge(stream.half, edge, cell);
                }
                self.on_credit_asked(stream, now);
            }
            None => self.path.outboxes.detach(edge, stream),
        }
    }

    /// A RESOLVE of the circuit's is answered.
    pub(in crate::manager) fn on_resolved(
        &mut self,
        stream: StreamAddr,
        resolved: &Resolved,
        now: Instant,
    ) {
        if self.path.end_deciding(stream, Left::NOTHING, now) {
            // More answers than a cell holds are the exit's fault; it answers with none then.
            let data = resolved.encode().unwrap_or_default();
            let (slot, id) = (self.path.halves.slot(stream.half), stream.id);
            self.path
                .send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::RESOLVED, id, &data, now);
        }
    }

    /// Refuses a stream at once. Its far end may have sent data already.
    fn refuse_stream(&mut self, slot: HalfKey, stream: u16, reason: EndReason, now: Instant) {
        let left = self.path.left_of_new(slot);
        let streams = match self.path.halves.get_mut(slot).map(|half| &mut half.role) {
            Some(Role::Backward(backward)) => Some(backward.streams_or_new(&self.path.params.cc)),
            Some(Role::Tunnel(tunnel)) => Some(&mut tunnel.streams),
            _ => None,
        };
        if let Some(streams) = streams {
            streams.ended_at_once(stream, HopIndex::ORIGIN, left, now);
        }
        let end = End::new(reason).encode();
        self.path
            .send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::END, stream, &end, now);
    }
}
