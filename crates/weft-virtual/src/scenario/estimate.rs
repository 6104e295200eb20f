//! What a run takes, roughly: to refuse what a machine does not hold, before it starts.

use std::time::Duration;

use weft_traffic::{Model, Pause, Plan};

use super::files::Files;
use super::spec::{NetworkKind, Scenario, UserModel};

// Measured on 100 relays with 330 clients, on 500 relays with 2, and on 20 relays with 30 bulk clients.
/// Bytes of a process without a network.
const BASE: u64 = 40 << 20;
/// Bytes of a relay at rest.
const RELAY: u64 = 160 << 10;
/// Bytes of a client, with its circuits and the connections that these need between relays.
const CLIENT: u64 = 1_200 << 10;
/// Bytes that a client has for each relay that it knows.
const KNOWN_RELAY: u64 = 200;
/// Bytes in queues and buffers for each stream that is under way: on five hosts and four connections.
const STREAM: u64 = 4 << 20;
/// Bytes of a server.
const SERVER: u64 = 4 << 10;
/// Discrete events for each packet's worth of a stream's bytes, on its way over four connections and back.
const EVENTS: u64 = 14;
/// Payload of a packet.
const PACKET: u64 = 1_400;
/// What a circuit lets through at most, in bytes each second, with the delays that networks have.
const CIRCUIT: u64 = 2_000_000;

/// What a run takes: guesses, within a factor of about two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Memory, in bytes.
    pub bytes: u64,
    /// Discrete events.
    pub events: u64,
    /// Relays.
    pub relays: u64,
    /// Clients.
    pub clients: u64,
}

/// See [`Scenario::estimate`].
pub(super) fn estimate(scenario: &Scenario, files: &Files) -> Estimate {
    let relays = relays(scenario, files);
    let (mut clients, mut streams, mut carried) = (0u64, 0u64, 0u64);
    for spec in &scenario.clients {
        let count = u64::from(spec.count);
        let rate = spec.down.map_or(CIRCUIT, |rate| rate.bits() / 8);
        let (part, bytes) = used(&spec.model, rate.min(CIRCUIT), scenario.duration);
        clients += count;
        streams += (count * part).div_ceil(100);
        carried = carried.saturating_add(count.saturating_mul(bytes));
    }
    let servers: u64 = scenario
        .servers
        .iter()
        .map(|one| u64::from(one.count))
        .sum();
    let bytes = [
        BASE,
        relays.saturating_mul(RELAY),
        clients.saturating_mul(CLIENT + relays.saturating_mul(KNOWN_RELAY)),
        streams.saturating_mul(STREAM),
        servers.saturating_mul(SERVER),
    ];
    Estimate {
        bytes: bytes.into_iter().fold(0, u64::saturating_add),
        events: (carried / PACKET).saturating_mul(EVENTS),
        relays,
        clients,
    }
}

fn relays(scenario: &Scenario, files: &Files) -> u64 {
    match &scenario.network.kind {
        NetworkKind::Synthetic { relays, .. } => u64::from(*relays),
        NetworkKind::Consensus { file, scale } => {
            let text = files.get(file).unwrap_or_default();
            let lines = text.split(|byte| *byte == b'\n');
            let listed = lines.filter(|line| line.starts_with(b"r ")).count();
            // Within what a number of lines can be.
            (listed as f64 * scale).ceil() as u64
        }
        NetworkKind::Hosts { .. } | NetworkKind::Topology { .. } => {
            let hosts = scenario.relays.iter();
            hosts
                .map(|relay| scenario.hosts_named(&relay.host).len().max(1) as u64)
                .sum()
        }
    }
}

/// Of a user: in how many of 100 moments a stream is under way, and how many bytes its streams have in all.
fn used(model: &UserModel, rate: u64, duration: Duration) -> (u64, u64) {
    let model = match model {
        UserModel::Named(name) => name.model(),
        UserModel::Download { bytes, pause, .. } => Model::Repeat {
            plan: Plan::download(*bytes),
            pause: *pause,
        },
        // About what PrivCount's models give: a flow a minute.
        UserModel::Markov { .. } => return (50, duration.as_secs().saturating_mul(20_000)),
    };
    let total = duration.as_secs_f64();
    let rate = rate.max(1) as f64;
    let (active, idle, bytes) = match &model {
        Model::Repeat { plan, pause } => {
            let bytes = plan.down.bytes().saturating_add(plan.up.bytes()) as f64;
            let active = (bytes / rate).max(plan.down.duration().as_secs_f64()) + 0.5;
            (active, mean(pause), bytes)
        }
        Model::Periodic { every, plans } => {
            let weight: u64 = plans.iter().map(|(weight, _)| u64::from(*weight)).sum();
            let sum: f64 = plans
                .iter()
                .map(|(weight, plan)| f64::from(*weight) * plan.down.bytes() as f64)
                .sum();
            let bytes = sum / weight.max(1) as f64;
            let active = bytes / rate + 0.5;
            (active, (every.as_secs_f64() - active).max(0.0), bytes)
        }
        Model::Markov(_) => return (50, duration.as_secs().saturating_mul(20_000)),
    };
    let round = (active + idle).max(1e-3);
    // A stream that does not end within the run carries what the circuit lets through.
    let carried = (total / round * bytes).min(total * rate);
    ((active / round * 100.0).ceil() as u64, carried as u64)
}

fn mean(pause: &Pause) -> f64 {
    match pause {
        Pause::None => 0.0,
        Pause::Fixed(pause) => pause.as_secs_f64(),
        Pause::Uniform(low, high) => (low.as_secs_f64() + high.as_secs_f64()) / 2.0,
    }
}
