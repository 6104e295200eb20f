//! Networks: what a scenario describes, as hosts and paths, documents and nodes.
//!
//! Relays come from the scenario's hosts or a topology ([`placed`]), or from a synthetic network or a consensus ([`drawn`]);
//! both make a [`Draft`](draft::Draft). What is common to them, the relays' keys, the documents ([`directory`]) and the users
//! ([`users`]), is made here and beside.

mod addresses;
mod directory;
mod draft;
mod drawn;
mod error;
mod geography;
mod placed;
mod randomness;
mod relays;
#[cfg(test)]
mod tests;
mod users;

use std::time::Duration;

use rand::{Rng as _, RngExt as _};
use weft_cell::identity::Ed25519Identity;
use weft_sim::network::Relay as Listed;
use weft_sim::random::generator;

use self::draft::{Draft, RelayDraft};
use self::error::unusable;
use self::randomness::{Purpose, random};
use crate::scenario::{Arm, Files, NetworkKind, Scenario, ScenarioError};
use crate::setup::{Fault, Relay, Server, Setup};

/// `cc_sendme_inc` of networks with congestion control, as in the live network.
const SENDME_INC: u8 = 31;

impl Scenario {
    /// The network of a repetition, with the settings of an arm: a place in [`Scenario::arms`]. Two arms have the
    /// same network, users and randomness. Repetitions differ in what is drawn.
    ///
    /// # Errors
    ///
    /// A file is missing or damaged, or there is no network of what it holds.
    pub fn setup(
        &self,
        files: &Files,
        arm: usize,
        repetition: u32,
        seed: u64,
    ) -> Result<Setup, ScenarioError> {
        let count = self.arms.len();
        let arm = self.arms.get(arm).ok_or(ScenarioError::NoArm(arm, count))?;
        let mut seeds = generator(seed, u64::from(repetition), 0);
        let (drawn_seed, net_seed, node_seed) =
            (seeds.next_u64(), seeds.next_u64(), seeds.next_u64());
        let draft = match &self.network.kind {
            NetworkKind::Hosts { hosts, paths } => {
                placed::on_hosts(self, hosts, paths, net_seed, drawn_seed)?
            }
            NetworkKind::Topology { file } => {
                placed::on_topology(self, files, file, net_seed, drawn_seed)?
            }
            NetworkKind::Synthetic { .. } | NetworkKind::Consensus { .. } => {
                drawn::draft(self, files, net_seed, drawn_seed)?
            }
        };
        check_ports(&draft).map_err(|problem| unusable(self, problem))?;
        let relays = with_keys(&draft.relays, arm, drawn_seed);
        let sendme_inc = arm.congestion_control.then_some(SENDME_INC);
        let listed: Vec<&Listed> = draft.relays.iter().map(|relay| &relay.listed).collect();
        let directory = directory::directory(&listed, &relays, sendme_inc, arm.options.multipath)
            .map_err(|problem| unusable(self, problem))?;
        let clients = users::clients(self, files, &draft, drawn_seed)?;
        Ok(Setup {
            net: draft.net,
            hosts: draft.hosts,
            relays,
            clients,
            servers: draft.servers,
            background: draft.background,
            faults: faults(self),
            directory,
            options: arm.options.clone(),
            costs: self.costs,
            interval: self.interval.max(Duration::from_millis(1)),
            seed: node_seed,
        })
    }
}

/// Checks that some exit allows each port of the servers. Otherwise all streams to it would fail.
fn check_ports(draft: &Draft) -> Result<(), String> {
    let exits = || {
        draft
            .relays
            .iter()
            .filter(|relay| relays::roles(&relay.listed).exit)
    };
    let allows = |relay: &RelayDraft, port| {
        let policy = relay.listed.policy.as_ref();
        policy.is_some_and(|policy| policy.allows(port))
    };
    let shut = |server: &&Server| !exits().any(|exit| allows(exit, server.port));
    match draft.servers.iter().find(shut) {
        // That there is no exit at all is said of the relays.
        Some(server) if exits().next().is_some() => Err(format!(
            "no exit allows port {}, to which its users connect: no client would find a path",
            server.port
        )),
        _ => Ok(()),
    }
}

/// Hosts that stall. Those of the file are the setup's, in order.
fn faults(scenario: &Scenario) -> Vec<Fault> {
    let faults = scenario.faults.iter();
    let faults = faults.flat_map(|spec| {
        let hosts = scenario.hosts_named(&spec.host).into_iter();
        hosts.filter_map(|host| {
            Some(Fault {
                host: u32::try_from(host).ok()?,
                at: spec.at,
                lasts: spec.lasts,
            })
        })
    });
    faults.collect()
}

/// Gives relays what only they know.
fn with_keys(drafts: &[RelayDraft], arm: &Arm, seed: u64) -> Vec<Relay> {
    let mut rng = random(seed, Purpose::Keys);
    // In all arms those that are the adversary's where it has fewer are so where it has more.
    let mut adversary = random(seed, Purpose::Adversary);
    let relay = |draft: &RelayDraft| Relay {
        host: draft.host,
        or_port: draft.listed.or_port,
        rsa: draft.listed.fingerprint.into(),
        // Nothing is signed by it here.
        ed25519: Ed25519Identity::from(rng.random::<[u8; 32]>()),
        onion_key: rng.random(),
        threads: draft.threads.unwrap_or(arm.threads),
        limit: draft.limit,
        roles: relays::roles(&draft.listed),
        bandwidth: draft.listed.bandwidth,
        policy: relays::exit_policy(draft.listed.policy.as_ref()),
        adversary: adversary.random_range(0.0..1.0) < arm.options.adversary,
    };
    drafts.iter().map(relay).collect()
}
