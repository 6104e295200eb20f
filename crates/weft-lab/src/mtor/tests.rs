use std::collections::BTreeMap;
use std::time::Duration;

use weft_model::traffic::records::Outcome;
use weft_model::traffic::{Failure, FailureKind, Record, Times};
use weft_sim::network::Flags;
use weft_sim::{read, synth};
use weft_virtual::results::RelayResults;
use weft_virtual::{Results as Measured, Scenario};

use super::aggregate::{OfStreams, Samples};
use super::arms::{self, MTOR5, STOR};
use super::contention;
use super::controlled;
use super::downloads::{Downloads, Size, model};
use super::measure::Sample;
use super::part::{BULK, Common, Kind, Load, WEB, source};
use super::relays::{Bandwidth, Relays, SLOW_BELOW, Wanted};
use super::results::{About, OfPart, Results};
use crate::comparison::{Arm, MEAN, STDDEV};
use crate::run::Job;
use crate::run::testbed::Testbed;

const SECOND: Duration = Duration::from_secs(1);

fn relays(count: u32) -> Relays {
    let network = synth::network(2_000, 1).expect("a network");
    let wanted = Wanted {
        relays: count,
        slow: 0.4,
        bandwidth: Bandwidth::OfFast(800.0),
    };
    Relays::sampled(&network, wanted).expect("relays")
}

fn common() -> Common {
    Common {
        testbed: Testbed::Virtual,
        graph: None,
        congestion_control: true,
        repetitions: 2,
        warm_up: 60 * SECOND,
        counted: 40 * SECOND,
    }
}

fn all_arms(planned: &[&str]) -> Vec<Arm> {
    arms::chosen(&[], planned, true).expect("arms")
}

#[test]
fn slow_relays_are_middles_and_fast_ones_have_the_mean_that_is_wanted() {
    let relays = relays(50);
    assert_eq!((relays.fast, relays.slow), (30, 20));
    let network = read::parse(relays.text.as_bytes(), "relays").expect("a consensus");
    let (slow, fast): (Vec<_>, Vec<_>) = network
        .relays
        .iter()
        .partition(|relay| relay.bandwidth < SLOW_BELOW);
    assert_eq!((fast.len(), slow.len()), (30, 20));
    assert!(
        slow.iter()
            .all(|relay| !relay.flags.has(Flags::GUARD) && !relay.flags.has(Flags::EXIT))
    );
    assert!(
        fast.iter()
            .filter(|relay| relay.flags.has(Flags::GUARD))
            .count()
            >= 5
    );
    assert!(fast.iter().any(|relay| relay.flags.has(Flags::EXIT)));
    let sum: u64 = fast.iter().map(|relay| relay.bandwidth).sum();
    let mean = sum as f64 * relays.capacity / 30.0;
    assert!((mean - 800.0).abs() < 1.0, "{mean}");
}

fn downloads() -> Downloads {
    Downloads {
        size: Size::of(0.1, 1.0),
        megabytes: vec![5, 10],
        each: 3,
        rest: 60 * SECOND,
    }
}

#[test]
fn what_is_written_are_scenarios() {
    let (common, relays) = (common(), relays(30));
    let downloads = downloads();
    let arms = all_arms(&arms::DOWNLOADS);
    let text = downloads.text(&common, &relays, &arms).expect("a text");
    let scenario = source(Kind::Downloads, text, &relays).expect("a scenario");
    assert_eq!(scenario.scenario.duration, 160 * SECOND);
    let names: Vec<&str> = scenario
        .scenario
        .arms
        .iter()
        .map(|arm| &*arm.name)
        .collect();
    assert_eq!(names, arms::DOWNLOADS);
    let spread = |name: &str| {
        let mut clients = scenario.scenario.clients.iter();
        clients
            .find(|clients| clients.name == name)
            .map(|clients| (clients.count, clients.multipath))
    };
    assert_eq!(spread(WEB), Some((16, Some(false))));
    assert_eq!(spread(&model(10)), Some((3, Some(true))));
    let setup = scenario
        .scenario
        .setup(&scenario.files, 0, 1, 1)
        .expect("a network");
    assert_eq!(setup.relays.len(), 30);

    let size = contention::Size::of(0.4, Load::Heavy);
    assert_eq!(
        (size.relays, size.web, size.bulk, size.servers),
        (20, 396, 204, 80)
    );
    let paper = contention::Size::of(1.0, Load::Light);
    assert_eq!(
        (paper.relays, paper.web, paper.bulk, paper.servers),
        (50, 990, 110, 200)
    );
    let arms = all_arms(&arms::CONTENTION);
    let text = contention::text(Load::Heavy, size, &common, &relays, &arms).expect("a text");
    source(Kind::Contention(Load::Heavy), text, &relays).expect("a scenario");

    for (kind, planned) in controlled::PARTS {
        let arms = controlled::used(kind, all_arms(planned));
        let text = controlled::text(kind, &common, &arms);
        let scenario = Scenario::parse("x.toml", &text).expect("a scenario");
        assert_eq!(scenario.faults.len(), usize::from(kind == Kind::Stall));
        let names: Vec<&str> = scenario.arms.iter().map(|arm| &*arm.name).collect();
        match kind {
            Kind::Stall => assert_eq!(names, [MTOR5]),
            _ => assert_eq!(names, [STOR, "mtor4", MTOR5, "conflux"]),
        }
    }
}

#[test]
fn conflux_needs_congestion_control() {
    let arms = arms::chosen(&[], &arms::DOWNLOADS, false).expect("arms");
    assert!(arms.iter().all(|arm| arm.name != "conflux"));
    let asked = ["conflux".to_owned()];
    let error = arms::chosen(&asked, &arms::DOWNLOADS, false).expect_err("off");
    assert!(
        error.to_string().contains("needs congestion control"),
        "{error}"
    );
    let asked = ["wide:multipath=8".to_owned()];
    let arms = arms::chosen(&asked, &[], true).expect("arms");
    let names: Vec<&str> = arms.iter().map(|arm| &*arm.name).collect();
    assert_eq!(names, [STOR, "wide"]);
}

/// A stream that began then and took so long, or is open, or has failed.
fn record(model: &str, started: u64, took: Option<u64>, outcome: Outcome) -> Record {
    let mut times = Times::new(5_000_000, 0);
    times.down.bytes = 5_000_000;
    times.down.first = took.map(|_| SECOND);
    times.down.last = took.map(Duration::from_secs);
    Record {
        client: "client-1".to_owned(),
        model: model.to_owned(),
        stream: 0,
        isolation: 0,
        started: Duration::from_secs(started),
        times,
        ended: Duration::from_secs(took.unwrap_or(100)),
        outcome,
    }
}

fn relay(bandwidth: u64, rate: u64, bulk: [u64; 3], web: [u64; 3]) -> RelayResults {
    RelayResults {
        written: vec![0; 3],
        carried: [
            (BULK.to_owned(), bulk.to_vec()),
            (WEB.to_owned(), web.to_vec()),
        ]
        .into(),
        bandwidth,
        rate,
        ..RelayResults::default()
    }
}

#[test]
fn streams_of_the_warm_up_and_relays_bytes_in_it_do_not_count() {
    let failure = Failure::new(FailureKind::Closed, "gone");
    let measured = Measured {
        simulated: 30 * SECOND,
        interval: 10 * SECOND,
        streams: vec![
            record(BULK, 9, Some(5), Outcome::Complete),
            record(BULK, 10, Some(20), Outcome::Complete),
            record(BULK, 11, None, Outcome::Unfinished),
            record(BULK, 12, None, Outcome::Failed(failure)),
        ],
        relays: vec![
            relay(1_000, 100, [900, 300, 100], [900, 100, 100]),
            relay(101, 10, [90, 100, 0], [0, 0, 0]),
        ],
        ..Measured::default()
    };
    let sample = Sample::of(&measured, 10 * SECOND);
    let bulk = &sample.streams[BULK];
    let counts = bulk.counts;
    assert_eq!((counts.downloads, counts.failed, counts.open), (1, 1, 1));
    let took: Vec<(f64, bool)> = bulk
        .last
        .iter()
        .map(|time| (time.took, time.is_over))
        .collect();
    assert_eq!(took, [(20.0, true), (100.0, false)]);
    assert_eq!(bulk.goodput, [2.0]);
    let [fast, slow] = sample.shares.expect("bytes");
    // 400 of the 2000 that 100 bytes each second carry in 20 s, and of the 600 that were carried.
    assert!((fast.of_capacity - 20.0).abs() < 1e-9 && (fast.of_carried - 200.0 / 3.0).abs() < 1e-9);
    assert!((slow.of_capacity - 50.0).abs() < 1e-9 && (slow.of_carried - 100.0).abs() < 1e-9);
    // 500 bytes over three relays in 20 s.
    let mbit = sample.bulk_mbit.expect("bytes");
    assert!((mbit - 500.0 / 3.0 * 8e-6 / 20.0).abs() < 1e-12, "{mbit}");
}

/// A job whose downloads took so long.
fn sample(name: &str, took: &[u64]) -> Sample {
    let streams = took.iter();
    let streams = streams.map(|took| record(name, 60, Some(*took), Outcome::Complete));
    let measured = Measured {
        streams: streams.collect(),
        ..Measured::default()
    };
    Sample::of(&measured, 50 * SECOND)
}

#[test]
fn deviations_are_within_repetitions_and_changes_paired() {
    // Two networks, one twice as slow; the change is the same in both.
    let base = Samples::from([(1, sample("x", &[10, 30])), (2, sample("x", &[20, 60]))]);
    let own = Samples::from([(1, sample("x", &[10, 20])), (2, sample("x", &[20, 40]))]);
    let of = OfStreams::of("x", &own, &base);
    let seconds = of.seconds.quantity();
    assert_eq!(seconds.mean(MEAN), Some(22.5));
    assert_eq!(of.change_percent.mean(MEAN), Some(-25.0));
    let change = of.change_percent.mean(STDDEV).expect("a deviation");
    assert!((change + 50.0).abs() < 1e-9, "{change}");
    assert!(of.change_percent.interval(STDDEV).expect("an interval") < 1e-9);
    let one = Samples::from([(1, sample("x", &[10, 20]))]);
    let json = serde_json::to_value(OfStreams::of("x", &one, &base)).expect("JSON");
    assert!(json["seconds"]["ci95"].is_null(), "{json:#}");
    for name in [MEAN, STDDEV, "p10", "p50", "p90", "p99"] {
        assert!(json["seconds"][name].is_number(), "{json:#}");
    }
}

#[test]
fn bars_are_ratios_of_repetitions() {
    let arm = |name: &str, took: u64| {
        let arm = Arm {
            name: name.to_owned(),
            keys: Vec::new(),
        };
        (
            arm,
            Samples::from([(1, sample(controlled::MODEL, &[took]))]),
        )
    };
    let part = |kind, samples| OfPart {
        kind,
        text: String::new(),
        planned: 1,
        samples,
    };
    let stor = arm(STOR, 100);
    let parts = vec![
        part(Kind::Equal, vec![stor, arm("mtor4", 26), arm(MTOR5, 20)]),
        part(Kind::Stall, vec![arm(MTOR5, 39)]),
    ];
    let mut results = Results::new(About {
        testbed: Testbed::Virtual,
        seed: 1,
        congestion_control: true,
        repetitions: 1,
        warm_up_s: 50.0,
        relays: relays(30),
        megabytes: vec![5],
        parts,
        own_files: Vec::new(),
    });
    results.sum_up();
    let met: BTreeMap<&str, (f64, bool)> = results
        .bars
        .iter()
        .map(|(name, bar)| (*name, (bar.value.expect("a value"), bar.met == Some(true))))
        .collect();
    assert_eq!(met["equal_goodput_ratio"], (5.0, true));
    assert_eq!(met["stall_added_percent"], (50.0, false));
    assert_eq!(met.len(), 2);
    assert!(!results.finished);
    let job = Job {
        repetition: 1,
        arm_number: 0,
        arm: STOR.to_owned(),
    };
    results.add(1, job, Err(anyhow::anyhow!("it fell over")));
    assert_eq!((results.failures[0].part, results.done()), ("stall", 4));
}
