//! One job in the simulator Shadow: relays and clients are processes, the clock, TCP and the lines are Shadow's
//! ([`weft_testnet::shadow`]).
//!
//! The network is the one of virtual time and of `netns`: [`Scenario::setup`](weft_virtual::Scenario::setup) draws hosts, users, when they begin
//! and their servers. A job is a folder that Shadow runs, by [`Simulations::run`] or by hand; `write.rs` makes it, the
//! process of `host.rs` measures on each host within the simulation, and `read.rs` makes results of what these processes wrote.

mod host;
mod read;
mod simulations;
mod work;
mod write;

pub use host::{HostArgs, measure};
pub use simulations::SimulationArgs;
pub(crate) use simulations::Simulations;
pub(super) use simulations::check;
