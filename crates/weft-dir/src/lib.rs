//! Directory documents: what a relay fetches, verifies, follows and publishes.
//!
//! - [`consensus`]: consensuses and the authority certificates that sign them
//! - [`consdiff`]: differences between consensuses, applied
//! - [`descriptors`]: descriptors and extra-info documents of others, in cache files
//! - [`listing`]: the text of a consensus, relay by relay, as controllers are shown it
//! - `fetch`: what to ask the authorities for next, and what to make of the answers
//! - [`microdesc`]: microdescriptors cut apart, kept, and asked for
//! - [`params`]: the network parameters that a relay follows, typed and clamped
//! - [`cache`]: documents in C tor's cache files
//! - [`diff_maker`]: what is made of consensuses for those who fetch them
//! - [`documents`]: what a directory cache keeps for others
//! - [`client`]: what a client needs to choose paths, fetched over circuits
//! - [`http`]: HTTP/1.0 to a directory authority, bounded in every direction
//! - [`descriptor`]: our own router descriptor and extra-info document
//! - [`PairSocket`]: the socket pair of a directory stream inside of a node
//! - `held`: what an authority holds of ours when it declines a descriptor
//! - `publish`: when to publish them and what the authorities answered
//! - [`bandwidth`]: observed bandwidth and the histories that are published
//! - `tap`: whether they have a TAP key
//! - `schedule`: when to fetch next, and how long to wait after a failure
//! - [`task`]: the asynchronous task that drives all of these for a node, by [`command`]s and events
//!
//! Only [`http`], [`client`] and [`task`] do input and output over the network and only [`cache`], [`descriptors`] and
//! [`documents`] touch files, which `weft_datadir::file` writes; everything else is given its bytes, its time and its randomness.

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

pub mod answers;
pub mod authority;
pub mod bandwidth;
pub mod cache;
pub mod certs;
pub mod circuits;
pub mod client;
pub mod clock;
pub mod command;
pub mod consdiff;
pub mod consensus;
pub mod descriptor;
pub mod descriptors;
pub mod diff_maker;
pub mod documents;
pub mod downloads;
mod fetch;
mod held;
pub mod http;
pub mod listing;
pub mod microdesc;
mod pair;
pub mod params;
mod paths;
mod publish;
mod schedule;
pub mod sockets;
mod tap;
pub mod task;
#[cfg(test)]
mod testing;

pub use pair::PairSocket;

// `testing` is also a module of the integration tests and names this crate as they do.
#[cfg(test)]
extern crate self as weft_dir;
