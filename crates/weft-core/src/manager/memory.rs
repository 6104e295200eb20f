//! What a thread holds, by owner, and what it closes when memory is short (see [`crate::ledger`]).

use std::time::Instant;

use weft_cell::Cell;
use weft_cell::reason::DestroyReason;

use super::{LocalConnectionManager, Outbox, Tell};
use crate::address::{ConnectionId, EdgeAddr, HalfAddr};
use crate::cells::empties_memory;
use crate::edge::EdgeNews;
use crate::half::Wait;
use crate::ledger::{Cut, Held, Ledger, map_entry, queue_memory};
use crate::link::Link;
use crate::message::{Carried, Control, ToController};
use crate::scheduler::LinkKey;

/// An owner of memory that is freed by closing it.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A circuit half, with its queue, its streams and what waits for them.
    Half(HalfAddr),
    /// An edge, with its bytes and its socket's.
    Edge(EdgeAddr),
    /// A link that its peer does not read.
    Link(ConnectionId),
}

impl LocalConnectionManager {
    /// What this thread holds. What the caller holds beside that is reported before, by
    /// [`set_link_holds`](Self::set_link_holds) and [`set_edge_holds`](Self::set_edge_holds), or
    /// added to the result if it is no link's or edge's.
    pub fn ledger(&self, now: Instant) -> Ledger {
        let mut ledger = Ledger::default();
        for (_, half) in self.halves.iter() {
            ledger.add(half.held(now));
        }
        for (_, edge) in self.edges.iter() {
            ledger.add(edge.held(now));
        }
        for (_, link) in &self.links {
            ledger.add_fixed(link.memory());
            let held = link.held(now);
            match held.age.is_zero() {
                // Closing a link that moves frees what would be gone in a moment.
                true => ledger.add_fixed(held.bytes),
                false => ledger.add(held),
            }
        }
        ledger.add_spare(self.spare_memory());
        ledger.add_fixed(self.queues_memory());
        ledger
    }

    /// Reports what the owner of a link's socket holds for it and its peer can make grow, in bytes.
    pub fn set_link_holds(&mut self, key: LinkKey, bytes: usize) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.socket_holds = bytes;
        }
    }

    /// The same of an edge's socket.
    pub fn set_edge_holds(&mut self, slot: u32, bytes: usize) {
        if let Some(edge) = self.edges.get_mut(slot) {
            edge.socket_holds = bytes;
        }
    }

    /// Closes this thread's heaviest owners, as far as a cut goes, and gives spare memory back.
    /// Returns the connections that the caller must close now; their links are closed already.
    pub(super) fn free_memory(&mut self, cut: Cut, now: Instant) -> Vec<ConnectionId> {
        let mut owners: Vec<(Owner, Held)> = self
            .owners(now)
            .filter(|(_, held)| held.weight() >= cut.weight)
            .collect();
        // Stable: what weighs the same dies in the order of its slots.
        owners.sort_by_key(|(_, held)| std::cmp::Reverse(held.weight()));
        let mut closed = Vec::new();
        let mut freed = 0;
        for (owner, held) in owners {
            if freed >= cut.bytes {
                break;
            }
            // It may have gone with one before it.
            let lived = match owner {
                Owner::Half(half) => {
                    let lives = self.halves.at(half).is_some();
                    if lives {
                        self.totals.killed_for_memory += 1;
                        let reason = DestroyReason::RESOURCELIMIT;
                        self.close_half(half.slot, reason, Tell::Both, now);
                    }
                    lives
                }
                Owner::Edge(edge) => {
                    let lives = self.edges.at(edge).is_some();
                    if lives {
                        self.totals.streams.overflowed += 1;
                        self.give_up(edge.slot, now);
                    }
                    lives
                }
                Owner::Link(connection) => {
                    let link = self.link_of(connection);
                    if let Some(key) = link {
                        self.totals.links_killed_for_memory += 1;
                        self.close_link(key, now);
                        closed.push(connection);
                    }
                    link.is_some()
                }
            };
            if lived {
                freed += held.bytes as u64;
            }
        }
        self.totals.freed_for_memory += freed;
        // Last: what was freed above became spare.
        self.give_back();
        self.memory_rounds += 1;
        closed
    }

    /// Everybody who holds something.
    fn owners(&self, now: Instant) -> impl Iterator<Item = (Owner, Held)> {
        let halves = self.halves.iter().filter_map(move |(slot, half)| {
            let half_addr = self.halves.addr(slot)?;
            Some((Owner::Half(half_addr), half.held(now)))
        });
        let edges = self.edges.iter().filter_map(move |(slot, edge)| {
            let edge_addr = self.edges.addr(slot)?;
            Some((Owner::Edge(edge_addr), edge.held(now)))
        });
        let links = self.links.iter().filter_map(move |(_, link)| {
            let held = link.held(now);
            (!held.age.is_zero()).then_some((Owner::Link(link.connection), held))
        });
        halves.chain(edges).chain(links)
    }

    /// Free cells, empty buffers and places of tables that nothing is in.
    fn spare_memory(&self) -> usize {
        let empties: usize = (self.outboxes.iter())
            .map(|outbox| empties_memory(&outbox.empties))
            .sum();
        self.pool.memory()
            + self.spares.capacity()
            + empties
            + self.halves.vacant_memory()
            + self.edges.vacant_memory()
    }

    /// What waits for others of this node, and the lists that the thread works through.
    fn queues_memory(&self) -> usize {
        let outbox = |outbox: &Outbox| {
            outbox.control.capacity() * size_of::<Control>()
                + outbox.cells.capacity() * size_of::<Carried>()
                + outbox.cells.len() * size_of::<Cell>()
        };
        self.outboxes.iter().map(outbox).sum::<usize>()
            + queue_memory::<Wait>(&self.waits)
            + queue_memory::<ToController>(&self.to_controller)
            + self.requests.memory()
            + queue_memory::<Control>(&self.local_control)
            + queue_memory::<EdgeNews>(&self.edge_news)
            + self.links.capacity().saturating_sub(self.links.len()) * size_of::<Link>()
            + self.links.len() * map_entry::<ConnectionId, LinkKey>()
    }

    /// Gives back memory that nothing is in.
    fn give_back(&mut self) {
        self.pool.clear();
        self.spares.clear();
        for outbox in &mut self.outboxes {
            outbox.empties.clear();
            outbox.empties.shrink_to_fit();
        }
        for (_, link) in &mut self.links {
            link.shrink();
        }
        self.halves.shrink();
        self.edges.shrink();
        self.scheduler.shrink();
        self.waits.shrink_to_fit();
        self.local_control.shrink_to_fit();
        self.edge_news.shrink_to_fit();
    }

    /// How many times memory was freed here.
    pub fn memory_rounds(&self) -> u64 {
        self.memory_rounds
    }
}
