//! Measurements to make on a host of a simulation, and the files of their results.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_model::traffic::Model;
use weft_virtual::results::RelayResults;

/// The longest file that is read of what `weft lab` has written into the folder of a simulation.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// The name of the command.
pub(super) const HOST_COMMAND: &str = "simulated-host";
/// A relay's results.
pub(super) const RELAY: &str = "relay.json";
/// A client's circuits.
pub(super) const CIRCUITS: &str = "circuits.json";

/// Measurements to make on a host, beside one of its nodes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Work {
    /// The host's name.
    pub(super) host: String,
    /// The node's.
    pub(super) nickname: String,
    /// When the run begins, since the Unix epoch.
    pub(super) begin: Duration,
    /// Its length.
    pub(super) duration: Duration,
    pub(super) task: Task,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    Relay(Relay),
    Client(Box<Client>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Relay {
    /// Of samples.
    pub(super) interval: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) model_name: String,
    pub(super) model: Model,
    /// When the user begins, since the beginning of the run.
    pub(super) start: Duration,
    pub(super) servers: Vec<SocketAddr>,
    pub(super) seed: u64,
    /// The host of each relay by its nickname.
    pub(super) names: BTreeMap<String, String>,
}

/// Results of a relay.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RelayFile {
    pub(super) results: RelayResults,
    /// Bytes of cells that it wrote to links.
    pub(super) cells: u64,
}
