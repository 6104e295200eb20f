//! Target, quantity and settings of a measurement.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weft_stats::bounds::Bounds;

use super::aim::Aim;
use super::capacity::Capacity;
use super::live::Preset;
use super::mode::{Direction, Mode};
use super::program::Program;

/// Target of the measurement.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started for it.
    Start(Program),
    /// A relay that runs, and its process if it is on this machine.
    Relay(Aim, Option<u32>),
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Target of the measurement.
    pub target: Target,
    /// Quantity to measure.
    pub mode: Mode,
    /// The load of a relay of the public network; `None`: every circuit carries as much as the next.
    pub live: Option<Preset>,
    /// Look for the highest rate that the target bears, and not at one rate.
    pub capacity: Option<Capacity>,
    /// Have the Weft that is started count its work, by a MetricsPort.
    pub counters: bool,
    /// Threads that answer onionskins (NumCPUs) of the relay that is started; `None`: its own choice.
    pub workers: Option<u32>,
    /// Direction of cells. The live mix has both.
    pub direction: Direction,
    /// Circuits.
    pub circuits: usize,
    /// Links on both sides together: the first half (rounded up) are ours to the target, the others
    /// its links to us. Of idle links all are ours.
    pub links: usize,
    /// Cells of a circuit in one direction that may be on their way; CREATE2 cells of a link that
    /// may be unanswered. `None`: [`default_window`].
    pub window: Option<u64>,
    /// Cells per second over all circuits, in each direction, of the live mix in both together; `None` is full speed,
    /// or the mix's own rate. A search begins with it.
    pub rate: Option<f64>,
    /// Length of the load before anything is measured.
    pub warm_up: Duration,
    /// Length of the measurement.
    pub seconds: Duration,
    /// Threads of the generator; no more are used than there are links on each side.
    pub threads: usize,
    /// Processors for the target; empty: all.
    pub target_cpus: Vec<usize>,
    /// Processors for the generator; empty: all.
    pub generator_cpus: Vec<usize>,
    /// Longest wait for a sign of life from the target.
    pub patience: Duration,
    /// The address of our own relays.
    pub own_ip: IpAddr,
    /// Keys and cells are functions of this.
    pub seed: u64,
}

/// Circuits take some kilobytes each, here and in the relay.
pub(super) const CIRCUITS: Bounds<usize> = Bounds::new(1, 100_000);
/// Each link is a file here and one in the relay.
pub(super) const LINKS: Bounds<usize> = Bounds::new(1, 20_000);
/// Cells of one circuit on their way.
pub(super) const WINDOW: Bounds<u64> = Bounds::new(1, 1_000_000);
/// More than any machine has carried.
pub(super) const RATE: Bounds<f64> = Bounds::new(0.001, 1e9).of("cells per second");

/// The window that is used if none is given: as much as a download's circuit window on the real
/// network for few circuits; for many so little that about 20,000 cells (10 MB) are on their way in
/// all, because a relay that is the bottleneck holds most of them in its queues.
pub(crate) fn default_window(mode: Mode, live: bool, circuits: usize) -> u64 {
    match mode {
        Mode::Onionskins => 32,
        // The cells that are due bound the cells in flight.
        _ if live => 500,
        _ => (20_000 / circuits.max(1) as u64).clamp(16, 500),
    }
}

/// True if a load may be put on this address: the generator is for your own relays.
pub(super) fn is_private(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}
