//! Files that must never be seen half-written: several at once, or none of them.
//!
//! Each file is written beside its place as `NAME.tmp` (C tor's name for it too), flushed to the
//! disk, and only when all of them are there renamed into place. A full disk is thus noticed
//! before anything changes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Reading or writing a file failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}{}", path.display(), advice(source))]
pub struct FileError {
    /// What was being done: "read", "write", …
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl FileError {
    /// The system's error about `path` while it was `doing` something ("read", "write").
    pub fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

/// What the person can do about `error`.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". Free some space there; nothing was changed"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ". Make that file system writable, or name another directory in the torrc"
        }
        io::ErrorKind::PermissionDenied => {
            ". Perhaps this runs as the wrong user: see the User option, and the owner of the directory"
        }
        _ => "",
    }
}

/// The contents of a regular file of at most `max` bytes; `None` where there is no file.
///
/// A directory, device or pipe in its place and a longer file are errors of kind
/// [`io::ErrorKind::InvalidData`]. Never blocks on a pipe. The buffer is wiped when dropped.
pub fn read(path: &Path, max: usize) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
    let failed = |source| FileError::new("read", path, source);
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let meta = file.metadata().map_err(failed)?;
    let invalid = |what: &str| failed(io::Error::new(io::ErrorKind::InvalidData, what));
    if meta.is_dir() {
        return Err(invalid("it is a directory"));
    }
    if !meta.is_file() {
        return Err(invalid("it is not a regular file"));
    }
    let length = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    if length > max {
        return Err(invalid("it is far too long"));
    }
    // The buffer must not grow: a copy left behind would not be wiped. Nor is it larger than the
    // file: wiping touches all of it, and the largest file that is taken is large.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.saturating_add(1)));
    let limit = meta.len().saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > length {
        return Err(invalid("it grew while it was read"));
    }
    Ok(Some(bytes))
}

/// Replaces one file by `contents` in one step (mode 0600).
pub fn replace(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let mut staged = Staged::default();
    staged.add(path, contents)?;
    staged.commit()
}

/// Where `path` is written before it is renamed into place.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// New contents of several files, on disk beside them; dropped without [`Staged::commit`], they
/// are removed again.
#[derive(Debug, Default)]
pub struct Staged {
    /// Files still to be renamed, in order.
    files: Vec<StagedFile>,
    /// Each belongs to the owner of its directory.
    given_away: bool,
}

/// One of them.
#[derive(Debug)]
struct StagedFile {
    /// Its place.
    path: PathBuf,
    /// Whether something was there before.
    replaces: bool,
}

impl Staged {
    /// Files that belong to the owners of their directories, which only root can give away.
    #[must_use]
    pub fn for_owners() -> Self {
        Self {
            files: Vec::new(),
            given_away: true,
        }
    }

    /// Writes `contents` (mode 0600) next to `path` and waits until the disk has it.
    pub fn add(&mut self, path: &Path, contents: &[u8]) -> Result<(), FileError> {
        let failed = |source| FileError::new("write", path, source);
        let replaces = match fs::symlink_metadata(path) {
            // A rename would fail only half-way through `commit`.
            Ok(meta) if meta.is_dir() => {
                return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            Ok(_) => true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(failed(e)),
        };
        let tmp = temporary(path);
        match fs::remove_file(&tmp) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(FileError::new("remove", &tmp, e)),
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&tmp)
            .map_err(failed)?;
        // From here on the temporary file is ours to remove.
        self.files.push(StagedFile {
            path: path.to_owned(),
            replaces,
        });
        if self.given_away {
            // By the descriptor: the owner could put something else in the place of a path.
            give_to_owner(&file, path).map_err(failed)?;
        }
        file.write_all(contents).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Puts every file in its place, in the order in which they were added, and makes it last.
    ///
    /// If that fails on the way, files that were not there before are removed again.
    pub fn commit(mut self) -> Result<(), FileError> {
        let mut made: Vec<PathBuf> = Vec::new();
        let mut directories: Vec<PathBuf> = Vec::new();
        for staged in &self.files {
            if let Err(e) = fs::rename(temporary(&staged.path), &staged.path) {
                for path in &made {
                    let _ = fs::remove_file(path);
                }
                return Err(FileError::new("write", &staged.path, e));
            }
            if !staged.replaces {
                made.push(staged.path.clone());
            }
            if let Some(parent) = staged.path.parent()
                && !directories.iter().any(|d| d == parent)
            {
                directories.push(parent.to_owned());
            }
        }
        self.files.clear();
        for dir in directories {
            File::open(&dir)
                .and_then(|d| d.sync_all())
                .map_err(|e| FileError::new("write", &dir, e))?;
        }
        Ok(())
    }
}

/// Gives an open file to the owner of the directory of `path`.
fn give_to_owner(file: &File, path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let owner = fs::metadata(directory.unwrap_or(Path::new(".")))?;
    let has = file.metadata()?;
    match (has.uid(), has.gid()) == (owner.uid(), owner.gid()) {
        true => Ok(()),
        false => fchown(file, Some(owner.uid()), Some(owner.gid())),
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for staged in &self.files {
            // Renamed ones have no temporary file any more.
            let _ = fs::remove_file(temporary(&staged.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
    }
}
