use std::time::Duration;

use super::*;
use crate::traffic::stream::{Failure, FailureKind, Times};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A complete download of 5 MiB by a performance client, one that failed, and an upload that was cut.
fn records() -> Vec<Record> {
    let mut times = Times::new(5 << 20, 1000);
    times.opened = Some(ms(100));
    times.answered = Some(ms(300));
    times.up.add(1000, ms(100));
    for kib in 0..5120 {
        times
            .down
            .add(1024, Duration::from_micros(350_000 + kib * 1000));
    }
    times.receipt = Some(ms(5469));
    let complete = Record {
        client: "user7".to_owned(),
        model: "performance".to_owned(),
        stream: 0,
        isolation: 0,
        started: Duration::from_micros(60_000_001),
        times,
        ended: ms(5469),
        outcome: Outcome::Complete,
    };
    let mut times = Times::new(51_200, 1000);
    times.opened = Some(ms(50));
    times.up.add(1000, ms(51));
    let message = "not complete in 15 s, \"slow\"";
    let failed = Record {
        stream: 1,
        started: ms(120_000),
        times,
        ended: ms(15_000),
        outcome: Outcome::Failed(Failure::new(FailureKind::Timeout, message)),
        ..complete.clone()
    };
    let mut times = Times::new(0, 2_000_000);
    times.opened = Some(ms(10));
    times.up.add(1_000_000, ms(510));
    let cut = Record {
        client: "user8".to_owned(),
        model: "bulk".to_owned(),
        stream: 0,
        isolation: 3,
        started: ms(179_000),
        times,
        ended: ms(1010),
        outcome: Outcome::Unfinished,
    };
    vec![complete, failed, cut]
}

#[test]
fn a_record_has_the_times_that_a_user_sees() {
    let [complete, failed, cut] = records().try_into().unwrap();
    assert_eq!(complete.time_to_first_byte(), Some(ms(350)));
    assert_eq!(complete.time_to_last_byte(), Some(ms(5469)));
    assert_eq!(complete.round_trip(), Some(ms(200)));
    let goodput = complete.goodput_mbit().unwrap();
    assert!((goodput - 5_243_880.0 * 8e-6 / 5.369).abs() < 1e-9);
    assert_eq!(failed.time_to_last_byte(), None);
    assert_eq!(cut.goodput_mbit(), Some(8.0));
    assert_eq!(complete.times.down.longest_gap, ms(1));
}

#[test]
fn json_lines_are_read_back() {
    let text = json_lines(&records()).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert_eq!(from_json_lines(&text).unwrap(), records());
    assert!(from_json_lines("{}").is_err());
}

#[test]
fn a_table_has_a_line_for_each_record() {
    assert_eq!(csv(&records()), include_str!("golden/records.csv"));
}

/// `tgen.json` was read by tornettools' `parse_tgen.py` (docs/traffic.md describes how to repeat that).
#[test]
fn the_analysis_is_the_one_that_tornettools_read() {
    let text = tgen_analysis(&records());
    assert_eq!(text, include_str!("golden/tgen.json"));
}

#[test]
fn a_summary_counts_and_averages() {
    let summary = Summary::of(&records());
    assert_eq!(
        (summary.streams, summary.complete, summary.failed),
        (3, 1, 1)
    );
    assert_eq!(summary.down_bytes, 5 << 20);
    assert_eq!(summary.up_bytes, 1_002_000);
    let ttlb = summary.ttlb_ms.unwrap();
    assert_eq!((ttlb.count, ttlb.p50, ttlb.mean), (1, 5469.0, 5469.0));
    assert_eq!(Summary::of(&[]).ttfb_ms, None);
}
