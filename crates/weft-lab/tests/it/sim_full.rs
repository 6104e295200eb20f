//! `weft sim links --model full`: what it prints, and how it refuses.

use std::process::Command;

/// Output of `weft sim links` with these words, and true if it succeeded.
fn links(words: &[&str]) -> (bool, String) {
    let run = Command::new(crate::weft())
        .args(["sim", "links", "--circuits", "5000"])
        .args(words)
        .output()
        .unwrap();
    let printed = [run.stdout, run.stderr].concat();
    (run.status.success(), String::from_utf8(printed).unwrap())
}

#[test]
fn the_full_model_reports_its_distance_from_the_simple_one() {
    let words = ["--model", "full", "--repeat", "3", "--format", "json"];
    let (is_done, printed) = links(&words);
    assert!(is_done, "{printed}");
    let object: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let number = |name: &str| object[name].as_f64().unwrap();
    let difference = number("shared_percent_mean") - number("simple_shared_percent_mean");
    assert_eq!(difference, number("full_less_simple"));
    assert!(number("links") > 1000.0 && difference.abs() < 1.0);

    let (is_done, alone) = links(&["--repeat", "3", "--format", "json"]);
    assert!(is_done, "{alone}");
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    assert_eq!(
        alone["shared_percent_mean"],
        object["simple_shared_percent_mean"]
    );
}

#[test]
fn every_rule_for_guards_runs() {
    for words in [
        &["--guards", "tor", "--guards-per-client", "2"][..],
        &[
            "--guards",
            "torps",
            "--guards-per-client",
            "3",
            "--kind",
            "mixed",
        ],
        &[
            "--guards",
            "fresh",
            "--kind",
            "internal",
            "--direction",
            "undirected",
        ],
    ] {
        let words = [&["--model", "full", "--circuits-per-client", "4"], words].concat();
        let (is_done, printed) = links(&words);
        assert!(is_done && printed.contains("full less simple"), "{printed}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, "network-status-version 3\n").unwrap();
    let strangers = folder.path().join("microdescs");
    std::fs::write(&strangers, "onion-key\nntor-onion-key a\n").unwrap();
    let (other, strangers) = (other.to_str().unwrap(), strangers.to_str().unwrap());
    let full = |words: &[&str]| links(&[&["--model", "full"], words].concat());
    for ((is_done, printed), reason) in [
        (full(&["--guards-per-client", "4"]), "between 1 and 3"),
        (full(&["--microdescs", other]), "no line is `onion-key`"),
        (
            full(&["--microdescs", strangers]),
            "0 of 6,500 relays have a microdescriptor",
        ),
        (
            full(&["--microdescs", "/nonexistent/microdescs"]),
            "/nonexistent/microdescs",
        ),
        (
            full(&["--circuits-per-client", "0"]),
            "--circuits-per-client",
        ),
    ] {
        assert!(!is_done && printed.contains(reason), "{printed}");
    }
}
