//! `weft lab hops`, briefly: what it writes, and what it refuses. Nothing here depends on how fast anything is.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn hops(args: &[&str], folder: &Path) -> Output {
    Command::new(crate::weft())
        .args(["lab", "hops", "--without-ipv8"])
        .args(args)
        .arg("--out")
        .arg(folder)
        .output()
        .unwrap()
}

/// Checks that the numbers of a role make sense at this number of hops, with congestion control and
/// without.
fn check(results: &Value, hops: u64, role: &str) {
    let controls = match hops {
        0 | 1 => vec![Value::Null],
        _ => vec![false.into(), true.into()],
    };
    for control in controls {
        check_one(results, hops, &control, role);
    }
}

fn check_one(results: &Value, hops: u64, control: &Value, role: &str) {
    let roles = results["roles"].as_array().unwrap();
    let found = roles.iter().find(|one| {
        one["hops"] == hops && one["role"] == role && one["congestion_control"] == *control
    });
    let found = found.unwrap_or_else(|| panic!("no {role} of {hops} hops: {roles:#?}"));
    let number = |name: &str| found[name].as_f64().unwrap();
    assert_eq!(found["circuits"], 2);
    assert!(number("mbit") > 0.0, "{found:#}");
    assert!(number("cpu_s_per_gb") > 0.0, "{found:#}");
    // Without Tor a transfer takes some ticks of the clock that samples: there may be none.
    let sampled = found["samples"].as_u64().unwrap() > 0;
    assert!(sampled || role == "lab", "{found:#}");
    let whole = if sampled { 1.0 } else { 0.0 };
    let all = number("crypto") + number("networking") + number("other");
    assert!((all - whole).abs() < 1e-6, "{found:#}");
    let functions = found["top_functions"].as_array().unwrap();
    assert_eq!(functions.is_empty(), !sampled);
    for one in functions {
        assert!(one["percent"].as_f64().unwrap() > 0.0, "{one}");
        assert!(!one["name"].as_str().unwrap().is_empty(), "{one}");
    }
}

#[test]
fn every_role_is_profiled_over_each_number_of_hops() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("hops");
    let args = "--repetitions 1 --megabytes 40 --circuits 2 --format json";
    let args: Vec<&str> = args.split(' ').collect();
    let output = hops(&args, &folder);
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{shown}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(results["finished"], true);
    assert_eq!(results["settings"]["seed"], 1);
    check(&results, 0, "lab");
    check(&results, 1, "relay");
    for role in ["sink", "entry", "exit"] {
        check(&results, 2, role);
    }
    for role in ["sink", "entry", "middle", "exit"] {
        check(&results, 3, role);
    }
    assert_eq!(results["bars"].as_array().unwrap().len(), 1);
    // Names of functions are found, and the kernel's part of them.
    let functions = results["roles"].to_string();
    for name in ["weft_", "epoll_wait"] {
        assert!(functions.contains(name), "{name}");
    }
    for name in [
        "results.json",
        "table.txt",
        "throughput.svg",
        "shares.svg",
        "pies.svg",
        "flame-1-relay.svg",
        "flame-3-middle.svg",
    ] {
        assert!(folder.join(name).is_file(), "{name}");
    }
    let kept = std::fs::read_to_string(folder.join("results.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), results);
}

#[test]
fn what_makes_no_experiment_is_refused_before_anything_starts() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("hops");
    for (args, expected) in [
        (["--hops", "4"], "it must be a whole number from 0 to 3"),
        (["--hops", "-1"], "it must be a whole number from 0 to 3"),
        (
            ["--circuits", "0"],
            "it must be a whole number from 1 to 64",
        ),
        (
            ["--megabytes", "0"],
            "it must be a whole number from 1 to 1000000",
        ),
        (
            ["--repetitions", "0"],
            "it must be a whole number from 1 to 1000",
        ),
        (["--program", "/nonexistent"], "/nonexistent"),
    ] {
        let output = hops(&args, &folder);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(shown.contains(expected), "{args:?}: {shown}");
        assert!(!folder.exists(), "{args:?}");
    }
}

#[test]
fn without_the_packages_of_python_the_rest_is_measured() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("hops");
    let args = "--hops 1 --circuits 1 --repetitions 1 --megabytes 1 --format json --python";
    let output = Command::new(crate::weft())
        .args(["lab", "hops"])
        .args(args.split(' '))
        // It runs, and has no package.
        .arg("/bin/false")
        .arg("--out")
        .arg(&folder)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{shown}");
    let install = "/bin/false -m pip install pyipv8 ipv8-rust-tunnels";
    assert!(shown.contains(install), "{shown}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(
        results["tunnels_missing"]
            .as_str()
            .unwrap()
            .contains(install)
    );
    assert_eq!(results["roles"].as_array().unwrap().len(), 2);
}
