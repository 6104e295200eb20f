//! The Tor protocol as pure state.
//!
//! Everything that a relay decides, and nothing that it does: no sockets, threads, clocks, ambient
//! randomness or locks. Time, randomness and bytes come in as arguments; actions go out as values.
//! The same machines run in a node (`weft-node`), in tests with a fake clock and in simulators.
//!
//! - [`handshake`]: a link from its first byte to an authenticated, opened link;
//! - [`manager`]: what one connection thread knows: its [`link`]s, its circuit halves
//!   (`half`), the cells that wait ([`cells`]), its [`scheduler`];
//! - [`flow`]: flow and congestion control of circuits and streams;
//! - [`tunnel`]: several circuits as one;
//! - [`controller`]: what needs a view of the whole relay;
//! - [`abra`]: how scarce the relay's bandwidth is, for clients that ask;
//! - [`message`] and [`address`]: the messages between these, and how they name each other;
//! - [`bucket`], [`dos`], [`stream_dos`], [`padding`], [`load`], [`loss`], [`ledger`], [`routable`]: limits and measurements.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

pub mod address;
pub(crate) mod circuit;
pub mod controller;
pub mod extensions;
pub mod flow;
pub mod handshake;
pub mod limits;
pub mod link;
pub mod manager;
pub mod memory;
pub mod message;
pub mod moves;
pub mod origin;
pub mod params;
pub mod routable;
pub mod scheduler;
pub mod slots;
pub mod stream;
pub mod tunnel;
