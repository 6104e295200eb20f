//! The directory that a relay serves (DirCache, HSDir, DirPort).
//!
//! - [`DirectoryHandle`]: the task that fetches and the server, on a thread of their own
//! - [`server`]: one request, one answer, on each stream
//! - `asker`: who asks, and the bandwidth that the answer takes
//! - [`request`]: requests, as they are read
//! - [`named`]: documents that the path of a request names
//! - [`requests`]: what is counted of them
//! - [`resource`]: the table of what they are about
//! - [`answer`]: what is answered to them
//! - `onion`, `plain`: answers about descriptors of onion services, and other answers that are never compressed
//! - `authority`: the authority of a private network, which answers in place of the documents
//! - `upload`: bodies of uploads, as they are read
//! - [`pieces`]: documents that are read and compressed as they are sent
//! - [`budget`]: bytes that a directory's streams hold, bounded and shared
//! - `places`: streams at once, shared
//! - [`shown`]: what controllers are shown of the documents that are served
//! - [`hs_dir`]: descriptors of onion services, as their directory keeps them
//! - `consensus_cache`: the newest consensuses compressed, and diffs to them, in files
//! - [`consdiff`]: diffs between consensuses, made as C tor makes them
//!
//! Documents are fetched, verified and kept by weft-dir. Only `consensus_cache` and the bodies of answers touch files,
//! which `weft_datadir::file` writes.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_methods
    )
)]

pub mod answer;
mod asker;
mod authority;
pub mod budget;
pub mod consdiff;
mod consensus_cache;
mod handle;
pub mod hs_dir;
pub mod named;
mod onion;
pub mod pieces;
mod places;
mod plain;
pub mod request;
pub mod requests;
pub mod resource;
pub mod server;
pub mod shown;
#[cfg(test)]
#[path = "../../weft-dir/src/testing.rs"]
#[allow(dead_code)]
mod testing;

mod upload;

pub use authority::{Authority, Posted};
pub use handle::{DirPort, DirectoryHandle, NotTaken};
