//! An edge's side of a stream: bytes of sockets, and what its state machine makes of them
//! (tor-spec 6.2 to 6.4, 7.4, proposal 324's XON and XOFF).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use rand::Rng as _;
use weft_cell::RelayCmd;
use weft_cell::reason::EndReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::{Begin, Connected, End, Resolve, Resolved, Xoff, Xon};

use super::LocalConnectionManager;
use crate::address::{ConnectionId, EdgeAddr, HalfAddr};
use crate::edge::{At, Bytes, Edge, EdgeNews, MAX_WAITING, Phase, RANDOM_BYTES};
use crate::ended::Left;
use crate::flow::{FlowError, FlowMsg, Side, StreamFlow, Terms};
use crate::message::{Carried, EdgeCell, EdgeControl, HalfControl, ToController};
use crate::origin::{AppRefusal, EndedBy, OriginEvent, OriginId, StreamOpening};
use crate::streams::EDGE_CREDIT;

/// At least one cell in so many is such a one.
const FULL_CELLS: u8 = 50;

impl LocalConnectionManager {
    // ---- made and given their sockets ----

    /// An edge for a stream that a circuit asked for; its socket is being connected. The caller says
    /// so by [`edge_connected`](Self::edge_connected), or [`end_edge`](Self::end_edge).
    pub fn adopt_exit(
        &mut self,
        id: ConnectionId,
        half: HalfAddr,
        stream: u16,
        terms: Terms,
        now: Instant,
    ) -> Option<u32> {
        let flow = self.stream_flow(terms, Side::Exit);
        let edge = self.edges.insert(Edge::exit(
            id,
            At {
                half,
                stream,
                terms,
            },
            flow,
        ))?;
        self.edge_ids.insert(id, edge.slot);
        self.send(
            HalfControl::EdgeMade {
                to: half,
                stream,
                edge,
            }
            .into(),
        );
        self.settle(now);
        Some(edge.slot)
    }

    /// An edge for an application, or for something of this node's own, that waits for a circuit.
    pub fn adopt_application(&mut self, id: ConnectionId) -> Option<u32> {
        let edge = self.edges.insert(Edge::application(id))?;
        self.edge_ids.insert(id, edge.slot);
        Some(edge.slot)
    }

    /// The edge of a connection.
    pub fn edge_of(&self, id: ConnectionId) -> Option<u32> {
        self.edge_ids.get(&id).copied()
    }

    /// The connection of an edge.
    pub fn edge_id(&self, slot: u32) -> Option<ConnectionId> {
        Some(self.edges.get(slot)?.id)
    }

    /// An application says what it wants.
    pub fn edge_asks(&mut self, slot: u32, request: crate::origin::AppRequest) {
        if let Some(edge) = self.edges.get(slot) {
            let stream = edge.id;
            self.tell_origin(OriginEvent::Request { stream, request });
        }
    }

    /// The socket of a stream that a circuit asked for is connected, to this address.
    pub fn edge_connected(&mut self, slot: u32, addr: Option<IpAddr>, ttl: u32, now: Instant) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        if edge.phase != Phase::Opening || edge.origin.is_some() {
            return;
        }
        edge.phase = Phase::Open;
        self.totals.streams.connected += 1;
        let data = Connected { addr, ttl }.encode();
        self.edge_says(slot, RelayCmd::CONNECTED, &data, now);
        self.list_edge(slot);
        self.settle(now);
    }

    // ---- from the socket ----

    /// Bytes that an edge can take from its socket now.
    pub fn edge_room(&self, slot: u32) -> usize {
        self.edges.get(slot).map_or(0, Edge::room_bytes)
    }

    /// Whether an edge has anywhere to put bytes; if not, news will tell when.
    pub fn edge_wants(&self, slot: u32) -> bool {
        self.edge_room(slot) > 0
    }

    /// How many of so many bytes may be read from an edge's socket now, by what its far end said of
    /// its reader, or how long to wait (proposal 324, 4.1.2).
    pub fn edge_pace(&mut self, slot: u32, wanted: usize, now: Instant) -> Result<usize, Duration> {
        match self.edges.get_mut(slot) {
            Some(edge) => edge.flow.pace(wanted, now),
            None => Ok(wanted),
        }
    }

    /// Takes bytes of an edge's socket: as many as [`edge_room`](Self::edge_room) said at most.
    pub fn edge_data(&mut self, slot: u32, mut bytes: &[u8], now: Instant) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        if edge.phase == Phase::Opening
            && let Some(side) = &mut edge.origin
        {
            side.optimistic.extend_from_slice(bytes);
        }
        edge.gave += bytes.len() as u64;
        edge.flow.note_read(bytes.len(), now);
        self.totals.streams.packaged += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(edge) = self.edges.get_mut(slot) else {
                return;
            };
            let Some(At {
                half,
                stream,
                terms,
            }) = edge.at
            else {
                return;
            };
            let most = match edge.full_cells_left.checked_sub(1) {
                Some(left) => {
                    edge.full_cells_left = left;
                    terms.max_data()
                }
                None => {
                    let random = self.rng.next_u32().to_le_bytes();
                    edge.full_cells_left = random[0] % FULL_CELLS;
                    terms.max_data() - RANDOM_BYTES
                }
            };
            let (data, rest) = bytes
                .split_at_checked(most)
                .unwrap_or((bytes, Default::default()));
            bytes = rest;
            edge.flow.note_sent(1);
            edge.credit = edge.credit.saturating_sub(1);
            let mut cell = self.pool.take();
            // Always fits.
            let _ = relay::encode(cell.body_mut(), RelayCmd::DATA, stream, data, &mut self.rng);
            let Some(edge) = self.edges.addr(slot) else {
                return;
            };
            self.send_on(EdgeCell { half, edge, cell }, now);
        }
        self.settle(now);
    }

    /// The socket is done: it ended, failed, or could not be connected. The edge is gone afterwards.
    pub fn end_edge(&mut self, slot: u32, reason: EndReason, now: Instant) {
        self.end_edge_by(slot, End::new(reason), EndedBy::Application, now);
        self.settle(now);
    }

    /// Ends a stream: END onto the circuit, if it does not know yet.
    fn end_edge_by(&mut self, slot: u32, end: End, by: EndedBy, now: Instant) {
        let Some(edge) = self.edges.get(slot) else {
            return;
        };
        if edge.phase != Phase::Over && edge.at.is_some() {
            // The origin does not say why (tor-spec 6.3).
            let end = match edge.origin {
                Some(_) => End::new(EndReason::MISC),
                None => end,
            };
            self.edge_says(slot, RelayCmd::END, &end.encode(), now);
        }
        self.drop_edge(slot, end.reason, by);
    }

    /// Forgets an edge; whoever cares is told.
    fn drop_edge(&mut self, slot: u32, reason: EndReason, by: EndedBy) -> Option<Edge> {
        let edge = self.edges.remove(slot)?;
        self.edge_ids.remove(&edge.id);
        if edge.listed {
            self.edges_to_write.retain(|other| *other != slot);
        }
        // What ended over there was told of then.
        if let Some(side) = &edge.origin
            && edge.phase != Phase::Over
        {
            self.tell_origin(OriginEvent::Ended {
                stream: edge.id,
                circuit: side.circuit,
                reason,
                addr: None,
                by,
                waiting: false,
                bytes: (edge.got, edge.gave),
            });
        }
        self.to_controller.push_back(ToController::EdgeClosed {
            connection: edge.id,
        });
        Some(edge)
    }

    // ---- to the socket ----

    /// Edges with bytes for their sockets, or which are to be closed.
    pub fn edges_to_write(&self) -> &[u32] {
        &self.edges_to_write
    }

    /// Takes edges off that list that have nothing any more.
    pub fn prune_edges(&mut self) {
        let edges = &mut self.edges;
        self.edges_to_write.retain(|slot| {
            let Some(edge) = edges.get_mut(*slot) else {
                return false;
            };
            edge.listed = !edge.out.is_empty() || edge.phase == Phase::Over;
            edge.listed
        });
    }

    /// The bytes that an edge has for its socket, and whether the socket is to be closed when it has
    /// taken them.
    pub fn edge_out(&self, slot: u32) -> (&[u8], bool) {
        match self.edges.get(slot) {
            // While its socket is being connected, or its application told so, all waits.
            Some(edge) if edge.phase == Phase::Opening || edge.phase == Phase::Waiting => {
                (&[], false)
            }
            Some(edge) => (edge.out.as_slice(), edge.phase == Phase::Over),
            None => (&[], true),
        }
    }

    /// The socket took so many bytes.
    pub fn edge_wrote(&mut self, slot: u32, count: usize, now: Instant) {
        if let Some(edge) = self.edges.get_mut(slot) {
            edge.out.take(count);
            edge.note_out(now);
            self.mind_queue(slot, count, now);
            self.settle(now);
        }
    }

    /// SENDME, XOFF and XON, as the queue toward the socket grows and shrinks.
    fn mind_queue(&mut self, slot: u32, mut written: usize, now: Instant) {
        while let Some(edge) = self.edges.get_mut(slot)
            && edge.phase != Phase::Over
            && edge.at.is_some()
            && let Some(message) = edge.flow.note_queue(edge.out.len(), written, now)
        {
            written = 0;
            match message {
                FlowMsg::Sendme => self.edge_says(slot, RelayCmd::SENDME, &[], now),
                FlowMsg::Xoff => {
                    let xoff = Xoff { version: 0 };
                    self.edge_says(slot, RelayCmd::XOFF, &xoff.encode(), now);
                }
                FlowMsg::Xon(kbps_ewma) => {
                    let xon = Xon {
                        version: 0,
                        kbps_ewma,
                    };
                    self.edge_says(slot, RelayCmd::XON, &xon.encode(), now);
                }
            }
        }
    }

    /// The next thing that an edge has for whoever holds its socket.
    pub fn poll_edge(&mut self) -> Option<EdgeNews> {
        self.edge_news.pop_front()
    }

    /// Some edge has news.
    pub fn has_edge_news(&self) -> bool {
        !self.edge_news.is_empty()
    }

    // ---- from the circuit ----

    /// A relay message for an edge.
    pub(super) fn on_off(&mut self, message: EdgeCell, now: Instant) {
        let EdgeCell { half, edge, cell } = message;
        let slot = edge.slot;
        let body = RelayBody::new(cell.body());
        let (command, data) = (body.command(), body.data().unwrap_or_default());
        let here = (half, body.stream_id());
        let is_here = |edge: &&mut Edge| edge.at.map(|at| (at.half, at.stream)) == Some(here);
        let Some(edge) = self.edges.at(edge).filter(is_here) else {
            // Ended here while this was on its way from its half, which knew the stream.
            self.totals.streams.late += 1;
            self.pool.put(cell);
            return;
        };
        let origin = edge.origin.is_some();
        let result = match (command, edge.phase) {
            (_, Phase::Over | Phase::Waiting) => Ok(()),
            (RelayCmd::DATA, Phase::Open) => self.edge_gets(slot, data, now),
            (RelayCmd::DATA, Phase::Opening) if !origin => self.edge_gets(slot, data, now),
            (RelayCmd::CONNECTED, Phase::Opening) if origin => {
                match Connected::decode(data) {
                    Ok(connected) => self.edge_is_connected(slot, connected),
                    // An address that cannot be told does not matter, as in C tor.
                    Err(_) => self.edge_is_connected(slot, Connected { addr: None, ttl: 0 }),
                }
                Ok(())
            }
            (RelayCmd::RESOLVED, Phase::Opening) if origin => {
                match Resolved::decode(data) {
                    Ok(resolved) => self.edge_is_resolved(slot, resolved),
                    Err(_) => self.far_end(slot, End::new(EndReason::TORPROTOCOL), EndedBy::Exit),
                }
                Ok(())
            }
            (RelayCmd::END, _) => {
                self.far_end(slot, End::decode(data), EndedBy::Exit);
                Ok(())
            }
            (RelayCmd::CONNECTED | RelayCmd::RESOLVED, Phase::Open) => {
                self.send(
                    HalfControl::Broken {
                        to: half,
                        what: "CONNECTED or RESOLVED on a stream that is open",
                    }
                    .into(),
                );
                Ok(())
            }
            (RelayCmd::SENDME, _) => edge.flow.sendme(),
            (RelayCmd::XOFF, _) => edge.flow.xoff(data),
            (RelayCmd::XON, _) => edge.flow.xon(data),
            _ => {
                self.totals.cells_dropped += 1;
                Ok(())
            }
        };
        self.pool.put(cell);
        match result {
            Ok(()) if command == RelayCmd::SENDME || command == RelayCmd::XON => {
                self.edge_news.push_back(EdgeNews::Room { edge: slot });
            }
            Ok(()) => {}
            Err(_) => self.send(
                HalfControl::Broken {
                    to: half,
                    what: "a stream's SENDME, XON, XOFF or DATA that its rules do not allow",
                }
                .into(),
            ),
        }
    }

    /// DATA for the socket.
    fn edge_gets(&mut self, slot: u32, data: &[u8], now: Instant) -> Result<(), FlowError> {
        let Some(edge) = self.edges.get_mut(slot) else {
            return Ok(());
        };
        edge.flow.note_received(data.len())?;
        edge.got += data.len() as u64;
        self.totals.streams.delivered += data.len() as u64;
        if edge.out.len() + data.len() > MAX_WAITING {
            self.totals.streams.overflowed += 1;
            self.give_up(slot, now);
            return Ok(());
        }
        edge.out.push(data);
        edge.note_out(now);
        self.list_edge(slot);
        self.mind_queue(slot, 0, now);
        Ok(())
    }

    /// CONNECTED: the application is told, and data flows.
    fn edge_is_connected(&mut self, slot: u32, connected: Connected) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        edge.phase = Phase::Open;
        let stream = edge.id;
        let circuit = edge.origin.as_mut().and_then(|side| {
            side.optimistic = Vec::new();
            side.circuit
        });
        self.totals.streams.connected += 1;
        self.edge_news.push_back(EdgeNews::Connected {
            edge: slot,
            addr: connected.addr,
        });
        self.edge_news.push_back(EdgeNews::Room { edge: slot });
        self.list_edge(slot);
        if let Some(circuit) = circuit {
            self.tell_origin(OriginEvent::Connected {
                stream,
                circuit,
                addr: connected.addr,
                ttl: connected.ttl,
            });
        }
    }

    /// RESOLVED: the application is answered, and that is all.
    fn edge_is_resolved(&mut self, slot: u32, resolved: Resolved) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        let (id, circuit) = (edge.id, edge.origin.as_ref().and_then(|side| side.circuit));
        edge.phase = Phase::Over;
        if let Some(circuit) = circuit {
            self.tell_origin(OriginEvent::Resolved {
                stream: id,
                circuit,
                resolved: resolved.clone(),
            });
        }
        self.drop_edge(slot, EndReason::DONE, EndedBy::Exit);
        self.edge_news
            .push_back(EdgeNews::Resolved { id, resolved });
    }

    /// The far end is gone: END came, or the circuit went.
    fn far_end(&mut self, slot: u32, end: End, by: EndedBy) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        edge.at = None;
        edge.asked = None;
        let stream = edge.id;
        let waits = edge.phase == Phase::Opening && by != EndedBy::Us;
        if let Some(side) = &mut edge.origin {
            let circuit = side.circuit.take();
            edge.phase = if waits { Phase::Waiting } else { Phase::Over };
            let bytes = (edge.got, edge.gave);
            self.tell_origin(OriginEvent::Ended {
                stream,
                circuit,
                reason: end.reason,
                addr: end.addr,
                by,
                waiting: waits,
                bytes,
            });
            if waits {
                return;
            }
        } else {
            edge.phase = Phase::Over;
        }
        self.list_edge(slot);
        self.edge_news.push_back(EdgeNews::Over {
            edge: slot,
            reason: end.reason,
        });
    }

    /// What a half says to an edge.
    pub(super) fn on_edge_control(&mut self, control: EdgeControl, now: Instant) {
        let addr = control.to();
        let slot = addr.slot;
        let Some(edge) = self.edges.at(addr) else {
            // It is gone: a stream that was opened for it must not stay.
            if let EdgeControl::Attached {
                half,
                stream,
                terms,
                ..
            } = control
            {
                self.end_unwanted(half, addr, stream, terms, now);
            }
            return;
        };
        match control {
            EdgeControl::Attached {
                half,
                stream,
                terms,
                ..
            } => {
                if edge.phase != Phase::Opening || edge.at.is_some() || edge.asked != Some(half) {
                    // It was taken back meanwhile.
                    return self.end_unwanted(half, addr, stream, terms, now);
                }
                edge.at = Some(At {
                    half,
                    stream,
                    terms,
                });
                edge.asked = None;
                edge.credit = EDGE_CREDIT;
                let again = edge
                    .origin
                    .as_mut()
                    .map(|side| std::mem::take(&mut side.optimistic))
                    .unwrap_or_default();
                let flow = self.stream_flow(terms, Side::Client);
                if let Some(edge) = self.edges.get_mut(slot) {
                    edge.flow = flow;
                    edge.gave = 0;
                }
                // What the application said to a circuit that failed it.
                self.edge_data(slot, &again, now);
                self.edge_news.push_back(EdgeNews::Room { edge: slot });
            }
            EdgeControl::Credit { half, cells, .. } => {
                if edge.at.is_some_and(|at| at.half == half) {
                    let had = edge.room();
                    edge.credit = (edge.credit + cells).min(EDGE_CREDIT);
                    if had == 0 {
                        self.edge_news.push_back(EdgeNews::Room { edge: slot });
                    }
                }
            }
            EdgeControl::Detached { half, reason, .. } => {
                let asked = edge.asked == Some(half);
                if asked || edge.at.is_some_and(|at| at.half == half) {
                    self.far_end(slot, End::new(reason), EndedBy::Circuit);
                }
            }
        }
    }

    // ---- what the client thread asks ----

    /// A stream goes on a circuit.
    pub(super) fn on_attach(
        &mut self,
        stream: ConnectionId,
        circuit: OriginId,
        half: HalfAddr,
        hop: u8,
        opening: &StreamOpening,
    ) {
        let Some(slot) = self.edge_of(stream) else {
            return;
        };
        let message = match opening {
            StreamOpening::Begin { host, port, flags } => Begin {
                target: host.clone().into_bytes(),
                port: *port,
                flags: *flags,
            }
            .encode()
            .map(|data| (RelayCmd::BEGIN, data)),
            StreamOpening::BeginDir => Ok((RelayCmd::BEGIN_DIR, Vec::new())),
            StreamOpening::Resolve { name } => Resolve {
                name: name.clone().into_bytes(),
            }
            .encode()
            .map(|data| (RelayCmd::RESOLVE, data)),
        };
        let Some(addr) = self.edges.addr(slot) else {
            return;
        };
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        let Some(side) = edge
            .origin
            .as_mut()
            .filter(|_| edge.phase == Phase::Waiting)
        else {
            return;
        };
        side.circuit = Some(circuit);
        edge.phase = Phase::Opening;
        edge.asked = Some(half);
        match message {
            Ok((command, data)) => self.send(
                HalfControl::Attach {
                    to: half,
                    edge: addr,
                    hop,
                    command,
                    data,
                }
                .into(),
            ),
            // A name that no BEGIN can say.
            Err(_) => self.far_end(slot, End::new(EndReason::TORPROTOCOL), EndedBy::Circuit),
        }
    }

    /// An application's request fails.
    pub(super) fn on_refuse_app(&mut self, stream: ConnectionId, why: AppRefusal, now: Instant) {
        if let Some(slot) = self.edge_of(stream) {
            self.end_edge_by(slot, End::new(EndReason::MISC), EndedBy::Us, now);
            self.edge_news
                .push_back(EdgeNews::Refused { id: stream, why });
        }
    }

    /// An application's resolve request is answered from what is known.
    pub(super) fn on_answer_app(&mut self, stream: ConnectionId, resolved: Resolved) {
        if let Some(slot) = self.edge_of(stream) {
            self.drop_edge(slot, EndReason::DONE, EndedBy::Us);
            self.edge_news.push_back(EdgeNews::Resolved {
                id: stream,
                resolved,
            });
        }
    }

    /// A stream that is not connected yet leaves its circuit, and waits for another.
    pub(super) fn on_detach(&mut self, stream: ConnectionId, reason: EndReason, now: Instant) {
        let Some(slot) = self.edge_of(stream) else {
            return;
        };
        let Some(edge) = self.edges.get(slot) else {
            return;
        };
        // One that is being attached has no stream yet to end: `Attached` will find nobody who
        // waits for it.
        if edge.phase == Phase::Opening && edge.origin.is_some() {
            let end = End::new(reason);
            self.edge_says(slot, RelayCmd::END, &end.encode(), now);
        }
        if let Some(edge) = self.edges.get_mut(slot)
            && edge.phase == Phase::Opening
            && let Some(side) = &mut edge.origin
        {
            side.circuit = None;
            edge.at = None;
            edge.asked = None;
            edge.phase = Phase::Waiting;
        }
    }

    /// A stream shall end.
    pub(super) fn on_close_stream(
        &mut self,
        stream: ConnectionId,
        reason: EndReason,
        now: Instant,
    ) {
        let Some(slot) = self.edge_of(stream) else {
            return;
        };
        let Some(edge) = self.edges.get(slot) else {
            return;
        };
        match edge.phase {
            Phase::Over => {}
            Phase::Waiting => self.on_refuse_app(stream, AppRefusal::General, now),
            Phase::Opening | Phase::Open => {
                let waits = edge.phase == Phase::Opening;
                if edge.at.is_some() {
                    let end = End::new(EndReason::MISC).encode();
                    self.edge_says(slot, RelayCmd::END, &end, now);
                }
                if waits {
                    self.on_refuse_app(stream, AppRefusal::General, now);
                } else {
                    self.far_end(slot, End::new(reason), EndedBy::Us);
                }
            }
        }
    }

    // ---- helpers ----

    /// Ends a stream that was opened for an edge that does not want it any more.
    fn end_unwanted(
        &mut self,
        half: HalfAddr,
        edge: EdgeAddr,
        stream: u16,
        terms: Terms,
        now: Instant,
    ) {
        let left = self.stream_flow(terms, Side::Client).left();
        self.tell_ending(half, stream, true, left, now);
        let mut cell = self.pool.take();
        let end = End::new(EndReason::MISC).encode();
        let _ = relay::encode(cell.body_mut(), RelayCmd::END, stream, &end, &mut self.rng);
        self.send_on(EdgeCell { half, edge, cell }, now);
    }

    /// Sends a message of an edge's own.
    fn edge_says(&mut self, slot: u32, command: RelayCmd, data: &[u8], now: Instant) {
        let (Some(addr), Some(at)) = (
            self.edges.addr(slot),
            self.edges.get(slot).and_then(|edge| edge.at),
        ) else {
            return;
        };
        if command == RelayCmd::END
            && let Some(edge) = self.edges.get(slot).filter(|edge| edge.origin.is_some())
        {
            let (connected, left) = (edge.phase == Phase::Opening, edge.flow.left());
            self.tell_ending(at.half, at.stream, connected, left, now);
        }
        let mut cell = self.pool.take();
        // END's, CONNECTED's and SENDME's data are short.
        let _ = relay::encode(cell.body_mut(), command, at.stream, data, &mut self.rng);
        self.send_on(
            EdgeCell {
                half: at.half,
                edge: addr,
                cell,
            },
            now,
        );
    }

    /// Tells a half that END comes, ahead of it.
    fn tell_ending(
        &mut self,
        half: HalfAddr,
        stream: u16,
        connected: bool,
        left: Left,
        now: Instant,
    ) {
        if half.thread == self.me {
            self.on_ending(half, stream, connected, left, now);
        } else {
            self.send(
                HalfControl::Ending {
                    to: half,
                    stream,
                    connected,
                    left,
                }
                .into(),
            );
        }
    }

    /// Ends the streams whose sockets have not taken what is as old as this.
    pub(super) fn free_edges(&mut self, older_than: Duration, now: Instant) {
        let old: Vec<u32> = self
            .edges
            .iter()
            .filter(|(_, edge)| !edge.out.is_empty() && edge.age(now) >= older_than)
            .map(|(slot, _)| slot)
            .collect();
        for slot in old {
            let queued = self.edges.get(slot).map_or(0, |edge| edge.out.capacity());
            self.totals.streams.overflowed += 1;
            self.totals.freed_for_memory += queued as u64;
            self.give_up(slot, now);
        }
    }

    /// Ends a stream for want of memory, with what waits for its socket.
    fn give_up(&mut self, slot: u32, now: Instant) {
        let end = End::new(EndReason::RESOURCELIMIT);
        if self
            .edges
            .get(slot)
            .is_some_and(|edge| edge.phase != Phase::Over)
        {
            self.edge_says(slot, RelayCmd::END, &end.encode(), now);
            self.far_end(slot, end, EndedBy::Us);
        }
        if let Some(edge) = self.edges.get_mut(slot) {
            edge.out = Bytes::default();
        }
    }

    /// Hands a message to a half, wherever it is.
    fn send_on(&mut self, message: EdgeCell, now: Instant) {
        let thread = message.half.thread;
        if thread == self.me {
            self.on_on(message, now);
        } else if let Some(outbox) = self.outboxes.get_mut(usize::from(thread.0)) {
            outbox.cells.push(Carried::On(message));
        }
    }

    /// The rules of a new stream.
    fn stream_flow(&self, terms: Terms, side: Side) -> StreamFlow {
        match terms.is_vegas() {
            true => StreamFlow::xon_xoff(&self.params.cc, side),
            false => StreamFlow::fixed(),
        }
    }

    /// Lists an edge among those with bytes for their sockets.
    fn list_edge(&mut self, slot: u32) {
        if let Some(edge) = self.edges.get_mut(slot)
            && !edge.listed
        {
            edge.listed = true;
            self.edges_to_write.push(slot);
        }
    }

    /// Tells the client thread something.
    pub(super) fn tell_origin(&mut self, event: OriginEvent) {
        self.to_controller.push_back(ToController::Origin(event));
    }

    /// Edges.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Bytes that edges hold for sockets that are slow.
    pub fn edge_bytes(&self) -> usize {
        self.edges.iter().map(|(_, edge)| edge.out.capacity()).sum()
    }
}
