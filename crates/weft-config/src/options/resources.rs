//! Memory, threads, sockets.

use std::time::Duration;

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// Bytes below which a relay's `MaxMemInQueues` is warned about as low.
const MIN_GOOD_QUEUES: i64 = 256 << 20;

/// The least `MaxMemInQueues` of a relay, in bytes (MIN_SERVER_MB of config.c).
pub const MIN_MEM_IN_QUEUES: u64 = 64 << 20;

/// Memory, threads, sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOptions {
    /// `MaxMemInQueues`, in bytes, at least [`MIN_MEM_IN_QUEUES`]; `None`: see
    /// [`max_mem_in_queues`](ResourceOptions::max_mem_in_queues).
    pub max_mem_in_queues_set: Option<u64>,
    /// `MaxHSDirCacheBytes`: memory for descriptors of onion services (`None`: a part of the
    /// above).
    pub max_hs_dir_cache: Option<u64>,
    /// `NumCPUs`: how many threads do onionskins (`None`: as many as there are cores).
    pub num_cpus: Option<u32>,
    /// `ConnectionThreads` (Weft's own): threads that own links. `None`: the cores that the process
    /// may use. `Some(0)`: everything on the main thread. At most
    /// [`MAX_CONNECTION_THREADS`](crate::table::known::MAX_CONNECTION_THREADS).
    pub connection_threads: Option<u32>,
    /// `UseAllThreads` (Weft's own): all of those get links, at any load.
    pub use_all_threads: bool,
    /// `ConnLimit`: file descriptors that must be available.
    pub conn_limit: u32,
    /// `ConstrainedSockets` and `ConstrainedSockSize`: the bytes that the kernel may keep for a
    /// socket in each direction (`None`: as many as it likes).
    pub constrained_sock_size: Option<usize>,
    /// `MaxOnionQueueDelay`: how long a CREATE cell may wait (`None`: by consensus).
    pub max_onion_queue_delay: Option<Duration>,
}

impl ResourceOptions {
    /// Effective `MaxMemInQueues` on a machine with this much memory, in bytes (config.c,
    /// `compute_real_max_mem_in_queues`): the operator's value, at least [`MIN_MEM_IN_QUEUES`];
    /// else two fifths of the memory from 8 GB up, three quarters below, and between 256 MB and 8
    /// GB (2 GB where addresses have 32 bits).
    #[must_use]
    pub fn max_mem_in_queues(&self, total_memory: Option<u64>) -> u64 {
        const GB: u64 = 1 << 30;
        let most = if cfg!(target_pointer_width = "64") {
            8 * GB
        } else {
            2 * GB
        };
        match (self.max_mem_in_queues_set, total_memory) {
            (Some(set), _) => set,
            (None, None) => most,
            (None, Some(ram)) => {
                let share = if ram >= 8 * GB {
                    ram / 5 * 2
                } else {
                    ram / 4 * 3
                };
                share.clamp(GB / 4, most)
            }
        }
    }
}

/// Checks them.
pub(crate) fn check(settings: &Settings, is_relay: bool, report: &mut Report) {
    let queues = settings.number(keys::MaxMemInQueues);
    let least = i64::try_from(MIN_MEM_IN_QUEUES).unwrap_or(i64::MAX);
    if is_relay && queues != 0 && queues < least {
        report.warn(
            settings.origin(keys::MaxMemInQueues),
            "MaxMemInQueues must be at least 64 MB on a relay; using that",
        );
    } else if is_relay && queues != 0 && queues < MIN_GOOD_QUEUES {
        report.warn(
            settings.origin(keys::MaxMemInQueues),
            "MaxMemInQueues is low; if the relay does not work, this may be why",
        );
    }
    let sockets = settings.number(keys::ConstrainedSockSize);
    if settings.flag(keys::ConstrainedSockets)
        && (!(2048..=262_144).contains(&sockets) || sockets % 1024 != 0)
    {
        report.error(
            settings.origin(keys::ConstrainedSockSize),
            "ConstrainedSockSize must be from 2048 to 262144 in steps of 1024",
        );
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> ResourceOptions {
    ResourceOptions {
        max_mem_in_queues_set: settings
            .amount_or_none(keys::MaxMemInQueues)
            .map(|bytes| bytes.max(MIN_MEM_IN_QUEUES)),
        max_hs_dir_cache: settings.amount_or_none(keys::MaxHSDirCacheBytes),
        num_cpus: settings.count_or_none(keys::NumCPUs),
        connection_threads: settings
            .auto_number(keys::ConnectionThreads)
            .and_then(|n| u32::try_from(n).ok()),
        use_all_threads: settings.flag(keys::UseAllThreads),
        conn_limit: settings.count_or_none(keys::ConnLimit).unwrap_or(1000),
        constrained_sock_size: usize::try_from(settings.amount(keys::ConstrainedSockSize))
            .ok()
            .filter(|_| settings.flag(keys::ConstrainedSockets)),
        max_onion_queue_delay: settings.time_or_none(keys::MaxOnionQueueDelay),
    }
}
