//! Cells to be written: the scheduler moves them from the circuits' queues to their links, and the owner
//! of the sockets takes them from there (Engler and Goldberg 2021, 4.2; KIST).

use std::collections::VecDeque;
use std::time::Instant;

use weft_cell::link_msg::Destroy;
use weft_cell::{CELL_LEN, Cell};
use weft_planted::{Fault, planted};

use super::LocalConnectionManager;
use crate::scheduler::CELLS_AT_ONCE;
use crate::slots::LinkKey;

/// DESTROYs made into cells for one write.
const DESTROYS_AT_ONCE: usize = 256;

/// How many cells links may take now (KIST's limit), in two steps: what is known of a socket is enough for a
/// link with few cells, and asking the kernel costs as much as a third of what writing them does.
pub trait Room {
    /// How many cells a link may take, as far as is known without asking; what was chosen for it and not written
    /// yet included.
    fn known(&mut self, link: LinkKey) -> u32;

    /// The same for a link that has taken all of that and has more: asked for, unless that was done in this run
    /// already. No more than [`known`](Self::known) gave if there is none.
    fn asked(&mut self, link: LinkKey) -> u32;
}

/// One answer for all links, or one that costs nothing.
impl<F: FnMut(LinkKey) -> u32> Room for F {
    fn known(&mut self, link: LinkKey) -> u32 {
        self(link)
    }

    fn asked(&mut self, _link: LinkKey) -> u32 {
        0
    }
}

impl LocalConnectionManager {
    /// Moves cells from the circuits' queues to their links, most urgent circuit first, as far as
    /// the links have room ([`Room`]).
    pub fn schedule(&mut self, now: Instant, mut room: impl Room) {
        if self.scheduler.waiting_links().is_empty() {
            return self.pass_bins(now);
        }
        for at in 0..self.scheduler.waiting_links().len() {
            // The list is as it was: a budget changes nothing about what waits.
            let Some(key) = self.scheduler.waiting_links().get(at).copied() else {
                break;
            };
            // What was chosen before and is not written yet (a bandwidth limit holds it back)
            // has its place in that room already.
            let chosen = self.links.get(key).map_or(0, |link| link.out.len());
            let chosen = u32::try_from(chosen).unwrap_or(u32::MAX);
            let budget = match room.known(key).saturating_sub(chosen) {
                0 => room.asked(key).saturating_sub(chosen),
                known => known,
            };
            self.scheduler.set_budget(key, budget);
        }
        self.totals.scheduler_runs += 1;
        while let Some(choice) = self.scheduler.choose() {
            let (Some(half), Some(link)) = (
                self.halves.get_mut(choice.half),
                self.links.chosen(choice.link),
            ) else {
                self.scheduler.set_active(choice.half, false);
                continue;
            };
            let most = choice.budget.min(CELLS_AT_ONCE);
            let sent = match &mut self.queues {
                None => half.queue.move_to(&mut link.out, most),
                Some(queues) => queues.move_to(choice.half, half, link, most, now),
            };
            if sent > 1 && planted(Fault::CellsSwapped) {
                let last = link.out.len().saturating_sub(1);
                link.out.swap(last, last.saturating_sub(1));
            }
            self.totals.cells_scheduled += u64::from(sent);
            self.abra.note_scheduled(link, sent);
            link.load.add(u64::from(sent) * CELL_LEN as u64);
            let active = !half.queue.is_empty();
            if half.blocked
                && half.queue.len() <= self.params.queue_low
                && !planted(Fault::CircuitNotResumed)
            {
                half.blocked = false;
                self.scratch.unblocked.push(choice.half);
            }
            if !active {
                link.active_halves = link.active_halves.saturating_sub(1);
            }
            self.scheduler.sent(choice, sent, active, now);
            if sent == choice.budget && link.active_halves > 0 {
                let chosen = u32::try_from(link.out.len()).unwrap_or(u32::MAX);
                let budget = room.asked(choice.link).saturating_sub(chosen);
                self.scheduler.set_budget(choice.link, budget);
            }
        }
        let mut unblocked = std::mem::take(&mut self.scratch.unblocked);
        for slot in unblocked.drain(..) {
            self.unblock(slot, now);
        }
        self.scratch.unblocked = unblocked;
        self.settle(now);
        self.pass_bins(now);
    }

    /// Some circuit has cells that the scheduler has not chosen yet.
    pub fn has_backlog(&self) -> bool {
        (self.scheduler.waiting_links().iter())
            .filter_map(|key| self.links.get(*key))
            .any(|link| !link.held)
    }

    /// Links that have cells to be written, or circuits that wait for the scheduler. None of them has anything to be
    /// written unless [`has_to_write`](Self::has_to_write) returns true.
    pub fn links_to_write(&self) -> &[LinkKey] {
        self.links.listed()
    }

    /// The bandwidth that all links share had nothing left for this one. The first of a turn begins the next one's
    /// [`links_to_write`](Self::links_to_write).
    pub fn refused(&mut self, key: LinkKey) {
        self.links.refused(key);
    }

    /// Whether some link may have something to be written, or bytes that its socket has not taken: false most of the
    /// time between two runs of the scheduler, and then there is nothing to be looked for.
    pub fn has_to_write(&self) -> bool {
        self.links.any_to_write()
    }

    /// Forgets the links that have nothing to write any more.
    pub fn prune_written(&mut self) {
        self.links.prune_listed();
    }

    /// The cells that a link is to write, in order; to be asked for when its socket takes bytes.
    /// The caller takes them from the front and gives their memory back with
    /// [`recycle`](Self::recycle).
    pub fn outgoing(&mut self, key: LinkKey) -> Option<&mut VecDeque<Box<Cell>>> {
        let link = self.links.get_mut(key)?;
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
        self.links.any_unwritten()
    }

    /// Notes whether a link's socket has left bytes untaken. The link stays listed until it has taken
    /// them.
    pub fn set_held(&mut self, key: LinkKey, held: bool) {
        if let Some(link) = self.links.get_mut(key) {
            if link.held && !held && planted(Fault::LinkStaysHeld) {
                return;
            }
            link.held = held;
            if held {
                self.links.list_to_write(key);
            }
        }
    }

    /// Counts cells that were taken from [`outgoing`](Self::outgoing) to be written.
    pub fn count_written(&mut self, key: LinkKey, cells: u64) {
        self.totals.link_cells.written += cells;
        if let Some(link) = self.links.get_mut(key) {
            link.written += cells;
            if link.padding.is_negotiated() {
                self.totals.link_cells.padded_written += cells;
            }
        }
    }

    /// Notes that cells of a link were written.
    pub fn wrote(&mut self, key: LinkKey, now: Instant) {
        if let Some(link) = self.links.get_mut(key) {
            link.padding.cell_sent(now);
            link.last_written = now;
        }
    }

    /// Takes back the memory of a cell that was written.
    pub fn recycle(&mut self, cell: Box<Cell>) {
        self.pool.put(cell);
    }

    /// Queues a cell on the link itself, ahead of everything that the scheduler has not chosen.
    pub(super) fn push_out(&mut self, key: LinkKey, cell: Box<Cell>) {
        if let Some(link) = self.links.get_mut(key) {
            link.out.push_back(cell);
            self.links.list_to_write(key);
        }
    }
}
