//! Sizes, names and files; whole experiments are in `tests/interop.rs`.

use weft_plot::Folder;

use super::*;
use crate::machine::{Machine, Versions};

#[test]
fn targets_are_named_as_elsewhere() {
    for (text, which) in [
        ("tor", Which::Tor),
        ("weft", Which::Weft(None)),
        ("weft:12", Which::Weft(Some(12))),
    ] {
        assert_eq!(text.parse(), Ok(which));
        assert_eq!(which.to_string(), text);
        assert!(which.nickname().chars().all(|c| c.is_ascii_alphanumeric()));
    }
    for wrong in ["", "arti", "weft:", "weft:x", "tor:1", "weft:-1"] {
        assert!(wrong.parse::<Which>().is_err(), "{wrong}");
    }
}

#[test]
fn scaling_leaves_streams_as_they_are_and_one_of_everything() {
    assert_eq!(Sizes::INTEL_SERVER.scaled(1.0), Sizes::INTEL_SERVER);
    assert_eq!(Sizes::INTEL_SERVER.circuits(), 1500);
    assert_eq!(Sizes::RASPBERRY_PI.circuits(), 600);
    let tenth = Sizes::INTEL_SERVER.scaled(0.1);
    assert_eq!((tenth.clients, tenth.entries, tenth.exits), (15, 30, 30));
    assert_eq!(tenth.payload(), 150 * (10 << 20));
    let least = Sizes::INTEL_SERVER.scaled(0.0001);
    assert_eq!((least.clients, least.entries, least.exits), (1, 1, 1));
}

#[test]
fn a_machine_gets_the_scale_that_it_can_hold() {
    let whole = Sizes::INTEL_SERVER;
    assert!((whole.scale_for(512 << 30, 64) - 1.0).abs() < 1e-9);
    assert!((whole.scale_for(512 << 30, 2) - 0.03).abs() < 1e-9);
    // By memory: 8 GB hold 142 of 753 nodes when a fifth is left free.
    assert!((whole.scale_for(8_000_000_000, 64) - 0.18).abs() < 1e-9);
    assert!((whole.scale_for(0, 64) - 0.01).abs() < 1e-9);
}

fn options() -> Options {
    Options {
        targets: vec![Which::Tor, Which::Weft(Some(1))],
        weft: "/nowhere/weft".into(),
        setting: "Intel Server".into(),
        scale: 0.01,
        sizes: Sizes::INTEL_SERVER.scaled(0.01),
        repetitions: 2,
        rule: Rule::PAPER,
        seed: 1,
        weft_around: false,
        target_cpus: Vec::new(),
        other_cpus: Vec::new(),
    }
}

#[test]
fn options_that_make_no_sense_are_refused_by_what_is_wrong() {
    type Spoil = fn(&mut Options);
    let wrong: [(&str, Spoil); 6] = [
        ("at least one target", |options| options.targets.clear()),
        ("weft:1 is named twice", |options| {
            options.targets.push(Which::Weft(Some(1)));
        }),
        ("0 repetitions", |options| options.repetitions = 0),
        ("at least one client proxy", |options| {
            options.sizes.exits = 0
        }),
        ("at least 8 bytes", |options| {
            options.sizes.bytes_per_stream = 7
        }),
        ("the window is at least 0.5 s", |options| {
            options.rule.window_s = 0.4;
        }),
    ];
    assert!(options().check().is_ok());
    for (words, spoil) in wrong {
        let mut options = options();
        spoil(&mut options);
        let error = options.check().expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut large = options();
    large.sizes.entries = 10_000_000;
    let error = large.check().expect_err("more than any machine has");
    assert!(error.to_string().contains("--scale"), "{error}");
}

/// Two runs of C tor and one of Weft, and one that failed.
fn results() -> Results {
    let run = |target, repetition, rate: u64| Run {
        target,
        repetition,
        failure: None,
        seconds: 80.0,
        bytes: (0..=160u32)
            .map(|number| Sample {
                at_s: f64::from(number) * 0.5,
                read: u64::from(number) * rate / 2,
                written: u64::from(number) * rate / 2,
                busy: Some(0.9),
            })
            .collect(),
        streams: vec![
            StreamTimes {
                first_byte_s: 0.5,
                last_byte_s: 80.0,
            };
            20
        ],
        cpu_s: 40.0,
        busiest_thread_s: 60.0,
        peak_rss_bytes: 50_000_000,
        others_cpu_s: 100.0,
    };
    let mut failed = run(Which::Weft(Some(1)), 2, 1);
    failed.failure = Some("the target went away".into());
    let options = options();
    let mut results = Results {
        schema: SCHEMA,
        started_at: "2026-01-02T03:04:05Z".into(),
        finished: false,
        machine: Machine {
            cpu: "a processor".into(),
            logical_cpus: 2,
            ..Machine::default()
        },
        versions: Versions::default(),
        scale: options.scale,
        setting: options.setting,
        sizes: options.sizes,
        targets: options.targets,
        repetitions: options.repetitions,
        seed: options.seed,
        weft_around: options.weft_around,
        asked: options.rule,
        rule: options.rule,
        summaries: Vec::new(),
        runs: vec![
            run(Which::Tor, 1, 10_000_000),
            run(Which::Weft(Some(1)), 1, 30_000_000),
            run(Which::Tor, 2, 12_000_000),
            failed,
        ],
    };
    results.sum_up();
    results
}

#[test]
fn summaries_count_only_runs_that_came_to_their_end() {
    let results = results();
    let sustained = |place: usize| {
        let summary = results.summaries[place].sustained_bits_per_s;
        let summary = summary.expect("a window fits");
        (summary.min / 1e6, summary.median / 1e6, summary.max / 1e6)
    };
    assert_eq!(sustained(0), (80.0, 88.0, 96.0));
    assert_eq!(sustained(1), (240.0, 240.0, 240.0));
    let table = results.to_string();
    for words in [
        "88 (80–96)",
        "1 of 4 runs failed",
        "ended early: 4 of 4",
        "scale 0.01 of Table 1",
    ] {
        assert!(table.contains(words), "{words} in\n{table}");
    }
}

#[test]
fn short_runs_change_the_rule_for_all_and_report_it() {
    let mut results = results();
    for run in &mut results.runs {
        run.bytes.retain(|sample| sample.at_s <= 20.0);
    }
    results.sum_up();
    assert_eq!((results.rule.discard_s, results.rule.window_s), (8.0, 8.0));
    assert!(results.summaries[1].sustained_bits_per_s.is_some());
    let words = results.rule_in_words();
    assert!(words.contains("too short for 30 s after 30 s"), "{words}");
}

#[test]
fn a_folder_is_filled_can_be_read_and_is_never_overwritten() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("experiment");
    let folder = Folder::create(&path).expect("a folder of its own");
    let results = results();
    for (name, text) in results.data_files().expect("text") {
        folder.write(name, &text).expect("written");
    }
    assert_eq!(
        Results::read(&path.join("results.json")).expect("read"),
        results
    );
    let lines = |name: &str| {
        let text = std::fs::read_to_string(path.join(name)).expect("a file");
        text.lines().count()
    };
    assert_eq!(lines("bytes.csv"), 1 + 4 * 161);
    assert_eq!(lines("streams.csv"), 1 + 4 * 20);
    let error = Folder::create(&path).expect_err("it is there");
    assert!(
        format!("{error:#}").contains("nothing is overwritten"),
        "{error:#}"
    );
    for (name, words) in [
        (
            "figure7",
            ["88.0", "scale 0.01", "30-second", "1 of 4"].as_slice(),
        ),
        ("figure8", &["last byte", "Weft, 1 connection thread"]),
        ("figure9", &["first byte", "C tor"]),
    ] {
        figures::draw(&results, &folder).expect("drawn");
        let svg = std::fs::read_to_string(path.join(format!("{name}.svg"))).expect("a plot");
        for word in words.iter().filter(|word| **word != "1 of 4") {
            assert!(
                svg.to_lowercase().contains(&word.to_lowercase()),
                "{name}: {word}"
            );
        }
    }
}
