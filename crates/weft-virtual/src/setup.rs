//! Setup of a run: hosts, the nodes and servers on them, and the relays as clients know them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_netdir::NetDir;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_client::{ClientConfig, PathParams};
pub use weft_client::{MultipathEntry, MultipathOptions};
use weft_core::controller::Sharing;
use weft_core::limits::dos::DosParams;
use weft_model::hosts::Net;
use weft_model::traffic::Model;
use weft_path::{BuildTimesOptions, PathOptions};
use weft_policy::ExitPolicy;

use crate::roles::Roles;

/// A network before it runs.
#[derive(Debug)]
pub struct Setup {
    /// Hosts with their lines, and what is between them.
    pub net: Net,
    /// Hosts in the order of their [`weft_model::hosts::HostId`]s.
    pub hosts: Vec<Host>,
    /// Relays, one on a host at most.
    pub relays: Vec<Relay>,
    /// Clients, one on a host at most.
    pub clients: Vec<Client>,
    /// Destinations.
    pub servers: Vec<Server>,
    /// TCP streams of nobody's that fill links from the beginning on.
    pub background: Vec<Background>,
    /// Hosts that stall.
    pub faults: Vec<Fault>,
    /// Consensus and parameters that clients and relays know.
    pub directory: Directory,
    /// Options that all nodes share.
    pub options: NodeOptions,
    /// Costs of work for relays' processors.
    pub costs: Costs,
    /// The length of an interval of [`RelayResults`](crate::results::RelayResults).
    pub interval: Duration,
    /// Seed of all randomness of nodes and users.
    pub seed: u64,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    /// For results.
    pub name: String,
    /// No two hosts have the same.
    pub addr: IpAddr,
}

/// A relay.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The place in [`Setup::hosts`].
    pub host: u32,
    /// Its ORPort, at the host's address.
    pub or_port: u16,
    /// Its RSA identity digest.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity.
    pub ed25519: Ed25519Identity,
    /// The secret of its ntor onion key.
    pub onion_key: [u8; 32],
    /// Connection threads, 1 at least.
    pub threads: u16,
    /// Its own limit (BandwidthRate and BandwidthBurst), in bytes each second and at once.
    pub limit: Option<(u64, u64)>,
    /// Positions in paths for which clients choose it.
    pub roles: Roles,
    /// Its weight in the consensus, kilobytes per second.
    pub bandwidth: u64,
    /// Where streams may leave.
    pub policy: ExitPolicy,
    /// It is the adversary's.
    pub adversary: bool,
}

/// A client and its user.
#[derive(Clone, Debug)]
pub struct Client {
    /// The place in [`Setup::hosts`].
    pub host: u32,
    /// Name of the traffic model in results.
    pub model_name: String,
    /// Traffic model of its user.
    pub model: Model,
    /// When the user begins.
    pub start: Duration,
    /// The servers that its streams go to, one after another: places in [`Setup::servers`].
    pub servers: Vec<u32>,
    /// Its only guard, as EntryNodes would have it: a place in [`Setup::relays`].
    pub entry: Option<u32>,
    /// Each of its streams gets a circuit that is built and measured for it.
    pub measures: bool,
    /// True if its streams use several circuits, where the options allow it. `None`: conflux sets,
    /// and no tunnels.
    pub multipath: Option<bool>,
    /// Its circuits have one hop, their exit: it is hostile.
    pub one_hop: bool,
}

impl Client {
    /// The identity of its only guard, of these relays.
    pub(crate) fn entry_of(&self, relays: &[Relay]) -> Option<RsaIdentity> {
        let relay = relays.get(self.entry? as usize)?;
        Some(relay.rsa)
    }
}

/// A host that stalls: from then on what it sends and what is sent to it is lost, and no end of a connection hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place in [`Setup::hosts`].
    pub host: u32,
    /// When, since the beginning.
    pub at: Duration,
    /// For how long; `None`: to the end.
    pub lasts: Option<Duration>,
}

/// A TCP stream that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// The host that sends: a place in [`Setup::hosts`].
    pub from: u32,
    /// The one that reads.
    pub to: u32,
}

/// A destination that answers as `weft-model`'s server does.
#[derive(Clone, Debug)]
pub struct Server {
    /// The place in [`Setup::hosts`].
    pub host: u32,
    /// Its port.
    pub port: u16,
}

/// The network's consensus, and parameters taken from it.
#[derive(Clone, Debug)]
pub struct Directory {
    /// The consensus with its microdescriptors.
    pub netdir: Arc<NetDir>,
    /// Consensus parameters of path selection.
    pub params: PathParams,
    /// The time of day at the beginning, at which the consensus is valid.
    pub epoch: SystemTime,
}

/// Options of all nodes, in which arms of an experiment may differ.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// `ConnectionPerCircuit`.
    pub sharing: Sharing,
    /// `KISTSchedRunInterval`.
    pub run_interval: Duration,
    /// `KISTSockBufSizeFactor`.
    pub sock_buf_size_factor: f64,
    /// Defences against floods.
    pub dos: DosParams,
    /// Options of torrc about circuits and streams.
    pub client: ClientConfig,
    /// And about paths.
    pub paths: PathOptions,
    /// And about which circuits are used.
    pub times: BuildTimesOptions,
    /// Relays let tunnels of mTor end at them, and clients use them whose [`Client::multipath`] has it.
    pub multipath: bool,
    /// Exits refuse streams that come from relays that they do not know (`RefuseUnknownExits`).
    pub refuse_unknown: bool,
    /// The share of the relays that are an adversary's, from 0 to 1.
    pub adversary: f64,
    /// The adversary's relays lie about their bandwidth: to circuits that ask they state that they have some left, always
    /// (docs/extensions/abra.md). Otherwise they only watch.
    pub lies: bool,
    /// In the first so long clients also build circuits for nothing but to learn how long building and round trips take: a run
    /// is too short for the hundred circuits that estimates need. Then streams get new circuits, as after NEWNYM.
    pub learning: Duration,
    /// So many choices of circuits by weight are recorded at most, each client's first ones after `learning`.
    pub pools: u32,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions {
            sharing: Sharing::All,
            run_interval: Duration::from_millis(10),
            sock_buf_size_factor: 1.0,
            dos: DosParams::default(),
            client: ClientConfig {
                // A stream over two circuits is another experiment.
                conflux: Some(false),
                check_statements: false,
                ..ClientConfig::default()
            },
            paths: PathOptions::default(),
            times: BuildTimesOptions::default(),
            multipath: false,
            refuse_unknown: true,
            adversary: 0.0,
            lies: false,
            learning: Duration::ZERO,
            pools: 0,
        }
    }
}

/// Costs of work for a relay's processors, in nanoseconds. All zero: nothing takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A turn of a connection thread.
    pub turn: u64,
    /// A cell that a connection thread takes from a link or a stream, and again one that it gives to a link.
    pub cell: u64,
    /// An onionskin, on one of as many workers as there are connection threads.
    pub onionskin: u64,
}

impl Setup {
    /// The address of a relay's ORPort.
    #[must_use]
    pub fn or_addr(&self, relay: &Relay) -> Option<SocketAddr> {
        let host = self.hosts.get(relay.host as usize)?;
        Some(SocketAddr::new(host.addr, relay.or_port))
    }
}
