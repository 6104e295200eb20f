//! `DataDirectory/lock`: one process per DataDirectory, tor or Weft.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

use crate::file::{self, Access, FileError};

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
    fn attempt(path: &Path) -> Result<Self, LockError> {
        match Flock::lock(open(path)?, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { _file: file }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LockError::Held(path.to_owned())),
            Err((_, e)) => Err(FileError::new("lock", path, e.into()).into()),
        }
    }
}

/// Opens the lock file, or makes it. It is not truncated and no link is followed: the process may be
/// root's, and the directory another user's. A file that root makes is given to the directory's
/// owner, who has to be able to lock it later.
#[expect(clippy::disallowed_methods, reason = "a lock has no contents")]
fn open(path: &Path) -> Result<File, FileError> {
    let failed = |source: io::Error| {
        let source = match source.raw_os_error() {
            Some(libc::ELOOP) => {
                let what = "it is a symbolic link. Remove it: the lock is made again";
                io::Error::new(io::ErrorKind::InvalidInput, what)
            }
            _ => source,
        };
        FileError::new("open for locking", path, source)
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            if Uid::effective().is_root() {
                file::set_access(&file, Access::of_directory_owner(path)?).map_err(failed)?;
            }
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.open(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
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
    fn a_link_is_not_followed_and_nothing_is_truncated() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, other) = (dir.path().join("lock"), dir.path().join("other"));
        fs::write(&other, "of root").unwrap();
        std::os::unix::fs::symlink(&other, &lock).unwrap();
        let error = DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("lock: it is a symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "of root");
        // Nor is the file of one that dangles made.
        fs::remove_file(&other).unwrap();
        DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap_err();
        assert!(!other.exists());
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "before").unwrap();
        DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        assert_eq!(fs::read_to_string(&lock).unwrap(), "before");
    }

    #[test]
    fn a_lock_that_root_makes_belongs_to_the_owner_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        if Uid::effective().is_root() {
            let owner = (Some(12_345.into()), Some(54_321.into()));
            nix::unistd::chown(dir.path(), owner.0, owner.1).unwrap();
        }
        DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        let owner = fs::metadata(dir.path()).unwrap();
        let lock = fs::metadata(dir.path().join("lock")).unwrap();
        assert_eq!((lock.uid(), lock.gid()), (owner.uid(), owner.gid()));
        assert_eq!(lock.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = DataDirLock::acquire(&dir.path().join("none"), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("none/lock"), "{error}");
    }
}
