//! `weft lab shadow`: what it writes for Shadow, and the report that it makes of what hosts wrote. No Shadow is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn shadow(args: &[&str]) -> Output {
    Command::new(crate::weft())
        .args(["lab", "shadow"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("weft runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two simulations: without loss, and with loss that all share.
fn written(place: &Path) -> PathBuf {
    let folder = place.join("written");
    let run = shadow(&[
        "write",
        folder.to_str().expect("UTF-8"),
        "--topology",
        "pahl-no-dropping,pahl-shared-dropping",
        "--traffic",
        "web",
        "--arm",
        "weft-pctls",
        "--congestion-control",
        "on",
        "--seconds",
        "30",
        "--seed",
        "7",
    ]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let printed = text(&run.stdout);
    for words in [
        "2 simulations",
        "shadow shadow.yaml",
        "least rate of its links",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    folder
}

/// The lines behind `host:` in a configuration, to the next host.
fn host<'y>(yaml: &'y str, name: &str) -> Vec<&'y str> {
    let mut lines = yaml.lines().skip_while(|line| *line != "hosts:");
    let head = format!("  {name}:");
    let behind = lines.by_ref().skip_while(|line| *line != head).skip(1);
    let is_inside = |line: &&str| line.starts_with("    ");
    behind.take_while(is_inside).map(str::trim).collect()
}

#[test]
fn a_simulation_has_all_that_its_configuration_names() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = written(place.path());
    let simulation = folder.join("pahl-shared-dropping-web-weft-pctls-on-1");
    let yaml = fs::read_to_string(simulation.join("shadow.yaml")).expect("a configuration");
    for line in [
        "stop_time: \"275000000 us\"",
        "bootstrap_end_time: \"240000000 us\"",
        "template_directory: \"template\"",
        "use_shortest_path: false",
        "packet_loss 0.001000000",
    ] {
        assert!(
            yaml.lines().any(|one| one.trim() == line),
            "{line} in {yaml}"
        );
    }
    let program = crate::weft();
    for line in yaml
        .lines()
        .filter(|line| line.trim_start_matches([' ', '-']).starts_with("path:"))
    {
        assert!(line.contains(program), "{line}");
    }
    let client = host(&yaml, "client2");
    for word in [
        "\"flow-client\"",
        "\"web\"",
        "\"records.jsonl\"",
        "\"127.0.0.1:9050\"",
    ] {
        assert!(
            client.contains(&&*format!("- {word}")),
            "{word} in {client:?}"
        );
    }
    assert!(host(&yaml, "server").contains(&"- \"flow-server\""));
    assert!(host(&yaml, "exit").contains(&"expected_final_state: \"running\""));

    // No two nodes start in one millisecond.
    let starts = yaml.lines().filter(|line| line.contains("start_time:"));
    let nodes = yaml.matches("\"torrc\"").count();
    let mut starts: Vec<&str> = starts.collect();
    starts.sort_unstable();
    starts.dedup();
    // The server starts with the authority; the others are eight users.
    assert_eq!(starts.len(), nodes + 8, "{starts:?}");

    let hosts = simulation.join("template/hosts");
    let torrc = |host: &str| fs::read_to_string(hosts.join(host).join("torrc")).expect("a torrc");
    let (client, exit, authority) = (torrc("client2"), torrc("exit"), torrc("authority"));
    for line in [
        "EntryNodes entry1",
        "MiddleNodes middle",
        "ExitNodes exit",
        "ConnectionPerCircuit 1",
        "MaxMemInQueues 1 GB",
        "DataDirectory data",
    ] {
        assert!(client.lines().any(|one| one == line), "{line} in {client}");
    }
    assert!(!client.contains("ControlSocket"), "{client}");
    for line in [
        "ServerDNSDetectHijacking 0",
        "ServerDNSResolvConfFile resolv.conf",
    ] {
        assert!(exit.lines().any(|one| one == line), "{line} in {exit}");
    }
    assert!(
        authority.contains("ConsensusParams cc_alg=2"),
        "{authority}"
    );
    assert!(!authority.contains("ConnectionPerCircuit"), "{authority}");

    // The keys of the authority are those of the DirAuthority line, and older than simulated time.
    let data = hosts.join("authority/data");
    let fingerprint = fs::read_to_string(data.join("fingerprint")).expect("a fingerprint");
    let fingerprint = fingerprint.trim().split(' ').next_back().expect("one");
    let certificate = fs::read_to_string(data.join("keys/authority_certificate")).expect("one");
    assert!(
        certificate.contains("\ndir-key-published 1999-12-31 "),
        "{certificate}"
    );
    let identity = certificate
        .lines()
        .find_map(|line| line.strip_prefix("fingerprint "));
    let line = client
        .lines()
        .find(|line| line.starts_with("DirAuthority "));
    let line = line.expect("a DirAuthority line");
    assert!(line.ends_with(fingerprint), "{line}");
    assert!(
        line.contains(&format!("v3ident={}", identity.expect("one"))),
        "{line}"
    );

    // Weft takes every torrc as it is, in the folder where Shadow starts it.
    for entry in fs::read_dir(&hosts).expect("hosts") {
        let entry = entry.expect("a host");
        let checked = Command::new(program)
            .args([
                "--defaults-torrc",
                "/dev/null",
                "-f",
                "torrc",
                "--verify-config",
            ])
            .current_dir(entry.path())
            .output()
            .expect("weft runs");
        let printed = text(&checked.stdout) + &text(&checked.stderr);
        assert!(
            checked.status.success(),
            "{:?}: {printed}",
            entry.file_name()
        );
    }

    // One seed writes the same once more; and nothing is overwritten.
    let second = tempfile::tempdir_in(place.path()).expect("a folder");
    let again = written(second.path()).join(simulation.file_name().expect("a name"));
    assert_eq!(
        fs::read_to_string(again.join("shadow.yaml")).expect("one"),
        yaml
    );
    let same = fs::read_to_string(again.join("template/hosts/exit/torrc")).expect("a torrc");
    assert_eq!(same, exit);
    let refused = shadow(&["write", folder.to_str().expect("UTF-8")]);
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("is not empty"),
        "{}",
        text(&refused.stderr)
    );
}

/// A stream of 2 MB that took so long.
fn record(client: &str, model: &str, seconds: f64) -> String {
    let way = |bytes: u64| {
        json!({
            "wanted": bytes, "bytes": bytes, "first_s": 0.2, "last_s": seconds, "longest_gap_s": 0.1, "marks": [],
        })
    };
    let record = json!({
        "client": client, "model": model, "stream": 0, "isolation": 0, "started_s": 0.0, "opened_s": 0.1,
        "answered_s": 0.175, "receipt_s": seconds, "down": way(2_000_000), "up": way(0), "ended_s": seconds,
        "outcome": "complete",
    });
    format!("{record}\n")
}

/// Writes the output that Shadow would leave of a simulation.
fn fake(folder: &Path, simulation: &str, seconds: f64) {
    for number in 1..=8 {
        let name = format!("client{number}");
        let model = if number % 2 == 0 { "web" } else { "bulk" };
        let host = folder
            .join(simulation)
            .join("shadow.data/hosts")
            .join(&name);
        fs::create_dir_all(&host).expect("a folder");
        fs::write(host.join("records.jsonl"), record(&name, model, seconds)).expect("written");
    }
}

const CLEAN: &str = "pahl-no-dropping-web-weft-pctls-on-1";
const LOSSY: &str = "pahl-shared-dropping-web-weft-pctls-on-1";

fn read(folder: &Path, out: &Path) -> (Output, Value) {
    let [folder, results] = [folder, out].map(|path| path.to_str().expect("UTF-8"));
    let run = shadow(&["read", folder, "--format", "json", "--out", results]);
    let printed = serde_json::from_slice(&run.stdout).expect("JSON");
    (run, printed)
}

#[test]
fn what_hosts_wrote_becomes_a_report_of_cci() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = written(place.path());
    fake(&folder, CLEAN, 1.0);
    fake(&folder, LOSSY, 2.0);
    let out = place.path().join("results");
    let (run, printed) = read(&folder, &out);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let cells = printed["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    assert_eq!(cells[0]["scenario"], "NoDropping");
    assert_eq!(cells[0]["goodput_mbit"]["mean"], 16.0);
    assert_eq!(cells[0]["streams"], 4);
    assert_eq!(cells[1]["scenario"], "SharedDropping");
    assert_eq!(cells[1]["lost_percent"], 50.0);
    // Nothing of it was measured in simulated time.
    assert!(cells[0]["cpu_s_per_gb"].is_null(), "{printed:#}");
    assert!(cells[0]["relays_rss_mb"].is_null(), "{printed:#}");
    let kept = fs::read_to_string(out.join("run.json")).expect("a run");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    assert_eq!(kept["experiment"], "cci");
    assert_eq!(kept["ending"], "complete");
    assert_eq!(kept["seed"], 7);
    for file in [
        "report.html",
        "raw.csv",
        "raw.jsonl",
        "streams.jsonl",
        "goodput.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(
        page.contains("processor time, memory and sockets"),
        "no note"
    );

    // It is compared as every run of `cci` is.
    let other = place.path().join("other");
    fake(&folder, LOSSY, 1.5);
    assert!(read(&folder, &other).0.status.success());
    let compared = Command::new(crate::weft())
        .args(["lab", "report"])
        .args([&out, &other])
        .current_dir(place.path())
        .output()
        .expect("weft runs");
    let printed = text(&compared.stdout);
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    assert!(printed.contains("SharedDropping"), "{printed}");
}

#[test]
fn what_is_missing_is_named_and_the_rest_is_kept() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = written(place.path());
    fake(&folder, CLEAN, 1.0);
    let hosts = folder.join(CLEAN).join("shadow.data/hosts");
    fs::remove_file(hosts.join("client4/records.jsonl")).expect("removed");
    let cut = record("client6", "web", 1.0) + "{\"client\": \"cli";
    fs::write(hosts.join("client6/records.jsonl"), cut).expect("written");
    let (run, printed) = read(&folder, &place.path().join("results"));
    assert_eq!(run.status.code(), Some(1), "{printed:#}");
    let missing = printed["missing"].to_string();
    for words in [
        "client4/records.jsonl is missing",
        "client6/records.jsonl:2 is no record",
    ] {
        assert!(missing.contains(words), "{words}: {missing}");
    }
    let cells = printed["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 1, "{printed:#}");
    assert_eq!(cells[0]["streams"], 3);
    let failure = printed["runs"][1]["failure"].as_str().expect("a failure");
    assert!(failure.contains("run `shadow shadow.yaml`"), "{failure}");
    assert!(failure.contains(LOSSY), "{failure}");

    // Shadow was killed: hosts are there, and no record.
    fs::create_dir_all(folder.join(LOSSY).join("shadow.data/hosts/client1")).expect("a folder");
    let (_, printed) = read(&folder, &place.path().join("again"));
    let failure = printed["runs"][1]["failure"].as_str().expect("a failure");
    assert!(failure.contains("did not come to its end"), "{failure}");
}

#[test]
fn what_is_not_there_is_named() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("new");
    let folder = folder.to_str().expect("UTF-8");
    let flat = place.path().join("flat.toml");
    fs::write(
        &flat,
        "name = \"flat\"\nhosts = [\"alice\", \"bob\"]\n[[link]]\nends = [\"alice\", \"bob\"]\n",
    )
    .expect("written");
    let flat = flat.to_str().expect("UTF-8");
    let cases: &[(&[&str], &str)] = &[
        (
            &["write", folder, "--topology", "pahl-on"],
            "no built-in topology",
        ),
        (
            &["write", folder, "--topology", flat],
            "host alice does not show what it is to run",
        ),
        (
            &["write", folder, "--topology", "pair"],
            "is no Tor network",
        ),
        (
            &["write", folder, "--program", "/nonexistent/weft"],
            "there is no program at",
        ),
        (&["write", folder, "--arm", "weft-pctl"], "weft-pctls"),
        (
            &["write", folder, "--settle", "5"],
            "it must be a number of seconds from 180 to 2592000",
        ),
        (
            &["write", folder, "--seconds", "0"],
            "it must be a number of seconds from 0.001 to 2592000",
        ),
        (
            &["write", folder, "--seconds", "2592000"],
            "choose less for --seconds",
        ),
        (&["read", folder], "weft lab shadow write"),
        (
            &["run", "--shadow", "/nonexistent/shadow"],
            "there is no program at",
        ),
    ];
    for (args, expected) in cases {
        let run = shadow(args);
        let errors = text(&run.stderr);
        assert!(
            !run.status.success() && errors.contains(expected),
            "{args:?}: {errors}"
        );
    }
    assert!(
        !Path::new(folder).exists(),
        "nothing is made before the arguments are checked"
    );
}

#[test]
fn shadow_that_fails_is_reported_with_the_end_of_its_log() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().expect("a folder");
    let program = place.path().join("shadow");
    fs::write(
        &program,
        "#!/bin/sh\n[ \"$1\" = shadow.yaml ] || { echo Shadow 3; exit; }\necho '00:00:00.1 [ERROR] no such thing'\nexit 1\n",
    )
    .expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    let out = place.path().join("results");
    let [program, results] = [&program, &out].map(|path| path.to_str().expect("UTF-8"));
    let run = shadow(&[
        "run",
        "--shadow",
        program,
        "--topology",
        "pahl-one",
        "--format",
        "json",
        "--out",
        results,
    ]);
    assert_eq!(run.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert!(
        printed["missing"][0]
            .as_str()
            .expect("one")
            .contains("no such thing"),
        "{printed:#}"
    );
    assert!(
        out.join("simulations/pahl-one-bulk-weft-on-1/shadow.yaml")
            .is_file()
    );
    assert!(out.join("report.html").is_file());
}
