//! `weft lab traffic`: through a private network, a SOCKS port, nothing and a testbed; what it keeps and refuses.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use weft_load::proxy::{Behaviour, TestProxy};
use weft_testing::not_run;

fn command(args: &str) -> Command {
    let mut command = Command::new(crate::weft());
    command
        .args(["lab", "traffic"])
        .args(args.split_whitespace())
        .stdin(Stdio::null());
    command
}

fn traffic(args: &str) -> Output {
    command(args).output().unwrap()
}

fn printed(run: &Output) -> String {
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success(),
        "{errors}\n{}",
        String::from_utf8_lossy(&run.stdout)
    );
    String::from_utf8(run.stdout.clone()).unwrap()
}

/// A Markov model of `examples/traffic`.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/traffic")
        .join(name)
}

fn model<'a>(results: &'a Value, name: &str) -> &'a Value {
    let models = results["models"].as_array().unwrap();
    models.iter().find(|one| one["model"] == name).unwrap()
}

#[test]
fn users_of_every_kind_work_in_a_private_network() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let run = traffic(&format!(
        "--users bulk=1,page=2,performance=1,markov=2 --streams {} --packets {} --clients 2 --seconds 5 --format json \
         --out {}",
        example("streams.graphml").display(),
        example("packets.graphml").display(),
        out.display()
    ));
    let results: Value = serde_json::from_str(&printed(&run)).unwrap();
    assert_eq!(results["finished"], true);
    let streams = |name: &str| model(&results, name)["streams"].as_u64().unwrap();
    for name in ["bulk", "page", "performance", "markov"] {
        assert!(streams(name) > 0, "{name}: {results:#}");
    }
    assert!(model(&results, "page")["ttlb_ms"]["p50"].as_f64().unwrap() > 0.0);
    for file in [
        "results.json",
        "run.json",
        "raw.csv",
        "raw.jsonl",
        "report.html",
        "streams.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let lines = fs::read_to_string(out.join("streams.jsonl")).unwrap();
    let all: u64 = ["bulk", "page", "performance", "markov"]
        .into_iter()
        .map(streams)
        .sum();
    assert_eq!(lines.lines().count() as u64, all);
    let tgen = fs::read_to_string(out.join("tgen.analysis.json")).unwrap();
    let tgen: Value = serde_json::from_str(&tgen).unwrap();
    assert_eq!(tgen["type"], "tgen");
    assert!(tgen["data"]["perfclient1exit"].is_object(), "{tgen:#}");
}

#[test]
fn without_tor_repetitions_have_intervals() {
    let place = tempfile::tempdir().unwrap();
    let run = traffic(&format!(
        "--direct --users web=2 --seconds 1 --repetitions 2 --out {}",
        place.path().join("out").display()
    ));
    let text = printed(&run);
    for words in [
        "Through TCP without Tor.",
        " ± ",
        "Intervals",
        "Percentiles",
        "goodput, Mbit/s",
    ] {
        let report = fs::read_to_string(place.path().join("out/report.html")).unwrap();
        assert!(
            text.contains(words) || report.contains(words),
            "{words} in {text}"
        );
    }
}

#[test]
fn a_socks_port_that_is_there_is_used_by_every_user_under_its_own_name() {
    let proxy = TestProxy::start(Behaviour::Connect).unwrap();
    let place = tempfile::tempdir().unwrap();
    let run = traffic(&format!(
        "--socks {} --users page=1,web=2 --seconds 5 --format json --out {}",
        proxy.addr(),
        place.path().join("out").display()
    ));
    let results: Value = serde_json::from_str(&printed(&run)).unwrap();
    assert_eq!(model(&results, "web")["complete"], 2);
    let mut names: Vec<String> = proxy
        .asked()
        .into_iter()
        .filter_map(|one| one.credentials)
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names, ["page1-0:x", "web1-0:x", "web2-0:x"]);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let mut run = command(&format!(
        "--direct --users bulk=1 --seconds 600 --out {}",
        out.display()
    ))
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut errors = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap().contains("measuring")));
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let mut text = String::new();
    run.stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("PARTIAL") && text.contains("bulk"), "{text}");
    let kept: Value =
        serde_json::from_str(&fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    assert_eq!(kept["ending"], "stopped");
}

#[test]
fn ctrl_c_while_the_network_starts_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    // With this number of relays the start takes a while.
    let mut run = command(&format!(
        "--relays 20 --seconds 600 --out {}",
        out.display()
    ))
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut errors = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap().contains("starting")));
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let rest: Vec<String> = errors.map(Result::unwrap).collect();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{rest:?}");
    let expected = "stopped before anything was measured";
    assert!(rest.iter().any(|line| line.contains(expected)), "{rest:?}");
    assert!(!out.exists());
}

#[test]
fn a_network_on_a_testbed_carries_users() {
    if let Some(missing) = weft_testnet::net::missing() {
        return not_run!("{missing}");
    }
    let place = tempfile::tempdir().unwrap();
    let run = traffic(&format!(
        "--topology pahl-one --users page=3,bulk=1 --seconds 4 --format json --out {}",
        place.path().join("out").display()
    ));
    let results: Value = serde_json::from_str(&printed(&run)).unwrap();
    assert!(results["through"].as_str().unwrap().contains("pahl-one"));
    // 300 Mbit/s and 50 ms there and back from entry to exit: no round trip is shorter.
    let rtt = model(&results, "page")["rtt_ms"]["mean"].as_f64().unwrap();
    assert!(rtt > 50.0, "{results:#}");
}

#[test]
fn what_cannot_be_measured_is_named_with_what_to_do() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap();
    drop(nobody);
    let place = tempfile::tempdir().unwrap();
    let broken = place.path().join("broken.graphml");
    fs::write(&broken, "<graphml>\n<nonsense/>\n</graphml>\n").unwrap();
    let broken = broken.display();
    let out = place.path().join("out");
    for (args, expected) in [
        ("--users wbe=2".to_owned(), "did you mean web?"),
        (
            "--users web=0".to_owned(),
            "as in web=N: it must be a whole number from 1 to 5000",
        ),
        ("--users web=1,web=2".to_owned(), "names web twice"),
        ("--users web=ten".to_owned(), "is no number of users"),
        (
            "--users markov=1".to_owned(),
            "--streams FILE and --packets FILE",
        ),
        (
            format!("--users web=1 --streams {broken} --packets {broken}"),
            "add markov=N",
        ),
        (
            format!("--users markov=1 --streams {broken} --packets {broken}"),
            "broken.graphml",
        ),
        (
            format!("--users markov=1 --streams /nonexistent --packets {broken}"),
            "cannot read /nonexistent",
        ),
        (format!("--socks {port}"), "nobody listens"),
        (
            "--socks 192.0.2.1:9050".to_owned(),
            "is not on this machine",
        ),
        (format!("--socks {port} --direct"), "cannot be used with"),
        ("--direct --relays 5".to_owned(), "cannot be used with"),
        (
            "--direct --seconds 0".to_owned(),
            "it must be a number of seconds from 0.001 to",
        ),
        ("--direct --seconds 5 --spread 6".to_owned(), "--spread 6"),
        (
            "--clients 0".to_owned(),
            "it must be a whole number from 1 to 500",
        ),
        ("--exits 0".to_owned(), "the last is an exit"),
        ("--topology nowhere".to_owned(), "no built-in topology"),
        (
            "--topology pahl-one --kind mixed".to_owned(),
            "--kind mixed is for networks on loopback",
        ),
        (
            "--program /nonexistent/weft".to_owned(),
            "there is no program at",
        ),
    ] {
        let run = traffic(&format!("{args} --out {}", out.display()));
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(
            !run.status.success() && errors.contains(expected),
            "{args}: {errors}"
        );
        assert!(!out.exists(), "{args}");
    }
}
