//! The life of a key directory: made, loaded, renewed, rotated, damaged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

/// A DataDirectory that goes away with the test.
struct Relay {
    dir: TempDir,
    cfg: KeyConfig,
}

impl Relay {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cfg = KeyConfig::new(dir.path());
        Self { dir, cfg }
    }

    /// With keys made at [`now`].
    fn with_keys() -> (Self, RelayKeys) {
        let relay = Self::new();
        let keys = relay.load(now()).unwrap();
        (relay, keys)
    }

    fn load(&self, now: SystemTime) -> Result<RelayKeys, KeyError> {
        RelayKeys::load_or_create(&self.cfg, now, &mut rng(7))
    }

    fn key(&self, name: &str) -> std::path::PathBuf {
        self.cfg.key_directory.join(name)
    }

    fn remove(&self, names: &[&str]) {
        for name in names {
            fs::remove_file(self.key(name)).unwrap();
        }
    }

    /// Every file below the DataDirectory: its contents; nothing for a directory.
    fn snapshot(&self) -> BTreeMap<String, Vec<u8>> {
        fn walk(dir: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.display().to_string();
                if path.is_dir() {
                    files.insert(name, Vec::new());
                    walk(&path, files);
                } else {
                    files.insert(name, fs::read(&path).unwrap());
                }
            }
        }
        let mut files = BTreeMap::new();
        walk(self.dir.path(), &mut files);
        files
    }

    /// Loading fails with a message that has all of `words`, and changes no byte on disk.
    #[track_caller]
    fn refuses(&self, now: SystemTime, words: &[&str]) {
        let before = self.snapshot();
        for _ in 0..2 {
            let message = self.load(now).unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "no {word:?} in: {message}");
            }
        }
        assert!(before == self.snapshot(), "files changed: {words:?}");
    }
}

const ALL: [&str; 7] = [
    store::MASTER_PUBLIC,
    store::MASTER_SECRET,
    store::SIGNING_CERT,
    store::SIGNING_SECRET,
    store::RSA_IDENTITY,
    store::TAP,
    store::NTOR,
];

#[test]
fn a_first_start_makes_every_file_private() {
    let (relay, keys) = Relay::with_keys();
    let mut names: Vec<_> = fs::read_dir(&relay.cfg.key_directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut all = ALL;
    all.sort();
    assert_eq!(names, all);
    for name in ALL {
        assert_eq!(fs::metadata(relay.key(name)).unwrap().mode() & 0o777, 0o600);
    }
    assert_eq!(
        fs::metadata(&relay.cfg.key_directory).unwrap().mode() & 0o777,
        0o700
    );
    let print = fs::read_to_string(relay.dir.path().join("fingerprint")).unwrap();
    assert_eq!(print, format!("Unnamed {}\n", keys.fingerprint()));
    assert!(!relay.dir.path().join("hashed-fingerprint").exists());
    assert_eq!(
        keys.fingerprint_spaced().replace(' ', ""),
        keys.fingerprint()
    );
    assert_eq!(keys.fingerprint_spaced().len(), 49);
    assert_eq!(keys.signing_expires, now() + 30 * DAY);
    assert_eq!(keys.onion_key_set_at(), now());
}

#[test]
fn a_second_start_changes_nothing() {
    let (relay, first) = Relay::with_keys();
    let before = relay.snapshot();
    let second = relay.load(now() + DAY).unwrap();
    assert!(before == relay.snapshot());
    assert_eq!(first.fingerprint(), second.fingerprint());
    assert_eq!(first.ed_identity, second.ed_identity);
    assert_eq!(first.signing_cert, second.signing_cert);
    assert_eq!(first.ntor.current.secret, second.ntor.current.secret);
    assert_eq!(second.onion_key_set_at(), now());
}

#[test]
fn keys_on_disk_are_read_whatever_their_age_and_the_mode_of_their_directory() {
    let (mut relay, keys) = Relay::with_keys();
    relay.remove(&[store::TAP, store::NTOR]);
    let directory = relay.cfg.key_directory.clone();
    for path in [relay.dir.path(), &directory] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let before = relay.snapshot();
    let read = KeysOnDisk::read(&relay.cfg).unwrap();
    assert_eq!(read.identities.fingerprint(), keys.fingerprint());
    assert_eq!(read.identities.ed25519, keys.ed_identity);
    assert_eq!(read.signing_expires, Some(keys.signing_expires));
    assert!(read.has_master_key);
    relay.cfg.offline_master_key = true;
    assert!(!KeysOnDisk::read(&relay.cfg).unwrap().has_master_key);
    assert!(before == relay.snapshot());
    for path in [relay.dir.path(), &directory] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o755);
    }
    relay.cfg.offline_master_key = false;
    relay.remove(&[store::MASTER_SECRET]);
    assert!(!KeysOnDisk::read(&relay.cfg).unwrap().has_master_key);
    relay.remove(&[store::RSA_IDENTITY]);
    let error = KeysOnDisk::read(&relay.cfg).unwrap_err();
    assert!(matches!(error, KeyError::Missing(_)), "{error}");
}

#[test]
fn reading_without_the_lock_writes_nothing() {
    let relay = Relay::new();
    assert!(RelayKeys::load(&relay.cfg, now(), &mut rng(1)).is_err());
    assert!(relay.snapshot().is_empty());
    let keys = relay.load(now()).unwrap();
    fs::write(relay.key("ed25519_signing_secret_key.tmp"), "left behind").unwrap();
    fs::remove_file(relay.dir.path().join("fingerprint")).unwrap();
    fs::set_permissions(relay.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let before = relay.snapshot();
    // Even where the signing key should be renewed soon.
    for when in [now(), now() + 29 * DAY + DAY / 2] {
        let read = RelayKeys::load(&relay.cfg, when, &mut rng(1)).unwrap();
        assert_eq!(read.fingerprint(), keys.fingerprint());
    }
    let mode = fs::metadata(relay.dir.path()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o755);
    relay.remove(&[store::TAP]);
    let error = RelayKeys::load(&relay.cfg, now(), &mut rng(1)).unwrap_err();
    assert!(matches!(error, KeyError::Missing(_)), "{error}");
    fs::write(
        relay.key(store::TAP),
        &before[&relay.key(store::TAP).display().to_string()],
    )
    .unwrap();
    assert!(before == relay.snapshot());
}

#[test]
fn every_damage_is_named_and_nothing_is_overwritten() {
    let (relay, _) = Relay::with_keys();
    let other = Relay::with_keys_of(8);
    for name in ALL {
        let path = relay.key(name);
        let good = fs::read(&path).unwrap();

        if name != store::NTOR && name != store::TAP {
            fs::write(&path, "").unwrap();
            relay.refuses(now(), &[name, "is empty", "left as it is"]);
        }
        fs::write(&path, &good[..20]).unwrap();
        relay.refuses(now(), &[name]);
        fs::write(&path, &good[..good.len() - 1]).unwrap();
        if name == store::RSA_IDENTITY || name == store::TAP {
            // Only the line's end is gone: still the same key.
            relay.load(now()).unwrap();
        } else {
            relay.refuses(now(), &[name]);
        }
        fs::write(&path, [&good[..], b"more"].concat()).unwrap();
        relay.refuses(now(), &[name]);
        fs::write(&path, vec![b'x'; 100_000]).unwrap();
        relay.refuses(now(), &[name, "too long"]);
        fs::write(&path, "hello\n").unwrap();
        relay.refuses(now(), &[name]);

        for (at, bit) in [(2, 1), (40, 8), (good.len() / 2, 1), (good.len() - 1, 1)] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            fs::write(&path, &bad).unwrap();
            // The second half of an ed25519 secret key only makes nonces: any bytes do.
            let harmless =
                (name == store::MASTER_SECRET || name == store::SIGNING_SECRET) && at >= 64;
            // The line end after the last line of PEM.
            let end = good[at] == b'\n';
            if !harmless && !end {
                relay.refuses(now(), &[name]);
            }
        }

        // A file of another kind, and the same file of another relay.
        let kind = if name == store::NTOR {
            store::MASTER_SECRET
        } else {
            store::NTOR
        };
        fs::copy(relay.key(kind), &path).unwrap();
        relay.refuses(now(), &[name]);
        let single = [store::RSA_IDENTITY, store::TAP, store::NTOR];
        if !single.contains(&name) {
            fs::copy(other.key(name), &path).unwrap();
            relay.refuses(now(), &[name, "does not match"]);
        }

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        relay.refuses(now(), &[name, "directory"]);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, &good).unwrap();
        relay.load(now()).unwrap();
    }
}

impl Relay {
    fn with_keys_of(seed: u64) -> Self {
        let relay = Self::new();
        RelayKeys::load_or_create(&relay.cfg, now(), &mut rng(seed)).unwrap();
        relay
    }
}

#[test]
fn a_key_file_open_to_others_still_loads_as_in_c_tor() {
    let (relay, keys) = Relay::with_keys();
    for name in ALL {
        fs::set_permissions(relay.key(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(&relay.cfg.key_directory, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(relay.load(now()).unwrap().fingerprint(), keys.fingerprint());
    // The directory is what keeps others out.
    assert_eq!(
        fs::metadata(&relay.cfg.key_directory).unwrap().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_missing_part_of_the_identity_is_restored_from_the_others() {
    let (relay, keys) = Relay::with_keys();
    let before = relay.snapshot();
    relay.remove(&[store::MASTER_PUBLIC]);
    assert_eq!(relay.load(now()).unwrap().ed_identity, keys.ed_identity);
    assert!(before == relay.snapshot());
    // From the certificate alone.
    relay.remove(&[store::MASTER_PUBLIC, store::MASTER_SECRET]);
    assert_eq!(relay.load(now()).unwrap().ed_identity, keys.ed_identity);
    assert_eq!(
        fs::read(relay.key(store::MASTER_PUBLIC)).unwrap(),
        before[&relay.key(store::MASTER_PUBLIC).display().to_string()]
    );
}

#[test]
fn signing_keys_are_renewed_before_they_run_out() {
    let (relay, mut keys) = Relay::with_keys();
    let old = keys.signing_cert.clone();
    assert!(
        !keys
            .renew_signing_if_due(now() + 29 * DAY, &mut rng(9))
            .unwrap()
    );
    let late = now() + 29 * DAY + Duration::from_secs(3600);
    assert!(keys.renew_signing_if_due(late, &mut rng(9)).unwrap());
    assert_ne!(keys.signing_cert, old);
    assert_eq!(keys.signing_expires, late + 30 * DAY);
    let again = relay.load(late).unwrap();
    assert_eq!(again.signing_cert, keys.signing_cert);
    assert_eq!(again.signing.public(), keys.signing.public());
    // And at a start, even years later.
    let much_later = now() + 1000 * DAY;
    let renewed = relay.load(much_later).unwrap();
    assert_eq!(renewed.signing_expires, much_later + 30 * DAY);
    assert_eq!(renewed.ed_identity, keys.ed_identity);
}

#[test]
fn the_certificate_is_signed_by_the_identity_over_the_signing_key() {
    let (_relay, keys) = Relay::with_keys();
    let cert = format::signing_cert(&format::tag(format::Kind::SIGNING_CERT, &keys.signing_cert));
    let cert = cert.unwrap();
    assert_eq!(cert.identity, keys.ed_identity);
    assert_eq!(cert.subject, Ed25519Identity::from(keys.signing.public()));
}

#[test]
fn a_renewal_interrupted_between_its_files_is_finished() {
    let (relay, mut keys) = Relay::with_keys();
    let old_key = fs::read(relay.key(store::SIGNING_SECRET)).unwrap();
    let late = now() + 29 * DAY + DAY / 2;
    assert!(keys.renew_signing_if_due(late, &mut rng(9)).unwrap());
    // As if the power had failed after the first rename.
    let tmp = relay.key("ed25519_signing_secret_key.tmp");
    fs::rename(relay.key(store::SIGNING_SECRET), &tmp).unwrap();
    fs::write(relay.key(store::SIGNING_SECRET), &old_key).unwrap();
    let loaded = relay.load(late).unwrap();
    assert_eq!(loaded.signing_cert, keys.signing_cert);
    assert!(!tmp.exists());
    // A stray one that does not belong there is not taken.
    fs::write(&tmp, &old_key).unwrap();
    assert_eq!(relay.load(late).unwrap().signing_cert, keys.signing_cert);
    assert!(tmp.exists());
}

#[test]
fn an_offline_master_key_is_never_needed_while_the_certificate_lasts() {
    let (mut relay, keys) = Relay::with_keys();
    relay.remove(&[store::MASTER_SECRET]);
    for offline in [false, true] {
        relay.cfg.offline_master_key = offline;
        let loaded = relay.load(now() + 10 * DAY).unwrap();
        assert_eq!(loaded.signing_cert, keys.signing_cert);
        // Near its end there is a warning, once an hour.
        let near = now() + 29 * DAY + DAY / 2;
        let mut loaded = relay.load(near).unwrap();
        assert_eq!(loaded.warned_at, Some(near));
        let soon = near + Duration::from_secs(600);
        assert!(!loaded.renew_signing_if_due(soon, &mut rng(3)).unwrap());
        assert_eq!(loaded.warned_at, Some(near));
        let later = near + Duration::from_secs(4000);
        assert!(!loaded.renew_signing_if_due(later, &mut rng(3)).unwrap());
        assert_eq!(loaded.warned_at, Some(later));
        // Past it there is an error.
        let past = now() + 31 * DAY;
        assert!(loaded.renew_signing_if_due(past, &mut rng(3)).is_err());
        let why = if offline {
            "OfflineMasterKey is set"
        } else {
            "secret_key is missing"
        };
        relay.refuses(past, &["expired", why, "weft --keygen"]);
    }
}

#[test]
fn an_offline_master_key_is_not_touched_even_when_it_is_there() {
    let (mut relay, keys) = Relay::with_keys();
    fs::write(relay.key(store::MASTER_SECRET), "damaged").unwrap();
    relay.cfg.offline_master_key = true;
    assert_eq!(relay.load(now()).unwrap().ed_identity, keys.ed_identity);
    relay.refuses(now() + 40 * DAY, &["OfflineMasterKey is set"]);
}

#[test]
fn the_operator_may_bring_a_new_signing_key_while_the_relay_runs() {
    let (relay, mut keys) = Relay::with_keys();
    // The master's home: a copy of the directory.
    let home = Relay::new();
    fs::create_dir(&home.cfg.key_directory).unwrap();
    for name in ALL {
        fs::copy(relay.key(name), home.key(name)).unwrap();
    }
    relay.remove(&[store::MASTER_SECRET]);
    let near = now() + 29 * DAY + DAY / 2;
    assert!(!keys.renew_signing_if_due(near, &mut rng(3)).unwrap());
    let renewed = RelayKeys::load_or_create(&home.cfg, near, &mut rng(4)).unwrap();
    for name in [store::SIGNING_CERT, store::SIGNING_SECRET] {
        fs::copy(home.key(name), relay.key(name)).unwrap();
    }
    assert!(keys.renew_signing_if_due(near, &mut rng(3)).unwrap());
    assert_eq!(keys.signing_cert, renewed.signing_cert);
    assert!(!keys.reload_signing(near, &mut rng(3)).unwrap());
    // Another relay's whole identity is not taken over.
    let foreign = Relay::with_keys_of(99);
    for name in [
        store::SIGNING_CERT,
        store::SIGNING_SECRET,
        store::MASTER_PUBLIC,
    ] {
        fs::copy(foreign.key(name), relay.key(name)).unwrap();
    }
    let error = keys.reload_signing(near, &mut rng(3)).unwrap_err();
    assert!(error.to_string().contains("started with"), "{error}");
    assert_eq!(keys.signing_cert, renewed.signing_cert);
}

#[test]
fn an_encrypted_master_key_is_explained() {
    let (relay, keys) = Relay::with_keys();
    fs::rename(
        relay.key(store::MASTER_SECRET),
        relay.key(store::MASTER_ENCRYPTED),
    )
    .unwrap();
    assert_eq!(relay.load(now()).unwrap().ed_identity, keys.ed_identity);
    let words = ["_encrypted is protected by a passphrase", "weft --keygen"];
    relay.refuses(now() + 40 * DAY, &words);
    relay.remove(&[store::SIGNING_CERT, store::SIGNING_SECRET]);
    relay.refuses(now(), &words);
    relay.remove(&[store::MASTER_PUBLIC]);
    relay.refuses(now(), &words);
}

#[test]
fn no_new_identity_is_made_beside_traces_of_an_old_one() {
    let (relay, _) = Relay::with_keys();
    relay.remove(&[
        store::MASTER_PUBLIC,
        store::MASTER_SECRET,
        store::SIGNING_SECRET,
    ]);
    relay.refuses(
        now(),
        &["ed25519_signing_secret_key is missing", "--keygen"],
    );
    let (relay, _) = Relay::with_keys();
    relay.remove(&[store::MASTER_SECRET, store::SIGNING_CERT]);
    relay.refuses(now(), &["ed25519_signing_cert is missing", "--keygen"]);
    let mut relay = Relay::new();
    relay.cfg.offline_master_key = true;
    relay.cfg.prepare_directories().unwrap();
    relay.refuses(now(), &["OfflineMasterKey is set"]);
}

#[test]
fn onion_keys_rotate_by_the_state_file_and_keep_their_grace() {
    let (relay, mut keys) = Relay::with_keys();
    let params = OnionKeyParams::default();
    let first = keys.ntor.current.clone();
    let first_tap = fs::read(relay.key(store::TAP)).unwrap();
    let at = |days: u32| now() + days * DAY;
    let due = |keys: &mut RelayKeys, t| keys.rotate_if_due(t, params, &mut rng(5)).unwrap();
    assert_eq!(due(&mut keys, at(27)), Rotation::None);
    assert_eq!(due(&mut keys, at(28)), Rotation::Rotated);
    assert_eq!(keys.ntor.previous.as_ref().unwrap().public, first.public);
    assert_ne!(keys.ntor.current.public, first.public);
    assert_eq!(fs::read(relay.key(store::TAP_OLD)).unwrap(), first_tap);

    // A restart in the grace period knows both, and when they changed.
    let mut again = relay.load(at(30)).unwrap();
    assert_eq!(again.ntor.current.public, keys.ntor.current.public);
    assert_eq!(again.ntor.previous.as_ref().unwrap().secret, first.secret);
    assert_eq!(again.onion_key_set_at(), at(28));
    assert_eq!(again.tap.to_public_key(), keys.tap.to_public_key());
    assert_eq!(due(&mut again, at(34)), Rotation::None);
    assert_eq!(due(&mut again, at(35)), Rotation::PreviousExpired);
    assert!(again.ntor.previous.is_none());
    assert!(!relay.key(store::NTOR_OLD).exists() && !relay.key(store::TAP_OLD).exists());
    assert_eq!(due(&mut again, at(35)), Rotation::None);
    assert_eq!(due(&mut again, at(56)), Rotation::Rotated);
}

#[test]
fn a_previous_onion_key_is_checked_too() {
    let (relay, _) = Relay::with_keys();
    fs::write(relay.key(store::NTOR_OLD), "damaged").unwrap();
    relay.refuses(now(), &[store::NTOR_OLD]);
    // The same key twice is one key.
    fs::copy(relay.key(store::NTOR), relay.key(store::NTOR_OLD)).unwrap();
    assert!(relay.load(now()).unwrap().ntor.previous.is_none());
}

/// As in C tor: what a full disk leaves is made anew, and a folder stops rotation.
#[test]
fn an_empty_onion_key_is_made_anew_and_a_folder_for_the_previous_stops_rotation() {
    let (relay, keys) = Relay::with_keys();
    for name in [store::NTOR, store::TAP] {
        fs::write(relay.key(name), "").unwrap();
    }
    let mut anew = relay.load(now()).unwrap();
    assert_eq!(anew.fingerprint(), keys.fingerprint());
    assert_ne!(anew.ntor.current.public, keys.ntor.current.public);
    assert_ne!(anew.tap.to_public_key(), keys.tap.to_public_key());

    for name in [store::NTOR_OLD, store::TAP_OLD] {
        fs::create_dir(relay.key(name)).unwrap();
    }
    let again = relay.load(now()).unwrap();
    assert_eq!(again.ntor.current.public, anew.ntor.current.public);
    assert!(again.ntor.previous.is_none());
    let params = OnionKeyParams::default();
    let mut at = |days: u32| anew.rotate_if_due(now() + days * DAY, params, &mut rng(5));
    assert_eq!(at(8).unwrap(), Rotation::None);
    let error = at(28).unwrap_err().to_string();
    assert!(error.contains(".old"), "{error}");
    assert_eq!(anew.ntor.current.public, again.ntor.current.public);
    assert_eq!(
        relay.load(now()).unwrap().ntor.current.public,
        again.ntor.current.public
    );
}

/// The caller publishes the new key and gives it to the workers, so it has to learn of it.
#[test]
fn onion_keys_that_have_rotated_are_reported_where_their_time_cannot_be_saved() {
    let (relay, mut keys) = Relay::with_keys();
    let first = keys.ntor.current.public;
    let state = relay.dir.path().join("state");
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    let params = OnionKeyParams::default();
    let mut at = |time| keys.rotate_if_due(time, params, &mut rng(5)).unwrap();
    // A clock that was set back is no reason to rotate no more.
    assert_eq!(at(now() - DAY), Rotation::None);
    let due = now() + 27 * DAY;
    assert_eq!(at(due), Rotation::Rotated);
    assert_eq!(at(due + DAY), Rotation::None);
    assert_ne!(keys.ntor.current.public, first);
    assert_eq!(keys.ntor.previous.as_ref().unwrap().public, first);
    assert_eq!(keys.onion_key_set_at(), due);
}

#[test]
fn a_clock_that_jumps_does_not_keep_a_key_for_ever() {
    let (relay, mut keys) = Relay::with_keys();
    let params = OnionKeyParams::default();
    let far = now() + 3650 * DAY;
    assert_eq!(
        keys.rotate_if_due(far, params, &mut rng(5)).unwrap(),
        Rotation::Rotated
    );
    // Back again: the 28 days start now.
    assert_eq!(
        keys.rotate_if_due(now(), params, &mut rng(5)).unwrap(),
        Rotation::None
    );
    assert_eq!(keys.onion_key_set_at(), now());
    let t = now() + 28 * DAY;
    assert_eq!(
        keys.rotate_if_due(t, params, &mut rng(5)).unwrap(),
        Rotation::Rotated
    );
    // A state file from the future is not believed at a start either.
    assert_eq!(relay.load(now()).unwrap().onion_key_set_at(), now());
}

#[test]
fn consensus_values_are_clamped() {
    let days = |r, g| {
        let p = OnionKeyParams::from_days(r, g);
        (p.lifetime.as_secs() / 86_400, p.grace.as_secs() / 86_400)
    };
    assert_eq!(days(28, 7), (28, 7));
    assert_eq!(days(0, -5), (1, 1));
    assert_eq!(days(1000, 1000), (90, 90));
    assert_eq!(days(3, 7), (3, 3));
}

#[test]
fn directories_that_cannot_be_made_leave_nothing_half_written() {
    let mut relay = Relay::new();
    relay.cfg.key_directory = relay.dir.path().join("no/such/parent");
    let message = relay.load(now()).unwrap_err().to_string();
    assert!(message.contains("no/such/parent"), "{message}");
    // A file that cannot be put in place: the keys made before it are taken back.
    let relay = Relay::new();
    relay.cfg.prepare_directories().unwrap();
    fs::create_dir(relay.key("secret_onion_key_ntor.tmp")).unwrap();
    relay.refuses(now(), &["secret_onion_key_ntor"]);
}

/// Not a test of its own: what the next test starts in a process whose files must stay short.
#[test]
#[ignore = "limits its process"]
fn child_on_a_full_disk() {
    // The signal's default action would end the process; with a handler the write fails.
    let hit = std::sync::Arc::default();
    signal_hook::flag::register(libc::SIGXFSZ, hit).unwrap();
    let resource = nix::sys::resource::Resource::RLIMIT_FSIZE;
    let (_, hard) = nix::sys::resource::getrlimit(resource).unwrap();
    let relay = Relay::new();
    relay.cfg.prepare_directories().unwrap();
    // Room for every ed25519 file, and for the first half of an RSA key.
    nix::sys::resource::setrlimit(resource, 400, hard).unwrap();
    relay.refuses(now(), &["cannot write", "secret_id_key"]);
    assert_eq!(relay.snapshot().len(), 1, "only the key directory");

    nix::sys::resource::setrlimit(resource, hard, hard).unwrap();
    let mut keys = relay.load(now()).unwrap();
    let before = relay.snapshot();
    let ntor = keys.ntor.current.public;
    nix::sys::resource::setrlimit(resource, 400, hard).unwrap();
    let due = now() + 28 * DAY;
    keys.rotate_if_due(due, OnionKeyParams::default(), &mut rng(5))
        .unwrap_err();
    assert_eq!(keys.ntor.current.public, ntor);
    assert!(before == relay.snapshot());
}

#[test]
fn a_disk_that_fills_up_leaves_nothing_half_written() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "keys::tests::child_on_a_full_disk",
            "--ignored",
            "--test-threads=1",
        ])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && message.contains("1 passed"),
        "{message}"
    );
}

#[test]
fn a_bridge_has_a_file_by_which_it_may_be_spoken_of() {
    let mut relay = Relay::new();
    relay.cfg.bridge = true;
    let keys = relay.load(now()).unwrap();
    let hashed = fs::read_to_string(relay.dir.path().join("hashed-fingerprint")).unwrap();
    let digest = hex::encode_upper(Sha1::digest(hex::decode(keys.fingerprint()).unwrap()));
    assert_eq!(hashed, format!("Unnamed {digest}\n"));
    assert_eq!(digest, keys.hashed_fingerprint());
}

#[test]
fn debug_output_shows_no_secret() {
    let (_relay, keys) = Relay::with_keys();
    let shown = format!("{keys:?}");
    assert!(!shown.contains(&hex::encode(keys.ntor.current.secret.as_slice())));
    assert!(shown.contains(&hex::encode(keys.ntor.current.public)));
}
