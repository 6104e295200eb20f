//! Reading networks: consensus documents, packed or not, alone or in archives.
//!
//! Signatures are not checked: the keys by which old documents were signed are published no more. A
//! simulation is as true as the documents that it is given.

mod error;
mod files;
mod number;
mod parse;
mod weights;

pub use error::{MAX_DOCUMENT, ReadError};
pub use files::{Document, Documents, documents, file, microdescs};
pub use parse::parse;
pub use weights::computed_weights;
