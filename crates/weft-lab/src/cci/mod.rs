//! Interference between circuits that share a connection (Pahl et al. 2023, 4.5 and 4.6), measured on real nodes:
//! what a lossy or congested link between two relays takes from circuits, with one TLS connection for all of them
//! and with one for each.

mod aggregate;
mod command;
mod figures;
mod options;
mod plan;
mod results;
mod run;
mod scenario;
mod tables;
mod virtual_time;

pub use command::Args;
pub use options::Options;
pub use results::{Aggregate, Cell, Client, Results, Testbed};
pub(crate) use scenario::consensus_params;
pub use scenario::{Arm, Links, Scenario, Traffic};
