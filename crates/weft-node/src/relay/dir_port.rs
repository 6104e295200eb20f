//! The DirPort of a relay: who may use it (`DirPolicy`), what it shows to people (`DirPortFrontPage`), and how much may
//! be written to those who use it.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_config::Options;
use weft_core::controller::FamilyCounts;
use weft_core::routable;
use weft_datadir::file::{self, FileError};
use weft_dircache::server::Asker;
use weft_log::RateLimit;

use super::Relay;
use crate::logging::safe_client;
use crate::notice;

/// Bytes of the longest page that is shown.
const MAX_PAGE: u64 = 1 << 20;
/// The interval of log lines about refused connections.
const QUIET: Duration = Duration::from_secs(300);
/// For so long after the bandwidth was used up nothing is answered (C tor `connection_dir_is_global_write_low`).
const SLACK: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct DirPortSide {
    /// Connections that were refused.
    pub(super) refused: FamilyCounts,
    /// Those of them for which there was no room.
    pub(super) refused_full: u64,
    refusals: RateLimit,
    /// How often the bandwidth had been used up when that was last looked at, and when that had grown.
    used_up: (u64, Option<Instant>),
}

impl DirPortSide {
    pub(super) fn new() -> Self {
        Self {
            refused: FamilyCounts::default(),
            refused_full: 0,
            refusals: RateLimit::new(QUIET),
            used_up: (0, None),
        }
    }

    /// Notes how often writes have found no bandwidth since the start.
    fn note_used_up(&mut self, times: u64, now: Instant) {
        if times > self.used_up.0 {
            self.used_up = (times, Some(now));
        }
    }

    /// Whether that was just now.
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
        if let Some(authority) = &self.directory.authority {
            authority.handle.set_busy(self.dir_port.is_used_up(now));
        }
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
        let asker = Asker::direct(peer.ip(), self.write_room(peer.ip(), now));
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

    /// How many bytes may be written to `peer`; `None`: any number. Circuits are not starved for the DirPort.
    fn write_room(&self, peer: IpAddr, now: Instant) -> Option<usize> {
        if !self.options.bandwidth.count_private && !routable::is_public(peer) {
            return None;
        }
        if self.dir_port.is_used_up(now) {
            return Some(0);
        }
        let (_, level) = self.threads.pool.levels(now);
        Some(usize::try_from(level).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn after_bandwidth_was_used_up_nothing_is_answered_for_a_while() {
        let (mut side, now) = (DirPortSide::new(), Instant::now());
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
