//! The scheduler moves cells from the circuits' queues to their links (Engler and Goldberg 2021, 4.2; KIST).

use std::time::Instant;

use weft_cell::CELL_LEN;
use weft_planted::{Fault, planted};

use super::CellPath;
use crate::extensions::abra::Metering;
use crate::scheduler::CELLS_AT_ONCE;
use crate::slots::LinkKey;

/// Number of cells that links may take now (KIST's limit), in two steps: the known state of a
/// socket is enough for a link with few cells, and asking the kernel costs a third as much as
/// writing them.
pub trait Room {
    /// Cells that a link may take, as far as is known without asking the kernel; includes those
    /// that were chosen for it and not written yet.
    fn known(&mut self, link: LinkKey) -> u32;

    /// Cells for a link that has taken all of those and has more: the kernel is asked, unless it
    /// was in this run already. At most what [`known`](Self::known) returned if the kernel is not
    /// asked.
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

impl CellPath {
    /// Moves cells from the circuits' queues to their links, most urgent circuit first, as far as
    /// the links have room ([`Room`]).
    pub(in crate::manager) fn schedule(
        &mut self,
        now: Instant,
        mut room: impl Room,
        metering: &mut Metering,
    ) {
        if self.scheduler.waiting_links().is_empty() {
            return;
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
            if self.activity.is_on() {
                metering.note_scheduled(&mut link.fill, sent);
            }
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
    }
}
