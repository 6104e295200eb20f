//! `weft doctor`, `weft backup` and `weft restore` around a relay as its operator runs it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

use nix::unistd::{User, chown, geteuid};
use weft_testing::not_run;
use weft_testnet::ports::Port;

use crate::running::{Bench, run_in};

/// A relay at a separate port, and the words that start it.
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
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(command).args(self.words(torrc));
        run_in(self.bench.folder.path(), &mut weft, input)
    }

    /// Runs a command that must succeed; returns its output.
    fn succeeds(&self, command: &[&str], torrc: &str, input: &str) -> String {
        let output = self.weft(command, torrc, input);
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail; returns its error output.
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

    /// Starts it again, and ends it, with an empty log, so that the lines waited for are of this
    /// start.
    fn starts_again(&self) {
        fs::remove_file(self.bench.path("log")).unwrap();
        self.bench.start().terminate();
    }

    fn key(&self, data: &str) -> Vec<u8> {
        fs::read(self.bench.path(data).join("keys/secret_id_key")).unwrap()
    }
}

const BACKUP: [&str; 4] = ["backup", "--passphrase-fd", "0", "kept"];
const MOVE: [&str; 5] = ["backup", "--move", "--passphrase-fd", "0", "kept"];
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
    let asked = format!("No relay answers with these keys at {at}");
    assert!(said.contains(&asked), "{said}");
    assert_eq!(relay.key("data"), relay.key("other"));
    // The restored relay starts.
    fs::rename(relay.bench.path("torrc2"), relay.bench.path("torrc")).unwrap();
    relay.starts_again();
    assert_eq!(relay.key("data"), relay.key("other"));
}

#[test]
fn a_relay_that_was_moved_does_not_start_any_more() {
    let relay = Relay::new();
    let running = relay.bench.start();
    let said = relay.fails(&MOVE, "torrc", "secret");
    assert!(said.contains("end the relay first"), "{said}");
    running.terminate();
    let said = relay.fails(&MOVE, "torrc", "");
    assert!(
        said.contains("never written without a passphrase"),
        "{said}"
    );
    assert!(!relay.bench.path("kept").exists());
    let said = relay.succeeds(&MOVE, "torrc", "secret");
    assert!(said.contains("does not start here any more"), "{said}");
    let does_not_start = || {
        let said = relay.fails(&[], "torrc", "");
        assert!(said.contains("was moved to another machine"), "{said}");
    };
    does_not_start();
    relay.elsewhere();
    relay.succeeds(&RESTORE, "torrc2", "secret");
    // By mistake: the backup does not show that the relay has ended where it was moved to.
    let said = relay.fails(&RESTORE, "torrc", "secret");
    assert!(said.contains("by this backup or a later one"), "{said}");
    does_not_start();
    // Backups have the time in seconds: it was moved a minute before.
    let mark = relay.bench.path("data/keys/moved");
    let text = fs::read_to_string(&mark).unwrap();
    let at = text.split(' ').find_map(|word| word.parse::<u64>().ok());
    let at = at.unwrap();
    fs::write(&mark, text.replace(&at.to_string(), &(at - 60).to_string())).unwrap();
    let back = ["backup", "--move", "--passphrase-fd", "0", "back"];
    relay.succeeds(&back, "torrc2", "secret");
    let restore = ["restore", "--passphrase-fd", "0", "back"];
    relay.succeeds(&restore, "torrc", "secret");
    relay.starts_again();
}

#[test]
fn without_an_address_to_ask_the_operator_must_have_ended_the_relay() {
    let relay = Relay::new();
    let torrc = format!("{}ORPort 127.0.0.1:auto\n", relay.bench.log_line("log"));
    relay.bench.torrc(&torrc);
    relay.bench.start().terminate();
    relay.succeeds(&BACKUP, "torrc", "secret");
    relay.elsewhere();
    let said = relay.fails(&RESTORE, "torrc2", "secret");
    assert!(said.contains("restore with --not-running"), "{said}");
    assert!(!relay.bench.path("other").exists());
    let ended = ["restore", "--not-running", "--passphrase-fd", "0", "kept"];
    let said = relay.succeeds(&ended, "torrc2", "secret");
    assert!(said.contains("could not be asked"), "{said}");
    assert_eq!(relay.key("data"), relay.key("other"));
}

#[test]
fn root_reads_as_the_user_of_torrc_and_owns_the_backup() {
    if !geteuid().is_root() {
        not_run!("only root can become another user");
        return;
    }
    let nobody = User::from_name("nobody").unwrap().expect("the user nobody");
    let relay = Relay::new();
    let folder = relay.bench.folder.path();
    chown(folder, Some(nobody.uid), Some(nobody.gid)).unwrap();
    relay.torrc("User nobody\n");
    relay.bench.start().terminate();
    let victim = relay.bench.path("victim");
    fs::write(&victim, "of root").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    let data = relay.bench.path("data");
    let lock = data.join("lock");
    let key = data.join("keys/x.secret_family_key");
    fs::remove_file(&lock).unwrap();
    for (link, error) in [
        (&lock, "it is a symbolic link"),
        (&key, "Permission denied"),
    ] {
        symlink(&victim, link).unwrap();
        let said = relay.fails(&MOVE, "torrc", "secret");
        assert!(said.contains(error), "{said}");
        fs::remove_file(link).unwrap();
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "of root");
    assert!(!relay.bench.path("kept").exists());
    fs::remove_file(&lock).unwrap();
    relay.succeeds(&MOVE, "torrc", "secret");
    let owner = |path: PathBuf| fs::metadata(path).unwrap().uid();
    let nobody = nobody.uid.as_raw();
    assert_eq!(owner(lock), nobody);
    assert_eq!(owner(data.join("keys/moved")), nobody);
    assert_eq!(owner(relay.bench.path("kept")), 0);
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
