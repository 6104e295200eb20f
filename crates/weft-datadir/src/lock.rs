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
use crate::files::DataFile;

/// Time that C tor waits for another process to release the lock before it gives up.
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
        let path = data_dir.join(DataFile::Lock.name());
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

/// Holder of a DataDirectory's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No process holds it.
    Nobody,
    /// The process with this id holds it.
    Process(u32),
    /// A process holds it, and its id is not known: it runs in another container, say.
    Unseen,
}

/// Finds the holder of `data_dir`'s lock.
///
/// /proc/locks has it where the file system numbers its devices as the kernel does, and where the holder is in this PID
/// namespace. Elsewhere (btrfs, another container) the lock itself is tried: shared, and given back at once. No way to ask
/// without trying sees more: F_GETLK does not see locks of flock(2), and fdinfo has those of visible processes alone. A start
/// that meets the shared lock succeeds all the same: C tor and Weft try again after [`PATIENCE`]. Commands that do not wait
/// (`weft restore`, `weft backup --move`) would have to be repeated.
///
/// # Errors
///
/// The lock's file is there and may not be read.
#[expect(clippy::disallowed_methods, reason = "it is the kernel's")]
pub fn holder(data_dir: &Path) -> Result<Holder, FileError> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    holder_with(&data_dir.join(DataFile::Lock.name()), &locks)
}

/// Holder of the lock's file, by the text of /proc/locks, or else by trying the lock.
fn holder_with(path: &Path, locks: &str) -> Result<Holder, FileError> {
    let failed = |error| FileError::new("open", path, error);
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Holder::Nobody),
        Err(error) => return Err(failed(error)),
    };
    if let Some(id) = holder_by(locks, Some(file.dev()), file.ino()) {
        return Ok(id.map_or(Holder::Unseen, Holder::Process));
    }
    match is_held(path) {
        Ok(false) => Ok(Holder::Nobody),
        Ok(true) => {
            let id = holder_by(locks, None, file.ino()).flatten();
            Ok(id.map_or(Holder::Unseen, Holder::Process))
        }
        Err(error) => Err(failed(error)),
    }
}

/// True if a process holds the lock at `path`, found by taking a shared one for a moment.
#[expect(clippy::disallowed_methods, reason = "it is opened to be read")]
fn is_held(path: &Path) -> io::Result<bool> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_released_here) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, error)) => Err(error.into()),
    }
}

/// The holder by lines of /proc/locks: `1: FLOCK  ADVISORY  WRITE 7403 fe:00:10315458 0 EOF`. `None`: no line is the
/// lock's; `Some(None)`: one is, without an id. Without a device the inode decides, if one line alone has it.
fn holder_by(locks: &str, device: Option<u64>, inode: u64) -> Option<Option<u32>> {
    let place = |device| {
        let (major, minor) = (libc::major(device), libc::minor(device));
        format!("{major:02x}:{minor:02x}:{inode}")
    };
    let (place, end) = (device.map(place), format!(":{inode}"));
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_lock = words.next()? == "FLOCK" && words.next()? == "ADVISORY";
        let (mode, pid, of) = (words.next()?, words.next()?, words.next()?);
        let is_ours = match &place {
            Some(place) => of == place,
            None => of.ends_with(&end),
        };
        let id = pid.parse().ok().filter(|id| *id != 0);
        (is_lock && mode == "WRITE" && is_ours).then_some(id)
    };
    let mut found = locks.lines().filter_map(of_line);
    let first = found.next()?;
    match found.next() {
        Some(_) if device.is_none() => None,
        _ => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_and_the_lock_is_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(holder(dir.path()).unwrap(), Holder::Nobody);
        assert!(!path.exists(), "it is never made");
        let lock = DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        let this = Holder::Process(std::process::id());
        assert_eq!(holder(dir.path()).unwrap(), this);
        // Another container's processes have no line, and on btrfs the line has another device.
        assert_eq!(holder_with(&path, "").unwrap(), Holder::Unseen);
        let inode = fs::metadata(&path).unwrap().ino();
        let line = format!("1: FLOCK  ADVISORY  WRITE 7403 ff:ff:{inode} 0 EOF\n");
        assert_eq!(holder_with(&path, &line).unwrap(), Holder::Process(7403));
        let error = DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap_err();
        assert!(matches!(error, LockError::Held(_)), "it is held as before");
        drop(lock);
        assert_eq!(holder(dir.path()).unwrap(), Holder::Nobody);
        assert_eq!(holder_with(&path, &line).unwrap(), Holder::Nobody);
        DataDirLock::acquire(dir.path(), Duration::ZERO).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        let error = holder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("lock"), "{error}");
    }

    #[test]
    fn a_line_of_another_device_counts_if_no_other_has_the_inode() {
        let line = "1: FLOCK  ADVISORY  WRITE 7403 fe:00:10315458 0 EOF\n";
        let device = libc::makedev(0xfe, 0);
        assert_eq!(holder_by(line, Some(device), 10_315_458), Some(Some(7403)));
        assert_eq!(holder_by(line, Some(device), 1_031_545), None);
        assert_eq!(holder_by("1: -> FLOCK\nx\n", Some(device), 1), None);
        // As on btrfs, whose files have another device than its superblock.
        let btrfs = libc::makedev(0, 0x2f);
        assert_eq!(holder_by(line, Some(btrfs), 10_315_458), None);
        assert_eq!(holder_by(line, None, 10_315_458), Some(Some(7403)));
        assert_eq!(holder_by(line, None, 315_458), None);
        let other = line.replace("7403 fe:00", "8 00:1f");
        assert_eq!(holder_by(&format!("{line}{other}"), None, 10_315_458), None);
        // A lock of an open file has no process.
        let without = line.replace("7403", "-1");
        assert_eq!(holder_by(&without, Some(device), 10_315_458), Some(None));
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
