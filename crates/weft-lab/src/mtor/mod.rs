//! `weft lab mtor`: streams over several circuits through slow relays, over one circuit, and over conflux sets (Yang and Li 2015, V).
//!
//! `arms.rs` has the ways, `relays.rs` the relays of the networks. Each part of the experiment is a scenario, whose jobs are run by
//! [`crate::run`]: `downloads.rs` writes that of downloads (Figures 5 and 8), `contention.rs` that of web clients beside
//! bulk clients (Figure 6, Table I), `controlled.rs` two small ones whose outcome can be computed. `measure.rs` keeps of each job what is
//! needed, `aggregate.rs` compares arms repetition by repetition.

mod aggregate;
mod arms;
mod command;
mod contention;
mod controlled;
mod downloads;
mod figures;
mod measure;
mod part;
mod relays;
mod results;
mod tables;
#[cfg(test)]
mod tests;

pub use command::{Args, Options};
pub use results::Results;
