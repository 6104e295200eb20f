//! `weft lab run` and `weft lab selection` with `--testbed shadow`: what they write for Shadow, and what they make of what hosts
//! wrote. No Shadow is needed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Without a Shadow, wherever it may be on this machine.
fn lab(args: &[&str]) -> Output {
    Command::new(crate::weft())
        .arg("lab")
        .args(args)
        .env("PATH", "/nonexistent")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .expect("weft runs")
}

fn errors(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

/// Two arms, one user, and one relay for each hop.
const SCENARIO: &str = r#"
duration = "20 s"
interval = "10 s"
[network]
delay = "10 ms"
[[host]]
name = "client"
down = "20 Mbit/s"
[[host]]
name = "relay"
count = 3
up = "8 Mbit/s"
[[host]]
name = "server"
[[relay]]
host = "relay-1"
roles = ["guard"]
[[relay]]
host = "relay-2"
bandwidth = "34568 kbit/s"
[[relay]]
host = "relay-3"
roles = ["exit"]
[[clients]]
hosts = ["client"]
name = "web"
model = { download = "200 kB", pause = ["500 ms", "1 s"] }
start = "1 s"
[[servers]]
hosts = ["server"]
[[arm]]
name = "plain"
[[arm]]
name = "by-weight"
selection = "abra-stay"
acceptance = "rtt"
"#;

/// A scenario in a folder of its own, and where its results and simulations go.
struct Run {
    place: tempfile::TempDir,
}

impl Run {
    fn new(scenario: &str) -> Run {
        let place = tempfile::tempdir().expect("a folder");
        fs::write(place.path().join("small.toml"), scenario).expect("written");
        Run { place }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn simulations(&self) -> PathBuf {
        self.at("simulations")
    }

    fn run(&self, out: &str, more: &[&str]) -> Output {
        let [scenario, out, simulations] =
            [self.at("small.toml"), self.at(out), self.simulations()]
                .map(|path| path.to_str().expect("UTF-8").to_owned());
        let args = [
            "run",
            "--testbed",
            "shadow",
            "--format",
            "json",
            "--out",
            &out,
            "--simulations",
            &simulations,
        ];
        lab(&[&args[..], more, &[&scenario]].concat())
    }

    /// The folder of an arm's simulation, once it is written.
    fn of_arm(&self, name: &str) -> PathBuf {
        self.simulations().join(name)
    }
}

/// The lines of a host.
fn host<'y>(yaml: &'y str, name: &str) -> Vec<&'y str> {
    let lines = yaml
        .lines()
        .skip_while(|line| *line != format!("  {name}:"));
    let own = lines.skip(1).take_while(|line| line.starts_with("    "));
    own.map(str::trim).collect()
}

#[test]
fn without_shadow_simulations_are_written_and_it_is_said_what_to_do() {
    let run = Run::new(SCENARIO);
    let first = run.run("results", &[]);
    assert_eq!(first.status.code(), Some(1));
    let said = errors(&first);
    let plain = run.of_arm("plain-1");
    for words in [
        "Shadow is not installed",
        "docs/shadow.md",
        "2 simulations are written",
        &format!("--simulations {}", run.simulations().display()),
        &format!(
            "(cd {} && shadow shadow.yaml > shadow.log)",
            plain.display()
        ),
        "by-weight-1",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    // Results have a folder only if there are some.
    assert!(!run.at("results").exists());

    let yaml = fs::read_to_string(plain.join("shadow.yaml")).expect("a configuration");
    for line in [
        "stop_time: \"235000000 us\"",
        "bootstrap_end_time: \"180000000 us\"",
        "template_directory: \"template\"",
        "use_cpu_pinning: false",
        "host_bandwidth_up \"8000000 bit\"",
        "latency \"10000000 ns\"",
    ] {
        assert!(
            yaml.lines().any(|one| one.trim() == line),
            "{line} in {yaml}"
        );
    }
    // A node and what measures beside it.
    for (name, node) in [("client", "client0"), ("relay-2", "relay1")] {
        let lines = host(&yaml, name);
        let torrc = format!("- \"{node}/torrc\"");
        let work = format!("- \"{node}/work.json\"");
        for word in [&*torrc, &*work, "- \"simulated-host\"", "exited: 0"] {
            assert!(lines.contains(&word), "{word} in {lines:?}");
        }
    }
    assert!(host(&yaml, "server").contains(&"- \"flow-server\""));
    let starts = yaml.lines().filter(|line| line.contains("start_time:"));
    let mut starts: Vec<&str> = starts.collect();
    let all = starts.len();
    starts.sort_unstable();
    starts.dedup();
    // The server starts with the authority, and the processes that measure relays with those that measure clients.
    assert!(all - starts.len() <= 2, "{starts:?}");

    let hosts = plain.join("template/hosts");
    let read = |path: &str| fs::read_to_string(hosts.join(path)).expect(path);
    let client = read("client/client0/torrc");
    for line in [
        "EntryNodes relay0",
        "MiddleNodes relay0,relay1,relay2",
        "ExitNodes relay2",
        "CircuitSelection default",
        "DataDirectory client0/data",
        "MaxMemInQueues 1 GB",
    ] {
        assert!(client.lines().any(|one| one == line), "{line} in {client}");
    }
    let other = run.of_arm("by-weight-1/template/hosts/client/client0/torrc");
    let other = fs::read_to_string(other).expect("a torrc");
    assert!(other.contains("CircuitSelection abra-stay\n"), "{other}");
    assert!(other.contains("CircuitAcceptance rtt\n"), "{other}");
    // The authority lists the scenario's weights.
    let authority = read("authority/authority/torrc");
    assert!(
        authority.contains("V3BandwidthsFile bandwidths\n"),
        "{authority}"
    );
    let fingerprint = read("relay-2/relay1/data/fingerprint");
    let fingerprint = fingerprint.split_whitespace().nth(1).expect("one");
    let bandwidths = read("authority/bandwidths");
    assert!(bandwidths.starts_with("946684800\n"), "{bandwidths}");
    let line = format!("node_id=${fingerprint} bw=4321\n");
    assert!(bandwidths.contains(&line), "{bandwidths}");

    // Weft takes every torrc as it is, in the folder where Shadow starts it.
    for (name, node) in [
        ("authority", "authority"),
        ("client", "client0"),
        ("relay-1", "relay0"),
        ("relay-3", "relay2"),
    ] {
        let torrc = format!("{node}/torrc");
        let checked = Command::new(crate::weft())
            .args([
                "--defaults-torrc",
                "/dev/null",
                "-f",
                &torrc,
                "--verify-config",
            ])
            .current_dir(hosts.join(name))
            .output()
            .expect("weft runs");
        assert!(checked.status.success(), "{node}: {}", errors(&checked));
    }

    // Once more: what is there stays, and belongs to this run alone.
    let again = run.run("results", &[]);
    assert!(errors(&again).contains("2 simulations are written"));
    assert_eq!(
        fs::read_to_string(plain.join("shadow.yaml")).expect("a configuration"),
        yaml
    );
    let other = run.run("results", &["--seed", "2"]);
    assert!(
        errors(&other).contains("of another run"),
        "{}",
        errors(&other)
    );
}

/// Writes the output that Shadow would leave of a simulation: a stream of 200 kB in each second,
/// and relays that write `written` bytes in each interval.
fn fake(simulation: &Path, written: u64) {
    let hosts = simulation.join("shadow.data/hosts");
    let write = |name: &str, file: &str, text: String| {
        let folder = hosts.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(file), text).expect("written");
    };
    for number in 1..=3 {
        let name = format!("relay-{number}");
        let relay = json!({
            "results": {
                "name": name, "written": [written, written], "queued": [0, 10], "weights": [0.0, 0.5], "busy": 0.0,
                "circuits": 7, "adversary": false,
            },
            "cells": written,
        });
        write(&name, "relay.json", relay.to_string());
    }
    let circuits = json!([{
        "client": "client", "path": ["relay-1", "relay-2", "relay-3"], "began": {"secs": 0, "nanos": 0},
        "built": {"secs": 0, "nanos": 200_000_000}, "round_trips": [{"secs": 0, "nanos": 90_000_000}],
    }]);
    write("client", "circuits.json", circuits.to_string());
    let way = |bytes: u64| {
        json!({
            "wanted": bytes, "bytes": bytes, "first_s": 0.2, "last_s": 0.6, "longest_gap_s": 0.1, "marks": [],
        })
    };
    let records = (1..20).map(|number| {
        let record = json!({
            "client": "client", "model": "web", "stream": number, "isolation": 0, "started_s": f64::from(number),
            "opened_s": 0.1, "answered_s": 0.175, "receipt_s": 0.6, "down": way(200_000), "up": way(0), "ended_s": 0.6,
            "outcome": "complete",
        });
        format!("{record}\n")
    });
    write("client", "records.jsonl", records.collect());
}

#[test]
fn what_hosts_wrote_becomes_the_tables_of_the_other_testbeds() {
    let run = Run::new(SCENARIO);
    assert_eq!(run.run("results", &[]).status.code(), Some(1));
    let (plain, other) = (run.of_arm("plain-1"), run.of_arm("by-weight-1"));
    fake(&plain, 1_000_000);
    // One of two: the other is still to be run.
    let said = errors(&run.run("results", &[]));
    assert!(said.contains("1 simulations are written"), "{said}");
    fake(&other, 1_500_000);
    let whole = run.run("results", &[]);
    assert_eq!(whole.status.code(), Some(0), "{}", errors(&whole));
    let printed: Value = serde_json::from_slice(&whole.stdout).expect("JSON");
    assert_eq!(printed["testbed"], "shadow");
    assert_eq!(printed["relayed_bytes"], 3 * 2_500_000);
    assert_eq!(printed["streams"]["count"], 38, "{printed:#}");
    assert_eq!(printed["relays"], 3);
    assert_eq!(printed["clients"], 1);
    for file in ["results.json", "report.html", "raw.csv"] {
        assert!(run.at("results").join(file).is_file(), "{file}");
    }

    // A missing or damaged file fails its job, with the file and the reason; the other job has its
    // results.
    let hosts = plain.join("shadow.data/hosts");
    let (relay, circuits) = (
        hosts.join("relay-2/relay.json"),
        hosts.join("client/circuits.json"),
    );
    let records = hosts.join("client/records.jsonl");
    let whole = [&relay, &circuits, &records].map(|path| fs::read(path).expect("a file"));
    for (number, (path, text, reason)) in [
        (&relay, Some(&b"{}"[..]), "has not the shape"),
        (&relay, Some(&b"\xff\xfe"[..]), "has not the shape"),
        (
            &circuits,
            None,
            "is missing: the simulation did not come to its end",
        ),
        (&circuits, Some(&b"[{]"[..]), "has not the shape"),
        (&records, None, "is missing"),
        (
            &records,
            Some(&b"{\"client\": \"x\"}\n"[..]),
            "is no record",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        match text {
            Some(text) => fs::write(path, text).expect("written"),
            None => fs::remove_file(path).expect("removed"),
        }
        let out = format!("damaged-{number}");
        let damaged = run.run(&out, &[]);
        assert_eq!(damaged.status.code(), Some(1));
        let printed: Value = serde_json::from_slice(&damaged.stdout).expect("JSON");
        let why = printed["failures"][0]["why"].as_str().expect("a reason");
        let shown = path.display().to_string();
        assert!(
            why.contains(&shown) && why.contains(reason),
            "{number}: {why}"
        );
        assert_eq!(printed["streams"]["count"], 19, "{printed:#}");
        for (path, bytes) in [&relay, &circuits, &records].iter().zip(&whole) {
            fs::write(path, bytes).expect("restored");
        }
    }
}

#[test]
fn shadow_that_fails_is_reported_with_the_end_of_its_log() {
    let run = Run::new(SCENARIO);
    let program = run.at("shadow");
    let script = "#!/bin/sh\necho '00:00:00.1 [ERROR] no such thing'\nexit 1\n";
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    let program = program.to_str().expect("UTF-8");
    let failed = run.run("results", &["--shadow", program]);
    assert_eq!(failed.status.code(), Some(1));
    let said = errors(&failed);
    assert!(
        said.contains("no such thing") && said.contains("shadow.log"),
        "{said}"
    );
}

#[test]
fn what_shadow_cannot_have_is_refused_before_anything_is_written() {
    let lies = SCENARIO.replace("acceptance = \"rtt\"", "adversary = 0.2\nlies = true");
    let taken = SCENARIO.replace("\"server\"", "\"authority\"");
    for (scenario, expected) in [
        (&*lies, "for --testbed virtual"),
        (&*taken, "--testbed shadow has a host named authority"),
    ] {
        let run = Run::new(scenario);
        let refused = run.run("results", &[]);
        assert_eq!(refused.status.code(), Some(1));
        let said = errors(&refused);
        assert!(said.contains(expected), "{expected} in {said}");
        assert!(!run.simulations().exists());
    }
    for (args, expected) in [
        (
            &["selection", "--quick", "--simulations", "/tmp/x"][..],
            "--simulations is for --testbed shadow",
        ),
        (
            &[
                "selection",
                "--quick",
                "--testbed",
                "shadow",
                "--shadow",
                "/nonexistent/shadow",
            ],
            "there is no program at",
        ),
        (
            &["selection", "--testbed", "shadow", "--scale", "1"],
            "hosts are more than --testbed shadow has room for",
        ),
    ] {
        let refused = lab(args);
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        let said = errors(&refused);
        assert!(said.contains(expected), "{expected} in {said}");
    }
}

/// Every arm is written, with the options that it stands for.
#[test]
fn ways_of_choosing_circuits_are_written_for_shadow() {
    let place = tempfile::tempdir().expect("a folder");
    let out = place.path().join("selection");
    let written = lab(&[
        "selection",
        "--testbed",
        "shadow",
        "--quick",
        "--repetitions",
        "1",
        "--arm",
        "abra-rtt",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    let said = errors(&written);
    assert_eq!(written.status.code(), Some(1), "{said}");
    assert!(said.contains("2 simulations are written"), "{said}");
    for (folder, line) in [
        ("default-1", "CircuitSelection default"),
        ("abra-rtt-1", "CircuitSelection abra"),
    ] {
        let hosts = out.join("simulations").join(folder).join("template/hosts");
        let names = fs::read_dir(&hosts).expect("hosts");
        let names = names.map(|entry| entry.expect("a host").file_name().into_string());
        let names: Vec<String> = names.collect::<Result<_, _>>().expect("UTF-8");
        // 12 relays, 30 clients and the authority; servers have no files.
        assert_eq!(names.len(), 43, "{names:?}");
        let clients = names.iter().filter(|name| name.starts_with("client"));
        let torrcs = clients.map(|name| {
            let of_host = fs::read_dir(hosts.join(name)).expect("a client");
            let node = of_host.flatten().find(|entry| entry.path().is_dir());
            fs::read_to_string(node.expect("a node").path().join("torrc")).expect("a torrc")
        });
        let torrcs: Vec<String> = torrcs.collect();
        assert_eq!(torrcs.len(), 30);
        for torrc in torrcs {
            assert!(torrc.lines().any(|one| one == line), "{line} in {torrc}");
        }
    }
}
