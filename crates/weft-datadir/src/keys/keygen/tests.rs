//! Keys that `--keygen` makes, renews, encrypts and refuses.

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;

use super::*;
use crate::keys::{RelayKeys, signing_key_expires};

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Passphrases in order: those of the key that there is, and those of new ones.
#[derive(Default)]
struct Script {
    current: Vec<&'static str>,
    new: Vec<&'static str>,
}

impl Script {
    fn new(current: &[&'static str], new: &[&'static str]) -> Self {
        Script {
            current: current.iter().rev().copied().collect(),
            new: new.iter().rev().copied().collect(),
        }
    }
}

impl Passphrases for Script {
    fn current(&mut self) -> Option<Passphrase> {
        Some(Passphrase::new(self.current.pop()?.into()))
    }

    fn of_new_key(&mut self) -> Option<Passphrase> {
        Some(Passphrase::new(self.new.pop()?.into()))
    }
}

struct Keys {
    _dir: TempDir,
    cfg: KeyConfig,
}

impl Keys {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cfg = KeyConfig::new(dir.path());
        Keys { _dir: dir, cfg }
    }

    fn keygen(&self, script: &mut Script, seed: u64) -> Result<(), KeyError> {
        self.keygen_with(&KeygenRequest::default(), script, now(), seed)
    }

    fn keygen_with(
        &self,
        request: &KeygenRequest,
        script: &mut Script,
        now: SystemTime,
        seed: u64,
    ) -> Result<(), KeyError> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        keygen(&self.cfg, request, script, now, &mut rng)
    }

    fn has(&self, name: &str) -> bool {
        self.cfg.key_directory.join(name).exists()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.cfg.key_directory.join(name)).unwrap()
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.cfg.key_directory.join(name)).unwrap();
    }

    fn identity(&self) -> String {
        let mut rng = ChaCha20Rng::seed_from_u64(99);
        let keys = RelayKeys::load_or_create(&self.cfg, now(), &mut rng);
        keys.unwrap().ed25519_fingerprint()
    }
}

#[test]
fn keys_without_a_passphrase_are_those_of_a_relay() {
    let keys = Keys::new();
    keys.keygen(&mut Script::new(&[], &[""]), 1).unwrap();
    assert!(keys.has(store::MASTER_SECRET) && !keys.has(store::MASTER_ENCRYPTED));
    assert!(!keys.has(store::RSA_IDENTITY), "only ed25519 keys are made");
    let identity = keys.identity();
    let cert = keys.read(store::SIGNING_CERT);
    // Again: a new signing key by the same master key, for as long as torrc sets, and no passphrase is asked for.
    let mut again = Keys { ..keys };
    again.cfg.signing_key_lifetime = 60 * DAY;
    again.keygen(&mut Script::default(), 2).unwrap();
    assert_ne!(again.read(store::SIGNING_CERT), cert);
    assert_eq!(again.identity(), identity);
    let expires = signing_key_expires(&again.cfg).unwrap().unwrap();
    assert_eq!(expires, now() + 60 * DAY);
}

#[test]
fn an_encrypted_key_wants_its_passphrase_for_each_signing_key() {
    let keys = Keys::new();
    keys.keygen(&mut Script::new(&[], &["secret"]), 1).unwrap();
    assert!(keys.has(store::MASTER_ENCRYPTED) && !keys.has(store::MASTER_SECRET));
    let identity = keys.identity();
    let cert = keys.read(store::SIGNING_CERT);
    keys.keygen(&mut Script::new(&["wrong", "", "secret"], &[]), 2)
        .unwrap();
    assert_ne!(keys.read(store::SIGNING_CERT), cert);
    assert_eq!(keys.identity(), identity);
    let cert = keys.read(store::SIGNING_CERT);
    let error = keys
        .keygen(&mut Script::new(&["wrong"], &[]), 3)
        .unwrap_err();
    assert!(matches!(error, KeyError::Passphrase(_)), "{error}");
    assert_eq!(keys.read(store::SIGNING_CERT), cert, "nothing changes");
}

#[test]
fn a_passphrase_is_changed_given_and_taken_away() {
    let keys = Keys::new();
    keys.keygen(&mut Script::new(&[], &[""]), 1).unwrap();
    let identity = keys.identity();
    let plain = keys.read(store::MASTER_SECRET);
    let newpass = KeygenRequest {
        new_passphrase: true,
        ..KeygenRequest::default()
    };
    let change = |current: &[&'static str], new: &[&'static str], seed| {
        keys.keygen_with(&newpass, &mut Script::new(current, new), now(), seed)
    };
    change(&[], &["one"], 2).unwrap();
    assert!(keys.has(store::MASTER_ENCRYPTED));
    assert!(
        !keys.has(store::MASTER_SECRET),
        "the key in the clear is removed"
    );
    change(&["one"], &["two"], 3).unwrap();
    assert!(change(&["one"], &["three"], 4).is_err());
    let error = change(&["two"], &[], 5).unwrap_err();
    assert!(matches!(error, KeyError::NoNewPassphrase), "{error}");
    change(&["two"], &[""], 6).unwrap();
    assert_eq!(keys.read(store::MASTER_SECRET), plain);
    assert_eq!(keys.identity(), identity);
}

#[test]
fn a_master_key_may_be_elsewhere() {
    let keys = Keys::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("master");
    let request = KeygenRequest {
        master_key: Some(path.clone()),
        ..KeygenRequest::default()
    };
    let mut script = Script::new(&[], &["secret"]);
    keys.keygen_with(&request, &mut script, now(), 1).unwrap();
    assert!(path.exists() && elsewhere.path().join("master_public_key").exists());
    assert!(!keys.has(store::MASTER_PUBLIC) && keys.has(store::SIGNING_CERT));
    let mut script = Script::new(&["secret"], &[]);
    keys.keygen_with(&request, &mut script, now(), 2).unwrap();
    // In the clear, too.
    let newpass = KeygenRequest {
        new_passphrase: true,
        ..request.clone()
    };
    let mut script = Script::new(&["secret"], &[""]);
    keys.keygen_with(&newpass, &mut script, now(), 3).unwrap();
    assert!(path.exists());
    keys.keygen_with(&request, &mut Script::default(), now(), 4)
        .unwrap();
    // The relay takes the identity from the certificate.
    keys.identity();
}

#[test]
fn no_second_identity_is_made_where_the_master_key_is_missing() {
    let keys = Keys::new();
    keys.keygen(&mut Script::new(&[], &[""]), 1).unwrap();
    keys.remove(store::MASTER_SECRET);
    let refused = |name: &str| {
        let error = keys.keygen(&mut Script::new(&[], &[""]), 2).unwrap_err();
        assert!(
            matches!(error, KeyError::NoMasterKey { .. }),
            "{name}: {error}"
        );
        assert!(!keys.has(store::MASTER_SECRET), "{name}");
    };
    refused("beside all others");
    keys.remove(store::MASTER_PUBLIC);
    refused("beside the signing key");
    keys.remove(store::SIGNING_SECRET);
    refused("beside the certificate");
    keys.remove(store::SIGNING_CERT);
    keys.keygen(&mut Script::new(&[], &[""]), 3).unwrap();
}

#[test]
fn another_relay_s_public_key_and_damaged_keys_are_refused() {
    let (keys, other) = (Keys::new(), Keys::new());
    keys.keygen(&mut Script::new(&[], &["secret"]), 1).unwrap();
    other.keygen(&mut Script::new(&[], &[""]), 2).unwrap();
    let public = keys.cfg.key_directory.join(store::MASTER_PUBLIC);
    let own = fs::read(&public).unwrap();
    fs::write(&public, other.read(store::MASTER_PUBLIC)).unwrap();
    let error = keys
        .keygen(&mut Script::new(&["secret"], &[]), 3)
        .unwrap_err();
    assert!(matches!(error, KeyError::Mismatch { .. }), "{error}");
    fs::write(&public, own).unwrap();
    let sealed = keys.cfg.key_directory.join(store::MASTER_ENCRYPTED);
    for bytes in [&b"== Boxed Ed25519 key: master ==\0TORBOX00"[..], b"", b"x"] {
        fs::write(&sealed, bytes).unwrap();
        let error = keys
            .keygen(&mut Script::new(&["secret"], &[]), 4)
            .unwrap_err();
        assert!(matches!(error, KeyError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_damaged_signing_key_is_replaced() {
    let keys = Keys::new();
    keys.keygen(&mut Script::new(&[], &[""]), 1).unwrap();
    let identity = keys.identity();
    fs::write(keys.cfg.key_directory.join(store::SIGNING_CERT), "x").unwrap();
    keys.keygen(&mut Script::default(), 2).unwrap();
    assert_eq!(keys.identity(), identity);
    let later = now() + 40 * DAY;
    keys.keygen_with(&KeygenRequest::default(), &mut Script::default(), later, 3)
        .unwrap();
    let expires = signing_key_expires(&keys.cfg).unwrap().unwrap();
    assert_eq!(expires, later + 30 * DAY);
}
