//! Connections over a small network.

use std::time::Duration;

use crate::links::{LinkSettings, Loss, Moment, Rate, Topology};

use crate::hosts::tcp::Algorithm;
use crate::hosts::{ConnId, End, Happening, HostId, Net, PathSettings};

fn line(mbit: u64) -> LinkSettings {
    LinkSettings {
        rate: Rate::from_bits(mbit * 1_000_000),
        ..LinkSettings::default()
    }
}

/// Delay in milliseconds, loss in millionths.
fn path(delay_ms: u64, loss: u32) -> PathSettings {
    PathSettings {
        delay: Duration::from_millis(delay_ms),
        loss: Loss::from_per_billion(loss * 1_000).expect("a part"),
    }
}

fn net(hosts: usize, mbit: u64, delay_ms: u64, loss: u32, seed: u64) -> (Net, Vec<HostId>) {
    let mut net = Net::new(vec![vec![path(delay_ms, loss)]], Algorithm::Cubic, seed);
    let line = line(mbit);
    let hosts = (0..hosts).map(|_| net.host(0, &line, &line)).collect();
    (net, hosts)
}

/// Nothing lasts longer.
const LATE: Moment = Moment::from_nanos(600_000_000_000);

/// A download: the opener asks with a few bytes, the accepter sends the given number. Returns the
/// time of the last byte, and a hash of all happenings.
fn downloads(
    net: &mut Net,
    pairs: &[(HostId, HostId)],
    bytes: usize,
) -> (Vec<Option<Duration>>, u64) {
    let mut conns: Vec<(ConnId, usize, usize)> = Vec::new();
    for (from, to) in pairs {
        conns.push((net.connect(*from, *to, 80), 0, 0));
    }
    let chunk = vec![7u8; 16_384];
    let mut ends = vec![None; pairs.len()];
    let mut hash = 0u64;
    while let Some(happening) = net.next(LATE) {
        hash = hash.rotate_left(5) ^ net.now().nanos();
        match happening {
            Happening::Connected(conn) => assert_eq!(net.write(conn, End::Opener, b"GET"), 3),
            Happening::Readable(conn, end) => {
                let at = conns.iter().position(|one| one.0 == conn).expect("known");
                let mut count = 0;
                net.read(conn, end, usize::MAX, |bytes| count += bytes.len());
                if end == End::Accepter {
                    fill(net, &mut conns[at], &chunk, bytes);
                    continue;
                }
                conns[at].2 += count;
                if conns[at].2 == bytes && ends[at].is_none() {
                    ends[at] = Some(net.now().since(Moment::START));
                    net.close(conn, End::Opener);
                    net.close(conn, End::Accepter);
                }
            }
            Happening::Writable(conn, _) => {
                let at = conns.iter().position(|one| one.0 == conn).expect("known");
                fill(net, &mut conns[at], &chunk, bytes);
            }
            Happening::Accepted(..) => {}
            other => panic!("{other:?}"),
        }
        if ends.iter().all(Option::is_some) {
            break;
        }
    }
    (ends, hash)
}

fn fill(net: &mut Net, conn: &mut (ConnId, usize, usize), chunk: &[u8], bytes: usize) {
    while conn.1 < bytes {
        let part = &chunk[..chunk.len().min(bytes - conn.1)];
        let count = net.write(conn.0, End::Accepter, part);
        conn.1 += count;
        if count < part.len() {
            break;
        }
    }
}

#[test]
fn a_download_takes_its_round_trips_and_its_bytes() {
    let (mut net, hosts) = net(2, 10, 50, 0, 1);
    let (ends, _) = downloads(&mut net, &[(hosts[0], hosts[1])], 5_000_000);
    let took = ends[0].expect("it ended").as_secs_f64();
    // 4.14 s on the line with headers, two round trips before it, and a part of slow start.
    assert!(took > 4.3 && took < 5.0, "{took}");
}

#[test]
fn streams_share_a_line_fairly() {
    let (mut net, hosts) = net(5, 20, 20, 0, 2);
    let pairs: Vec<_> = hosts[1..].iter().map(|to| (hosts[0], *to)).collect();
    let (ends, _) = downloads(&mut net, &pairs, 2_500_000);
    let took: Vec<f64> = ends
        .iter()
        .map(|end| end.expect("it ended").as_secs_f64())
        .collect();
    let last = took.iter().copied().fold(0.0, f64::max);
    assert!(last > 4.1 && last < 5.0, "{took:?}");
    assert!(took.iter().all(|one| *one > last / 2.0), "{took:?}");
}

#[test]
fn one_seed_is_one_course_of_events() {
    let run = |seed| {
        let (mut net, hosts) = net(4, 20, 20, 10000, seed);
        let pairs = [
            (hosts[0], hosts[1]),
            (hosts[2], hosts[1]),
            (hosts[3], hosts[0]),
        ];
        downloads(&mut net, &pairs, 500_000)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

/// Runs the network until nothing happens any more, at most until [`LATE`], and returns its events.
fn happenings(net: &mut Net) -> Vec<Happening> {
    std::iter::from_fn(|| net.next(LATE)).collect()
}

#[test]
fn a_host_that_loses_everything_is_given_up() {
    let (mut net, hosts) = net(2, 10, 50, 999_999, 3);
    let conn = net.connect(hosts[0], hosts[1], 80);
    assert_eq!(happenings(&mut net), [Happening::Broken(conn, End::Opener)]);
    assert_eq!(net.socket(conn, End::Opener), None);
}

#[test]
fn both_ends_close_and_the_number_is_free_again() {
    let (mut net, hosts) = net(2, 10, 50, 200_000, 4);
    let first = net.connect(hosts[0], hosts[1], 80);
    net.write(first, End::Opener, &[1; 50_000]);
    net.close(first, End::Opener);
    let mut got = 0;
    while let Some(happening) = net.next(LATE) {
        match happening {
            Happening::Readable(conn, End::Accepter) => {
                if net.read(conn, End::Accepter, usize::MAX, |bytes| got += bytes.len()) {
                    net.close(conn, End::Accepter);
                }
            }
            Happening::Accepted(conn, host, port) => {
                assert_eq!((conn, host, port), (first, hosts[1], 80));
            }
            Happening::Connected(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        got, 50_000,
        "what was written before the end arrives, whatever is lost"
    );
    assert_eq!(net.socket(first, End::Opener), None, "it is gone");
    let second = net.connect(hosts[0], hosts[1], 80);
    assert_ne!(first, second);
    assert_eq!(
        net.write(first, End::Opener, b"late"),
        0,
        "the old name is nobody's"
    );
}

#[test]
fn a_reset_reaches_the_other_end() {
    let (mut net, hosts) = net(2, 10, 50, 0, 5);
    let conn = net.connect(hosts[0], hosts[1], 80);
    while !matches!(net.next(LATE), Some(Happening::Connected(_)) | None) {}
    net.reset(conn, End::Opener);
    assert_eq!(
        happenings(&mut net),
        [Happening::Broken(conn, End::Accepter)]
    );
}

#[test]
fn who_does_not_read_holds_the_sender_back() {
    // With loss, the news that the window is open again may be lost, too.
    for loss in [0, 200_000] {
        let (mut net, hosts) = net(2, 100, 5, loss, 6);
        let conn = net.connect(hosts[0], hosts[1], 80);
        let chunk = [3u8; 65_536];
        let mut written = net.write(conn, End::Opener, &chunk);
        // A sender whose receiver takes nothing asks again and again.
        while let Some(happening) = net.next(LATE) {
            if let Happening::Writable(..) = happening {
                written += net.write(conn, End::Opener, &chunk);
            }
        }
        // A window that nobody empties, and a send buffer.
        assert!(written < 1_000_000, "{written}");
        let mut got = 0;
        net.read(conn, End::Accepter, usize::MAX, |bytes| got += bytes.len());
        let later = LATE.plus(LATE.nanos());
        while let Some(happening) = net.next(later) {
            if let Happening::Readable(..) = happening {
                net.read(conn, End::Accepter, usize::MAX, |bytes| got += bytes.len());
            }
        }
        assert_eq!(got, written, "the window opens again");
    }
}

#[test]
fn timers_go_off_in_order() {
    let (mut net, _) = net(1, 10, 50, 0, 7);
    for (at, tag) in [(30, 3), (10, 1), (20, 2), (20, 4)] {
        net.timer(Moment::from_nanos(at), tag);
    }
    let tags: Vec<Happening> = happenings(&mut net);
    assert_eq!(tags, [1, 2, 4, 3].map(Happening::Timer));
}

/// Two hosts behind a switch, and one behind a slow link that is behind both.
const TOPOLOGY: &str = r#"
name = "behind"
hosts = ["near", "middle", "far"]
switches = ["hub"]
[[link]]
ends = ["near", "hub"]
rate = "100 Mbit/s"
delay = "10 ms"
[[link]]
ends = ["hub", "middle"]
rate = "100 Mbit/s"
delay = "10 ms"
[[link]]
ends = ["middle", "far"]
rate = "10 Mbit/s"
delay = "30 ms"
"#;

#[test]
fn packets_cross_the_links_of_a_topology_one_after_the_other() {
    let topology = Topology::parse("behind.toml", TOPOLOGY).expect("well-formed");
    let run = |seed, pairs: &[(u32, u32)]| {
        let mut net = Net::of_topology(&topology, Algorithm::Cubic, seed);
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(from, to)| (HostId(*from), HostId(*to)))
            .collect();
        let (ends, hash) = downloads(&mut net, &pairs, 5_000_000);
        let ends = ends
            .into_iter()
            .map(|end| end.expect("it ended").as_secs_f64());
        (ends.collect::<Vec<f64>>(), hash)
    };
    // Over one link each: 0.42 s on the line, and its slow start.
    let (near, _) = run(1, &[(0, 1)]);
    assert!(near[0] > 0.45 && near[0] < 1.0, "{near:?}");
    // All clients, one of which is slow: as on a line of 10 Mbit/s with 50 ms.
    let (far, hash) = run(1, &[(0, 2)]);
    assert!(far[0] > 4.3 && far[0] < 5.0, "{far:?}");
    assert_eq!(run(1, &[(0, 2)]), (far, hash));
    // The slow link is the same for both, and a queue before it is, too.
    let (both, _) = run(1, &[(0, 2), (1, 2)]);
    assert!(both.iter().all(|end| *end > 6.0 && *end < 10.5), "{both:?}");
}
