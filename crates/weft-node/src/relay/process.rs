//! Resources of the process on its machine while the node runs.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use weft_datadir::lock::DataDirLock;

use super::clock::WallClock;
use super::heartbeat::Heartbeat;
use super::membership::Membership;
use crate::process::machine::IdleCores;
use crate::process::manager::ServiceManager;
use crate::process::pid::PidFile;

/// Lock, PID file, service manager, limits and clocks of the process.
#[derive(Debug)]
pub(super) struct Process {
    /// The last identity that ends removes it.
    pub(super) pid_file: Option<Arc<PidFile>>,
    /// systemd, where it started the process.
    pub(super) manager: ServiceManager,
    /// Files that the process may have open.
    pub(super) max_files: usize,
    pub(super) wall_clock: WallClock,
    pub(super) idle_cores: IdleCores,
    pub(super) heartbeat: Heartbeat,
    /// State shared with the other identities of the process.
    pub(super) membership: Membership,
    /// At the last check, this identity was the one that acts for the process.
    pub(super) leads: bool,
    _lock: DataDirLock,
}

impl Process {
    /// A process that holds the lock of its DataDirectory.
    pub(super) fn new(
        lock: DataDirLock,
        (max_files, membership): (usize, Membership),
        now: Instant,
        wall: SystemTime,
    ) -> Self {
        Process {
            pid_file: None,
            manager: ServiceManager::of_this_process(now),
            max_files,
            wall_clock: WallClock::new(now, wall),
            idle_cores: IdleCores::default(),
            heartbeat: Heartbeat::new(now),
            leads: membership.leads(),
            membership,
            _lock: lock,
        }
    }
}
