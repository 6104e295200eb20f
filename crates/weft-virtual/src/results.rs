//! Results of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_model::traffic::Record;
use weft_sim::compromise::abra::pools::Choice;

/// Measurements of a run. Times are since its beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Length of the run, in virtual time.
    pub simulated: Duration,
    /// Every stream, in the order in which they began.
    pub streams: Vec<Record>,
    /// Every relay, in the setup's order.
    pub relays: Vec<RelayResults>,
    /// Circuits of clients that were built, or given up.
    pub circuits: Vec<CircuitResults>,
    /// Circuits that clients measured whose scenario has `measure`, in the order in which they were launched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredCircuit>,
    /// Choices by weight that were recorded, with relays as places in [`Results::relays`]: at most `pools` of the arm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// Tunnels of mTor, of all clients; `None`: nobody counted them.
    #[serde(default)]
    pub tunnels: Option<TunnelResults>,
    /// The length of an interval of [`RelayResults`].
    pub interval: Duration,
    /// Bytes of cells that relays wrote to links.
    pub relayed_bytes: u64,
    /// Discrete events of the network.
    pub events: u64,
}

impl Results {
    /// The places of the intervals that begin at that time or later, as far as they are whole.
    pub fn intervals(&self, from: Duration) -> impl Iterator<Item = usize> + '_ {
        let intervals = self.relays.iter().map(|relay| relay.written.len());
        (0..intervals.max().unwrap_or(0)).filter(move |&number| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let begin = self.interval.saturating_mul(number);
            begin >= from && begin + self.interval <= self.simulated
        })
    }
}

/// Measurements of one relay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayResults {
    /// Its host's name.
    pub name: String,
    /// Bytes that it wrote to links and destinations, in each interval.
    pub written: Vec<u64>,
    /// Bytes that it held in queues and buffers, at the end of each interval.
    pub queued: Vec<u64>,
    /// The weight that it states (docs/extensions/abra.md) unless it lies, at the end of each interval; 0 if nobody asks.
    #[serde(default)]
    pub weights: Vec<f64>,
    /// Bytes of relay cells, in both directions, of clients' circuits through it, by the name of their users' model, in each
    /// interval; one that ends early has none in the rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub carried: BTreeMap<String, Vec<u64>>,
    /// The part of the time, from 0 to 1, in which its busiest thread worked, where work costs time.
    pub busy: f64,
    /// Circuits that it answered a CREATE for.
    pub circuits: u64,
    /// It is the adversary's.
    #[serde(default)]
    pub adversary: bool,
    /// Its weight in the consensus, kilobytes per second.
    #[serde(default)]
    pub bandwidth: u64,
    /// Capacity in bytes per second: its own limit, or else its host's line; 0 if unlimited or
    /// unknown.
    #[serde(default)]
    pub rate: u64,
}

/// Tunnels of mTor, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelResults {
    /// Tunnels that were begun.
    pub begun: u64,
    /// Legs that were launched.
    pub legs: u64,
    /// Of these, those in place of others that were slow or closed.
    pub replaced: u64,
    /// Streams that should have had a tunnel and got another circuit.
    pub without: u64,
    /// The most bytes that one tunnel or conflux set held at a client because they had arrived before others.
    pub reorder_bytes_max: u64,
}

impl std::ops::AddAssign for TunnelResults {
    fn add_assign(&mut self, other: TunnelResults) {
        self.begun += other.begun;
        self.legs += other.legs;
        self.replaced += other.replaced;
        self.without += other.without;
        self.reorder_bytes_max = self.reorder_bytes_max.max(other.reorder_bytes_max);
    }
}

/// A circuit of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CircuitResults {
    /// The client's host.
    pub client: String,
    /// Names of relays, the first hop first.
    pub path: Vec<String>,
    /// When it was launched.
    pub began: Duration,
    /// Time that building it took; `None` if it was not built.
    pub built: Option<Duration>,
    /// From BEGIN to CONNECTED, of each stream.
    pub round_trips: Vec<Duration>,
}

/// A circuit that was built for one stream and carried no other, as Schrock 2017, 4.2 and 4.3 measures circuits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCircuit {
    /// The client's host.
    pub client: String,
    /// When it was launched.
    pub began: Duration,
    /// From its CREATE to the answer of its last relay: what circuit build timeouts are learnt from.
    pub build: Duration,
    /// Circuit-RTT, after that: from the request that its last relay refuses to the refusal.
    pub round_trip: Duration,
    /// After that: from BEGIN to the first byte of a download.
    pub latency: Duration,
    /// Of this download, from BEGIN to its last byte.
    pub bandwidth_mbit: f64,
}
