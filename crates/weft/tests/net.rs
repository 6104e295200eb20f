//! `weft lab net` as its users run it. It needs privileges; where they are missing, the tests report it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use weft_lab::net::missing;

fn weft() -> Command {
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.args(["lab", "net"]).stdin(Stdio::null());
    weft
}

/// A testbed that is up, run by a `weft` of its own.
struct Up {
    process: Child,
    name: String,
    summary: serde_json::Value,
}

impl Up {
    fn start(name: &str) -> Up {
        let name = format!("cli-{}-{name}", std::process::id());
        let mut process = weft()
            .args(["up", "pair", "--json", "--name", &name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        Up {
            process,
            summary: serde_json::from_str(&line).unwrap(),
            name,
        }
    }

    fn is_gone(&self) -> bool {
        let spaces =
            ["client", "server"].map(|host| format!("/run/netns/weft-{}-{host}", self.name));
        let folder = format!("/run/weft-net/{}", self.name);
        !spaces.iter().any(|path| Path::new(path).exists()) && !Path::new(&folder).exists()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It has ended where the test went well; otherwise its guardian removes what it made.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_program_in_one_host_reaches_another_and_down_removes_all() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let mut up = Up::start("down");
    assert!(!up.is_gone());
    let host = &up.summary["hosts"][0];
    assert_eq!(host["name"], "client");
    assert_eq!(host["address"], "10.1.0.1");
    let route = Command::new("ip")
        .args(["netns", "exec", host["namespace"].as_str().unwrap()])
        .args(["ip", "route", "get", "10.2.0.1"])
        .output()
        .unwrap();
    let route = String::from_utf8(route.stdout).unwrap();
    assert!(route.contains("dev weft0 src 10.1.0.1"), "{route}");
    let output = weft().args(["down", &up.name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(up.process.wait().unwrap().success());
    assert!(up.is_gone());
}

#[test]
fn a_second_of_one_name_is_refused_with_what_to_do() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let mut up = Up::start("twice");
    let output = weft()
        .args(["up", "pair", "--name", &up.name])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        text.contains(&format!("weft lab net down {}", up.name)),
        "{text}"
    );
    assert!(weft().args(["down", &up.name]).status().unwrap().success());
    assert!(up.process.wait().unwrap().success());
}

#[test]
fn a_testbed_that_is_killed_is_removed_by_its_guardian() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let mut up = Up::start("killed");
    up.process.kill().unwrap();
    up.process.wait().unwrap();
    for _ in 0..3_000 {
        if up.is_gone() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{} is still there", up.name);
}

#[test]
fn a_probe_measures_each_way_of_each_link() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let output = weft()
        .args([
            "probe",
            "pair",
            "--packets",
            "100",
            "--seconds",
            "1",
            "--format",
            "json",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["finished"], true);
    let directions = results["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 2);
    for direction in directions {
        assert!(direction["least_ms"].as_f64().unwrap() >= 50.0);
        assert_eq!(direction["lost"], 0);
    }
    assert!(results["bulk"]["goodput_mbit"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_is_wrong_with_a_topology_is_printed() {
    let output = weft().args(["up", "par"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        text.contains("no built-in topology") && text.contains("eight-pairs"),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, "name = \"x\"\nhosts = [\"a\"]\nswitchs = []\n").unwrap();
    let output = weft().arg("up").arg(&file).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("wrong.toml:3: unknown key \"switchs\"; did you mean switches?"),
        "{text}"
    );
}

#[test]
fn topologies_are_listed_and_printed() {
    let output = weft().arg("topology").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|name| name == "pahl-shared-dropping"));
    let output = weft().args(["topology", "pair"]).output().unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("delay = \"50 ms\"")
    );
}
