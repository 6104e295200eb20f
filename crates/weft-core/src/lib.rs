//! The Tor protocol as pure state.
//!
//! Everything that a relay decides, and nothing that it does: no sockets, threads, clocks, ambient
//! randomness or locks. Time, randomness and bytes come in as arguments; actions go out as values.
//! The same machines run in a node (`weft-node`), in tests with a fake clock and in simulators.
//!
//! - [`handshake`]: a link from its first byte to an authenticated, opened link;
//! - [`scheduler`]: which circuit sends next, and how much a link may write;
//! - [`bucket`], [`dos`], [`padding`], [`load`], [`memory`]: limits and measurements.

pub mod address;
pub mod bucket;
pub mod dos;
pub mod handshake;
pub mod load;
pub mod memory;
pub mod padding;
pub mod scheduler;
