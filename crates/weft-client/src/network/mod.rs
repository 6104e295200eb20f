//! What a client knows of the network: how far the start has come, bridges, guards, outages, and whether it takes part at all.

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
