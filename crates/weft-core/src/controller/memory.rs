//! The threads' reports: their load, and the memory that they hold ([`crate::memory::ledger`]).

use std::time::Instant;

use weft_share::PreviousHop;

use super::{Freed, Notice, RelayController};
use crate::address::ThreadId;
use crate::memory::ledger::{self, Cause, Cut, Held, Holdings, Ledger};
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

    /// Handles the holdings that a thread reports after it has read much, so that a fast peer
    /// cannot have it hold far more than allowed until the next periodic report.
    pub(super) fn on_held(&mut self, thread: ThreadId, ledger: Ledger, memory_rounds: u64) {
        let slot = usize::from(thread.0);
        if let Some(Some(report)) = self.reports.get_mut(slot) {
            (report.ledger, report.memory_rounds) = (ledger, memory_rounds);
            self.watch_memory();
        }
    }

    /// Sets the memory, in bytes, that the node holds outside its threads.
    /// [`Notice::MemoryPressure`] frees `spare` before any thread frees anything; `fixed` is never
    /// freed. Each item of `answers` is the previous hop of one directory stream, and the bytes
    /// that the stream holds until it ends; it is an owner like those of threads.
    pub fn set_cache_memory(
        &mut self,
        spare: usize,
        fixed: usize,
        answers: impl IntoIterator<Item = (PreviousHop, usize)>,
    ) {
        self.caches = Ledger::default();
        self.caches.add_spare(spare);
        self.caches.add_fixed(fixed);
        self.answers = Holdings::default();
        for (hop, bytes) in answers {
            let held = Held::kept(bytes);
            self.caches.add(held);
            self.answers.add(Cause::Hop(hop), held);
        }
    }

    /// Notes how many bytes of [`max_memory`](Self::max_memory) are other nodes' of the process.
    pub fn set_memory_of_others(&mut self, bytes: u64) {
        self.memory_of_others = bytes;
    }

    /// Bytes that the node holds, by the last reports of its threads.
    pub fn held_memory(&self) -> u64 {
        self.sum().total()
    }

    /// Sum of the last reports of all threads.
    fn sum(&self) -> Ledger {
        let threads = self.reports().map(|report| &report.ledger);
        threads.chain([&self.caches]).sum()
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
        let done = |report: &Report| report.memory_rounds == self.counts.memory_freed;
        let all_done = (self.reports.iter()).all(|report| report.as_ref().is_some_and(done));
        if !all_done || self.counting.is_some() {
            return;
        }
        match self.sum().to_free(self.allowed_memory()) {
            None => {}
            Some(0) => self.free_memory(vec![Cut::default(); self.reports.len()], Cut::default()),
            Some(_) => {
                self.counting = Some(vec![None; self.reports.len()]);
                self.send_all(|| FromController::CountHoldings);
            }
        }
    }

    /// A thread has counted who holds its memory.
    pub(super) fn on_holdings(&mut self, thread: ThreadId, holdings: Holdings) {
        let counting = self.counting.as_mut();
        if let Some(place) = counting.and_then(|all| all.get_mut(usize::from(thread.0))) {
            *place = Some(holdings);
        }
        let counting = self.counting.as_ref();
        if !counting.is_some_and(|all| all.iter().all(Option::is_some)) {
            return;
        }
        let threads = self.counting.take().into_iter().flatten().flatten();
        let all: Vec<Holdings> = threads.chain([self.answers.clone()]).collect();
        if let Some(missing) = self.sum().to_free(self.allowed_memory()) {
            let mut cuts = ledger::relieve(&all, missing, |cause| self.hop_of(cause));
            let answers = cuts.pop().unwrap_or_default();
            self.free_memory(cuts, answers);
        }
    }

    /// Has each thread and the directory free its part, and everything that is spare.
    fn free_memory(&mut self, cuts: Vec<Cut>, answers: Cut) {
        self.counts.memory_freed += 1;
        self.notice(Notice::MemoryPressure {
            used: self.sum().total(),
            allowed: self.allowed_memory(),
            to_free: cuts.iter().chain([&answers]).map(Cut::bytes).sum(),
            answers,
        });
        for (cut, thread) in cuts.into_iter().zip(0u16..) {
            self.send(ThreadId(thread), FromController::FreeMemory(cut));
        }
    }

    /// Bytes that this node may hold, of those of the process.
    fn allowed_memory(&self) -> u64 {
        (self.params.max_memory).saturating_sub(self.memory_of_others)
    }

    /// The hop that memory is charged to.
    pub fn hop_of(&self, cause: Cause) -> PreviousHop {
        match cause {
            Cause::Own => PreviousHop::Own,
            Cause::Hop(hop) => hop,
            Cause::Connection(id) if self.origins.has_edge(id) => {
                // Applications are not displaced.
                self.displaceable.hop(id).unwrap_or(PreviousHop::Own)
            }
            Cause::Connection(id) => self.previous_hop(id),
        }
    }
}
