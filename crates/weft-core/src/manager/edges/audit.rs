//! Invariants of edges, and state for tests: each edge is in the tables that list it.

use std::time::{Duration, Instant};

use super::EdgeSide;
use crate::address::{ConnectionId, EdgeAddr, StreamAddr};
use crate::manager::sure::sure;
use crate::stream::edge::{Edge, Phase};

impl EdgeSide {
    /// The credit of an edge, if it is for this stream.
    pub(in crate::manager) fn credit(&self, edge: EdgeAddr, stream: StreamAddr) -> Option<u32> {
        let edge = self.edges.peek(edge).filter(|edge| edge.is_at(stream));
        edge.map(|edge| edge.credit)
    }

    /// Compares the edges with the tables that list them.
    pub(in crate::manager) fn audit_tables(&self) -> Result<(), String> {
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

    /// The edges.
    pub(in crate::manager) fn iter(&self) -> impl Iterator<Item = (EdgeAddr, &Edge)> {
        let edges = self.edges.iter();
        edges.filter_map(|(slot, edge)| Some((self.edges.addr(slot)?, edge)))
    }

    /// Bytes that wait for edges' sockets: how many have left, how many have ever come, and the age that the first of those
    /// that wait is taken to have.
    pub fn waits(&self, now: Instant) -> impl Iterator<Item = (EdgeAddr, u64, u64, Duration)> {
        self.iter().map(move |(addr, edge)| {
            let left = edge.got.saturating_sub(edge.out.len() as u64);
            (addr, left, edge.got, edge.waited(now))
        })
    }

    /// The connections of all edges.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.edges.iter().map(|(_, edge)| edge.id)
    }
}
