//! The nodes of a private network, and how they start: the authority, relays and exits, and clients that find their
//! own way by its consensus.
//!
//! [`Nodes::start`] takes a [`Spec`] for each. The authority is first; clients start when the
//! consensus lists every relay, and all is up when every exit knows every relay. The caller decides
//! when a client counts as working, and waits for it: [`up`](crate::up) puts all nodes on loopback
//! and fetches through each client, [`overlay`](crate::overlay) puts each on a host of a testbed
//! and waits for circuits. [`shadow`](crate::shadow) writes torrcs and starts nothing.

mod http;
mod kind;
mod member;
pub mod torrc;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use weft_authority::AuthorityKeys;

use crate::guardian::Guardian;
use crate::net::Host;
use crate::network::{Node, Program, keys_by_tor_gencert, v3_identity, wait_for};
use crate::stop::Stop;
pub use kind::Kind;
pub use member::{Client, Load};
pub use member::{Relay, close_circuits};
use torrc::{Common, Duty, authority_line};

/// The nickname of the authority.
pub const AUTHORITY: &str = "authority";
/// Where an authority has the consensus that clients and relays use.
const CONSENSUS: &str = "/tor/status-vote/current/consensus-microdesc";

/// A node that is to be started.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The nickname, unique in the network.
    pub nickname: String,
    /// The program that runs it.
    pub program: Program,
    /// Where; none: on this machine as it is.
    pub host: Option<Host>,
    /// Its function and its addresses.
    pub duty: Duty,
    /// Bandwidth in kilobytes per second that the authority lists for a relay present from the
    /// beginning. `None`: the value in its descriptor, which is next to nothing in a new network.
    pub bandwidth: Option<u64>,
    /// Lines that are added to its torrc.
    pub more: Vec<String>,
}

/// Settings for starting nodes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder that has one for each node.
    pub folder: PathBuf,
    /// It stays when the nodes have ended.
    pub keep: bool,
    /// Seconds from one consensus to the next. Relays that come are listed sooner.
    pub interval: u32,
    /// Program whose relays C tor's authority lists as HSDir.
    pub hs_dirs: Kind,
    /// The lowest severity that is logged.
    pub log: &'static str,
    /// Longest time of one wait.
    pub patience: Duration,
    /// The request to give up while waiting.
    pub stop: Stop,
    /// Where the lines about progress go.
    pub progress: fn(&str),
}

impl Settings {
    /// Calls `ready` until it returns `Ok`, or fails when patience ends, repeating its last reason.
    pub(crate) fn wait(
        &self,
        what: &str,
        ready: impl FnMut() -> Result<Result<(), String>>,
    ) -> Result<()> {
        wait_for(self.patience, &self.stop, self.progress, what, ready)
    }
}

/// Nodes that run. Dropping it ends them.
#[derive(Debug)]
pub struct Nodes {
    // Declared before the guardian: nodes end first, then it removes the folder.
    /// The authority first.
    relays: Vec<Relay>,
    clients: Vec<Client>,
    guardian: Guardian,
    common: Common,
    settings: Settings,
}

impl Nodes {
    /// Starts the nodes; one of them is the authority.
    ///
    /// # Errors
    ///
    /// Something does not start, or patience ends.
    pub fn start(specs: Vec<Spec>, settings: Settings) -> Result<Nodes> {
        let guardian = Guardian::start(Some(&*settings.folder).filter(|_| !settings.keep))?;
        let mut nodes = Nodes {
            relays: Vec::new(),
            clients: Vec::new(),
            guardian,
            common: Common {
                authority: String::new(),
                interval: settings.interval,
                log: settings.log,
                hidden_service_dirs: specs
                    .iter()
                    .filter(|spec| {
                        !matches!(spec.duty, Duty::Client { .. })
                            && settings.hs_dirs.includes(spec.program.is_weft())
                    })
                    .map(|spec| spec.nickname.clone())
                    .collect(),
            },
            settings,
        };
        let (mut authorities, mut relays, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for spec in specs {
            match spec.duty {
                Duty::Authority { or, dir } => authorities.push((spec, or, dir)),
                Duty::Relay { .. } => relays.push(spec),
                Duty::Client { .. } => clients.push(spec),
            }
        }
        let (mut authority, or, dir) = authorities.pop().context("a network without authority")?;
        let (host, program) = (authority.host.clone(), authority.program.name().to_owned());
        nodes.report(&format!("starting the authority, run by {program}"));
        let node = nodes.create_authority(&authority, or, dir)?;
        let measured = nodes.write_bandwidths(&node, &relays)?;
        authority.more.extend(measured);
        nodes.run(node, authority)?;
        let exits = relays.iter().filter(|relay| is_exit(relay.duty)).count();
        let others = relays.len() - exits;
        nodes.report(&format!("starting {others} relays and {exits} exits"));
        for relay in relays {
            nodes.add(relay)?;
        }
        nodes.wait_listed(host.as_ref(), dir)?;
        nodes.report(&format!("starting {} clients", clients.len()));
        for client in clients {
            nodes.add(client)?;
        }
        nodes.wait_known()?;
        Ok(nodes)
    }

    fn report(&self, line: &str) {
        (self.settings.progress)(line);
    }

    /// Makes the authority's keys, and from them the `DirAuthority` line of all torrcs.
    fn create_authority(&mut self, spec: &Spec, or: SocketAddr, dir: SocketAddr) -> Result<Node> {
        let node = Node::create(&self.settings.folder, &spec.nickname)?;
        let keys = node.folder().join("data/keys");
        if spec.program.is_weft() {
            let mut rng: StdRng = rand::make_rng();
            AuthorityKeys::create(&keys, dir, SystemTime::now(), &mut rng)?;
        } else {
            keys_by_tor_gencert(&keys, dir)?;
        }
        // The line needs the fingerprint, and both programs need such a line to print it.
        self.common.authority = format!("none 127.0.0.1:1 {}", "F".repeat(40));
        self.write_torrc(&node, spec)?;
        let fingerprint = spec.program.fingerprint(&node.torrc())?;
        self.common.authority = authority_line(
            or.port(),
            &v3_identity(&keys)?,
            dir,
            &fingerprint.to_string(),
        );
        Ok(node)
    }

    /// Writes a bandwidth file (bandwidth-file-spec 2) for the authority, and returns the line of its torrc, if relays are to
    /// have bandwidths. Makes the keys of these relays.
    fn write_bandwidths(&self, authority: &Node, relays: &[Spec]) -> Result<Option<String>> {
        let mut lines = String::new();
        for spec in relays {
            let Some(bandwidth) = spec.bandwidth else {
                continue;
            };
            let node = Node::create(&self.settings.folder, &spec.nickname)?;
            self.write_torrc(&node, spec)?;
            let fingerprint = spec.program.fingerprint(&node.torrc())?;
            lines += &format!("node_id=${fingerprint} bw={bandwidth}\n");
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let file = authority.folder().join("bandwidths");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let text = format!("{}\n{lines}", now.unwrap_or_default().as_secs());
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(Some(format!("V3BandwidthsFile {}", file.display())))
    }

    /// Starts one more node, and does not wait for it.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub(crate) fn add(&mut self, spec: Spec) -> Result<()> {
        let node = Node::create(&self.settings.folder, &spec.nickname)?;
        self.run(node, spec)
    }

    fn write_torrc(&self, node: &Node, spec: &Spec) -> Result<()> {
        let is_weft = spec.program.is_weft();
        node.write_torrc(&self.common.torrc(node, spec.duty, is_weft, &spec.more))
    }

    fn run(&mut self, mut node: Node, spec: Spec) -> Result<()> {
        self.write_torrc(&node, &spec)?;
        let Spec {
            program,
            host,
            duty,
            ..
        } = spec;
        match &host {
            Some(host) => node.start(&program.on(host), &mut self.guardian)?,
            None => node.start(&program, &mut self.guardian)?,
        }
        match duty {
            Duty::Authority { or, .. } | Duty::Relay { or, .. } => self.relays.push(Relay {
                node,
                program,
                or,
                is_exit: is_exit(duty),
            }),
            Duty::Client { socks, control, .. } => self.clients.push(Client {
                node,
                host,
                socks,
                control,
                is_weft: program.is_weft(),
            }),
        }
        Ok(())
    }

    /// Waits until the authority's consensus lists every relay.
    fn wait_listed(&mut self, authority: Option<&Host>, dir: SocketAddr) -> Result<()> {
        let settings = self.settings.clone();
        settings.wait("the authority to list every relay", || {
            self.check()?;
            let get = || http::get(dir, CONSENSUS);
            let consensus = match authority {
                Some(host) => host.enter(get)?,
                None => get(),
            };
            let consensus = match consensus {
                Ok(consensus) => consensus,
                Err(error) => return Ok(Err(format!("{error:#}"))),
            };
            let listed = |name: &str| consensus.contains(&format!("\nr {name} "));
            let names = self.relays.iter().map(|relay| relay.node.nickname());
            Ok(none_of(names.filter(|name| !listed(name))))
        })
    }

    /// Waits until every exit knows every relay: until then it refuses streams that come from those that
    /// it does not know (`ExitPolicy`'s RefuseUnknownExits), and a burst of streams would lose some.
    fn wait_known(&mut self) -> Result<()> {
        let settings = self.settings.clone();
        settings.wait("every exit to know every relay", || {
            self.check()?;
            let names = self.relays.iter().map(|relay| relay.node.nickname());
            let names: Vec<&str> = names.collect();
            let exits = self.relays.iter().filter(|relay| relay.is_exit);
            let late = exits.filter(|exit| !exit.node.knows(&names));
            Ok(none_of(late.map(|exit| exit.node.nickname())))
        })
    }

    /// Waits until every client is ready.
    ///
    /// # Errors
    ///
    /// Patience ends, or a node has ended.
    pub fn wait_clients(
        &mut self,
        patience: Duration,
        stop: &Stop,
        is_ready: fn(&Client) -> bool,
    ) -> Result<()> {
        let settings = Settings {
            patience,
            stop: stop.clone(),
            ..self.settings.clone()
        };
        settings.wait("every client to be ready for streams", || {
            self.check()?;
            let waiting = self.clients.iter().filter(|client| !is_ready(client));
            Ok(none_of(waiting.map(|client| client.node.nickname())))
        })
    }

    /// An error, with the end of its log, if any node has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        let relays = self.relays.iter_mut().map(|relay| &mut relay.node);
        let clients = self.clients.iter_mut().map(|client| &mut client.node);
        for node in relays.chain(clients) {
            node.check()?;
        }
        Ok(())
    }

    /// Ends a relay, or the authority, at once, as a machine that loses power does.
    ///
    /// # Errors
    ///
    /// There is none of this nickname, or it could not be ended.
    pub(crate) fn kill(&mut self, nickname: &str) -> Result<()> {
        let mut all = self.relays.iter();
        let found = all.position(|relay| relay.node.nickname() == nickname);
        let index = found.with_context(|| format!("there is no relay {nickname:?}"))?;
        let mut relay = self.relays.remove(index);
        relay.node.kill(&mut self.guardian)
    }

    /// Ends every node in good order: clients first, then relays, the authority last.
    ///
    /// # Errors
    ///
    /// A node ended badly; the others have ended all the same.
    pub(crate) fn stop(mut self) -> Result<()> {
        let mut outcome = Ok(());
        let clients = self.clients.iter_mut().map(|client| &mut client.node);
        let relays = self.relays.iter_mut().rev().map(|relay| &mut relay.node);
        for node in clients.chain(relays) {
            outcome = outcome.and(node.stop(&mut self.guardian));
        }
        outcome
    }

    /// Settings with which they were started.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Relays and exits, the authority before them.
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// A relay, an exit or the authority by its nickname.
    pub(crate) fn relay(&self, nickname: &str) -> Result<&Relay> {
        let mut relays = self.relays.iter();
        let found = relays.find(|relay| relay.node.nickname() == nickname);
        found.with_context(|| format!("there is no relay {nickname:?}"))
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// A client by its nickname.
    pub(crate) fn client(&self, nickname: &str) -> Result<&Client> {
        let mut clients = self.clients.iter();
        let found = clients.find(|client| client.node.nickname() == nickname);
        found.with_context(|| format!("there is no client {nickname:?}"))
    }

    /// Any node by its nickname.
    pub(crate) fn node(&self, nickname: &str) -> Result<&Node> {
        let relays = self.relays.iter().map(|relay| &relay.node);
        let mut nodes = relays.chain(self.clients.iter().map(|client| &client.node));
        let found = nodes.find(|node| node.nickname() == nickname);
        found.with_context(|| format!("there is no node {nickname:?}"))
    }

    /// Where everything is: a folder for each node, with torrc, logs and data.
    pub(crate) fn folder(&self) -> &Path {
        &self.settings.folder
    }
}

/// `Ok` if there is none, or which there are.
fn none_of<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), String> {
    let names: Vec<&str> = names.collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(format!("not yet: {}", names.join(" "))),
    }
}

fn is_exit(duty: Duty) -> bool {
    matches!(duty, Duty::Relay { exit: Some(_), .. })
}
