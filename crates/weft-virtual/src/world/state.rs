//! The state of a network that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weft_core::address::EdgeAddr;

use super::client::ClientNetwork;
use super::ground::Ground;
use super::node::{Common, Node};
use super::server::Servers;
use crate::results::RelayResults;

/// The work of each second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// A network that runs, in virtual time.
#[derive(Debug)]
pub struct World {
    pub(super) ground: Ground,
    pub(super) common: Common,
    /// Relays in the setup's order, then clients.
    pub(super) nodes: Vec<Node>,
    pub(super) relays: usize,
    pub(super) servers: Servers,
    pub(super) interval: Duration,
    /// Measurements of each relay in past intervals.
    pub(super) series: Vec<RelayResults>,
    /// Bytes that each relay had written at the last sample.
    pub(super) before: Vec<u64>,
    /// Since the beginning of the run: from then on is measured.
    pub(super) began: Duration,
    /// Bytes that relays had written to links by then.
    pub(super) relayed_before: u64,
    /// Setups of relays, to restart them.
    pub(super) setups: Vec<crate::setup::Relay>,
    /// Setups of clients, to restart them with `network`.
    pub(super) clients: Vec<crate::setup::Client>,
    pub(super) network: ClientNetwork,
    /// Streams that got bytes that nobody sent, and the like, as far as they were looked for.
    pub(super) defects: Vec<String>,
    /// By node and edge: the number of bytes that had come when it was looked at first of those that waited then, and the
    /// node's time.
    pub(super) waits: BTreeMap<(usize, EdgeAddr), (u64, Instant)>,
    /// By node: when its clock jumped last.
    pub(super) jumped: BTreeMap<usize, Duration>,
    /// Nodes that send what they like on circuits of which they have keys.
    pub(super) hostile: BTreeSet<u32>,
    /// Messages that they sent.
    pub(super) forged: u64,
    /// The node whose code ran last.
    pub(super) touched: Option<u32>,
}

impl World {
    /// The time since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.ground.elapsed()
    }

    /// Discrete events of the network so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.ground.net.handled()
    }

    /// The code of a node runs now.
    pub(super) fn enter(&mut self, number: u32) {
        self.touched = Some(number);
        self.ground.enter(number);
    }
}

/// A time since the beginning in nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
