//! What must hold of edges: each has a stream if its phase needs one, and is in the tables.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::EdgeSide;
use crate::address::{ConnectionId, EdgeAddr, StreamAddr, ThreadId};
use crate::manager::LocalConnectionManager;
use crate::manager::audit::{manager_of, sure};
use crate::stream::credit::EDGE_CREDIT;
use crate::stream::edge::{Edge, MAX_WAITING, Phase};
use crate::stream::table::Place;

impl EdgeSide {
    /// The credit of an edge, if it is for this stream.
    pub(in crate::manager) fn credit(&self, edge: EdgeAddr, stream: StreamAddr) -> Option<u32> {
        let edge = self.edges.peek(edge).filter(|edge| edge.is_at(stream));
        edge.map(|edge| edge.credit)
    }

    /// Compares the edges with the tables that list them.
    fn audit_tables(&self) -> Result<(), String> {
        let EdgeSide {
            edges,
            by_connection,
            to_write,
            ..
        } = self;
        let known = |slot, edge: &Edge| by_connection.get(&edge.id) == Some(&slot);
        sure(
            by_connection.len() == edges.len()
                && edges.iter().all(|(slot, edge)| known(slot, edge)),
            "every edge has one connection",
        )?;
        let mut count = 0;
        for (slot, edge) in edges.iter() {
            match edge.listed {
                Some(place) => {
                    count += 1;
                    sure(
                        to_write.at(place) == Some(slot),
                        "an edge is listed at the place that it has noted",
                    )?;
                }
                None => sure(
                    edge.out.is_empty() && edge.phase != Phase::Over,
                    "an edge with something to write, or to close, is listed",
                )?,
            }
        }
        sure(
            count == to_write.as_slice().len(),
            "only edges are listed, each once",
        )
    }
}

impl LocalConnectionManager {
    /// Bytes that wait for edges' sockets: how many have left, how many have ever come, and the age that the first of those
    /// that wait is taken to have.
    pub fn edge_waits(&self, now: Instant) -> impl Iterator<Item = (EdgeAddr, u64, u64, Duration)> {
        let edges = self.edge_side.edges.iter();
        edges.filter_map(move |(slot, edge)| {
            let left = edge.got.saturating_sub(edge.out.len() as u64);
            let addr = self.edge_side.edges.addr(slot)?;
            Some((addr, left, edge.got, edge.waited(now)))
        })
    }

    /// The connections of all edges.
    pub fn edge_connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.edge_side.edges.iter().map(|(_, edge)| edge.id)
    }

    /// Compares the edges with the streams of these managers, and with the tables.
    pub(in crate::manager) fn audit_edges(
        &self,
        all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    ) -> Result<(), String> {
        for (slot, edge) in self.edge_side.edges.iter() {
            if let Some(addr) = self.edge_side.edges.addr(slot) {
                audit_edge(self, all, addr, edge).map_err(|what| format!("{addr}: {what}"))?;
            }
        }
        self.edge_side.audit_tables()
    }
}

/// Checks one edge.
fn audit_edge(
    here: &LocalConnectionManager,
    all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    addr: EdgeAddr,
    edge: &Edge,
) -> Result<(), String> {
    let fits = match (edge.phase, edge.at.is_some(), edge.asked.is_some()) {
        (Phase::Waiting, at, asked) => edge.origin.is_some() && !at && !asked,
        (Phase::Opening, at, asked) => at != asked && (at || edge.origin.is_some()),
        (Phase::Open, at, asked) => at && !asked,
        (Phase::Over, at, asked) => !at && !asked,
    };
    sure(fits, "an edge has a stream if its phase needs one")?;
    sure(
        edge.asked
            .is_none_or(|asked| manager_of(here, all, asked.half).is_none()),
        "a half answers the edge that asks it for a stream",
    )?;
    sure(edge.credit <= EDGE_CREDIT, "credit keeps to its bound")?;
    sure(
        edge.out.len() <= MAX_WAITING,
        "what waits for a socket keeps to its bound",
    )?;
    let Some(at) = edge.at else {
        return Ok(());
    };
    let Some(manager) = manager_of(here, all, at.addr.half) else {
        return Ok(());
    };
    #[expect(clippy::disallowed_fields, reason = "an audit compares both sides")]
    let stream = manager
        .halves
        .peek(at.addr.half)
        .and_then(|half| half.streams()?.peek(at.addr));
    match stream.map(|stream| &stream.edge) {
        Some(Place::At(owner)) if *owner == addr => Ok(()),
        _ => Err(format!("{} is not its own, or is no more", at.addr)),
    }
}
