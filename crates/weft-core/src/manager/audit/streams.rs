//! Invariants of streams and edges: each edge with a stream is the one that its half names, each
//! stream has one edge or waits for one, and no credit and no pending cell is lost or duplicated.

use std::collections::{BTreeMap, BTreeSet};

use weft_cell::RelayCmd;
use weft_cell::relay::RelayBody;

use super::Inspection;
use crate::address::{EdgeAddr, HalfAddr, HopIndex, StreamAddr, ThreadId};
use crate::manager::LocalConnectionManager;
use crate::manager::sure::sure;
use crate::stream::table::{HopEnd, Place, Stream, Streams};

impl<'a> Inspection<'a> {
    /// Compares the streams of these managers with their edges.
    ///
    /// Of one manager that holds between any two calls, as its halves and edges have no message
    /// under way to each other. Of several it holds when no thread has a message for another. What
    /// is on a thread that is not among these is not looked at.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn audit_streams(managers: &[&LocalConnectionManager]) -> Result<(), String> {
        let all: BTreeMap<ThreadId, &LocalConnectionManager> = managers
            .iter()
            .map(|manager| (manager.path.outboxes.me(), *manager))
            .collect();
        for manager in managers {
            for (slot, half) in manager.path.halves.iter() {
                if let (Some(streams), Some(half)) =
                    (half.streams(), manager.path.halves.addr(slot))
                {
                    audit_half(&all, half, streams).map_err(|what| format!("{half}: {what}"))?;
                }
            }
            manager.inspect().audit_edges(&all)?;
            manager.inspect().audit_legs(&all)?;
        }
        Ok(())
    }

    /// Streams that wait for a decision of the controller.
    pub fn deciding(self) -> impl Iterator<Item = StreamAddr> + 'a {
        let halves = &self.manager.path.halves;
        halves.iter().flat_map(move |(slot, half)| {
            let half_addr = halves.addr(slot);
            let streams = half.streams().into_iter().flat_map(Streams::iter);
            let deciding = streams.filter(|(_, stream)| matches!(stream.edge, Place::Deciding(_)));
            deciding.filter_map(move |(id, stream)| {
                Some(StreamAddr {
                    half: half_addr?,
                    id,
                    generation: stream.generation,
                })
            })
        })
    }

    /// Cells of streams that wait for their circuits' windows and queues.
    pub fn pending_cells(self) -> usize {
        let halves = self
            .manager
            .path
            .halves
            .iter()
            .filter_map(|(_, half)| half.streams());
        halves
            .flat_map(|streams| &streams.ends)
            .map(|end| end.pending.len())
            .sum()
    }
}

/// Checks the streams of a half.
fn audit_half(
    all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    half: HalfAddr,
    streams: &Streams,
) -> Result<(), String> {
    for (id, stream) in streams.iter() {
        let addr = StreamAddr {
            half,
            id,
            generation: stream.generation,
        };
        audit_stream(all, addr, stream).map_err(|what| format!("{addr}: {what}"))?;
    }
    let early = streams.iter().filter_map(|(_, stream)| match &stream.edge {
        Place::Deciding(early) => Some(early.memory()),
        Place::At(_) | Place::Over(_) | Place::Probe(_) => None,
    });
    sure(
        streams.early() == early.sum::<usize>(),
        "a circuit counts what came before its streams had edges",
    )?;
    for (hop, end) in streams.ends.iter().enumerate() {
        audit_pending(all, streams, HopIndex::from_index(hop), end)?;
    }
    Ok(())
}

/// Checks one stream.
fn audit_stream(
    all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    addr: StreamAddr,
    stream: &Stream,
) -> Result<(), String> {
    let owner = match &stream.edge {
        Place::Deciding(early) => {
            return sure(
                early.is_bounded(),
                "what comes before a stream has an edge is bounded",
            );
        }
        Place::At(owner) => *owner,
        Place::Over(_) | Place::Probe(_) => return Ok(()),
    };
    let Some(manager) = all.get(&owner.thread) else {
        return Ok(());
    };
    let Some(credit) = manager.edge_side.credit(owner, addr) else {
        return Err(format!("{owner}, which it names, is not for it"));
    };
    sure(
        credit == stream.lent(),
        "its edge has the credit that it was lent",
    )
}

/// Checks what waits for a hop's window.
fn audit_pending(
    all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    streams: &Streams,
    hop: HopIndex,
    end: &HopEnd,
) -> Result<(), String> {
    // Cells by stream and edge, and those streams whose END waits.
    let mut cells: BTreeMap<(u16, EdgeAddr), u32> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for (edge, cell) in &end.pending {
        let body = RelayBody::new(cell.body());
        let key = (body.stream_id(), *edge);
        *cells.entry(key).or_default() += 1;
        if body.command() == RelayCmd::END {
            sure(ended.insert(key), "an edge sends one END")?;
        } else {
            sure(!ended.contains(&key), "nothing follows END")?;
        }
    }
    for (id, stream) in streams.iter().filter(|(_, s)| s.hop == hop) {
        let (edge, over) = match stream.edge {
            Place::Deciding(_) | Place::Probe(_) => {
                sure(
                    stream.lent() == 0 && stream.pending() == 0,
                    "a stream without an edge sends nothing",
                )?;
                continue;
            }
            Place::At(edge) => (edge, false),
            Place::Over(edge) => (edge, true),
        };
        // END may still be on its way from another thread.
        let known = !over || all.contains_key(&edge.thread);
        sure(
            !known || ended.contains(&(id, edge)) == over,
            "a stream is over while its END waits",
        )?;
        let waiting = cells.remove(&(id, edge)).unwrap_or(0);
        sure(
            stream.pending() == waiting,
            "a stream counts its pending cells",
        )?;
    }
    let of_hop = streams.iter().filter(|(_, s)| s.hop == hop);
    let lent: u32 = of_hop.map(|(_, stream)| stream.lent()).sum();
    sure(end.lender.lent() == lent, "a circuit knows what it lent")?;
    let dead: u32 = cells.values().sum();
    sure(
        end.dead() == dead as usize,
        "pending cells are of streams, or counted as dead",
    )?;
    sure(
        end.pending.is_empty() || end.dead() < end.pending.len(),
        "not all pending cells are dead",
    )
}
