//! Answers to the questions of operators and users when something does not work, given from the
//! outside (`weft doctor`): the torrc, the files, the process, the ports, the clock, the consensus,
//! the guards.
//!
//! [`facts`] looks at this machine and asks the running node and the network; [`judge`] makes findings of it, by
//! arguments alone. Nothing is changed: it runs beside the node, whose lock is at most tried for a moment
//! ([`weft_datadir::lock::holder`]).

mod controller;
mod facts;
mod finding;
mod judge;
mod ports;
#[cfg(test)]
mod tests;
mod tried;

use std::time::SystemTime;

use weft_config::Options;

pub use facts::{Scope, addresses, still_runs};
pub use finding::{Finding, Verdict};

/// Examines the node that these options are for.
pub fn examine(options: &Options, scope: Scope, now: SystemTime) -> Vec<Finding> {
    judge::findings(&facts::gather(options, scope, now))
}
