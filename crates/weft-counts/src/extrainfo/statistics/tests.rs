//! Tests of the counters, their times, and the order of the published lines.

use std::time::Duration;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::extrainfo::exits::PortUse;
use crate::extrainfo::moment::PERIOD;
use crate::extrainfo::moment::parse;

const HOUR: Duration = Duration::from_secs(3600);

fn all() -> Switches {
    Switches {
        published: true,
        dir_requests: true,
        entry: true,
        cells: true,
        exits: true,
        onions: true,
        directions: true,
        padding: true,
        overload: true,
        bridge: true,
    }
}

/// At ten in the morning.
fn start() -> SystemTime {
    parse("2026-01-01 10:00:00").unwrap()
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

/// Something of everything.
fn busy(switches: Switches) -> Statistics {
    let mut rng = rng();
    let mut statistics = Statistics::new(start());
    statistics.configure(switches, start(), &mut rng);
    let dirreq = "dirreq-stats-end 2026-01-02 10:00:00 (86400 s)\ndirreq-v3-ips de=8\n";
    statistics.keep(StatsFile::DirRequests, dirreq.into());
    statistics.note_client([192, 0, 2, 1].into(), |_| *b"de");
    statistics.note_bridge_user([192, 0, 2, 1].into(), Some("obfs4"), |_| *b"de");
    let second = Duration::from_secs(1);
    let part = QueuePart {
        since: start(),
        cells: 1,
        waited: second,
        over: false,
    };
    statistics.note_queue(CircuitName(0, 0, 0), part, start());
    let mut traffic = PortTraffic::default();
    let used = PortUse {
        written: 1,
        read: 2,
        streams: 3,
    };
    traffic.add(80, used);
    statistics.note_exits(&traffic);
    let mut directions = Directions::default();
    directions.add(1_000_000, 1, true);
    statistics.note_directions(directions);
    let padding = PaddingTotals {
        read_total: 1,
        write_total: 1,
        ..PaddingTotals::default()
    };
    statistics.note_padding(padding, 3);
    statistics.note_files_exhausted(start());
    let seen = OverloadSeen {
        reads_limited: 1,
        writes_limited: 0,
    };
    statistics.note_limits(seen, start() + 20 * HOUR);
    statistics
}

fn digests() -> GeoipDigests {
    GeoipDigests {
        v4: Some("AA".into()),
        v6: Some("BB".into()),
    }
}

fn keywords(lines: &[String]) -> Vec<&str> {
    lines
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| line.split(' ').next().unwrap())
        .collect()
}

#[test]
fn everything_is_published_in_c_tors_order() {
    let mut statistics = busy(all());
    let now = start() + PERIOD;
    let early: Vec<StatsFile> = statistics
        .end_days(now, &mut rng())
        .iter()
        .map(|(file, _)| *file)
        .collect();
    use StatsFile::*;
    assert_eq!(early, [Entry, Cells, Exits, Connections, Bridge]);
    // A day of onion services begins at noon.
    let noon = start() + PERIOD + 2 * HOUR;
    assert_eq!(statistics.end_days(noon, &mut rng()).len(), 1);
    let lines = statistics.lines(&digests(), (1000, 2000), noon);
    assert_eq!(
        keywords(&lines),
        [
            "geoip-db-digest",
            "geoip6-db-digest",
            "dirreq-stats-end",
            "dirreq-v3-ips",
            "hidserv-v3-stats-end",
            "hidserv-rend-v3-relayed-cells",
            "hidserv-dir-v3-onions-seen",
            "entry-stats-end",
            "entry-ips",
            "cell-stats-end",
            "cell-processed-cells",
            "cell-queued-cells",
            "cell-time-in-queue",
            "cell-circuits-per-decile",
            "exit-stats-end",
            "exit-kibibytes-written",
            "exit-kibibytes-read",
            "exit-streams-opened",
            "conn-bi-direct",
            "ipv6-conn-bi-direct",
            "padding-counts",
            "overload-ratelimits",
            "overload-fd-exhausted",
            "bridge-stats-end",
            "bridge-ips",
            "bridge-ip-versions",
            "bridge-ip-transports",
        ]
    );
    assert!(lines.iter().all(|text| text.ends_with('\n')));
    let all = lines.concat();
    assert!(all.contains("entry-ips de=8\n"), "{all}");
    assert!(all.contains("conn-bi-direct 2026-01-02 10:00:00 (86400 s) 0,1,0,0\n"));
    assert!(all.contains("overload-ratelimits 1 2026-01-02 06:00:00 1000 2000 1 0\n"));
    assert!(all.contains(" max-chanpad-timers=3\n"), "{all}");
    // Each file can be read again.
    for file in StatsFile::ALL {
        let text = statistics.files[file as usize].clone().unwrap();
        assert_eq!(file.recent(&text, noon), Ok(true), "{text}");
    }
}

#[test]
fn each_switch_switches_its_own_lines() {
    type Change = fn(&mut Switches);
    let changes: [(Change, &str); 9] = [
        (|all| all.dir_requests = false, "dirreq-"),
        (|all| all.entry = false, "entry-"),
        (|all| all.cells = false, "cell-"),
        (|all| all.exits = false, "exit-"),
        (|all| all.onions = false, "hidserv-"),
        (|all| all.directions = false, "conn-bi-direct"),
        (|all| all.padding = false, "padding-"),
        (|all| all.overload = false, "overload-"),
        (|all| all.bridge = false, "bridge-"),
    ];
    let published = |switches| {
        let mut statistics = busy(switches);
        statistics.end_days(start() + PERIOD, &mut rng());
        let noon = start() + PERIOD + 2 * HOUR;
        statistics.end_days(noon, &mut rng());
        statistics.lines(&digests(), (1, 2), noon).concat()
    };
    let whole = published(all());
    for (change, prefix) in changes {
        let mut switches = all();
        change(&mut switches);
        let text = published(switches);
        assert!(
            whole.lines().any(|line| line.starts_with(prefix)),
            "{prefix}"
        );
        assert!(
            !text.lines().any(|line| line.starts_with(prefix)),
            "{prefix}"
        );
        assert!(text.lines().count() > 12);
    }
    let none = Switches {
        published: false,
        ..all()
    };
    assert_eq!(published(none), "");
}

#[test]
fn controllers_learn_of_a_bridge_s_users_now_and_at_the_end_of_a_day() {
    let mut statistics = busy(all());
    statistics.set_countries_known(true);
    let now = "CountrySummary=de=8 IPVersions=v4=8,v6=0";
    assert_eq!(
        statistics.clients_seen(),
        Some(format!("TimeStarted=\"2026-01-01 10:00:00\" {now}"))
    );
    assert_eq!(statistics.take_clients_seen(), None);
    assert_eq!(statistics.bridge_users(&mut rng()), Some(1));
    statistics.end_days(start() + PERIOD, &mut rng());
    assert_eq!(
        statistics.take_clients_seen(),
        Some(format!("TimeStarted=\"2026-01-02 10:00:00\" {now}"))
    );
    assert_eq!(statistics.take_clients_seen(), None);
    let mut none = Statistics::new(start());
    assert_eq!(none.clients_seen(), None);
    assert_eq!(none.bridge_users(&mut rng()), None);
}

#[test]
fn what_is_switched_off_is_forgotten() {
    let mut statistics = busy(all());
    let without = Switches {
        entry: false,
        ..all()
    };
    statistics.configure(without, start() + HOUR, &mut rng());
    statistics.configure(all(), start() + 2 * HOUR, &mut rng());
    assert!(
        !statistics
            .end_days(start() + PERIOD, &mut rng())
            .iter()
            .any(|(file, _)| *file == StatsFile::Entry),
        "the day began again"
    );
    let results = statistics.end_days(start() + PERIOD + 2 * HOUR, &mut rng());
    let entry = results.iter().find(|(file, _)| *file == StatsFile::Entry);
    let end = "entry-stats-end 2026-01-02 12:00:00 (86400 s)\nentry-ips \n";
    assert_eq!(entry.unwrap().1, end);
}

#[test]
fn a_reload_without_a_change_goes_on_counting() {
    let mut statistics = busy(all());
    statistics.configure(all(), start() + HOUR, &mut rng());
    let results = statistics.end_days(start() + PERIOD, &mut rng());
    assert!(
        results
            .iter()
            .any(|(_, text)| text.contains("entry-ips de=8"))
    );
}

#[test]
fn onion_services_count_from_noon_to_noon() {
    let counted = |at: SystemTime| {
        let mut statistics = Statistics::new(start());
        statistics.configure(all(), start(), &mut rng());
        assert_eq!(statistics.onions_from(), Some(start() + 2 * HOUR));
        statistics.note_onions(1000, 0, start());
        statistics.note_onions(1_000_000, 100, at);
        let results = statistics.end_days(start() + PERIOD + 2 * HOUR, &mut rng());
        let onions = results.iter().find(|(file, _)| *file == StatsFile::Onions);
        assert_eq!(statistics.onions_from(), Some(start() + PERIOD + 2 * HOUR));
        let numbers: Vec<i64> = onions
            .unwrap()
            .1
            .lines()
            .skip(1)
            .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        (numbers[0], numbers[1])
    };
    let (cells, services) = counted(start() + 3 * HOUR);
    let (no_cells, no_services) = counted(start() + HOUR);
    // With the same seed the noise is the same.
    assert_eq!(cells - no_cells, 999_424, "999,000 rounded up to 1,024s");
    assert_eq!(
        services - no_services,
        104,
        "a hundred rounded up to eights"
    );
}

#[test]
fn totals_count_from_the_beginning_of_each_day() {
    let mut statistics = Statistics::new(start());
    statistics.configure(all(), start(), &mut rng());
    let padding = |cells| PaddingTotals {
        read_total: cells,
        write_total: cells,
        ..PaddingTotals::default()
    };
    statistics.note_padding(padding(25_000), 1);
    statistics.end_days(start() + PERIOD, &mut rng());
    statistics.note_padding(padding(26_000), 0);
    statistics.end_days(start() + 2 * PERIOD, &mut rng());
    let lines = statistics.lines(&digests(), (1, 2), start() + 2 * PERIOD);
    let text = lines.concat();
    assert!(text.contains(" read-total=10000 "), "{text}");
    assert!(text.contains(" max-chanpad-timers=0\n"), "{text}");
}

#[test]
fn a_file_that_is_old_or_malformed_is_not_published() {
    let mut statistics = Statistics::new(start());
    statistics.configure(all(), start(), &mut rng());
    let entry = "entry-stats-end 2025-12-31 10:00:00 (86400 s)\nentry-ips \n";
    let published = |statistics: &Statistics, now| {
        let lines = statistics.lines(&GeoipDigests::default(), (1, 2), now);
        lines.concat()
    };
    statistics.keep(StatsFile::Entry, entry.into());
    assert_eq!(published(&statistics, start()), entry);
    assert_eq!(published(&statistics, start() + 2 * HOUR), "");
    statistics.keep(StatsFile::Entry, format!("{entry}router-signature\n"));
    assert_eq!(published(&statistics, start()), "");
}
