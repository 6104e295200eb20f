//! tor and Weft take turns on one DataDirectory. Needs C tor (Debian package `tor`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use weft_datadir::keys::family;
use weft_datadir::keys::{
    KeyConfig, KeygenRequest, OnionKeyParams, Passphrase, Passphrases, RelayKeys, Rotation,
};
use weft_datadir::lock::{DataDirLock, LockError};
use weft_datadir::state;
use weft_testing::ctor::ended_cleanly;

const DAY: Duration = Duration::from_secs(86_400);

/// One relay's DataDirectory and torrc.
struct Relay {
    dir: TempDir,
    cfg: KeyConfig,
}

impl Relay {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let mut cfg = KeyConfig::new(&data);
        cfg.nickname = "turns".to_owned();
        let relay = Self { dir, cfg };
        relay.torrc("");
        relay
    }

    /// Writes the torrc, with these lines more. The network stays off.
    fn torrc(&self, more: &str) {
        let text = format!(
            "DataDirectory {}\nNickname turns\nORPort 1\nDisableNetwork 1\nExitRelay 0\n\
             ContactInfo nobody\nLog notice stdout\n\
             DirAuthority x 127.0.0.1:1 FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF\n{more}",
            self.cfg.data_directory.display()
        );
        fs::write(self.dir.path().join("torrc"), text).unwrap();
    }

    /// tor with this relay's torrc and these words.
    fn tor(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tor");
        command
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(self.dir.path().join("torrc"))
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// What `tor --list-fingerprint` prints (RSA, ed25519), both without spaces.
    fn tor_fingerprints(&self) -> (String, String) {
        let print = |kind| {
            let (ok, printed) = output(&mut self.tor(&["--list-fingerprint", kind]));
            assert!(ok, "{printed}");
            assert_no_complaint(&printed);
            let line = printed.lines().find(|l| l.starts_with("turns ")).unwrap();
            line.trim_start_matches("turns ").replace(' ', "")
        };
        (print("rsa"), print("ed25519"))
    }

    fn weft(&self, now: SystemTime, seed: u64) -> RelayKeys {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        RelayKeys::load_or_create(&self.cfg, now, &mut rng).unwrap()
    }

    /// Starts tor and waits until it has loaded keys and state.
    fn start_tor(&self) -> Running {
        let mut child = self
            .tor(&[])
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot start tor: install the package \"tor\"");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = Running {
            child,
            lines,
            log: String::new(),
        };
        while !running.log.contains("Bootstrapped 0%") {
            let line = running.lines.next();
            let line = line.unwrap_or_else(|| panic!("tor stopped early:\n{}", running.log));
            running.log += &line.unwrap();
            running.log += "\n";
        }
        running
    }

    /// Name and contents of every key file.
    fn key_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fs::read_dir(&self.cfg.key_directory)
            .unwrap()
            .map(|e| e.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }

    fn key(&self, name: &str) -> PathBuf {
        self.cfg.key_directory.join(name)
    }
}

/// A tor that runs until the value is dropped.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    log: String,
}

impl Running {
    /// Stops it as an operator does; its log must hold no complaint.
    fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        for line in self.lines.by_ref() {
            self.log += &line.unwrap();
            self.log += "\n";
        }
        let success = self.child.wait().unwrap().success();
        assert!(ended_cleanly(success, &self.log), "{}", self.log);
        let (before, _) = self.log.split_once("Catching signal TERM").unwrap();
        assert_no_complaint(before);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs to the end; whether it succeeded, and its output.
fn output(command: &mut Command) -> (bool, String) {
    let done = command
        .output()
        .expect("cannot start tor: install the package \"tor\"");
    let printed = [done.stdout, done.stderr].concat();
    (
        done.status.success(),
        String::from_utf8_lossy(&printed).into_owned(),
    )
}

/// No warning but those that this test asks for.
#[track_caller]
fn assert_no_complaint(log: &str) {
    let expected = ["running Tor as root", "alternate directory authorities"];
    for line in log.lines() {
        let complaint = line.contains("[warn]") || line.contains("[err]");
        assert!(
            !complaint || expected.iter().any(|e| line.contains(e)),
            "{line}\nin:\n{log}"
        );
    }
}

#[test]
fn weft_takes_over_what_tor_made() {
    let relay = Relay::new();
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&relay.cfg.data_directory)
        .unwrap();
    let (rsa, ed) = relay.tor_fingerprints();
    let before = relay.key_files();
    assert_eq!(before.len(), 7);

    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let read = RelayKeys::load(&relay.cfg, SystemTime::now(), &mut rng).unwrap();
    let keys = relay.weft(SystemTime::now(), 1);
    for keys in [&read, &keys] {
        assert_eq!(keys.fingerprint(), rsa);
        assert_eq!(keys.ed25519_fingerprint(), ed);
    }
    assert!(before == relay.key_files(), "Weft changed tor's keys");
    // Files of tor's that Weft would have written otherwise.
    let line = fs::read_to_string(relay.cfg.data_directory.join("fingerprint")).unwrap();
    assert_eq!(line, format!("turns {rsa}\n"));
    let line = fs::read_to_string(relay.cfg.data_directory.join("fingerprint-ed25519")).unwrap();
    assert_eq!(line, format!("turns {ed}\n"));
}

#[test]
fn tor_takes_over_what_weft_made() {
    let relay = Relay::new();
    let keys = relay.weft(SystemTime::now(), 2);
    let before = relay.key_files();
    let stamp = |name| {
        fs::metadata(relay.cfg.data_directory.join(name))
            .unwrap()
            .modified()
    };
    let written = stamp("fingerprint").unwrap();
    let (rsa, ed) = relay.tor_fingerprints();
    assert_eq!((rsa, ed), (keys.fingerprint(), keys.ed25519_fingerprint()));
    assert!(before == relay.key_files(), "tor changed Weft's keys");
    // tor rewrites this file only if its content would change.
    assert_eq!(stamp("fingerprint").unwrap(), written);
}

#[test]
fn turns_are_taken_many_times_with_rotation_renewal_and_state() {
    let relay = Relay::new();
    let now = SystemTime::now();
    // Made long ago, so that both onion keys and signing key are due.
    let first = relay.weft(now - 40 * DAY, 3);
    let (rsa, ed) = (first.fingerprint(), first.ed25519_fingerprint());
    state::update(&relay.cfg.data_directory, now, |s| {
        s.set("WeftTestOnly", "kept by tor");
    })
    .unwrap();

    let mut keys = relay.weft(now, 4);
    assert_ne!(keys.signing_cert, first.signing_cert);
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let rotation = keys.rotate_if_due(now, OnionKeyParams::default(), &mut rng);
    assert_eq!(rotation.unwrap(), Rotation::Rotated);
    let files = relay.key_files();
    assert_eq!(files.len(), 9, "with both previous onion keys");

    for turn in 0..3 {
        let tor = relay.start_tor();
        // tor holds the lock now.
        let lock = DataDirLock::acquire(&relay.cfg.data_directory, Duration::ZERO);
        assert!(matches!(lock, Err(LockError::Held(_))));
        // Reading beside it is allowed.
        let beside = RelayKeys::load(&relay.cfg, SystemTime::now(), &mut rng).unwrap();
        assert_eq!(beside.fingerprint(), rsa);
        tor.stop();
        assert!(
            files == relay.key_files(),
            "tor changed keys in turn {turn}"
        );

        let lock = DataDirLock::acquire(&relay.cfg.data_directory, Duration::ZERO).unwrap();
        let keys = relay.weft(SystemTime::now(), 10 + turn);
        drop(lock);
        assert!(
            files == relay.key_files(),
            "Weft changed keys in turn {turn}"
        );
        assert_eq!(keys.fingerprint(), rsa);
        assert_eq!(keys.ed25519_fingerprint(), ed);
        assert_eq!(
            keys.ntor.previous.as_ref().unwrap().public,
            first.ntor.current.public
        );
        let set_at = keys.onion_key_set_at();
        let off = now.duration_since(set_at).unwrap_or_default();
        assert!(
            off < Duration::from_secs(2),
            "rotation time moved by {off:?}"
        );

        let state = state::load(&relay.cfg.data_directory).unwrap();
        assert_eq!(state.get("WeftTestOnly"), Some("kept by tor"));
        assert!(
            state.get("BWHistoryReadValues").is_some(),
            "tor's own lines"
        );
        state::update(&relay.cfg.data_directory, SystemTime::now(), |_| {}).unwrap();
    }

    // A week and a bit after the rotation both forget the previous keys, whichever runs first.
    let set_at = now - 8 * DAY;
    state::update(&relay.cfg.data_directory, now, |s| {
        s.set_time("LastRotatedOnionKey", set_at);
    })
    .unwrap();
    relay.start_tor().stop();
    let mut keys = relay.weft(SystemTime::now(), 20);
    let had_previous = keys.ntor.previous.is_some();
    let rotation = keys.rotate_if_due(now, OnionKeyParams::default(), &mut rng);
    let expected = if had_previous {
        Rotation::PreviousExpired
    } else {
        Rotation::None
    };
    assert_eq!(rotation.unwrap(), expected);
    assert_eq!(relay.key_files().len(), 7);
    assert_eq!(relay.tor_fingerprints(), (rsa, ed));
}

#[test]
fn the_lock_keeps_tor_out_while_weft_runs() {
    let relay = Relay::new();
    relay.cfg.prepare_directories().unwrap();
    let lock = DataDirLock::acquire(&relay.cfg.data_directory, Duration::ZERO).unwrap();
    let (ok, printed) = output(&mut relay.tor(&["--list-fingerprint"]));
    assert!(!ok && printed.contains("has locked"), "{printed}");
    assert!(
        relay.key_files().is_empty(),
        "tor made keys under Weft's lock"
    );
    let (ok, printed) = output(&mut relay.tor(&[]));
    assert!(!ok && printed.contains("No, it's still there"), "{printed}");
    let keys = relay.weft(SystemTime::now(), 6);
    drop(lock);
    assert_eq!(relay.tor_fingerprints().0, keys.fingerprint());
}

/// `tor --keygen` with these words, in the directory `home`.
fn keygen(home: &Path, words: &[&str], input: &str) {
    let mut child = Command::new("tor")
        .args([
            "--keygen",
            "--defaults-torrc",
            "/dev/null",
            "-f",
            "/dev/null",
        ])
        .args(["--ignore-missing-torrc", "--DataDirectory"])
        .arg(home)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cannot start tor: install the package \"tor\"");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_offline_master_key_of_tor_keygen_serves_both() {
    let home = tempfile::tempdir().unwrap();
    keygen(home.path(), &["--no-passphrase"], "");
    let mut relay = Relay::new();
    relay.cfg.offline_master_key = true;
    relay.cfg.prepare_directories().unwrap();
    for name in [
        "ed25519_master_id_public_key",
        "ed25519_signing_secret_key",
        "ed25519_signing_cert",
    ] {
        fs::copy(home.path().join("keys").join(name), relay.key(name)).unwrap();
    }
    let keys = relay.weft(SystemTime::now(), 7);
    relay.torrc("OfflineMasterKey 1\n");
    let (rsa, ed) = relay.tor_fingerprints();
    assert_eq!((rsa, ed), (keys.fingerprint(), keys.ed25519_fingerprint()));
    assert!(!relay.key("ed25519_master_id_secret_key").exists());

    // The certificate runs out: an error with the remedy, which tor --keygen is, too.
    let later = SystemTime::now() + 40 * DAY;
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let error = RelayKeys::load_or_create(&relay.cfg, later, &mut rng).unwrap_err();
    assert!(error.to_string().contains("weft --keygen"), "{error}");
    keygen(
        home.path(),
        &["--no-passphrase", "--SigningKeyLifetime", "60 days"],
        "",
    );
    for name in ["ed25519_signing_secret_key", "ed25519_signing_cert"] {
        fs::copy(home.path().join("keys").join(name), relay.key(name)).unwrap();
    }
    let renewed = relay.weft(later, 9);
    assert_eq!(renewed.ed25519_fingerprint(), keys.ed25519_fingerprint());
    assert_ne!(renewed.signing_cert, keys.signing_cert);
}

#[test]
fn an_encrypted_master_key_of_tor_keygen_is_recognised() {
    let home = tempfile::tempdir().unwrap();
    keygen(home.path(), &["--passphrase-fd", "0"], "secret");
    let cfg = KeyConfig::new(home.path());
    assert!(
        home.path()
            .join("keys/ed25519_master_id_secret_key_encrypted")
            .exists()
    );
    let mut rng = ChaCha20Rng::seed_from_u64(10);
    RelayKeys::load_or_create(&cfg, SystemTime::now(), &mut rng).unwrap();
    let later = SystemTime::now() + 40 * DAY;
    let error = RelayKeys::load_or_create(&cfg, later, &mut rng)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("passphrase") && error.contains("--keygen"),
        "{error}"
    );
}

#[test]
fn tor_and_weft_read_each_others_keys_of_families() {
    let relay = Relay::new();
    let directory = &relay.cfg.key_directory;
    relay.start_tor().stop();
    let mut rng = ChaCha20Rng::seed_from_u64(61);
    let ours = family::create(&directory.join("ours"), &mut rng)
        .unwrap()
        .id;
    let base = directory.join("theirs");
    let mut command = Command::new("tor");
    let (ok, printed) = output(command.arg("--keygen-family").arg(&base));
    assert!(ok, "{printed}");
    let line = printed
        .lines()
        .find(|line| line.starts_with("FamilyId "))
        .unwrap();
    let theirs = line.trim_start_matches("FamilyId ");
    let ids = |expected: &[Ed25519Identity], all| -> Vec<String> {
        let keys = family::load(directory, expected, all).unwrap();
        keys.iter()
            .map(|key| family::identity(key).to_string())
            .collect()
    };
    assert_eq!(ids(&[], true), [ours.to_string(), theirs.to_owned()]);
    assert_eq!(ids(&[ours], false), [ours.to_string()]);
    let public = fs::read_to_string(directory.join("theirs.public_family_id")).unwrap();
    assert_eq!(public, format!("{theirs}\n"));
    // tor does not start without the key of a family that it names.
    relay.torrc(&format!("FamilyId {ours}\nFamilyId {theirs}\nMyFamily x\n"));
    let mut running = relay.start_tor();
    assert!(
        !running.log.contains("unexpected FamilyID"),
        "{}",
        running.log
    );
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

/// What `--passphrase-fd` hands over: one passphrase for all.
struct OnePassphrase(&'static str);

impl Passphrases for OnePassphrase {
    fn current(&mut self) -> Option<Passphrase> {
        let passphrase = std::mem::take(&mut self.0);
        (!passphrase.is_empty()).then(|| Passphrase::new(passphrase.into()))
    }

    fn of_new_key(&mut self) -> Option<Passphrase> {
        self.current()
    }
}

#[test]
fn encrypted_master_keys_of_tor_and_of_weft_are_opened_by_the_other() {
    let mut rng = ChaCha20Rng::seed_from_u64(11);
    let mut weft = |cfg: &KeyConfig, passphrase| {
        let request = KeygenRequest::default();
        let mut passphrases = OnePassphrase(passphrase);
        weft_datadir::keys::keygen(cfg, &request, &mut passphrases, SystemTime::now(), &mut rng)
    };
    let file = |home: &Path, name: &str| fs::read(home.join("keys").join(name)).unwrap();

    // tor's, of which Weft makes a signing key that tor takes.
    let of_tor = tempfile::tempdir().unwrap();
    keygen(of_tor.path(), &["--passphrase-fd", "0"], "secret");
    let cfg = KeyConfig::new(of_tor.path());
    let (cert, public) = (
        file(of_tor.path(), "ed25519_signing_cert"),
        file(of_tor.path(), "ed25519_master_id_public_key"),
    );
    assert!(weft(&cfg, "another").is_err());
    assert_eq!(file(of_tor.path(), "ed25519_signing_cert"), cert);
    weft(&cfg, "secret").unwrap();
    assert_ne!(file(of_tor.path(), "ed25519_signing_cert"), cert);
    assert_eq!(file(of_tor.path(), "ed25519_master_id_public_key"), public);

    // Weft's, of which tor makes one.
    let of_weft = tempfile::tempdir().unwrap();
    let mut relay = Relay::new();
    weft(&KeyConfig::new(of_weft.path()), "secret").unwrap();
    let cert = file(of_weft.path(), "ed25519_signing_cert");
    keygen(of_weft.path(), &["--passphrase-fd", "0"], "secret");
    assert_ne!(file(of_weft.path(), "ed25519_signing_cert"), cert);

    // The relay itself has neither, and both programs run it.
    relay.cfg.offline_master_key = true;
    relay.cfg.prepare_directories().unwrap();
    for home in [of_tor.path(), of_weft.path()] {
        for name in [
            "ed25519_master_id_public_key",
            "ed25519_signing_secret_key",
            "ed25519_signing_cert",
        ] {
            fs::write(relay.key(name), file(home, name)).unwrap();
        }
        relay.torrc("OfflineMasterKey 1\n");
        let keys = relay.weft(SystemTime::now(), 12);
        let (rsa, ed) = relay.tor_fingerprints();
        assert_eq!((rsa, ed), (keys.fingerprint(), keys.ed25519_fingerprint()));
    }
}
