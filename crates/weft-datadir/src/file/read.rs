//! Reading files: regular ones of a bounded length.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use super::FileError;

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
