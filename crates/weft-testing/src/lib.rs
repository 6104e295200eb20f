//! Shared code of the tests of several crates: [`not_run!`], [`real_document`], and [`ctor`], a
//! real C tor that runs alone. Nothing that is shipped uses it; whole private networks are
//! weft-testnet's.
//!
//! libtest knows passed, failed and ignored, and ignored is decided when the test is compiled. A test
//! that finds only at run time that it lacks a privilege, a processor's instructions or a file would
//! have to return early, and would count as passed. [`not_run!`] reports it instead: on standard error
//! past libtest's capture, and, where [`REPORT`] names a file, as a line there. `cargo xtask test` names
//! one and prints it in its summary.

pub mod ctor;
pub mod metrics;

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The environment variable that names the file to which [`not_run!`] appends.
pub const REPORT: &str = "WEFT_NOT_RUN";

/// Reports that the calling test, or the rest of it, does not run here, and why. The arguments are those
/// of [`format!`]; the name is that of the calling function.
///
/// # Panics
///
/// The file that [`REPORT`] names cannot be written: a reason that nobody sees is a test skipped in
/// silence.
#[macro_export]
macro_rules! not_run {
    ($($reason:tt)+) => {{
        fn here() {}
        $crate::report_here(&here, &format!($($reason)+));
    }};
}

/// Implementation of [`not_run!`]; `_here` is a function inside the one that reports.
#[doc(hidden)]
pub fn report_here<T>(_here: &T, reason: &str) {
    let name = std::any::type_name::<T>();
    let name = name.strip_suffix("::here").unwrap_or(name);
    let file = std::env::var_os(REPORT);
    if let Err(error) = report(
        file.as_deref(),
        name.trim_end_matches("::{{closure}}"),
        reason,
    ) {
        panic!("{name} is not run ({reason}), and {REPORT} cannot be written: {error}");
    }
}

/// One line to standard error, and to `file` if there is one.
fn report(file: Option<&OsStr>, name: &str, reason: &str) -> io::Result<()> {
    // One write for each, so that lines of tests that run at the same time do not mix.
    io::stderr().write_all(format!("not run: {name}: {reason}\n").as_bytes())?;
    match file {
        None => Ok(()),
        Some(file) => OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)?
            .write_all(format!("{name}: {reason}\n").as_bytes()),
    }
}

/// A public document of the real network, where the checkout has them beside it (`../shared/data`): they
/// are too large for the repository.
#[must_use]
pub fn real_document(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data")
        .join(name);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::unwrap_used)]
    fn each_report_is_a_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("not-run");
        report(Some(file.as_os_str()), "one::test", "no tor").unwrap();
        report(Some(file.as_os_str()), "another", "no Python").unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "one::test: no tor\nanother: no Python\n");
        report(None, "outside of xtask", "it goes to standard error alone").unwrap();
        let gone = folder.path().join("no/folder");
        report(Some(gone.as_os_str()), "a", "b").unwrap_err();
    }
}
