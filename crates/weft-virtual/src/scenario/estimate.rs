//! Rough estimate of a run's memory and events, to reject a run that the machine cannot hold before
//! it starts.

use std::time::Duration;

use weft_model::traffic::{Model, Pause, Plan};

use super::files::Files;
use super::spec::{NetworkKind, Scenario, UserModel};

// By least squares of 16 runs with 20 to 600 relays (a test has them), which it meets within 12 %.
/// Bytes of a process without a network.
const BASE: u64 = 32_000_000;
/// Bytes of a relay at rest.
const RELAY: u64 = 124_000;
/// Bytes of a client, with its circuits and the connections that these need between relays.
const CLIENT: u64 = 270_000;
/// Bytes that a client has for each relay that it knows.
const KNOWN_RELAY: u64 = 320;
/// Bytes in queues and buffers for each stream that is under way: on five hosts and four connections.
const STREAM: f64 = 2_050_000.0;
/// Bytes that are kept of each stream of the run, with its circuit, for the report.
const RECORD: f64 = 32_000.0;
/// Bytes of a server.
const SERVER: u64 = 4 << 10;
/// Discrete events for each packet's worth of a stream's bytes, on its way over four connections and back.
const EVENTS: u64 = 14;
/// Payload of a packet.
const PACKET: u64 = 1_400;
/// Highest throughput of a circuit with the delays that networks have, in bytes per second.
const CIRCUIT: u64 = 2_000_000;

/// Resources of a run. Memory is within a fifth of the measured one for synthetic networks; others
/// may differ more.
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
    let (mut clients, mut carried, mut by_streams) = (0u64, 0u64, 0.0);
    for spec in &scenario.clients {
        let count = u64::from(spec.count);
        let rate = spec.down.map_or(CIRCUIT, |rate| rate.bits() / 8);
        let used = used(&spec.model, rate.min(CIRCUIT), scenario.duration);
        clients += count;
        by_streams += count as f64 * (used.busy * STREAM + used.streams * RECORD);
        carried = carried.saturating_add(count.saturating_mul(used.bytes));
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
        by_streams as u64,
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

/// Use of the network by one user.
struct Used {
    /// The part of the time in which a stream is under way.
    busy: f64,
    /// Streams in all.
    streams: f64,
    /// Their bytes.
    bytes: u64,
}

fn used(model: &UserModel, rate: u64, duration: Duration) -> Used {
    let total = duration.as_secs_f64();
    // About what PrivCount's models give: a flow a minute.
    let of_flows = Used {
        busy: 0.5,
        streams: total / 60.0,
        bytes: duration.as_secs().saturating_mul(20_000),
    };
    let model = match model {
        UserModel::Named(name) => name.model(),
        UserModel::Download { bytes, pause, .. } => Model::Repeat {
            plan: Plan::download(*bytes),
            pause: *pause,
        },
        UserModel::Markov { .. } => return of_flows,
    };
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
        Model::Markov(_) => return of_flows,
    };
    let round = (active + idle).max(1e-3);
    Used {
        busy: active / round,
        streams: total / round,
        // A stream that does not end within the run carries what the circuit lets through.
        bytes: (total / round * bytes).min(total * rate) as u64,
    }
}

fn mean(pause: &Pause) -> f64 {
    match pause {
        Pause::None => 0.0,
        Pause::Fixed(pause) => pause.as_secs_f64(),
        Pause::Uniform(low, high) => (low.as_secs_f64() + high.as_secs_f64()) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relays, clients of pages, bulk clients, seconds; megabytes of `peak_rss_bytes` that `weft lab run --threads 1` printed (commit
    /// 94890cec, 2 cores of an AMD EPYC; delays of 50 ms, all clients within 20 s).
    const TAKEN: [(u32, u32, u32, u32, u64); 16] = [
        (20, 1, 0, 30, 39),
        (100, 1, 0, 30, 43),
        (300, 1, 0, 30, 64),
        (600, 1, 0, 30, 120),
        (100, 100, 0, 60, 93),
        (100, 300, 0, 60, 174),
        (100, 900, 0, 60, 384),
        (300, 300, 0, 60, 214),
        (20, 0, 30, 40, 111),
        (100, 0, 30, 40, 137),
        (100, 0, 90, 40, 284),
        (100, 300, 30, 60, 271),
        (100, 300, 0, 240, 215),
        (300, 500, 50, 60, 453),
        (100, 0, 30, 120, 159),
        (300, 0, 30, 40, 161),
    ];

    #[test]
    fn memory_is_estimated_within_a_fifth() {
        for (relays, pages, bulk, seconds, taken) in TAKEN {
            let mut text = format!(
                "name = \"x\"\nduration = \"{seconds} s\"\n[network]\nsynthetic = {{ relays = {relays} }}\n\
                 [[servers]]\ncount = 50\n"
            );
            for (count, model) in [(pages, "page"), (bulk, "bulk")] {
                if count > 0 {
                    text += &format!("[[clients]]\ncount = {count}\nmodel = \"{model}\"\n");
                }
            }
            let scenario = Scenario::parse("x.toml", &text).unwrap();
            let estimated = scenario.estimate(&Files::default()).bytes as f64 / 1e6;
            let ratio = estimated / taken as f64;
            assert!((0.8..1.2).contains(&ratio), "{ratio:.2} for {text}");
        }
    }
}
