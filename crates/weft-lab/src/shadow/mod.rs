//! The experiment `cci`, simulated by Shadow ([`weft_testnet::shadow`]): `weft lab shadow`.
//!
//! [`write()`] makes a folder with a complete configuration of Shadow 3 for each simulation: keys, torrcs, the network
//! as a graph, and the users as processes. Shadow runs it, by hand or by [`Simulate`], and [`ReadBack`] makes the
//! report of what the users recorded, in the same tables as [`crate::cci`]. Writing and reading need no Shadow.
//! `docs/shadow.md` is the page on it.

mod command;
mod plan;
mod prepare;
mod read;
mod run;
mod simulation;
#[cfg(test)]
mod tests;

pub use command::{ReadArgs, ReadBack, RunArgs, Simulate, WriteArgs, write};
