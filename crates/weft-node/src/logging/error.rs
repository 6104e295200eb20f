//! Why a log cannot be set up.

use std::io;
use std::path::PathBuf;

/// A log that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file cannot be opened or written.
    #[error("cannot write log file \"{}\": {why}; free space, change its permissions, or change the Log option", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The process has another log already.
    #[error("cannot start logging: this process logs already")]
    Twice,
}
