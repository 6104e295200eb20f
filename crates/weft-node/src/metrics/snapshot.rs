//! Everything that the MetricsPort tells, as of one moment.

use std::time::{Duration, SystemTime};

use weft_core::controller::{ConnectionCounts, Counts, FamilyCounts};
use weft_core::dos::DosCounts;
use weft_core::message::{Report, Totals};
use weft_dir::command::RelayFlags;

use crate::exit::ExitCounts;
use crate::workers::WorkerCounts;

/// See the module. Counters are since the start.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the relay started.
    pub started: SystemTime,
    /// What the connection threads said last, about a second ago; those that said something.
    pub reports: Vec<Report>,
    /// What the relay controller counts.
    pub counts: Counts,
    /// What its defences count.
    pub dos: DosCounts,
    /// Connections to and from relays and clients that are open, or opening.
    pub connections: ConnectionCounts,
    /// ORPorts.
    pub or_listeners: ListenerCounts,
    /// MetricsPorts.
    pub metrics_listeners: ListenerCounts,
    /// Connections to the MetricsPort that were served.
    pub metrics_accepted: FamilyCounts,
    /// Connections to it that were refused: by its policy, or because there were too many.
    pub metrics_refused: FamilyCounts,
    /// Connections that may be open at once.
    pub max_connections: usize,
    /// Connections that could not be opened because no local port was left.
    pub ports_exhausted: u64,
    /// Streams that end here.
    pub exits: ExitCounts,
    /// What the consensus says of the relay; empty where it does not list it.
    pub flags: RelayFlags,
    /// When the signing key's certificate ends, with an offline master key.
    pub signing_expires: Option<SystemTime>,
    /// Onionskins that the workers do not have yet.
    pub onionskins_queued: usize,
    /// The onionskin workers.
    pub workers: Vec<WorkerCounts>,
    /// The main thread.
    pub main: MainCounts,
}

impl Snapshot {
    /// The connection threads' counters, added up.
    pub(super) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for report in &self.reports {
            sum.add(&report.totals);
        }
        sum
    }
}

/// Listeners of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Open now.
    pub open: FamilyCounts,
    /// Opened since the start.
    pub opened: FamilyCounts,
}

/// What the main thread counts of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MainCounts {
    /// Turns of its loop.
    pub turns: u64,
    /// Processor time.
    pub cpu: Duration,
    /// The most messages of each connection thread that waited since the last snapshot.
    pub from_threads: Vec<usize>,
    /// Messages for each connection thread that found no room in its ring.
    pub to_threads: Vec<usize>,
}
