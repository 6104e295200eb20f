//! Runs of folders, beside one of all jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use weft_model::traffic::Record;
use weft_model::traffic::records::Outcome as StreamOutcome;
use weft_model::traffic::{Failure, FailureKind, Times};
use weft_testnet::stop::Stop;
use weft_virtual::results::{CircuitResults, RelayResults};

use super::job::{Job, Measured};
use super::merge::{MergeArgs, Merging, are_parts};
use super::results::Results;
use super::testbed::Testbed;
use crate::experiment::{Report, perform};
use crate::report::{Run, Table};

const SECOND: Duration = Duration::from_secs(1);

/// Three arms and two repetitions.
fn jobs() -> Vec<Job> {
    let of = |repetition| {
        let arms = ["shared", "own", "auto"].into_iter().enumerate();
        arms.map(move |(arm_number, arm)| Job {
            repetition,
            arm_number,
            arm: arm.to_owned(),
        })
    };
    (1..=2).flat_map(of).collect()
}

fn record(number: u32, outcome: StreamOutcome) -> Record {
    // Nanoseconds that no record in a file has.
    let time = |part: u32| Some(Duration::from_nanos(1_234_567_891) * number / part);
    let mut times = Times::new(1000, 0);
    (times.opened, times.answered) = (time(10), time(5));
    times.down.bytes = 1000;
    (times.down.first, times.down.last) = (time(2), time(1));
    Record {
        client: format!("client{number}"),
        model: ["page", "bulk"][number as usize % 2].to_owned(),
        stream: 0,
        isolation: 0,
        started: Duration::from_nanos(1_333_333_333) * number,
        times,
        ended: time(1).expect("a time"),
        outcome,
    }
}

/// Something that differs from job to job.
fn measured(job: &Job) -> Measured {
    let number = job.repetition * 3 + u32::try_from(job.arm_number).expect("few");
    let relay = |place: u32| RelayResults {
        name: format!("relay, {place}"),
        written: vec![u64::from(number * 1000 + place), 7],
        queued: vec![u64::from(place), 3],
        weights: vec![f64::from(number) / 7e3, 0.0],
        carried: [("page".to_owned(), vec![u64::from(number), 1])].into(),
        busy: f64::from(number) / 7.0,
        circuits: 4,
        adversary: false,
        bandwidth: 0,
        rate: 0,
    };
    let failure = Failure::new(FailureKind::Proxy, "refused, \"again\"");
    let results = weft_virtual::Results {
        simulated: 2 * SECOND,
        streams: vec![
            record(number, StreamOutcome::Complete),
            record(number + 1, StreamOutcome::Failed(failure)),
            record(number + 2, StreamOutcome::Unfinished),
            record(number + 3, StreamOutcome::Complete),
        ],
        relays: (0..12).map(relay).collect(),
        measured: Vec::new(),
        choices: Vec::new(),
        tunnels: None,
        circuits: vec![
            CircuitResults {
                client: "client1".to_owned(),
                path: vec!["a".to_owned(), "b".to_owned()],
                began: SECOND / 3,
                built: Some(SECOND / 7),
                round_trips: vec![SECOND / 9, SECOND / 11],
            },
            CircuitResults {
                client: "client2".to_owned(),
                path: vec!["a".to_owned()],
                began: SECOND,
                built: None,
                round_trips: Vec::new(),
            },
        ],
        interval: SECOND,
        relayed_bytes: u64::from(number) * 1_000_000,
        events: 99,
    };
    Measured {
        clients: 5,
        results,
    }
}

/// A run of these jobs with this seed, of which the failed ones have failed.
fn results(jobs: &[Job], failed: &[Job], seed: u64) -> Results {
    let (scenario, text) = ("small.toml".to_owned(), "duration = \"2 s\"\n".to_owned());
    let mut results = Results::empty(scenario, text, Testbed::Virtual, seed, 2.0, jobs.to_vec());
    // As threads are done with them.
    for job in jobs.iter().rev() {
        let outcome = match failed.contains(job) {
            true => Err(anyhow::anyhow!("it fell over")),
            false => Ok(measured(job)),
        };
        results.add((job.clone(), outcome));
    }
    results.sum_up(SECOND, 1 << 20);
    results
}

fn write(results: &Results, folder: &Path) -> PathBuf {
    fs::create_dir(folder).expect("a folder");
    for (name, text) in results.files().expect("files") {
        fs::write(folder.join(name), text).expect("written");
    }
    folder.to_owned()
}

fn json(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("results.json")).expect("results");
    let mut json: Value = serde_json::from_str(&text).expect("JSON");
    for key in ["elapsed_s", "peak_rss_bytes", "threads"] {
        let removed = json.as_object_mut().and_then(|all| all.remove(key));
        assert!(removed.is_some(), "{key}");
    }
    json
}

#[test]
fn folders_of_parts_are_one_run() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    let (all, failed) = (jobs(), &jobs()[4..5]);
    let whole = results(&all, failed, 1);
    write(&whole, &at("whole"));
    // The parts are neither arms nor repetitions, and in no order.
    let of = |places: &[usize]| places.iter().map(|place| all[*place].clone()).collect();
    let parts: [Vec<Job>; 3] = [of(&[1, 5]), of(&[0]), of(&[2, 3, 4])];
    let folders: Vec<PathBuf> = parts
        .iter()
        .enumerate()
        .map(|(number, jobs)| write(&results(jobs, failed, 1), &at(&format!("part{number}"))))
        .collect();
    assert!(are_parts(&folders));
    let args = MergeArgs {
        folders,
        out: at("merged"),
        style: weft_plot::Style::Screen,
    };
    let merged = perform::<Merging>(&args, &Stop::default(), &mut ()).expect("merged");
    assert!(!merged.is_passed, "one failed");
    assert!(merged.text.contains("it fell over"), "{}", merged.text);
    assert_eq!(json(&at("merged")), json(&at("whole")));
    for name in [
        "jobs.jsonl",
        "streams.jsonl",
        "relays.csv",
        "circuits.csv",
        "scenario.toml",
    ] {
        let [ours, theirs] = ["merged", "whole"].map(|one| fs::read(at(one).join(name)).ok());
        assert!(ours.is_some() && ours == theirs, "{name}");
    }
    for plot in ["ttfb", "ttlb", "relays", "queues", "circuits"] {
        assert!(at("merged").join(format!("{plot}.svg")).is_file(), "{plot}");
        assert!(!whole.caption(plot).is_empty(), "{plot}");
    }
    // Both from a text, as a number that is read from one may differ in its last bit.
    let tables = serde_json::to_string(&whole.tables()).expect("JSON");
    let tables: Vec<Table> = serde_json::from_str(&tables).expect("tables");
    let merged = Run::read(&at("merged")).expect("a run");
    assert_eq!(merged.tables, tables);
}

#[test]
fn what_is_no_part_of_one_run_is_compared_instead() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    let all = jobs();
    let (first, second) = all.split_at(3);
    let first = write(&results(first, &[], 1), &at("first"));
    let other_seed = write(&results(second, &[], 2), &at("other-seed"));
    let overlapping = write(&results(&all, &[], 1), &at("overlapping"));
    let second = write(&results(second, &[], 1), &at("second"));
    assert!(are_parts(&[first.clone(), second.clone()]));
    assert!(!are_parts(&[first.clone(), other_seed]));
    assert!(!are_parts(&[first.clone(), overlapping]));
    fs::write(second.join("scenario.toml"), "duration = \"3 s\"\n").expect("written");
    assert!(!are_parts(&[first.clone(), second]));
    assert!(!are_parts(&[first, at("nowhere")]));
}

#[test]
fn rows_are_of_arms_and_models() {
    let all = jobs();
    let results = results(&all, &[], 1);
    assert!(results.finished && results.missing().is_empty());
    assert_eq!((results.relays, results.clients), (12, 5));
    assert_eq!(results.streams.count, 24);
    assert_eq!(results.streams.complete, 12);
    assert_eq!(results.streams.unfinished, 6);
    assert_eq!(results.relayed_bytes, 33_000_000);
    assert_eq!((results.simulated_s, results.circuits.built), (12.0, 6));
    let arms: Vec<&str> = results.arms.iter().map(|arm| &*arm.arm).collect();
    assert_eq!(arms, ["shared", "own", "auto"]);
    let tables = results.tables();
    let titles: Vec<(&str, usize)> = tables
        .iter()
        .map(|table| (&*table.title, table.rows.len()))
        .collect();
    let rows = [
        ("Streams", 9),
        ("Percentiles", 36),
        ("Networks", 3),
        ("Busiest relays", 30),
        ("Failed streams", 6),
    ];
    assert_eq!(titles, rows);
    // Two repetitions, so there are intervals.
    let medians = &tables[0].rows[0].values[3];
    assert!(medians.spread().is_some_and(|one| one.n == 2));
}
