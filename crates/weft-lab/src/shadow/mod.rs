//! The testbed `shadow`: the simulator Shadow, where it is installed.
//!
//! `Network` is what is simulated for every experiment, and `simulate_in` runs it. Scenarios do so in
//! `crate::scenario`; the rest here is for the experiment `cci`.
//! [`write()`] makes a folder with a complete configuration of Shadow 3 for each simulation: keys, torrcs, the network
//! as a graph, and the users as processes. Shadow runs it, by hand or by [`Simulate`], and [`ReadBack`] makes the
//! report of what the users recorded, in the same tables as [`crate::cci`]. Writing and reading need no Shadow.
//! `docs/shadow.md` is the page on it.

mod command;
mod flow;
mod graph;
pub(crate) mod network;
mod plan;
mod prepare;
mod read;
mod run;
mod simulation;
#[cfg(test)]
mod tests;
mod yaml;

pub(crate) use graph::MAX_HOSTS;
pub(crate) use network::Network;
pub(crate) use plan::PlannedUser;
pub(crate) use read::records_of;
pub(crate) use run::{LOG, MISSING, installed, program, simulate_in};
pub(crate) use simulation::RECORDS;

pub use command::{ReadArgs, ReadBack, RunArgs, Simulate, WriteArgs, write};
pub use flow::{ClientArgs, ServerArgs, client, server};
