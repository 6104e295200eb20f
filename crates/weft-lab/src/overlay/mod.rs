//! A Tor network on the hosts of a testbed: each node in a network namespace, with the links of a topology
//! between them.
//!
//! What runs on a host follows from its name: `client…`, `entry…`, `middle…`, `exit…`, `authority` and `server`.
//! Every circuit of a client goes through the entry that it has a link to, the middle relay and the exit; the
//! server is what users of the traffic models (`weft-traffic`) talk to.
//!
//! All nodes are run by one program, and an authority by Weft, which needs no C tor and less time.

mod node;
pub(crate) mod place;

use std::fmt::Write as _;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use weft_dir::private_authority::AuthorityKeys;
use weft_links::Topology;
use weft_traffic::{Model, Record};

use crate::flows::{self, FlowClient, FlowServer, FlowSettings, Site};
use crate::guardian::Guardian;
use crate::net::{Options, Testbed};
use crate::network::{Node, Program, v3_identity, wait_for};
use crate::stop::Stop;
use crate::up::http;
use crate::up::torrc::Common;
pub use node::Load;
use node::Member;
use place::{Place, Role};

/// Seconds from one consensus to the next: no vote falls into a short measurement.
const INTERVAL: u32 = 300;
/// The ports that nodes have, each in a namespace of its own.
pub(crate) const OR_PORT: u16 = 9_001;
pub(crate) const DIR_PORT: u16 = 9_030;
pub(crate) const SOCKS_PORT: u16 = 9_050;
pub(crate) const CONTROL_PORT: u16 = 9_051;
pub(crate) const SERVER_PORT: u16 = 8_080;

/// Who plays in the network.
#[derive(Clone, Debug)]
pub struct Cast {
    /// What runs relays, exits and clients.
    pub program: Program,
    /// What runs the authority.
    pub weft: Program,
    /// Lines that are added to the torrc of relays and exits.
    pub relays: Vec<String>,
    /// Lines that are added to the torrc of clients.
    pub clients: Vec<String>,
    /// Parameters of the consensus, `name=value`.
    pub params: Vec<String>,
}

/// A user, and the host that it is on.
#[derive(Clone, Debug)]
pub struct User {
    /// A host of a client.
    pub host: String,
    /// What its model is called in records.
    pub model_name: String,
    /// What it does.
    pub model: Model,
}

/// A Tor network that is up. Dropping it ends every process and removes the testbed.
#[derive(Debug)]
pub struct Overlay {
    // Declared in the order in which they end: what runs in hosts, then what ends it if we cannot, then hosts.
    members: Vec<Member>,
    server: FlowServer,
    _guardian: Guardian,
    testbed: Testbed,
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
        let folder = tempfile::Builder::new()
            .prefix("weft-lab-")
            .tempdir()
            .context("creating a folder for the private network")?
            .keep();
        let keep = std::env::var_os("WEFT_LAB_KEEP").is_some();
        let guardian = Guardian::start(Some(&*folder).filter(|_| !keep))?;
        let is_server = |place: &&Place| place.role == Role::Server;
        let server = places.iter().find(is_server).context("no server")?;
        let host = testbed.host(&server.host)?;
        let address = SocketAddr::from((host.address(), SERVER_PORT));
        let server = host.enter(|| FlowServer::start(address))??;
        let mut starting = Starting {
            cast,
            testbed,
            folder,
            guardian,
            members: Vec::new(),
            common: Common {
                authority: String::new(),
                interval: INTERVAL,
                log: "notice",
            },
            patience,
            stop,
        };
        starting.authority(&places)?;
        starting.relays(&places)?;
        starting.wait_listed()?;
        starting.clients(&places)?;
        let Starting {
            members,
            guardian,
            testbed,
            ..
        } = starting;
        Ok(Overlay {
            members,
            server,
            _guardian: guardian,
            testbed,
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

    /// Hosts of clients, in order.
    pub fn client_hosts(&self) -> impl Iterator<Item = &str> {
        let clients = self.members.iter();
        let clients = clients.filter(|member| member.role == Role::Client);
        clients.map(|member| member.node.nickname())
    }

    /// Closes the circuits of all clients, and waits until each has a new one.
    ///
    /// # Errors
    ///
    /// A client does not answer, or has no new circuit in `patience`.
    pub fn renew_circuits(&mut self, patience: Duration, stop: &Stop) -> Result<()> {
        for member in &self.members {
            if member.role == Role::Client {
                member.close_circuits()?;
            }
        }
        wait_for_clients(&mut self.members, patience, stop)
    }

    /// How long the client on this host takes for each of `count` circuits, one after another, all of which are
    /// open until the last is built.
    ///
    /// # Errors
    ///
    /// There is no such client, or a circuit is not built.
    pub fn build_times(&self, host: &str, count: usize) -> Result<Vec<Duration>> {
        let client = self.members.iter().find(|one| one.node.nickname() == host);
        let client = client.with_context(|| format!("there is no client on {host}"))?;
        let mut path = Vec::new();
        for role in [Role::Entry, Role::Middle, Role::Exit] {
            let mut relays = self.members.iter().filter(|one| one.role == role);
            let relay = match &client.entry {
                Some(entry) if role == Role::Entry => {
                    relays.find(|relay| relay.node.nickname() == entry)
                }
                _ => relays.next(),
            };
            path.push(relay.context("a relay is missing")?.fingerprint()?);
        }
        client.build_times(&path, count)
    }

    /// Lets these users do what their models do for so long. The records are in the order of the users.
    ///
    /// # Errors
    ///
    /// There are no users, a host is no client's, or the system refuses.
    pub fn drive(
        &self,
        users: &[User],
        duration: Duration,
        seed: u64,
        stop: &Stop,
    ) -> Result<Vec<Record>> {
        let sites = users.iter().map(|user| {
            let client = FlowClient {
                name: user.host.clone(),
                model_name: user.model_name.clone(),
                model: user.model.clone(),
                start: Duration::ZERO,
                proxy: Some(self.socks()),
                server: self.server(),
            };
            Ok(Site {
                host: Some(self.testbed.host(&user.host)?.clone()),
                clients: vec![client],
            })
        });
        let sites: Vec<Site> = sites.collect::<Result<_>>()?;
        let settings = FlowSettings {
            duration,
            seed,
            threads: 1,
        };
        flows::run_on(&sites, settings, stop)
    }

    /// The SOCKS port of a client, on its host.
    #[must_use]
    pub fn socks(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS_PORT))
    }

    /// The server of the users, as exits reach it.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.server.address()
    }

    /// What relays and exits have used so far, all together.
    ///
    /// # Errors
    ///
    /// One has ended.
    pub fn load(&self) -> Result<Load> {
        let relays = self.members.iter();
        let relays =
            relays.filter(|one| [Role::Entry, Role::Middle, Role::Exit].contains(&one.role));
        relays.map(Member::load).sum()
    }

    /// An error if any process has ended by itself, or packets are not carried any more.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn check(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.node.check()?;
        }
        self.testbed.check()
    }
}

/// A network on its way.
struct Starting<'a> {
    // Ends in this order.
    members: Vec<Member>,
    guardian: Guardian,
    testbed: Testbed,
    cast: &'a Cast,
    folder: PathBuf,
    common: Common,
    patience: Duration,
    stop: &'a Stop,
}

impl Starting<'_> {
    /// A node on this host, not running.
    fn node(&self, place: &Place) -> Result<(Node, Ipv4Addr)> {
        let host = self.testbed.host(&place.host)?;
        Ok((Node::create(&self.folder, &place.host)?, host.address()))
    }

    fn run(&mut self, place: &Place, mut node: Node, program: &Program) -> Result<()> {
        let program = program.on(self.testbed.host(&place.host)?);
        node.start(&program, &mut self.guardian)?;
        self.members.push(Member {
            role: place.role,
            entry: place.entry.clone(),
            node,
        });
        Ok(())
    }

    fn authority(&mut self, places: &[Place]) -> Result<()> {
        let is_authority = |place: &&Place| place.role == Role::Authority;
        let place = places.iter().find(is_authority).context("no authority")?;
        let (node, address) = self.node(place)?;
        let (or, dir) = (SocketAddr::from((address, OR_PORT)), directory(address));
        let keys = node.folder().join("data/keys");
        let mut rng: StdRng = rand::make_rng();
        AuthorityKeys::create(&keys, dir, SystemTime::now(), &mut rng)?;
        let mut more = Vec::new();
        if !self.cast.params.is_empty() {
            more.push(format!("ConsensusParams {}", self.cast.params.join(" ")));
        }
        let text = |common: &Common| common.authority_torrc(&node, or, dir, true, &more);
        // The DirAuthority line needs the fingerprint, and the program needs such a line to print it.
        self.common.authority = format!("none 127.0.0.1:1 {}", "F".repeat(40));
        node.write_torrc(&text(&self.common))?;
        let fingerprint = self.cast.weft.fingerprint(&node.torrc())?;
        self.common.authority = authority_line(&v3_identity(&keys)?, dir, &fingerprint.to_string());
        node.write_torrc(&text(&self.common))?;
        let weft = self.cast.weft.clone();
        self.run(place, node, &weft)
    }

    fn relays(&mut self, places: &[Place]) -> Result<()> {
        let program = self.cast.program.clone();
        for place in places {
            let is_exit = match place.role {
                Role::Entry | Role::Middle => false,
                Role::Exit => true,
                Role::Client | Role::Server | Role::Authority => continue,
            };
            let (node, address) = self.node(place)?;
            let or = SocketAddr::from((address, OR_PORT));
            let exit = is_exit.then_some(address);
            let more = &self.cast.relays;
            let text = self
                .common
                .relay_torrc(&node, or, exit, program.is_weft(), more);
            node.write_torrc(&text)?;
            self.run(place, node, &program)?;
        }
        Ok(())
    }

    /// Waits until the authority's consensus lists every relay, and every exit knows it: an exit refuses streams
    /// that come from relays which it does not know.
    fn wait_listed(&mut self) -> Result<()> {
        let members = &mut self.members;
        let names: Vec<String> = members
            .iter()
            .map(|member| member.node.nickname().to_owned())
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let authority = self.testbed.host(place::AUTHORITY)?;
        let path = "/tor/status-vote/current/consensus-microdesc";
        let what = "the authority to list every relay, and exits to know them";
        wait_for(
            self.patience,
            self.stop,
            |_| {},
            what,
            || {
                for member in &mut *members {
                    member.node.check()?;
                }
                let consensus =
                    authority.enter(|| http::get(directory(authority.address()), path))?;
                let consensus = match consensus {
                    Ok(consensus) => consensus,
                    Err(error) => return Ok(Err(format!("{error:#}"))),
                };
                let is_missing = |name: &&&str| !consensus.contains(&format!("\nr {name} "));
                let mut waiting = String::new();
                for name in names.iter().filter(is_missing) {
                    let _ = write!(waiting, "{name} is not listed; ");
                }
                for exit in members.iter().filter(|member| member.role == Role::Exit) {
                    if !exit.node.knows(&names) {
                        let _ = write!(waiting, "{} does not know all; ", exit.node.nickname());
                    }
                }
                Ok(if waiting.is_empty() {
                    Ok(())
                } else {
                    Err(waiting)
                })
            },
        )
    }

    fn clients(&mut self, places: &[Place]) -> Result<()> {
        let program = self.cast.program.clone();
        let name_of = |role: Role| place::the(places, role).map(|place| place.host.clone());
        let (middle, exit) = (name_of(Role::Middle)?, name_of(Role::Exit)?);
        for place in places.iter().filter(|place| place.role == Role::Client) {
            let (node, _) = self.node(place)?;
            let entry = place
                .entry
                .as_deref()
                .context("a client without an entry")?;
            let mut more = client_lines(entry, &middle, &exit);
            more.push(format!("ControlSocket {}", node.control_socket().display()));
            more.extend(self.cast.clients.iter().cloned());
            let [socks, control] = [SOCKS_PORT, CONTROL_PORT]
                .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            let text = self
                .common
                .client_torrc(&node, socks, control, program.is_weft(), &more);
            node.write_torrc(&text)?;
            self.run(place, node, &program)?;
        }
        wait_for_clients(&mut self.members, self.patience, self.stop)
    }
}

/// Waits until every client has a circuit that streams can use.
fn wait_for_clients(members: &mut [Member], patience: Duration, stop: &Stop) -> Result<()> {
    wait_for(
        patience,
        stop,
        |_| {},
        "every client to have a circuit",
        || {
            let mut waiting = Vec::new();
            for member in &mut *members {
                member.node.check()?;
                if member.role == Role::Client && !member.has_circuit() {
                    waiting.push(member.node.nickname().to_owned());
                }
            }
            Ok(match waiting.is_empty() {
                true => Ok(()),
                false => Err(format!("none yet: {}", waiting.join(" "))),
            })
        },
    )
}

/// The words of the `DirAuthority` line of the authority with these identities.
pub(crate) fn authority_line(v3_identity: &str, dir: SocketAddr, fingerprint: &str) -> String {
    format!("authority orport={OR_PORT} no-v2 v3ident={v3_identity} {dir} {fingerprint}")
}

/// The lines of a client's torrc by which all its circuits go through these relays.
pub(crate) fn client_lines(entry: &str, middle: &str, exit: &str) -> Vec<String> {
    vec![
        format!("EntryNodes {entry}"),
        format!("MiddleNodes {middle}"),
        format!("ExitNodes {exit}"),
        "StrictNodes 1".to_owned(),
        // A stream over two circuits would be another experiment.
        "ConfluxEnabled 0".to_owned(),
    ]
}

/// The DirPort of the authority at this address.
pub(crate) fn directory(address: Ipv4Addr) -> SocketAddr {
    SocketAddr::from((address, DIR_PORT))
}
