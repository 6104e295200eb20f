//! `weft lab selection`: its shortest form, and what it refuses.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn selection(args: &[&str]) -> Output {
    Command::new(crate::weft())
        .args(["lab", "selection"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Output of the quick form.
fn quick(more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("selection");
    let out_text = out.to_str().unwrap();
    let words = ["--testbed", "virtual", "--quick", "--seed", "1"];
    let kept = ["--format", "json", "--out", out_text];
    let run = selection(&[&words, more, &kept].concat());
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(0), "{errors}");
    for file in [
        "results.json",
        "scenario.toml",
        "report.html",
        "ttfb.svg",
        "web.svg",
        "bulk.svg",
        "relayed.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    serde_json::from_slice(&run.stdout).expect(&errors)
}

#[test]
fn the_quick_form_compares_all_arms() {
    let printed = quick(&["--warm-up", "20"]);
    for arm in ["default", "abra", "rtt", "abra_rtt"] {
        let arm = &printed["arms"][arm];
        for quantity in ["relayed_bytes", "ttfb_ms", "web_ms", "bulk_ms"] {
            for percentile in ["p10", "p50"] {
                let number = arm[quantity][percentile].as_f64();
                assert!(number.is_some_and(|number| number > 0.0), "{arm:#}");
                assert!(arm[quantity]["ci95"][percentile].is_number(), "{arm:#}");
                let change = &arm["change_percent"][quantity][percentile];
                assert!(change.is_number(), "{arm:#}");
            }
            for percentile in ["p90", "p99"] {
                assert!(arm[quantity].get(percentile).is_some(), "{arm:#}");
            }
        }
    }
    // Nothing differs from itself.
    let change = &printed["arms"]["default"]["change_percent"]["ttfb_ms"]["p50"];
    assert_eq!(change.as_f64(), Some(0.0));
    // The arms are not all alike.
    let streams = |arm: &str| printed["arms"][arm]["ttfb_ms"].clone();
    assert_ne!(streams("default"), streams("rtt"));
    assert_ne!(streams("default"), streams("abra"));
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let run = |threads: &str| {
        quick(&[
            "--arm",
            "abra-rtt",
            "--duration",
            "10",
            "--warm-up",
            "20",
            "--repetitions",
            "1",
            "--threads",
            threads,
        ])
    };
    assert_eq!(run("2"), run("1"));
}

/// Output of `weft sim`.
fn sim(args: &[&str]) -> Value {
    let run = Command::new(crate::weft())
        .arg("sim")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(0), "{errors}");
    serde_json::from_slice(&run.stdout).expect(&errors)
}

#[test]
fn circuits_and_choices_of_the_lab_are_read_by_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("selection");
    let run = selection(&[
        "--quick",
        "--repetitions",
        "1",
        "--arm",
        "abra",
        "--adversary",
        "0.3",
        "--pools",
        "watching-30",
        "--measure",
        "20",
        "--download",
        "50 kB",
        "--format",
        "json",
        "--out",
        out.to_str().unwrap(),
    ]);
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(0), "{errors}");
    let printed: Value = serde_json::from_slice(&run.stdout).expect(&errors);
    let circuits = printed["measured_circuits"].as_u64().unwrap();
    assert!(circuits >= 100, "{circuits}");

    let csv = out.join("circuits.csv");
    let text = std::fs::read_to_string(&csv).unwrap();
    let head = text.lines().next().unwrap();
    assert_eq!(head, "build_ms,rtt_ms,latency_ms,bandwidth_mbit,client");
    let compared = sim(&[
        "selection",
        "--tuples",
        csv.to_str().unwrap(),
        "--quantile",
        "0.8",
        "--limit",
        "ranked",
        "--format",
        "json",
    ]);
    assert_eq!(compared["circuits"].as_u64(), Some(circuits));
    assert_eq!(compared["clients"].as_u64(), Some(20));
    for rule in ["cbt", "rtt", "both"] {
        assert!(
            compared[rule]["latency_ms"]["p50"].is_number(),
            "{compared:#}"
        );
    }

    let pools = out.join("pools.jsonl");
    let again = sim(&[
        "compromise",
        "abra",
        "--pools",
        pools.to_str().unwrap(),
        "--percent",
        "0,100",
        "--adversaries",
        "3",
        "--format",
        "json",
    ]);
    let points = again["points"].as_array().unwrap();
    // The adversary of the run is first: its relays are known.
    assert!(points[0]["fraction"].is_null(), "{again:#}");
    for (point, percent) in points[1..].iter().zip([0.0, 100.0]) {
        for what in ["honest", "lying", "tiny", "blind", "chosen"] {
            let median = point[what]["median"].as_f64().unwrap();
            assert!((median - percent).abs() < 1e-6, "{again:#}");
        }
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused_before_anything_is_written() {
    for (wrong, why) in [
        (
            &["--scale", "0"][..],
            "it must be a number from 0.001 to 10",
        ),
        (&["--load", "0"], "it must be a number from 0.001 to 100"),
        (
            &["--capacity", "0"],
            "it must be a number from 0.001 to 1000",
        ),
        (&["--adversary", "2"], "it must be a number from 0 to 1"),
        (&["--duration", "15"], "--duration is a multiple of 10 s"),
        (&["--warm-up", "3"], "--warm-up is a multiple of 10 s"),
        (
            &["--arm", "arba"],
            "it is one of default, abra, rtt, abra-rtt",
        ),
        (&["--arm", "x:acceptence=rtt"], "acceptence"),
        (
            &["--consensus", "/nowhere"],
            "/nowhere: cannot open it: No such file",
        ),
        (&["--repetitions", "0"], "--repetitions"),
        (&["--pools", "nobody"], "--pools nobody: no arm is named so"),
        (&["--pools", "rtt"], "--pools rtt: this arm does not choose"),
        (&["--download", "1 MB"], "--measure"),
        (
            &["--measure", "2", "--download", "0"],
            "it must be a whole number of bytes from 1 to",
        ),
        (
            &["--measure", "2", "--testbed", "netns"],
            "are for --testbed virtual",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("none");
        let run = selection(&[wrong, &["--quick", "--out", out.to_str().unwrap()]].concat());
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success(), "{wrong:?}");
        assert!(errors.contains(why), "{wrong:?}: {errors}");
        assert!(!out.exists(), "{wrong:?}");
    }
}
