//! Files that are whole at every moment.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Replaces the content of a file. The file is complete at every moment: a failed write leaves
/// nothing behind.
///
/// # Errors
///
/// The system refuses; the message names the file.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let mut beside = OsString::from(path);
    beside.push(".new");
    let written = fs::write(&beside, content).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The error is of the file; this one only cleans up.
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_nothing_and_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        // A folder is not replaced by a file: all is written, and cannot get its name.
        let taken = place.path().join("taken.svg");
        fs::create_dir(&taken).expect("a folder");
        let error = write_whole(&taken, "<svg/>").expect_err("it is a folder");
        assert!(format!("{error:#}").contains("taken.svg"), "{error:#}");
        let names = fs::read_dir(place.path()).expect("a folder");
        assert_eq!(names.count(), 1, "only the folder is there");

        let file = place.path().join("file");
        write_whole(&file, "1").expect("written");
        let under = file.join("a.svg");
        let error = write_whole(&under, "2").expect_err("its folder is a file");
        assert!(format!("{error:#}").contains("file/a.svg"), "{error:#}");
        assert_eq!(fs::read_to_string(&file).expect("text"), "1");
    }
}
