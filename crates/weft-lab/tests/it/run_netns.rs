//! `weft lab run --testbed netns`: a scenario on real processes, with the report that virtual time has.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weft_testing::not_run;

fn run(scenario: &Path, out: &Path) -> Output {
    Command::new(crate::weft())
        .args([
            "lab",
            "run",
            "--testbed",
            "netns",
            "--format",
            "json",
            "--out",
        ])
        .args([out, scenario])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// One user, and one relay for each hop.
const SCENARIO: &str = r#"
duration = "6 s"
[network]
delay = "10 ms"
[[host]]
name = "client"
down = "20 Mbit/s"
[[host]]
name = "relay"
count = 3
[[host]]
name = "server"
[[relay]]
host = "relay-1"
roles = ["guard"]
[[relay]]
host = "relay-2"
[[relay]]
host = "relay-3"
roles = ["exit"]
[[clients]]
hosts = ["client"]
model = { download = "200 kB", pause = "500 ms" }
start = "1 s"
[[servers]]
hosts = ["server"]
"#;

#[test]
fn a_scenario_runs_on_real_processes() {
    if let Some(missing) = weft_testnet::net::missing() {
        return not_run!("{missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("small.toml");
    fs::write(&scenario, SCENARIO).unwrap();
    let out = folder.path().join("out");
    let run = run(&scenario, &out);
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    let results: Value = serde_json::from_slice(&run.stdout).expect(&errors);
    assert_eq!(run.status.code(), Some(0), "{errors}\n{results:#}");
    assert_eq!(results["testbed"], "netns");
    assert_eq!(results["relays"], 3);
    let streams = &results["streams"];
    assert!(streams["complete"].as_u64().unwrap() > 0, "{streams:#}");
    assert_eq!(streams["failed"], 0, "{streams:#}");
    // Four paths there and back, twice: for the connection, and for the first byte.
    let first = streams["ttfb_ms"]["p50"].as_f64().unwrap();
    assert!(first > 160.0, "{streams:#}");
    // Cells of the payload cross three links of relays.
    let payload = streams["down_bytes"].as_u64().unwrap();
    let relayed = results["relayed_bytes"].as_u64().unwrap();
    assert!(relayed > 3 * payload, "{relayed} of {payload}");
    let lines = fs::read_to_string(out.join("circuits.csv")).unwrap();
    let path = ["relay-1", "relay-2", "relay-3"];
    let is_ours = |line: &str| path.iter().all(|name| line.contains(name));
    // One that begins while relays still start may end before it has a first hop.
    let is_built = |line: &&str| {
        line.split(',')
            .nth(5)
            .is_some_and(|built| !built.is_empty())
    };
    let mut circuits = lines.lines().skip(1).filter(is_built);
    assert!(
        circuits.clone().count() > 0 && circuits.all(is_ours),
        "{lines}"
    );
    for file in ["streams.jsonl", "relays.csv", "report.html", "ttlb.svg"] {
        assert!(out.join(file).is_file(), "{file}");
    }
}

/// Relays of a synthetic network, and one user.
fn drawn(clients: u32) -> String {
    format!(
        "duration = \"6 s\"\n[network]\nsynthetic = {{ relays = 5 }}\nbuckets = true\n\
         [[clients]]\ncount = {clients}\nmodel = {{ download = \"200 kB\", pause = \"500 ms\" }}\n[[servers]]\n"
    )
}

#[test]
fn a_network_that_is_drawn_runs_on_real_processes() {
    if let Some(missing) = weft_testnet::net::missing() {
        return not_run!("{missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("drawn.toml");
    fs::write(&scenario, drawn(1)).unwrap();
    let run = run(&scenario, &folder.path().join("out"));
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    let results: Value = serde_json::from_slice(&run.stdout).expect(&errors);
    assert_eq!(run.status.code(), Some(0), "{errors}\n{results:#}");
    let streams = &results["streams"];
    assert!(streams["complete"].as_u64().unwrap() > 0, "{streams:#}");
    assert_eq!(streams["failed"], 0, "{streams:#}");
}

#[test]
fn more_hosts_than_fit_are_refused() {
    if let Some(missing) = weft_testnet::net::missing() {
        return not_run!("{missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("drawn.toml");
    fs::write(&scenario, drawn(200)).unwrap();
    let out = folder.path().join("out");
    let run = run(&scenario, &out);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        errors.contains("206 hosts") && errors.contains("150 at most"),
        "{errors}"
    );
    assert!(!out.exists());
}
