//! The threads' reports: their load, and the memory that they hold ([`crate::ledger`]).

use std::time::Instant;

use super::{Freed, Notice, RelayController};
use crate::address::ThreadId;
use crate::ledger::{self, Ledger};
use crate::message::{FromController, Report};

impl RelayController {
    /// A thread reports.
    pub(super) fn on_report(&mut self, mut report: Report, now: Instant) {
        self.placement
            .report(report.thread, report.bytes_per_second, report.links);
        let heaviest = std::mem::take(&mut report.heaviest);
        let rate = report.bytes_per_second;
        self.balance
            .report(report.thread, report.cpu, rate, heaviest, now);
        let slot = usize::from(report.thread.0);
        let last = slot + 1 == self.reports.len();
        if let Some(known) = self.reports.get_mut(slot) {
            *known = Some(report);
        }
        // Judge once a round, when every thread's report is about as old.
        if last {
            self.watch_memory();
            self.adapt(now);
        }
    }

    /// What the node holds besides its threads, in bytes: `spare` of it is freed at
    /// [`Notice::MemoryPressure`], before anything that a thread holds, the rest never.
    pub fn set_cache_memory(&mut self, spare: usize, fixed: usize) {
        self.caches = Ledger::default();
        self.caches.add_spare(spare);
        self.caches.add_fixed(fixed);
    }

    /// Notes how many bytes of [`max_memory`](Self::max_memory) are other nodes' of the process.
    pub fn set_memory_of_others(&mut self, bytes: u64) {
        self.memory_of_others = bytes;
    }

    /// Bytes that the node holds, by the last reports of its threads.
    pub fn held_memory(&self) -> u64 {
        let threads = self.reports().map(|report| &report.ledger);
        threads.chain([&self.caches]).map(Ledger::total).sum()
    }

    /// Bytes that the process may hold.
    pub fn max_memory(&self) -> u64 {
        self.params.max_memory
    }

    fn watch_memory(&mut self) {
        let totals = self.totals();
        let freed = Freed {
            circuits: totals.killed_for_memory,
            links: totals.links_killed_for_memory,
            bytes: totals.freed_for_memory,
        };
        let before = std::mem::replace(&mut self.freed_noticed, freed);
        if freed.bytes > before.bytes {
            self.notice(Notice::MemoryFreed(Freed {
                circuits: freed.circuits.saturating_sub(before.circuits),
                links: freed.links.saturating_sub(before.links),
                bytes: freed.bytes - before.bytes,
            }));
        }
        // A report from before a thread has done its part would have others die for the same bytes.
        let reports: Option<Vec<&Report>> = self.reports.iter().map(Option::as_ref).collect();
        let Some(reports) = reports.filter(|reports| {
            let done = |report: &&Report| report.memory_rounds == self.counts.memory_freed;
            reports.iter().all(done)
        }) else {
            return;
        };
        let threads = reports.len();
        let ledgers = reports.iter().map(|report| &report.ledger);
        let ledgers: Vec<&Ledger> = ledgers.chain([&self.caches]).collect();
        let allowed = self.params.max_memory.saturating_sub(self.memory_of_others);
        let Some(cuts) = ledger::relieve(&ledgers, allowed) else {
            return;
        };
        let used = ledgers.iter().map(|ledger| ledger.total()).sum();
        self.counts.memory_freed += 1;
        self.notice(Notice::MemoryPressure {
            used,
            allowed,
            to_free: cuts.iter().map(|cut| cut.bytes).sum(),
        });
        for (cut, thread) in cuts.into_iter().take(threads).zip(0u16..) {
            self.send(ThreadId(thread), FromController::FreeMemory(cut));
        }
    }
}
