//! Circuits and sets of them, as the client knows them. [`crate::Client`] works with them.

mod circuit;
pub(crate) mod first_hops;
mod hop;
mod launches;
mod plan;
mod sets;
mod weights;

pub(crate) use circuit::{Circuit, Stage};
pub(crate) use first_hops::{FirstHops, Silence};
pub use hop::Hop;
pub(crate) use hop::{BuildError, HopHandshake, extend2};
pub(crate) use launches::Launches;
pub(crate) use plan::{MAX_HOPS, Plan};
pub use sets::{ConfluxParams, TunnelCounts};
pub(crate) use sets::{Leg, MAX_LEGS, MtorSet, Numbered, Set, SetPolicy};
pub use weights::StatementCounts;
pub(crate) use weights::Weights;
