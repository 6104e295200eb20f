//! Documents in C tor's cache files.
//!
//! `cached-microdesc-consensus`, `cached-certs` and the microdescriptors in CacheDirectory, so that `tor` and `weft`
//! started in turn on one directory find each other's. A file that cannot be used is worth one
//! warning, is not an error, and is replaced by the next good document.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use weft_datadir::file::{self, Access, FileError};
use weft_datadir::files::DataFile;

/// File name of the consensus.
pub const CONSENSUS: &str = DataFile::Consensus.name();
/// File name of the consensus that lists descriptors (the flavour `ns`), which caches keep.
pub const CONSENSUS_NS: &str = DataFile::ConsensusNs.name();
/// Folder of older consensuses and of the diffs to the newest ones.
pub const DIFFS: &str = DataFile::Diffs.name();
/// File name of the certificates.
pub const CERTS: &str = DataFile::Certificates.name();
/// File name of the microdescriptors.
pub const MICRODESCS: &str = DataFile::Microdescriptors.name();
/// File name of the microdescriptors that came since the other file was written.
pub const MICRODESCS_NEW: &str = DataFile::MicrodescriptorsNew.name();
/// Larger files are not ours.
pub(crate) const MAX_FILE: u64 = 64 << 20;

/// A cache file could not be read or written.
pub type CacheError = FileError;

/// Reads a cache file of text; `None` if there is none.
pub fn read(directory: &Path, name: &str) -> Result<Option<String>, CacheError> {
    let Some(bytes) = read_bytes(directory, name)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "the file is not text");
        FileError::new("read", &directory.join(name), source)
    })?;
    Ok(Some(text))
}

/// Reads a cache file; `None` if there is none.
pub fn read_bytes(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, CacheError> {
    file::contents(&directory.join(name), MAX_FILE)
}

/// Opens a cache file to read it.
pub(crate) fn open(directory: &Path, name: &str) -> Result<File, CacheError> {
    let path = directory.join(name);
    let missing = || FileError::new("read", &path, io::ErrorKind::NotFound.into());
    let (file, _) = file::open(&path, u64::MAX)?.ok_or_else(missing)?;
    Ok(file)
}

/// The bytes of a cache file; none if there is none.
pub(crate) fn length(directory: &Path, name: &str) -> usize {
    let length = fs::metadata(directory.join(name)).map(|file| file.len());
    length.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Replaces a cache file at once: a crash leaves the old or the new one, never half of one.
pub fn write(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), CacheError> {
    write_with(directory, name, |mut file| file.write_all(bytes.as_ref()))
}

/// Like [`write`], with contents written by `fill`.
pub(crate) fn write_with(
    directory: &Path,
    name: &str,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), CacheError> {
    // A node that is a relay and a client has two threads that keep the same files, and both stage
    // them at the same place.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = directory.join(name);
    create_private_dir(directory).map_err(|source| FileError::new("write", &path, source))?;
    file::replace_with(&path, Access::PRIVATE, fill)
}

/// Adds to the end of a cache file. A crash may leave part of `bytes`.
pub fn append(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), CacheError> {
    let path = directory.join(name);
    create_private_dir(directory).map_err(|source| FileError::new("add to", &path, source))?;
    file::append(&path, bytes.as_ref())
}

/// Creates a folder that is not there, for its owner alone: C tor complains of others.
fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path(), CERTS).unwrap().is_none());
        write(directory.path(), CERTS, "one").unwrap();
        write(directory.path(), CERTS, "two").unwrap();
        assert_eq!(
            read(directory.path(), CERTS).unwrap().as_deref(),
            Some("two")
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn bytes_that_are_not_text_are_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(CONSENSUS), [0xff, 0xfe]).unwrap();
        let error = read(directory.path(), CONSENSUS).unwrap_err().to_string();
        assert!(error.contains(CONSENSUS), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("not-a-directory");
        fs::write(&file, "").unwrap();
        let error = write(&file, CERTS, "x").unwrap_err().to_string();
        assert!(error.contains(CERTS), "{error}");
    }
}
