//! What comes of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_sim::compromise::abra::pools::Choice;
use weft_traffic::Record;

/// What was measured. Times are since the beginning of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// How long the run was, in virtual time.
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
    /// The length of an interval of [`RelayResults`].
    pub interval: Duration,
    /// Bytes of cells that relays wrote to links.
    pub relayed_bytes: u64,
    /// Discrete events of the network.
    pub events: u64,
}

/// What a relay did.
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
    /// How long it took to be built; `None`: it was not.
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
