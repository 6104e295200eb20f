//! A relay's folders: what of them belongs to its identity.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use crate::dir::{DirError, check_private};
use crate::file::{self, FileError};
use crate::keys::{MOVED, family};
use crate::state;

use super::{All, BackupError, Folder, MAX_BYTES, MAX_DEPTH, MAX_FILE, MAX_FILES, Places};

/// Makes the folders that a file needs.
pub(super) fn make_folders(folder: &Path, name: &str) -> Result<(), DirError> {
    check_private(folder, true, false)?;
    let mut path = folder.to_owned();
    let mut parts = Path::new(name).components();
    parts.next_back();
    for part in parts {
        path.push(part);
        check_private(&path, true, false)?;
    }
    Ok(())
}

/// All files that belong to a relay's identity.
pub(super) fn read_all(places: Places<'_>) -> Result<All, BackupError> {
    let is_family = |name: &str| family::is_file(name);
    let mut all = BTreeMap::new();
    for folder in Folder::ALL {
        let path = places.of(folder);
        let files = match folder {
            Folder::Keys => read_folder(&path, |name| places.is_key(name))?,
            Folder::Family if path == places.of(Folder::Keys) => Vec::new(),
            Folder::Family => read_folder(&path, is_family)?,
            Folder::Data => read_folder(&path, |name| name == state::FILE)?,
            Folder::Transports => read_tree(&path, "", MAX_DEPTH)?,
        };
        all.extend(
            files
                .into_iter()
                .map(|(name, bytes)| ((folder, name), bytes)),
        );
        let bytes = all.values().map(|bytes| bytes.len()).sum::<usize>();
        if all.len() > MAX_FILES || bytes > MAX_BYTES {
            return Err(BackupError::TooMuch(path.display().to_string()));
        }
    }
    Ok(all)
}

/// A file's name, and what it has.
type Named = (String, Zeroizing<Vec<u8>>);

/// The files of a folder, if it is there, that are wanted; none of those that are being written, and no mark of ours.
pub(super) fn read_folder(
    path: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Named>, BackupError> {
    let mut files = Vec::new();
    for (name, is_folder) in list(path, wanted)? {
        if is_folder {
            continue;
        }
        if let Some(bytes) = file::read(&path.join(&name), MAX_FILE)? {
            files.push((name, bytes));
        }
    }
    Ok(files)
}

/// The files of a folder and of those in it.
fn read_tree(path: &Path, prefix: &str, depth: usize) -> Result<Vec<Named>, BackupError> {
    let mut files = Vec::new();
    for (name, bytes) in read_folder(path, |_| true)? {
        files.push((format!("{prefix}{name}"), bytes));
    }
    for (name, is_folder) in list(path, |_| true)? {
        if !is_folder {
            continue;
        }
        let inner = path.join(&name);
        if depth <= 1 {
            return Err(BackupError::TooMuch(inner.display().to_string()));
        }
        files.extend(read_tree(&inner, &format!("{prefix}{name}/"), depth - 1)?);
    }
    Ok(files)
}

/// The wanted names in a folder, and which of them are folders; nothing where there is none. A link
/// to a file is a file. Sockets and the like, of a transport, do not belong to the identity.
fn list(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, bool)>, BackupError> {
    let failed = |source| FileError::new("list", path, source);
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error).into()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        let is_ours = shown == MOVED || shown.ends_with(".tmp");
        if !wanted(&shown) || is_ours && !kind.is_dir() {
            continue;
        }
        if kind.is_symlink() {
            check_link(&entry.path())?;
        } else if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        if names.len() >= MAX_FILES {
            return Err(BackupError::TooMuch(path.display().to_string()));
        }
        let name = name.into_string().map_err(|name| {
            BackupError::TooMuch(format!(
                "{} with the name {}",
                path.display(),
                name.to_string_lossy()
            ))
        })?;
        names.push((name, kind.is_dir()));
    }
    names.sort();
    Ok(names)
}

/// Checks that a link leads to a file. Links to folders are refused, as they could form a loop.
fn check_link(path: &Path) -> Result<(), BackupError> {
    match path.metadata() {
        Ok(meta) if meta.is_file() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::new("read", path, error).into())
        }
        _ => Err(BackupError::Link(path.to_owned())),
    }
}
