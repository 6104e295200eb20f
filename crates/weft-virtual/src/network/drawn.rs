//! Networks whose relays come from a synthetic network or a consensus: a host for each relay, server and client, with its
//! access line.

use std::net::{IpAddr, Ipv4Addr};

use weft_model::hosts::Net;
use weft_model::links::{LinkSettings, Rate};
use weft_sim::network::Relay as Listed;

use super::addresses::Addresses;
use super::draft::{Draft, RelayDraft};
use super::error::{Result, place, unusable};
use super::geography::Geography;
use super::relays;
use crate::roles::check_roles;
use crate::scenario::{Files, NetworkKind, Scenario};
use crate::setup::{Host, Server};

/// A client's line where the scenario has no rates: bits per second, up and down.
const CLIENT: [u64; 2] = [10_000_000, 50_000_000];

/// Hosts so far.
struct Hosts<'s> {
    scenario: &'s Scenario,
    geography: Geography,
    addresses: Addresses,
    hosts: Vec<Host>,
    /// The place and the line of each.
    lines: Vec<(u32, [LinkSettings; 2])>,
}

/// The relays of a scenario whose network has them.
fn listed(scenario: &Scenario, files: &Files, seed: u64) -> Result<Vec<Listed>> {
    match &scenario.network.kind {
        NetworkKind::Synthetic {
            relays,
            guards,
            exits,
        } => relays::synthetic(*relays, *guards, *exits, seed)
            .map_err(|problem| unusable(scenario, problem)),
        NetworkKind::Consensus { file, scale } => {
            let text = files.content(&place(scenario), file)?;
            Ok(relays::of_consensus(text, file, *scale)?)
        }
        NetworkKind::Hosts { .. } | NetworkKind::Topology { .. } => Ok(Vec::new()),
    }
}

/// Makes the hosts: first of relays, then of servers, then of clients.
pub(super) fn draft(scenario: &Scenario, files: &Files, net_seed: u64, seed: u64) -> Result<Draft> {
    let listed = listed(scenario, files, seed)?;
    let roles: Vec<_> = listed.iter().map(relays::roles).collect();
    check_roles(&roles).map_err(|problem| unusable(scenario, problem))?;
    let mut hosts = Hosts {
        scenario,
        geography: Geography::new(scenario, files, seed)?,
        addresses: Addresses::default(),
        hosts: Vec::new(),
        lines: Vec::new(),
    };
    let mut relays = Vec::with_capacity(listed.len());
    for (number, listed) in listed.into_iter().enumerate() {
        relays.push(hosts.relay(number + 1, listed)?);
    }
    let mut servers = Vec::new();
    for spec in &scenario.servers {
        for _ in 0..spec.count {
            let name = format!("server-{}", servers.len() + 1);
            let address = hosts.addresses.crowded();
            let host = hosts.add(name, address, |_| [Some(spec.rate); 2])?;
            servers.push(Server {
                host,
                port: spec.port,
            });
        }
    }
    let mut clients = Vec::new();
    let [up, down] = CLIENT.map(Rate::from_bits);
    for (place, spec) in scenario.clients.iter().enumerate() {
        for _ in 0..spec.count {
            let name = format!("client-{}", clients.len() + 1);
            let address = hosts.addresses.crowded();
            let host = hosts.add(name, address, |there| {
                let [there_up, there_down] = match there {
                    Some(rates) => rates.map(Some),
                    None => [up, down],
                };
                [spec.up.or(there_up), spec.down.or(there_down)]
            })?;
            clients.push((host, place));
        }
    }
    let mut net = Net::new(hosts.geography.paths()?, scenario.tcp, net_seed);
    for (place, [up, down]) in &hosts.lines {
        net.host(*place, up, down);
    }
    Ok(Draft {
        net,
        hosts: hosts.hosts,
        relays,
        clients,
        servers,
        background: Vec::new(),
    })
}

impl Hosts<'_> {
    fn relay(&mut self, number: usize, mut listed: Listed) -> Result<RelayDraft> {
        let network = &self.scenario.network;
        let role = match relays::roles(&listed) {
            roles if roles.exit => "exit",
            roles if roles.guard => "guard",
            _ => "middle",
        };
        let bits = relays::bits(&listed, network.capacity);
        let (limit, line) = match (network.exit_rate, network.buckets) {
            (Some(rate), _) if role == "exit" => (None, rate.bits()),
            (_, true) => (Some((bits / 8, bits / 8)), bits * 2),
            (_, false) => (None, bits),
        };
        let address = match network.kind {
            NetworkKind::Consensus { .. } => self.addresses.take(listed.address),
            _ => self.addresses.own(),
        };
        let host = self.add(format!("{role}-{number}"), address, |_| {
            [Rate::from_bits(line); 2]
        })?;
        if let Some(Host {
            addr: IpAddr::V4(address),
            ..
        }) = self.hosts.last()
        {
            listed.address = *address;
        }
        Ok(RelayDraft {
            host,
            listed,
            threads: None,
            limit,
        })
    }

    /// A host in a place that is drawn; `rates` gets what hosts have there.
    fn add(
        &mut self,
        name: String,
        address: Option<Ipv4Addr>,
        rates: impl Fn(Option<[Rate; 2]>) -> [Option<Rate>; 2],
    ) -> Result<u32> {
        let Some(address) = address else {
            let problem = "there are more hosts than addresses: take fewer".to_owned();
            return Err(unusable(self.scenario, problem));
        };
        let (place, there) = self.geography.draw();
        let line = rates(there).map(|rate| LinkSettings {
            rate,
            ..LinkSettings::default()
        });
        let number = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        self.hosts.push(Host {
            name,
            addr: address.into(),
        });
        self.lines.push((place, line));
        Ok(number)
    }
}
