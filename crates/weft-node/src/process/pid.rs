//! `PidFile`: the process id in a file, which is removed when the process ends.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use weft_datadir::file::{self, Access, FileError};

/// Longer files are not ours.
const MAX_FILE: u64 = 64;

/// The file. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process's id and a newline (C tor's `write_pidfile`; readable by all).
    pub(crate) fn write(path: &Path) -> Result<Self, FileError> {
        // Half an id is the id of another process.
        let access = Access::mode(0o644);
        file::replace_with(path, access, |mut file| {
            file.write_all(contents().as_bytes())
        })
        .map_err(|error| FileError {
            doing: "write PidFile",
            ..error
        })?;
        Ok(Self {
            path: path.to_owned(),
        })
    }
}

fn contents() -> String {
    format!("{}\n", std::process::id())
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have replaced the file.
        let found = file::contents(&self.path, MAX_FILE).ok().flatten();
        if found.is_some_and(|bytes| bytes == contents().as_bytes())
            && let Err(e) = fs::remove_file(&self.path)
        {
            tracing::warn!("Couldn't remove {}: {e}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_our_id_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let pid = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), contents());
        drop(pid);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_another_process_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let pid = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(pid);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_what_was_to_be_written() {
        let error = PidFile::write(Path::new("/dev/full"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cannot write PidFile /dev/full: No space left on device"),
            "{error}"
        );
        assert!(Path::new("/dev/full").exists());
    }

    #[test]
    fn an_error_names_the_path() {
        let error = PidFile::write(Path::new("/no/such/directory/pid")).unwrap_err();
        assert!(
            error.to_string().contains("/no/such/directory/pid"),
            "{error}"
        );
    }
}
