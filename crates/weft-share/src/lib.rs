//! Fair shares of a common bound, for everything that one client could otherwise fill.
//!
//! A relay bounds what it keeps for others: connections that are being opened, names that name
//! servers are asked about, directory streams, onionskins, streams that wait for a decision,
//! rendezvous cookies. A bare bound is a switch that one client can turn off for all the others.
//! [`Shares`] counts how much of such a bound each owner holds. Below the bound every owner is
//! admitted, so that a single one may use all of it. At the bound, the owner that holds most gives
//! way ("longest queue drop", Suter, Lakshman, Stiliadis and Choudhury 1999), so that no owner can
//! keep out another that holds less. [`Amounts`] does the same for items of different sizes, such
//! as bytes of answers.
//!
//! An owner is something that an attacker cannot invent at will: the [`PreviousHop`] of the
//! circuit, and below it the circuit itself.
//!
//! It is state without I/O, clock or randomness; every operation takes O(log n), and nothing is
//! iterated in hash order. [`Places`] is the same for servers that accept connections on one thread and
//! serve them on another.
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

mod amounts;
mod hop;
mod places;
mod ranks;
mod shares;
#[cfg(test)]
mod tests;
mod ticket;

pub use amounts::Amounts;
pub use hop::{PreviousHop, network};
pub use places::{Place, Places};
pub use shares::{Admitted, Shares};
pub use ticket::Ticket;
