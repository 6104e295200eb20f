//! State of the network as a client sees it: bootstrap, bridges, guards, outages, and dormancy.

mod bootstrap;
mod bridges;
mod dormancy;
mod guard_events;
mod outage;

pub use bootstrap::{Progress, Via};
pub use bridges::{BridgeTask, Bridges, DescribedBridge, Transports};
pub(crate) use dormancy::Dormancy;
pub use dormancy::{DormancyOptions, Remembered};
pub use guard_events::guard_events;
pub(crate) use outage::Outage;
