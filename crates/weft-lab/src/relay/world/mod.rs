//! One thread of the generator: some links to the target, the relays that the target extends to, and
//! the circuits between them.
//!
//! A world shares nothing with the others but what the conductor (`super::conductor`) orders, its
//! [`Stage`], and what it reports to the conductor, its [`Counters`] and [`News`]. It is one event loop,
//! like a relay's connection thread, and makes cells in the same large TLS records.

mod build;
mod circuit;
mod drive;
mod ends;
mod hops;
mod links;
mod live;
mod mix;
mod onionskins;
mod orders;
mod plan;
mod primes;
mod state;
mod tokens;
mod turns;

pub(super) use orders::{Churn, Counters, News, SharedStage, Stage, Timed};
pub(super) use plan::Plan;
pub(super) use state::World;
