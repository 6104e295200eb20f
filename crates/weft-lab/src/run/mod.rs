//! `weft lab run`: a scenario, a whole Tor network with its users, on a testbed.
//!
//! A scenario has arms and repetitions. Each repetition of each arm is a [`Job`] of its own, whose results depend on the
//! scenario, the seed and nothing else: `sweep.rs` runs them all, [`jobs`](crate::jobs) on threads, `testbed.rs` one of them, in virtual time
//! (`virtual_time.rs`), on real processes (`netns/`), or in a simulator that runs these (`shadow/`).
//! [`Results`] sums up their results, and is the same for any number of threads. A folder has all that a job
//! measured, so `merge.rs` makes one run of the folders of several.

mod aggregate;
mod command;
mod figures;
pub(crate) mod job;
pub(crate) mod memory;
mod merge;
mod netns;
mod raw;
mod results;
mod series;
pub(crate) mod shadow;
pub(crate) mod source;
pub(crate) mod sweep;
mod tables;
pub(crate) mod testbed;
#[cfg(test)]
mod tests;
pub(crate) mod virtual_time;

pub use command::{Args, Options};
pub use job::Job;
pub use merge::{MergeArgs, Merging, are_parts};
pub use results::{Circuits, FailedJob, OfArm, OfModel, Outcome, Results, Streams};
pub use shadow::{HostArgs, SimulationArgs, measure};
pub use testbed::Testbed;
