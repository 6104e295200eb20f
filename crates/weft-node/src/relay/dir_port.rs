//! The DirPort of a relay: who may use it (`DirPolicy`), what it shows to people (`DirPortFrontPage`), and how much may
//! be written to those who use it.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_config::Options;
use weft_core::controller::FamilyCounts;
use weft_core::routable;
use weft_datadir::file::{self, FileError};
use weft_dircache::server::{Asker, Bandwidth};
use weft_log::RateLimit;
use weft_sync::lease::{Lease, LeasePool};

use super::Relay;
use crate::logging::safe_client;
use crate::notice;

/// Bytes of the longest page that is shown.
const MAX_PAGE: u64 = 1 << 20;
/// The interval of log lines about refused connections.
const QUIET: Duration = Duration::from_secs(300);
/// Time after the bandwidth was used up in which no request is answered (C tor
/// `connection_dir_is_global_write_low`).
const SLACK: Duration = Duration::from_secs(2);

/// Shortest time until answers ask for bandwidth again.
const SHORTEST_WAIT: Duration = Duration::from_millis(2);

/// The part that the DirPort has in the limit of all.
#[derive(Debug)]
pub(super) struct DirPortBandwidth {
    pool: Arc<LeasePool>,
    /// While connections are open. Held for moments only.
    lease: Mutex<Option<Lease>>,
    /// Circuits found nothing left just now.
    used_up: AtomicBool,
    read: AtomicU64,
    written: AtomicU64,
}

impl DirPortBandwidth {
    fn new(pool: Arc<LeasePool>) -> Self {
        Self {
            pool,
            lease: Mutex::default(),
            used_up: AtomicBool::new(false),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes read and written since the start.
    pub(super) fn moved(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.read), of(&self.written))
    }

    /// Returns what is not used; all where no connection is open.
    fn expire(&self, is_idle: bool, now: Instant) {
        let mut lease = self.lease();
        match &mut *lease {
            Some(lease) if !is_idle => lease.expire(now),
            lease => *lease = None,
        }
    }
}

impl Bandwidth for DirPortBandwidth {
    fn room(&self) -> usize {
        if self.used_up.load(Ordering::Relaxed) {
            return 0;
        }
        let (_, level) = self.pool.levels(Instant::now());
        usize::try_from(level).unwrap_or(usize::MAX)
    }

    fn take(&self, wanted: usize) -> Result<usize, Duration> {
        let mut lease = self.lease();
        let lease = lease.get_or_insert_with(|| Lease::new(self.pool.clone()));
        match lease.take_write(wanted, Instant::now()) {
            0 => Err(lease.retry_after().max(SHORTEST_WAIT)),
            granted => Ok(granted),
        }
    }

    fn note(&self, read: usize, written: usize) {
        let add = |counter: &AtomicU64, bytes: usize| {
            counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed)
        };
        add(&self.read, read);
        add(&self.written, written);
    }
}

/// Refusals and bandwidth of the DirPort.
#[derive(Debug)]
pub(super) struct DirPortSide {
    /// Connections that were refused.
    pub(super) refused: FamilyCounts,
    /// Connections of `refused` for which there was no room.
    pub(super) refused_full: u64,
    refusals: RateLimit,
    /// Number of times that the bandwidth was used up, as last seen, and the time of the last
    /// increase.
    used_up: (u64, Option<Instant>),
    pub(super) bandwidth: Arc<DirPortBandwidth>,
}

impl DirPortSide {
    /// `pool` is the limit of all connections.
    pub(super) fn new(pool: Arc<LeasePool>) -> Self {
        Self {
            refused: FamilyCounts::default(),
            refused_full: 0,
            refusals: RateLimit::new(QUIET),
            used_up: (0, None),
            bandwidth: Arc::new(DirPortBandwidth::new(pool)),
        }
    }

    /// Notes how often writes have found no bandwidth since the start.
    fn note_used_up(&mut self, times: u64, now: Instant) {
        if times > self.used_up.0 {
            self.used_up = (times, Some(now));
        }
    }

    /// True if the bandwidth was used up within [`SLACK`].
    fn is_used_up(&self, now: Instant) -> bool {
        let since = self.used_up.1.map(|at| now.saturating_duration_since(at));
        since.is_some_and(|since| since < SLACK)
    }
}

/// The page that torrc names, as long as it can be read.
pub(super) fn front_page(options: &Options) -> Option<Arc<[u8]>> {
    let path = options.directory.front_page.as_ref()?;
    match file::required(path, MAX_PAGE) {
        Ok(page) => Some(page.into()),
        Err(FileError { source: error, .. }) => {
            let path = path.display();
            tracing::warn!(
                "DirPortFrontPage file '{path}' not found ({error}). Continuing anyway."
            );
            None
        }
    }
}

impl Relay {
    /// Once a second.
    pub(super) fn tick_dir_port(&mut self, now: Instant) {
        let limited = self.controller.totals().writes_limited;
        self.dir_port.note_used_up(limited, now);
        let (bandwidth, directory) = (&self.dir_port.bandwidth, &self.directory.handle);
        let used_up = self.dir_port.is_used_up(now);
        bandwidth.used_up.store(used_up, Ordering::Relaxed);
        let open = directory.as_ref().map(|one| one.received().open());
        bandwidth.expire(open.unwrap_or(0) == 0, now);
    }

    /// A connection to the DirPort.
    pub(super) fn accept_dir(&mut self, socket: TcpStream, peer: SocketAddr, now: Instant) {
        if self.options.directory.policy.rejects(peer.ip()) {
            *self.dir_port.refused.of(peer.ip()) += 1;
            if let Some(more) = self.dir_port.refusals.check(now) {
                notice!(
                    "Denying dir connection from address {}{more}",
                    safe_client(peer)
                );
            }
            return;
        }
        // Circuits are not starved for the DirPort.
        let is_free = !self.options.bandwidth.count_private && !routable::is_public(peer.ip());
        let bandwidth = (!is_free).then(|| self.dir_port.bandwidth.clone() as Arc<dyn Bandwidth>);
        let asker = Asker::direct(peer.ip(), bandwidth);
        self.count_other_files();
        if let Some(directory) = &self.directory.handle
            && !self.shutdown.is_under_way()
            // One that is not taken is closed.
            && !(self.controller.has_room_for_other() && directory.dir_port().serve(socket, asker))
        {
            *self.dir_port.refused.of(peer.ip()) += 1;
            self.dir_port.refused_full += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn after_bandwidth_was_used_up_nothing_is_answered_for_a_while() {
        let now = Instant::now();
        let mut side = DirPortSide::new(Arc::new(LeasePool::new(1, 1, now)));
        let seconds = |seconds| now + Duration::from_secs(seconds);
        assert!(!side.is_used_up(now));
        side.note_used_up(3, now);
        assert!(side.is_used_up(seconds(1)));
        side.note_used_up(3, seconds(1));
        assert!(!side.is_used_up(seconds(2)), "it was not used up again");
        side.note_used_up(4, seconds(5));
        assert!(side.is_used_up(seconds(6)));
    }

    #[test]
    fn what_the_dir_port_writes_is_not_there_for_circuits() {
        let now = Instant::now();
        // A byte in a second: nothing comes back while the test runs.
        let pool = Arc::new(LeasePool::new(1, 100_000, now));
        let bandwidth = DirPortBandwidth::new(pool.clone());
        assert_eq!(bandwidth.room(), 100_000);
        let mut circuits = Lease::new(pool.clone());
        let mut taken = 0;
        while let Ok(granted) = bandwidth.take(10_000) {
            taken += granted;
        }
        assert!(taken > 99_000, "{taken}");
        assert_eq!(circuits.take_write(1_000, now), 0);
        assert!(circuits.take_read(1_000, now) > 0);
        bandwidth.note(7, taken);
        assert_eq!(bandwidth.moved(), (7, taken as u64));
        // It has no share while there are no requests.
        bandwidth.expire(true, now);
        assert!(bandwidth.lease().is_none());
        bandwidth.used_up.store(true, Ordering::Relaxed);
        assert_eq!(bandwidth.room(), 0);
    }

    #[test]
    fn the_page_is_what_the_file_has_unless_it_is_not_there_or_huge() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let of = || {
            let line = format!("DirPortFrontPage {}\n", path.display());
            front_page(&options(&format!(
                "ORPort 9001\nContactInfo x\nExitRelay 0\n{line}"
            )))
        };
        assert_eq!(of(), None);
        std::fs::write(&path, "<p>This is an exit.</p>\n").unwrap();
        assert_eq!(
            of().as_deref(),
            Some(b"<p>This is an exit.</p>\n".as_slice())
        );
        std::fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
        assert_eq!(of(), None);
        assert_eq!(
            front_page(&options("ORPort 9001\nContactInfo x\nExitRelay 0\n")),
            None
        );
    }
}
