//! A topology as the graph that Shadow reads, and what of it the graph cannot have.
//!
//! Shadow has a rate for each host and nothing else between hosts than a latency and a loss for each pair. So every
//! host is a node of the graph, and every ordered pair of hosts an edge with what the links of its path do together.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use weft_model::links::{HostId, LinkSettings, Path, Paths, QueueLimit, Rate, Topology};

/// The least latency of an edge, which Shadow wants above 0. It is Shadow's step, too (`runahead`): what arrives sooner
/// would arrive at the end of the step.
pub(super) const LEAST_LATENCY: Duration = Duration::from_micros(100);
/// The rate of a host whose links have none.
const UNLIMITED: u64 = 100_000_000_000;
/// The graph has an edge for each pair.
pub const MAX_HOSTS: usize = 600;

/// The rates of a host, bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) up: u64,
    pub(super) down: u64,
}

/// The rates of a host: each the least among its links, so that nothing is faster than in the topology.
pub(super) fn rates(topology: &Topology, host: HostId) -> Rates {
    let mut rates = Rates {
        up: UNLIMITED,
        down: UNLIMITED,
    };
    for (up, down) in links_of(topology, host) {
        let least = |rate: &mut u64, settings: &LinkSettings| {
            *rate = settings.rate.map_or(*rate, |own| own.bits().min(*rate));
        };
        least(&mut rates.up, up);
        least(&mut rates.down, down);
    }
    rates
}

/// Settings of each link of a host: those of the direction from it, and of the direction to it.
fn links_of(
    topology: &Topology,
    host: HostId,
) -> impl Iterator<Item = (&LinkSettings, &LinkSettings)> {
    topology.links().iter().filter_map(move |link| {
        let [forth, back] = &link.directions;
        match link.ends.map(|end| end == host.node()) {
            [true, _] => Some((forth, back)),
            [_, true] => Some((back, forth)),
            [false, false] => None,
        }
    })
}

/// The graph as GML. A host's node is its number in the topology.
///
/// # Errors
///
/// There are too many hosts.
pub fn gml(topology: &Topology) -> Result<String> {
    let hosts = topology.hosts();
    ensure!(
        hosts.len() <= MAX_HOSTS,
        "the topology {} has {} hosts, and Shadow's graph an edge for each two of them: {MAX_HOSTS} is the most",
        topology.name(),
        hosts.len()
    );
    let paths = Paths::of(topology);
    let mut text = "graph [\n  directed 1\n".to_owned();
    for host in hosts {
        let Rates { up, down } = rates(topology, host);
        let name = topology.node_name(host.node());
        let _ = write!(
            text,
            "  node [\n    id {}\n    label \"{name}\"\n    host_bandwidth_down \"{down} bit\"\n    \
             host_bandwidth_up \"{up} bit\"\n  ]\n",
            host.index()
        );
    }
    for from in topology.hosts() {
        for to in topology.hosts() {
            // Hosts without a path are two that never hear of each other.
            let Path { delay, loss, .. } = paths.between(from, to).unwrap_or(Path {
                loss: 1.0,
                ..Path::default()
            });
            let _ = write!(
                text,
                "  edge [\n    source {}\n    target {}\n    latency \"{} ns\"\n    packet_loss {loss:.9}\n  ]\n",
                from.index(),
                to.index(),
                delay.max(LEAST_LATENCY).as_nanos()
            );
        }
    }
    text.push_str("]\n");
    Ok(text)
}

/// Properties of the topology that Shadow cannot represent, each in a sentence.
pub fn losses(topology: &Topology) -> Vec<String> {
    let mut lost = Vec::new();
    let several = topology.hosts().filter_map(|host| {
        let all = links_of(topology, host).flat_map(|(up, down)| [up.rate, down.rate]);
        let rates: BTreeSet<Option<Rate>> = all.collect();
        let links = links_of(topology, host).count();
        (links > 1 && rates != BTreeSet::from([None])).then(|| topology.node_name(host.node()))
    });
    let several: Vec<&str> = several.collect();
    if !several.is_empty() {
        lost.push(format!(
            "Shadow has rates at hosts, not on links. Each host has the least rate of its links, for all of them \
             together; with several links: {}.",
            several.join(", ")
        ));
    }
    let links = || topology.links().iter();
    let between_switches = links().filter(|link| {
        let is_switch = |end| topology.as_host(end).is_none();
        let [forth, back] = &link.directions;
        link.ends.into_iter().all(is_switch) && (forth.rate.is_some() || back.rate.is_some())
    });
    for link in between_switches {
        let [first, second] = link.ends.map(|end| topology.node_name(end));
        lost.push(format!(
            "The rate of the link between the switches {first} and {second} is not kept."
        ));
    }
    let directions = || links().flat_map(|link| &link.directions);
    if directions().any(|settings| !settings.jitter.is_zero()) {
        lost.push("Jitter is not kept: Shadow has none.".to_owned());
    }
    if directions().any(|settings| settings.queue != QueueLimit::DEFAULT) {
        lost.push("Limits of queues are not kept: Shadow has its own queues at hosts.".to_owned());
    }
    if let Some(tcp) = topology.tcp() {
        lost.push(format!(
            "TCP is Shadow's own (Reno), not the {tcp} of the topology."
        ));
    }
    let paths = Paths::of(topology);
    let is_short = |from: HostId| {
        let mut others = topology.hosts().filter(|to| *to != from);
        others.any(|to| {
            let path = paths.between(from, to);
            path.is_some_and(|path| path.delay < LEAST_LATENCY)
        })
    };
    if topology.hosts().any(is_short) {
        lost.push(format!(
            "Delays below {} ms are as long as that.",
            LEAST_LATENCY.as_secs_f64() * 1e3
        ));
    }
    lost
}
