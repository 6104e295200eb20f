//! The numbers of the MetricsPort at one moment.

use std::time::{Duration, SystemTime};

use weft_core::controller::{AbraCounts, ConnectionCounts, Counts, FamilyCounts};
use weft_core::dos::DosCounts;
use weft_core::message::{Report, Totals};
use weft_dir::command::RelayFlags;

use crate::client::ClientCounts;
use crate::workers::WorkerCounts;
use weft_exit::ExitCounts;

/// The numbers of the MetricsPort at one moment. Counters are since the start.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub started: SystemTime,
    /// The last report of each connection thread that has sent one; about a second old.
    pub reports: Vec<Report>,
    /// The relay controller's counters.
    pub counts: Counts,
    /// The counters of its defences against denial of service.
    pub dos: DosCounts,
    /// Connections to and from relays and clients that are open or opening.
    pub connections: ConnectionCounts,
    /// ORPorts.
    pub or_listeners: ListenerCounts,
    /// MetricsPorts.
    pub metrics_listeners: ListenerCounts,
    /// Connections to the MetricsPort that were served.
    pub metrics_accepted: FamilyCounts,
    /// Connections to the MetricsPort that were refused: by its policy, or because there were too many.
    pub metrics_refused: FamilyCounts,
    /// Connections that may be open at once.
    pub max_connections: usize,
    /// Connections that could not be opened because no local port was left.
    pub ports_exhausted: u64,
    /// Streams that end at this relay.
    pub exits: ExitCounts,
    /// The relay's flags in the consensus; empty if it is not listed.
    pub flags: RelayFlags,
    /// What the client counts, where there is one.
    pub client: Option<ClientCounts>,
    /// What the relay states of its bandwidth, with AbraWeights.
    pub abra: Option<AbraCounts>,
    /// The end of the signing key's certificate, with an offline master key.
    pub signing_expires: Option<SystemTime>,
    /// Onionskins that wait for a worker.
    pub onionskins_queued: usize,
    /// The counters of each onionskin worker.
    pub workers: Vec<WorkerCounts>,
    pub main: MainCounts,
}

impl Snapshot {
    /// The connection threads' counters, added up.
    pub(super) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for report in &self.reports {
            sum += report.totals;
        }
        sum
    }
}

/// Listeners of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerCounts {
    /// Open now.
    pub open: FamilyCounts,
    /// Opened since the start.
    pub opened: FamilyCounts,
}

/// The main thread's counters of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MainCounts {
    /// Turns of its loop.
    pub turns: u64,
    /// Processor time.
    pub cpu: Duration,
    /// The most messages of each connection thread that waited at once since the last snapshot.
    pub from_threads: Vec<usize>,
    /// Messages for each connection thread for which its ring has no room.
    pub to_threads: Vec<usize>,
}
