//! The directory of onion services that the relay is: its bounds, and its part in the node's memory.

use std::time::Instant;

use weft_config::Options;
use weft_dir::hs_dir::{HsDir, Limits};
use weft_dir::params::Params;

use super::Relay;
use crate::notice;

/// The part of `MaxMemInQueues` that descriptors may take where torrc has no bound (C tor `hs_cache_get_max_bytes`).
const PART: u64 = 5;

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
        let (memory, pruned) = (hs_dir.memory(), hs_dir.counts().pruned);
        self.controller.set_cache_memory(memory.spare, memory.fixed);
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

    /// Memory is short: descriptors are dropped before circuits are closed.
    pub(super) fn relieve_hs_dir(&mut self) {
        let Some(hs_dir) = self.hs_dir() else {
            return;
        };
        hs_dir.relieve();
        let memory = hs_dir.memory();
        self.controller.set_cache_memory(memory.spare, memory.fixed);
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
