//! Sockets of edges, for their owner: what changes an edge and its half. The rest is [`EdgeSide`]'s own.

use std::net::IpAddr;
use std::time::Instant;

use weft_cell::reason::EndReason;

use super::LocalConnectionManager;
use super::edges::EdgeSide;
use crate::address::ConnectionId;
use crate::origin::AppRequest;
use crate::slots::EdgeKey;
use crate::stream::edge::StreamAt;

impl LocalConnectionManager {
    /// The edges.
    pub fn edges(&self) -> &EdgeSide {
        &self.edge_side
    }

    /// The edges.
    pub fn edges_mut(&mut self) -> &mut EdgeSide {
        &mut self.edge_side
    }

    /// An edge for a stream that a circuit asked for; its socket is being connected. The caller reports
    /// the result by [`edge_connected`](Self::edge_connected) or [`end_edge`](Self::end_edge).
    pub fn adopt_exit(&mut self, id: ConnectionId, at: StreamAt, now: Instant) -> Option<EdgeKey> {
        let edge = self.edge_view().adopt_exit(id, at);
        self.settle(now);
        edge
    }

    /// An application's request, for the client thread.
    pub fn edge_asks(&mut self, slot: EdgeKey, request: AppRequest) {
        self.edge_view().edge_asks(slot, request);
    }

    /// The socket of a stream that a circuit asked for is connected, to this address.
    pub fn edge_connected(&mut self, slot: EdgeKey, addr: Option<IpAddr>, ttl: u32, now: Instant) {
        self.edge_view().edge_connected(slot, addr, ttl);
        self.settle(now);
    }

    /// The socket ended, failed, or could not be connected. The edge is removed.
    pub fn end_edge(&mut self, slot: EdgeKey, reason: EndReason, now: Instant) {
        self.edge_view().end_edge(slot, reason);
        self.settle(now);
    }

    /// Bytes that an edge can take from its socket now. To be asked when the socket has some: if there
    /// is no room, [`EdgeNews::Room`](crate::stream::edge::EdgeNews::Room) follows.
    pub fn edge_room(&mut self, slot: EdgeKey, now: Instant) -> usize {
        if self.edge_view().ask_credit(slot) {
            self.settle(now);
        }
        self.edge_side.room(slot)
    }

    /// Takes bytes of an edge's socket: as many as [`edge_room`](Self::edge_room) returned at most.
    pub fn edge_data(&mut self, slot: EdgeKey, bytes: &[u8], now: Instant) {
        self.edge_view().edge_data(slot, bytes, now);
        self.settle(now);
    }

    /// The socket took so many bytes.
    pub fn edge_wrote(&mut self, slot: EdgeKey, count: usize, now: Instant) {
        self.edge_view().edge_wrote(slot, count, now);
        self.settle(now);
    }
}
