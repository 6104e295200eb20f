//! Parts of testbeds, as pure state machines. Its modules, from below to above:
//!
//! - [`graphs`]: `GraphML`, the format of models of traffic and of the topology of countries
//! - [`links`]: topologies, and networks of links that delay and lose packets
//! - [`traffic`]: users, both ends of their streams, and records of the results
//! - [`hosts`]: hosts with their lines, and TCP between them, in virtual time
//!
//! Real testbeds (`weft-testnet`, driven by `weft-load`) and virtual ones (`weft-virtual`) use the
//! same links and users.
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
