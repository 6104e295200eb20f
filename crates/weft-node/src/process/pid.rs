//! `PidFile`: the process id in a file, removed again at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::FileError;

/// The file, as long as the process runs.
#[derive(Debug)]
pub struct PidFile {
    /// Where it is.
    path: PathBuf,
}

impl PidFile {
    /// Writes this process's id and a newline (C tor's `write_pidfile`; readable by all).
    pub fn write(path: &Path) -> Result<Self, FileError> {
        fs::write(path, contents()).map_err(|e| FileError::new("write PidFile", path, e))?;
        Ok(Self {
            path: path.to_owned(),
        })
    }
}

/// What our file says.
fn contents() -> String {
    format!("{}\n", std::process::id())
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have taken the name over.
        if fs::read(&self.path).is_ok_and(|bytes| bytes == contents().as_bytes())
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
    fn it_says_our_id_and_goes_with_us() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let pid = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), contents());
        drop(pid);
        assert!(!path.exists());
    }

    #[test]
    fn somebody_elses_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let pid = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(pid);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }

    #[test]
    fn a_bad_place_is_named() {
        let error = PidFile::write(Path::new("/no/such/directory/pid")).unwrap_err();
        assert!(
            error.to_string().contains("/no/such/directory/pid"),
            "{error}"
        );
    }
}
