//! An edge and its socket: bytes that were read become DATA, and what waits for the socket is kept,
//! with the SENDMEs, XONs and XOFFs that follow from it (tor-spec 7.4, proposal 324).

use std::time::{Duration, Instant};

use rand::Rng as _;
use weft_cell::RelayCmd;
use weft_cell::relay;
use weft_cell::stream_msg::{Xoff, Xon};

use crate::address::StreamAddr;
use crate::flow::FlowMsg;
use crate::manager::LocalConnectionManager;
use crate::message::{EdgeCell, HalfControl};
use crate::slots::EdgeKey;
use crate::stream::edge::{Edge, EdgeNews, Phase, RANDOM_BYTES, StreamAt};

/// At least one cell in so many is such a one.
const FULL_CELLS: u8 = 50;

impl LocalConnectionManager {
    /// Bytes that an edge can take from its socket now. To be asked when the socket has some: if there
    /// is no room, [`EdgeNews::Room`] follows.
    pub fn edge_room(&mut self, slot: EdgeKey, now: Instant) -> usize {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return 0;
        };
        if edge.needs_credit()
            && !edge.asked_credit
            && let Some(at) = edge.at
        {
            edge.asked_credit = true;
            self.send(HalfControl::CreditAsked { stream: at.addr }.into());
            self.settle(now);
        }
        self.edge_side.edges.get(slot).map_or(0, Edge::room_bytes)
    }

    /// Takes credit back from edges that have sent nothing since the last call, for those of the same
    /// circuit that could.
    pub(in crate::manager) fn return_credit(&mut self) {
        let unused: Vec<(StreamAddr, u32)> = (self.edge_side.edges.iter_mut())
            .filter_map(|(_, edge)| edge.unused_credit())
            .collect();
        for (stream, cells) in unused {
            self.send(HalfControl::CreditReturned { stream, cells }.into());
        }
    }

    /// How many of so many bytes may be read from an edge's socket now, by the rate that its
    /// far end's XON set, or how long to wait (proposal 324, 4.1.2).
    pub fn edge_pace(
        &mut self,
        slot: EdgeKey,
        wanted: usize,
        now: Instant,
    ) -> Result<usize, Duration> {
        match self.edge_side.edges.get_mut(slot) {
            Some(edge) => edge.flow.pace(wanted, now),
            None => Ok(wanted),
        }
    }

    /// Takes bytes of an edge's socket: as many as [`edge_room`](Self::edge_room) returned at most.
    pub fn edge_data(&mut self, slot: EdgeKey, mut bytes: &[u8], now: Instant) {
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
        self.totals.streams.packaged += bytes.len() as u64;
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
            self.send_from_edge(EdgeCell { half, edge, cell }, now);
        }
        self.settle(now);
    }

    /// Edges with bytes for their sockets, or which are to be closed.
    pub fn edges_to_write(&self) -> &[EdgeKey] {
        self.edge_side.to_write.as_slice()
    }

    /// Takes an edge off that list if it has nothing any more. To be called for each edge that was
    /// attended to: a look at all of them in each turn would be too much where thousands are listed.
    pub fn prune_edge(&mut self, slot: EdgeKey) {
        if let Some(edge) = self.edge_side.edges.get_mut(slot)
            && edge.out.is_empty()
            && edge.phase != Phase::Over
            && let Some(place) = edge.listed.take()
        {
            self.edge_side.unlist(place);
        }
    }

    /// The bytes that an edge has for its socket, and whether the socket is to be closed when it has
    /// taken them.
    pub fn edge_out(&self, slot: EdgeKey) -> (&[u8], bool) {
        match self.edge_side.edges.get(slot) {
            // While its socket is being connected, or its application waits for an answer, all waits.
            Some(edge) if edge.phase == Phase::Opening || edge.phase == Phase::Waiting => {
                (&[], false)
            }
            Some(edge) => (edge.out.as_slice(), edge.phase == Phase::Over),
            None => (&[], true),
        }
    }

    /// The socket took so many bytes.
    pub fn edge_wrote(&mut self, slot: EdgeKey, count: usize, now: Instant) {
        if let Some(edge) = self.edge_side.edges.get_mut(slot) {
            edge.out.take(count, &mut self.edge_side.spares);
            edge.note_out(now);
            self.update_flow_control(slot, count, now);
            self.settle(now);
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
                FlowMsg::Sendme => self.edge_send(slot, RelayCmd::SENDME, &[], now),
                FlowMsg::Xoff => {
                    let xoff = Xoff { version: 0 };
                    self.edge_send(slot, RelayCmd::XOFF, &xoff.encode(), now);
                }
                FlowMsg::Xon(kbps_ewma) => {
                    let xon = Xon {
                        version: 0,
                        kbps_ewma,
                    };
                    self.edge_send(slot, RelayCmd::XON, &xon.encode(), now);
                }
            }
        }
    }

    /// The next of the edges' news for the owner of their sockets.
    pub fn poll_edge(&mut self) -> Option<EdgeNews> {
        self.edge_side.news.pop_front()
    }

    /// Some edge has news.
    pub fn has_edge_news(&self) -> bool {
        !self.edge_side.news.is_empty()
    }
}
