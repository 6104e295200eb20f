//! What a thread holds, by owner, and what it closes when memory is short (see [`crate::memory::ledger`]).

#[cfg(test)]
mod ages;

use std::time::Instant;

use weft_cell::reason::{DestroyReason, EndReason};

use super::{LocalConnectionManager, Notify};
use crate::address::{ConnectionId, EdgeAddr, HalfAddr};
use crate::circuit::half::{CircuitHalf, Role};
use crate::memory::ledger::{Cause, Cut, Held, Holdings, Ledger, map_entry};
use crate::message::ToController;
use crate::origin::LinkFailure;
use crate::slots::{HalfKey, LinkKey};

/// An owner of memory that is freed by closing it.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A circuit half, with its queue, its streams and what waits for them.
    Half(HalfAddr),
    /// An edge, with its bytes and its socket's.
    Edge(EdgeAddr),
    /// A link on which something waits.
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
        for (.., held) in self.edge_side.held(now) {
            ledger.add(held);
        }
        for (_, link) in self.links.iter() {
            ledger.add_fixed(link.memory());
            let held = link.held(now);
            match link.has_to_write() {
                true => ledger.add(held),
                // Only empty buffers: nothing that is worth a link.
                false => ledger.add_fixed(held.bytes()),
            }
        }
        ledger.add_spare(self.spare_memory());
        ledger.add_fixed(self.queues_memory() + self.transfer_memory(now));
        ledger
    }

    /// The owners of this memory, for the controller. The caller adds its own, if it has some.
    pub fn holdings(&self, now: Instant) -> Holdings {
        let mut holdings = Holdings::default();
        for (_, cause, held) in self.owners(now) {
            holdings.add(cause, held);
        }
        holdings
    }

    /// Sends them to the controller.
    pub fn report_holdings(&mut self, holdings: Holdings) {
        self.to_controller.push(ToController::Holdings {
            thread: self.outboxes.me(),
            holdings: Box::new(holdings),
        });
    }

    /// Reports what the owner of a link's socket holds for it and its peer can make grow, in bytes.
    pub fn set_link_holds(&mut self, key: LinkKey, bytes: usize) {
        if let Some(link) = self.links.get_mut(key) {
            link.socket_holds = bytes;
        }
    }

    /// Closes this thread's heaviest owners until a cut is met, and gives spare memory back.
    /// Returns the connections that the caller must close now; their links are closed already.
    pub(super) fn free_memory(&mut self, mut cut: Cut, now: Instant) -> Vec<ConnectionId> {
        let mut owners: Vec<(Owner, Cause, Held)> = self
            .owners(now)
            .filter(|(_, cause, held)| cut.includes(*cause, *held))
            .collect();
        // Stable: what weighs the same is closed in the order of its slots.
        owners.sort_by_key(|(.., held)| std::cmp::Reverse(held.weight()));
        let mut closed = Vec::new();
        for (owner, cause, held) in owners {
            if !cut.includes(cause, held) {
                continue;
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
                        self.close_link(key, LinkFailure::Resource, now);
                        closed.push(connection);
                    }
                    link.is_some()
                }
            };
            if lived {
                cut.closed(cause, held);
                self.totals.freed_for_memory += held.bytes() as u64;
            }
        }
        // Last: what was freed above became spare.
        self.give_back();
        self.memory_rounds += 1;
        closed
    }

    /// All owners, with what they are charged to and what they hold.
    fn owners(&self, now: Instant) -> impl Iterator<Item = (Owner, Cause, Held)> {
        let halves = self.halves.iter().filter_map(move |(slot, half)| {
            let owner = Owner::Half(self.halves.addr(slot)?);
            Some((owner, self.cause_of(half), half.held(now)))
        });
        let edges = self.edge_side.held(now);
        let edges = edges.map(|(edge, id, held)| (Owner::Edge(edge), Cause::Connection(id), held));
        let links = self.links.iter().filter(|(_, link)| link.has_to_write());
        let links = links.map(move |(_, link)| {
            let id = link.connection;
            (Owner::Link(id), Cause::Connection(id), link.held(now))
        });
        halves.chain(edges).chain(links)
    }

    /// The connection that a half is charged to: the one to the circuit's previous hop.
    fn cause_of(&self, half: &CircuitHalf) -> Cause {
        match &half.role {
            Role::Backward(_) => {
                let link = self.links.get(half.link);
                link.map_or(Cause::Own, |link| Cause::Connection(link.connection))
            }
            Role::Forward(forward) => Cause::Connection(forward.cause),
            Role::Origin(_) => Cause::Own,
            Role::Tunnel(tunnel) => tunnel.cause(),
        }
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
