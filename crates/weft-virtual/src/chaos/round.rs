//! What a round is.

use serde::{Deserialize, Serialize};

use crate::world::Attack;

/// A network, its users, and what goes wrong. Times are milliseconds since the beginning; rates kilobits each second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// What the randomness of nodes, users and faults follows from.
    pub seed: u64,
    /// How long users are at it.
    pub lasts: u64,
    /// Circuits have congestion control.
    pub congestion_control: bool,
    /// `ConnectionPerCircuit`.
    pub sharing: Sharing,
    /// TCP is Reno, not CUBIC.
    pub reno: bool,
    /// What a turn, a cell and an onionskin cost a relay, in nanoseconds.
    pub costs: [u64; 3],
    /// The delay of all paths that have none of their own.
    pub delay: u64,
    /// Packets in a million that all such paths lose.
    pub loss: u32,
    /// Paths of their own: two nodes (relays first, then clients), delay, loss.
    pub paths: Vec<(usize, usize, u64, u32)>,
    /// Three at least: the first is a guard, the second an exit.
    pub relays: Vec<Relay>,
    /// One at least.
    pub clients: Vec<Client>,
    /// Hosts of destinations.
    pub servers: usize,
    /// In any order.
    pub faults: Vec<Fault>,
}

/// `ConnectionPerCircuit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// `0`.
    All,
    /// `1`.
    PerCircuit,
    /// `auto`.
    Auto,
}

/// What clients take a relay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "names of roles")]
pub enum Role {
    Guard,
    Middle,
    Exit,
}

/// A relay on a host of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// What it is chosen for.
    pub role: Role,
    /// Connection threads.
    pub threads: u16,
    /// Its host's line, each way.
    pub rate: u64,
    /// Packets that the line's queue holds.
    pub queue: u32,
    /// BandwidthRate, in bytes each second.
    pub limit: Option<u64>,
}

/// A client on a host of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Its host's line, each way.
    pub rate: u64,
    /// Packets that the line's queue holds.
    pub queue: u32,
    /// When its user begins.
    pub start: u64,
    /// What its user does.
    pub traffic: Traffic,
}

/// A user: one stream after another, or one every so often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Bytes from the destination.
    pub down: u64,
    /// Bytes to it.
    pub up: u64,
    /// Bytes are sent in so many parts, a hundred milliseconds apart; 1: all at once.
    pub parts: u32,
    /// The time between two streams.
    pub pause: u64,
    /// Streams begin so often, whether earlier ones are over or not; otherwise behind one another.
    pub periodic: bool,
    /// A stream on which nothing moves for so long is given up.
    pub stall: u64,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub at: u64,
    /// For how long, where that means something.
    pub lasts: u64,
    /// What.
    pub kind: FaultKind,
}

/// What goes wrong. Nodes are relays first, then clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A relay dies, and comes back without memory. Its host answers nothing (`silent`), or resets everything.
    Dies {
        /// Which.
        relay: usize,
        /// How.
        silent: bool,
    },
    /// One of the connections breaks.
    Breaks {
        /// Which of those that there are, modulo their number.
        pick: usize,
    },
    /// The path between two nodes loses everything.
    Cut {
        /// One of them.
        one: usize,
        /// The other one.
        other: usize,
    },
    /// The destinations of a host read nothing.
    DeafServer {
        /// Which.
        server: usize,
    },
    /// A client's user reads nothing.
    DeafUser {
        /// Which.
        client: usize,
    },
    /// A node has to free memory, again and again.
    Memory {
        /// Which.
        node: usize,
        /// It may have so much of what it holds, in percent.
        percent: u64,
    },
    /// A node puts cells of its own making on its links, again and again.
    Hostile {
        /// Which.
        node: usize,
        /// What it does.
        attack: Attack,
        /// How many cells or records at a time.
        count: u32,
    },
    /// Messages between the threads of a node and its controller are late.
    Late {
        /// Which.
        node: usize,
        /// By so many microseconds at most.
        most: u64,
    },
    /// A node's clocks jump.
    Jump {
        /// Which.
        node: usize,
        /// The one that goes forward only, in milliseconds.
        mono: u64,
        /// The time of day, in seconds besides.
        wall: i64,
    },
}

impl Round {
    /// Relays and clients.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.relays.len() + self.clients.len()
    }
}
