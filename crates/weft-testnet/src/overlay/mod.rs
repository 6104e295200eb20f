//! A Tor network on the hosts of a testbed: each node in a network namespace, with the links of a topology
//! between them.
//!
//! A host's program follows from its name: `client…`, `entry…`, `middle…`, `exit…`, `authority` and
//! `server`. Every circuit of a client passes the entry that it has a link to, the middle relay and
//! the exit; the server is the peer of users of the traffic models (`weft-model`), and
//! `weft_load::flows::overlay` starts it.
//!
//! All nodes are run by one program, and an authority by Weft, which needs no C tor and less time.

pub mod place;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use weft_model::links::Topology;

use crate::guardian::{keep_folders, temporary_folder};
use crate::net::{Host, Options, Testbed};
use crate::network::{Node, Program};
pub use crate::nodes::Load;
use crate::nodes::torrc::params_lines;
use crate::nodes::{Client, Kind, Nodes, Relay, Settings, Spec};
use crate::stop::Stop;
use place::{Place, Role};

/// Seconds from one consensus to the next: no vote falls into a short measurement.
const INTERVAL: u32 = 300;
/// The port of the server of the users.
pub const SERVER_PORT: u16 = 8_080;

/// Who plays in the network.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Program of relays, exits and clients.
    pub program: Program,
    /// Program of the authority.
    pub weft: Program,
    /// Lines that are added to the torrc of relays and exits.
    pub relays: Vec<String>,
    /// Lines that are added to the torrc of clients.
    pub clients: Vec<String>,
    /// Parameters of the consensus, `name=value`.
    pub params: Vec<String>,
}

/// A Tor network that is up. Dropping it ends every process and removes the testbed.
#[derive(Debug)]
pub struct Overlay {
    // Declared in the order in which they end: what runs in hosts, then hosts.
    nodes: Nodes,
    server: Host,
    testbed: Testbed,
    places: Vec<Place>,
}

impl Overlay {
    /// Starts a testbed of this topology, and in it a network; waits until every client has circuits.
    ///
    /// Packets are not lost, and there are no background streams, before [`Overlay::change`].
    ///
    /// # Errors
    ///
    /// A privilege or program is missing, a host's name has no meaning here, or something does not start in
    /// `patience`.
    pub fn start(
        topology: &Topology,
        options: &Options,
        cast: &Cast,
        patience: Duration,
        stop: &Stop,
    ) -> Result<Overlay> {
        let places = place::find(topology)?;
        let testbed = Testbed::start(topology.clone().calm(), options)?;
        let server = testbed
            .host(&place::the(&places, Role::Server)?.host)?
            .clone();
        let specs = specs(&places, &testbed, cast)?;
        let settings = Settings {
            folder: temporary_folder()?,
            keep: keep_folders(),
            interval: INTERVAL,
            hs_dirs: Kind::Mixed,
            log: "notice",
            patience,
            stop: stop.clone(),
            progress: |_| {},
        };
        let mut nodes = Nodes::start(specs, settings)?;
        nodes.wait_clients(patience, stop, Client::has_circuit)?;
        Ok(Overlay {
            nodes,
            server,
            testbed,
            places,
        })
    }

    /// The testbed that it runs on.
    #[must_use]
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Gives the links of the testbed the settings of this topology, with loss and background streams.
    ///
    /// # Errors
    ///
    /// Its hosts or links are others, or the system refuses background streams.
    pub fn change(&mut self, topology: Topology) -> Result<()> {
        self.testbed.change(topology)
    }

    /// The node on this host.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn node(&self, host: &str) -> Result<&Node> {
        self.nodes.node(host)
    }

    /// Hosts of clients, in order.
    pub fn client_hosts(&self) -> impl Iterator<Item = &str> {
        let clients = self.nodes.clients().iter();
        clients.map(|client| client.node().nickname())
    }

    /// Closes the circuits of all clients, and waits until each has a new one.
    ///
    /// # Errors
    ///
    /// A client does not answer, or has no new circuit in `patience`.
    pub fn renew_circuits(&mut self, patience: Duration, stop: &Stop) -> Result<()> {
        self.nodes
            .clients()
            .iter()
            .try_for_each(Client::close_circuits)?;
        self.nodes.wait_clients(patience, stop, Client::has_circuit)
    }

    /// Build times of `count` circuits of the client on this host, built one after another. All
    /// stay open until the last is built.
    ///
    /// # Errors
    ///
    /// There is no such client, or a circuit is not built.
    pub fn build_times(&self, host: &str, count: usize) -> Result<Vec<Duration>> {
        let mut places = self.places.iter();
        let place = places.find(|place| place.host == host);
        let entry = place.and_then(|place| place.entry.as_deref());
        let entry = entry.with_context(|| format!("there is no client on {host}"))?;
        let [middle, exit] = [Role::Middle, Role::Exit].map(|role| place::the(&self.places, role));
        let path = [entry, middle?.host.as_str(), exit?.host.as_str()];
        let path = path.map(|name| self.nodes.relay(name)?.fingerprint());
        let path = path.into_iter().collect::<Result<Vec<_>>>()?;
        self.nodes.client(host)?.build_times(&path, count)
    }

    /// The SOCKS port of a client, on its host.
    #[must_use]
    pub fn socks(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, place::SOCKS_PORT))
    }

    /// Where the server of the users is to listen, as exits reach it: on the host [`Overlay::server_host`].
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        SocketAddr::from((self.server.address(), SERVER_PORT))
    }

    /// The host of the server of the users.
    #[must_use]
    pub fn server_host(&self) -> &Host {
        &self.server
    }

    /// Resources that all relays and exits together have used so far.
    ///
    /// # Errors
    ///
    /// One has ended.
    pub fn load(&self) -> Result<Load> {
        // The authority is the first.
        let relays = self.nodes.relays().iter().skip(1);
        relays.map(Relay::load).sum()
    }

    /// An error if any process has ended by itself, or packets are not carried any more.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn check(&mut self) -> Result<()> {
        self.nodes.check()?;
        self.testbed.check()
    }
}

/// The nodes of all places, on their hosts.
fn specs(places: &[Place], testbed: &Testbed, cast: &Cast) -> Result<Vec<Spec>> {
    let mut specs = Vec::new();
    for place in places {
        let host = testbed.host(&place.host)?;
        let Some((duty, mut more)) = place::duty(places, place, host.address())? else {
            continue;
        };
        let program = match place.role {
            Role::Authority => &cast.weft,
            _ => &cast.program,
        };
        more.extend(match place.role {
            Role::Authority => params_lines(&cast.params),
            Role::Client => cast.clients.clone(),
            _ => cast.relays.clone(),
        });
        specs.push(Spec {
            nickname: place.host.clone(),
            program: program.clone(),
            host: Some(host.clone()),
            duty,
            bandwidth: None,
            more,
        });
    }
    Ok(specs)
}
