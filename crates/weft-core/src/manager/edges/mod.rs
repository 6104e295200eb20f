//! An edge's side of a stream, as a state machine (tor-spec 6.2 to 6.4, 7.4, proposal 324's XON and
//! XOFF): made here, fed by its socket (`sockets`), by its circuit (`arrivals`) and by the client thread
//! (`commands`), and ended here.

mod arrivals;
mod commands;
mod sockets;

use std::net::IpAddr;
use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::reason::EndReason;
use weft_cell::relay;
use weft_cell::stream_msg::{Connected, End};

use super::LocalConnectionManager;
use crate::address::{ConnectionId, EdgeAddr, StreamAddr};
use crate::buffer::Bytes;
use crate::edge::{Edge, Phase, StreamAt};
use crate::ended::Left;
use crate::flow::{Side, StreamFlow, Terms};
use crate::message::{Carried, EdgeCell, HalfControl, ToController};
use crate::origin::{EndedBy, OriginEvent};

impl LocalConnectionManager {
    // ---- made and given their sockets ----

    /// An edge for a stream that a circuit asked for; its socket is being connected. The caller says
    /// so by [`edge_connected`](Self::edge_connected), or [`end_edge`](Self::end_edge).
    pub fn adopt_exit(&mut self, id: ConnectionId, at: StreamAt, now: Instant) -> Option<u32> {
        let flow = self.stream_flow(at.terms, Side::Exit);
        let edge = self.edges.insert(Edge::exit(id, at, flow))?;
        self.edge_ids.insert(id, edge.slot);
        let stream = at.addr;
        self.send(HalfControl::EdgeMade { stream, edge }.into());
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

    // ---- ended ----

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
        let mut edge = self.edges.remove(slot)?;
        self.edge_ids.remove(&edge.id);
        if edge.origin.is_some()
            && let Some((got, gave)) = edge.take_traffic()
        {
            self.tell_origin(OriginEvent::Traffic {
                streams: vec![(edge.id, got, gave)],
                circuits: Vec::new(),
            });
        }
        if let Some(place) = edge.listed {
            self.unlist_edge(place);
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

    // ---- helpers ----

    /// Ends a stream that was opened for an edge that does not want it any more.
    fn end_unwanted(&mut self, edge: EdgeAddr, at: StreamAt, now: Instant) {
        let StreamAt { addr: to, terms } = at;
        let left = self.stream_flow(terms, Side::Client).left();
        self.tell_ending(to, true, left);
        let mut cell = self.pool.take();
        let end = End::new(EndReason::MISC).encode();
        let _ = relay::encode(cell.body_mut(), RelayCmd::END, to.id, &end, &mut self.rng);
        let half = to.half;
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
            && let Some(edge) = self.edges.get(slot)
        {
            let connected = edge.phase == Phase::Opening && edge.origin.is_some();
            let left = edge.flow.left();
            self.tell_ending(at.addr, connected, left);
        }
        let mut cell = self.pool.take();
        // END's, CONNECTED's and SENDME's data are short.
        let to = at.addr;
        let _ = relay::encode(cell.body_mut(), command, to.id, data, &mut self.rng);
        self.send_on(
            EdgeCell {
                half: to.half,
                edge: addr,
                cell,
            },
            now,
        );
    }

    /// Tells a half that END comes, ahead of it.
    fn tell_ending(&mut self, stream: StreamAddr, connected: bool, left: Left) {
        if stream.half.thread == self.me {
            self.on_ending(stream, connected, left);
        } else {
            self.send(
                HalfControl::Ending {
                    stream,
                    connected,
                    left,
                }
                .into(),
            );
        }
    }

    /// Ends a stream for want of memory or files, with what waits for its socket.
    pub(super) fn give_up(&mut self, slot: u32, now: Instant) {
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
            if let Some(side) = &mut edge.origin {
                side.optimistic = Vec::new();
            }
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
    pub(super) fn stream_flow(&self, terms: Terms, side: Side) -> StreamFlow {
        match terms.is_vegas() {
            true => StreamFlow::xon_xoff(&self.params.cc, side),
            false => StreamFlow::fixed(),
        }
    }

    /// Lists an edge among those with bytes for their sockets.
    fn list_edge(&mut self, slot: u32) {
        if let Some(edge) = self.edges.get_mut(slot)
            && edge.listed.is_none()
        {
            edge.listed = Some(self.edges_to_write.add(slot));
        }
    }

    /// Takes the edge at this place off that list.
    fn unlist_edge(&mut self, place: usize) {
        if let Some(moved) = self.edges_to_write.remove(place)
            && let Some(moved) = self.edges.get_mut(moved)
        {
            moved.listed = Some(place);
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
