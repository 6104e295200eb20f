//! `weft lab run`: a small network in virtual time, what it keeps, and what it refuses.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const SMALL: &str = r#"
duration = "12 s"
repetitions = 2

[network]
synthetic = { relays = 9, guards = 3, exits = 3 }

[[clients]]
count = 3
name = "small"
model = { download = "20 kB", pause = ["1 s", "2 s"] }
within = "1 s"

[[clients]]
name = "large"
model = { download = "100 kB", pause = "3 s" }

[[servers]]
count = 2

[[arm]]
name = "shared"

[[arm]]
name = "own"
connection_per_circuit = "1"
"#;

/// Numbers that may differ from run to run.
const FREE: [&str; 3] = ["elapsed_s", "peak_rss_bytes", "threads"];

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(crate::weft());
    command.arg("lab").args(words).stdin(Stdio::null());
    command
}

fn weft(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

/// A scenario in a file.
fn scenario(place: &Path, text: &str) -> PathBuf {
    let path = place.join("small.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Output of `weft lab run SCENARIO --out OUT --format json` with these words.
fn run(scenario: &Path, out: &Path, words: &[&str]) -> Value {
    let [scenario, out] = [scenario, out].map(|path| path.to_str().unwrap());
    let fixed = ["run", scenario, "--out", out, "--format", "json"];
    let run = weft(&[&fixed, words].concat());
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
    serde_json::from_slice(&run.stdout).unwrap()
}

/// Without the numbers that may differ.
fn fixed(mut results: Value) -> Value {
    let object = results.as_object_mut().unwrap();
    for key in FREE {
        assert!(object.remove(key).unwrap().is_number(), "{key}");
    }
    results
}

fn same_files(one: &Path, other: &Path) {
    for name in ["streams.jsonl", "jobs.jsonl", "relays.csv", "circuits.csv"] {
        let [one, other] = [one, other].map(|folder| fs::read(folder.join(name)).unwrap());
        assert!(!one.is_empty() && one == other, "{name}");
    }
}

#[test]
fn threads_and_folders_change_no_number() {
    let place = tempfile::tempdir().unwrap();
    let small = scenario(place.path(), SMALL);
    let at = |name: &str| place.path().join(name);
    let printed = run(&small, &at("one"), &["--threads", "1", "--seed", "7"]);
    assert_eq!(printed["testbed"], "virtual");
    assert_eq!(printed["seed"], 7);
    assert_eq!(printed["finished"], true);
    // Two arms, twice.
    assert_eq!(printed["simulated_s"], 48.0);
    assert_eq!(
        (&printed["relays"], &printed["clients"]),
        (&9.into(), &4.into())
    );
    let streams = &printed["streams"];
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&streams["complete"]) > 8.0, "{printed:#}");
    assert_eq!(streams["failed"], 0, "{printed:#}");
    for key in ["ttfb_ms", "ttlb_ms"] {
        let shares = ["p10", "p50", "p90", "p99"].map(|share| number(&streams[key][share]));
        assert!(shares[0] > 0.0 && shares.is_sorted(), "{printed:#}");
    }
    assert!(number(&printed["relayed_bytes"]) > number(&streams["down_bytes"]));
    let arms: Vec<&str> = printed["arms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arm| arm["arm"].as_str().unwrap())
        .collect();
    assert_eq!(arms, ["shared", "own"]);
    for arm in printed["arms"].as_array().unwrap() {
        assert_eq!(arm["models"].as_array().unwrap().len(), 2, "{arm:#}");
        assert!(number(&arm["streams"]["ttlb_ms"]["p50"]) > 0.0, "{arm:#}");
        assert!(number(&arm["circuits"]["build_ms"]["p50"]) > 0.0, "{arm:#}");
    }
    for name in [
        "results.json",
        "run.json",
        "raw.csv",
        "scenario.toml",
        "report.html",
        "ttfb.svg",
        "ttlb.svg",
        "relays.svg",
        "queues.svg",
        "circuits.svg",
    ] {
        assert!(at("one").join(name).is_file(), "{name}");
    }
    let page = fs::read_to_string(at("one").join("report.html")).unwrap();
    assert!(page.contains("Busiest relays") && page.contains("Percentiles"));

    let two = run(&small, &at("two"), &["--threads", "2", "--seed", "7"]);
    assert_eq!(fixed(two), fixed(printed.clone()));
    same_files(&at("one"), &at("two"));

    // The jobs can be split over any number of machines.
    let words = ["--seed", "7", "--arm", "own"];
    run(&small, &at("own"), &words);
    for repetition in ["1", "2"] {
        let words = ["--seed", "7", "--arm", "shared", "--repetition", repetition];
        run(&small, &at(&format!("shared{repetition}")), &words);
    }
    let paths = ["shared2", "own", "shared1", "merged"].map(|name| at(name).display().to_string());
    let [first, second, third, out] = paths.each_ref().map(String::as_str);
    let merged = weft(&["report", first, second, third, "--out", out]);
    assert!(
        merged.status.success(),
        "{}",
        String::from_utf8_lossy(&merged.stderr)
    );
    let results = fs::read(at("merged").join("results.json")).unwrap();
    assert_eq!(
        fixed(serde_json::from_slice(&results).unwrap()),
        fixed(printed)
    );
    same_files(&at("one"), &at("merged"));
    // Runs of the same jobs are compared.
    let paths = ["one", "two", "compared.html"].map(|name| at(name).display().to_string());
    let [one, two, page] = paths.each_ref().map(String::as_str);
    let compared = weft(&["report", one, two, "--out", page]);
    assert!(compared.status.success() && at("compared.html").is_file());
}

#[test]
fn another_seed_has_other_numbers() {
    let place = tempfile::tempdir().unwrap();
    let small = scenario(place.path(), &SMALL.replace("12 s", "5 s"));
    let words = |seed| ["--arm", "shared", "--repetition", "1", "--seed", seed];
    let [one, two] = ["1", "2"].map(|seed| run(&small, &place.path().join(seed), &words(seed)));
    assert_ne!(one["streams"], two["streams"]);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let place = tempfile::tempdir().unwrap();
    let small = scenario(place.path(), &SMALL.replace("12 s", "86400 s"));
    let out = place.path().join("out");
    let [small, path] = [&small, &out].map(|path| path.to_str().unwrap());
    let mut run = command(&["run", small, "--out", path, "--threads", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap().contains("of virtual time")));
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let mut text = String::new();
    let mut printed = run.stdout.take().unwrap();
    printed.read_to_string(&mut text).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{text}");
    assert!(
        text.contains("PARTIAL") && text.contains("was not run"),
        "{text}"
    );
    let kept = fs::read_to_string(out.join("run.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["ending"], "stopped");
}

#[test]
fn what_cannot_run_is_named_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let out = out.to_str().unwrap();
    let many = SMALL.replace("relays = 9", "relays = 20000");
    let many = many.replace("count = 3", "count = 1000000");
    for (text, words, expected) in [
        (
            SMALL.replace("repetitions", "repititions"),
            vec![],
            vec!["small.toml:3: ", "did you mean repetitions?"],
        ),
        (
            SMALL.replace("[[servers]]", "[[severs]]"),
            vec![],
            vec!["small.toml:18: ", "did you mean servers?"],
        ),
        (
            SMALL.replace("synthetic = {", "consensus = \"nowhere\" # {"),
            vec![],
            vec!["small.toml names a file that cannot be used", "nowhere"],
        ),
        (
            SMALL.to_owned(),
            vec!["--arm", "share"],
            vec!["small.toml has no arm \"share\"; did you mean shared?"],
        ),
        (
            SMALL.to_owned(),
            vec!["--repetition", "3"],
            vec!["small.toml has repetitions 1 to 2"],
        ),
        (
            many,
            vec!["--threads", "1"],
            vec!["small.toml needs about ", "fewer relays or clients"],
        ),
    ] {
        let small = scenario(place.path(), &text);
        let run = weft(&[&["run", small.to_str().unwrap(), "--out", out], &*words].concat());
        let errors = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{errors}");
        for words in expected {
            assert!(errors.contains(words), "{words} in {errors}");
        }
        assert!(!Path::new(out).exists(), "{errors}");
    }
    let run = weft(&["run", "/nowhere.toml", "--out", out]);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && errors.contains("/nowhere.toml"),
        "{errors}"
    );
}
