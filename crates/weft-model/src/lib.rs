//! What testbeds are made of, as pure state machines; rooms, from below to above:
//!
//! - [`graphs`]: `GraphML`, the format of models of traffic and of the topology of countries
//! - [`links`]: what a network of links does to packets; topologies
//! - [`traffic`]: what users do, both ends of their streams, and records of how these went
//! - [`hosts`]: hosts with their lines, and TCP between them, in virtual time
//!
//! Real testbeds (`weft-testnet`, driven by `weft-load`) and virtual ones (`weft-virtual`) take the same links and the same users from here.
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

pub mod graphs;
pub mod hosts;
pub mod links;
pub mod traffic;
