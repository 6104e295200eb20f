//! Networks: what a scenario describes, as hosts and paths, documents and nodes.
//!
//! Relays come from the scenario's hosts or a topology ([`placed`]), or from a synthetic network or a consensus ([`drawn`]);
//! both make a [`Draft`]. What is common to them, the relays' keys, the documents ([`directory`]) and the users
//! ([`users`]), is made here and beside.

mod addresses;
mod directory;
mod drawn;
mod geography;
mod placed;
mod relays;
#[cfg(test)]
mod tests;
mod users;

use std::time::Duration;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use weft_cell::identity::Ed25519Identity;
use weft_sim::network::Relay as Listed;
use weft_sim::random::generator;
use weft_world::Net;

use crate::scenario::{Arm, Files, NetworkKind, Roles, Scenario, ScenarioError};
use crate::setup::{Background, Fault, Host, Relay, Server, Setup};

type Result<T> = std::result::Result<T, ScenarioError>;

/// `cc_sendme_inc` of networks with congestion control, as in the live network.
const SENDME_INC: u8 = 31;

/// What randomness is for: each purpose has a stream of its own, so that more clients change no relay.
#[derive(Clone, Copy)]
enum Purpose {
    Keys,
    Places,
    Users,
    Adversary,
}

fn random(seed: u64, purpose: Purpose) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(purpose as u64 + 1);
    rng
}

/// Hosts with what runs on them, before the relays have keys.
struct Draft {
    net: Net,
    hosts: Vec<Host>,
    relays: Vec<RelayDraft>,
    /// A host, and the place of its entry in [`Scenario::clients`].
    clients: Vec<(u32, usize)>,
    servers: Vec<Server>,
    background: Vec<Background>,
}

/// A relay as clients know it, and how it is set.
struct RelayDraft {
    host: u32,
    listed: Listed,
    /// None: as the arm has it.
    threads: Option<u16>,
    limit: Option<(u64, u64)>,
}

/// See [`Scenario::setup`].
pub(crate) fn setup(
    scenario: &Scenario,
    files: &Files,
    arm: usize,
    repetition: u32,
    seed: u64,
) -> Result<Setup> {
    let count = scenario.arms.len();
    let arm = scenario
        .arms
        .get(arm)
        .ok_or(ScenarioError::NoArm(arm, count))?;
    let mut seeds = generator(seed, u64::from(repetition), 0);
    let (drawn_seed, net_seed, node_seed) = (seeds.next_u64(), seeds.next_u64(), seeds.next_u64());
    let draft = match &scenario.network.kind {
        NetworkKind::Hosts { hosts, paths } => {
            placed::on_hosts(scenario, hosts, paths, net_seed, drawn_seed)?
        }
        NetworkKind::Topology { file } => {
            placed::on_topology(scenario, files, file, net_seed, drawn_seed)?
        }
        NetworkKind::Synthetic { .. } | NetworkKind::Consensus { .. } => {
            drawn::draft(scenario, files, net_seed, drawn_seed)?
        }
    };
    check_ports(&draft).map_err(|problem| unusable(scenario, problem))?;
    let relays = with_keys(&draft.relays, arm, drawn_seed);
    let sendme_inc = arm.congestion_control.then_some(SENDME_INC);
    let listed: Vec<&Listed> = draft.relays.iter().map(|relay| &relay.listed).collect();
    let directory = directory::directory(&listed, &relays, sendme_inc, arm.options.multipath)
        .map_err(|problem| unusable(scenario, problem))?;
    let clients = users::clients(scenario, files, &draft, drawn_seed)?;
    Ok(Setup {
        net: draft.net,
        hosts: draft.hosts,
        relays,
        clients,
        servers: draft.servers,
        background: draft.background,
        faults: faults(scenario),
        directory,
        options: arm.options.clone(),
        costs: scenario.costs,
        interval: scenario.interval.max(Duration::from_millis(1)),
        seed: node_seed,
    })
}

/// Whether some exit lets streams out to each port of the servers. If none does, all streams would fail.
fn check_ports(draft: &Draft) -> std::result::Result<(), String> {
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

/// The place of the network in the scenario's file.
fn place(scenario: &Scenario) -> String {
    format!("{}:{}", scenario.file, scenario.network.line)
}

fn unusable(scenario: &Scenario, problem: String) -> ScenarioError {
    ScenarioError::Unusable {
        place: place(scenario),
        problem,
    }
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

/// Whether there are three relays for a path: a guard, an exit that is another one, and a third.
pub(crate) fn check_roles(roles: &[Roles]) -> std::result::Result<(), String> {
    let guards: Vec<usize> = places(roles, |role| role.guard);
    let exits: Vec<usize> = places(roles, |role| role.exit);
    let problem = match (guards.as_slice(), exits.as_slice()) {
        ([], _) => "there is no guard among the relays: clients begin at one (roles = [\"guard\"])",
        (_, []) => "there is no exit among the relays: streams leave by one (roles = [\"exit\"])",
        ([guard], [exit]) if guard == exit => {
            "the only guard is the only exit: a path has two different ones"
        }
        _ if roles.len() < 3 => "there are fewer than three relays: a path has three",
        _ => return Ok(()),
    };
    Err(problem.to_owned())
}

fn places(roles: &[Roles], has: impl Fn(&Roles) -> bool) -> Vec<usize> {
    let all = roles.iter().enumerate();
    all.filter(|(_, role)| has(role))
        .map(|(place, _)| place)
        .collect()
}
