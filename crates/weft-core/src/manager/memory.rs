//! Memory of a thread by owner, and the owners that it closes when memory is short (see
//! [`crate::memory::ledger`]).

#[cfg(test)]
mod ages;

use std::time::Instant;

use weft_cell::reason::{DestroyReason, EndReason};

use super::LocalConnectionManager;
use super::path::closing::Notify;
use crate::address::{ConnectionId, EdgeAddr, HalfAddr};
use crate::circuit::half::{CircuitHalf, Role};
use crate::link::Links;
use crate::memory::ledger::{Cause, Cut, Held, Holdings, Ledger};
use crate::message::ToController;
use crate::origin::LinkFailure;

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
    /// [`LinkView::set_holds`](super::LinkView::set_holds) and [`EdgeSide::set_holds`](super::EdgeSide::set_holds), or
    /// added to the result if it is no link's or edge's.
    pub fn ledger(&self, now: Instant) -> Ledger {
        let mut ledger = Ledger::default();
        for (_, half) in self.path.halves.iter() {
            ledger.add(half.held(now));
        }
        for (.., held) in self.edge_side.held(now) {
            ledger.add(held);
        }
        for (_, link) in self.path.links.iter() {
            ledger.add_fixed(link.memory());
            let held = link.held(now);
            match link.has_to_write() {
                true => ledger.add(held),
                // Only empty buffers: nothing that is worth a link.
                false => ledger.add_fixed(held.bytes()),
            }
        }
        ledger.add_spare(self.path.spare_memory() + self.edge_side.spare_memory());
        let tables = self.watched.memory() + self.circpad.machines.memory() + self.abra.memory();
        ledger.add_fixed(self.path.queues_memory() + self.edge_side.news_memory() + tables);
        ledger.add_fixed(self.transfers.memory(now));
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
        self.path.to_controller.push(ToController::Holdings {
            thread: self.path.outboxes.me(),
            holdings: Box::new(holdings),
        });
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
                    let lives = self.path.halves.at(half).is_some();
                    if lives {
                        self.path.totals.killed_for_memory += 1;
                        let reason = DestroyReason::RESOURCELIMIT;
                        self.path.close_half(
                            self.path.halves.slot(half),
                            reason,
                            Notify::Both,
                            now,
                        );
                    }
                    lives
                }
                Owner::Edge(edge) => {
                    let lives = self.edge_side.lives(edge);
                    if lives {
                        self.path.totals.streams.overflowed += 1;
                        self.edge_view()
                            .give_up(edge.slot, EndReason::RESOURCELIMIT);
                    }
                    lives
                }
                Owner::Link(connection) => {
                    let link = self.path.links.of(connection);
                    if let Some(key) = link {
                        self.path.totals.links_killed_for_memory += 1;
                        self.close_link(key, LinkFailure::Resource, now);
                        closed.push(connection);
                    }
                    link.is_some()
                }
            };
            if lived {
                cut.closed(cause, held);
                self.path.totals.freed_for_memory += held.bytes() as u64;
            }
        }
        // Last: what was freed above became spare.
        self.path.shrink();
        self.edge_side.shrink();
        self.memory_rounds += 1;
        closed
    }

    /// Number of times that memory was freed here.
    pub fn memory_rounds(&self) -> u64 {
        self.memory_rounds
    }

    /// All owners, with what they are charged to and what they hold.
    fn owners(&self, now: Instant) -> impl Iterator<Item = (Owner, Cause, Held)> {
        let halves = self.path.halves.iter().filter_map(move |(slot, half)| {
            let owner = Owner::Half(self.path.halves.addr(slot)?);
            Some((owner, cause_of(&self.path.links, half), half.held(now)))
        });
        let edges = self.edge_side.held(now);
        let edges = edges.map(|(edge, id, held)| (Owner::Edge(edge), Cause::Connection(id), held));
        let links = self
            .path
            .links
            .iter()
            .filter(|(_, link)| link.has_to_write());
        let links = links.map(move |(_, link)| {
            let id = link.connection;
            (Owner::Link(id), Cause::Connection(id), link.held(now))
        });
        halves.chain(edges).chain(links)
    }
}

/// The connection that a half is charged to: the one to the circuit's previous hop.
fn cause_of(links: &Links, half: &CircuitHalf) -> Cause {
    match &half.role {
        Role::Backward(_) => {
            let link = links.get(half.link);
            link.map_or(Cause::Own, |link| Cause::Connection(link.connection))
        }
        Role::Forward(forward) => Cause::Connection(forward.cause),
        Role::Origin(_) => Cause::Own,
        Role::Tunnel(tunnel) => tunnel.cause(),
    }
}
