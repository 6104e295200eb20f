//! The one way to read a file: regular, and of a bounded length. The one way to write it: several at once, or none of them,
//! and none half-written.
//!
//! Each file is written beside its place as `NAME.tmp` (C tor's name for it too), flushed to the
//! disk, and only when all of them are there renamed into place. A full disk is thus noticed
//! before anything changes, and a process that is killed leaves the old file or the new one.
//! `clippy.toml` of the crates that write files forbids other ways.
#![expect(
    clippy::disallowed_methods,
    reason = "this module reads and writes the files"
)]

pub mod interruption;
mod read;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, getegid, geteuid};

use interruption::step;
use weft_planted::{Fault, planted};

pub use read::{contents, open, read, required};

/// Reading or writing a file failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}{}", path.display(), advice(doing, path, source))]
pub struct FileError {
    /// Operation that failed: "read", "write", …
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

/// Time that a pipe may have no reader: the parent of this process may open it a little later.
const READER_WITHIN: Duration = Duration::from_millis(500);
/// The pause between two looks.
const READER_PAUSE: Duration = Duration::from_millis(10);

/// [`FileError::doing`] of a directory that is made.
pub(crate) const CREATE_DIRECTORY: &str = "create directory";

/// Advice to the user about `error`.
fn advice(doing: &str, path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". Free some space there; nothing was changed"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            ". Make that file system writable, or name another directory in the torrc"
        }
        io::ErrorKind::PermissionDenied => return denied(doing, path),
        _ => "",
    };
    advice.to_owned()
}

/// The owner of what this user may not use, and the command that gives `path` to this user.
fn denied(doing: &str, path: &Path) -> String {
    let owner = |place| {
        fs::metadata(place)
            .ok()
            .map(|meta| Uid::from_raw(meta.uid()))
    };
    // The file, or what hides it.
    let mut found = path
        .ancestors()
        .find_map(|place| Some((place, owner(place)?)));
    let is_own = |(_, user): &(&Path, Uid)| *user == geteuid();
    if found
        .as_ref()
        .is_some_and(|found| found.0 == path && is_own(found))
    {
        // Its directory may not be written.
        found = Some(directory_of(path)).and_then(|place| Some((place, owner(place)?)));
    }
    let Some((barrier, owner)) = found.filter(|found| !is_own(found)) else {
        return ". Change its permissions, or those of its directory".to_owned();
    };
    // Other directories than `path` may be the system's.
    let remedy = match doing {
        CREATE_DIRECTORY => format!("mkdir {} && {}", path.display(), chown(path)),
        _ if barrier == path => chown(path),
        _ => String::new(),
    };
    let what_to_do = match remedy.as_str() {
        "" => "see the User option".to_owned(),
        remedy => format!("see the User option, or run \"{remedy}\" as root"),
    };
    format!(
        ". {} belongs to {}, and this process runs as {}. Perhaps that is the wrong user: {what_to_do}",
        barrier.display(),
        user_name(owner),
        user_name(geteuid())
    )
}

/// "name, id" of a user.
pub(crate) fn user_name(uid: Uid) -> String {
    let name = User::from_uid(uid).ok().flatten().map(|user| user.name);
    format!("{}, {uid}", name.as_deref().unwrap_or("<unknown>"))
}

/// The command that gives `path` to the user of this process.
pub(crate) fn chown(path: &Path) -> String {
    format!("chown {}:{} {}", geteuid(), getegid(), path.display())
}

/// Mode and owner of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    mode: u32,
    /// User and group; `None`: those of this process.
    owner: Option<(u32, u32)>,
}

impl Access {
    /// For this user alone.
    pub const PRIVATE: Self = Self::mode(0o600);

    /// A file of this user with these permissions.
    #[must_use]
    pub const fn mode(mode: u32) -> Self {
        Self { mode, owner: None }
    }

    /// Mode and owner of the file at `path`; `None`: there is none.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn of(path: &Path) -> Result<Option<Self>, FileError> {
        match fs::metadata(path) {
            Ok(meta) => Ok(Some(Self {
                mode: meta.mode() & 0o777,
                owner: Some((meta.uid(), meta.gid())),
            })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(FileError::new("read", path, e)),
        }
    }

    /// Mode 0600, and the owner of the directory that has `path`. Only root can give a file away.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn of_directory_owner(path: &Path) -> Result<Self, FileError> {
        let directory = directory_of(path);
        let meta = fs::metadata(directory).map_err(|e| FileError::new("read", directory, e))?;
        Ok(Self {
            mode: 0o600,
            owner: Some((meta.uid(), meta.gid())),
        })
    }
}

/// Replaces one file by `contents` in one step (mode 0600).
pub fn replace(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    replace_with(path, Access::PRIVATE, |mut file| file.write_all(contents))
}

/// Replaces one file in one step by what `fill` writes.
pub fn replace_with(
    path: &Path,
    access: Access,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), FileError> {
    let mut staged = Staged::default();
    staged.add_with(path, access, fill)?;
    staged.commit()
}

/// Adds `bytes` to the end of a file, which is made (mode 0600) where there is none.
///
/// Where that fails the file is as before; a crash may leave part of `bytes`: only for files whose
/// reader expects it.
pub fn append(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |source| FileError::new("add to", path, source);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let before = file.metadata().map_err(failed)?.len();
    file.write_all(bytes).map_err(|why| {
        // Part of it may be there. The error to report is the first one.
        let _ = file.set_len(before);
        failed(why)
    })
}

/// Where `path` is written before it is renamed into place.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    if planted(Fault::WrittenInPlace) {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Puts a file that an interrupted [`Staged::commit`] left beside its place into it.
pub(crate) fn finish(path: &Path) -> Result<(), FileError> {
    fs::rename(temporary(path), path).map_err(|e| FileError::new("write", path, e))
}

/// Renames a file that is of no use where it is.
pub(crate) fn move_aside(path: &Path, aside: &Path) -> Result<(), FileError> {
    fs::rename(path, aside).map_err(|e| FileError::new("move aside", path, e))
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
    /// True if something was there before.
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
        let access = match self.given_away {
            true => Access::of_directory_owner(path)?,
            false => Access::PRIVATE,
        };
        self.add_with(path, access, |mut file| file.write_all(contents))
    }

    /// Has `fill` write a file next to `path` and waits until the disk has it. Mode or owner that
    /// the system does not let this process set are an error.
    ///
    /// A device or pipe at `path`, or where a link there leads, is never replaced. It holds nothing, and is written at once.
    pub fn add_with(
        &mut self,
        path: &Path,
        access: Access,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), FileError> {
        let failed = |source| FileError::new("write", path, source);
        let replaces = match fs::symlink_metadata(path) {
            // A rename would fail only half-way through `commit`.
            Ok(meta) if meta.is_dir() => {
                return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            Ok(meta) if holds_nothing(path, &meta) => {
                return open_special(path)
                    .and_then(|file| fill(&file))
                    .map_err(failed);
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
        step().map_err(failed)?;
        let file = OpenOptions::new()
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
        let written = interruption::fill(&file, fill)
            .and_then(|()| set_access(&file, access))
            .and_then(|()| step())
            .and_then(|()| file.sync_all());
        if planted(Fault::ErrorTakenForSuccess) {
            return Ok(());
        }
        written.map_err(failed)
    }

    /// True if no file was added.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Puts every file in its place, in the order in which they were added, and makes it last.
    ///
    /// If that fails on the way, files that were not there before are removed again.
    pub fn commit(mut self) -> Result<(), FileError> {
        let mut made: Vec<PathBuf> = Vec::new();
        let mut directories: Vec<&Path> = Vec::new();
        for staged in &self.files {
            let path = &staged.path;
            let renamed = step().and_then(|()| fs::rename(temporary(path), path));
            if let Err(e) = renamed {
                for path in &made {
                    let _ = fs::remove_file(path);
                }
                return Err(FileError::new("write", path, e));
            }
            if !staged.replaces {
                made.push(path.clone());
            }
            let parent = directory_of(path);
            if !directories.contains(&parent) {
                directories.push(parent);
            }
        }
        let synced = directories.into_iter().try_for_each(|dir| {
            step()
                .and_then(|()| File::open(dir)?.sync_all())
                .map_err(|e| FileError::new("write", dir, e))
        });
        self.files.clear();
        synced
    }
}

/// True if a device or pipe is at `path`, of which this is the metadata, or at the end of its link.
fn holds_nothing(path: &Path, meta: &fs::Metadata) -> bool {
    let is_special = |meta: &fs::Metadata| !meta.is_file() && !meta.is_dir();
    match meta.is_symlink() {
        // A link that leads nowhere is replaced.
        true => fs::metadata(path).is_ok_and(|meta| is_special(&meta)),
        false => is_special(meta),
    }
}

/// Opens a device or pipe. A pipe's reader may be about to open it, but is not waited for longer than that: the main thread
/// writes here.
fn open_special(path: &Path) -> io::Result<File> {
    let began = Instant::now();
    loop {
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                if began.elapsed() >= READER_WITHIN {
                    return Err(io::Error::other("nobody reads it"));
                }
                std::thread::sleep(READER_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// The directory that has `path`.
fn directory_of(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Sets mode and owner of an open file: the owner of the directory could put something else in the
/// place of a path.
pub(crate) fn set_access(file: &File, access: Access) -> io::Result<()> {
    if planted(Fault::ModeNotKept) {
        return Ok(());
    }
    let has = file.metadata()?;
    if let Some((user, group)) = access.owner
        && (has.uid(), has.gid()) != (user, group)
    {
        step()?;
        fchown(file, Some(user), Some(group))?;
    }
    if has.mode() & 0o777 != access.mode {
        step()?;
        file.set_permissions(Permissions::from_mode(access.mode))?;
    }
    Ok(())
}

impl Drop for Staged {
    fn drop(&mut self) {
        if interruption::is_killed() || planted(Fault::TemporaryStays) {
            return;
        }
        for staged in &self.files {
            // Renamed ones have no temporary file any more.
            let _ = fs::remove_file(temporary(&staged.path));
        }
    }
}
