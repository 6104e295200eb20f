//! `DataDirectory/lock`: one process per DataDirectory, tor or Weft.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
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

#[cfg(test)]
mod tests {
    use super::*;

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
