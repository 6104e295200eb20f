//! A round of chaos as data: network, users and faults.

use std::collections::BTreeSet;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::world::{Attack, DiskFault, Messages};

/// A network, its users, and what goes wrong. Times are milliseconds since the beginning; rates kilobits each second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Seed of nodes, users and faults.
    pub seed: u64,
    /// Duration of the users' activity.
    pub lasts: u64,
    /// Circuits have congestion control.
    pub congestion_control: bool,
    /// `ConnectionPerCircuit`.
    pub sharing: Sharing,
    /// Clients build conflux sets.
    #[serde(default)]
    pub conflux: bool,
    /// Circuits of the tunnels that clients with `tunnels` use; 0: no exit serves them.
    #[serde(default)]
    pub legs: u16,
    /// All legs of a tunnel have one guard.
    #[serde(default)]
    pub common_entry: bool,
    /// Clients choose circuits by what relays state of their bandwidth (`CircuitSelection abra`).
    #[serde(default)]
    pub abra: bool,
    /// Exits serve relays that they do not know (`RefuseUnknownExits 0`).
    #[serde(default)]
    pub any_previous: bool,
    /// Relays, and others that their consensus lacks.
    #[serde(default)]
    pub unlisted: Vec<(usize, usize)>,
    /// TCP is Reno, not CUBIC.
    pub reno: bool,
    /// Cost of a turn, a cell and an onionskin for a relay, in nanoseconds.
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

/// Position in paths for which clients choose a relay.
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
    /// Position in paths for which clients choose it.
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
    /// Its streams are for tunnels.
    #[serde(default)]
    pub tunnels: bool,
    /// Some of its streams name their destinations.
    #[serde(default)]
    pub names: bool,
    /// Some of its streams are for what rules, name servers or policies refuse.
    #[serde(default)]
    pub refused: bool,
    /// A controller attaches its streams.
    #[serde(default)]
    pub held: bool,
    /// Its user takes nothing for so many seconds, then everything for as many, and so on.
    #[serde(default)]
    pub rests: u64,
    /// Its circuits have one hop.
    #[serde(default)]
    pub one_hop: bool,
    /// It has a state file and a torrc, and writes them every so often; 0: it has none.
    #[serde(default)]
    pub files: u64,
    /// Streams of its user.
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
    /// One that is not complete after so long is given up, whatever moves.
    #[serde(default)]
    pub timeout: Option<u64>,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub at: u64,
    /// For how long, where that means something.
    pub lasts: u64,
    /// The fault with its parameters.
    pub kind: FaultKind,
}

impl Fault {
    /// True if no stream suffers from it: a disk fails, and no process is killed.
    pub(super) fn is_of_disk(&self) -> bool {
        let FaultKind::Disk { how, .. } = self.kind else {
            return false;
        };
        !matches!(how, DiskFault::Killed(_))
    }
}

/// Kinds of faults. Nodes are numbered: relays first, then clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A relay dies, and comes back without memory. Its host answers nothing (`silent`), or resets everything.
    Dies {
        /// Place in `Round::relays`.
        relay: usize,
        /// True if its host answers nothing; otherwise it resets every connection.
        silent: bool,
    },
    /// One of the connections breaks.
    Breaks {
        /// Number of the connection, modulo the count of open ones.
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
        /// Number of the server, from 0.
        server: usize,
    },
    /// A client's user reads nothing.
    DeafUser {
        /// Place in `Round::clients`.
        client: usize,
    },
    /// A node reads nothing from its links.
    Hangs {
        /// Number of the node that hangs.
        node: usize,
    },
    /// A node has to free memory, again and again.
    Memory {
        /// Number of the node that is short of memory.
        node: usize,
        /// It may have so much of what it holds, in percent.
        percent: u64,
    },
    /// A node puts cells of its own making on its links, again and again.
    Hostile {
        /// Number of the hostile node.
        node: usize,
        /// Kind of cells or records that it sends.
        attack: Attack,
        /// Cells or records sent each time.
        count: u32,
    },
    /// A node sends messages of its own making on circuits of which it has keys, again and again.
    Forges {
        /// Number of the hostile node.
        node: usize,
        /// Kind of relay messages that it sends.
        messages: Messages,
        /// Messages sent each time.
        count: u32,
    },
    /// Messages between the threads of a node and its controller are late.
    Late {
        /// Number of the node.
        node: usize,
        /// By so many microseconds at most.
        most: u64,
    },
    /// A link of a relay moves from thread to thread, again and again.
    Moves {
        /// Place in `Round::relays`.
        relay: usize,
    },
    /// A node's clocks jump.
    Jump {
        /// Number of the node.
        node: usize,
        /// The one that goes forward only, in milliseconds.
        mono: u64,
        /// The time of day, in seconds besides.
        wall: i64,
    },
    /// Writes of a client's files end early.
    Disk {
        /// Place in `Round::clients`.
        client: usize,
        /// At the system call of this number that changes something.
        step: u32,
        /// Failure of the write.
        how: DiskFault,
    },
    /// A client's process is killed, and comes back from its files at once.
    Restarts {
        /// Place in `Round::clients`.
        client: usize,
        /// A line of its state file is damaged meanwhile.
        damaged: bool,
    },
}

/// Bytes of a file that a round is read from.
pub const MAX_FILE: u64 = 1 << 20;
/// Nodes of each kind, and paths.
const MAX_NODES: usize = 1_000;
const MAX_FAULTS: usize = 10_000;
/// Times: a day.
const MAX_MILLIS: u64 = 24 * 3_600 * 1_000;
/// Kilobits each second.
const MAX_RATE: u64 = 100_000_000;
const MAX_QUEUE: u32 = 1_000_000;
/// Cells or records that a hostile node makes at once.
const MAX_COUNT: u32 = 100_000;
/// Largest cost of a piece of work, in nanoseconds.
const MAX_COST: u64 = 1_000_000_000;
/// Bytes of a stream, and of a relay's limit.
const MAX_BYTES: u64 = 1 << 40;

/// Nothing, or what is out of bounds.
fn within<T: PartialOrd + Display>(what: &str, value: T, least: T, most: T) -> Result<(), String> {
    if least <= value && value <= most {
        Ok(())
    } else {
        Err(format!("{what} is {value}: {least} to {most} can be run"))
    }
}

impl Round {
    /// Reads a round that was written to a file, perhaps by hand.
    ///
    /// # Errors
    ///
    /// It is no round, or has numbers that cannot be run: which, and what they can be.
    pub fn from_json(text: &str) -> Result<Round, String> {
        let round: Round = serde_json::from_str(text).map_err(|error| error.to_string())?;
        round.check()?;
        Ok(round)
    }

    fn check(&self) -> Result<(), String> {
        let nodes = self.nodes();
        within("the number of relays", self.relays.len(), 3, MAX_NODES)?;
        within("the number of clients", self.clients.len(), 1, MAX_NODES)?;
        within("the number of servers", self.servers, 1, MAX_NODES)?;
        within("the number of paths", self.paths.len(), 0, MAX_NODES)?;
        within("the number of faults", self.faults.len(), 0, MAX_FAULTS)?;
        within("`lasts`", self.lasts, 1, MAX_MILLIS)?;
        within("`legs`", self.legs, 0, 16)?;
        for cost in self.costs {
            within("one of the costs", cost, 0, MAX_COST)?;
        }
        let path = |delay, loss| {
            within("a delay", delay, 0, 60_000)?;
            within("a loss", loss, 0, 1_000_000)
        };
        path(self.delay, self.loss)?;
        for &(one, other, delay, loss) in &self.paths {
            within("a path's node", one.max(other), 1, nodes - 1)?;
            if one == other {
                return Err(format!("a path leads from node {one} to itself"));
            }
            path(delay, loss)?;
        }
        for relay in &self.relays {
            within("a relay's threads", relay.threads, 1, 64)?;
            within("a relay's rate", relay.rate, 1, MAX_RATE)?;
            within("a relay's queue", relay.queue, 1, MAX_QUEUE)?;
            within("a relay's limit", relay.limit.unwrap_or(1), 1, MAX_BYTES)?;
        }
        for client in &self.clients {
            let traffic = &client.traffic;
            within("a client's rate", client.rate, 1, MAX_RATE)?;
            within("a client's queue", client.queue, 1, MAX_QUEUE)?;
            within("a client's start", client.start, 0, MAX_MILLIS)?;
            within(
                "what a stream has",
                traffic.down.max(traffic.up),
                1,
                MAX_BYTES,
            )?;
            within("the number of parts", traffic.parts, 1, 1_000_000)?;
            within(
                "a pause",
                traffic.pause,
                u64::from(traffic.periodic),
                MAX_MILLIS,
            )?;
            within("`stall`", traffic.stall, 1, MAX_MILLIS)?;
            within("`timeout`", traffic.timeout.unwrap_or(1), 1, MAX_MILLIS)?;
            within("`rests`", client.rests, 0, MAX_MILLIS / 1_000)?;
            within("`files`", client.files, 0, MAX_MILLIS)?;
        }
        for &(relay, other) in &self.unlisted {
            within(
                "a relay that is not listed",
                relay.max(other),
                1,
                self.relays.len() - 1,
            )?;
        }
        self.faults
            .iter()
            .try_for_each(|fault| self.check_fault(fault))
    }

    fn check_fault(&self, fault: &Fault) -> Result<(), String> {
        within("when a fault begins", fault.at, 0, self.lasts)?;
        within("how long a fault lasts", fault.lasts, 0, MAX_MILLIS)?;
        let (relays, nodes) = (self.relays.len() - 1, self.nodes() - 1);
        let node = |node| within("a fault's node", node, 0, nodes);
        let relay = |relay| within("a fault's relay", relay, 0, relays);
        match fault.kind {
            FaultKind::Dies { relay: one, .. } => relay(one),
            FaultKind::Breaks { .. } => Ok(()),
            FaultKind::Cut { one, other } => node(one.max(other)),
            FaultKind::DeafServer { server } => {
                within("a fault's server", server, 0, self.servers - 1)
            }
            FaultKind::DeafUser { client }
            | FaultKind::Disk { client, .. }
            | FaultKind::Restarts { client, .. } => {
                within("a fault's client", client, 0, self.clients.len() - 1)
            }
            FaultKind::Memory { node: one, percent } => {
                within("the part of its memory", percent, 0, 100)?;
                node(one)
            }
            FaultKind::Hangs { node: one } => node(one),
            FaultKind::Hostile {
                node: one, count, ..
            }
            | FaultKind::Forges {
                node: one, count, ..
            } => {
                within("how much a hostile node makes", count, 0, MAX_COUNT)?;
                node(one)
            }
            FaultKind::Late { node: one, most } => {
                within("how late messages are", most, 0, MAX_MILLIS * 1_000)?;
                node(one)
            }
            FaultKind::Moves { relay } => {
                within("a fault's relay", relay, 0, self.relays.len() - 1)
            }
            FaultKind::Jump {
                node: one,
                mono,
                wall,
            } => {
                within("how far a clock jumps", mono, 0, MAX_MILLIS)?;
                within("how far the time of day jumps", wall, -1_000_000, 1_000_000)?;
                node(one)
            }
        }
    }

    /// Nodes that send messages of their own making on circuits.
    pub(super) fn forgers(&self) -> BTreeSet<usize> {
        let faults = self.faults.iter();
        let nodes = faults.filter_map(|fault| match fault.kind {
            FaultKind::Forges { node, .. } => Some(node),
            _ => None,
        });
        nodes.collect()
    }

    /// Nodes that are hostile in any way.
    pub(super) fn hostile(&self) -> BTreeSet<usize> {
        let faults = self.faults.iter();
        let nodes = faults.filter_map(|fault| match fault.kind {
            FaultKind::Hostile { node, .. } | FaultKind::Forges { node, .. } => Some(node),
            _ => None,
        });
        nodes.collect()
    }

    /// Relays and clients.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.relays.len() + self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_round_is_read_as_it_was_written() {
        for number in 0..300 {
            let round = Round::draw(1, number);
            let text = serde_json::to_string(&round).unwrap();
            assert!(text.len() as u64 <= MAX_FILE);
            assert_eq!(Round::from_json(&text), Ok(round));
        }
    }

    #[test]
    fn a_round_that_cannot_be_run_is_refused_with_the_reason() {
        let good = Round::draw(1, 4);
        let refused = |change: &dyn Fn(&mut Round), word: &str| {
            let mut round = good.clone();
            change(&mut round);
            let text = serde_json::to_string(&round).unwrap();
            let error = Round::from_json(&text).unwrap_err();
            assert!(error.contains(word), "{error}");
        };
        refused(
            &|round| round.relays.truncate(2),
            "the number of relays is 2: 3 to",
        );
        refused(&|round| round.clients.clear(), "clients is 0");
        refused(&|round| round.servers = usize::MAX, "servers");
        refused(&|round| round.lasts = u64::MAX, "`lasts`");
        refused(&|round| round.costs[2] = u64::MAX, "costs");
        refused(&|round| round.paths.push((1, 1, 1, 1)), "to itself");
        refused(
            &|round| round.paths.push((0, 99_999, 1, 1)),
            "node is 99999",
        );
        refused(&|round| round.relays[1].threads = 0, "threads is 0");
        refused(
            &|round| round.clients[0].traffic.down = u64::MAX,
            "a stream has",
        );
        let kinds = [
            (
                FaultKind::Dies {
                    relay: 5_000,
                    silent: true,
                },
                "relay is 5000",
            ),
            (
                FaultKind::Memory {
                    node: 0,
                    percent: 101,
                },
                "101",
            ),
            (FaultKind::DeafServer { server: 77 }, "server is 77"),
            (
                FaultKind::Jump {
                    node: 0,
                    mono: u64::MAX,
                    wall: 0,
                },
                "clock",
            ),
        ];
        for (kind, word) in kinds {
            let (at, lasts) = (0, 1);
            refused(
                &|round| {
                    round.faults.push(Fault {
                        at,
                        lasts,
                        kind: kind.clone(),
                    })
                },
                word,
            );
        }
        assert!(Round::from_json("{").unwrap_err().contains("line 1"));
        let unknown = r#"{"seed": 1, "lots": 2}"#;
        assert!(Round::from_json(unknown).unwrap_err().contains("lots"));
    }
}
