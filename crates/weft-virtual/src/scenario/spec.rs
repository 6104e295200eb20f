//! A parsed scenario.

use std::time::Duration;

use weft_model::hosts::tcp::Algorithm;
use weft_model::links::{Loss, QueueLimit, Rate};
use weft_model::traffic::{ModelName, Pause};

use crate::roles::Roles;
use crate::setup::{Costs, NodeOptions};

/// A network, what its users do and how its nodes are set. Lines, here and below, are those of the text, for errors.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file, as errors name it.
    pub file: String,
    /// `name`; without one, that of the file without its ending.
    pub name: String,
    /// `duration`: how long a run lasts, in virtual time.
    pub duration: Duration,
    /// `repetitions` of each arm. Default: 1.
    pub repetitions: u32,
    /// `congestion_control`: whether circuits have proposal 324's (`cc_alg=2 cc_sendme_inc=31`), or windows that are
    /// fixed (`cc_alg=0`). Default: they have it. An arm may differ.
    pub congestion_control: bool,
    /// `tcp`: what all hosts' TCP does. Default: `cubic`.
    pub tcp: Algorithm,
    /// `interval` of the series in the results. Default: 1 s.
    pub interval: Duration,
    /// `[network]`.
    pub network: NetworkSpec,
    /// `[[relay]]`.
    pub relays: Vec<RelaySpec>,
    /// `[[clients]]`.
    pub clients: Vec<Clients>,
    /// `[[servers]]`.
    pub servers: Vec<Servers>,
    /// `[[fault]]`.
    pub faults: Vec<FaultSpec>,
    /// `[costs]`. Default: nothing takes time.
    pub costs: Costs,
    /// `[[arm]]`, at least one. Default: one, named `weft`.
    pub arms: Vec<Arm>,
}

/// Hosts, and what is between them.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// Its line.
    pub line: usize,
    /// Where relays and hosts come from.
    pub kind: NetworkKind,
    /// `delay`, one way, between any two hosts that have no `[[path]]`. Default: 50 ms; with `[[host]]`s, none.
    pub delay: Duration,
    /// `loss` between them. Default: none.
    pub loss: Loss,
    /// `graph`, `countries` and `losses`: delays and losses by country, instead of the two above.
    pub places: Option<Places>,
    /// `threads`: connection threads of relays, where neither [`RelaySpec`] nor [`Arm`] has others. Default: 1.
    pub threads: u16,
    /// `buckets`: whether each relay of a synthetic network or a consensus limits itself to its bandwidth, and has
    /// a line of twice that. Default: its line has its bandwidth, and it has no limit.
    pub buckets: bool,
    /// `capacity`: kB/s of bandwidth that a relay of a synthetic network or a consensus has for each unit of its weight. Default:
    /// 1.
    pub capacity: f64,
    /// `exit_rate`: the lines of relays of a synthetic network or a consensus that have the flag Exit, which then have no limit of
    /// their own. Default: as of other relays.
    pub exit_rate: Option<Rate>,
}

/// Where relays and hosts come from.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkKind {
    /// `synthetic`: so many relays, as [`weft_sim::synth`] makes them.
    Synthetic {
        /// `relays`.
        relays: u32,
        /// `guards`: so many of them have the flag Guard. Default: the share that real networks have.
        guards: Option<u32>,
        /// `exits`: so many have the flag Exit. Default: as with guards.
        exits: Option<u32>,
    },
    /// `consensus`: relays of a document.
    Consensus {
        /// The file.
        file: String,
        /// `scale`: the part of the relays that is kept (tornettools' way). Default: 1.
        scale: f64,
    },
    /// `topology`: hosts and links of `weft lab net`.
    Topology {
        /// The file, or the name of one that is built in.
        file: String,
    },
    /// `[[host]]` and `[[path]]`.
    Hosts {
        /// The hosts, each on its own.
        hosts: Vec<HostSpec>,
        /// The paths between pairs of them.
        paths: Vec<PathSpec>,
    },
}

/// Places of hosts on a graph of countries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `graph`: the file.
    pub file: String,
    /// `countries`: each host is in one of these, every entry as likely. Default: all of the graph.
    pub countries: Vec<String>,
    /// `losses`: whether packets are lost as the graph has it. Default: yes.
    pub losses: bool,
}

/// A host of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its line.
    pub line: usize,
    /// `name`; of several (`count`), with a hyphen and a number from 1.
    pub name: String,
    /// The `name` as it is written, which stands for all that it counts.
    pub group: String,
    /// `up`. Default: 1 Gbit/s.
    pub up: Rate,
    /// `down`. Default: 1 Gbit/s.
    pub down: Rate,
    /// `queue`, of each direction. Default: 1000 packets.
    pub queue: QueueLimit,
}

/// Settings of the path between two hosts, both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Its line.
    pub line: usize,
    /// Places in the list of hosts.
    pub between: [usize; 2],
    /// `delay`, one way. Default: that of the network.
    pub delay: Duration,
    /// `loss`. Default: that of the network.
    pub loss: Loss,
}

/// A relay on a host of the file or the topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaySpec {
    /// Its line.
    pub line: usize,
    /// `host`: its name, or that of several, of which each gets a relay.
    pub host: String,
    /// `roles`. Default: `["middle"]`.
    pub roles: Roles,
    /// `threads`: connection threads. Default: those of the arm.
    pub threads: Option<u16>,
    /// `limit`: BandwidthRate. Default: none.
    pub limit: Option<Rate>,
    /// `burst`: BandwidthBurst, in bytes. Default: what the limit lets through in a second.
    pub burst: Option<u64>,
    /// `bandwidth`, by which clients choose it. Default: its host's `up`.
    pub bandwidth: Option<Rate>,
}

/// Clients that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// Their line.
    pub line: usize,
    /// `count`. Default: with `hosts`, one on each of them; else 1.
    pub count: u32,
    /// `name` of the model in results. Default: the model's own.
    pub name: String,
    /// `model`, or `streams` and `packets`.
    pub model: UserModel,
    /// `up`. Default: 10 Mbit/s; with a graph, the rate of the country. With `hosts`, the host has it.
    pub up: Option<Rate>,
    /// `down`. Default: 50 Mbit/s; with a graph, the rate of the country. With `hosts`, the host has it.
    pub down: Option<Rate>,
    /// `start`: when the first user begins. Default: at once.
    pub start: Duration,
    /// `within`: users begin within so long after it, every time as likely. Default: at once.
    pub within: Duration,
    /// `hosts`, with a topology or hosts of the file: their names. One client on each.
    pub hosts: Vec<String>,
    /// `entry`, with `hosts`: the host of the relay that is their only guard. Default: they choose.
    pub entry: Option<String>,
    /// `servers` that one client uses at most, one after another; they are drawn. Default: 10.
    pub servers: u32,
    /// `measure`: each stream gets a circuit that is built and measured for it, and used for nothing else. Default: no.
    pub measure: bool,
    /// `multipath`: whether their streams use the tunnels of arms that have `multipath`, and the sets of those that have `conflux`.
    /// Default: sets, and no tunnels.
    pub multipath: Option<bool>,
}

/// Traffic model of a user.
#[derive(Clone, Debug, PartialEq)]
pub enum UserModel {
    /// `model = "page"`.
    Named(ModelName),
    /// `model = { download = "5 MB", pause = "10 s" }`.
    Download {
        /// `download`: bytes of each stream.
        bytes: u64,
        /// `pause` from the end of one to the beginning of the next, or `["1 ms", "60 s"]`. Default: none.
        pause: Pause,
        /// `timeout`: a stream that takes longer fails. Default: none does.
        timeout: Option<Duration>,
    },
    /// `model = { streams = "FILE", packets = "FILE" }`: Markov models, as PrivCount's.
    Markov {
        /// The file of the model of streams.
        streams: String,
        /// The file of the model of packets.
        packets: String,
    },
}

/// Destinations that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Their line.
    pub line: usize,
    /// `count`. Default: with `hosts`, one on each of them; else 1.
    pub count: u32,
    /// `rate`, each way. Default: 1 Gbit/s. With `hosts`, the host has it.
    pub rate: Rate,
    /// `port`. Default: 80.
    pub port: u16,
    /// `hosts`, with a topology or hosts of the file: their names.
    pub hosts: Vec<String>,
}

/// A host that stalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSpec {
    /// Its line.
    pub line: usize,
    /// `host`: its name, or that of several, of which all stall.
    pub host: String,
    /// `at`: since the beginning of a run.
    pub at: Duration,
    /// `lasts`. Default: to the end.
    pub lasts: Option<Duration>,
}

/// One way in which nodes are set.
#[derive(Clone, Debug)]
pub struct Arm {
    /// `name`.
    pub name: String,
    /// `congestion_control`. Default: that of the scenario.
    pub congestion_control: bool,
    /// `threads` of relays that have no [`RelaySpec`] with others. Default: those of the network.
    pub threads: u16,
    /// Everything else. Default: as nodes are set without any option.
    pub options: NodeOptions,
}

impl Scenario {
    /// The hosts of the file that this name stands for: one, or all of a `count`.
    pub(crate) fn hosts_named(&self, name: &str) -> Vec<usize> {
        let NetworkKind::Hosts { hosts, .. } = &self.network.kind else {
            return Vec::new();
        };
        named(hosts, name)
    }
}

/// The places of the hosts that a name stands for.
pub(super) fn named(hosts: &[HostSpec], name: &str) -> Vec<usize> {
    let exact = hosts.iter().position(|host| host.name == name);
    match exact {
        Some(place) => vec![place],
        None => {
            let members = hosts.iter().enumerate();
            members
                .filter(|(_, host)| host.group == name)
                .map(|(place, _)| place)
                .collect()
        }
    }
}
