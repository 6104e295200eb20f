//! What a thread holds, by owner, and what it closes when memory is short (see [`crate::ledger`]).

use std::time::Instant;

use weft_cell::reason::{DestroyReason, EndReason};

use super::{LocalConnectionManager, Notify};
use crate::address::{ConnectionId, EdgeAddr, HalfAddr};
use crate::ledger::{Cut, Held, Ledger, map_entry};
use crate::slots::{HalfKey, LinkKey};

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
    /// The memory that this thread holds. What the caller holds beside that is reported before, by
    /// [`set_link_holds`](Self::set_link_holds) and [`set_edge_holds`](Self::set_edge_holds), or
    /// added to the result if it is no link's or edge's.
    pub fn ledger(&self, now: Instant) -> Ledger {
        let mut ledger = Ledger::default();
        for (_, half) in self.halves.iter() {
            ledger.add(half.held(now));
        }
        for (_, held) in self.edge_side.held(now) {
            ledger.add(held);
        }
        for (_, link) in self.links.iter() {
            ledger.add_fixed(link.memory());
            let held = link.held(now);
            match held.age.is_zero() {
                // Closing a link that moves frees what is written in a moment anyway.
                true => ledger.add_fixed(held.bytes),
                false => ledger.add(held),
            }
        }
        ledger.add_spare(self.spare_memory());
        ledger.add_fixed(self.queues_memory() + self.transfer_memory(now));
        ledger
    }

    /// Reports what the owner of a link's socket holds for it and its peer can make grow, in bytes.
    pub fn set_link_holds(&mut self, key: LinkKey, bytes: usize) {
        if let Some(link) = self.links.get_mut(key) {
            link.socket_holds = bytes;
        }
    }

    /// Closes this thread's heaviest owners until a cut is met, and gives spare memory back.
    /// Returns the connections that the caller must close now; their links are closed already.
    pub(super) fn free_memory(&mut self, cut: Cut, now: Instant) -> Vec<ConnectionId> {
        let mut owners: Vec<(Owner, Held)> = self
            .owners(now)
            .filter(|(_, held)| held.weight() >= cut.weight)
            .collect();
        // Stable: what weighs the same is closed in the order of its slots.
        owners.sort_by_key(|(_, held)| std::cmp::Reverse(held.weight()));
        let mut closed = Vec::new();
        let mut freed = 0;
        for (owner, held) in owners {
            if freed >= cut.bytes {
                break;
            }
            // It may have been closed with one before it.
            let lived = match owner {
                Owner::Half(half) => {
                    let lives = self.halves.at(half).is_some();
                    if lives {
                        self.totals.killed_for_memory += 1;
                        let reason = DestroyReason::RESOURCELIMIT;
                        self.close_half(self.halves.slot(half), reason, Notify::Both, now);
                    }
                    lives
                }
                Owner::Edge(edge) => {
                    let lives = self.edge_side.lives(edge);
                    if lives {
                        self.totals.streams.overflowed += 1;
                        self.give_up(edge.slot, EndReason::RESOURCELIMIT, now);
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

    /// All owners, with what they hold.
    fn owners(&self, now: Instant) -> impl Iterator<Item = (Owner, Held)> {
        let halves = self.halves.iter().filter_map(move |(slot, half)| {
            let half_addr = self.halves.addr(slot)?;
            Some((Owner::Half(half_addr), half.held(now)))
        });
        let edges = self.edge_side.held(now);
        let edges = edges.map(|(edge, held)| (Owner::Edge(edge), held));
        let links = self.links.iter().filter_map(move |(_, link)| {
            let held = link.held(now);
            (!held.age.is_zero()).then_some((Owner::Link(link.connection), held))
        });
        halves.chain(edges).chain(links)
    }

    /// Free cells, empty buffers, places of tables that nothing is in, and measurements that can be done without.
    fn spare_memory(&self) -> usize {
        self.pool.memory()
            + self.queues.as_ref().map_or(0, |queues| queues.memory())
            + self.outboxes.free_cells_memory()
            + self.halves.vacant_memory()
            + self.edge_side.spare_memory()
    }

    /// Messages for other threads and for the controller, and the lists that the thread works through.
    fn queues_memory(&self) -> usize {
        self.outboxes.memory()
            + self.waits.memory()
            + self.to_controller.memory()
            + self.unreported.capacity() * size_of::<LinkKey>()
            + self.watched_tunnels.len() * map_entry::<HalfKey, ()>()
            + self.edge_side.news_memory()
            + self.links.tables_memory()
            + self.halves.guests_memory()
            + self.circpad.memory()
    }

    /// Gives back memory that nothing is in.
    fn give_back(&mut self) {
        self.pool.clear();
        if let Some(queues) = &mut self.queues {
            queues.forget();
        }
        self.outboxes.shrink();
        for (_, link) in self.links.iter_mut() {
            link.shrink();
        }
        self.halves.shrink();
        self.edge_side.shrink();
        self.scheduler.shrink();
        self.waits.shrink();
    }

    /// How many times memory was freed here.
    pub fn memory_rounds(&self) -> u64 {
        self.memory_rounds
    }
}
