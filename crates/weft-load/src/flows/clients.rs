//! Users that are driven, and how.

use std::net::SocketAddr;
use std::time::Duration;

use weft_model::traffic::Model;
use weft_testnet::net::Host;

/// Interval at which threads check whether to stop.
pub(super) const BEAT: Duration = Duration::from_millis(100);

/// A user of a model, and how it reaches its server.
#[derive(Clone, Debug)]
pub struct FlowClient {
    /// Its name in records.
    pub name: String,
    /// The name of its model in records.
    pub model_name: String,
    /// Its behaviour.
    pub model: Model,
    /// When it begins.
    pub start: Duration,
    /// The SOCKS5 port that it asks for connections; `None`: it connects to servers itself.
    ///
    /// Streams of different clients, and of different flows of one, have different user names there, which
    /// keeps them on different circuits (IsolateSOCKSAuth).
    pub proxy: Option<SocketAddr>,
    /// Servers, as exits reach them, at least one. Streams go to them one after another.
    pub servers: Vec<SocketAddr>,
}

/// Settings of the client threads.
#[derive(Clone, Copy, Debug)]
pub struct FlowSettings {
    /// Length of the run, from the first action.
    pub duration: Duration,
    /// Payloads, pauses and sizes are functions of it.
    pub seed: u64,
    /// Number of threads that drive clients, at least 1.
    pub threads: usize,
}

/// Clients of one host.
#[derive(Clone, Debug)]
pub struct Site {
    /// A host of a testbed; `None`: this machine.
    pub host: Option<Host>,
    /// At least one.
    pub clients: Vec<FlowClient>,
}
