//! A running Tor node: sockets, threads, clocks, signals, files. Other crates decide; this one carries out
//! their actions (docs/architecture.md).
//!
//! Use [`relay::launch`] to run a node by its options, and [`logging`] before it. Inside, start with
//! `relay`, the main thread, and `thread`, a connection thread; the other threads are `client`,
//! `control`, `metrics`, `exit::dns` and `workers`. [`doctor`] looks at all of it from the outside.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation
    )
)]

mod client;
mod control;
mod directory;
pub mod doctor;
mod exit;
mod ext_or;
pub mod logging;
mod metrics;
pub mod process;
pub mod reachability;
pub mod relay;
#[cfg(test)]
mod senders;
mod thread;
mod transports;
mod wake;
mod workers;

pub use control::{VERSION, hash_password};

/// Functions for the fuzz targets alone.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::metrics::request::{MAX_HEAD, Verdict, parse};
}
