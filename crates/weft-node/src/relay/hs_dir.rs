//! The directories that the relay is, of documents and of onion services: their bounds, and their part in the node's memory.

use std::time::Instant;

use weft_config::Options;
use weft_core::memory::ledger::{Cause, Cut, Held};
use weft_dir::params::Params;
use weft_dircache::DirectoryHandle;
use weft_dircache::hs_dir::{HsDir, Limits};

use super::Relay;
use crate::metrics::DirectoryMemory;
use crate::notice;

/// The part of `MaxMemInQueues` that descriptors may take where torrc has no bound (C tor `hs_cache_get_max_bytes`).
const PART: u64 = 5;

/// The part of it that streams of a directory may hold for requests and answers.
const ANSWERS_PART: u64 = 16;

/// The bounds, where the node may hold `max_memory` bytes.
fn limits(options: &Options, consensus: &Params, max_memory: u64) -> Limits {
    let torrc = options.resources.max_hs_dir_cache;
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Limits {
        memory: size(torrc.unwrap_or(max_memory / PART)),
        descriptor: size(consensus.hs_v3_max_descriptor_size.into()),
    }
}

impl Relay {
    fn hs_dir(&self) -> Option<&HsDir> {
        Some(self.directory.handle.as_ref()?.hs_dir())
    }

    /// Once a second.
    pub(super) fn tick_hs_dir(&mut self, now: Instant) {
        let max_memory = self.controller.max_memory();
        let limits = limits(&self.options, &self.network.params, max_memory);
        let Some(hs_dir) = self.hs_dir() else {
            return;
        };
        hs_dir.set_limits(limits);
        let pruned = hs_dir.counts().pruned;
        let before = std::mem::replace(&mut self.directory.pruned, pruned);
        if pruned > before
            && let Some(more) = self.log_limits.pruned.check(now)
        {
            notice!(
                "HSDir cache exceeded its limit ({} bytes) or memory was short; pruned {} bytes of descriptors that were \
                 fetched least, {pruned} since the start{more}",
                limits.memory,
                pruned - before,
            );
        }
    }

    /// Bounds what answers hold, and counts it with the node's memory.
    pub(super) fn count_directory(&mut self) {
        let most = self.controller.max_memory() / ANSWERS_PART;
        let mut answers = Vec::new();
        for budget in self.directory.handle.iter().map(DirectoryHandle::budget) {
            budget.set_most(usize::try_from(most).unwrap_or(usize::MAX));
            answers.extend(budget.held());
        }
        let memory = self.hs_dir().map(HsDir::memory).unwrap_or_default();
        self.controller
            .set_cache_memory(memory.spare, memory.fixed, answers);
    }

    /// Memory of the directory, for the metrics.
    pub(super) fn directory_memory(&self) -> Option<DirectoryMemory> {
        let directory = self.directory.handle.as_ref()?;
        let documents = directory.documents();
        Some(DirectoryMemory {
            answers: directory.budget().total(),
            documents: documents.memory(),
            work: documents.work(),
        })
    }

    /// Memory is short: descriptors are dropped before circuits are closed, and with these the answers of `cut` end.
    pub(super) fn relieve_directory(&mut self, mut cut: Cut) {
        if let Some(hs_dir) = self.hs_dir() {
            hs_dir.relieve();
        }
        for budget in self.directory.handle.iter().map(DirectoryHandle::budget) {
            budget.end(|hop, bytes| {
                let (cause, held) = (Cause::Hop(hop), Held::kept(bytes));
                let ends = cut.includes(cause, held);
                if ends {
                    cut.closed(cause, held);
                }
                ends
            });
        }
        self.count_directory();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn descriptors_take_a_fifth_of_the_memory_or_what_torrc_has() {
        let of = |torrc: &str| {
            let options = options(&format!("ORPort 9001\nContactInfo x\nExitRelay 0\n{torrc}"));
            limits(&options, &Params::default(), 1000 << 20)
        };
        let plain = Limits {
            memory: 200 << 20,
            descriptor: 50_000,
        };
        assert_eq!(of(""), plain);
        assert_eq!(of("MaxHSDirCacheBytes 0\n"), plain);
        assert_eq!(of("MaxHSDirCacheBytes 3 MB\n").memory, 3 << 20);
    }
}
