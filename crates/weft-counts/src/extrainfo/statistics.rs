//! All that a relay counts for its extra-info document, and the lines of it.

use std::net::IpAddr;
use std::time::SystemTime;

use rand::Rng;

use crate::extrainfo::bridge::BridgeUsers;
use crate::extrainfo::cells::{Cells, CircuitName, QueuePart};
use crate::extrainfo::clients::{Clients, Country};
use crate::extrainfo::directions::Directions;
use crate::extrainfo::exits::PortTraffic;
use crate::extrainfo::file::StatsFile;
use crate::extrainfo::moment::{self, Day, next_noon};
use crate::extrainfo::onions::Onions;
use crate::extrainfo::overload::Overload;
use crate::extrainfo::padding::PaddingTotals;

/// Statistics that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// ExtraInfoStatistics: they are published at all.
    pub published: bool,
    /// DirReqStatistics, where the countries of addresses are known.
    pub dir_requests: bool,
    /// EntryStatistics, where the countries of addresses are known.
    pub entry: bool,
    /// CellStatistics.
    pub cells: bool,
    /// ExitPortStatistics.
    pub exits: bool,
    /// HiddenServiceStatistics.
    pub onions: bool,
    /// ConnDirectionStatistics.
    pub directions: bool,
    /// PaddingStatistics.
    pub padding: bool,
    /// OverloadStatistics.
    pub overload: bool,
    /// BridgeRecordUsageByCountry, of a bridge.
    pub bridge: bool,
}

impl Switches {
    /// Returns true if the statistics in a file are kept and published.
    fn has(&self, file: StatsFile) -> bool {
        match file {
            StatsFile::DirRequests => self.dir_requests,
            StatsFile::Onions => self.onions,
            StatsFile::Entry => self.entry,
            StatsFile::Cells => self.cells,
            StatsFile::Exits => self.exits,
            StatsFile::Connections => self.directions,
            StatsFile::Bridge => self.bridge,
        }
    }
}

/// SHA-1 of the tables of countries in use, in upper-case hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeoipDigests {
    /// GeoIPFile.
    pub v4: Option<String>,
    /// GeoIPv6File.
    pub v6: Option<String>,
}

/// Totals since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverloadSeen {
    /// Times that reading waited for the bandwidth that all connections share.
    pub reads_limited: u64,
    /// Times that writing waited for the bandwidth that all connections share.
    pub writes_limited: u64,
}

/// Statistics of a relay for its extra-info document.
#[derive(Clone, Debug)]
pub struct Statistics {
    switches: Switches,
    /// The results of the last days.
    files: [Option<String>; StatsFile::ALL.len()],
    entry: Option<Day<Clients>>,
    cells: Option<Day<Cells>>,
    exits: Option<Day<PortTraffic>>,
    onions: Option<Day<Onions>>,
    directions: Option<Day<Directions>>,
    bridge: Option<Day<BridgeUsers>>,
    /// CLIENTS_SEEN of a day that has ended.
    ended: Option<String>,
    /// True if there is a table of countries.
    countries_known: bool,
    /// The total of cells of onion services, as last noted.
    onion_cells: u64,
    /// The total of connections, as last noted.
    directions_seen: Directions,
    /// The totals at the beginning of the day.
    padding: Day<PaddingTotals>,
    padding_seen: PaddingTotals,
    padding_timers: u64,
    padding_line: Option<String>,
    overload: Overload,
}

impl Statistics {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new(now: SystemTime) -> Self {
        Self {
            switches: Switches::default(),
            files: Default::default(),
            entry: None,
            cells: None,
            exits: None,
            onions: None,
            directions: None,
            bridge: None,
            ended: None,
            countries_known: false,
            onion_cells: 0,
            directions_seen: Directions::default(),
            padding: Day::new(now, PaddingTotals::default()),
            padding_seen: PaddingTotals::default(),
            padding_timers: 0,
            padding_line: None,
            overload: Overload::default(),
        }
    }

    /// Begins what is switched on, and forgets what is not.
    pub fn configure(&mut self, switches: Switches, now: SystemTime, rng: &mut impl Rng) {
        self.switches = switches;
        follow(&mut self.entry, switches.entry, || {
            Day::new(now, Clients::new(rng))
        });
        follow(&mut self.cells, switches.cells, || {
            Day::new(now, Cells::default())
        });
        follow(&mut self.exits, switches.exits, || {
            Day::new(now, PortTraffic::default())
        });
        follow(&mut self.onions, switches.onions, || {
            Day::new(next_noon(now), Onions::default())
        });
        follow(&mut self.directions, switches.directions, || {
            Day::new(now, Directions::default())
        });
        follow(&mut self.bridge, switches.bridge, || {
            Day::new(now, BridgeUsers::new(rng))
        });
    }

    /// Sets whether there is a table of countries: without one, users of a bridge have none.
    pub fn set_countries_known(&mut self, known: bool) {
        self.countries_known = known;
    }

    /// Statistics that are kept.
    #[must_use]
    pub fn switches(&self) -> Switches {
        self.switches
    }

    /// A client's connection was accepted. `country` is asked only if that is counted.
    pub fn note_client(&mut self, addr: IpAddr, country: impl FnOnce(IpAddr) -> Country) {
        if let Some(day) = &mut self.entry {
            day.counts.note(addr, country);
        }
    }

    /// A client of a bridge has opened a link, by a transport or not.
    pub fn note_bridge_user(
        &mut self,
        addr: IpAddr,
        transport: Option<&str>,
        country: impl FnOnce(IpAddr) -> Country,
    ) {
        if let Some(day) = &mut self.bridge {
            day.counts.note(addr, transport, country);
        }
    }

    /// CLIENTS_SEEN, if [`end_days`](Self::end_days) has ended a day of a bridge.
    pub fn take_clients_seen(&mut self) -> Option<String> {
        self.ended.take()
    }

    /// Different users of a bridge since the last call.
    pub fn bridge_users(&mut self, rng: &mut impl Rng) -> Option<u64> {
        self.bridge.as_mut().map(|day| day.counts.beat(rng))
    }

    /// The users of a bridge today, as controllers get them; `None`: this node is not a bridge
    /// ([`crate::extrainfo::nobody_seen`]).
    #[must_use]
    pub fn clients_seen(&self) -> Option<String> {
        let day = self.bridge.as_ref()?;
        let since = moment::iso(day.since());
        Some(day.counts.for_controllers(&since, self.countries_known))
    }

    /// Cells left a queue of a circuit, or the circuit has ended.
    pub fn note_queue(&mut self, circuit: CircuitName, part: QueuePart, now: SystemTime) {
        if let Some(day) = &mut self.cells {
            day.counts.note(circuit, part, now);
        }
    }

    /// Adds the exit traffic since the last call.
    pub fn note_exits(&mut self, traffic: &PortTraffic) {
        if let Some(day) = &mut self.exits {
            day.counts.add_all(traffic);
        }
    }

    /// Beginning of the count of different onion services: from noon to noon, so it may be later
    /// than now. `None`: not at all.
    #[must_use]
    pub fn onions_from(&self) -> Option<SystemTime> {
        self.onions.as_ref().map(Day::since)
    }

    /// Notes the relay's use by onion services: the total of cells that it relayed as a rendezvous
    /// point since the start, and the different services whose descriptors were stored since
    /// [`onions_from`](Self::onions_from).
    pub fn note_onions(&mut self, cells: u64, services: u64, now: SystemTime) {
        let more = cells.saturating_sub(std::mem::replace(&mut self.onion_cells, cells));
        if let Some(day) = self.onions.as_mut().filter(|day| now >= day.since()) {
            day.counts.cells = day.counts.cells.saturating_add(more);
            day.counts.services = services;
        }
    }

    /// The total of connections by the way that they were used.
    pub fn note_directions(&mut self, total: Directions) {
        let more = total - std::mem::replace(&mut self.directions_seen, total);
        if let Some(day) = &mut self.directions {
            day.counts += more;
        }
    }

    /// Totals of padding, and the timers for it that run now.
    pub fn note_padding(&mut self, totals: PaddingTotals, timers: u64) {
        self.padding_seen = totals;
        self.padding_timers = self.padding_timers.max(timers);
    }

    /// Totals of waits for bandwidth.
    pub fn note_limits(&mut self, seen: OverloadSeen, now: SystemTime) {
        self.overload
            .note_limits(seen.reads_limited, seen.writes_limited, now);
    }

    /// There was no file descriptor left.
    pub fn note_files_exhausted(&mut self, now: SystemTime) {
        self.overload.note_files(now);
    }

    /// Ends the days that are over; the results, to be written to files.
    pub fn end_days(&mut self, now: SystemTime, rng: &mut impl Rng) -> Vec<(StatsFile, String)> {
        let mut results = Vec::new();
        if let Some(day) = &mut self.onions
            && let Some((counts, end)) = day.end(now, Onions::default())
        {
            results.push((StatsFile::Onions, counts.lines(&end, rng)));
        }
        if let Some(day) = &mut self.entry
            && let Some((counts, end)) = day.end(now, Clients::new(rng))
        {
            let text = format!("entry-stats-end {end}\nentry-ips {}\n", counts.list());
            results.push((StatsFile::Entry, text));
        }
        if let Some(day) = &mut self.cells {
            day.counts.settle(now, rng);
            if let Some((counts, end)) = day.end(now, Cells::default()) {
                results.push((StatsFile::Cells, counts.lines(&end, now, rng)));
            }
        }
        if let Some(day) = &mut self.exits
            && let Some((counts, end)) = day.end(now, PortTraffic::default())
        {
            results.push((StatsFile::Exits, counts.lines(&end)));
        }
        if let Some(day) = &mut self.directions
            && let Some((counts, end)) = day.end(now, Directions::default())
        {
            results.push((StatsFile::Connections, counts.lines(&end)));
        }
        if let Some(day) = &mut self.bridge
            && let Some((counts, end)) = day.end(now, BridgeUsers::new(rng))
        {
            // C tor has the next day's start in it.
            let since = moment::iso(now);
            self.ended = Some(counts.for_controllers(&since, self.countries_known));
            let text = counts.lines(&end, self.countries_known);
            results.push((StatsFile::Bridge, text));
        }
        if let Some((before, end)) = self.padding.end(now, self.padding_seen) {
            let timers = std::mem::take(&mut self.padding_timers);
            let counts = self.padding_seen - before;
            self.padding_line = counts.line(&end, timers).filter(|_| self.switches.padding);
        }
        for (file, text) in &results {
            self.keep(*file, text.clone());
        }
        results
    }

    /// Keeps a day's result, from a file or of the directory's [`DirRequests`](crate::extrainfo::DirRequests).
    pub fn keep(&mut self, file: StatsFile, text: String) {
        if let Some(kept) = self.files.get_mut(file as usize) {
            *kept = Some(text);
        }
    }

    /// Statistics to publish after the histories of bandwidth, in whole lines. `rates` are
    /// BandwidthRate and BandwidthBurst.
    #[must_use]
    pub fn lines(&self, digests: &GeoipDigests, rates: (u64, u64), now: SystemTime) -> Vec<String> {
        if !self.switches.published {
            return Vec::new();
        }
        let digest = |keyword, digest: &Option<String>| {
            digest
                .as_ref()
                .map(|digest| format!("{keyword} {digest}\n"))
        };
        let files = StatsFile::ALL.iter().zip(&self.files);
        let (bridge, files): (Vec<_>, Vec<_>) =
            files.partition(|(file, _)| **file == StatsFile::Bridge);
        let recent = |(file, text): (&StatsFile, &Option<String>)| {
            text.clone().filter(|text| {
                self.switches.has(*file) && file.recent(text, now).is_ok_and(|recent| recent)
            })
        };
        let padding = self.padding_line.clone();
        let overload = self.overload.lines(rates, now);
        [
            digest("geoip-db-digest", &digests.v4),
            digest("geoip6-db-digest", &digests.v6),
        ]
        .into_iter()
        .flatten()
        .chain(files.into_iter().filter_map(recent))
        .chain(padding.filter(|_| self.switches.padding))
        .chain(Some(overload).filter(|text| self.switches.overload && !text.is_empty()))
        .chain(bridge.into_iter().filter_map(recent))
        .collect()
    }
}

/// Begins what is wanted and not there; ends what is not wanted.
fn follow<T>(day: &mut Option<T>, wanted: bool, begin: impl FnOnce() -> T) {
    match (&day, wanted) {
        (None, true) => *day = Some(begin()),
        (Some(_), false) => *day = None,
        _ => {}
    }
}

#[cfg(test)]
mod tests;
