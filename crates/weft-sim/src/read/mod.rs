//! Reading networks: consensus documents, packed or not, alone or in archives.
//!
//! Signatures are not checked: the keys of the authorities that signed old documents are gone. A
//! simulation is as true as the documents that it is given.

mod files;
mod parse;
mod weights;

use std::path::PathBuf;

pub use files::{Document, Documents, MAX_DOCUMENT, documents, microdescs};
pub use parse::parse;
pub use weights::computed_weights;

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A line is not what dir-spec 3.4.1 says.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The document: a file, or a file in an archive.
        name: String,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A file cannot be read, or not be unpacked.
    #[error("{name}: {error}")]
    Io {
        /// The file.
        name: String,
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
    /// A file, a folder or an archive without microdescriptors.
    #[error("{name}: there are no microdescriptors in it (no line is `onion-key`)")]
    NoMicrodescs {
        /// What was read.
        name: String,
    },
}
