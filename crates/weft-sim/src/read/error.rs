//! Why a document cannot be used.

use std::path::PathBuf;

/// No document is longer, bytes: twenty times the longest consensus there has been.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A line is not as dir-spec 3.4.1 requires.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The document: a file, or a file in an archive.
        name: String,
        /// From 1.
        line: usize,
        /// The problem with the line.
        what: String,
    },
    /// A file cannot be read, or not be unpacked.
    #[error("{name}: cannot {doing}: {}", reason(error))]
    Io {
        /// The file.
        name: String,
        /// `open it`, or `unpack it as .xz`.
        doing: &'static str,
        /// Why.
        error: std::io::Error,
    },
    /// It unpacks to more than any consensus has.
    #[error("{0}: it is longer than {MAX_DOCUMENT} bytes")]
    TooLong(String),
    /// A folder or an archive without a consensus.
    #[error("{}: there is no consensus in it (no *-consensus, no *-consensus-microdesc, plain or packed)", path.display())]
    Nothing {
        /// The folder or archive.
        path: PathBuf,
    },
    /// A folder or an archive in which no file is named as microdescriptors are.
    #[error("{}: no file in it is named as CollecTor names microdescriptors (*microdescs*, or 64 hexadecimal digits), plain or packed", path.display())]
    NoneNamed {
        /// The folder or archive.
        path: PathBuf,
    },
    /// A file, a folder or an archive without microdescriptors.
    #[error("{name}: there are no microdescriptors in it (no line is `onion-key`)")]
    NoMicrodescs {
        /// The file or folder that was read.
        name: String,
    },
}

/// Describes an error of a reader. Decompressors report a file that was cut short under several
/// names.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            format!("it ends too early, as a file that was cut short does ({error})")
        }
        _ => error.to_string(),
    }
}
