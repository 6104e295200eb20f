//! Files that are read and written, also where something is in the way, the disk is full, or the process is killed.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use nix::sys::signal::Signal;

use super::interruption::{End, Interruption, REALLY, interrupted};
use super::*;

#[test]
fn a_dropped_stage_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    fs::write(&a, "old").unwrap();
    let mut staged = Staged::default();
    staged.add(&a, b"new").unwrap();
    staged.add(&dir.path().join("b"), b"new").unwrap();
    drop(staged);
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["a"]);
    assert_eq!(fs::read(&a).unwrap(), b"old");
}

#[test]
fn who_may_not_use_a_file_reads_its_owner_and_the_command_that_gives_it_away() {
    let dir = tempfile::tempdir().unwrap();
    let (file, missing) = (dir.path().join("file"), dir.path().join("missing"));
    fs::write(&file, "").unwrap();
    let denied = |doing, path| {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        FileError::new(doing, path, source).to_string()
    };
    let own = denied("write", &file);
    assert!(
        own.ends_with("Change its permissions, or those of its directory"),
        "{own}"
    );
    if !geteuid().is_root() {
        return;
    }
    let give = |path: &Path| {
        nix::unistd::chown(path, Some(Uid::from_raw(12345)), None).unwrap();
    };
    give(dir.path());
    let owner = format!("{} belongs to <unknown>, 12345,", dir.path().display());
    let command = format!("mkdir {0} && chown 0:0 {0}\" as root", missing.display());
    let created = denied(CREATE_DIRECTORY, &missing);
    assert!(
        created.contains(&owner) && created.ends_with(&command),
        "{created}"
    );
    // A directory with other files may be the system's.
    for path in [&missing, &file] {
        let written = denied("write", path);
        assert!(
            written.contains(&owner) && !written.contains("chown"),
            "{written}"
        );
    }
    give(&file);
    let read = denied("read", &file);
    let command = format!("chown 0:0 {}\" as root", file.display());
    assert!(read.ends_with(&command), "{read}");
}

#[test]
fn a_committed_stage_is_private_and_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    fs::write(&a, "old").unwrap();
    fs::write(temporary(&a), "left behind").unwrap();
    let mut staged = Staged::default();
    staged.add(&a, b"new").unwrap();
    staged.commit().unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"new");
    assert_eq!(
        fs::metadata(&a).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_has_the_mode_and_the_owner_that_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, "old").unwrap();
    fs::set_permissions(&a, Permissions::from_mode(0o640)).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&a, Some(12345), Some(54321)).unwrap();
    }
    let access = Access::of(&a).unwrap().unwrap();
    replace_with(&a, access, |mut file| file.write_all(b"new")).unwrap();
    assert_eq!(Access::of(&a).unwrap(), Some(access));
    assert_eq!(access.mode, 0o640);
    assert_eq!(fs::read(&a).unwrap(), b"new");
    assert_eq!(Access::of(&b).unwrap(), None);
    replace_with(&b, Access::mode(0o644), |_| Ok(())).unwrap();
    assert_eq!(Access::of(&b).unwrap().unwrap().mode, 0o644);
}

#[test]
fn a_device_is_written_and_not_replaced() {
    let full = replace(Path::new("/dev/full"), b"x").unwrap_err();
    assert!(full.to_string().contains("No space left"), "{full}");
    replace(Path::new("/dev/null"), b"x").unwrap();
    for device in ["/dev/full", "/dev/null"] {
        assert!(!fs::symlink_metadata(device).unwrap().is_file());
    }
}

/// Nobody reads a pipe any more whose reader has ended: a write that waits for another would wait for ever.
#[test]
fn a_pipe_without_a_reader_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = replace(&pipe, b"x").unwrap_err().to_string();
    assert!(error.ends_with("pipe: nobody reads it"), "{error}");
    let reader = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&pipe);
    let mut reader = reader.unwrap();
    replace(&pipe, b"x").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
}

#[test]
fn a_link_to_a_device_or_pipe_is_written_through_and_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    replace(&link, b"x").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // Others are replaced, as ever.
    let other = dir.path().join("other");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &other).unwrap();
    replace(&other, b"x").unwrap();
    assert!(fs::symlink_metadata(&other).unwrap().is_file());
}

#[test]
fn what_is_appended_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    append(&a, b"one").unwrap();
    append(&a, b"two").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"onetwo");
    assert_eq!(Access::of(&a).unwrap().unwrap().mode, 0o600);
    assert!(append(Path::new("/dev/full"), b"x").is_err());
}

const OLD: &[u8] = b"the old contents";
const NEW: &[u8] = b"the new contents, which are longer";

/// Replaces `a` by NEW, with another mode and, by root, another owner, in two parts.
fn write_in_parts(dir: &Path) -> Result<(), FileError> {
    let root = nix::unistd::geteuid().is_root();
    let access = Access {
        mode: 0o640,
        owner: root.then_some((12345, 12345)),
    };
    replace_with(&dir.join("a"), access, |mut file| {
        file.write_all(&NEW[..10])?;
        step()?;
        file.write_all(&NEW[10..])
    })
}

#[test]
fn a_write_that_fails_at_any_step_leaves_the_old_file_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    let mut steps = 0;
    loop {
        fs::write(&a, OLD).unwrap();
        fs::set_permissions(&a, Permissions::from_mode(0o600)).unwrap();
        let end = [End::Full, End::Short(100)][steps as usize % 2];
        let full = Interruption { step: steps, end };
        let (result, full) = interrupted(full, || write_in_parts(dir.path())).unwrap();
        assert_eq!(full, result.is_err(), "step {steps}");
        let found = fs::read(&a).unwrap();
        let mode = fs::metadata(&a).unwrap().mode() & 0o777;
        assert!(
            (&found[..], mode) == (OLD, 0o600) || (&found[..], mode) == (NEW, 0o640),
            "step {steps}"
        );
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "step {steps} leaves nothing beside it");
        if result.is_ok() {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 7, "create, write twice, mode, sync, rename, sync");
}

#[test]
#[ignore = "the next test runs it (--ignored) in another process, which is killed"]
fn killed_write() {
    let step = std::env::var("WEFT_KILLED_AT").unwrap().parse().unwrap();
    let folder = PathBuf::from(std::env::var_os("WEFT_KILLED_IN").unwrap());
    REALLY.set(true);
    let end = End::Killed(100);
    let written = interrupted(Interruption { step, end }, || write_in_parts(&folder));
    written.unwrap().0.unwrap();
}

/// True if a separate process that writes is killed at this step.
fn is_killed_at(step: u32, folder: &Path) -> bool {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "file::tests::killed_write", "--ignored"])
        .env("WEFT_KILLED_AT", step.to_string())
        .env("WEFT_KILLED_IN", folder)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let killed = child.status.signal() == Some(Signal::SIGKILL as i32);
    assert!(killed || output.contains("1 passed"), "{output}");
    killed
}

/// Files of a folder by name, with modes and contents.
fn listed(folder: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let all = entries.map(|entry| {
        let mode = entry.metadata().unwrap().mode() & 0o777;
        let name = entry.file_name().into_string().unwrap();
        (name, (mode, fs::read(entry.path()).unwrap()))
    });
    all.collect()
}

#[test]
fn a_process_that_is_killed_at_any_step_leaves_the_old_file_or_the_new_one_and_so_does_a_simulated_kill()
 {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [real, simulated] = folders.each_ref().map(tempfile::TempDir::path);
    for folder in [real, simulated] {
        replace(&folder.join("a"), OLD).unwrap();
    }
    let mut seen = Vec::new();
    for step in 0.. {
        let end = End::Killed(100);
        let killed = interrupted(Interruption { step, end }, || write_in_parts(simulated));
        assert_eq!(is_killed_at(step, real), killed.is_err(), "step {step}");
        assert_eq!(listed(real), listed(simulated), "step {step}");
        let found = fs::read(real.join("a")).unwrap();
        assert!(found == OLD || found == NEW, "step {step}: {found:?}");
        seen.push(found == NEW);
        if killed.is_ok() {
            break;
        }
    }
    assert!(seen.len() > 7, "{} steps", seen.len());
    assert!(seen.is_sorted() && seen.contains(&true), "{seen:?}");
    assert_eq!(fs::read_dir(real).unwrap().count(), 1);
}

/// A panic of what is interrupted is no kill.
#[test]
fn a_panic_of_a_write_goes_on() {
    let end = End::Killed(0);
    let write = || interrupted(Interruption { step: 9, end }, || panic!("a test"));
    assert!(std::panic::catch_unwind(write).is_err());
    assert!(!interruption::is_killed());
}

/// Words of a call that `clippy.toml` forbids.
fn words(forbidden: &str) -> Vec<String> {
    let mut parts = forbidden.rsplit("::");
    match (parts.next().unwrap(), parts.next().unwrap()) {
        (_, "OpenOptions") => vec!["OpenOptions::new(".to_owned(), "File::options(".to_owned()],
        (method @ "set_len", _) => vec![format!(".{method}(")],
        (function, of) => vec![format!("{of}::{function}(")],
    }
}

/// Each source file below `folder`, without its tests.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            found.push((path, code.to_owned()));
        }
    }
}

#[test]
fn files_are_read_and_written_by_one_module() {
    // (file of weft-node, call): what is not a file with contents, grows, is the kernel's, or may be a pipe (torrc).
    const ALLOWED: [(&str, &str); 10] = [
        ("doctor/facts.rs", "fs::read_to_string("),
        ("process/host.rs", "File::open("),
        ("process/machine.rs", "fs::read_to_string("),
        ("senders.rs", "fs::read_to_string("),
        ("thread/audit.rs", "fs::read_to_string("),
        ("logging/output.rs", "OpenOptions::new("),
        ("logging/output.rs", ".set_len("),
        ("process/daemon.rs", "File::options("),
        ("relay/listen_socket.rs", "OpenOptions::new("),
        ("relay/listen_socket.rs", "fs::set_permissions("),
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(crates.join("clippy.toml")).unwrap();
    let forbidden: Vec<String> = list
        .lines()
        .filter_map(|line| line.split_once("path = \"")?.1.split('"').next())
        .flat_map(words)
        .collect();
    assert!(forbidden.len() >= 12, "{forbidden:?}");
    let node = crates.join("../weft-node/src");
    let mut files = Vec::new();
    sources(&node, &mut files);
    let mut calls = Vec::new();
    for (path, code) in &files {
        let name = path.strip_prefix(&node).unwrap().to_str().unwrap();
        let found = forbidden.iter().filter(|call| code.contains(&**call));
        calls.extend(found.map(|call| (name, call.as_str())));
    }
    calls.sort_unstable();
    let mut allowed = ALLOWED;
    allowed.sort_unstable();
    assert_eq!(calls, allowed, "weft_datadir::file reads and writes files");
}

#[test]
fn a_full_disk_is_explained() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = (&full).write_all(b"x").unwrap_err();
    let message = FileError::new("write", Path::new("/keys/secret_id_key"), error).to_string();
    assert!(message.contains("/keys/secret_id_key"), "{message}");
    assert!(message.contains("Free some space"), "{message}");
}

#[test]
fn a_directory_in_the_way_is_noticed_before_anything_changes() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    fs::create_dir(dir.path().join("b")).unwrap();
    let mut staged = Staged::default();
    staged.add(&a, b"new").unwrap();
    staged.add(&dir.path().join("b"), b"new").unwrap_err();
    drop(staged);
    assert!(!a.exists());
}

#[test]
fn reading_takes_regular_files_of_bounded_length_only() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    assert!(read(&a, 4).unwrap().is_none());
    fs::write(&a, "1234").unwrap();
    assert_eq!(read(&a, 4).unwrap().unwrap().as_slice(), b"1234");
    assert!(read(&a, 3).unwrap_err().to_string().contains("too long"));
    assert!(
        read(dir.path(), 3)
            .unwrap_err()
            .to_string()
            .contains("directory")
    );
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(read(&pipe, 3).unwrap_err().to_string().contains("regular"));
    assert_eq!(contents(&a, 4).unwrap().unwrap(), b"1234");
    for (path, max, why) in [
        (&a, 3, "too long"),
        (&pipe, 3, "regular"),
        (&"/dev/zero".into(), 3, "regular"),
        (&dir.path().join("none"), 3, "not found"),
    ] {
        let error = required(path, max).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
