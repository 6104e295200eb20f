//! A half's side of its streams: relay messages to and from edges, and what the circuit as a whole
//! may send (tor-spec 6, 7.3, 7.4; seeds/000 4.2, 4.4).

use std::time::Instant;

use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::{
    Answer, AnswerKind, Begin, End, Resolve, Resolved, Seen, Sendme, Xoff,
};
use weft_cell::{Cell, ChanCmd, RelayCmd};

use weft_crypto::circuit::{OriginCircuit, RelayCircuit};

use super::requests::Asker;
use super::{LocalConnectionManager, Tell};
use crate::address::{EdgeAddr, HalfAddr, StreamAddr};
use crate::early::{Early, Kept};
use crate::edge::StreamAt;
use crate::ended::{Judgement, Left};
use crate::flow::{Side, Terms};
use crate::half::{CircuitHalf, Purpose, Role};
use crate::handshake::PeerIdentity;
use crate::message::{
    Carried, Control, EdgeCell, EdgeControl, HalfControl, StreamAsk, StreamRequest, ToController,
};
use crate::stream_dos::StreamVerdict;
use crate::streams::{Place, Stream};

impl LocalConnectionManager {
    // ---- from the circuit ----

    /// BEGIN, BEGIN_DIR or RESOLVE from the circuit's origin (tor-spec 6.2, 6.4).
    pub(super) fn on_stream_asked(&mut self, slot: u32, cell: &Cell, now: Instant) {
        let body = RelayBody::new(cell.body());
        let (stream, command) = (body.stream_id(), body.command());
        let Ok(data) = body.data() else {
            return self.protocol_error(slot, "a relay message longer than its cell", now);
        };
        if stream == 0 {
            return self.protocol_error(slot, "a stream with the number 0", now);
        }
        if let Some(streams) = self.halves.get_mut(slot).and_then(CircuitHalf::streams_mut) {
            if streams.has(stream) {
                // An END before it would have come before it: no client gives a number twice.
                let what = "BEGIN, BEGIN_DIR or RESOLVE for a stream that is there";
                return self.protocol_error(slot, what, now);
            }
            streams.ended.forget(stream);
        }
        let totals = &mut self.totals.streams;
        let ask = match command {
            RelayCmd::BEGIN => {
                totals.begin += 1;
                Begin::decode(data).ok().map(StreamAsk::Begin)
            }
            RelayCmd::RESOLVE => {
                totals.resolve += 1;
                Resolve::decode(data).ok().map(StreamAsk::Resolve)
            }
            _ => {
                totals.begin_dir += 1;
                Some(StreamAsk::BeginDir)
            }
        };
        let Some(ask) = ask else {
            return self.refuse_stream(slot, stream, EndReason::TORPROTOCOL, now);
        };
        if self.draining {
            return self.refuse_stream(slot, stream, EndReason::HIBERNATING, now);
        }
        let Some(half) = self.halves.addr(slot) else {
            return;
        };
        let Some(state) = self.halves.get_mut(slot) else {
            return;
        };
        let link = self.links.get(state.link as usize);
        let (Some(link), Role::TowardOrigin(toward)) = (link, &mut state.role) else {
            return;
        };
        if toward.purpose != Purpose::General {
            // It is for something else.
            return self.refuse_stream(slot, stream, EndReason::EXITPOLICY, now);
        }
        let vegas = toward.sendme_inc;
        let cgo = toward.crypt.as_ref().is_some_and(|crypt| crypt.is_cgo());
        let terms = Terms::new(vegas.is_some(), cgo);
        let streams = toward.streams_or_new(&self.params.cc);
        if ask != StreamAsk::BeginDir {
            let verdict = streams.asked(&self.params.stream_dos, now);
            self.totals.streams.too_many += u64::from(verdict.is_too_many());
            match verdict {
                StreamVerdict::Allow | StreamVerdict::Count => {}
                StreamVerdict::RefuseStream if command == RelayCmd::RESOLVE => {
                    let resolved = Resolved {
                        answers: vec![Answer {
                            kind: AnswerKind::TransientError,
                            ttl: 60,
                        }],
                    };
                    let data = resolved.encode().unwrap_or_default();
                    streams.ended_at_once(stream, Left::NOTHING, now);
                    return self.say(slot, 0, RelayCmd::RESOLVED, stream, &data, now);
                }
                StreamVerdict::RefuseStream => {
                    return self.refuse_stream(slot, stream, EndReason::MISC, now);
                }
                StreamVerdict::CloseCircuit => {
                    return self.close_half(slot, DestroyReason::RESOURCELIMIT, Tell::Both, now);
                }
            }
        }
        let Some(generation) = streams.add(stream, 0, Place::Deciding(Early::default())) else {
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
            from_client: link.peer == PeerIdentity::Unauthenticated,
            ask,
        };
        let key = state.link;
        self.ask(key, Asker::Stream(addr), ToController::Stream(request), now);
    }

    /// DATA, END, SENDME and the rest of what streams are made of.
    pub(super) fn on_stream_message(
        &mut self,
        slot: u32,
        hop: usize,
        cell: Box<Cell>,
        now: Instant,
    ) {
        let body = RelayBody::new(cell.body());
        let (stream, command) = (body.stream_id(), body.command());
        let Ok(length) = body.data().map(<[u8]>::len) else {
            self.pool.put(cell);
            return self.protocol_error(slot, "a relay message longer than its cell", now);
        };
        if stream == 0 {
            match command {
                RelayCmd::SENDME => self.on_circuit_sendme(slot, hop, &cell, now),
                _ => self.protocol_error(slot, "a stream message for no stream", now),
            }
            self.pool.put(cell);
            return;
        }
        if command == RelayCmd::DATA && !self.count_data(slot, hop, now) {
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
        let at_relay = traffic.is_none();
        let from_hop = u8::try_from(hop).unwrap_or(u8::MAX);
        if let Some(edge) = streams.edge(stream, from_hop) {
            if let Some(traffic) = traffic {
                if !streams.may_answer(stream, command) {
                    self.pool.put(cell);
                    let what = "CONNECTED to RESOLVE, or RESOLVED to something else";
                    return self.protocol_error(slot, what, now);
                }
                traffic.note_valid(length);
            }
            let ends = command == RelayCmd::END || command == RelayCmd::RESOLVED;
            if ends {
                streams.remove(stream, &mut self.pool);
                if at_relay {
                    streams.ended.far_end_ended();
                }
            }
            self.send_off(from, edge, cell, now);
            if ends {
                // What it was lent, others may have.
                self.package(slot, hop, now);
            }
            return;
        }
        // Its edge is still being decided about, or it was ended on this side while this was on its
        // way.
        let found = streams.get_mut(stream);
        let over = |stream: &Stream| matches!(stream.edge, Place::Over(_));
        if (found.as_ref()).is_some_and(|stream| stream.hop != from_hop && !over(stream)) {
            // A hop before the exit that speaks in the exit's place.
            self.pool.put(cell);
            let what = "a message of a stream from a hop that it does not lead to";
            return self.protocol_error(slot, what, now);
        }
        match found.map(|stream| (stream.generation, &mut stream.edge)) {
            Some((generation, Place::Deciding(_))) if command == RelayCmd::END => {
                let addr = StreamAddr {
                    half: from,
                    id: stream,
                    generation,
                };
                let early = streams.refuse(addr).unwrap_or_default();
                for early in early.into_cells() {
                    self.pool.put(early);
                }
                streams.ended.far_end_ended();
                self.pool.put(cell);
                self.stream_gone(addr);
            }
            Some((generation, Place::Deciding(_))) => {
                let addr = StreamAddr {
                    half: from,
                    id: stream,
                    generation,
                };
                let kept = streams.keep_early(stream, cell, &self.params.cc, now);
                self.on_kept(addr, kept, now);
            }
            // Of another hop: that was looked at.
            Some((_, Place::At(_))) => self.pool.put(cell),
            Some((_, Place::Over(_))) | None => {
                let judgement = streams.ended.judge(stream, from_hop, command, now);
                if command == RelayCmd::END || command == RelayCmd::RESOLVED {
                    // Our own END, if it still waits for the circuit's window, is not needed any more.
                    streams.remove(stream, &mut self.pool);
                    // Of a stream that is remembered alone: an END for nothing must not allow more.
                    if at_relay && judgement == Judgement::Expected {
                        streams.ended.far_end_ended();
                    }
                }
                match (judgement, traffic) {
                    (Judgement::Expected, Some(traffic)) => traffic.note_valid(length),
                    (Judgement::Overdue, Some(_)) => self.dropped_at_origin = true,
                    _ => {}
                }
                self.pool.put(cell);
                match judgement {
                    Judgement::Forbidden => self.on_stray(slot, now),
                    _ => self.totals.streams.late += 1,
                }
            }
        }
    }

    /// A cell came for a stream that has no edge yet.
    fn on_kept(&mut self, stream: StreamAddr, kept: Kept, now: Instant) {
        let (slot, id) = (stream.half.slot, stream.id);
        match kept {
            Kept::Waits => {}
            Kept::Xoff => {
                let xoff = Xoff { version: 0 }.encode();
                self.say(slot, 0, RelayCmd::XOFF, id, &xoff, now);
            }
            Kept::TooMany(cell) => {
                self.pool.put(cell);
                self.totals.streams.overflowed += 1;
                let left = self.left_of_new(slot);
                if self.end_deciding(stream, left, now) {
                    self.refuse_stream(slot, id, EndReason::RESOURCELIMIT, now);
                    self.stream_gone(stream);
                }
            }
            Kept::PastWindow(cell) => {
                self.pool.put(cell);
                self.totals.streams.flow_violations += 1;
                let what = "more DATA than the window of a stream that is not open yet";
                self.protocol_error(slot, what, now);
            }
        }
    }

    /// A message came of a stream that is not there, and nobody honest sends it.
    fn on_stray(&mut self, slot: u32, now: Instant) {
        self.totals.streams.stray += 1;
        let what = "a message of a stream that never was, or past what its rules had left";
        self.protocol_error(slot, what, now);
    }

    /// An edge is about to send END.
    pub(super) fn on_ending(&mut self, stream: StreamAddr, connected: bool, left: Left) {
        let half = self.halves.at(stream.half);
        if let Some(streams) = half.and_then(CircuitHalf::streams_mut) {
            streams.edge_ends(stream, connected, left);
        }
    }

    /// Counts a DATA cell against the circuit's window, and answers it with a SENDME when one is
    /// due. False: the circuit is no more.
    fn count_data(&mut self, slot: u32, hop: usize, now: Instant) -> bool {
        let Some(half) = self.halves.get_mut(slot) else {
            return false;
        };
        let departed = half.queue.departed();
        let streams = half.streams_mut();
        let Some(end) = streams.and_then(|streams| streams.ends.get_mut(hop)) else {
            // A circuit that never had a stream.
            self.on_stray(slot, now);
            return false;
        };
        match end.flow.note_received(departed) {
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

    /// A SENDME for the circuit, with what shows that we saw the cell that calls for it (tor-spec
    /// 7.3.1).
    fn send_circuit_sendme(&mut self, slot: u32, hop: usize, now: Instant) {
        let version = self.params.sendme_emit;
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let seen = match &half.role {
            Role::TowardOrigin(toward) => toward.crypt.as_ref().map(|crypt| crypt.received()),
            Role::Origin(origin) => origin.crypt.received(hop),
            Role::AwayFromOrigin(_) => None,
        };
        let sendme = Sendme {
            version,
            seen: seen.filter(|_| version >= 1),
        };
        let data = sendme.encode();
        self.say(slot, hop, RelayCmd::SENDME, 0, &data, now);
        if let Some(half) = self.halves.get_mut(slot) {
            let number = half.queue.added();
            let streams = half.streams_mut();
            if let Some(end) = streams.and_then(|streams| streams.ends.get_mut(hop)) {
                end.flow.sendme_queued(number);
            }
        }
    }

    /// A SENDME for the circuit came.
    fn on_circuit_sendme(&mut self, slot: u32, hop: usize, cell: &Cell, now: Instant) {
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
            .and_then(|streams| streams.ends.get_mut(hop))
            .map(|end| end.flow.sendme(data, accept, blocked, now));
        match result {
            Some(Ok(())) => {
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

    // ---- to and from edges ----

    /// Hands a message to an edge, wherever it is.
    fn send_off(&mut self, half: HalfAddr, edge: EdgeAddr, cell: Box<Cell>, now: Instant) {
        let message = EdgeCell { half, edge, cell };
        if edge.thread == self.me {
            self.on_off(message, now);
        } else if let Some(outbox) = self.outboxes.get_mut(usize::from(edge.thread.0)) {
            outbox.cells.push(Carried::Off(message));
        }
    }

    /// A message of an edge's, to go onto the circuit.
    pub(super) fn on_on(&mut self, message: EdgeCell, now: Instant) {
        let EdgeCell { half, edge, cell } = message;
        let command = RelayBody::new(cell.body()).command();
        let hop = self
            .halves
            .at(half)
            .and_then(CircuitHalf::streams_mut)
            .and_then(|streams| streams.accept(&cell, edge));
        let Some((hop, end)) = hop else {
            // The stream has ended while this was on its way. Another may have its id by now.
            self.totals.cells_dropped += 1;
            self.pool.put(cell);
            return;
        };
        if command == RelayCmd::DATA || command == RelayCmd::END {
            end.pending.push_back((edge, cell));
            self.package(half.slot, hop, now);
        } else {
            // Nothing else counts, nor needs to wait for what does.
            self.seal_and_enqueue(half.slot, hop, cell, now);
        }
    }

    /// Sends what waits, as far as the circuit's window and its queue go.
    pub(super) fn package(&mut self, slot: u32, hop: usize, now: Instant) {
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let mut credits = std::mem::take(&mut self.credits);
        let CircuitHalf {
            link,
            circ_id,
            queue,
            blocked,
            role,
            ..
        } = half;
        let (was_empty, mut unsaid) = (queue.is_empty(), false);
        let (streams, mut crypt, mut traffic) = match role {
            Role::TowardOrigin(toward) => match (&mut toward.streams, &mut toward.crypt) {
                (Some(streams), Some(crypt)) => (&mut **streams, Sealing::Relay(crypt), None),
                _ => return,
            },
            Role::Origin(origin) => (
                &mut origin.streams,
                Sealing::Origin(&mut origin.crypt, hop),
                Some(&mut origin.traffic),
            ),
            Role::AwayFromOrigin(_) => return,
        };
        let (ends, mut table) = streams.split();
        let Some(end) = ends.get_mut(hop) else {
            return;
        };
        while let Some((_, front)) = end.pending.front() {
            let command = RelayBody::new(front.body()).command();
            if queue.len() >= self.params.queue_high {
                *blocked = true;
                end.flow.set_blocked(true);
                break;
            }
            if command == RelayCmd::DATA && end.flow.room() == 0 {
                break;
            }
            let Some((edge, mut cell)) = end.take() else {
                break;
            };
            let body = RelayBody::new(cell.body());
            let id = body.stream_id();
            let Some((credit, generation)) = table.leaving(id, edge, end) else {
                self.pool.put(cell);
                continue;
            };
            if let Some(traffic) = &mut traffic {
                traffic.note_written(body.data().map_or(0, <[u8]>::len));
            }
            if !crypt.seal(cell.body_mut()) {
                // No edge makes such a cell; but bytes must not be missing from a stream that goes on.
                self.pool.put(cell);
                unsaid = true;
                break;
            }
            cell.set_command(ChanCmd::RELAY);
            cell.set_circ_id(*circ_id);
            if command == RelayCmd::DATA {
                end.flow.note_sent(|| crypt.sent(), now);
                if credit > 0 {
                    let stream = StreamAddr {
                        half: addr,
                        id,
                        generation,
                    };
                    credits.push((edge, stream, credit));
                }
            } else {
                table.end_sent(id, end.flow.rtt().map(|rtt| rtt.max), now);
            }
            queue.push(cell, now);
        }
        end.note(now);
        while let Some((edge, id, generation, credit)) = table.next_loan(end) {
            let stream = StreamAddr {
                half: addr,
                id,
                generation,
            };
            if credit > 0 {
                credits.push((edge, stream, credit));
            }
        }
        let key = *link;
        if was_empty && !queue.is_empty() {
            self.activate(slot, key);
        }
        for (edge, stream, cells) in credits.drain(..) {
            self.send(Control::Edge(EdgeControl::Credit {
                to: edge,
                stream,
                cells,
            }));
        }
        self.credits = credits;
        if unsaid {
            self.close_half(slot, DestroyReason::INTERNAL, Tell::Both, now);
        }
    }

    /// The half's queue has room again: its edges' cells go on.
    pub(super) fn unblock(&mut self, slot: u32, now: Instant) {
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        half.blocked = false;
        let hops = match half.streams_mut() {
            Some(streams) => {
                for end in &mut streams.ends {
                    end.flow.set_blocked(false);
                }
                streams.ends.len()
            }
            None => 0,
        };
        for hop in 0..hops {
            self.package(slot, hop, now);
        }
    }

    // ---- what the controller and edges decide ----

    /// The edge of a stream that the circuit asked for exists. If the stream does not wait for it
    /// (any more), the edge ends.
    pub(super) fn on_edge_made(&mut self, stream: StreamAddr, edge: EdgeAddr, now: Instant) {
        let half = self.halves.at(stream.half);
        let early = half
            .and_then(CircuitHalf::streams_mut)
            .and_then(|streams| streams.place(stream, edge));
        match early {
            Some(early) => {
                if early.xoff_sent() {
                    self.send(Control::Edge(EdgeControl::XoffSent { to: edge, stream }));
                    self.settle(now);
                }
                for cell in early.into_cells() {
                    self.send_off(stream.half, edge, cell, now);
                }
                self.on_credit_asked(stream, now);
            }
            None => self.detach(edge, stream),
        }
    }

    /// A stream's edge has bytes to send, and no credit.
    pub(super) fn on_credit_asked(&mut self, stream: StreamAddr, now: Instant) {
        let half = self.halves.at(stream.half);
        let streams = half.and_then(CircuitHalf::streams_mut);
        if let Some(hop) = streams.and_then(|streams| streams.ask(stream)) {
            self.package(stream.half.slot, hop, now);
        }
    }

    /// A stream's edge gives credit back: others may have it.
    pub(super) fn on_credit_returned(&mut self, stream: StreamAddr, cells: u32, now: Instant) {
        let half = self.halves.at(stream.half);
        let streams = half.and_then(CircuitHalf::streams_mut);
        if let Some(hop) = streams.and_then(|streams| streams.returned(stream, cells)) {
            self.package(stream.half.slot, hop, now);
        }
    }

    /// Notifies an edge that it has no stream.
    pub(super) fn detach(&mut self, edge: EdgeAddr, stream: StreamAddr) {
        self.send(Control::Edge(EdgeControl::Detached {
            to: edge,
            stream,
            reason: EndReason::DESTROY,
        }));
    }

    /// A stream that the circuit asked for will not be opened.
    pub(super) fn on_stream_refused(&mut self, stream: StreamAddr, end: &[u8], now: Instant) {
        let left = self.left_of_new(stream.half.slot);
        if self.end_deciding(stream, left, now) {
            self.say(stream.half.slot, 0, RelayCmd::END, stream.id, end, now);
        }
    }

    /// A RESOLVE of the circuit's is answered.
    pub(super) fn on_resolved(&mut self, stream: StreamAddr, resolved: &Resolved, now: Instant) {
        if self.end_deciding(stream, Left::NOTHING, now) {
            // More answers than a cell holds are the exit's fault; none is what is said then.
            let data = resolved.encode().unwrap_or_default();
            self.say(
                stream.half.slot,
                0,
                RelayCmd::RESOLVED,
                stream.id,
                &data,
                now,
            );
        }
    }

    /// Ends a stream that waits for a decision; its END or RESOLVED is sent next. `left`: what its far
    /// end may still send. False: this stream waits for none (any more).
    fn end_deciding(&mut self, stream: StreamAddr, left: Left, now: Instant) -> bool {
        let half = self.halves.at(stream.half);
        let Some(streams) = half.and_then(CircuitHalf::streams_mut) else {
            return false;
        };
        let Some(early) = streams.refuse(stream) else {
            return false;
        };
        streams.ended_at_once(stream.id, left, now);
        for cell in early.into_cells() {
            self.pool.put(cell);
        }
        true
    }

    /// What the far end of a stream may send that was refused.
    fn left_of_new(&self, slot: u32) -> Left {
        let vegas = match self.halves.get(slot).map(|half| &half.role) {
            Some(Role::TowardOrigin(toward)) => toward.sendme_inc.is_some(),
            _ => false,
        };
        // An exit takes data only: whatever side this is, it is the same.
        self.stream_flow(Terms::new(vegas, false), Side::Exit)
            .left()
    }

    /// Refuses a stream at once. Its far end may have sent data already.
    fn refuse_stream(&mut self, slot: u32, stream: u16, reason: EndReason, now: Instant) {
        let left = self.left_of_new(slot);
        if let Some(half) = self.halves.get_mut(slot)
            && let Role::TowardOrigin(toward) = &mut half.role
        {
            let streams = toward.streams_or_new(&self.params.cc);
            streams.ended_at_once(stream, left, now);
        }
        let end = End {
            reason,
            addr: None,
            ttl: 0,
        };
        self.say(slot, 0, RelayCmd::END, stream, &end.encode(), now);
    }

    /// The streams of a half that is closing lose it.
    pub(super) fn end_streams(&mut self, from: HalfAddr, half: &mut CircuitHalf) {
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
                    self.stream_gone(addr);
                }
                Place::Over(_) => {}
            }
        }
    }

    // ---- saying something ----

    /// Sends a relay message of this half's own to a hop: the origin's, or on a circuit of our own
    /// any hop.
    pub(super) fn say(
        &mut self,
        slot: u32,
        hop: usize,
        command: RelayCmd,
        stream: u16,
        data: &[u8],
        now: Instant,
    ) {
        let mut cell = self.pool.blank(0, ChanCmd::RELAY);
        if relay::encode(cell.body_mut(), command, stream, data, &mut self.rng).is_err() {
            self.pool.put(cell);
            return self.close_half(slot, DestroyReason::INTERNAL, Tell::Both, now);
        }
        self.seal_and_enqueue(slot, hop, cell, now);
    }

    /// Encrypts a message that does not count, and queues it.
    pub(super) fn seal_and_enqueue(
        &mut self,
        slot: u32,
        hop: usize,
        mut cell: Box<Cell>,
        now: Instant,
    ) {
        let sealing = match self.halves.get_mut(slot).map(|half| &mut half.role) {
            Some(Role::TowardOrigin(toward)) => toward.crypt.as_mut().map(Sealing::Relay),
            Some(Role::Origin(origin)) if hop < origin.crypt.len() => {
                let data = RelayBody::new(cell.body()).data();
                origin.traffic.note_written(data.map_or(0, <[u8]>::len));
                Some(Sealing::Origin(&mut origin.crypt, hop))
            }
            _ => None,
        };
        let Some(mut sealing) = sealing else {
            self.pool.put(cell);
            return;
        };
        if !sealing.seal(cell.body_mut()) {
            self.pool.put(cell);
            return self.close_half(slot, DestroyReason::INTERNAL, Tell::Both, now);
        }
        cell.set_command(ChanCmd::RELAY);
        self.enqueue(slot, cell, now);
    }

    /// An edge found that its stream's far end broke the rules.
    pub(super) fn on_stream_broken(&mut self, half: HalfAddr, what: &'static str, now: Instant) {
        if self.halves.at(half).is_some() {
            self.totals.streams.flow_violations += 1;
            self.protocol_error(half.slot, what, now);
        }
    }
}

/// Whose keys a message is sealed with.
enum Sealing<'a> {
    /// A relay's, toward the origin.
    Relay(&'a mut RelayCircuit),
    /// The origin's, toward a hop.
    Origin(&'a mut OriginCircuit, usize),
}

impl Sealing<'_> {
    /// Seals a message for a RELAY cell and adds the layers. False: it cannot be said.
    fn seal(&mut self, body: &mut weft_cell::Body) -> bool {
        match self {
            Sealing::Relay(crypt) => crypt.originate_backward(body).is_ok(),
            Sealing::Origin(crypt, hop) => {
                let sealed = crypt.encrypt_forward(*hop, ChanCmd::RELAY, body);
                sealed.is_ok()
            }
        }
    }

    /// What a SENDME for the message that was sealed last must carry.
    fn sent(&self) -> Seen {
        match self {
            Sealing::Relay(crypt) => crypt.sent(),
            // Whoever was just sealed for has sealed something.
            Sealing::Origin(crypt, hop) => crypt.sent(*hop).unwrap_or(Seen::Tag([0; 16])),
        }
    }
}

/// What halves say to each other also reaches edges by this.
impl From<HalfControl> for Control {
    fn from(control: HalfControl) -> Self {
        Control::Half(control)
    }
}

impl From<EdgeControl> for Control {
    fn from(control: EdgeControl) -> Self {
        Control::Edge(control)
    }
}
