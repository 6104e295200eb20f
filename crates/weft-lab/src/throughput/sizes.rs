//! Size of the network, and the largest size that this machine holds.

use serde::{Deserialize, Serialize};

/// Memory of a C tor in a small network, bytes, at most, as measured.
pub(super) const MEMORY_OF_A_NODE: u64 = 45_000_000;

/// Processors of the paper's control server (Engler and Goldberg 2021, Table 2), which ran all nodes but the
/// target.
const PROCESSORS_OF_THE_PAPER: f64 = 64.0;

/// Size of the network, and of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Client proxies.
    pub clients: usize,
    /// Entry relays.
    pub entries: usize,
    /// Exit relays.
    pub exits: usize,
    /// Circuits of each client, one stream on each.
    pub streams_per_client: usize,
    /// Payload of each stream.
    pub bytes_per_stream: u64,
}

impl Sizes {
    /// Table 1 of Engler and Goldberg 2021, first row.
    pub(crate) const INTEL_SERVER: Sizes = Sizes {
        clients: 150,
        entries: 300,
        exits: 300,
        streams_per_client: 10,
        bytes_per_stream: 10 << 20,
    };

    /// Table 1 of Engler and Goldberg 2021, second row.
    pub(crate) const RASPBERRY_PI: Sizes = Sizes {
        clients: 100,
        entries: 300,
        exits: 300,
        streams_per_client: 6,
        bytes_per_stream: 5 << 20,
    };

    /// This part of the proxies and relays, at least one of each, with as many streams for each proxy
    /// and as much data for each stream.
    pub fn scaled(self, scale: f64) -> Sizes {
        let part = |count: usize| ((count as f64 * scale).round() as usize).max(1);
        Sizes {
            clients: part(self.clients),
            entries: part(self.entries),
            exits: part(self.exits),
            ..self
        }
    }

    /// Circuits through the target.
    pub fn circuits(self) -> usize {
        self.clients.saturating_mul(self.streams_per_client)
    }

    /// Payload of a run, bytes.
    pub fn payload(self) -> u64 {
        (self.circuits() as u64).saturating_mul(self.bytes_per_stream)
    }

    /// Processes around the target, authorities included.
    pub(super) fn nodes(self) -> usize {
        let nodes = self.clients.saturating_add(self.entries);
        nodes.saturating_add(self.exits).saturating_add(3)
    }

    /// The largest scale, 1 at most, at which a machine with this much free memory (bytes) holds all
    /// nodes, and has for each as much processor time as the paper's had. In hundredths.
    pub(crate) fn scale_for(self, free_memory: u64, processors: usize) -> f64 {
        let memory = free_memory as f64 * 0.8 / (self.nodes() as f64 * MEMORY_OF_A_NODE as f64);
        let scale = memory.min(processors as f64 / PROCESSORS_OF_THE_PAPER);
        ((scale * 100.0).floor() / 100.0).clamp(0.01, 1.0)
    }
}

/// Free memory of this machine, bytes; 0 if the kernel does not report it.
pub(super) fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
