//! An edge's side of a stream, as a state machine (tor-spec 6.2 to 6.4, 7.4, proposal 324's XON and
//! XOFF): edges are made and ended here, fed by their sockets (`sockets`), by their circuits
//! (`arrivals`) and by the client thread (`commands`).

mod arrivals;
mod audit;
mod commands;
mod sockets;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use rand::rngs::StdRng;
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Connected, End};
use weft_cell::{RelayCmd, relay};
use weft_planted::{Fault, planted};

use super::path::outbox::Outboxes;
use super::path::requests::ToControllerQueue;
use crate::address::{ConnectionId, EdgeAddr, StreamAddr, ThreadId};
use crate::flow::{Left, Side};
use crate::memory::buffer::{Bytes, Spares};
use crate::memory::cells::CellPool;
use crate::memory::ledger::{Held, queue_memory};
use crate::message::{EdgeCell, HalfControl, LaneMsg, StreamTotals, ToController};
use crate::origin::{EndedBy, OriginEvent};
use crate::params::RelayParams;
use crate::slots::EdgeKey;
use crate::slots::worklist::{Place, Worklist};
use crate::stream::edge::{Edge, EdgeNews, Edges, Phase, StreamAt};

/// A thread's edges, and the tables that list them.
///
/// Its fields are private to this folder: what handles halves reaches edges by messages alone. For all others there are
/// sums: of memory, of traffic, for the audit.
#[derive(Debug)]
pub struct EdgeSide {
    edges: Edges,
    by_connection: BTreeMap<ConnectionId, EdgeKey>,
    /// Edges with bytes for their sockets, or whose sockets are to be closed.
    to_write: Worklist<EdgeKey>,
    /// For the owner of the edges' sockets.
    news: VecDeque<EdgeNews>,
    /// Memory of edges' buffers.
    spares: Spares,
}

impl EdgeSide {
    pub(super) fn new(me: ThreadId) -> Self {
        EdgeSide {
            edges: Edges::new(me),
            by_connection: BTreeMap::new(),
            to_write: Worklist::default(),
            news: VecDeque::new(),
            spares: Spares::default(),
        }
    }

    /// An edge for an application, or for something of this node's own, that waits for a circuit.
    pub fn adopt_application(&mut self, id: ConnectionId) -> Option<EdgeKey> {
        let edge = self.edges.insert(Edge::application(id))?;
        self.by_connection.insert(id, edge.slot);
        Some(edge.slot)
    }

    /// The edge of a connection.
    pub fn of(&self, id: ConnectionId) -> Option<EdgeKey> {
        self.by_connection.get(&id).copied()
    }

    /// The connection of an edge.
    pub fn id(&self, slot: EdgeKey) -> Option<ConnectionId> {
        Some(self.edges.get(slot)?.id)
    }

    /// Edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Reports what the owner of an edge's socket holds for it and its peer can make grow, in bytes.
    pub fn set_holds(&mut self, slot: EdgeKey, bytes: usize) {
        if let Some(edge) = self.edges.get_mut(slot) {
            edge.socket_holds = bytes;
        }
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.edges.len() == 0
    }

    /// True if the edge at this address exists.
    pub(super) fn lives(&self, edge: EdgeAddr) -> bool {
        self.edges.peek(edge).is_some()
    }

    /// The edges, with the memory of each.
    pub(super) fn held(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (EdgeAddr, ConnectionId, Held)> {
        let edges = self.edges.iter();
        edges
            .filter_map(move |(slot, edge)| Some((self.edges.addr(slot)?, edge.id, edge.held(now))))
    }

    /// Bytes that applications' streams got and gave since the last call, of those that moved some.
    pub(super) fn take_traffic(&mut self) -> Vec<(ConnectionId, u64, u64)> {
        let edges = self.edges.iter_mut().filter_map(|(_, edge)| {
            let (got, gave) = edge.take_traffic().filter(|_| edge.origin.is_some())?;
            Some((edge.id, got, gave))
        });
        edges.collect()
    }

    /// Memory that nothing is in.
    pub(super) fn spare_memory(&self) -> usize {
        self.spares.capacity() + self.edges.vacant_memory()
    }

    /// Memory of the news that wait.
    pub(super) fn news_memory(&self) -> usize {
        queue_memory::<EdgeNews>(&self.news)
    }

    /// Gives back memory that nothing is in.
    pub(super) fn shrink(&mut self) {
        self.spares.clear();
        self.edges.shrink();
        self.news.shrink_to_fit();
    }

    /// Lists an edge among those with bytes for their sockets.
    fn list(&mut self, slot: EdgeKey) {
        if planted(Fault::EdgeNotListed) {
            return;
        }
        if let Some(edge) = self.edges.get_mut(slot)
            && edge.listed.is_none()
        {
            edge.listed = Some(self.to_write.add(slot));
        }
    }

    /// Takes the edge at this place off that list.
    fn unlist(&mut self, place: Place) {
        if let Some(moved) = self.to_write.remove(place)
            && let Some(moved) = self.edges.get_mut(moved)
        {
            moved.listed = Some(place);
        }
    }
}

/// The edges, with what they share with the halves of their thread: no half and no link is within reach. Edges send to
/// halves by the outboxes, on one thread as on two (architecture rule 2).
#[derive(Debug)]
pub(super) struct EdgeView<'a> {
    pub(super) edge_side: &'a mut EdgeSide,
    pub(super) params: &'a RelayParams,
    pub(super) pool: &'a mut CellPool,
    pub(super) outboxes: &'a mut Outboxes,
    pub(super) to_controller: &'a mut ToControllerQueue,
    pub(super) rng: &'a mut StdRng,
    pub(super) totals: &'a mut StreamTotals,
}

impl EdgeView<'_> {
    // ---- made and given their sockets ----

    /// An edge for a stream that a circuit asked for; its socket is being connected. The caller reports
    /// the result by [`edge_connected`](Self::edge_connected) or [`end_edge`](Self::end_edge).
    pub(in crate::manager) fn adopt_exit(
        &mut self,
        id: ConnectionId,
        at: StreamAt,
    ) -> Option<EdgeKey> {
        let flow = self.params.stream_flow(at.terms, Side::Exit);
        let edge = self.edge_side.edges.insert(Edge::exit(id, at, flow))?;
        self.edge_side.by_connection.insert(id, edge.slot);
        let stream = at.addr;
        (self.outboxes).send_half(HalfControl::EdgeMade { stream, edge });
        Some(edge.slot)
    }

    /// An application's request, for the client thread.
    pub(in crate::manager) fn edge_asks(
        &mut self,
        slot: EdgeKey,
        request: crate::origin::AppRequest,
    ) {
        if let Some(edge) = self.edge_side.edges.get(slot) {
            let stream = edge.id;
            self.to_controller
                .origin(OriginEvent::Request { stream, request });
        }
    }

    /// The socket of a stream that a circuit asked for is connected, to this address.
    pub(in crate::manager) fn edge_connected(
        &mut self,
        slot: EdgeKey,
        addr: Option<IpAddr>,
        ttl: u32,
    ) {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return;
        };
        if edge.phase != Phase::Opening || edge.origin.is_some() {
            return;
        }
        edge.phase = Phase::Open;
        self.totals.connected += 1;
        let data = Connected { addr, ttl }.encode();
        self.edge_send(slot, RelayCmd::CONNECTED, &data);
        self.edge_side.list(slot);
    }

    // ---- ended ----

    /// The socket ended, failed, or could not be connected. The edge is removed.
    pub(in crate::manager) fn end_edge(&mut self, slot: EdgeKey, reason: EndReason) {
        self.end_edge_by(slot, End::new(reason), EndedBy::Application);
    }

    /// Ends a stream: sends END on the circuit, if the far end does not know yet.
    fn end_edge_by(&mut self, slot: EdgeKey, end: End, by: EndedBy) {
        let Some(edge) = self.edge_side.edges.get(slot) else {
            return;
        };
        if edge.phase != Phase::Over && edge.at.is_some() {
            // The origin sends no reason (tor-spec 6.3).
            let end = match edge.origin {
                Some(_) => End::new(EndReason::MISC),
                None => end,
            };
            self.edge_send(slot, RelayCmd::END, &end.encode());
        }
        self.drop_edge(slot, end.reason, by);
    }

    /// Removes an edge, and reports that to the controller and the client thread.
    fn drop_edge(&mut self, slot: EdgeKey, reason: EndReason, by: EndedBy) -> Option<Edge> {
        let mut edge = self.edge_side.edges.remove(slot)?;
        self.edge_side.by_connection.remove(&edge.id);
        if edge.origin.is_some()
            && let Some((got, gave)) = edge.take_traffic()
        {
            self.to_controller.origin(OriginEvent::Traffic {
                streams: vec![(edge.id, got, gave)],
                circuits: Vec::new(),
            });
        }
        if let Some(place) = edge.listed {
            self.edge_side.unlist(place);
        }
        // A stream that its far end ended was reported then.
        if let Some(side) = &edge.origin
            && edge.phase != Phase::Over
        {
            self.to_controller.origin(OriginEvent::Ended {
                stream: edge.id,
                circuit: side.circuit,
                reason,
                addr: None,
                by,
                waiting: false,
                bytes: (edge.got, edge.gave),
            });
        }
        self.to_controller.push(ToController::EdgeClosed {
            connection: edge.id,
        });
        Some(edge)
    }

    // ---- helpers ----

    /// Ends a stream that was opened for an edge that does not want it any more.
    fn end_unwanted(&mut self, edge: EdgeAddr, at: StreamAt) {
        let StreamAt { addr: to, terms } = at;
        let left = self.params.stream_flow(terms, Side::Client).left();
        self.announce_end(to, true, left);
        let mut cell = self.pool.take();
        let end = End::new(EndReason::MISC).encode();
        let _ = relay::encode(cell.body_mut(), RelayCmd::END, to.id, &end, &mut self.rng);
        let half = to.half;
        self.outboxes
            .send_half_cell(half, LaneMsg::FromEdge(EdgeCell { half, edge, cell }));
    }

    /// Sends a message of an edge's own.
    fn edge_send(&mut self, slot: EdgeKey, command: RelayCmd, data: &[u8]) {
        let (Some(addr), Some(at)) = (
            self.edge_side.edges.addr(slot),
            self.edge_side.edges.get(slot).and_then(|edge| edge.at),
        ) else {
            return;
        };
        if command == RelayCmd::END
            && let Some(edge) = self.edge_side.edges.get(slot)
        {
            let connected = edge.phase == Phase::Opening && edge.origin.is_some();
            let left = edge.flow.left();
            self.announce_end(at.addr, connected, left);
        }
        let mut cell = self.pool.take();
        // END's, CONNECTED's and SENDME's data are short.
        let to = at.addr;
        let _ = relay::encode(cell.body_mut(), command, to.id, data, &mut self.rng);
        let (half, edge) = (to.half, addr);
        let message = LaneMsg::FromEdge(EdgeCell { half, edge, cell });
        self.outboxes.send_half_cell(half, message);
    }

    /// Announces an END to a half, ahead of it.
    fn announce_end(&mut self, stream: StreamAddr, connected: bool, left: Left) {
        if planted(Fault::EndNotAnnounced) {
            return;
        }
        self.outboxes.send_half(HalfControl::Ending {
            stream,
            connected,
            left,
        });
    }

    /// Ends a stream for want of memory or files, or because a new policy forbids it, with what waits for its socket.
    pub(in crate::manager) fn give_up(&mut self, slot: EdgeKey, reason: EndReason) {
        let end = End::new(reason);
        if (self.edge_side.edges)
            .get(slot)
            .is_some_and(|edge| edge.phase != Phase::Over)
        {
            self.edge_send(slot, RelayCmd::END, &end.encode());
            self.far_end(slot, end, EndedBy::Us);
        }
        if let Some(edge) = self.edge_side.edges.get_mut(slot) {
            edge.out = Bytes::default();
            if let Some(side) = &mut edge.origin {
                side.optimistic = Vec::new();
            }
        }
    }
}
