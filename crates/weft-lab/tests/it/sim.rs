//! `weft sim` from the command line: what it prints, what it refuses, and that no result is lost.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn sim(words: &[&str]) -> Output {
    Command::new(crate::weft())
        .arg("sim")
        .args(words)
        .output()
        .expect("weft runs")
}

/// Its output, one JSON object.
fn json(words: &[&str]) -> Value {
    let output = sim(words);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Its error message.
fn refused(words: &[&str]) -> String {
    let output = sim(words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn a_synthetic_consensus_is_written_once_and_its_links_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = path(folder.path(), "consensus");
    let made = sim(&["synth", "--relays", "900", "--seed", "5", "--out", &file]);
    assert!(made.status.success(), "{made:?}");
    let error = refused(&["synth", "--relays", "900", "--out", &file]);
    assert!(error.contains("not overwritten"), "{error}");

    let words = "links --circuits 20000 --kind external --direction directed --repeat 3 --seed 9 \
                 --format json --consensus";
    let words: Vec<&str> = words.split_whitespace().chain([&*file]).collect();
    let result = json(&words);
    for name in [
        "relays",
        "circuits",
        "links",
        "shared_links",
        "shared_percent_mean",
        "shared_percent_stddev",
        "elapsed_s",
        "parse_s",
        "peak_rss_bytes",
    ] {
        assert!(result[name].is_number(), "{name} in {result}");
    }
    assert_eq!(result["relays"], 900);
    assert_eq!(result["circuits"], 20_000);
    // The number of threads changes no result.
    for threads in ["1", "3"] {
        let again = json(&[&*words, &["--threads", threads]].concat());
        for name in ["links", "shared_percent_mean", "shared_percent_stddev"] {
            assert_eq!(again[name], result[name], "{name}");
        }
    }
}

#[test]
fn documents_that_are_none_are_refused_by_file_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = path(folder.path(), "consensus");
    let made = sim(&["synth", "--relays", "300", "--out", &file]);
    assert!(made.status.success(), "{made:?}");
    let text = fs::read_to_string(&file).expect("a document");
    let cut = text.get(..text.len() / 2).expect("half of it");
    for (what, document) in [
        ("nothing", ""),
        ("something else", "root:x:0:0\n"),
        (
            "an unknown version",
            &text.replacen("version 3", "version 9", 1),
        ),
        ("half a document", cut),
    ] {
        fs::write(&file, document).expect("written");
        let error = refused(&["links", "--circuits", "100", "--consensus", &file]);
        assert!(error.contains(&file), "{what}: {error}");
    }
    let missing = path(folder.path(), "missing");
    let error = refused(&["idle", "--consensus", &missing]);
    assert!(error.contains(&missing), "{error}");
}

#[test]
fn counts_that_make_no_sense_are_refused() {
    for words in [
        &["links", "--circuits", "0"][..],
        &["links", "--circuits", "many"],
        &["links", "--circuits", "99999999999999999999"],
        &["links", "--scale", "0"],
        &["links", "--exits", "mixture", "--mixture", "1,2"],
        &["links", "--mixture", "1,2,3,4,5"],
        &["links", "--threads", "0"],
        &["links", "--threads", "100000"],
        &["idle", "--circuits", "0"],
        &["synth", "--relays", "0"],
        &["nothing"],
    ] {
        let error = refused(words);
        assert!(
            !error.trim().is_empty() && !error.contains("panicked"),
            "{words:?}: {error}"
        );
    }
}

#[test]
fn nothing_is_left_where_a_simulation_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = path(folder.path(), "results");
    for words in [
        &["links", "--circuits", "0", "--out", &out][..],
        &["idle", "--circuits", "0", "--out", &out],
        &["compromise", "tunnels", "--clients", "0", "--out", &out],
    ] {
        refused(words);
        assert!(!Path::new(&out).exists(), "{words:?}");
    }
}

#[test]
fn what_is_kept_is_what_is_printed_for_both_models() {
    let folder = tempfile::tempdir().expect("a folder");
    for model in ["simple", "full"] {
        let out = path(folder.path(), model);
        let words = [
            "links",
            "--circuits",
            "3000",
            "--format",
            "json",
            "--model",
            model,
        ];
        let printed = json(&[&words[..], &["--out", &out]].concat());
        let kept = fs::read(path(Path::new(&out), "results.json")).expect("a file");
        let kept: Value = serde_json::from_slice(&kept).expect("one JSON object");
        assert_eq!(kept, printed);
        assert_eq!(kept["full_less_simple"].is_number(), model == "full");
        for file in ["runs.csv", "distribution.csv", "distribution.svg"] {
            assert!(Path::new(&out).join(file).is_file(), "{file}");
        }
        // Refused before the work: more circuits than could be drawn in the time of a test.
        let again = ["links", "--circuits", "100000000", "--out", &out];
        let error = refused(&again);
        assert!(error.contains("nothing is overwritten"), "{error}");
    }
}

#[test]
fn idle_relays_and_compromised_clients_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = path(folder.path(), "idle");
    let words = [
        "idle",
        "--circuits",
        "2000",
        "--format",
        "json",
        "--out",
        &out,
    ];
    let result = json(&words);
    assert!(result.is_object(), "{result}");
    let error = refused(&words);
    assert!(error.contains(&out), "{error}");
    let words = ["compromise", "tunnels", "--clients", "1000"];
    let tunnels = sim(&words);
    assert!(tunnels.status.success(), "{tunnels:?}");
    let table = String::from_utf8(tunnels.stdout).expect("text");
    // Yang and Li 2015, section VI: 4 % and 13.45 %.
    assert!(
        table.contains("4.000 %") && table.contains("13.446 %"),
        "{table}"
    );
    let common = ["--entry", "common", "--circuits", "16", "--format", "json"];
    let common = json(&[&words[..], &common].concat());
    let rows = common["table_iii"].as_array().expect("rows");
    assert_eq!(rows.len(), 16, "{rows:?}");
    // One guard for all: no wider tunnel is compromised more often.
    assert!(
        rows.iter()
            .all(|row| row["counted_percent"] == rows[0]["counted_percent"])
    );
    for wrong in [
        ["--circuits", "17"],
        ["--weight", "NaN"],
        ["--entry", "all"],
    ] {
        let consensus = ["--consensus", "/dev/null"];
        refused(&[&words[..], &wrong, &consensus].concat());
    }
}

#[test]
fn a_file_that_has_no_choices_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = path(folder.path(), "pools.jsonl");
    let network = "{\"relays\":[{\"name\":\"a\",\"bandwidth\":5}]}";
    for (text, why) in [
        (
            format!("{network}\n{{\"circuits\":[]\n"),
            "line 2: it is no network and no choice",
        ),
        (format!("{network}\n"), "it has no choice"),
        (
            format!(
                "{network}\n{{\"client\":\"x\",\"at_s\":1,\"chosen\":0,\"circuits\":\
                 [{{\"relays\":[7],\"weights\":[0]}}]}}\n"
            ),
            "line 2: there is no relay 7",
        ),
    ] {
        fs::write(&file, text).expect("written");
        let error = refused(&["compromise", "abra", "--pools", &file]);
        assert!(
            error.contains("pools.jsonl") && error.contains(why),
            "{error}"
        );
    }
    let error = refused(&[
        "compromise",
        "abra",
        "--pools",
        &path(folder.path(), "none"),
    ]);
    assert!(error.contains("No such file"), "{error}");
    let error = refused(&["compromise", "abra", "--pools", &file, "--relays", "50"]);
    assert!(error.contains("cannot be used with"), "{error}");
}
