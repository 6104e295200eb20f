//! The folder of a job's simulation.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use weft_model::links::Topology;
use weft_testnet::network::Program;
use weft_testnet::nodes::torrc::{Common, Duty, Owner};
use weft_testnet::nodes::{AUTHORITY, Spec};
use weft_testnet::shadow::Network;
use weft_testnet::shadow::network::{
    ALL_LINES, END, EPOCH, INTERVAL, LEAST_SETTLE, Process, RELAY_LINES, RESOLV_CONF, WEFT_LINES,
    apart, create_authority, create_private, create_relay, template, write as write_file,
};
use weft_virtual::Setup;

use super::super::job::Job;
use super::super::netns::{self, links};
use super::super::source::Source;
use super::work::{Client, HOST_COMMAND, Relay, Task, Work};
use crate::experiment::json;

/// When the run begins: nodes know each other, and clients have new circuits.
pub(super) const SETTLE: Duration = LEAST_SETTLE.saturating_add(CALM_BEFORE);
/// Until so long before the run no packets are lost, and rates have no limit.
pub(super) const CALM_BEFORE: Duration = Duration::from_secs(30);
/// File of the relays' bandwidths that the authority lists, in the folder of its host.
const BANDWIDTHS: &str = "bandwidths";

/// Settings that the simulations of a run share.
#[derive(Debug)]
pub(super) struct Settings<'a> {
    pub(super) source: &'a Source,
    pub(super) seed: u64,
    /// The `weft` that runs the nodes.
    pub(super) weft: &'a Path,
    /// No other simulation runs at the same time.
    pub(super) is_alone: bool,
}

/// Writes it whole into a new folder.
pub(super) fn write(settings: &Settings<'_>, job: &Job, folder: &Path) -> Result<()> {
    let scenario = &settings.source.scenario;
    let files = &settings.source.files;
    let setup = scenario.setup(files, job.arm_number, job.repetition, settings.seed)?;
    let arm = scenario.arms.get(job.arm_number).context("no such arm")?;
    let topology = links::topology(settings.source, &setup, links::SHADOW)?;
    let seed = settings
        .seed
        .wrapping_add(u64::from(job.repetition - 1) << 32);
    let program = Program::weft(settings.weft, None)?;
    let (specs, names) = netns::specs(&setup, arm, &program, |name| {
        let host = topology.host(name);
        Ok((
            host.with_context(|| format!("there is no host {name}"))?
                .address(),
            None,
        ))
    })?;
    let hosts = template(folder);
    fs::create_dir_all(&hosts).with_context(|| format!("creating {}", hosts.display()))?;
    let mut writing = Writing {
        settings,
        setup: &setup,
        topology: &topology,
        hosts,
        names,
        processes: BTreeMap::new(),
        seed,
    };
    writing.nodes(&specs, ChaCha20Rng::seed_from_u64(seed))?;
    for server in &setup.servers {
        let name = netns::host_name(&setup, server.host)?;
        let listen = writing.at(name, server.port)?;
        let process = Process::flow_server(settings.weft, listen)?;
        writing.process(name, process);
    }
    writing.relays()?;
    writing.clients()?;
    Network {
        topology: &topology,
        processes: writing.processes,
        calm: SETTLE - CALM_BEFORE,
        stop_at: SETTLE + scenario.duration + END,
        seed,
        parallelism: 1,
        is_alone: settings.is_alone,
    }
    .write(folder)
}

struct Writing<'a> {
    settings: &'a Settings<'a>,
    setup: &'a Setup,
    topology: &'a Topology,
    /// The folders of the hosts.
    hosts: PathBuf,
    /// The host of each node by its nickname.
    names: BTreeMap<String, String>,
    processes: BTreeMap<String, Vec<Process>>,
    seed: u64,
}

impl Writing<'_> {
    fn process(&mut self, host: &str, process: Process) {
        let of_host = self.processes.entry(host.to_owned()).or_default();
        of_host.push(process);
    }

    fn at(&self, host: &str, port: u16) -> Result<SocketAddr> {
        let found = self.topology.host(host);
        let found = found.with_context(|| format!("there is no host {host}"))?;
        Ok(SocketAddr::from((found.address(), port)))
    }

    /// The host of a node. The authority's is the testbed's.
    fn host_of(&self, nickname: &str) -> String {
        let host = self.names.get(nickname).map(String::as_str);
        host.unwrap_or(links::AUTHORITY_HOST).to_owned()
    }

    /// Keys, torrcs and processes of all nodes. Each has a folder by its nickname in that of its host: a host may have a relay and a
    /// client.
    fn nodes(&mut self, specs: &[Spec], mut rng: ChaCha20Rng) -> Result<()> {
        let authority = specs.iter().find_map(|spec| match spec.duty {
            Duty::Authority { dir, .. } => Some(dir),
            _ => None,
        });
        let dir = authority.context("a network without authority")?;
        let data = |nickname: &str| PathBuf::from(nickname).join("data");
        let of_host = |writing: &Writing<'_>, spec: &Spec| {
            let host = writing.hosts.join(writing.host_of(&spec.nickname));
            host.join(data(&spec.nickname))
        };
        let authority = self.hosts.join(links::AUTHORITY_HOST);
        let common = Common {
            authority: create_authority(
                &authority.join(data(AUTHORITY)),
                AUTHORITY,
                dir,
                &mut rng,
            )?,
            interval: INTERVAL,
            log: "notice",
            hidden_service_dirs: Vec::new(),
        };
        let mut bandwidths = format!("{}\n", EPOCH.as_secs());
        for spec in specs {
            if let Some(bandwidth) = spec.bandwidth {
                let data = of_host(self, spec);
                let fingerprint = create_relay(&data, &spec.nickname, &mut rng)?;
                bandwidths += &format!("node_id=${fingerprint} bw={bandwidth}\n");
            }
        }
        write_file(&authority.join(BANDWIDTHS), &bandwidths)?;
        for (number, spec) in specs.iter().enumerate() {
            let host = self.host_of(&spec.nickname);
            let folder = self.hosts.join(&host);
            create_private(&of_host(self, spec))?;
            let mut lines = [ALL_LINES, WEFT_LINES].concat();
            let start = match spec.duty {
                Duty::Authority { .. } => Duration::from_secs(1),
                Duty::Relay { .. } => Duration::from_secs(5) + apart(number),
                Duty::Client { .. } => SETTLE / 2 + apart(number),
            };
            if let Duty::Client { .. } = spec.duty {
                lines.push("ConnectionThreads 1");
            } else {
                lines.extend(RELAY_LINES);
                let (name, text) = RESOLV_CONF;
                write_file(&folder.join(name), text)?;
            }
            let mut more: Vec<String> = lines.into_iter().map(str::to_owned).collect();
            if let Duty::Authority { .. } = spec.duty {
                more.push("ConnectionThreads 1".to_owned());
                more.push(format!("V3BandwidthsFile {BANDWIDTHS}"));
            }
            more.extend(spec.more.iter().cloned());
            let owner = Owner {
                nickname: &spec.nickname,
                // From the folder of the host, where its processes run.
                data: data(&spec.nickname),
            };
            let torrc = PathBuf::from(&spec.nickname).join("torrc");
            let text = common.torrc(owner, spec.duty, true, &more);
            write_file(&folder.join(&torrc), &text)?;
            self.process(&host, Process::node(&spec.program, &torrc, start));
        }
        Ok(())
    }

    /// Adds the processes that measure relays.
    fn relays(&mut self) -> Result<()> {
        for number in 0..self.setup.relays.len() {
            let nickname = netns::relay_name(number);
            let task = Task::Relay(Relay {
                interval: self.settings.source.scenario.interval,
            });
            self.measuring(&nickname, task, number)?;
        }
        Ok(())
    }

    /// Users, and what measures their clients.
    fn clients(&mut self) -> Result<()> {
        for (number, client) in self.setup.clients.iter().enumerate() {
            let nickname = netns::client_name(number);
            let servers = client.servers.iter().map(|place| {
                let server = self.setup.servers.get(*place as usize);
                let server = server.context("a user of a server that is not there")?;
                let host = netns::host_name(self.setup, server.host)?;
                self.at(host, server.port)
            });
            let task = Task::Client(Box::new(Client {
                model_name: client.model_name.clone(),
                model: client.model.clone(),
                start: client.start,
                servers: servers.collect::<Result<_>>()?,
                // As on the other testbed.
                seed: self.seed.wrapping_mul(1_000).wrapping_add(number as u64),
                names: self.names.clone(),
            }));
            self.measuring(&nickname, task, number)?;
        }
        Ok(())
    }

    /// The process that measures beside a node.
    fn measuring(&mut self, nickname: &str, task: Task, number: usize) -> Result<()> {
        let host = self.host_of(nickname);
        let work = Work {
            host: host.clone(),
            nickname: nickname.to_owned(),
            begin: EPOCH + SETTLE,
            duration: self.settings.source.scenario.duration,
            task,
        };
        let file = PathBuf::from(nickname).join("work.json");
        write_file(&self.hosts.join(&host).join(&file), &json(&work)?)?;
        let args = [HOST_COMMAND.to_owned(), file.display().to_string()];
        // Within the time in which lines are as they are in the run, and long enough before it for new circuits.
        let start = SETTLE - CALM_BEFORE / 2 + apart(number);
        let process = Process::lab(self.settings.weft, args, start)?;
        self.process(&host, process);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_seconds_for_new_circuits_between_calm_and_run() {
        assert!(SETTLE > LEAST_SETTLE);
        assert!(CALM_BEFORE / 2 > Duration::from_secs(10));
        assert!(apart(996) < Duration::from_secs(1));
    }
}
