//! A private Tor network on loopback: C tor authorities, guards, exits and clients, and targets.
//!
//! ```no_run
//! use weft_testnet::network::{Config, Network, Program, Target};
//!
//! # fn main() -> anyhow::Result<()> {
//! let mut network = Network::start(Config::default(), vec![Target::new("target", Program::tor()?)])?;
//! println!("{} is in the consensus", network.target("target")?.fingerprint());
//! network.restart("target", Program::weft("target/release/weft".as_ref(), Some(2))?)?;
//! # Ok(())
//! # }
//! ```
//!
//! A target is run by a [`Program`], which may change from one start to the next while torrc and
//! DataDirectory stay. Its keys are made before the first start, by C tor by default,
//! as for an operator who points Weft at an existing relay.
//!
//! Starting waits, with a deadline and with progress lines, until every relay is in the consensus of
//! every authority and every client can use all of them.

mod arti;
mod authority;
mod config;
mod members;
mod node;
mod output;
mod program;
mod ready;
mod torrc;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub use config::Config;
pub use members::{Client, Proxy, Relay};
pub use node::Node;
pub use program::{PROFILER, Program};
pub use torrc::TargetOptions;

pub use authority::keys_by_tor_gencert;
pub(crate) use authority::v3_identity;
pub(crate) use ready::wait_for;

use crate::control::{Control, Fingerprint};
use crate::guardian::{Guardian, keep_folders, temporary_folder};
use crate::logs;
use crate::ports::Port;
use ready::{protocols_of, running_relays, wait, wait_accepting, wait_until_known};
use torrc::Common;

/// A relay under test, before it starts.
#[derive(Clone, Debug)]
pub struct Target {
    nickname: String,
    program: Program,
    keys_by: Option<Program>,
    options: TargetOptions,
}

impl Target {
    /// A target that `program` runs, with keys that C tor made.
    pub fn new(nickname: &str, program: Program) -> Target {
        Target {
            nickname: nickname.to_owned(),
            program,
            keys_by: None,
            options: TargetOptions::default(),
        }
    }

    /// The keys are made by this program instead.
    pub fn keys_by(mut self, program: Program) -> Target {
        self.keys_by = Some(program);
        self
    }

    /// With these options.
    pub fn options(mut self, options: TargetOptions) -> Target {
        self.options = options;
        self
    }
}

/// A running private network. Dropping it ends every process and removes every file.
#[derive(Debug)]
pub struct Network {
    // Declared before the guardian: nodes end first, then it removes the folder.
    authorities: Vec<(Relay, Port)>,
    guards: Vec<Relay>,
    exits: Vec<Relay>,
    targets: Vec<Relay>,
    clients: Vec<Client>,
    proxies: Vec<Proxy>,
    guardian: Guardian,
    folder: PathBuf,
    config: Config,
    common: Common,
    tor: Program,
}

impl Network {
    /// Starts a network with these targets in it and waits until all of it can be used.
    pub fn start(config: Config, targets: Vec<Target>) -> Result<Network> {
        let tor = Program::tor()?;
        let folder = temporary_folder()?;
        let guardian = Guardian::start(Some(&*folder).filter(|_| !keep_folders()))?;
        // A Unix socket's path has at most 107 bytes (unix(7)).
        ensure!(
            folder.as_os_str().len() < 80,
            "{} is too long for control sockets in it: set TMPDIR to something shorter",
            folder.display()
        );
        let log = if config.verbose { "info" } else { "notice" };
        let mut network = Network {
            authorities: Vec::new(),
            guards: Vec::new(),
            exits: Vec::new(),
            targets: Vec::new(),
            clients: Vec::new(),
            proxies: Vec::new(),
            guardian,
            folder,
            common: Common {
                authorities: Vec::new(),
                log,
                voting_interval: config.voting_interval,
            },
            config,
            tor,
        };
        network.report(&format!("private network in {}", network.folder.display()));
        network.create_authorities()?;
        let targets = targets
            .into_iter()
            .map(|target| network.create_target(target));
        let targets: Vec<Program> = targets.collect::<Result<_>>()?;
        network.start_relays(targets)?;
        network.wait_listed()?;
        network.start_clients()?;
        let targets = network.targets.iter();
        let targets: Vec<String> = targets
            .map(|target| target.node.nickname().into())
            .collect();
        for target in targets {
            network.wait_exit(&target)?;
        }
        Ok(network)
    }

    fn report(&self, line: &str) {
        (self.config.progress)(line);
    }

    /// Makes the authorities' keys, all at once, and from them the `DirAuthority` lines.
    fn create_authorities(&mut self) -> Result<()> {
        self.report(&format!(
            "making the keys of {} authorities",
            self.config.authorities
        ));
        let mut making = Vec::new();
        for number in 0..self.config.authorities {
            let node = Node::create(&self.folder, &format!("auth{number}"))?;
            let (or, dir) = (Port::reserve()?, Port::reserve()?);
            let keys = node.folder().join("data/keys");
            let gencert = authority::make_keys(&keys, dir.address())?;
            making.push((node, or, dir, keys, gencert));
        }
        for (node, or, dir, keys, gencert) in making {
            authority::wait_for_keys(gencert)?;
            // C tor refuses to start an authority that has no DirAuthority line, and the line needs
            // the fingerprint: any well-formed line does for now.
            let mut common = self.common.clone();
            common.authorities = vec![format!("none 127.0.0.1:1 {}", "F".repeat(40))];
            node.write_torrc(&common.authority(
                node.nickname(),
                node.folder(),
                or.address(),
                dir.address(),
            ))?;
            let fingerprint = self.tor.fingerprint(&node.torrc())?;
            self.common.authorities.push(format!(
                "{} orport={} no-v2 v3ident={} {} {fingerprint}",
                node.nickname(),
                or.number(),
                authority::v3_identity(&keys)?,
                dir.address(),
            ));
            self.authorities.push((
                Relay {
                    node,
                    or,
                    fingerprint,
                    exit: false,
                },
                dir,
            ));
        }
        for (Relay { node, or, .. }, dir) in &self.authorities {
            let text =
                self.common
                    .authority(node.nickname(), node.folder(), or.address(), dir.address());
            node.write_torrc(&text)?;
        }
        Ok(())
    }

    fn create_target(&mut self, target: Target) -> Result<Program> {
        let node = Node::create(&self.folder, &target.nickname)?;
        let or = Port::reserve()?;
        let text = self.common.target(
            &target.nickname,
            node.folder(),
            or.address(),
            &target.options,
        );
        node.write_torrc(&text)?;
        let fingerprint = target
            .keys_by
            .as_ref()
            .unwrap_or(&self.tor)
            .fingerprint(&node.torrc())?;
        self.targets.push(Relay {
            node,
            or,
            fingerprint,
            exit: target.options.exit,
        });
        Ok(target.program)
    }

    fn start_relays(&mut self, targets: Vec<Program>) -> Result<()> {
        let plain = self.config.guards + self.config.exits;
        self.report(&format!(
            "starting {} authorities, {plain} relays, {} targets",
            self.authorities.len(),
            targets.len()
        ));
        for (authority, _) in &mut self.authorities {
            authority.node.start(&self.tor, &mut self.guardian)?;
        }
        // A relay that finds none of them warns, and asks again only after a while.
        for (authority, dir) in &mut self.authorities {
            wait_accepting(&self.config, &mut authority.node, dir.address())?;
        }
        let exits = (0..self.config.exits).map(|number| (format!("exit{number}"), true));
        let guards = (0..self.config.guards).map(|number| (format!("guard{number}"), false));
        let mut started = Vec::new();
        let relay = self.config.relays.as_ref().unwrap_or(&self.tor).clone();
        for (nickname, exit) in guards.chain(exits) {
            let mut node = Node::create(&self.folder, &nickname)?;
            let or = Port::reserve()?;
            node.write_torrc(
                &self
                    .common
                    .relay(&nickname, node.folder(), or.address(), exit),
            )?;
            node.start(&relay, &mut self.guardian)?;
            started.push((node, or, exit));
        }
        for (target, program) in self.targets.iter_mut().zip(&targets) {
            target.node.start(program, &mut self.guardian)?;
        }
        for (mut node, or, exit) in started {
            let file = node.folder().join("data/fingerprint");
            let mut fingerprint = None;
            wait(
                &self.config,
                &format!("{} to make its keys", node.nickname()),
                || {
                    node.check()?;
                    let text = fs::read_to_string(&file).unwrap_or_default();
                    fingerprint = text
                        .split_once(' ')
                        .and_then(|(_, digits)| Fingerprint::parse(digits).ok());
                    Ok(fingerprint
                        .is_some()
                        .then_some(())
                        .ok_or_else(|| "no fingerprint yet".into()))
                },
            )?;
            let fingerprint = fingerprint.context("a fingerprint")?;
            let relays = if exit {
                &mut self.exits
            } else {
                &mut self.guards
            };
            relays.push(Relay {
                node,
                or,
                fingerprint,
                exit,
            });
        }
        for target in &mut self.targets {
            wait_accepting(&self.config, &mut target.node, target.or.address())?;
        }
        Ok(())
    }

    /// Waits until every authority has a consensus that lists every relay as running.
    pub(crate) fn wait_listed(&mut self) -> Result<()> {
        let wanted: Vec<(String, Fingerprint)> = self
            .relays()
            .map(|relay| (relay.node.nickname().to_owned(), relay.fingerprint.clone()))
            .collect();
        let what = format!(
            "the authorities to list all {} relays as running",
            wanted.len()
        );
        let sockets: Vec<PathBuf> = self
            .authorities
            .iter()
            .map(|(relay, _)| relay.node.control_socket())
            .collect();
        let mut controls: Vec<Option<Control>> = sockets.iter().map(|_| None).collect();
        let config = self.config.clone();
        wait(&config, &what, || {
            self.check()?;
            for (control, socket) in controls.iter_mut().zip(&sockets) {
                let connected = match control {
                    Some(connected) => connected,
                    None => match Control::connect(socket) {
                        Ok(connected) => control.insert(connected),
                        Err(error) => return Ok(Err(format!("{error:#}"))),
                    },
                };
                let listed = running_relays(&connected.info("ns/all")?);
                let missing: Vec<&str> = wanted
                    .iter()
                    .filter(|(_, fingerprint)| !listed.contains(fingerprint))
                    .map(|(nickname, _)| nickname.as_str())
                    .collect();
                if !missing.is_empty() {
                    return Ok(Err(format!("not yet: {}", missing.join(" "))));
                }
            }
            Ok(Ok(()))
        })
    }

    fn start_clients(&mut self) -> Result<()> {
        self.report(&format!("starting {} clients", self.config.clients));
        for number in 0..self.config.clients {
            let nickname = format!("client{number}");
            let mut node = Node::create(&self.folder, &nickname)?;
            let socks = Port::reserve()?;
            // Both kinds of EXTEND2 that clients send.
            let by_ed25519 = number % 2 == 1;
            let address = socks.address();
            let text = self
                .common
                .client(&nickname, node.folder(), address, by_ed25519);
            node.write_torrc(&text)?;
            node.start(&self.tor, &mut self.guardian)?;
            self.clients.push(Client { node, socks });
        }
        self.wait_known()
    }

    /// Waits until every client and every exit knows every relay that circuits go through: an exit
    /// refuses streams that come from a relay which its consensus does not list.
    pub fn wait_known(&mut self) -> Result<()> {
        let config = self.config.clone();
        let relays = [&self.guards, &self.exits, &self.targets]
            .into_iter()
            .flatten();
        let wanted: Vec<Fingerprint> = relays.map(|relay| relay.fingerprint.clone()).collect();
        for exit in &mut self.exits {
            // It has asked for a consensus too early and too often, and would now wait long before it
            // asks again; a reload makes it forget that.
            Control::connect(&exit.node.control_socket())?.command("SIGNAL RELOAD")?;
            wait_until_known(&config, &mut exit.node, &wanted, has_status)?;
        }
        for client in &mut self.clients {
            wait_until_known(&config, &mut client.node, &wanted, |control, relay| {
                // C tor answers 552 while it does not have the microdescriptor.
                control.info(&format!("md/id/{relay}")).is_ok()
                    && control
                        .info("status/enough-dir-info")
                        .is_ok_and(|enough| enough == "1")
            })?;
        }
        Ok(())
    }

    /// Waits until no relay or client has a connection to a target that was stopped. One that is busy would send circuits for
    /// the new process over a connection of the old one, and they would fail.
    fn wait_parted(&mut self, nickname: &str) -> Result<()> {
        let gone = self.target(nickname)?.fingerprint().to_string();
        let config = self.config.clone();
        let relays = self.guards.iter_mut().chain(&mut self.exits);
        let clients = self.clients.iter_mut().map(|client| &mut client.node);
        for node in relays.map(|relay| &mut relay.node).chain(clients) {
            let what = format!("{} to hear that {nickname} has ended", node.nickname());
            wait(&config, &what, || {
                node.check()?;
                let links = Control::connect(&node.control_socket())?.info("orconn-status")?;
                let mut links = links.lines();
                let is_open = |line: &str| line.contains(&gone) && line.ends_with("CONNECTED");
                Ok(match links.any(is_open) {
                    true => Err("it has a connection still".to_owned()),
                    false => Ok(()),
                })
            })?;
        }
        Ok(())
    }

    /// Waits until a target that lets streams out knows the relays from which they come, as
    /// [`Network::wait_known`] does for other exits, and its own policy: C tor refuses all streams until it has
    /// made its descriptor.
    fn wait_exit(&mut self, nickname: &str) -> Result<()> {
        let config = self.config.clone();
        let relays: Vec<String> = [&self.guards, &self.exits]
            .into_iter()
            .flatten()
            .map(|relay| relay.node.nickname().to_owned())
            .collect();
        let relays: Vec<&str> = relays.iter().map(String::as_str).collect();
        let (target, _) = self.target_and_guardian(nickname)?;
        if !target.exit {
            return Ok(());
        }
        let node = &mut target.node;
        let what = format!("{nickname} to know the network");
        wait(&config, &what, || {
            node.check()?;
            if !node.knows(&relays) {
                return Ok(Err("some relays are unknown".to_owned()));
            }
            let policy = Control::connect(&node.control_socket())
                .and_then(|mut control| control.info("exit-policy/full"));
            let rebuilding = |error: &anyhow::Error| error.to_string().contains("551");
            Ok(match policy.as_ref().is_err_and(rebuilding) {
                true => Err("it makes its descriptor".to_owned()),
                false => Ok(()),
            })
        })
    }

    /// Waits until the consensus of every client has the protocols that the target's newest descriptor
    /// lists. Until then clients ask it for what the program before it could do.
    pub fn wait_protocols(&mut self, nickname: &str) -> Result<()> {
        let fingerprint = self.target(nickname)?.fingerprint().clone();
        let mut authority = self.authority_control()?;
        let config = self.config.clone();
        let protocols = authority.info(&format!("desc/id/{fingerprint}"))?;
        let protocols = protocols
            .lines()
            .find_map(|line| line.strip_prefix("proto "));
        let protocols = protocols
            .context("a descriptor without protocols")?
            .to_owned();
        for client in &mut self.clients {
            let file = client.node.folder().join("data/cached-microdesc-consensus");
            let what = format!(
                "{} to hear of {nickname}'s protocols",
                client.node.nickname()
            );
            wait(&config, &what, || {
                client.node.check()?;
                let consensus = fs::read_to_string(&file).unwrap_or_default();
                let known = protocols_of(&consensus, nickname);
                Ok(match known == Some(&*protocols) {
                    true => Ok(()),
                    false => Err(format!("it knows {:?}", known.unwrap_or_default())),
                })
            })?;
        }
        Ok(())
    }

    /// Adds a target to the running network, starts it and waits until it accepts links and, as an exit, streams.
    pub fn add(&mut self, target: Target) -> Result<()> {
        let nickname = target.nickname.clone();
        self.report(&format!(
            "adding {nickname}, run by {}",
            target.program.name()
        ));
        let program = self.create_target(target)?;
        let config = self.config.clone();
        let (target, guardian) = self.target_and_guardian(&nickname)?;
        target.node.start(&program, guardian)?;
        wait_accepting(&config, &mut target.node, target.or.address())?;
        self.wait_exit(&nickname)
    }

    /// Stops a target (an error if it does not end well) and starts it again as `program`, with
    /// the same torrc, DataDirectory and port; waits until it accepts links and, as an exit, streams.
    pub fn restart(&mut self, nickname: &str, program: Program) -> Result<()> {
        self.report(&format!("restarting {nickname} as {}", program.name()));
        let config = self.config.clone();
        let (target, guardian) = self.target_and_guardian(nickname)?;
        target.node.stop(guardian)?;
        self.wait_parted(nickname)?;
        let (target, guardian) = self.target_and_guardian(nickname)?;
        target.node.start(&program, guardian)?;
        wait_accepting(&config, &mut target.node, target.or.address())?;
        self.wait_exit(nickname)
    }

    /// Stops a target; an error if it does not end well.
    pub fn stop(&mut self, nickname: &str) -> Result<()> {
        let (target, guardian) = self.target_and_guardian(nickname)?;
        target.node.stop(guardian)
    }

    /// Starts a client that finds its own way, with an empty DataDirectory, and returns at once: its
    /// SOCKS port opens when it opens.
    pub fn start_proxy(&mut self, nickname: &str, program: &Program) -> Result<&Proxy> {
        let mut node = Node::create(&self.folder, nickname)?;
        let socks = Port::reserve()?;
        let address = socks.address();
        let text = match program.is_arti() {
            true => arti::config(&self.directory()?, address),
            false => self.common.proxy(nickname, node.folder(), address),
        };
        node.write(program.file(), &text)?;
        node.start(program, &mut self.guardian)?;
        self.proxies.push(Proxy { node, socks });
        self.proxies.last().context("the proxy that was added")
    }

    /// The authorities, for those who read no `DirAuthority` lines.
    fn directory(&self) -> Result<Vec<arti::Known>> {
        let known = |(relay, dir): &(Relay, Port)| arti::Known::of(relay, dir.address());
        self.authorities.iter().map(known).collect()
    }

    /// Stops such a client; an error if it does not end well.
    pub fn stop_proxy(&mut self, nickname: &str) -> Result<()> {
        let found = self
            .proxies
            .iter()
            .position(|proxy| proxy.node.nickname() == nickname);
        let index = found.with_context(|| format!("there is no client {nickname:?}"))?;
        let mut proxy = self.proxies.swap_remove(index);
        proxy.node.stop(&mut self.guardian)
    }

    /// Such a client.
    pub fn proxy(&self, nickname: &str) -> Result<&Proxy> {
        let mut proxies = self.proxies.iter();
        let found = proxies.find(|proxy| proxy.node.nickname() == nickname);
        found.with_context(|| format!("there is no client {nickname:?}"))
    }

    /// A target by its nickname.
    pub fn target(&self, nickname: &str) -> Result<&Relay> {
        let target = self
            .targets
            .iter()
            .find(|target| target.node.nickname() == nickname);
        target.with_context(|| format!("there is no target {nickname:?}"))
    }

    fn target_and_guardian(&mut self, nickname: &str) -> Result<(&mut Relay, &mut Guardian)> {
        let target = self
            .targets
            .iter_mut()
            .find(|target| target.node.nickname() == nickname);
        let target = target.with_context(|| format!("there is no target {nickname:?}"))?;
        Ok((target, &mut self.guardian))
    }

    /// The relays that are meant for the first hop.
    pub fn guards(&self) -> &[Relay] {
        &self.guards
    }

    /// The relays that let streams leave.
    pub fn exits(&self) -> &[Relay] {
        &self.exits
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    fn relays(&self) -> impl Iterator<Item = &Relay> {
        let authorities = self.authorities.iter().map(|(relay, _)| relay);
        authorities
            .chain(&self.guards)
            .chain(&self.exits)
            .chain(&self.targets)
    }

    /// A new connection to the control socket of the first authority.
    pub fn authority_control(&self) -> Result<Control> {
        let (authority, _) = self
            .authorities
            .first()
            .context("the network has no authority")?;
        Control::connect(&authority.node.control_socket())
    }

    /// An error if any process has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        let authorities = self.authorities.iter_mut().map(|(relay, _)| relay);
        let relays = authorities
            .chain(&mut self.guards)
            .chain(&mut self.exits)
            .chain(&mut self.targets);
        for node in relays
            .map(|relay| &mut relay.node)
            .chain(self.clients.iter_mut().map(|client| &mut client.node))
            .chain(self.proxies.iter_mut().map(|proxy| &mut proxy.node))
        {
            node.check()?;
        }
        Ok(())
    }

    /// Every warning in any node's log that is not explained by the network being private, with the
    /// node's nickname before it.
    pub fn warnings(&self) -> Result<Vec<String>> {
        let authorities = self
            .authorities
            .iter()
            .map(|(relay, _)| (relay.node(), true));
        let relays = [&self.guards, &self.exits, &self.targets]
            .into_iter()
            .flatten()
            .map(Relay::node);
        let others = relays
            .chain(self.clients.iter().map(Client::node))
            .chain(self.proxies.iter().map(Proxy::node))
            .map(|node| (node, false));
        let mut warnings = Vec::new();
        for (node, authority) in authorities.chain(others) {
            for (_, log) in node.logs()? {
                let lines = logs::unexplained(&log, authority).into_iter();
                warnings.extend(lines.map(|line| format!("{}: {line}", node.nickname())));
            }
        }
        Ok(warnings)
    }

    /// The folder of the network, gone when this is dropped, unless `WEFT_LAB_KEEP` is set in the
    /// environment, for those who want to read logs afterwards.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
/// True if the node's consensus lists the relay.
fn has_status(control: &mut Control, relay: &Fingerprint) -> bool {
    // 552 for an unknown relay, but nothing at all without a consensus.
    let status = control.info(&format!("ns/id/{relay}"));
    status.is_ok_and(|status| !status.is_empty())
}
