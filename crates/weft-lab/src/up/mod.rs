//! `weft lab up`: a private network to play with, of Weft, C tor or both, until somebody ends it.
//!
//! Unlike the networks of [`network`](crate::network), whose clients do what an experiment asks
//! them, clients here find their own way: a browser can use their SOCKS ports. Without C tor in it,
//! a network needs nothing but the `weft` program: its authority is Weft's own
//! (`weft-dir/src/private_authority`).
//!
//! Exits let streams go everywhere by their policies, as clients trust summaries of policies only,
//! but connect from addresses of 127.0.0.0/8, so that nothing leaves this machine; each from one of
//! its own, so that a server knows which exit a connection came through ([`exit_address`]).

pub(crate) mod http;
mod plan;
pub(crate) mod torrc;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use weft_dir::private_authority::AuthorityKeys;

use crate::control::{Control, Fingerprint};
use crate::guardian::Guardian;
use crate::network::{Node, Program, keys_by_tor_gencert, v3_identity};
use crate::ports::Port;
use crate::traffic::{Direction, Request, Server, transfer};
pub use plan::{Kind, More, Plan, exit_address};
use plan::{Programs, make_folder};
use torrc::Common;

/// Seconds from one consensus to the next. Relays that come are listed sooner.
const INTERVAL: u32 = 20;
/// Bytes that are fetched through each client before it counts as working.
const PROBE: u64 = 100_000;
/// The nickname of the authority.
const AUTHORITY: &str = "authority";

/// A relay or an authority.
#[derive(Debug)]
struct Relay {
    node: Node,
    program: Program,
    or: Port,
}

/// A client that carries traffic.
#[derive(Debug)]
pub struct Client {
    node: Node,
    socks: Port,
    control: Port,
    weft: bool,
}

impl Client {
    /// Its process.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its SOCKS port.
    pub fn socks(&self) -> SocketAddr {
        self.socks.address()
    }

    /// Its control port.
    pub fn control(&self) -> SocketAddr {
        self.control.address()
    }

    /// Whether Weft runs it.
    pub fn is_weft(&self) -> bool {
        self.weft
    }

    /// A new connection to its control port.
    pub fn controller(&self) -> Result<Control> {
        let cookie = self.node.folder().join("data/control_auth_cookie");
        Control::connect_port(self.control(), &cookie)
    }
}

/// A network that is up. Dropping it ends every process.
#[derive(Debug)]
pub struct Up {
    // Declared before the guardian: nodes end first, then it removes the folder.
    relays: Vec<Relay>,
    clients: Vec<Client>,
    guardian: Guardian,
    _ports: Vec<Port>,
    /// By nickname; of networks that are profiled.
    metrics: BTreeMap<String, Port>,
    folder: PathBuf,
    /// Ours to free at the end.
    owner: Option<PathBuf>,
    server: Server,
    common: Common,
    took: Duration,
}

impl Up {
    /// Starts a network and waits until every client has carried traffic.
    ///
    /// # Errors
    /// The plan makes no sense, something does not start, or patience ends.
    pub fn start(plan: &Plan) -> Result<Up> {
        let begun = Instant::now();
        plan.check()?;
        let programs = Programs::find(plan)?;
        let (folder, owner) = make_folder(plan.folder.as_deref())?;
        let keep = owner.is_some() || std::env::var_os("WEFT_LAB_KEEP").is_some();
        let guardian = Guardian::start(Some(&*folder).filter(|_| !keep))?;
        let mut common = Common {
            authority: String::new(),
            interval: INTERVAL,
            log: if plan.verbose { "info" } else { "notice" },
        };
        let mut up = Up {
            relays: Vec::new(),
            clients: Vec::new(),
            guardian,
            _ports: Vec::new(),
            metrics: BTreeMap::new(),
            folder,
            owner,
            server: Server::start()?,
            common: common.clone(),
            took: Duration::ZERO,
        };
        (plan.progress)(&format!("private network in {}", up.folder.display()));
        let dir = up.start_authority(plan, &programs, &mut common)?;
        up.common = common;
        up.start_relays(plan, &programs)?;
        up.wait_listed(plan, dir)?;
        up.start_clients(plan, &programs)?;
        up.wait_known(plan)?;
        up.wait_carrying(plan)?;
        up.took = begun.elapsed();
        Ok(up)
    }

    /// Makes the authority's keys and starts it; returns its DirPort.
    fn start_authority(
        &mut self,
        plan: &Plan,
        programs: &Programs,
        common: &mut Common,
    ) -> Result<SocketAddr> {
        let program = programs.of(plan.authority)?;
        (plan.progress)(&format!(
            "starting the authority, run by {}",
            program.name()
        ));
        let node = Node::create(&self.folder, AUTHORITY)?;
        let (or, dir) = (Port::reserve()?, Port::reserve()?);
        let keys = node.folder().join("data/keys");
        if program.is_weft() {
            let mut rng: StdRng = rand::make_rng();
            AuthorityKeys::create(&keys, dir.address(), SystemTime::now(), &mut rng)?;
        } else {
            keys_by_tor_gencert(&keys, dir.address())?;
        }
        // The DirAuthority line needs the fingerprint, and both programs need such a line to print it.
        common.authority = format!("none 127.0.0.1:1 {}", "F".repeat(40));
        let mut more = Vec::new();
        if !plan.params.is_empty() {
            more.push(format!("ConsensusParams {}", plan.params.join(" ")));
        }
        let text = |common: &Common| {
            let weft = program.is_weft();
            common.authority_torrc(&node, or.address(), dir.address(), weft, &more)
        };
        node.write_torrc(&text(common))?;
        let fingerprint = program.fingerprint(&node.torrc())?;
        common.authority = format!(
            "authority orport={} no-v2 v3ident={} {} {fingerprint}",
            or.number(),
            v3_identity(&keys)?,
            dir.address(),
        );
        node.write_torrc(&text(common))?;
        let address = dir.address();
        self._ports.push(dir);
        self.run(node, or, program)?;
        Ok(address)
    }

    fn run(&mut self, mut node: Node, or: Port, program: &Program) -> Result<()> {
        node.start(program, &mut self.guardian)?;
        self.relays.push(Relay {
            node,
            program: program.clone(),
            or,
        });
        Ok(())
    }

    fn start_relays(&mut self, plan: &Plan, programs: &Programs) -> Result<()> {
        (plan.progress)(&format!(
            "starting {} relays and {} exits",
            plan.relays, plan.exits
        ));
        let relays = (0..plan.relays).map(|number| ("relay", number, plan.relays_run, None));
        let exits = (0..plan.exits)
            .map(|number| ("exit", number, plan.exits_run, Some(exit_address(number))));
        for (role, number, kind, exit) in relays.chain(exits) {
            let program = programs.of(kind.of(number))?;
            let node = Node::create(&self.folder, &format!("{role}{number}"))?;
            let or = Port::reserve()?;
            let mut more = match exit {
                Some(_) => plan.more.exits.clone(),
                None => plan.more.relays.clone(),
            };
            more.extend(self.metrics_lines(plan, node.nickname())?);
            let (address, weft) = (or.address(), program.is_weft());
            let text = self.common.relay_torrc(&node, address, exit, weft, &more);
            node.write_torrc(&text)?;
            self.run(node, or, program)?;
        }
        Ok(())
    }

    /// Waits until the authority's consensus lists every relay.
    fn wait_listed(&mut self, plan: &Plan, dir: SocketAddr) -> Result<()> {
        let path = "/tor/status-vote/current/consensus-microdesc";
        wait(plan, "the authority to list every relay", || {
            self.check()?;
            let consensus = match http::get(dir, path) {
                Ok(consensus) => consensus,
                Err(error) => return Ok(Err(format!("{error:#}"))),
            };
            let listed = |nickname: &str| consensus.contains(&format!("\nr {nickname} "));
            let missing: Vec<&str> = self
                .relays
                .iter()
                .map(|relay| relay.node.nickname())
                .filter(|nickname| !listed(nickname))
                .collect();
            Ok(match missing.is_empty() {
                true => Ok(()),
                false => Err(format!("not yet: {}", missing.join(" "))),
            })
        })
    }

    /// Waits until every exit knows every relay: until then it refuses streams that come from those that
    /// it does not know (`ExitPolicy`'s RefuseUnknownExits), and a burst of streams would lose some.
    fn wait_known(&mut self, plan: &Plan) -> Result<()> {
        wait(plan, "every exit to know every relay", || {
            self.check()?;
            let nicknames: Vec<&str> = self
                .relays
                .iter()
                .map(|relay| relay.node.nickname())
                .collect();
            let late: Vec<&str> = self
                .relays
                .iter()
                .filter(|relay| relay.node.nickname().starts_with("exit"))
                .filter(|relay| !relay.node.knows(&nicknames))
                .map(|relay| relay.node.nickname())
                .collect();
            Ok(match late.is_empty() {
                true => Ok(()),
                false => Err(format!("not yet: {}", late.join(" "))),
            })
        })
    }

    fn start_clients(&mut self, plan: &Plan, programs: &Programs) -> Result<()> {
        (plan.progress)(&format!("starting {} clients", plan.clients));
        for number in 0..plan.clients {
            let program = programs.of(plan.clients_run.of(number))?;
            let nickname = format!("client{number}");
            let mut more = plan.more.clients.clone();
            more.extend(self.metrics_lines(plan, &nickname)?);
            self.start_client(&nickname, program, &more)?;
        }
        Ok(())
    }

    /// The lines of a MetricsPort for the node of this nickname, where the network is profiled.
    fn metrics_lines(&mut self, plan: &Plan, nickname: &str) -> Result<Vec<String>> {
        if !plan.profiled {
            return Ok(Vec::new());
        }
        let port = Port::reserve()?;
        let lines = vec![
            format!("MetricsPort {}", port.address()),
            "MetricsPortPolicy accept 127.0.0.1".to_owned(),
        ];
        self.metrics.insert(nickname.to_owned(), port);
        Ok(lines)
    }

    /// The MetricsPort of a node of a network that is profiled.
    pub(crate) fn metrics(&self, nickname: &str) -> Result<SocketAddr> {
        let port = self.metrics.get(nickname);
        Ok(port
            .with_context(|| format!("{nickname} has no MetricsPort"))?
            .address())
    }

    fn start_client(&mut self, nickname: &str, program: &Program, more: &[String]) -> Result<()> {
        let mut node = Node::create(&self.folder, nickname)?;
        let (socks, control) = (Port::reserve()?, Port::reserve()?);
        let (weft, addresses) = (program.is_weft(), (socks.address(), control.address()));
        let text = self
            .common
            .client_torrc(&node, addresses.0, addresses.1, weft, more);
        node.write_torrc(&text)?;
        node.start(program, &mut self.guardian)?;
        self.clients.push(Client {
            node,
            socks,
            control,
            weft,
        });
        Ok(())
    }

    /// Adds a client with nothing on its disk, with these lines in its torrc, and waits until it has
    /// carried traffic.
    pub fn add_client(
        &mut self,
        nickname: &str,
        program: &Program,
        more: &[String],
        patience: Duration,
    ) -> Result<&Client> {
        self.start_client(nickname, program, more)?;
        let deadline = Instant::now() + patience;
        let last = self.clients.len() - 1;
        while let Err(error) = self.probe(last) {
            self.check()?;
            if Instant::now() >= deadline {
                bail!(
                    "{nickname} carries nothing after {patience:?}: {error:#}\n{}",
                    self.log_of(nickname)?
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.client(nickname)
    }

    /// A small fetch through the client of this number.
    fn probe(&self, number: usize) -> Result<()> {
        let client = self.clients.get(number).context("no such client")?;
        let request = Request {
            direction: Direction::Down,
            bytes: PROBE,
            seed: number as u64,
        };
        transfer(client.socks(), "lab", self.server.address(), request).map(drop)
    }

    /// Waits until a real fetch has gone through every client.
    fn wait_carrying(&mut self, plan: &Plan) -> Result<()> {
        for number in 0..self.clients.len() {
            let what = format!("client{number} to carry traffic");
            wait(plan, &what, || {
                self.check()?;
                // The port opens when the client has read its torrc.
                Ok(self.probe(number).map_err(|error| format!("{error:#}")))
            })?;
        }
        Ok(())
    }

    /// An error if any process has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        let relays = self.relays.iter_mut().map(|relay| &mut relay.node);
        for node in relays.chain(self.clients.iter_mut().map(|client| &mut client.node)) {
            node.check()?;
        }
        Ok(())
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// A client by its nickname.
    pub fn client(&self, nickname: &str) -> Result<&Client> {
        let mut clients = self.clients.iter();
        let found = clients.find(|client| client.node.nickname() == nickname);
        found.with_context(|| format!("there is no client {nickname:?}"))
    }

    /// Any node by its nickname.
    pub fn node(&self, nickname: &str) -> Result<&Node> {
        let relays = self.relays.iter().map(|relay| &relay.node);
        let mut nodes = relays.chain(self.clients.iter().map(Client::node));
        let found = nodes.find(|node| node.nickname() == nickname);
        found.with_context(|| format!("there is no node {nickname:?}"))
    }

    /// The ORPort of a relay.
    pub(crate) fn address(&self, nickname: &str) -> Result<SocketAddr> {
        let mut relays = self.relays.iter();
        let found = relays.find(|relay| relay.node.nickname() == nickname);
        let relay = found.with_context(|| format!("there is no relay {nickname:?}"))?;
        Ok(relay.or.address())
    }

    /// What a node has logged.
    pub(crate) fn log_of(&self, nickname: &str) -> Result<String> {
        let logs = self.node(nickname)?.logs()?;
        Ok(logs.into_iter().map(|(_, text)| text).collect())
    }

    /// Ends a relay (or the authority) at once, as a machine that loses power does.
    ///
    /// # Errors
    /// There is none of this nickname, or it could not be ended.
    pub fn kill(&mut self, nickname: &str) -> Result<()> {
        let found = self
            .relays
            .iter()
            .position(|relay| relay.node.nickname() == nickname);
        let index = found.with_context(|| format!("there is no relay {nickname:?}"))?;
        let mut relay = self.relays.remove(index);
        relay.node.kill(&mut self.guardian)?;
        // Nobody else shall be found where it was.
        self._ports.push(relay.or);
        Ok(())
    }

    /// A `FallbackDir` line for each relay that is not the authority, for clients that shall ask none.
    pub fn fallback_dirs(&self) -> Result<Vec<String>> {
        let relays = self
            .relays
            .iter()
            .filter(|relay| relay.node.nickname() != AUTHORITY);
        relays
            .map(|relay| {
                let path = relay.node.folder().join("data/fingerprint");
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("reading {}", path.display()))?;
                let (_, digits) = text.split_once(' ').context("no fingerprint")?;
                let (port, identity) = (relay.or.number(), Fingerprint::parse(digits)?);
                Ok(format!(
                    "FallbackDir 127.0.0.1:{port} orport={port} id={identity}"
                ))
            })
            .collect()
    }

    /// Nickname of every relay, authority first, and the program that runs it.
    pub fn relays(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.relays
            .iter()
            .map(|relay| (relay.node.nickname(), &relay.program))
    }

    /// The processes of relays, authority first.
    pub fn relay_nodes(&self) -> impl Iterator<Item = &Node> {
        self.relays.iter().map(|relay| &relay.node)
    }

    /// A server outside of the network that sends and takes payloads.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where everything is: a folder for each node, with torrc, logs and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How long the start took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Ends every process in good order: clients first, then relays, the authority last.
    ///
    /// # Errors
    /// A process ended badly; the others have ended all the same.
    pub fn stop(mut self) -> Result<()> {
        let mut outcome = Ok(());
        let clients = self.clients.iter_mut().map(|client| &mut client.node);
        let relays = self.relays.iter_mut().rev().map(|relay| &mut relay.node);
        for node in clients.chain(relays) {
            outcome = outcome.and(node.stop(&mut self.guardian));
        }
        outcome
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            // It marks the folder as ours; the files are gone anyway.
            let _ = fs::remove_file(owner);
        }
    }
}

/// Calls `ready` until it returns `Ok`, or fails when patience ends, repeating its last reason.
fn wait(plan: &Plan, what: &str, ready: impl FnMut() -> Result<Result<(), String>>) -> Result<()> {
    crate::network::wait_for(plan.patience, &plan.stop, plan.progress, what, ready)
}
