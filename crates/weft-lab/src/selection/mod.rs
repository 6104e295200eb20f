//! `weft lab selection`: ways of choosing circuits, measured against one another in one network (Schrock 2017, section 3.3).
//!
//! `arms.rs` has the ways, `plan.rs` writes the network as a scenario (`regions.rs`: where hosts are), whose jobs are run by [`crate::scenario`].
//! `measure.rs` keeps of each job what the metrics need, `censored.rs` has quantiles of times of which some are not over,
//! `aggregate.rs` compares arms repetition by repetition.

mod aggregate;
mod arms;
mod censored;
mod command;
mod figures;
mod measure;
mod plan;
mod regions;
mod results;
mod tables;
#[cfg(test)]
mod tests;

pub use command::{Args, Options};
pub use results::Results;
