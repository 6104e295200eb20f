//! One job on real processes: relays, clients, users and destinations in network namespaces, the kernel's TCP, and an
//! emulator for the links ([`weft_testnet::net`]).
//!
//! The network is the one of virtual time: [`Scenario::setup`] draws hosts, users, when they begin and their servers, so
//! both testbeds have the same ones for a seed. What differs is real here:
//!
//! - An authority runs on a host of its own, and clients and relays fetch documents from it, before the users begin and
//!   every few minutes. Relays have the scenario's weights there, by a bandwidth file; clients take guards and exits from
//!   the roles, and who is not in them has the weights of a guard.
//! - When the run begins, clients have circuits: new ones, that were built over links with loss. In virtual time they
//!   have none: users should begin some seconds later (`start`).
//! - Work takes the time that it takes: `[costs]` are not used.
//! - Nodes share the processors of this machine with the emulator and the users, all of them.

pub(super) mod circuits;
pub(super) mod links;
pub(super) mod relays;
mod torrc;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use weft_load::flows::{self, FlowClient, FlowServer, FlowSettings, Site};
use weft_model::traffic::Record;
use weft_testnet::guardian::{keep_folders, temporary_folder};
use weft_testnet::net::{self, Host, Testbed};
use weft_testnet::network::Program;
use weft_testnet::nodes::torrc::{Duty, params_lines};
use weft_testnet::nodes::{AUTHORITY, Client, Nodes, Settings, Spec};
use weft_testnet::overlay::place::{self, OR_PORT, SOCKS_PORT};
use weft_testnet::stop::Stop;
use weft_testnet::up::Kind;
use weft_virtual::scenario::Arm;
use weft_virtual::{Results, Scenario, Setup};

use super::job::{Job, Measured};
use super::source::{Inputs, Source};
use crate::jobs::Meter;
use circuits::Watch;
use relays::Sampler;

/// Seconds from one consensus to the next: no vote falls into a short run.
const INTERVAL: u32 = 300;
/// Longest duration of one step of the network's start.
const PATIENCE: Duration = Duration::from_secs(180);
/// Interval at which progress is shown, and nodes are checked.
const LOOK: Duration = Duration::from_millis(100);

/// Refuses what this testbed cannot hold.
///
/// # Errors
///
/// It has too many hosts, keys that real processes do not have, or a privilege is missing.
pub(super) fn check(source: &Source) -> Result<()> {
    check_arms(source)?;
    if let Some(missing) = net::missing() {
        bail!("{missing}");
    }
    // Repetitions draw other hosts, and as many.
    let setup = source.scenario.setup(&source.files, 0, 1, 0)?;
    links::topology(source, &setup, links::NETNS).map(drop)
}

/// Refuses keys that real processes do not have.
///
/// # Errors
///
/// Which one.
pub(super) fn check_arms(source: &Source) -> Result<()> {
    let scenario = &source.scenario;
    for arm in &scenario.arms {
        if let Some(key) = torrc::only_virtual(arm) {
            bail!(
                "{}: {key} of the arm {} is for --testbed virtual: real relays and clients have no such option",
                scenario.file,
                arm.name
            );
        }
    }
    if let Some(clients) = scenario.clients.iter().find(|one| one.measure) {
        bail!(
            "{}:{}: measure is for --testbed virtual: real clients have no such option",
            scenario.file,
            clients.line
        );
    }
    if let Some(fault) = scenario.faults.first() {
        bail!(
            "{}:{}: a [[fault]] is for --testbed virtual: real hosts do not stall at a time",
            scenario.file,
            fault.line
        );
    }
    Ok(())
}

/// Runs a job to its end, or until Ctrl-C.
///
/// # Errors
///
/// The network does not start, a node ends, or the scenario is wrong in a way that shows only now.
pub(super) fn run(inputs: &Inputs<'_>, job: &Job, meter: &Meter<'_>) -> Result<Measured> {
    weft_testnet::process::raise_file_limit();
    let scenario = &inputs.source.scenario;
    let files = &inputs.source.files;
    let setup = scenario.setup(files, job.arm_number, job.repetition, inputs.seed)?;
    let arm = scenario.arms.get(job.arm_number).context("no such arm")?;
    let seed = inputs
        .seed
        .wrapping_add(u64::from(job.repetition - 1) << 32);
    let mut running =
        start(inputs, &setup, arm, seed).map_err(|error| match inputs.stop.is_requested() {
            true => anyhow!("stopped while the network of arm {} started", job.arm),
            false => error.context("the network did not start"),
        })?;
    let results = running.measure(scenario, &setup, seed, meter)?;
    Ok(Measured {
        clients: setup.clients.len(),
        results,
    })
}

/// Starts hosts, servers and nodes; clients have new circuits over the links as the scenario has them.
fn start(inputs: &Inputs<'_>, setup: &Setup, arm: &Arm, seed: u64) -> Result<Running> {
    let topology = links::topology(inputs.source, setup, links::NETNS)?;
    let options = net::Options {
        name: Some(format!("run-{}", std::process::id())),
        seed,
    };
    let mut testbed = Testbed::start(topology.clone().calm(), &options)?;
    let mut servers = Vec::new();
    for server in &setup.servers {
        let host = testbed.host(host_name(setup, server.host)?)?;
        let address = SocketAddr::from((host.address(), server.port));
        servers.push(host.enter(|| FlowServer::start(address))??);
    }
    let program = Program::weft(inputs.weft, None)?;
    let (specs, names) = specs(setup, arm, &program, |name| {
        let host = testbed.host(name)?;
        Ok((host.address(), Some(host.clone())))
    })?;
    let settings = Settings {
        folder: temporary_folder()?,
        keep: keep_folders(),
        interval: INTERVAL,
        hs_dirs: Kind::Mixed,
        log: "notice",
        patience: PATIENCE,
        stop: inputs.stop.clone(),
        progress: |_| {},
    };
    let mut nodes = Nodes::start(specs, settings)?;
    // Without circuits in advance there is nothing to wait for but the documents.
    let is_ready = match arm.options.client.disable_predicted {
        true => Client::knows_network,
        false => Client::has_circuit,
    };
    nodes.wait_clients(PATIENCE, inputs.stop, is_ready)?;
    testbed.change(topology)?;
    let watches = Watch::start(nodes.clients(), &names)?;
    nodes
        .clients()
        .iter()
        .try_for_each(Client::close_circuits)?;
    nodes.wait_clients(PATIENCE, inputs.stop, is_ready)?;
    Ok(Running {
        watches,
        nodes,
        servers,
        testbed,
        names,
    })
}

/// All nodes on their hosts, and the host of each by its nickname: hosts' names are no nicknames. `place` has the address of a host by
/// its name, and the host itself if it is one of a testbed.
pub(super) fn specs(
    setup: &Setup,
    arm: &Arm,
    program: &Program,
    place: impl Fn(&str) -> Result<(Ipv4Addr, Option<Host>)>,
) -> Result<(Vec<Spec>, BTreeMap<String, String>)> {
    let (address, host) = place(links::AUTHORITY_HOST)?;
    let mut specs = vec![Spec {
        nickname: AUTHORITY.to_owned(),
        program: program.clone(),
        host,
        duty: place::authority(address),
        bandwidth: None,
        more: params_lines(&torrc::params(arm)),
    }];
    let mut names = BTreeMap::new();
    let mut paths = torrc::Paths::default();
    for (number, relay) in setup.relays.iter().enumerate() {
        let name = host_name(setup, relay.host)?;
        let (address, host) = place(name)?;
        let nickname = relay_name(number);
        paths.add(&nickname, relay.roles);
        let mut more = torrc::of_all(arm);
        more.extend(torrc::of_relay(relay, arm));
        more.extend(relays::metrics_lines());
        specs.push(Spec {
            nickname: nickname.clone(),
            program: program.clone(),
            host,
            duty: Duty::Relay {
                or: SocketAddr::from((address, OR_PORT)),
                exit: relay.roles.exit.then_some(address),
            },
            bandwidth: Some(relay.bandwidth),
            more,
        });
        names.insert(nickname, name.to_owned());
    }
    for (number, client) in setup.clients.iter().enumerate() {
        let name = host_name(setup, client.host)?;
        let nickname = client_name(number);
        let mut more = torrc::of_all(arm);
        more.extend(torrc::of_client(arm));
        let entry = client.entry.map(|place| relay_name(place as usize));
        more.extend(paths.lines(entry.as_deref()));
        if arm.options.client.conflux == Some(true) && client.multipath != Some(false) {
            // The last line counts.
            more.push("ConfluxEnabled 1".to_owned());
        }
        specs.push(Spec {
            nickname: nickname.clone(),
            program: program.clone(),
            host: place(name)?.1,
            duty: torrc::with_tunnels(place::client(), arm, client),
            bandwidth: None,
            more,
        });
        names.insert(nickname, name.to_owned());
    }
    Ok((specs, names))
}

/// A network that is up. Dropping it ends it.
struct Running {
    // In the order in which they end.
    watches: Vec<Watch>,
    nodes: Nodes,
    servers: Vec<FlowServer>,
    testbed: Testbed,
    /// The host of each node by its nickname.
    names: BTreeMap<String, String>,
}

impl Running {
    /// Lets the users work, and measures.
    fn measure(
        &mut self,
        scenario: &Scenario,
        setup: &Setup,
        seed: u64,
        meter: &Meter<'_>,
    ) -> Result<Results> {
        let sites = self.sites(setup)?;
        let settings = FlowSettings {
            duration: scenario.duration,
            seed,
            threads: 1,
        };
        let mut sampler =
            Sampler::start(&self.nodes, &self.testbed, &self.names, scenario.interval)?;
        // Requested with the run's own end, or when a node has ended.
        let enough = Stop::default();
        let begun = Instant::now();
        let mut failure: Option<Error> = None;
        let mut streams: Vec<Record> = thread::scope(|scope| {
            let users = scope.spawn(|| flows::run_on(&sites, settings, &enough));
            while !users.is_finished() {
                thread::sleep(LOOK.min(scenario.duration / 10));
                meter.at(begun.elapsed().min(scenario.duration));
                if failure.is_none() {
                    failure = (self.nodes.check())
                        .and_then(|()| self.testbed.check())
                        .and_then(|()| sampler.sample(begun.elapsed()))
                        .err();
                }
                if failure.is_some() || meter.is_stopped() {
                    enough
                        .flag()
                        .store(true, std::sync::atomic::Ordering::SeqCst);
                }
            }
            let panicked = |_| anyhow!("a thread of users panicked");
            users.join().map_err(panicked)?
        })?;
        let elapsed = begun.elapsed().min(scenario.duration);
        if let Some(failure) = failure {
            return Err(failure);
        }
        streams.sort_by_key(|record| record.started);
        let (relays, relayed_bytes) = sampler.finish(elapsed)?;
        let watches = self.watches.drain(..);
        let circuits = watches.map(|watch| watch.finish(begun, elapsed));
        let mut circuits: Vec<_> = circuits.flatten().collect();
        circuits.sort_by_key(|circuit| circuit.began);
        Ok(Results {
            simulated: match meter.is_stopped() {
                true => elapsed,
                false => scenario.duration,
            },
            streams,
            relays,
            circuits,
            interval: scenario.interval,
            relayed_bytes,
            ..Results::default()
        })
    }

    /// The users, each on its host.
    fn sites(&self, setup: &Setup) -> Result<Vec<Site>> {
        let servers: Vec<SocketAddr> = self.servers.iter().map(FlowServer::address).collect();
        let sites = setup.clients.iter().map(|client| {
            let name = host_name(setup, client.host)?;
            let of = |place: &u32| servers.get(*place as usize).copied();
            let user = FlowClient {
                name: name.to_owned(),
                model_name: client.model_name.clone(),
                model: client.model.clone(),
                start: client.start,
                proxy: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS_PORT))),
                servers: client.servers.iter().filter_map(of).collect(),
            };
            Ok(Site {
                host: Some(self.testbed.host(name)?.clone()),
                clients: vec![user],
            })
        });
        sites.collect()
    }
}

/// The nickname of a relay, by its place in the setup.
pub(super) fn relay_name(place: usize) -> String {
    format!("relay{place}")
}

/// The nickname of a client, by its place in the setup.
pub(super) fn client_name(place: usize) -> String {
    format!("client{place}")
}

/// The name of a host of the setup.
pub(super) fn host_name(setup: &Setup, host: u32) -> Result<&str> {
    let host = setup.hosts.get(host as usize);
    Ok(&host.context("a node on a host that is not there")?.name)
}
