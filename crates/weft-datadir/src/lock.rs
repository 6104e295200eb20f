//! `DataDirectory/lock`: one process per DataDirectory, tor or Weft.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::file::FileError;

/// How long C tor gives another process to go away before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file cannot be opened or locked.
    #[error(transparent)]
    File(#[from] FileError),
    /// Someone holds it.
    #[error(
        "another tor or weft process is running with the same data directory ({} is locked). \
         Stop it, or give this one a DataDirectory of its own", .0.display()
    )]
    Held(PathBuf),
}

/// This process owns the DataDirectory until the value is dropped.
///
/// The lock is `flock(2)` on the file, as C tor takes it; the file itself stays.
#[derive(Debug)]
pub struct DataDirLock {
    /// Closing it gives the lock back.
    _file: Flock<File>,
}

impl DataDirLock {
    /// Locks `data_dir`, which must exist. If someone else holds it, waits `patience` once (C
    /// tor: [`PATIENCE`]) and tries again.
    pub fn acquire(data_dir: &Path, patience: Duration) -> Result<Self, LockError> {
        let path = data_dir.join("lock");
        match Self::attempt(&path) {
            Err(LockError::Held(_)) if !patience.is_zero() => {
                tracing::warn!(
                    "It looks like another Tor process is running with the same data directory. \
                     Waiting {} seconds to see if it goes away.",
                    patience.as_secs()
                );
                std::thread::sleep(patience);
                Self::attempt(&path)
            }
            other => other,
        }
    }

    /// One try.
    #[expect(clippy::disallowed_methods, reason = "a lock has no contents")]
    fn attempt(path: &Path) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| FileError::new("open for locking", path, e))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { _file: file }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LockError::Held(path.to_owned())),
            Err((_, e)) => Err(FileError::new("lock", path, e.into()).into()),
        }
    }
}

/// The process that holds the lock of `data_dir`: 0 if it is not seen from this container; `None`: no one does. Nothing is
/// locked for it.
pub fn holder(data_dir: &Path) -> Option<u32> {
    let file = fs::metadata(data_dir.join("lock")).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holder_by(&locks, file.dev(), file.ino())
}

/// The same, by lines of /proc/locks: `1: FLOCK  ADVISORY  WRITE 7403 fe:00:10315458 0 EOF`.
fn holder_by(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_ours = words.next()? == "FLOCK" && words.next()? == "ADVISORY";
        let (mode, pid, of) = (words.next()?, words.next()?, words.next()?);
        let is_ours = is_ours && mode == "WRITE" && of == place;
        is_ours.then(|| pid.parse().unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_is_seen_without_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holder(dir.path()), None);
        let lock = DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        assert_eq!(holder(dir.path()), Some(std::process::id()));
        drop(lock);
        assert_eq!(holder(dir.path()), None);
        let line = "1: FLOCK  ADVISORY  WRITE 7403 fe:00:10315458 0 EOF\n";
        let device = libc::makedev(0xfe, 0);
        assert_eq!(holder_by(line, device, 10_315_458), Some(7403));
        assert_eq!(holder_by(line, device, 1_031_545), None);
        assert_eq!(holder_by("1: -> FLOCK\nx\n", device, 1), None);
    }

    #[test]
    fn the_second_is_refused_and_the_first_can_give_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        let error = DataDirLock::acquire(dir.path(), Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, LockError::Held(_)));
        assert!(error.to_string().contains("same data directory"));
        drop(first);
        DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        assert!(dir.path().join("lock").exists());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = DataDirLock::acquire(&dir.path().join("none"), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("none/lock"), "{error}");
    }
}
