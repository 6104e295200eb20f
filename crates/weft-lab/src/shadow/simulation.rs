//! The folder of one simulation of `cci`: `shadow.yaml`, and under `template` the folders of the hosts with keys and torrcs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand_chacha::ChaCha20Rng;
use weft_model::links::{NodeId, Topology};
use weft_testnet::network::Program;
use weft_testnet::nodes::torrc::{Common, Owner, params_lines};
use weft_testnet::overlay::SERVER_PORT;
use weft_testnet::overlay::place::{self, DIR_PORT, Place, Role, SOCKS_PORT};
use weft_testnet::shadow::network::{
    ALL_LINES, END, INTERVAL, Process, RELAY_LINES, RESOLV_CONF, WEFT_LINES, apart,
    create_authority, create_private, template, write,
};
use weft_testnet::shadow::{Network, PlannedUser, RECORDS};

use super::plan::Simulation;
use crate::cci::{Arm, consensus_params};

const TORRC: &str = "torrc";
/// The port of the first link's background streams; the next link has the next one.
const BACKGROUND_PORT: u16 = 5_001;
/// From the end of the traffic before a cell to the cell.
const PAUSE: Duration = Duration::from_secs(2);

/// Lines that C tor has.
const TOR_LINES: &[&str] = &["LogTimeGranularity 1", "DisableDebuggerAttachment 0"];
/// One thread, so that a simulation is the same on every machine.
const ONE_THREAD: &[&str] = &["ConnectionThreads 1"];

/// Settings that simulations of one experiment share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The `weft` that runs Weft's nodes and the users.
    pub(super) weft: PathBuf,
    pub(super) seed: u64,
    pub(super) seconds: Duration,
    pub(super) warm_up: Duration,
    pub(super) settle: Duration,
    pub(super) parallelism: u32,
}

impl Settings {
    /// When users begin who are measured.
    fn traffic_at(&self) -> Duration {
        let pause = match self.warm_up.is_zero() {
            true => Duration::ZERO,
            false => PAUSE,
        };
        self.settle + self.warm_up + pause
    }

    /// When the simulation ends.
    pub(super) fn stop_at(&self) -> Duration {
        self.traffic_at() + self.seconds + END
    }

    fn seed_of(&self, simulation: &Simulation) -> u64 {
        self.seed
            .wrapping_add(u64::from(simulation.repetition) << 32)
    }
}

/// The authority of a topology, which takes seconds to make and which all its simulations share.
#[derive(Clone, Debug)]
pub(super) struct Authority {
    /// The words of the DirAuthority line.
    line: String,
    /// Its DataDirectory in the first simulation.
    data: PathBuf,
}

/// Writes simulations into folders.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    pub(super) settings: &'a Settings,
    /// By the name of the topology.
    pub(super) authorities: BTreeMap<String, Authority>,
    pub(super) rng: ChaCha20Rng,
}

impl Writer<'_> {
    /// Writes a simulation into this new folder.
    ///
    /// # Errors
    ///
    /// The topology is no network, a program is missing, or the system refuses.
    pub(super) fn write(
        &mut self,
        folder: &Path,
        topology: &Topology,
        simulation: &Simulation,
    ) -> Result<()> {
        let places = place::find(topology)?;
        let hosts = template(folder);
        fs::create_dir_all(&hosts).with_context(|| format!("creating {}", hosts.display()))?;
        let weft = Program::weft(&self.settings.weft, None)?;
        let nodes = match simulation.arm {
            Arm::Tor => Program::tor_of_its_own()?,
            Arm::Weft | Arm::WeftPctls | Arm::WeftAuto => weft.clone(),
        };
        let common = Common {
            authority: self.authority(&hosts, topology, &places)?,
            interval: INTERVAL,
            log: "notice",
            hidden_service_dirs: Vec::new(),
        };
        let writing = Writing {
            settings: self.settings,
            hosts: &hosts,
            topology,
            places: &places,
            simulation,
            common: &common,
            weft: &weft,
            nodes: &nodes,
        };
        writing.torrcs()?;
        writing.network()?.write(folder)
    }

    /// Makes the authority's keys, or copies those of an earlier simulation. Returns its line.
    fn authority(&mut self, hosts: &Path, topology: &Topology, places: &[Place]) -> Result<String> {
        let host = &place::the(places, Role::Authority)?.host;
        let data = hosts.join(host).join("data");
        if let Some(authority) = self.authorities.get(topology.name()) {
            copy_private(&authority.data, &data)?;
            return Ok(authority.line.clone());
        }
        let dir = SocketAddr::from((address(topology, host)?, DIR_PORT));
        let line = create_authority(&data, host, dir, &mut self.rng)?;
        let authority = Authority {
            line: line.clone(),
            data,
        };
        self.authorities
            .insert(topology.name().to_owned(), authority);
        Ok(line)
    }
}

/// One simulation that is being written.
struct Writing<'a> {
    settings: &'a Settings,
    hosts: &'a Path,
    topology: &'a Topology,
    places: &'a [Place],
    simulation: &'a Simulation,
    common: &'a Common,
    weft: &'a Program,
    nodes: &'a Program,
}

impl Writing<'_> {
    /// The program of a node. The authority is Weft's always.
    fn program(&self, place: &Place) -> &Program {
        match place.role {
            Role::Authority => self.weft,
            _ => self.nodes,
        }
    }

    /// Writes the folders of all nodes.
    fn torrcs(&self) -> Result<()> {
        for place in self.places {
            if place.role == Role::Server {
                continue;
            }
            let folder = self.hosts.join(&place.host);
            create_private(&folder.join("data"))?;
            write(&folder.join(TORRC), &self.torrc(place)?)?;
            if place.role != Role::Client {
                let (name, text) = RESOLV_CONF;
                write(&folder.join(name), text)?;
            }
        }
        Ok(())
    }

    fn torrc(&self, place: &Place) -> Result<String> {
        let address = address(self.topology, &place.host)?;
        let is_weft = self.program(place).is_weft();
        let own = match is_weft {
            true => [ONE_THREAD, WEFT_LINES].concat(),
            false => TOR_LINES.to_vec(),
        };
        let relay: &[&str] = match place.role {
            Role::Client => &[],
            _ => RELAY_LINES,
        };
        let lines = [ALL_LINES, &own, relay].concat();
        let mut more: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        more.extend(match place.role {
            Role::Authority => params_lines(&consensus_params(self.simulation.congestion_control)),
            _ => self.simulation.arm.torrc(),
        });
        let owner = Owner {
            nickname: &place.host,
            // From the folder of the host, where its processes run.
            data: PathBuf::from("data"),
        };
        let node = place::duty(self.places, place, address)?;
        let (duty, path) = node.context("a server is no node")?;
        more.extend(path);
        Ok(self.common.torrc(owner, duty, is_weft, &more))
    }

    fn network(&self) -> Result<Network<'_>> {
        let hosts = self.topology.hosts().zip(0..).map(|(host, number)| {
            let name = self.topology.node_name(host.node());
            let place = self.places.iter().find(|place| place.host == name);
            let place = place.with_context(|| format!("host {name} has no role"))?;
            let mut processes = self.of_role(place, number)?;
            processes.extend(self.background(host.node())?);
            Ok((name.to_owned(), processes))
        });
        Ok(Network {
            topology: self.topology,
            processes: hosts.collect::<Result<_>>()?,
            // Before the first traffic.
            calm: self.settings.settle,
            stop_at: self.settings.stop_at(),
            seed: self.settings.seed_of(self.simulation),
            parallelism: self.settings.parallelism,
            is_alone: true,
        })
    }

    /// Processes that a host runs because of its role.
    fn of_role(&self, place: &Place, number: usize) -> Result<Vec<Process>> {
        let apart = apart(number);
        let start = match place.role {
            Role::Server => {
                let listen = self.at(&place.host, SERVER_PORT)?;
                return Ok(vec![self.flow_server(listen)?]);
            }
            Role::Authority => Duration::from_secs(1),
            Role::Entry | Role::Middle | Role::Exit => Duration::from_secs(5) + apart,
            Role::Client => self.settings.settle / 2 + apart,
        };
        let mut processes = vec![Process::node(self.program(place), Path::new(TORRC), start)];
        let mut users = self.simulation.users.iter().zip(0..);
        if let Some((user, index)) = users.find(|(user, _)| user.host == place.host) {
            processes.extend(self.user(user, index)?);
        }
        Ok(processes)
    }

    /// The user of a client, before the cell and in it.
    fn user(&self, user: &PlannedUser, index: u64) -> Result<Vec<Process>> {
        let settings = self.settings;
        let server = self.at(&place::the(self.places, Role::Server)?.host, SERVER_PORT)?;
        let socks = SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS_PORT));
        let seed = settings.seed_of(self.simulation);
        let apart = Duration::from_millis(7 * index);
        let run = |name: String, at: Duration, length: Duration, seed: u64, out: &str| {
            let args = [
                "--name".to_owned(),
                name,
                "--model".to_owned(),
                user.model.clone(),
                "--socks".to_owned(),
                socks.to_string(),
                "--server".to_owned(),
                server.to_string(),
                "--seconds".to_owned(),
                length.as_secs_f64().to_string(),
                "--seed".to_owned(),
                // Each has a generator of its own.
                seed.wrapping_mul(1_000).wrapping_add(index).to_string(),
                "--out".to_owned(),
                out.to_owned(),
            ];
            self.flow_client(at + apart, args)
        };
        let mut all = Vec::new();
        if !settings.warm_up.is_zero() {
            // Under another name, so that those that are measured do not get these circuits.
            let name = format!("{}-warm-up", user.host);
            let seed = seed.wrapping_add(1);
            all.push(run(
                name,
                settings.settle,
                settings.warm_up,
                seed,
                "warm-up.jsonl",
            )?);
        }
        let name = user.host.clone();
        all.push(run(
            name,
            settings.traffic_at(),
            settings.seconds,
            seed,
            RECORDS,
        )?);
        Ok(all)
    }

    /// The ends of background streams that are on this host.
    fn background(&self, host: NodeId) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        for (link, number) in self.topology.links().iter().zip(0..) {
            if link.background == 0 {
                continue;
            }
            let [reader, sender] = link.ends;
            let port = BACKGROUND_PORT.checked_add(number);
            let port = port.context("too many links for background streams")?;
            let listen = self.at(self.topology.node_name(sender), port)?;
            if host == sender {
                processes.push(self.flow_server(listen)?);
            }
            if host == reader {
                let begin = self.settings.settle;
                let length = self.settings.stop_at().saturating_sub(begin + END / 2);
                let args = [
                    "--name".to_owned(),
                    format!("background-{number}"),
                    "--users".to_owned(),
                    link.background.to_string(),
                    "--server".to_owned(),
                    listen.to_string(),
                    "--seconds".to_owned(),
                    length.as_secs_f64().to_string(),
                    "--out".to_owned(),
                    format!("background-{number}.jsonl"),
                ];
                processes.push(self.flow_client(begin, args)?);
            }
        }
        Ok(processes)
    }

    fn at(&self, host: &str, port: u16) -> Result<SocketAddr> {
        Ok(SocketAddr::from((address(self.topology, host)?, port)))
    }

    fn flow_server(&self, listen: SocketAddr) -> Result<Process> {
        Process::flow_server(&self.settings.weft, listen)
    }

    fn flow_client(
        &self,
        start: Duration,
        args: impl IntoIterator<Item = String>,
    ) -> Result<Process> {
        let args = ["flow-client".to_owned()].into_iter().chain(args);
        Process::lab(&self.settings.weft, args, start)
    }
}

fn address(topology: &Topology, host: &str) -> Result<Ipv4Addr> {
    let found = topology.host(host);
    Ok(found
        .with_context(|| format!("there is no host {host}"))?
        .address())
}

/// Copies a folder of keys.
fn copy_private(from: &Path, to: &Path) -> Result<()> {
    create_private(to)?;
    let reading = || format!("reading {}", from.display());
    for entry in fs::read_dir(from).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().with_context(reading)?.is_dir() {
            true => copy_private(&source, &target)?,
            false => {
                fs::copy(&source, &target)
                    .with_context(|| format!("copying {}", source.display()))?;
            }
        }
    }
    Ok(())
}
