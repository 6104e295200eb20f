//! Guards (guard-spec; C tor: entrynodes.c).
//!
//! [`Guards`] holds the samples that guard-spec calls guard selections: the one in ordinary use, and
//! one for a configuration that excludes most guards, and one of bridges. [`sample`] is the algorithm on one of them,
//! [`sampled`] one guard of it, [`circuits`] follows circuits through guards, [`legs`] chooses those of a tunnel's legs, [`state`] reads and writes
//! the lines of C tor's state file, [`bias`] has the counters of path-spec 7.
//!
//! Arti's tor-guardmgr does the same. It is not used: its state is of another format, so that a C tor
//! that takes the DataDirectory back would find none of its guards; its clock and its randomness
//! cannot be handed in; and it wants a runtime, a state manager, and all of tor-proto (23 crates more
//! than Weft has).

mod bias;
mod circuit;
mod circuits;
mod env;
mod guards;
mod info;
mod legs;
mod sample;
mod sampled;
mod state;
#[cfg(test)]
mod tests;

pub use bias::Suspicion;
pub use circuit::{GuardUse, Outcome};
pub(crate) use guards::Guards;
pub use info::{GuardInfo, GuardStatus};
pub(crate) use info::{GuardUsage, Restriction};
