//! The numbers of `weft lab hops`: the shape of `results.json`.

use serde::Serialize;
use weft_stats::{Spread, Summary};

use super::group::Group;
use super::profile::Folded;
use super::stages::Stages;
use crate::machine::{Machine, Versions};

/// The version of this shape.
pub const SCHEMA: u32 = 2;

/// A function's part of the processor time of its process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// Its name, without types.
    pub name: String,
    /// Its group.
    pub group: Group,
    /// Of all samples.
    pub percent: f64,
}

/// A role at one number of hops and circuits.
#[derive(Clone, Debug, Serialize)]
pub struct Role {
    /// Relays between sink and seeder.
    pub hops: usize,
    /// Circuits at once.
    pub circuits: usize,
    /// True if circuits have congestion control (`cc_alg` of the consensus), false if they have
    /// fixed windows; none where no circuit of a client carries the data.
    pub congestion_control: Option<bool>,
    /// `sink` (Weft as client), `entry`, `middle`, `exit`, `relay` (the only one of one hop), or `lab`, this
    /// program, which plays all that is not Weft.
    pub role: &'static str,
    /// Processor seconds for 10⁹ payload bytes, the median of the repetitions.
    pub cpu_s_per_gb: f64,
    /// Their range.
    pub cpu_s_per_gb_range: Summary,
    /// Half the 95 % confidence interval of their mean; none of one repetition.
    pub cpu_s_per_gb_ci95: Option<f64>,
    /// The part of the processor time that the system used on its behalf, by the system's own count.
    pub kernel: f64,
    /// Part of the samples in cryptography, from 0 to 1.
    pub crypto: f64,
    /// Part in networking.
    pub networking: f64,
    /// Part in neither.
    pub other: f64,
    /// The functions with the most samples.
    pub top_functions: Vec<Function>,
    /// Samples of all repetitions.
    pub samples: u64,
    /// Payload over all circuits in 10⁶ bits a second, the median of the repetitions.
    pub mbit: f64,
    /// Their range.
    pub mbit_range: Summary,
    /// Half the 95 % confidence interval of their mean; none of one repetition.
    pub mbit_ci95: Option<f64>,
    /// Cells that each step of a node's connection threads handles at once; none for this program,
    /// and where counters did not change.
    pub stages: Option<Stages>,
    #[serde(skip)]
    pub(super) folded: Folded,
    /// Of each repetition: processor seconds for 10⁹ bytes, and 10⁶ bits a second.
    #[serde(skip)]
    pub(super) measured: Vec<(f64, f64)>,
}

impl Role {
    /// It is a node of Tor.
    #[must_use]
    pub fn is_node(&self) -> bool {
        self.role != LAB
    }

    /// It is a relay.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        self.is_node() && self.role != SINK
    }

    pub(super) fn share(&self, group: Group) -> f64 {
        match group {
            Group::Crypto => self.crypto,
            Group::Networking => self.networking,
            Group::Other => self.other,
        }
    }
}

/// The role of this program.
pub(super) const LAB: &str = "lab";
/// The role of the client.
pub(super) const SINK: &str = "sink";

/// A role in a tunnel of one number of hops.
#[derive(Clone, Debug, Serialize)]
pub struct TunnelRole {
    /// Relays and exit between sink and seeder.
    pub hops: usize,
    /// Circuits at once.
    pub circuits: usize,
    /// `sink`, `relay` or `exit`.
    pub role: String,
    /// Processor seconds for 10⁹ bytes, the median of the repetitions; of relays the mean of one's.
    pub cpu_s_per_gb: f64,
    /// Their range.
    pub cpu_s_per_gb_range: Summary,
    /// 10⁶ bits a second, the median of the repetitions.
    pub mbit: f64,
    /// Their range.
    pub mbit_range: Summary,
    /// Half the 95 % confidence interval of their mean; none of one repetition.
    pub mbit_ci95: Option<f64>,
    /// Of each repetition: processor seconds for 10⁹ bytes, and 10⁶ bits a second.
    #[serde(skip)]
    pub(super) measured: Vec<(f64, f64)>,
}

/// Measurements of the tunnels.
#[derive(Clone, Debug, Serialize)]
pub struct Tunnels {
    /// The packages.
    pub versions: String,
    /// 10⁶ bytes of one transfer.
    pub megabytes: u64,
    /// Measurements by role.
    pub roles: Vec<TunnelRole>,
}

/// A bar, and whether it is met.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// The compared quantity.
    pub what: String,
    /// The measured value.
    pub found: f64,
    /// The least that it must be.
    pub at_least: f64,
    /// True if it is met.
    pub met: bool,
}

/// The requested settings.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Numbers of relays.
    pub hops: Vec<usize>,
    /// Numbers of circuits.
    pub circuits: Vec<usize>,
    /// Without congestion control of circuits, with it, or both.
    pub congestion_control: Vec<bool>,
    /// 10⁶ bytes of payload of one transfer, over all circuits together.
    pub megabytes: u64,
    /// Number of repetitions.
    pub repetitions: u32,
    /// Connection threads of each node.
    pub threads: u32,
    /// Samples in a second of processor time that were asked of the system.
    pub samples_hz: i32,
    /// Payloads and the order of measurements are functions of this.
    pub seed: u64,
}

/// An experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, UTC, RFC 3339.
    pub started_at: String,
    /// Everything was measured as often as planned; otherwise these are partial results.
    pub finished: bool,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Versions of the programs.
    pub versions: Versions,
    /// The requested settings.
    pub settings: Settings,
    /// Measurements by role.
    pub roles: Vec<Role>,
    /// Measurements over py-ipv8's tunnels, if they were made.
    pub tunnels: Option<Tunnels>,
    /// Why they were not.
    pub tunnels_missing: Option<String>,
    /// The bars that can be checked by it.
    pub bars: Vec<Bar>,
}

/// A number with its noun, in words.
pub(super) fn many(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Half the 95 % confidence interval of the mean; one number has none.
pub(super) fn ci95(numbers: &[f64]) -> Option<f64> {
    Spread::of(numbers)?.ci95
}
