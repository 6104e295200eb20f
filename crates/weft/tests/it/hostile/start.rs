//! Starts that cannot be: a disk that is full, a directory that is another's or not to be written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::hostile::process::{Folder, Weft, program};

/// Runs the command to its end: exit status and output.
fn start(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let mut printed = String::from_utf8(output.stdout).unwrap();
    printed.push_str(&String::from_utf8(output.stderr).unwrap());
    assert!(!printed.contains("panicked"), "{printed}");
    (output.status.code(), printed)
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn a_full_disk_stops_the_start_and_leaves_nothing_half_written() {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1");
    // No file may grow: the disk of a process whose limit is zero is as full as can be. The shell
    // sets the limit, and that crossing it is an error and not a signal's end.
    let weft = folder.command(program());
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -f 0; trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(weft.get_program())
        .args(weft.get_args())
        .env("HOME", folder.path(""));
    let (status, printed) = start(command);
    assert_eq!(status, Some(1), "{printed}");
    let data = folder.path("data");
    assert!(
        printed.contains("File too large") && printed.contains(&data.display().to_string()),
        "{printed}"
    );
    for file in files(&data) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name == "lock", "{} was left", file.display());
    }
    // When there is room again, all is well.
    Weft::start_in(folder, 1).terminate();
}

#[test]
fn a_data_directory_that_cannot_be_made_is_named() {
    for place in ["/proc/weft", "/dev/null/weft"] {
        let folder = Folder::new();
        folder.torrc("ConnectionThreads 1");
        let mut command = folder.command(program());
        command.args(["--DataDirectory", place]);
        let (status, printed) = start(command);
        assert_eq!(status, Some(1), "{printed}");
        assert!(printed.contains(place), "{printed}");
        let last = printed.lines().last().unwrap();
        assert!(last.starts_with("weft: "), "{printed}");
    }
}

#[test]
fn a_data_directory_that_is_a_file_is_left_alone() {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1");
    fs::write(folder.path("data"), "precious").unwrap();
    let (status, printed) = start(folder.command(program()));
    assert_eq!(status, Some(1), "{printed}");
    let data = folder.path("data");
    assert!(printed.contains(&data.display().to_string()), "{printed}");
    assert_eq!(fs::read_to_string(data).unwrap(), "precious");
}

#[test]
fn a_log_on_a_full_disk_stops_the_start() {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1\nLog notice file /dev/full");
    let (status, printed) = start(folder.command(program()));
    assert_eq!(status, Some(1), "{printed}");
    assert!(
        printed.contains("/dev/full") && printed.contains("No space left"),
        "{printed}"
    );
    assert!(!folder.path("data").exists());
}

#[test]
fn a_key_that_is_damaged_is_named_and_kept() {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1");
    let weft = Weft::start_in(folder, 1);
    let key = weft.folder.path("data/keys/secret_onion_key_ntor");
    let whole = fs::read(&key).unwrap();
    let damaged = &whole[..whole.len() - 1];
    fs::write(&key, damaged).unwrap();
    // The one that runs does not look; a copy that starts does.
    let copy = Folder::new();
    copy.torrc("ConnectionThreads 1");
    let mut command = Command::new("cp");
    command
        .arg("-a")
        .arg(weft.folder.path("data"))
        .arg(copy.path("data"));
    assert!(command.status().unwrap().success());
    let (status, printed) = start(copy.command(program()));
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("secret_onion_key_ntor"), "{printed}");
    let kept = copy.path("data/keys/secret_onion_key_ntor");
    assert_eq!(fs::read(kept).unwrap(), damaged);
    weft.terminate();
}

#[test]
fn a_second_start_on_one_data_directory_is_refused_and_harms_nothing() {
    let mut weft = Weft::start(1);
    let (status, printed) = start(weft.folder.command(program()));
    assert_eq!(status, Some(1), "{printed}");
    let lock = weft.folder.path("data/lock");
    assert!(
        printed.contains("another tor or weft process is running")
            && printed.contains(&lock.display().to_string()),
        "{printed}"
    );
    crate::hostile::circuit::Through::new(&weft).carries_data();
    weft.is_calm();
    weft.terminate();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let weft = Weft::start(1);
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1");
    let taken = weft.or_port.to_string();
    let mut command = folder.command(program());
    command.arg("--ORPort").arg(format!("{taken} IPv4Only"));
    let (status, printed) = start(command);
    assert_eq!(status, Some(1), "{printed}");
    assert!(
        printed.contains("could not listen on") && printed.contains(&taken),
        "{printed}"
    );
    assert!(!folder.path("data").exists());
    weft.terminate();
}
