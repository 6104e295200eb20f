//! The numbers of the MetricsPort at one moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use weft_core::controller::{AbraCounts, ConnectionCounts, Counts, FamilyCounts};
use weft_core::limits::dos::DosCounts;
use weft_core::message::{Report, Totals};
use weft_dir::command::RelayFlags;
use weft_dircache::hs_dir::HsDirCounts;

use crate::client::ClientCounts;
use crate::workers::WorkerCounts;
use weft_exit::ExitCounts;

/// The latest numbers of each identity of the process.
#[derive(Debug)]
pub(crate) struct Snapshots(Mutex<Vec<Option<Arc<Snapshot>>>>);

impl Snapshots {
    /// None yet, of `count` identities.
    pub(crate) fn of(count: usize) -> Self {
        Self(Mutex::new(vec![None; count]))
    }

    /// Replaces those of one identity; `None`: it has ended.
    pub(crate) fn set(&self, number: usize, snapshot: Option<Snapshot>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(number) {
            *own = snapshot.map(Arc::new);
        }
    }

    /// Snapshots of all identities that have one.
    pub(super) fn all(&self) -> Vec<Arc<Snapshot>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().flatten().cloned().collect()
    }
}

/// Bytes of memory that the directory of a relay holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirectoryMemory {
    /// Requests and answers of open streams.
    pub answers: usize,
    /// Documents.
    pub documents: usize,
    /// Compressions and diffs that are being made.
    pub work: usize,
}

/// The numbers of the MetricsPort at one moment. Counters are since the start.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The identity, if the process has several.
    pub identity: Option<&'static str>,
    pub started: SystemTime,
    /// The last report of each connection thread that has sent one; about a second old.
    pub reports: Vec<Report>,
    /// The relay controller's counters.
    pub counts: Counts,
    /// Introduction circuits of onion services.
    pub introductions: usize,
    /// The counters of its defences against denial of service.
    pub dos: DosCounts,
    /// Connections to the DirPort for which there was no room.
    pub dir_port_full: u64,
    /// Connections of every type, in C tor's order, but for the open ones to the MetricsPort.
    pub connections: Vec<TypedConnections>,
    /// Connections that may be open at once.
    pub max_connections: usize,
    /// Connections that could not be opened because no local port was left.
    pub ports_exhausted: u64,
    /// Streams that end at this relay.
    pub exits: ExitCounts,
    /// The relay's flags in the consensus; empty if it is not listed.
    pub flags: RelayFlags,
    /// Counts of the directory of onion services, on a relay.
    pub hs_dir: Option<HsDirCounts>,
    /// Memory of the directory, on a relay.
    pub directory: Option<DirectoryMemory>,
    /// Counts of the client, if there is one.
    pub client: Option<ClientCounts>,
    /// Counts of the relay's statements about its bandwidth, with AbraWeights.
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

/// The type of connections to the MetricsPort: its thread knows how many are open.
pub(crate) const METRICS: &str = "Metrics";

/// The connections of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypedConnections {
    /// C tor's name of the type (`conn_type_to_string`).
    pub name: &'static str,
    /// Since the start.
    pub created: ConnectionCounts,
    /// Refused when they came.
    pub rejected: FamilyCounts,
    /// Open, or opening.
    pub open: ConnectionCounts,
}

impl TypedConnections {
    /// Connections that others opened.
    pub(crate) fn received(name: &'static str, created: FamilyCounts, open: FamilyCounts) -> Self {
        let received = |received| ConnectionCounts {
            received,
            ..ConnectionCounts::default()
        };
        Self {
            name,
            created: received(created),
            open: received(open),
            ..Self::default()
        }
    }

    /// Connections that this node opened. A listener counts as one of them, as in C tor.
    pub(crate) fn initiated(name: &'static str, created: FamilyCounts, open: FamilyCounts) -> Self {
        let initiated = |initiated| ConnectionCounts {
            initiated,
            ..ConnectionCounts::default()
        };
        Self {
            name,
            created: initiated(created),
            open: initiated(open),
            ..Self::default()
        }
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
    /// Connection threads that get links.
    pub threads_in_use: u16,
    /// Processor time.
    pub cpu: Duration,
    /// The most messages of each connection thread that waited at once since the last snapshot.
    pub from_threads: Vec<usize>,
    /// Messages for each connection thread for which its ring has no room.
    pub to_threads: Vec<usize>,
}
