//! The throughput experiment of Engler and Goldberg 2021, section 5.2: client proxies, entries, exits and a server
//! around one target, streams on circuits that were built by hand, and what the target sustains.
//!
//! All nodes but the target are C tor. Each circuit goes through an entry, the target and an exit, and
//! carries one stream. All streams are opened first and begin at once; the server notes when each
//! stream's first and last byte arrive, and the target's own count of bytes is read every 500 ms.
//! Targets, each a relay of its own in the same network, take turns within each repetition, each
//! freshly started.
//!
//! What differs from the paper: all runs on one machine, where the nodes around the target compete
//! with it for processors (so each number comes with how busy the target was); the control port is
//! spoken by this crate and not by Stem; and one thread serves all streams instead of a process each.

mod command;
mod figures;
mod meter;
mod options;
mod report;
mod results;
mod run;
mod sizes;
mod streams;
mod sustained;
#[cfg(test)]
mod tests;
mod which;

pub use command::Args;
pub use meter::INTERVAL;
pub use options::Options;
pub use results::{Results, Run, SCHEMA, StreamTimes, TargetSummary};
pub use sizes::Sizes;
pub use sustained::{Rule, Sample};
pub use which::Which;
