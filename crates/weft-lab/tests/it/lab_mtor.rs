//! `weft lab mtor`: its shortest form, and what it refuses.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn mtor(args: &[&str]) -> Output {
    Command::new(crate::weft())
        .args(["lab", "mtor"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Output of a run whose folder has these files.
fn printed(args: &[&str], files: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("mtor");
    let kept = ["--format", "json", "--out", out.to_str().unwrap()];
    let run = mtor(&[args, &kept].concat());
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(0), "{errors}");
    for file in files {
        assert!(out.join(file).is_file(), "{file}");
    }
    serde_json::from_slice(&run.stdout).expect(&errors)
}

#[test]
fn the_quick_form_compares_all_arms() {
    let files = [
        "results.json",
        "downloads.toml",
        "equal.toml",
        "stall.toml",
        "relays-consensus",
        "regions.graphml",
        "report.html",
        "figure5.svg",
        "figure8.svg",
        "means.svg",
    ];
    // A third of the quick form's network and users: minutes of a test run, and the same files.
    let smaller = ["--scale", "0.3", "--load", "0.3"];
    let args = ["--testbed", "virtual", "--quick", "--seed", "1"];
    let results = printed(&[&args[..], &smaller].concat(), &files);
    assert_eq!(results["finished"], true);
    for name in ["stor", "mtor2", "mtor3", "mtor5", "mtor5_common", "conflux"] {
        let arm = &results["arms"][name];
        let count = |name: &str| arm["sizes"]["5_mb"][name].as_u64().unwrap();
        let counts = (count("downloads"), count("open"), count("failed"));
        assert_eq!(counts, (6, 0, 0), "{arm:#}");
        for name in ["mean", "stddev", "ci95", "p10", "p50"] {
            let number = arm["seconds"][name].as_f64();
            assert!(number.is_some_and(|number| number > 0.0), "{arm:#}");
        }
        for name in ["p90", "p99"] {
            assert!(arm["seconds"].get(name).is_some(), "{arm:#}");
        }
        assert!(arm["goodput_mbit"].as_f64().unwrap() > 0.0, "{arm:#}");
        assert!(arm["replaced"].is_u64(), "{arm:#}");
        for size in ["5_mb", "10_mb"] {
            assert!(arm["sizes"][size]["seconds"]["mean"].is_number(), "{arm:#}");
        }
    }
    assert!(
        results["arms"]["mtor5"]["reorder_bytes_max"]
            .as_u64()
            .unwrap()
            > 0
    );
    // Only tunnels have legs of their own.
    assert_eq!(results["arms"]["stor"]["launched"], 0);
    assert!(results["arms"]["mtor5"]["launched"].as_u64().unwrap() >= 16 * 5);
    let ratio = &results["bars"]["equal_goodput_ratio"];
    assert!(ratio["value"].as_f64().unwrap() >= 4.0, "{ratio:#}");
    let added = &results["bars"]["stall_added_percent"];
    assert!(added["value"].as_f64().unwrap() <= 20.0, "{added:#}");
    assert!(results["bars"]["stddev_ratio"]["value"].is_number());
}

#[test]
fn web_clients_beside_bulk_clients_are_the_same_on_any_number_of_threads() {
    let run = |threads: &str| {
        let args = [
            "--contention",
            "heavy",
            "--quick",
            "--scale",
            "0.05",
            "--capacity",
            "0.1",
            "--repetitions",
            "1",
            "--warm-up",
            "60",
            "--duration",
            "20",
            "--arm",
            "mtor3",
            "--threads",
            threads,
        ];
        printed(
            &args,
            &[
                "results.json",
                "heavy.toml",
                "heavy.svg",
                "relays-consensus",
            ],
        )
    };
    let results = run("1");
    for arm in ["stor", "mtor3"] {
        let arm = &results["contention"]["heavy"][arm];
        for number in [
            &arm["web"]["seconds"]["p50"],
            &arm["web"]["first_byte_seconds"]["p50"],
            &arm["bulk_mbit"]["mean"],
            &arm["fast_percent"]["of_capacity"],
        ] {
            assert!(
                number.as_f64().is_some_and(|number| number > 0.0),
                "{arm:#}"
            );
        }
    }
    let share = |arm: &str, of: &str| {
        let arm = &results["contention"]["heavy"][arm];
        arm[of]["of_capacity"].as_f64().unwrap()
    };
    assert!(share("mtor3", "fast_percent") < share("stor", "fast_percent"));
    assert!(share("mtor3", "slow_percent") > share("stor", "slow_percent"));
    assert!(results["bars"]["web_ratio"]["value"].is_number());
    assert_eq!(run("2"), results);
}

#[test]
fn arguments_that_make_no_sense_are_refused_before_anything_is_written() {
    for (wrong, why) in [
        (
            &["--scale", "0"][..],
            "it must be a number from 0.001 to 10",
        ),
        (&["--load", "0"], "it must be a number from 0.001 to 100"),
        (&["--slow", "0.9"], "it must be a number from 0 to 0.8"),
        (
            &["--capacity", "0"],
            "it must be a number from 0.001 to 1000",
        ),
        (&["--warm-up", "73"], "--warm-up is a multiple of 10 s"),
        (&["--warm-up", "40"], "--warm-up is more than 40 s"),
        (
            &["--contention", "--duration", "15"],
            "--duration is a multiple of 10 s",
        ),
        (&["--contention", "--size", "5"], "cannot be used with"),
        (&["--contention", "hevy"], "heavy"),
        (&["--arm", "mtor7"], "it is one of stor, mtor2"),
        (&["--arm", "x:multipaht=3"], "multipaht"),
        (
            &["--arm", "x:multipath=17"],
            "multipath is a number of circuits",
        ),
        (
            &["--arm", "conflux", "--congestion-control", "off"],
            "conflux needs congestion control",
        ),
        (
            &["--consensus", "/nowhere"],
            "/nowhere: cannot open it: No such file",
        ),
        (
            &["--simulations", "/tmp/x"],
            "--simulations is for --testbed shadow",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("none");
        let run = mtor(&[wrong, &["--quick", "--out", out.to_str().unwrap()]].concat());
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success(), "{wrong:?}");
        assert!(errors.contains(why), "{wrong:?}: {errors}");
        assert!(!out.exists(), "{wrong:?}");
    }
}
