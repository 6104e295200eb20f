//! The attacks of `weft lab attack`, briefly and at a low rate, against a running `weft`.
//!
//! Whatever an attack does, no honest circuit is closed, honest data arrives, and when it is over the
//! relay has its file descriptors and its memory back. While an attack holds its connections to a port,
//! somebody new is served there. Nothing here depends on how fast anything is.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weft_lab::attack::{ATTACKS, Cast, FILES_LEFT, Options, find, max_connections, round};
use weft_lab::relay::program::Program;

/// Memory that the relay may keep: caches, and pages that the allocator has not given back yet.
const MEMORY_LEFT: u64 = 48 << 20;

/// The relays that the generator plays, for all tests: their keys take a while.
static CAST: LazyLock<Cast> = LazyLock::new(|| Cast::new(1).unwrap());

fn options() -> Options {
    Options {
        program: Program::Weft(PathBuf::from(crate::weft()), Some(1)),
        seconds: Duration::from_millis(500),
        warm_up: Duration::from_millis(100),
        settle: Duration::from_secs(300),
        memory_left: MEMORY_LEFT,
        repetitions: 1,
        mbits: 20.0,
        honest_mbits: 5.0,
        max_lead: Duration::from_secs(1),
        // Tests that run at once share the limit on files.
        max_connections: max_connections().min(1500),
        patience: Duration::from_secs(300),
        until_granted: false,
        seed: 1,
        target_cpus: Vec::new(),
        generator_cpus: Vec::new(),
    }
}

/// Runs attacks one after the other; each must be withstood.
fn withstands(names: &[&str]) {
    withstands_by(&options(), names);
}

fn withstands_by(options: &Options, names: &[&str]) {
    for name in names {
        let attack = find(name).unwrap();
        let round = round(options, &attack, 1, &CAST, &AtomicBool::new(false)).unwrap();
        let with = &round.with;
        println!(
            "{name}: {} deeds, {} setbacks ({:?}), files {} {} {}, RSS {} {} {} MB, {} of {} granted",
            round.deeds,
            round.setbacks,
            round.first_setback,
            round.before.files,
            round.peak.files,
            round.after.files,
            round.before.rss_bytes >> 20,
            round.peak.rss_bytes >> 20,
            round.after.rss_bytes >> 20,
            with.fared.granted,
            with.fared.asked,
        );
        assert_eq!(round.failure, None, "{name}");
        assert_eq!(round.breach, None, "{name}");
        assert!(round.deeds > 0, "{name} did nothing: {round:#?}");
        // An honest load that is complete has seen every cell arrive.
        assert_eq!(with.failure, None, "{name}: {round:#?}");
        assert_eq!(with.closed(), 0, "{name}: {round:#?}");
        assert!(
            !options.until_granted || with.fared.granted > 0,
            "{name}: {round:#?}"
        );
        assert!(
            round.after.files <= round.before.files + FILES_LEFT,
            "{name}: {round:#?}"
        );
        assert!(
            round.after.rss_bytes <= round.before.rss_bytes + MEMORY_LEFT,
            "{name}: {round:#?}"
        );
        assert!(
            !round
                .complaints
                .keys()
                .any(|line| line.contains("panicked")),
            "{name}: {:#?}",
            round.complaints
        );
    }
}

/// The attacks that tests run, by family.
const STREAMS: [&str; 8] = [
    "begin-end-begin",
    "never-sendme",
    "drained-streams",
    "slow-dns-post",
    "data-for-no-stream",
    "end-streams",
    "stream-flood",
    "sniper-sendmes",
];
const NAMES: [&str; 3] = ["silent-dns", "resolve-flood", "silent-begin-dir"];
const CIRCUITS: [&str; 10] = [
    "dead-extends",
    "made-up-relays",
    "sniper",
    "onionskin-flood",
    "extend-flood",
    "destroy-churn",
    "padding-flood",
    "rendezvous-cookies",
    "create-fast-back",
    "unlisted-extends",
];
const LINKS: [&str; 5] = [
    "key-updates-before",
    "key-updates-after",
    "tls-fragments",
    "half-open-links",
    "client-hellos",
];
const HELD: [&str; 2] = ["young-memory", "unread-answers"];
const PORTS: [&str; 5] = [
    "slow-loris-or",
    "slow-loris-dir",
    "slow-loris-socks",
    "slow-loris-control",
    "slow-loris-metrics",
];

#[test]
fn streams_that_misbehave_take_nothing_from_others() {
    withstands(&STREAMS);
}

#[test]
fn names_and_directories_asked_for_without_end_take_nothing_from_others() {
    withstands(&NAMES);
}

#[test]
fn floods_of_circuits_take_nothing_from_others() {
    withstands(&CIRCUITS);
}

#[test]
fn what_is_held_for_one_takes_nothing_from_others() {
    withstands(&HELD);
}

#[test]
fn links_that_misbehave_take_nothing_from_others() {
    withstands(&LINKS);
}

#[test]
fn slow_peers_at_every_port_take_nothing_from_others() {
    let options = Options {
        until_granted: true,
        ..options()
    };
    withstands_by(&options, &PORTS);
}

#[test]
fn every_attack_is_tested() {
    let mut tested: Vec<&str> = [&STREAMS[..], &NAMES, &CIRCUITS, &HELD, &LINKS, &PORTS].concat();
    let mut all: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
    tested.sort_unstable();
    all.sort_unstable();
    assert_eq!(tested, all);
}

fn weft(args: &[&str]) -> (bool, String, String) {
    let output = Command::new(crate::weft())
        .args(["lab", "attack"])
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn the_list_names_every_attack_its_deed_and_its_bound() {
    let (success, list, _) = weft(&["--list"]);
    assert!(success);
    for attack in ATTACKS {
        assert!(list.contains(&format!("{}\n    {}.\n", attack.name, attack.what)));
        assert!(list.contains(attack.bound));
    }
}

#[test]
fn bad_arguments_get_clear_errors() {
    for (args, words) in [
        (&[][..], "name an attack"),
        (&["begin"], "there is no attack \"begin\""),
        (&["sniper", "sniper"], "named twice"),
        (&["sniper", "--all"], "cannot be used with"),
        (
            &["sniper", "--mbits", "0"],
            "it must be a number of Mbit/s from 0.001 to 10000",
        ),
        (
            &["sniper", "--honest", "nan"],
            "it must be a number of Mbit/s from 0.001 to 10000",
        ),
        (
            &["sniper", "--seconds", "0"],
            "it must be a number of seconds from 0.001 to 2592000",
        ),
        (
            &["sniper", "--program", "/nonexistent"],
            "there is no program",
        ),
        (&["sniper", "--repetitions", "0"], "from 1 to 1000"),
    ] {
        let (success, _, errors) = weft(args);
        assert!(!success, "{args:?}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    }
}

#[test]
fn an_experiment_leaves_its_results_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("results");
    let (_, table, errors) = weft(&[
        "padding-flood",
        "--repetitions",
        "1",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.1",
        "--mbits",
        "5",
        "--honest",
        "5",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(table.contains("padding-flood"), "{table}{errors}");
    for file in [
        "results.json",
        "results.md",
        "throughput.svg",
        "latency.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}: {errors}");
    }
    let json = std::fs::read_to_string(out.join("results.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["finished"], true);
    let round = &json["rounds"][0];
    assert!(round["with"]["failure"].is_null(), "{round}");
    assert!(round["attack_bytes"].as_u64().unwrap() > 0);
    // Existing results are not overwritten.
    let (success, _, errors) = weft(&["padding-flood", "--out", out.to_str().unwrap()]);
    assert!(
        !success && errors.contains("nothing is overwritten"),
        "{errors}"
    );
}
