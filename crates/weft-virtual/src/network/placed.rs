//! Networks whose hosts are in the scenario or in a topology, with relays, clients and servers on them.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;
use weft_model::hosts::{Net, PathSettings};
use weft_model::links::source::{TextError, unknown};
use weft_model::links::{LinkSettings, Rate, Topology, builtin};

use super::addresses::Addresses;
use super::draft::{Draft, RelayDraft};
use super::error::{Result, place, unusable};
use super::randomness::{Purpose, random};
use super::relays;
use crate::roles::check_roles;
use crate::scenario::{Files, HostSpec, PathSpec, RelaySpec, Scenario};
use crate::setup::{Background, Host, Server};

/// The bandwidth of a relay whose host has no rate, in bits per second.
const FAST: u64 = 1_000_000_000;

/// Hosts by their names: what a scenario's names stand for.
struct Names<'s> {
    scenario: &'s Scenario,
    /// Of a topology; of the scenario's own hosts it knows more.
    numbers: Option<BTreeMap<&'s str, u32>>,
}

impl Names<'_> {
    fn find(&self, name: &str, line: usize) -> Result<Vec<u32>> {
        let Some(numbers) = &self.numbers else {
            let found = self.scenario.hosts_named(name).into_iter();
            return Ok(found
                .filter_map(|place| u32::try_from(place).ok())
                .collect());
        };
        match numbers.get(name) {
            Some(number) => Ok(vec![*number]),
            None => {
                let problem = unknown("host", name, numbers.keys().copied());
                Err(TextError::new(&self.scenario.file, line, problem).into())
            }
        }
    }
}

/// A network of the scenario's `[[host]]`s: each is a place of its own.
pub(super) fn on_hosts(
    scenario: &Scenario,
    hosts: &[HostSpec],
    paths: &[PathSpec],
    net_seed: u64,
    seed: u64,
) -> Result<Draft> {
    let network = &scenario.network;
    let alike = PathSettings {
        delay: network.delay,
        loss: network.loss,
    };
    let mut matrix = vec![vec![alike; hosts.len()]; hosts.len()];
    for path in paths {
        let [one, other] = path.between;
        for [from, to] in [[one, other], [other, one]] {
            if let Some(settings) = matrix.get_mut(from).and_then(|row| row.get_mut(to)) {
                (settings.delay, settings.loss) = (path.delay, path.loss);
            }
        }
    }
    let mut net = Net::new(matrix, scenario.tcp, net_seed);
    for (place, host) in (0..).zip(hosts) {
        let [up, down] = [host.up, host.down].map(|rate| LinkSettings {
            rate: Some(rate),
            queue: host.queue,
            ..LinkSettings::default()
        });
        net.host(place, &up, &down);
    }
    let rates: Vec<Rate> = hosts.iter().map(|host| host.up).collect();
    let names = Names {
        scenario,
        numbers: None,
    };
    let hosts = hosts.iter().map(|host| host.name.clone()).collect();
    draft(&names, net, hosts, &rates, seed)
}

/// A network of a topology's hosts and links.
pub(super) fn on_topology(
    scenario: &Scenario,
    files: &Files,
    file: &str,
    net_seed: u64,
    seed: u64,
) -> Result<Draft> {
    let topology = match builtin::text(file) {
        Some(text) => Topology::parse(file, text)?,
        None => Topology::parse(file, files.text(&place(scenario), file)?)?,
    };
    let net = Net::of_topology(&topology, scenario.tcp, net_seed);
    let names: Vec<String> = topology
        .hosts()
        .map(|host| topology.node_name(host.node()).to_owned())
        .collect();
    let numbers = (0..)
        .zip(&names)
        .map(|(number, name)| (name.as_str(), number));
    let known = Names {
        scenario,
        numbers: Some(numbers.collect()),
    };
    let rates = fastest(&topology);
    let hosts = names.clone();
    let mut draft = draft(&known, net, hosts, &rates, seed)?;
    draft.background = background(&topology);
    Ok(draft)
}

/// The streams over links that are busy, from the second end to the first as in `weft lab net`.
fn background(topology: &Topology) -> Vec<Background> {
    let mut streams = Vec::new();
    for link in topology.links() {
        let hosts = link.ends.map(|end| {
            let host = topology.as_host(end)?;
            u32::try_from(host.index()).ok()
        });
        if let [Some(to), Some(from)] = hosts {
            let stream = Background { from, to };
            streams.extend((0..link.background).map(|_| stream));
        }
    }
    streams
}

/// The rate of the fastest link of each host.
fn fastest(topology: &Topology) -> Vec<Rate> {
    let rate = |host: weft_model::links::HostId| {
        let links = topology.links().iter();
        let own = links.filter(|link| link.ends.contains(&host.node()));
        own.flat_map(|link| &link.directions)
            .filter_map(|direction| direction.rate)
            .max()
            .or(Rate::from_bits(FAST))
    };
    topology.hosts().filter_map(rate).collect()
}

/// Draft of the nodes and servers that run on these hosts.
fn draft(
    names: &Names<'_>,
    net: Net,
    hosts: Vec<String>,
    rates: &[Rate],
    seed: u64,
) -> Result<Draft> {
    let scenario = names.scenario;
    let mut addresses = Addresses::default();
    let mut all = Vec::with_capacity(hosts.len());
    for name in hosts {
        let Some(addr) = addresses.own() else {
            let problem = "there are more hosts than /16 networks".to_owned();
            return Err(unusable(scenario, problem));
        };
        all.push(Host {
            name,
            addr: addr.into(),
        });
    }
    let mut rng = random(seed, Purpose::Places);
    let mut relays = Vec::new();
    for spec in &scenario.relays {
        for host in names.find(&spec.host, spec.line)? {
            let rate = rates.get(host as usize).copied();
            relays.push(relay(spec, host, rate, &all, relays.len(), &mut rng));
        }
    }
    let roles: Vec<_> = relays
        .iter()
        .map(|one| relays::roles(&one.listed))
        .collect();
    check_roles(&roles).map_err(|problem| unusable(scenario, problem))?;
    let mut servers = Vec::new();
    for spec in &scenario.servers {
        for name in &spec.hosts {
            let found = names.find(name, spec.line)?.into_iter();
            servers.extend(found.map(|host| Server {
                host,
                port: spec.port,
            }));
        }
    }
    let mut clients = Vec::new();
    for (place, spec) in scenario.clients.iter().enumerate() {
        for name in &spec.hosts {
            let found = names.find(name, spec.line)?.into_iter();
            clients.extend(found.map(|host| (host, place)));
        }
    }
    Ok(Draft {
        net,
        hosts: all,
        relays,
        clients,
        servers,
        background: Vec::new(),
    })
}

fn relay(
    spec: &RelaySpec,
    host: u32,
    rate: Option<Rate>,
    hosts: &[Host],
    number: usize,
    rng: &mut ChaCha12Rng,
) -> RelayDraft {
    let bandwidth = spec.bandwidth.or(rate).or(Rate::from_bits(FAST));
    let mut listed = relays::with_roles(spec.roles, bandwidth);
    listed.nickname = format!("relay{}", number + 1).into();
    listed.fingerprint = rng.random();
    if let Some(std::net::IpAddr::V4(address)) = hosts.get(host as usize).map(|host| host.addr) {
        listed.address = address;
    }
    let limit = spec.limit.map(|limit| {
        let bytes = limit.bits() / 8;
        (bytes, spec.burst.unwrap_or(bytes))
    });
    RelayDraft {
        host,
        listed,
        threads: spec.threads,
        limit,
    }
}
