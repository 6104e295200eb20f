//! What goes out: the scheduler moves cells from the circuits' queues to their links, and whoever holds
//! the sockets takes them from there (seeds/000 4.2; KIST).

use std::collections::VecDeque;
use std::time::Instant;

use weft_cell::Cell;
use weft_cell::link_msg::Destroy;

use super::LocalConnectionManager;
use crate::scheduler::LinkKey;

/// DESTROYs made into cells for one write.
const DESTROYS_AT_ONCE: usize = 256;
/// Cells of one circuit that go together, before the scheduler chooses again. In one run a bulk
/// circuit is ahead of another by no more than that; one that has sent little lately still goes
/// before both.
const CELLS_AT_ONCE: u32 = 8;

impl LocalConnectionManager {
    /// Moves cells from the circuits' queues to their links, most urgent circuit first, as far as
    /// the links have room. `room` gives how many cells a link may take now (KIST's limit).
    pub fn schedule(&mut self, now: Instant, mut room: impl FnMut(LinkKey) -> u32) {
        let mut any = false;
        for key in self.to_write.as_slice() {
            if let Some(link) = self.links.get(*key as usize)
                && link.active_halves > 0
            {
                // What was chosen before and is not written yet (a bandwidth limit holds it back)
                // has its place in that room already.
                let chosen = u32::try_from(link.out.len()).unwrap_or(u32::MAX);
                let budget = room(*key).saturating_sub(chosen);
                self.scheduler.set_budget(*key, budget);
                any = true;
            }
        }
        if !any {
            return;
        }
        self.totals.scheduler_runs += 1;
        while let Some(choice) = self.scheduler.choose() {
            let (Some(half), Some(link)) = (
                self.halves.get_mut(choice.half),
                self.links.get_mut(choice.link as usize),
            ) else {
                self.scheduler.set_active(choice.half, false);
                continue;
            };
            let mut sent = 0;
            while sent < choice.budget.min(CELLS_AT_ONCE)
                && let Some(cell) = half.queue.pop()
            {
                link.out.push_back(cell);
                sent += 1;
            }
            half.queue.taken(sent);
            let active = !half.queue.is_empty();
            if half.blocked && half.queue.len() <= self.params.queue_low {
                half.blocked = false;
                self.unblocked.push(choice.half);
            }
            if !active {
                link.active_halves = link.active_halves.saturating_sub(1);
            }
            self.scheduler.sent(choice, sent, active, now);
        }
        let mut unblocked = std::mem::take(&mut self.unblocked);
        for slot in unblocked.drain(..) {
            self.unblock(slot, now);
        }
        self.unblocked = unblocked;
        self.settle(now);
    }

    /// Some circuit has cells that the scheduler has not chosen yet.
    pub fn has_backlog(&self) -> bool {
        self.to_write
            .as_slice()
            .iter()
            .filter_map(|key| self.links.get(*key as usize))
            .any(|link| link.active_halves > 0 && !link.held)
    }

    /// Links that have cells to be written, or circuits that wait for the scheduler.
    pub fn links_to_write(&self) -> &[LinkKey] {
        self.to_write.as_slice()
    }

    /// Forgets the links that have nothing to write any more.
    pub fn prune_written(&mut self) {
        let links = &mut self.links;
        self.to_write.retain(|key, place| {
            let Some(link) = links.get_mut(key as usize) else {
                return false;
            };
            link.listed = (!link.is_empty()).then_some(place);
            link.listed.is_some()
        });
    }

    /// The cells that a link is to write, in order; to be asked for when its socket takes bytes.
    /// The caller takes them from the front and gives their memory back with
    /// [`recycle`](Self::recycle).
    pub fn outgoing(&mut self, key: LinkKey) -> Option<&mut VecDeque<Box<Cell>>> {
        let link = self.links.get_mut(key as usize)?;
        while link.out.len() < DESTROYS_AT_ONCE
            && let Some((circ_id, reason)) = link.destroys.pop_front()
        {
            let cell = Destroy { reason }.encode(circ_id);
            link.out.push_back(self.pool.hold(cell));
        }
        Some(&mut link.out)
    }

    /// Some link that could take them has cells that were chosen and not written.
    pub fn has_unwritten(&self) -> bool {
        self.to_write
            .as_slice()
            .iter()
            .filter_map(|key| self.links.get(*key as usize))
            .any(|link| !link.held && (!link.out.is_empty() || !link.destroys.is_empty()))
    }

    /// Says whether a link's socket has left something untaken. The link stays listed until it has
    /// taken it.
    pub fn set_held(&mut self, key: LinkKey, held: bool) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.held = held;
            if held {
                self.list(key);
            }
        }
    }

    /// Says that cells of a link were written.
    pub fn wrote(&mut self, key: LinkKey, now: Instant) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.padding.cell_sent(now);
            link.last_written = now;
        }
    }

    /// Takes back the memory of a cell that was written.
    pub fn recycle(&mut self, cell: Box<Cell>) {
        self.pool.put(cell);
    }

    /// Lists a link among those that have something to write.
    pub(super) fn list(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key as usize)
            && link.listed.is_none()
        {
            link.listed = Some(self.to_write.add(key));
        }
    }

    /// Takes a link that closes off that list.
    pub(super) fn unlist(&mut self, place: usize) {
        if let Some(moved) = self.to_write.remove(place)
            && let Some(link) = self.links.get_mut(moved as usize)
        {
            link.listed = Some(place);
        }
    }

    /// Queues a cell on the link itself, ahead of everything that the scheduler has not chosen.
    pub(super) fn push_out(&mut self, key: LinkKey, cell: Box<Cell>) {
        if let Some(link) = self.links.get_mut(key as usize) {
            link.out.push_back(cell);
            self.list(key);
        }
    }
}
