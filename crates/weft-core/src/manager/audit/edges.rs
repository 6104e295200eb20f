//! Invariants of edges and their halves: each edge has a stream if its phase needs one.

use std::collections::BTreeMap;

use super::{Inspection, manager_of};
use crate::address::{EdgeAddr, ThreadId};
use crate::manager::LocalConnectionManager;
use crate::manager::sure::sure;
use crate::stream::credit::EDGE_CREDIT;
use crate::stream::edge::{Edge, MAX_WAITING, Phase};
use crate::stream::table::Place;

impl Inspection<'_> {
    /// Compares the edges with the streams of these managers, and with the tables.
    pub(super) fn audit_edges(
        self,
        all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    ) -> Result<(), String> {
        for (addr, edge) in self.manager.edge_side.iter() {
            audit_edge(self.manager, all, addr, edge).map_err(|what| format!("{addr}: {what}"))?;
        }
        self.manager.edge_side.audit_tables()
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
    let stream = manager
        .path
        .halves
        .peek(at.addr.half)
        .and_then(|half| half.streams()?.peek(at.addr));
    match stream.map(|stream| &stream.edge) {
        Some(Place::At(owner)) if *owner == addr => Ok(()),
        _ => Err(format!("{} is not its own, or is no more", at.addr)),
    }
}
