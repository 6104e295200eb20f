//! The statistics of the extra-info document: what threads report of them, the tables of countries, and the files of
//! `DataDirectory/stats`, where C tor keeps the result of a day.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rand::RngExt as _;
use weft_config::Options;
use weft_core::message::{QueueKind, QueueUse, ToController, Totals};
use weft_counts::extrainfo::{
    CircuitName, Directions, OverloadSeen, QueuePart, Statistics, StatsFile, Switches,
};
use weft_datadir::dir::check_private;
use weft_datadir::file;
use weft_datadir::files::DataFile;
use weft_dir::command::Command;
use weft_dircache::DirectoryHandle;
use weft_dircache::hs_dir::HsDir;

use super::Relay;
use super::tables::{Tables, table_paths};
use crate::control::events::Event as ControlEvent;
use crate::logging;
use crate::notice;

/// Interval at which days are ended, and the document's lines checked.
const INTERVAL: Duration = Duration::from_secs(60);
/// The folder of the files.
const FOLDER: &str = DataFile::Statistics.name();

/// Use of this relay by onion services; see [`Statistics::note_onions`].
#[derive(Clone, Copy, Debug, Default)]
struct OnionCounts {
    /// Cells passed on at this rendezvous point since the start.
    cells: u64,
    /// Different services whose descriptors were stored.
    services: u64,
}

/// The main thread's state of the statistics.
pub(super) struct StatisticsSide {
    statistics: Statistics,
    tables: Option<Arc<Tables>>,
    /// Tables that are being read: some ten megabytes.
    loading: Option<JoinHandle<Arc<Tables>>>,
    /// Lines that the directory got last.
    sent: Vec<String>,
    /// The time from which on the directory of onion services counts the services that it sees.
    onions_from: Option<SystemTime>,
    next: Instant,
}

impl StatisticsSide {
    /// Restores the counts from before the start from their files.
    pub(super) fn new(options: &Options, now: Instant, wall: SystemTime) -> Self {
        let mut statistics = Statistics::new(wall);
        if options.is_relay() {
            for kind in StatsFile::ALL {
                let path = options.files.data_directory.join(FOLDER).join(kind.name());
                if let Some(text) = load(kind, &path, wall) {
                    statistics.keep(kind, text);
                }
            }
        }
        StatisticsSide {
            statistics,
            tables: None,
            loading: None,
            sent: Vec::new(),
            onions_from: None,
            next: now,
        }
    }
}

/// A file of statistics, unless it is not worth publishing.
fn load(kind: StatsFile, path: &Path, now: SystemTime) -> Option<String> {
    let bytes = match file::read(path, StatsFile::MOST) {
        Ok(bytes) => bytes?,
        Err(error) => {
            tracing::warn!("{error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match kind.recent(&text, now) {
        Ok(recent) => recent.then_some(text),
        Err(_) => {
            let path = path.display();
            tracing::warn!(
                "{path} has something else than {}: it is not published",
                kind.name()
            );
            None
        }
    }
}

/// A queue's measurements as statistics need them; `None` for a circuit that begins here.
fn queue_part(used: &QueueUse, now: Instant, wall: SystemTime) -> Option<(CircuitName, QueuePart)> {
    let inbound = match used.kind {
        QueueKind::Inbound => true,
        QueueKind::Outbound => false,
        QueueKind::Origin(_) => return None,
    };
    let half = used.circuit;
    let age = now.saturating_duration_since(used.since);
    let (cells, waited) = used.total();
    let part = QueuePart {
        since: wall.checked_sub(age).unwrap_or(wall),
        cells,
        waited,
        over: used.closed && inbound,
    };
    Some((
        CircuitName(half.thread.0, half.slot.0, half.generation),
        part,
    ))
}

/// Statistics to count by these options, if these tables are known.
fn switches(options: &Options, tables: Option<&Tables>) -> Switches {
    let wanted = options.statistics;
    let knows = |v4| tables.is_some_and(|tables| tables.countries.knows(v4));
    Switches {
        published: wanted.published,
        dir_requests: wanted.dir_requests && knows(true),
        entry: wanted.entry && (knows(true) || knows(false)),
        cells: wanted.cells,
        exits: wanted.exit_ports,
        onions: wanted.hidden_services,
        directions: wanted.directions,
        padding: wanted.padding,
        overload: wanted.overload,
        bridge: options.bridge_relay.count_users,
    }
}

impl Relay {
    /// Begins and ends statistics as torrc has them now.
    pub(super) fn configure_statistics(&mut self) {
        let wanted = self.options.statistics;
        let side = &mut self.statistics;
        if wanted.dir_requests || wanted.entry || self.options.bridge_relay.count_users {
            let paths = table_paths(&self.options.settings);
            let known = side.tables.as_ref().map(|tables| &tables.paths);
            if known != Some(&paths) {
                let shared = self.process.membership.tables().clone();
                side.loading = logging::spawn("countries", move || shared.load(paths)).ok();
            }
        } else {
            (side.tables, side.loading) = (None, None);
        }
        if side.loading.is_none() {
            self.follow_statistics();
        }
    }

    /// Applies the switches, with the tables that are known.
    fn follow_statistics(&mut self) {
        let wall = SystemTime::now();
        let side = &mut self.statistics;
        let switches = switches(&self.options, side.tables.as_deref());
        let before = side.statistics.switches();
        side.statistics.configure(switches, wall, &mut self.rng);
        let knows = |v4| {
            let tables = side.tables.as_ref();
            tables.is_some_and(|tables| tables.countries.knows(v4))
        };
        let known = knows(true) || knows(false);
        side.statistics.set_countries_known(known);
        side.next = Instant::now();
        let begins = |on: fn(&Switches) -> bool| on(&switches) && !on(&before);
        if begins(|all| all.dir_requests)
            || begins(|all| all.entry)
            || begins(|all| all.cells)
            || begins(|all| all.exits)
        {
            // C tor's text, as the two below.
            notice!(
                "Configured to measure statistics. Look for the *-stats files that will first be written to the \
                 data directory in 24 hours from now."
            );
        }
        for (wanted, kept, what) in [
            (
                self.options.statistics.dir_requests,
                switches.dir_requests,
                "directory request",
            ),
            (self.options.statistics.entry, switches.entry, "entry node"),
        ] {
            if wanted && !kept {
                notice!(
                    "Configured to measure {what} statistics, but no GeoIP database found. Please specify a \
                     GeoIP database using the GeoIPFile option."
                );
            }
        }
        let Some(directory) = &self.directory.handle else {
            return;
        };
        match side.tables.as_ref().filter(|_| switches.dir_requests) {
            Some(tables) => {
                let countries = tables.countries.clone();
                let country = Box::new(move |addr| countries.of(addr));
                directory.requests().begin(country, wall, self.rng.random());
            }
            None => directory.requests().end(),
        }
    }

    /// Takes what a thread reports of its exits.
    pub(super) fn note_statistics(&mut self, message: &ToController) {
        let ToController::Report(report) = message else {
            return;
        };
        if !report.exit_ports.is_empty() {
            self.statistics.statistics.note_exits(&report.exit_ports);
        }
        if self.statistics.statistics.switches().cells && !report.activity.queues.is_empty() {
            let (now, wall) = (Instant::now(), SystemTime::now());
            for used in &report.activity.queues {
                if let Some((circuit, part)) = queue_part(used, now, wall) {
                    self.statistics.statistics.note_queue(circuit, part, wall);
                }
            }
        }
        self.control.note_activity(&report.activity);
    }

    /// A connection to the ORPort was accepted.
    pub(super) fn note_client(&mut self, addr: std::net::IpAddr) {
        let StatisticsSide {
            statistics, tables, ..
        } = &mut self.statistics;
        if let Some(tables) = tables {
            statistics.note_client(addr, |addr| tables.countries.of(addr));
        }
    }

    /// A client of this bridge has opened a link.
    pub(super) fn note_bridge_user(&mut self, addr: std::net::IpAddr, transport: Option<&str>) {
        let StatisticsSide {
            statistics, tables, ..
        } = &mut self.statistics;
        let country = |addr| match tables {
            Some(tables) => tables.countries.of(addr),
            None => *b"??",
        };
        statistics.note_bridge_user(addr, transport, country);
    }

    /// The users of this bridge, as controllers get them; `None`: it is none.
    pub(super) fn clients_seen(&self) -> Option<String> {
        self.statistics.statistics.clients_seen()
    }

    /// Different users of this bridge since the last call; `None`: it is no bridge that counts them.
    pub(super) fn new_bridge_users(&mut self) -> Option<u64> {
        self.statistics.statistics.bridge_users(&mut self.rng)
    }

    /// There was no file descriptor for something.
    pub(super) fn note_files_exhausted(&mut self) {
        let statistics = &mut self.statistics.statistics;
        statistics.note_files_exhausted(SystemTime::now());
    }

    /// Counts of onion services. The one place that knows their sources: cells are counted by the
    /// threads, and different services, from [`Statistics::onions_from`] on, by the directory of
    /// onion services.
    fn onion_counts(&mut self, totals: &Totals) -> OnionCounts {
        let from = self.statistics.statistics.onions_from();
        let directory = self.directory.handle.as_ref().map(DirectoryHandle::hs_dir);
        if let Some(directory) = directory
            && std::mem::replace(&mut self.statistics.onions_from, from) != from
        {
            directory.count_onions_from(from);
        }
        let services = directory.map_or(0, HsDir::onions_seen);
        OnionCounts {
            cells: totals.rendezvous.cells,
            services: services as u64,
        }
    }

    /// Takes the totals of all threads, ends days that are over, and sends the directory the lines of the next
    /// extra-info document.
    pub(super) fn tick_statistics(&mut self, totals: &Totals, now: Instant) {
        if self.directory.handle.is_none() {
            return;
        }
        let side = &mut self.statistics;
        if let Some(loading) = side.loading.take_if(|loading| loading.is_finished()) {
            side.tables = loading.join().ok();
            self.follow_statistics();
        }
        let wall = SystemTime::now();
        let onions = self.onion_counts(totals);
        let side = &mut self.statistics;
        let statistics = &mut side.statistics;
        statistics.note_padding(totals.padding(), totals.link_cells.timers);
        let OnionCounts { cells, services } = onions;
        statistics.note_onions(cells, services, wall);
        let seen = OverloadSeen {
            reads_limited: totals.reads_limited,
            writes_limited: totals.writes_limited,
        };
        statistics.note_limits(seen, wall);
        if now < side.next {
            return;
        }
        side.next = now + INTERVAL;
        let mut directions = Directions::default();
        for report in self.controller.reports() {
            directions += report.directions;
        }
        statistics.note_directions(directions);
        let mut results = statistics.end_days(wall, &mut self.rng);
        let seen = statistics.take_clients_seen();
        let requests = self.directory.handle.as_ref();
        if let Some((kind, text)) = requests.and_then(|handle| handle.requests().end_day(wall)) {
            statistics.keep(kind, text.clone());
            results.push((kind, text));
        }
        if let Err(error) = write(&self.options.files.data_directory, &results) {
            tracing::warn!("Could not write statistics: {error}");
        }
        if let Some(seen) = seen {
            self.report(ControlEvent::Status("CLIENTS_SEEN", seen));
        }
        let side = &mut self.statistics;
        let statistics = &side.statistics;
        let digests = side.tables.as_ref().map(|tables| tables.digests.clone());
        let bandwidth = &self.options.bandwidth;
        let rates = (bandwidth.rate, bandwidth.burst);
        let lines = statistics.lines(&digests.unwrap_or_default(), rates, wall);
        if lines != side.sent {
            side.sent = lines.clone();
            self.directory(Command::Statistics(lines));
        }
    }

    /// The lines of the next extra-info document, without histories of bandwidth.
    pub(super) fn statistics_lines(&self) -> Vec<String> {
        self.statistics.sent.clone()
    }
}

/// Writes the results of days to their files.
fn write(
    data_directory: &Path,
    results: &[(StatsFile, String)],
) -> Result<(), Box<dyn std::error::Error>> {
    if results.is_empty() {
        return Ok(());
    }
    let folder = data_directory.join(FOLDER);
    check_private(&folder, true, false)?;
    for (kind, text) in results {
        tracing::info!("Writing {} to disk.", kind.name());
        file::replace(&folder.join(kind.name()), text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_counts::extrainfo::GeoipDigests;

    use super::*;
    use crate::relay::testing::options;

    const RELAY: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\n";

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_days_result_survives_in_c_tors_file() {
        let folder = tempfile::tempdir().unwrap();
        let text = "entry-stats-end 2023-11-14 22:13:20 (86400 s)\nentry-ips de=8\n";
        write(folder.path(), &[(StatsFile::Entry, text.into())]).unwrap();
        let path = folder.path().join("stats/entry-stats");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let now = at(1_700_000_000);
        assert_eq!(load(StatsFile::Entry, &path, now).as_deref(), Some(text));
        assert_eq!(
            load(StatsFile::Entry, &path, now + 2 * 24 * 60 * INTERVAL),
            None
        );
        assert_eq!(
            load(StatsFile::Exits, &path, now),
            None,
            "another file's lines"
        );
        assert_eq!(
            load(StatsFile::Exits, &folder.path().join("none"), now),
            None
        );
        assert_eq!(load(StatsFile::Exits, folder.path(), now), None, "a folder");
        std::fs::write(&path, [0xff; 10]).unwrap();
        assert_eq!(load(StatsFile::Entry, &path, now), None);
        std::fs::write(&path, vec![b'x'; StatsFile::MOST + 1]).unwrap();
        assert_eq!(load(StatsFile::Entry, &path, now), None);
        let torrc = format!("{RELAY}DataDirectory {}\n", folder.path().display());
        std::fs::write(&path, text).unwrap();
        let side = StatisticsSide::new(&options(&torrc), Instant::now(), now);
        let mut statistics = side.statistics;
        let on = Switches {
            published: true,
            entry: true,
            ..Switches::default()
        };
        use rand::SeedableRng as _;
        statistics.configure(on, now, &mut rand::rngs::StdRng::seed_from_u64(1));
        let lines = statistics.lines(&GeoipDigests::default(), (1, 2), now);
        assert_eq!(lines, [text]);
    }

    #[test]
    fn clients_are_counted_where_countries_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("geoip");
        std::fs::write(&path, "# x\n1,2,DE\n").unwrap();
        let wanted = options(&format!("{RELAY}EntryStatistics 1\n"));
        let on = |tables: Option<&Tables>| {
            let switches = switches(&wanted, tables);
            (switches.dir_requests, switches.entry)
        };
        assert_eq!(on(None), (false, false));
        let v4 = Tables::load([Some(path.clone()), None]);
        assert_eq!(on(Some(&v4)), (true, true));
        // sha1sum's.
        let digest = "2A721136D71DE0E5D19EC87B4FDE847477D0ECA9";
        assert_eq!(v4.digests.v4.as_deref(), Some(digest));
        assert_eq!(v4.digests.v6, None);
        std::fs::write(&path, "2001:db8::,2001:db8::1,FR\n").unwrap();
        let v6 = Tables::load([None, Some(path.clone())]);
        assert_eq!(on(Some(&v6)), (false, true));
        assert!(v6.digests.v4.is_none() && v6.digests.v6.is_some());
        std::fs::write(&path, "nonsense\n").unwrap();
        let none = Tables::load([Some(path), Some(folder.path().join("missing"))]);
        assert_eq!(on(Some(&none)), (false, false));
        assert_eq!(none.digests, GeoipDigests::default());
        let off = options("SocksPort 9050\n");
        assert_eq!(switches(&off, Some(&v4)), Switches::default());
    }
}
