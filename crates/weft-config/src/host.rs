//! The machine that a configuration is for: home directories, names, files.
//!
//! Reading a configuration needs a little of each, and none of it happens in this crate: the node
//! has a [`Host`] that asks the system, tests and fuzzing have a [`MemoryHost`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Kind of the file that a path leads to, symbolic links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A pipe: the shell's `<(…)`, standard input that is one, a FIFO.
    Pipe,
    /// A device, a socket.
    Other,
}

/// The machine that a configuration is for.
pub trait Host {
    /// The home directory of the user who runs the node.
    fn home(&self) -> Option<PathBuf>;

    /// The home directory of the user with this name.
    fn home_of(&self, user: &str) -> Option<PathBuf>;

    /// An address of the host with this name.
    fn resolve(&self, name: &str) -> Option<IpAddr>;

    /// Where torrc is, where none is named.
    fn torrc(&self) -> PathBuf;

    /// Where the defaults torrc is, where none is named.
    fn defaults_torrc(&self) -> PathBuf;

    /// The path from the root, for one that starts from the working directory.
    fn absolute(&self, path: &Path) -> PathBuf;

    /// Kind of the file that a path leads to.
    ///
    /// # Errors
    /// The system's; `NotFound` where it leads nowhere.
    fn kind(&self, path: &Path) -> io::Result<FileKind>;

    /// Looks for anything at a path, be it a symbolic link that leads nowhere.
    ///
    /// # Errors
    /// The system's: nothing is there, or it does not let us know.
    fn look(&self, path: &Path) -> io::Result<()>;

    /// The content of a file, `at_most` bytes of it.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, path: &Path, at_most: u64) -> io::Result<Vec<u8>>;

    /// The content of standard input, `at_most` bytes of it.
    ///
    /// # Errors
    /// The system's.
    fn read_stdin(&self, at_most: u64) -> io::Result<Vec<u8>>;

    /// The names of a folder's entries, in any order; `.` is the working directory.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>>;
}

impl dyn Host + '_ {
    /// Turns `~/…` and `~user/…` into paths (C tor's `expand_filename`); `None` where the home is
    /// not known.
    pub(crate) fn expand(&self, path: &str) -> Option<PathBuf> {
        let Some(rest) = path.strip_prefix('~') else {
            return Some(PathBuf::from(path));
        };
        let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let home = if user.is_empty() {
            self.home()
        } else {
            self.home_of(user)
        }?;
        Some(if rest.is_empty() {
            home
        } else {
            home.join(rest)
        })
    }

    /// Where data is kept unless torrc names a place: `~/.tor`, or `/var/lib/tor` for a user whose
    /// home is `/`.
    pub(crate) fn default_data_directory(&self) -> Option<PathBuf> {
        let home = self.home()?;
        Some(if home == Path::new("/") {
            PathBuf::from("/var/lib/tor")
        } else {
            home.join(".tor")
        })
    }
}

/// A made-up machine, for tests and fuzzing: it has the files and host names that it is
/// given, nothing on standard input, and one user, whose home is `/home/nobody`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryHost {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Entries of `files` that are not regular files.
    special: BTreeMap<PathBuf, FileKind>,
    /// Files and folders that belong to another user.
    closed: BTreeSet<PathBuf>,
    names: BTreeMap<String, IpAddr>,
}

impl MemoryHost {
    /// A machine without files.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            special: BTreeMap::new(),
            closed: BTreeSet::new(),
            names: BTreeMap::new(),
        }
    }

    /// Adds this file, and the folders that lead to it; the path starts with `/`.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    /// Adds a file of this kind that is not a regular one, with the bytes that a reader gets.
    #[cfg(test)]
    pub(crate) fn with_special(
        mut self,
        path: impl Into<PathBuf>,
        kind: FileKind,
        content: impl Into<Vec<u8>>,
    ) -> Self {
        let path = path.into();
        self.special.insert(path.clone(), kind);
        self.with_file(path, content)
    }

    /// Makes a file or a folder unreadable.
    #[cfg(test)]
    pub(crate) fn with_closed(mut self, path: impl Into<PathBuf>) -> Self {
        self.closed.insert(path.into());
        self
    }

    /// Adds an address for this host name.
    #[cfg(test)]
    pub(crate) fn with_name(mut self, name: &str, address: IpAddr) -> Self {
        self.names.insert(name.to_owned(), address);
        self
    }
}

impl MemoryHost {
    /// # Errors
    /// The path leads through a folder that cannot be read.
    fn enter(&self, path: &Path) -> io::Result<()> {
        let mut folders = path.ancestors().skip(1);
        match folders.any(|folder| self.closed.contains(folder)) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Host for MemoryHost {
    fn home(&self) -> Option<PathBuf> {
        Some(PathBuf::from("/home/nobody"))
    }

    fn home_of(&self, _user: &str) -> Option<PathBuf> {
        None
    }

    fn resolve(&self, name: &str) -> Option<IpAddr> {
        self.names.get(name).copied()
    }

    fn torrc(&self) -> PathBuf {
        PathBuf::from("/etc/tor/torrc")
    }

    fn defaults_torrc(&self) -> PathBuf {
        PathBuf::from("/etc/tor/torrc-defaults")
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path)
    }

    fn kind(&self, path: &Path) -> io::Result<FileKind> {
        let path = self.absolute(path);
        self.enter(&path)?;
        let is_inside = |file: &PathBuf| *file != path && file.starts_with(&path);
        if path.parent().is_none() || self.files.keys().any(is_inside) {
            Ok(FileKind::Folder)
        } else if self.files.contains_key(&path) || self.closed.contains(&path) {
            Ok(*self.special.get(&path).unwrap_or(&FileKind::File))
        } else {
            Err(not_found())
        }
    }

    fn look(&self, path: &Path) -> io::Result<()> {
        self.kind(path).map(drop)
    }

    fn read(&self, path: &Path, at_most: u64) -> io::Result<Vec<u8>> {
        let path = self.absolute(path);
        self.enter(&path)?;
        if self.closed.contains(&path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let content = self.files.get(&path).ok_or_else(not_found)?;
        let size = usize::try_from(at_most).unwrap_or(usize::MAX);
        Ok(content.get(..size).unwrap_or(content).to_vec())
    }

    fn read_stdin(&self, _at_most: u64) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let folder = self.absolute(folder);
        self.enter(&folder)?;
        if self.closed.contains(&folder) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let inside = self.files.keys().filter_map(|file| {
            let rest = file.strip_prefix(&folder).ok()?;
            Some(rest.components().next()?.as_os_str().to_owned())
        });
        let mut names: Vec<_> = inside.collect();
        names.dedup();
        Ok(names)
    }
}
