//! Tests of backups.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::*;
use crate::keys::RelayKeys;

fn rng() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(1)
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_800_000_000_123)
}

fn config(at: &Path) -> KeyConfig {
    let mut config = KeyConfig::new(at.join("data"));
    config.nickname = "one".to_owned();
    config
}

fn places(config: &KeyConfig) -> Places<'_> {
    Places {
        keys: config,
        family: &config.key_directory,
    }
}

/// A relay with a key of a family and the keys of a transport.
fn relay(at: &Path) -> (KeyConfig, RelayKeys) {
    let config = config(at);
    let keys = RelayKeys::load_or_create(&config, now(), &mut rng()).unwrap();
    family::create(&config.key_directory.join("ours"), &mut rng()).unwrap();
    let transport = config.data_directory.join("pt_state/obfs4");
    fs::create_dir_all(&transport).unwrap();
    for folder in [&transport, transport.parent().unwrap()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(transport.join("state.json"), "{}").unwrap();
    (config, keys)
}

fn backup_of(config: &KeyConfig) -> Backup {
    let addresses = vec!["192.0.2.1:9001".parse().unwrap()];
    Backup::collect(places(config), addresses, now()).unwrap()
}

#[test]
fn a_relay_is_the_same_elsewhere() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config_here, keys) = relay(here.path());
    let sealed = backup_of(&config_here).seal(b"secret", &mut rng()).unwrap();
    assert!(!sealed.windows(11).any(|bytes| bytes == b"weft-backup"));
    let opened = Backup::open(&sealed, b"secret").unwrap();
    assert_eq!(opened, backup_of(&config_here));
    assert!(opened.has_master_key());

    let config_there = config(there.path());
    config_there.prepare_directories().unwrap();
    let written = opened.restore(places(&config_there)).unwrap();
    assert_eq!(written, opened.len());
    // Months later: the signing key is made anew, the relay is the same.
    let later = now() + Duration::from_secs(90 * 86_400);
    let again = RelayKeys::load_or_create(&config_there, later, &mut rng()).unwrap();
    assert_eq!(again.fingerprint(), keys.fingerprint());
    assert_eq!(again.ed_identity, keys.ed_identity);
    assert_eq!(again.ntor.current.public, keys.ntor.current.public);
    assert_ne!(again.signing_cert, keys.signing_cert);
    let data = &config_there.data_directory;
    assert_eq!(
        fs::read_to_string(data.join("pt_state/obfs4/state.json")).unwrap(),
        "{}"
    );
    assert!(data.join("keys/ours.secret_family_key").exists());
    assert!(data.join("state").exists());
}

#[test]
fn what_is_there_is_never_replaced() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config_here, _) = relay(here.path());
    let backup = backup_of(&config_here);
    // Twice is once.
    assert_eq!(backup.restore(places(&config_here)).unwrap(), 0);
    let config_there = config(there.path());
    RelayKeys::load_or_create(&config_there, now(), &mut ChaCha20Rng::seed_from_u64(2)).unwrap();
    let key = config_there.key_directory.join("secret_id_key");
    let before = fs::read(&key).unwrap();
    let error = backup.restore(places(&config_there)).unwrap_err();
    assert!(matches!(error, BackupError::Occupied(_)), "{error}");
    assert_eq!(fs::read(&key).unwrap(), before);
    // A key that the backup lacks is another relay's, too.
    let third = tempfile::tempdir().unwrap();
    let config_third = config(third.path());
    config_third.prepare_directories().unwrap();
    fs::write(
        config_third.key_directory.join("authority_identity_key"),
        "x",
    )
    .unwrap();
    let error = backup.restore(places(&config_third)).unwrap_err();
    assert!(
        error.to_string().contains("authority_identity_key"),
        "{error}"
    );
    assert!(!config_third.key_directory.join("secret_id_key").exists());
}

#[test]
fn a_relay_that_was_moved_does_not_start_until_it_is_brought_back() {
    let here = tempfile::tempdir().unwrap();
    let (config, _) = relay(here.path());
    let backup = backup_of(&config);
    let mark = mark_moved(&config, Path::new("/media/one.backup"), now()).unwrap();
    let is_refused = || {
        let error = RelayKeys::load_or_create(&config, now(), &mut rng()).unwrap_err();
        matches!(error, KeyError::Moved(_)) && error.to_string().contains("keys/moved")
    };
    assert!(is_refused());
    // The mark is of this machine.
    assert_eq!(backup_of(&config), backup);
    // By the backup that moved it, or one before, it may run elsewhere now.
    for age in [0, 1, 86_400] {
        let mut old = backup.clone();
        old.made -= Duration::from_secs(age);
        let error = old.restore(places(&config)).unwrap_err();
        assert!(matches!(error, BackupError::Moved(_)), "{error}");
        let error = error.to_string();
        assert!(
            error.contains("keys/moved") && error.contains("--move"),
            "{error}"
        );
        assert!(is_refused());
    }
    // One that is made later is of where it ran since.
    let mut new = backup;
    new.made += Duration::from_secs(1);
    assert_eq!(new.restore(places(&config)).unwrap(), 0);
    assert!(!mark.exists());
    RelayKeys::load_or_create(&config, now(), &mut rng()).unwrap();
}

#[test]
fn a_mark_without_a_time_is_lifted_by_no_backup() {
    let here = tempfile::tempdir().unwrap();
    let (config, _) = relay(here.path());
    let backup = backup_of(&config);
    let mark = config.key_directory.join(MOVED);
    let is_refused = || {
        let error = backup.restore(places(&config)).unwrap_err();
        matches!(error, BackupError::Moved(_))
    };
    for text in [
        "",
        "moved to B",
        "Moved by `weft backup --move` at noon (\n",
    ] {
        fs::write(&mark, text).unwrap();
        assert!(is_refused(), "{text}");
    }
    fs::remove_file(&mark).unwrap();
    symlink("nowhere", &mark).unwrap();
    assert!(is_refused());
    fs::remove_file(&mark).unwrap();
    assert_eq!(backup.restore(places(&config)).unwrap(), 0);
}

#[test]
fn without_an_address_to_ask_the_operator_answers_for_the_relay() {
    let here = tempfile::tempdir().unwrap();
    let (config, _) = relay(here.path());
    let mut backup = backup_of(&config);
    for not_running in [false, true] {
        let asked = backup.addresses_to_ask(not_running).unwrap();
        assert_eq!(asked, backup.addresses);
    }
    backup.addresses.clear();
    let error = backup.addresses_to_ask(false).unwrap_err();
    assert!(error.to_string().contains("--not-running"), "{error}");
    assert!(backup.addresses_to_ask(true).unwrap().is_empty());
}

/// Moves a file out of the relay's directories, and links to it.
fn link_out(file: &Path, to: &Path) {
    fs::rename(file, to).unwrap();
    symlink(to, file).unwrap();
}

#[test]
fn linked_files_are_kept_as_files() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config_here, _) = relay(here.path());
    let before = backup_of(&config_here);
    let (keys, data) = (&config_here.key_directory, &config_here.data_directory);
    for (index, file) in [
        keys.join("ed25519_master_id_secret_key"),
        keys.join("ours.secret_family_key"),
        data.join("state"),
        data.join("pt_state/obfs4/state.json"),
    ]
    .iter()
    .enumerate()
    {
        link_out(file, &here.path().join(index.to_string()));
    }
    // What is not of the identity may lead anywhere.
    symlink("nowhere", data.join("cached-descriptors")).unwrap();
    symlink("nowhere", keys.join("secret_id_key.tmp")).unwrap();
    let backup = backup_of(&config_here);
    assert_eq!(backup, before);
    assert!(backup.has_master_key());
    assert_eq!(backup.restore(places(&config_here)).unwrap(), 0);
    let config_there = config(there.path());
    config_there.prepare_directories().unwrap();
    backup.restore(places(&config_there)).unwrap();
    let master = config_there
        .key_directory
        .join("ed25519_master_id_secret_key");
    assert!(master.symlink_metadata().unwrap().is_file());
    assert_eq!(backup_of(&config_there), backup);
}

#[test]
fn a_link_that_leads_to_no_file_is_named() {
    let here = tempfile::tempdir().unwrap();
    let (config, _) = relay(here.path());
    let (keys, data) = (&config.key_directory, &config.data_directory);
    let folders = data.join("pt_state");
    let backup = backup_of(&config);
    for (link, to) in [
        (
            keys.join("ed25519_master_id_secret_key_encrypted"),
            "nowhere",
        ),
        (keys.join("secret_onion_key_ntor.old"), "."),
        (keys.join("theirs.secret_family_key"), "/dev/null"),
        (folders.join("circle"), ".."),
        (folders.join("obfs4/bridgeline"), "nowhere"),
    ] {
        symlink(to, &link).unwrap();
        let error = Backup::collect(places(&config), Vec::new(), now()).unwrap_err();
        assert!(matches!(error, BackupError::Link(_)), "{error}");
        let error = error.to_string();
        assert!(error.contains(&link.display().to_string()), "{error}");
        fs::remove_file(link).unwrap();
    }
    // A link whose file is away for now is not replaced.
    let state = data.join("state");
    fs::remove_file(&state).unwrap();
    symlink("nowhere", &state).unwrap();
    let error = backup.restore(places(&config)).unwrap_err();
    assert!(matches!(error, BackupError::Occupied(_)), "{error}");
    assert!(state.symlink_metadata().unwrap().is_symlink());
}

#[test]
fn keys_in_the_data_directory_itself_come_back() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shared = |at: &Path| {
        let mut config = config(at);
        config.key_directory.clone_from(&config.data_directory);
        config
    };
    let (config_here, config_there) = (shared(here.path()), shared(there.path()));
    let keys = RelayKeys::load_or_create(&config_here, now(), &mut rng()).unwrap();
    let data = &config_here.data_directory;
    family::create(&data.join("ours"), &mut rng()).unwrap();
    let cached = fs::File::create(data.join("cached-microdescs")).unwrap();
    cached.set_len(MAX_FILE as u64 + 1).unwrap();
    let backup = backup_of(&config_here);
    let names = backup.files.keys().map(|(_, name)| name.as_str());
    assert_eq!(names.clone().filter(|name| *name == "state").count(), 1);
    assert!(names.clone().any(|name| name == "ours.public_family_id"));
    assert!(!names.clone().any(|name| name.starts_with("fingerprint")));
    assert_eq!(backup.restore(places(&config_here)).unwrap(), 0);

    config_there.prepare_directories().unwrap();
    let data = &config_there.data_directory;
    fs::write(data.join("lock"), "").unwrap();
    fs::write(data.join("cached-certs"), "x").unwrap();
    assert_eq!(backup.restore(places(&config_there)).unwrap(), backup.len());
    assert_eq!(backup.restore(places(&config_there)).unwrap(), 0);
    let again = RelayKeys::load_or_create(&config_there, now(), &mut rng()).unwrap();
    assert_eq!(again.fingerprint(), keys.fingerprint());
    assert_eq!(again.ntor.current.public, keys.ntor.current.public);
    // Keys that the backup lacks are still another relay's.
    family::create(&data.join("theirs"), &mut rng()).unwrap();
    let error = backup.restore(places(&config_there)).unwrap_err();
    assert!(error.to_string().contains("theirs."), "{error}");
}

#[test]
fn folders_that_are_one_where_it_is_restored_have_each_file_once() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config_here, _) = relay(here.path());
    let family = here.path().join("families");
    fs::create_dir(&family).unwrap();
    let ours = "ours.secret_family_key";
    fs::copy(config_here.key_directory.join(ours), family.join(ours)).unwrap();
    let apart = Places {
        keys: &config_here,
        family: &family,
    };
    let collect = || Backup::collect(apart, Vec::new(), now()).unwrap();
    let backup = collect();
    let config_there = config(there.path());
    config_there.prepare_directories().unwrap();
    let written = backup.restore(places(&config_there)).unwrap();
    assert_eq!(written, backup.len() - 1);
    assert_eq!(backup.restore(places(&config_there)).unwrap(), 0);
    // Two that differ cannot be in one place.
    let theirs = family::create(&family.join("theirs"), &mut ChaCha20Rng::seed_from_u64(2));
    fs::rename(theirs.unwrap().path, family.join(ours)).unwrap();
    let error = collect().restore(places(&config_there)).unwrap_err();
    assert!(matches!(error, BackupError::Damaged(_)), "{error}");
}

#[test]
fn an_identity_that_is_empty_is_damaged_and_an_onion_key_is_none() {
    let here = tempfile::tempdir().unwrap();
    let (config, _) = relay(here.path());
    let collect = || Backup::collect(places(&config), Vec::new(), now());
    for onion in ["secret_onion_key_ntor", "secret_onion_key"] {
        fs::write(config.key_directory.join(onion), "").unwrap();
        collect().unwrap();
    }
    for name in [
        "ed25519_master_id_secret_key",
        "ed25519_signing_cert",
        "secret_id_key",
    ] {
        let path = config.key_directory.join(name);
        let before = fs::read(&path).unwrap();
        fs::write(&path, "").unwrap();
        let error = collect().unwrap_err();
        assert!(
            matches!(error, BackupError::Keys(KeyError::Damaged { .. })),
            "{name}: {error}"
        );
        fs::write(&path, before).unwrap();
    }
}

#[test]
fn keys_of_two_relays_or_damaged_ones_are_no_backup() {
    let (here, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (config, _) = relay(here.path());
    let of_other = self::config(other.path());
    RelayKeys::load_or_create(&of_other, now(), &mut ChaCha20Rng::seed_from_u64(2)).unwrap();
    let name = "ed25519_signing_cert";
    fs::copy(
        of_other.key_directory.join(name),
        config.key_directory.join(name),
    )
    .unwrap();
    let collect = || Backup::collect(places(&config), Vec::new(), now()).unwrap_err();
    assert!(matches!(
        collect(),
        BackupError::Keys(KeyError::Mismatch { .. })
    ));
    fs::write(config.key_directory.join("secret_id_key"), "half a k").unwrap();
    assert!(matches!(
        collect(),
        BackupError::Keys(KeyError::Damaged { .. })
    ));
    fs::remove_file(config.key_directory.join("secret_id_key")).unwrap();
    assert!(matches!(collect(), BackupError::Keys(KeyError::Missing(_))));
}

#[test]
fn what_is_no_backup_says_so() {
    let here = tempfile::tempdir().unwrap();
    let (config, _) = relay(here.path());
    let sealed = backup_of(&config).seal(b"secret", &mut rng()).unwrap();
    let open = |bytes: &[u8], passphrase: &[u8]| Backup::open(bytes, passphrase).unwrap_err();
    assert!(matches!(open(&sealed, b"Secret"), BackupError::Passphrase));
    assert!(matches!(open(b"", b"secret"), BackupError::NoBackup));
    assert!(matches!(
        open(b"ControlPort 9051\n", b""),
        BackupError::NoBackup
    ));
    assert!(matches!(
        open(&sealed[..sealed.len() - 1], b"secret"),
        BackupError::Passphrase
    ));
    // An encrypted master key opens, and is none.
    let key = pwbox::seal(&[7; 64], b"secret", &mut rng()).unwrap();
    assert!(matches!(open(&key, b"secret"), BackupError::NoBackup));
}

#[test]
fn files_stay_in_their_folders() {
    let text = |lines: &str| format!("weft-backup 1\nmade 1\nnickname x\n{lines}").into_bytes();
    let names = |lines: &str| {
        let backup = Backup::from_bytes(&text(lines))?;
        Ok::<_, BackupError>(
            backup
                .files
                .into_keys()
                .map(|(_, name)| name)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(names("file keys a 0\n\n").unwrap(), ["a"]);
    assert_eq!(names("file transports a b/c 1\nx\n").unwrap(), ["a b/c"]);
    for wrong in [
        "file keys ../a 0\n\n",
        "file keys /etc/passwd 0\n\n",
        "file keys a/b 0\n\n",
        "file keys . 0\n\n",
        "file keys  0\n\n",
        "file transports a//b 0\n\n",
        "file transports a/./b 0\n\n",
        "file transports a/b/c/d/e 0\n\n",
        "file elsewhere a 0\n\n",
        "file keys a 1\n\n",
        "file keys a 99999999999\n\n",
        "file keys a 0\n\nfile keys a 0\n\n",
        "address 192.0.2.1\n",
        "made -1\n",
        "nickname \u{1b}[2J\n",
        "nickname \n",
        "nickname aaaaaaaaaaaaaaaaaaaa\n",
        "made 99999999999999999999\n",
        "unknown x\n",
        "nothing\n",
        "no end",
    ] {
        assert!(names(wrong).is_err(), "{wrong}");
    }
}
