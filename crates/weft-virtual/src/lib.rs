//! A whole Tor network in virtual time: Weft's own relays and clients, by the thousand, in one process.
//!
//! A [`Setup`] has hosts, what runs on each, and the documents that clients choose relays from. A [`World`] runs it:
//! relays are [`weft_core::controller::RelayController`]s with one or more
//! [`weft_core::manager::LocalConnectionManager`]s, exits are [`weft_exit::Exits`], clients are [`weft_client::Client`]s with guards,
//! timeouts and prediction, users are those of `weft-model`. Between hosts are the TCP connections that [`weft_model::hosts`]
//! models. Link TLS is bytes and round trips: nothing is decided there. What comes of a run is [`Results`].
//!
//! There is no clock or ambient randomness, and no I/O but that of the files which clients of chaos have: one seed gives one course of events.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

pub mod chaos;
mod network;
pub mod results;
mod roles;
pub mod scenario;
pub mod setup;
mod world;

pub use results::Results;
pub use roles::Roles;
pub use scenario::{Estimate, FileKind, Files, Scenario, ScenarioError};
pub use setup::Setup;
pub use world::World;
