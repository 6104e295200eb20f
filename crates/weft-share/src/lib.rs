//! Fair shares of a common bound, for everything that one client could otherwise fill.
//!
//! A relay bounds what it keeps for others: connections that are being opened, names that name
//! servers are asked about, directory streams, onionskins, streams that wait for a decision,
//! rendezvous cookies. A bare bound is a switch that one client can turn off for all the others.
//! [`Shares`] counts who holds how much of such a bound. Below the bound everybody is admitted, so
//! that somebody who is alone may use all of it. At the bound, the owner that holds most gives way
//! ("longest queue drop", Suter, Lakshman, Stiliadis and Choudhury 1999), so that nobody can keep out
//! another who holds less.
//!
//! An owner is what an attacker cannot make up at will: the [`PreviousHop`] of the circuit, and below
//! it the circuit itself.
//!
//! It is state without I/O, clock or randomness; every operation takes O(log n), and nothing is
//! iterated in hash order. [`Places`] is the same for servers that accept connections on one thread and
//! serve them on another.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod hop;
mod places;
mod ranks;
mod shares;
#[cfg(test)]
mod tests;

pub use hop::{PreviousHop, network};
pub use places::{Place, Places};
pub use shares::{Admitted, Shares, Ticket};
