//! An edge and its socket: bytes that were read become DATA, and what waits for the socket is kept,
//! with the SENDMEs, XONs and XOFFs that follow from it (tor-spec 7.4, proposal 324).

use std::time::{Duration, Instant};

use rand::Rng as _;
use weft_cell::stream_msg::{Xoff, Xon};
use weft_cell::{RelayCmd, relay};

use super::{EdgeSide, EdgeView};
use crate::address::StreamAddr;
use crate::flow::FlowMsg;
use crate::message::{EdgeCell, HalfControl, LaneMsg};
use crate::slots::EdgeKey;
use crate::stream::edge::{Edge, EdgeNews, Phase, RANDOM_BYTES, StreamAt};

/// At least one cell in so many is such a one.
const FULL_CELLS: u8 = 50;

impl EdgeSide {
    /// Bytes that an edge can take from its socket now.
    pub(in crate::manager) fn room(&self, slot: EdgeKey) -> usize {
        self.edges.get(slot).map_or(0, Edge::room_bytes)
    }

    /// Number of the `wanted` bytes that may be read from an edge's socket now, by the rate that
    /// its far end's XON set, or the time to wait (proposal 324, 4.1.2).
    pub fn pace(&mut self, slot: EdgeKey, wanted: usize, now: Instant) -> Result<usize, Duration> {
        match self.edges.get_mut(slot) {
            Some(edge) => edge.flow.pace(wanted, now),
            None => Ok(wanted),
        }
    }

    /// Edges with bytes for their sockets, or which are to be closed.
    pub fn to_write(&self) -> &[EdgeKey] {
        self.to_write.as_slice()
    }

    /// Takes an edge off that list if it has nothing any more. To be called for each edge that was
    /// attended to: a look at all of them in each turn would be too much where thousands are listed.
    pub fn prune(&mut self, slot: EdgeKey) {
        if let Some(edge) = self.edges.get_mut(slot)
            && edge.out.is_empty()
            && edge.phase != Phase::Over
            && let Some(place) = edge.listed.take()
        {
            self.unlist(place);
        }
    }

    /// The bytes that an edge has for its socket, and whether the socket is to be closed when it has
    /// taken them.
    pub fn out(&self, slot: EdgeKey) -> (&[u8], bool) {
        match self.edges.get(slot) {
            // While its socket is being connected, or its application waits for an answer, all waits.
            Some(edge) if edge.phase == Phase::Opening || edge.phase == Phase::Waiting => {
                (&[], false)
            }
            Some(edge) => (edge.out.as_slice(), edge.phase == Phase::Over),
            None => (&[], true),
        }
    }

    /// The next of the edges' news for the owner of their sockets.
    pub fn poll(&mut self) -> Option<EdgeNews> {
        self.news.pop_front()
    }

    /// Some edge has news.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }
}

impl EdgeView<'_> {
    /// Asks for credit for an edge that needs some. False: it has some, or has asked already.
    pub(in crate::manager) fn ask_credit(&mut self, slot: EdgeKey) -> bool {
        if let Some(edge) = self.edge_side.edges.get_mut(slot)
            && edge.needs_credit()
            && !edge.asked_credit
            && let Some(at) = edge.at
        {
            edge.asked_credit = true;
            (self.outboxes).send_half(HalfControl::CreditAsked { stream: at.addr });
            return true;
        }
        false
    }

    /// Takes credit back from edges that have sent nothing since the last call, for those of the same
    /// circuit that could.
    pub(in crate::manager) fn return_credit(&mut self) {
        let unused: Vec<(StreamAddr, u32)> = (self.edge_side.edges.iter_mut())
            .filter_map(|(_, edge)| edge.unused_credit())
            .collect();
        for (stream, cells) in unused {
            (self.outboxes).send_half(HalfControl::CreditReturned { stream, cells });
        }
    }

    /// Takes bytes of an edge's socket: as many as [`edge_room`](Self::edge_room) returned at most.
    pub(in crate::manager) fn edge_data(&mut self, slot: EdgeKey, mut bytes: &[u8], now: Instant) {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return;
        };
        if edge.phase == Phase::Opening
            && let Some(side) = &mut edge.origin
        {
            side.optimistic.extend_from_slice(bytes);
        }
        edge.gave += bytes.len() as u64;
        edge.flow.note_read(bytes.len(), now);
        self.totals.packaged += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(edge) = self.edge_side.edges.get_mut(slot) else {
                return;
            };
            let Some(StreamAt { addr: to, terms }) = edge.at else {
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
            let _ = relay::encode(cell.body_mut(), RelayCmd::DATA, to.id, data, &mut self.rng);
            let Some(edge) = self.edge_side.edges.addr(slot) else {
                return;
            };
            let half = to.half;
            let message = LaneMsg::FromEdge(EdgeCell { half, edge, cell });
            self.outboxes.send_half_cell(half, message);
        }
    }

    /// The socket took so many bytes.
    pub(in crate::manager) fn edge_wrote(&mut self, slot: EdgeKey, count: usize, now: Instant) {
        if let Some(edge) = self.edge_side.edges.get_mut(slot) {
            edge.out.take(count, &mut self.edge_side.spares);
            edge.note_out(now);
            self.update_flow_control(slot, count, now);
        }
    }

    /// SENDME, XOFF and XON, as the queue toward the socket grows and shrinks.
    pub(super) fn update_flow_control(&mut self, slot: EdgeKey, mut written: usize, now: Instant) {
        while let Some(edge) = self.edge_side.edges.get_mut(slot)
            && edge.phase != Phase::Over
            && edge.at.is_some()
            && let Some(message) = edge.flow.note_queue(edge.out.len(), written, now)
        {
            written = 0;
            match message {
                FlowMsg::Sendme => self.edge_send(slot, RelayCmd::SENDME, &[]),
                FlowMsg::Xoff => {
                    let xoff = Xoff { version: 0 };
                    self.edge_send(slot, RelayCmd::XOFF, &xoff.encode());
                }
                FlowMsg::Xon(kbps_ewma) => {
                    let xon = Xon {
                        version: 0,
                        kbps_ewma,
                    };
                    self.edge_send(slot, RelayCmd::XON, &xon.encode());
                }
            }
        }
    }
}
