//! The testbed `shadow`: the simulator Shadow, where it is installed.
//!
//! [`Network`] is what is simulated for every experiment, and [`simulate_in`] runs it. Scenarios do so in
//! `weft lab run`, and `weft lab shadow` does for the experiment `cci`.

pub mod graph;
pub mod network;
mod records;
mod run;
#[cfg(test)]
mod tests;
mod yaml;

pub use graph::MAX_HOSTS;
pub use network::{CONFIGURATION, DATA, HOSTS, Network};
pub use records::{PlannedUser, RECORDS, records_of};
pub use run::{LOG, MISSING, installed, program, simulate_in, version};
