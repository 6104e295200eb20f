//! `weft lab up`: a private network to play with, of Weft, C tor or both, until it is ended.
//!
//! Unlike the networks of [`network`](crate::network), whose clients do what an experiment asks
//! them, clients here find their own way: a browser can use their SOCKS ports. Without C tor in it,
//! a network needs nothing but the `weft` program: its authority is Weft's own
//! (`weft-authority`).
//!
//! Exits let streams go everywhere by their policies, as clients trust summaries of policies only,
//! but connect from addresses of 127.0.0.0/8, so that nothing leaves this machine. Each has a
//! separate address, so that a server knows which exit a connection came through
//! ([`exit_address`]).

mod plan;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guardian::keep_folders;
use crate::logs::unexplained;
use crate::network::{Node, Program};
pub use crate::nodes::Client;
pub use crate::nodes::Kind;
use crate::nodes::torrc::{Duty, params_lines};
use crate::nodes::{AUTHORITY, Nodes, Relay, Settings, Spec};
use crate::ports::Port;
use crate::traffic::{Direction, Request, Server, transfer};
pub use plan::{More, NODES, Plan, exit_address};
use plan::{Owner, Programs, make_folder};

/// Seconds from one consensus to the next. Relays that come are listed sooner.
const INTERVAL: u32 = 20;
/// An address that clients map to 127.0.0.1, for programs such as torsocks that send nothing for
/// 127.0.0.0/8 to a SOCKS port. It belongs to a block for documentation (RFC 5737), so it is never
/// in use.
pub const LOOPBACK: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Bytes that are fetched through each client before it counts as working.
const PROBE: u64 = 100_000;

/// A network that is up. Dropping it ends every process.
#[derive(Debug)]
pub struct Up {
    nodes: Nodes,
    /// Addresses by nickname, if the network is profiled.
    metrics: BTreeMap<String, SocketAddr>,
    /// Ports of all nodes, also of those that have ended: no other program shall be found where one
    /// was.
    _ports: Vec<Port>,
    server: Server,
    took: Duration,
    /// The last that ends.
    _owner: Option<Owner>,
}

/// Nodes of a plan, and the ports that are reserved for them.
struct Specs<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    nodes: Vec<Spec>,
    ports: Vec<Port>,
    metrics: BTreeMap<String, SocketAddr>,
}

impl Specs<'_> {
    fn port(&mut self) -> Result<SocketAddr> {
        let port = Port::reserve()?;
        let address = port.address();
        self.ports.push(port);
        Ok(address)
    }

    fn add(&mut self, nickname: String, kind: Kind, duty: Duty, more: Vec<String>) -> Result<()> {
        self.nodes.push(Spec {
            nickname,
            program: self.programs.of(kind)?.clone(),
            host: None,
            duty,
            bandwidth: None,
            more,
        });
        Ok(())
    }

    fn authority(&mut self) -> Result<()> {
        let duty = Duty::Authority {
            or: self.port()?,
            dir: self.port()?,
        };
        let (kind, more) = (self.plan.authority, params_lines(&self.plan.params));
        self.add(AUTHORITY.to_owned(), kind, duty, more)
    }

    fn relays(&mut self) -> Result<()> {
        let plan = self.plan;
        for number in 0..plan.relays {
            self.relay(format!("relay{number}"), plan.relays_run.of(number), None)?;
        }
        for number in 0..plan.exits {
            let exit = Some(exit_address(number));
            self.relay(format!("exit{number}"), plan.exits_run.of(number), exit)?;
        }
        Ok(())
    }

    fn relay(&mut self, nickname: String, kind: Kind, exit: Option<Ipv4Addr>) -> Result<()> {
        let mut more = match exit {
            Some(_) => self.plan.more.exits.clone(),
            None => self.plan.more.relays.clone(),
        };
        more.extend(self.metrics_lines(&nickname)?);
        let or = self.port()?;
        self.add(nickname, kind, Duty::Relay { or, exit }, more)
    }

    fn clients(&mut self) -> Result<()> {
        let plan = self.plan;
        for number in 0..plan.clients {
            let nickname = format!("client{number}");
            let mut more = vec![format!("MapAddress {LOOPBACK} {}", Ipv4Addr::LOCALHOST)];
            more.extend(plan.more.clients.iter().cloned());
            more.extend(self.metrics_lines(&nickname)?);
            let duty = Duty::Client {
                socks: self.port()?,
                control: self.port()?,
                multipath: false,
            };
            self.add(nickname, plan.clients_run.of(number), duty, more)?;
        }
        Ok(())
    }

    /// The lines of a MetricsPort for the node of this nickname, where the network is profiled.
    fn metrics_lines(&mut self, nickname: &str) -> Result<Vec<String>> {
        if !self.plan.profiled {
            return Ok(Vec::new());
        }
        let port = self.port()?;
        self.metrics.insert(nickname.to_owned(), port);
        Ok(vec![
            format!("MetricsPort {port}"),
            "MetricsPortPolicy accept 127.0.0.1".to_owned(),
        ])
    }
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
        (plan.progress)(&format!("private network in {}", folder.display()));
        let settings = Settings {
            keep: owner.is_some() || keep_folders(),
            folder,
            interval: INTERVAL,
            hs_dirs: plan.hs_dirs,
            log: if plan.verbose { "info" } else { "notice" },
            patience: plan.patience,
            stop: plan.stop.clone(),
            progress: plan.progress,
        };
        let mut specs = Specs {
            plan,
            programs: &programs,
            nodes: Vec::new(),
            ports: Vec::new(),
            metrics: BTreeMap::new(),
        };
        specs.authority()?;
        specs.relays()?;
        specs.clients()?;
        let Specs {
            nodes,
            ports,
            metrics,
            ..
        } = specs;
        let mut up = Up {
            server: Server::start()?,
            nodes: Nodes::start(nodes, settings)?,
            metrics,
            _ports: ports,
            took: Duration::ZERO,
            _owner: owner,
        };
        up.wait_carrying()?;
        up.took = begun.elapsed();
        Ok(up)
    }

    /// The MetricsPort of a node of a network that is profiled.
    pub fn metrics(&self, nickname: &str) -> Result<SocketAddr> {
        let port = self.metrics.get(nickname).copied();
        port.with_context(|| format!("{nickname} has no MetricsPort"))
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
        let (socks, control) = (Port::reserve()?, Port::reserve()?);
        let duty = Duty::Client {
            socks: socks.address(),
            control: control.address(),
            multipath: false,
        };
        self._ports.extend([socks, control]);
        self.nodes.add(Spec {
            nickname: nickname.to_owned(),
            program: program.clone(),
            host: None,
            duty,
            bandwidth: None,
            more: more.to_vec(),
        })?;
        let deadline = Instant::now() + patience;
        let last = self.clients().len() - 1;
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
        let client = self.clients().get(number).context("no such client")?;
        let request = Request {
            direction: Direction::Down,
            bytes: PROBE,
            seed: number as u64,
        };
        transfer(client.socks(), "lab", self.server.address(), request).map(drop)
    }

    /// Waits until a real fetch has gone through every client.
    fn wait_carrying(&mut self) -> Result<()> {
        let settings = self.nodes.settings().clone();
        for number in 0..self.clients().len() {
            settings.wait(&format!("client{number} to carry traffic"), || {
                self.check()?;
                // The port opens when the client has read its torrc.
                Ok(self.probe(number).map_err(|error| format!("{error:#}")))
            })?;
        }
        Ok(())
    }

    /// An error if any process has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.nodes.check()
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        self.nodes.clients()
    }

    /// A client by its nickname.
    pub fn client(&self, nickname: &str) -> Result<&Client> {
        self.nodes.client(nickname)
    }

    /// Any node by its nickname.
    pub fn node(&self, nickname: &str) -> Result<&Node> {
        self.nodes.node(nickname)
    }

    /// The ORPort of a relay.
    pub fn address(&self, nickname: &str) -> Result<SocketAddr> {
        Ok(self.nodes.relay(nickname)?.or())
    }

    /// Log of a node, over all its starts.
    pub(crate) fn log_of(&self, nickname: &str) -> Result<String> {
        let logs = self.node(nickname)?.logs()?;
        Ok(logs.into_iter().map(|(_, text)| text).collect())
    }

    /// Every warning in the log of a node that runs, if it is not explained by the network being private, with the node's
    /// nickname before it.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn warnings(&self) -> Result<Vec<String>> {
        let clients = self.clients().iter().map(Client::node);
        let mut warnings = Vec::new();
        for node in self.relay_nodes().chain(clients) {
            for (_, log) in node.logs()? {
                let lines = unexplained(&log, node.nickname() == AUTHORITY).into_iter();
                warnings.extend(lines.map(|line| format!("{}: {line}", node.nickname())));
            }
        }
        Ok(warnings)
    }

    /// Ends a relay (or the authority) at once, as a machine that loses power does.
    ///
    /// # Errors
    /// There is none of this nickname, or it could not be ended.
    pub fn kill(&mut self, nickname: &str) -> Result<()> {
        self.nodes.kill(nickname)
    }

    /// A `FallbackDir` line for each relay except the authority, for clients that must not ask an
    /// authority.
    pub fn fallback_dirs(&self) -> Result<Vec<String>> {
        let relays = self.nodes.relays().iter();
        let relays = relays.filter(|relay| relay.node().nickname() != AUTHORITY);
        relays
            .map(|relay| {
                let (port, identity) = (relay.or().port(), relay.fingerprint()?);
                Ok(format!(
                    "FallbackDir 127.0.0.1:{port} orport={port} id={identity}"
                ))
            })
            .collect()
    }

    /// The identity of a relay.
    ///
    /// # Errors
    /// There is none of this nickname, or it has written none.
    pub fn fingerprint(&self, nickname: &str) -> Result<String> {
        Ok(self.nodes.relay(nickname)?.fingerprint()?.to_string())
    }

    /// Nickname of every relay, authority first, and the program that runs it.
    pub fn relays(&self) -> impl Iterator<Item = (&str, &Program)> {
        let relays = self.nodes.relays().iter();
        relays.map(|relay| (relay.node().nickname(), relay.program()))
    }

    /// The processes of relays, authority first.
    pub fn relay_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.relays().iter().map(Relay::node)
    }

    /// A server outside of the network that sends and takes payloads.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where everything is: a folder for each node, with torrc, logs and data.
    pub fn folder(&self) -> &Path {
        self.nodes.folder()
    }

    /// Duration of the start.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Ends every process in good order: clients first, then relays, the authority last.
    ///
    /// # Errors
    /// A process ended badly; the others have ended all the same.
    pub fn stop(self) -> Result<()> {
        self.nodes.stop()
    }
}
