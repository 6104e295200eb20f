//! `weft lab cci` on a testbed: its shortest form, and what it refuses.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weft_testing::not_run;

fn cci(args: &str) -> Output {
    Command::new(crate::weft())
        .args(["lab", "cci"])
        .args(args.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn the_quick_form_measures_circuits_with_and_without_loss() {
    if let Some(missing) = weft_testnet::net::missing() {
        return not_run!("{missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("cci");
    let run = cci(&format!(
        "--quick --seed 1 --arms weft,weft-pctls --traffic bulk --congestion-control off --seconds 2 --patience 900 --format json --out {}",
        out.display()
    ));
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    let printed: Value = serde_json::from_slice(&run.stdout).expect(&errors);
    assert_eq!(run.status.code(), Some(0), "{errors}\n{printed:#}");
    let cells = printed["cells"].as_array().unwrap();
    let of = |name: &str| -> Vec<&str> {
        let values = cells.iter().map(|cell| cell[name].as_str());
        values.collect::<Option<_>>().unwrap()
    };
    assert_eq!(of("arm"), ["weft", "weft-pctls", "weft", "weft-pctls"]);
    let scenarios = [
        "NoDropping",
        "NoDropping",
        "SharedDropping",
        "SharedDropping",
    ];
    assert_eq!(of("scenario"), scenarios);
    for cell in cells {
        assert!(
            cell["goodput_mbit"]["mean"].as_f64().unwrap() > 0.0,
            "{cell:#}"
        );
        // Eight users of one repetition share its links.
        assert!(cell["goodput_mbit"]["ci95"].is_null(), "{cell:#}");
        let is_lossy = cell["scenario"] == "SharedDropping";
        assert_eq!(cell["lost_percent"].is_number(), is_lossy, "{cell:#}");
    }
    // Each of the eight circuits has a connection of its own on both links between relays.
    let sockets = |place: usize| cells[place]["relays_sockets"]["mean"].as_f64().unwrap();
    assert!(sockets(1) > sockets(0) + 16.0, "{printed:#}");
    for file in [
        "results.json",
        "run.json",
        "streams.jsonl",
        "report.html",
        "goodput.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
}

#[test]
fn in_virtual_time_one_seed_gives_one_result() {
    let folder = tempfile::tempdir().unwrap();
    let measure = |name: &str| -> Value {
        let out = folder.path().join(name);
        let run = cci(&format!(
            "--testbed virtual --quick --scenarios no-dropping,shared-dropping,two --arms weft,weft-pctls --traffic bulk \
             --congestion-control off --seconds 3 --warm-up 4 --format json --out {}",
            out.display()
        ));
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(0), "{errors}");
        assert!(out.join("report.html").is_file());
        serde_json::from_slice(&run.stdout).expect(&errors)
    };
    let first = measure("first");
    let cells = first["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 6);
    for cell in cells {
        let goodput = cell["goodput_mbit"]["mean"].as_f64().unwrap();
        assert!((0.5..40.0).contains(&goodput), "{cell:#}");
    }
    let lost = |place: usize| cells[place]["lost_percent"].as_f64().unwrap();
    // Shared connections lose more, and a connection for each circuit needs more of them.
    assert!(lost(2) > lost(3) + 10.0, "{first:#}");
    let sockets = |place: usize| cells[place]["relays_sockets"]["mean"].as_f64().unwrap();
    assert!(sockets(1) > sockets(0) + 16.0, "{first:#}");
    assert_eq!(first["cells"], measure("second")["cells"]);
    let run = cci("--testbed virtual --arms tor");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && errors.contains("C tor does not run"),
        "{errors}"
    );
}

#[test]
fn what_is_not_there_is_named() {
    for (args, expected) in [
        ("--scenarios four", "no-dropping"),
        ("--arms weft-pctl", "weft-pctls"),
        ("--program /nonexistent/weft", "there is no program at"),
        ("--repetitions 0", "from 1 to 1000"),
    ] {
        let run = cci(args);
        let errors = String::from_utf8_lossy(&run.stderr);
        let is_known = errors.contains(expected) || weft_testnet::net::missing().is_some();
        assert!(!run.status.success() && is_known, "{args}: {errors}");
    }
}
