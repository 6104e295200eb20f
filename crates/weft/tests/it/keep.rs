//! `weft doctor`, `weft backup` and `weft restore` around a relay as its operator runs it.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use weft_lab::ports::Port;

use crate::running::Bench;

/// A relay at a port of its own, and the words that start it.
struct Relay {
    bench: Bench,
    port: Port,
}

impl Relay {
    fn new() -> Self {
        let relay = Relay {
            bench: Bench::new(),
            port: Port::reserve().unwrap(),
        };
        relay.torrc("");
        relay
    }

    fn torrc(&self, more: &str) {
        let lines = format!(
            "{}ORPort {}\n{more}",
            self.bench.log_line("log"),
            self.port.address()
        );
        self.bench.torrc(&lines);
    }

    fn words(&self, torrc: &str) -> Vec<PathBuf> {
        let path = |name: &str| self.bench.path(name);
        let (defaults, torrc) = (path("defaults"), path(torrc));
        vec!["-f".into(), torrc, "--defaults-torrc".into(), defaults]
    }

    /// Runs `weft COMMAND WORDS…` with this on standard input.
    fn weft(&self, command: &[&str], torrc: &str, input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(command)
            .args(self.words(torrc))
            .current_dir(self.bench.folder.path())
            .env("HOME", self.bench.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that fails early has closed its end.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// The same of a command that must succeed: what it printed.
    fn succeeds(&self, command: &[&str], torrc: &str, input: &str) -> String {
        let output = self.weft(command, torrc, input);
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same of one that must fail: what it said.
    fn fails(&self, command: &[&str], torrc: &str, input: &str) -> String {
        let output = self.weft(command, torrc, input);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The torrc of the same relay in another DataDirectory.
    fn elsewhere(&self) {
        let torrc = fs::read_to_string(self.bench.path("torrc")).unwrap();
        let data = self.bench.path("data").display().to_string();
        let other = self.bench.path("other").display().to_string();
        fs::write(self.bench.path("torrc2"), torrc.replace(&data, &other)).unwrap();
    }

    /// Starts it again, and ends it. Its log begins anew, so that what is waited for is of this start.
    fn starts_again(&self) {
        fs::remove_file(self.bench.path("log")).unwrap();
        self.bench.start().terminate();
    }

    fn key(&self, data: &str) -> Vec<u8> {
        fs::read(self.bench.path(data).join("keys/secret_id_key")).unwrap()
    }
}

const BACKUP: [&str; 4] = ["backup", "--passphrase-fd", "0", "kept"];
const RESTORE: [&str; 4] = ["restore", "--passphrase-fd", "0", "kept"];

#[test]
fn a_relay_comes_back_from_its_backup_and_only_where_it_does_not_run() {
    let relay = Relay::new();
    let running = relay.bench.start();
    // While it runs.
    let said = relay.succeeds(&BACKUP, "torrc", "secret");
    assert!(said.contains("has the identity of options"), "{said}");
    let said = relay.fails(&BACKUP, "torrc", "secret");
    assert!(said.contains("exists already"), "{said}");
    let said = relay.succeeds(
        &["restore", "--check", "--passphrase-fd", "0", "kept"],
        "torrc",
        "secret",
    );
    let at = relay.port.address().to_string();
    assert!(said.contains("is whole") && said.contains(&at), "{said}");
    assert!(said.contains("options"), "{said}");

    relay.elsewhere();
    let said = relay.fails(&RESTORE, "torrc2", "secret");
    assert!(
        said.contains(&format!("the relay still runs at {at}")),
        "{said}"
    );
    assert!(!relay.bench.path("other").exists());
    running.terminate();

    let said = relay.fails(&RESTORE, "torrc2", "Secret");
    assert!(said.contains("the passphrase is wrong"), "{said}");
    let said = relay.succeeds(&RESTORE, "torrc2", "secret");
    assert!(said.contains("is in"), "{said}");
    assert_eq!(relay.key("data"), relay.key("other"));
    // What is restored starts.
    fs::rename(relay.bench.path("torrc2"), relay.bench.path("torrc")).unwrap();
    relay.starts_again();
    assert_eq!(relay.key("data"), relay.key("other"));
}

#[test]
fn a_relay_that_was_moved_does_not_start_any_more() {
    let relay = Relay::new();
    let running = relay.bench.start();
    let moves = ["backup", "--move", "--passphrase-fd", "0", "kept"];
    let said = relay.fails(&moves, "torrc", "secret");
    assert!(said.contains("end the relay first"), "{said}");
    running.terminate();
    let said = relay.fails(&moves, "torrc", "");
    assert!(
        said.contains("never written without a passphrase"),
        "{said}"
    );
    assert!(!relay.bench.path("kept").exists());
    let said = relay.succeeds(&moves, "torrc", "secret");
    assert!(said.contains("does not start here any more"), "{said}");
    let said = relay.fails(&[], "torrc", "");
    assert!(said.contains("was moved to another machine"), "{said}");
    relay.succeeds(&RESTORE, "torrc", "secret");
    relay.starts_again();
}

#[test]
fn what_is_no_relay_or_no_backup_is_refused() {
    let relay = Relay::new();
    fs::write(relay.bench.path("client"), "SocksPort 9050\n").unwrap();
    let said = relay.fails(&BACKUP, "client", "secret");
    assert!(said.contains("is no relay's"), "{said}");
    let said = relay.fails(&RESTORE, "torrc", "secret");
    assert!(said.contains("kept"), "{said}");
    fs::write(relay.bench.path("kept"), "Nickname x\n").unwrap();
    let said = relay.fails(&RESTORE, "torrc", "secret");
    assert!(said.contains("no backup of `weft backup`"), "{said}");
    // Without keys there is nothing to keep.
    fs::remove_file(relay.bench.path("kept")).unwrap();
    let said = relay.fails(&BACKUP, "torrc", "secret");
    assert!(said.contains("secret_id_key is missing"), "{said}");
}

/// The verdicts about a thing.
fn verdicts(json: &str, about: &str) -> Vec<String> {
    let all: serde_json::Value = serde_json::from_str(json).unwrap();
    let findings = all["nodes"][0]["findings"].as_array().unwrap();
    let of = findings.iter().filter(|finding| finding["about"] == about);
    of.map(|finding| finding["verdict"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_doctor_sees_whether_a_relay_runs_and_answers() {
    let relay = Relay::new();
    let doctor = ["doctor", "--offline", "--format", "json"];
    let output = relay.weft(&doctor, "torrc", "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found = String::from_utf8(output.stdout).unwrap();
    assert_eq!(verdicts(&found, "process"), ["bad"], "{found}");

    let running = relay.bench.start();
    let found = relay.succeeds(&doctor, "torrc", "");
    for about in ["files", "keys", "process", "ports"] {
        assert_eq!(verdicts(&found, about), ["good"], "{about}: {found}");
    }
    // Nothing was asked of others.
    assert!(verdicts(&found, "clock").is_empty(), "{found}");
    // The authority that torrc names is not there.
    let found = relay.succeeds(&["doctor", "--format", "json"], "torrc", "");
    assert_eq!(verdicts(&found, "clock"), ["unknown"], "{found}");
    let text = relay.succeeds(&["doctor", "--offline"], "torrc", "");
    assert!(
        text.lines().any(|line| line.starts_with("ok      process")),
        "{text}"
    );
    running.terminate();
}

#[test]
fn the_doctor_names_what_is_wrong_with_a_torrc() {
    let relay = Relay::new();
    relay.torrc("Nickmane x\n");
    let output = relay.weft(&["doctor", "--offline"], "torrc", "");
    assert_eq!(output.status.code(), Some(1));
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.starts_with("BAD     torrc"), "{found}");
    assert!(found.contains("did you mean Nickname?"), "{found}");
}
