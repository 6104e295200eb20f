//! A relay under churn for hours: links, circuits, streams and clients that come, go and misbehave at
//! random, and what the relay holds: `weft lab soak`.
//!
//! The time is parted into cycles. In the *flood* of a cycle honest users come and go and attackers do one
//! attack after the other ([`ATTACKS`]), all by chance of one seed. In its *ebb* everybody is gone: what the
//! relay then holds, nobody needs. Growth from ebb to ebb is a leak, and so is a link, a circuit or a file
//! descriptor that is left in the last one.

mod command;
mod figures;
mod options;
pub mod results;
mod run;
mod tally;

pub use command::Args;
pub use options::Options;
