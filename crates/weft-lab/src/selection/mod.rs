//! `weft lab selection`: ways of choosing circuits, measured against one another in one network (Schrock 2017, section 3.3).
//!
//! `arms.rs` has the ways, `plan.rs` writes the network as a scenario, whose jobs are run by [`crate::run`].
//! `measure.rs` keeps of each job what the metrics need, `aggregate.rs` compares arms repetition by repetition, by what
//! [`crate::comparison`] has.

mod aggregate;
mod arms;
mod command;
mod figures;
mod measure;
mod plan;
mod results;
mod tables;
#[cfg(test)]
mod tests;

pub use command::{Args, Options};
pub use results::Results;
