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

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, getegid, geteuid};
use zeroize::Zeroizing;

/// Reading or writing a file failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}{}", path.display(), advice(doing, path, source))]
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

/// How long a pipe may have no reader: who starts this process may open it a little later.
const READER_WITHIN: Duration = Duration::from_millis(500);
/// The pause between two looks.
const READER_PAUSE: Duration = Duration::from_millis(10);

/// [`FileError::doing`] of a directory that is made.
pub(crate) const CREATE_DIRECTORY: &str = "create directory";

/// What the person can do about `error`.
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

/// A regular file of at most `max` bytes, opened to be read, and its length; `None` where there is no file.
///
/// Links are followed. Never blocks on a pipe.
///
/// # Errors
///
/// The system's. A directory, device or pipe in its place and a longer file are errors of kind
/// [`io::ErrorKind::InvalidData`].
pub fn open(path: &Path, max: u64) -> Result<Option<(File, u64)>, FileError> {
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
    if meta.len() > max {
        return Err(too_long(path, max));
    }
    Ok(Some((file, meta.len())))
}

/// The contents of such a file. The buffer is wiped when dropped.
///
/// # Errors
///
/// As of [`open`].
pub fn read(path: &Path, max: usize) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
    let max = u64::try_from(max).unwrap_or(u64::MAX);
    let Some((file, length)) = open(path, max)? else {
        return Ok(None);
    };
    let failed = |source| FileError::new("read", path, source);
    // The buffer must not grow: a copy left behind would not be wiped. Nor is it larger than the
    // file: wiping touches all of it, and the largest file that is taken is large.
    let capacity = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity.saturating_add(1)));
    file.take(length.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > capacity {
        let grew = io::Error::new(io::ErrorKind::InvalidData, "it grew while it was read");
        return Err(failed(grew));
    }
    Ok(Some(bytes))
}

/// The contents of such a file, also of one that grows meanwhile; `None` where there is no file. For what is no secret.
///
/// # Errors
///
/// As of [`open`].
pub fn contents(path: &Path, max: u64) -> Result<Option<Vec<u8>>, FileError> {
    let Some((file, _)) = open(path, max)? else {
        return Ok(None);
    };
    let failed = |source| FileError::new("read", path, source);
    let mut bytes = Vec::new();
    let read = file.take(max.saturating_add(1)).read_to_end(&mut bytes);
    let length = read.map_err(failed)?;
    match u64::try_from(length).is_ok_and(|length| length <= max) {
        true => Ok(Some(bytes)),
        false => Err(too_long(path, max)),
    }
}

/// The contents of such a file that has to be there.
///
/// # Errors
///
/// As of [`open`]; [`io::ErrorKind::NotFound`]: there is none.
pub fn required(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let missing = || FileError::new("read", path, io::ErrorKind::NotFound.into());
    contents(path, max)?.ok_or_else(missing)
}

fn too_long(path: &Path, max: u64) -> FileError {
    let what = format!("it is too long: at most {max} bytes are read");
    let source = io::Error::new(io::ErrorKind::InvalidData, what);
    FileError::new("read", path, source)
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
        step()
            .and_then(|()| fill(&file))
            .and_then(|()| set_access(&file, access))
            .and_then(|()| step())
            .and_then(|()| file.sync_all())
            .map_err(failed)
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

/// Whether a device or pipe is at `path`, of which this is the metadata, or where it leads.
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
        for staged in &self.files {
            // Renamed ones have no temporary file any more.
            let _ = fs::remove_file(temporary(&staged.path));
        }
    }
}

/// Precedes each system call that changes something. Tests end the write there.
#[cfg(not(test))]
#[allow(clippy::unnecessary_wraps, reason = "tests return an error")]
const fn step() -> io::Result<()> {
    Ok(())
}
#[cfg(test)]
pub(crate) use testing::step;

/// Ends writes of this thread at a chosen step.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;
    use std::io;
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::Path;
    use std::process::Command;

    use nix::sys::signal::{Signal, raise};

    /// How a write ends.
    #[derive(Clone, Copy)]
    pub(crate) enum End {
        /// The system call fails.
        Error,
        /// The process is killed.
        Kill,
    }

    thread_local! {
        /// Steps that are still taken, and what ends the write then.
        static STEPS: Cell<Option<(u32, End)>> = const { Cell::new(None) };
    }

    pub(crate) fn step() -> io::Result<()> {
        match STEPS.get() {
            None => Ok(()),
            Some((0, End::Error)) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Some((0, End::Kill)) => {
                raise(Signal::SIGKILL).unwrap();
                unreachable!("a killed process goes no further")
            }
            Some((left, end)) => {
                STEPS.set(Some((left - 1, end)));
                Ok(())
            }
        }
    }

    /// Runs `write` and ends it at its `at`th step.
    pub(crate) fn interrupted<T>(at: u32, end: End, write: impl FnOnce() -> T) -> T {
        STEPS.set(Some((at, end)));
        let result = write();
        STEPS.set(None);
        result
    }

    /// The step and the folder that [`killed`] hands to the test that it runs.
    pub(crate) fn given() -> Option<(u32, std::path::PathBuf)> {
        let at = std::env::var("WEFT_KILLED_AT").ok()?.parse().ok()?;
        Some((at, std::env::var_os("WEFT_KILLED_IN")?.into()))
    }

    /// Whether the ignored test `name`, alone in another process, is killed at its `at`th step.
    pub(crate) fn killed(name: &str, at: u32, folder: &Path) -> bool {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--test-threads=1"])
            .env("WEFT_KILLED_AT", at.to_string())
            .env("WEFT_KILLED_IN", folder)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        let killed = child.status.signal() == Some(Signal::SIGKILL as i32);
        assert!(killed || output.contains("1 passed"), "{output}");
        killed
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{End, given, interrupted, killed};
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
            let result = interrupted(steps, End::Error, || write_in_parts(dir.path()));
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
        let (at, dir) = given().unwrap();
        interrupted(at, End::Kill, || write_in_parts(&dir)).unwrap();
    }

    #[test]
    fn a_process_that_is_killed_at_any_step_leaves_the_old_file_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let a = dir.path().join("a");
        fs::write(&a, OLD).unwrap();
        let mut seen = Vec::new();
        let mut at = 0;
        while killed("file::tests::killed_write", at, dir.path()) {
            let found = fs::read(&a).unwrap();
            assert!(found == OLD || found == NEW, "step {at}: {found:?}");
            seen.push(found == NEW);
            at += 1;
        }
        assert!(at >= 7, "{at} steps");
        assert!(seen.is_sorted() && seen.contains(&true), "{seen:?}");
        assert_eq!(fs::read(&a).unwrap(), NEW);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
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
}
