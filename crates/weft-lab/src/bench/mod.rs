//! A load generator for one Tor relay: `weft bench relay`.
//!
//! One process plays both neighbours of the relay that is measured, the *target*. It opens links to
//! it as clients do, creates circuits over them, and has each extended to one of its own relays, to
//! which the target must open links in turn. Then it drives cells through, in either direction or
//! both, as fast as windows of cells in flight allow or at a fixed rate, and counts them where they
//! arrive. No consensus and no other relay is needed.
//!
//! Cells are made once and only their headers change; what they carry is noise. A relay in the
//! middle of a circuit can neither know nor care: it adds or removes one layer of encryption. So the
//! generator costs little more than TLS and the kernel do.
//!
//! [`run`] does it and returns a [`Report`](report::Report). Each of the generator's threads is a
//! `world::World`; the conductor tells them what to do and measures meanwhile.
//!
//! | module | what |
//! |---|---|
//! | [`aim`] | the target's address and keys |
//! | [`start`] | starting a target |
//! | `arti` | what differs for Arti's relay |
//! | `world` | one thread: links, circuits, cells |
//! | `link` | TLS over a socket |
//! | `latency` | how long cells take |
//! | `conductor`, `measuring` | stages, and what happens in them |
//! | [`pipe`] | the bare pipe, the physical limit |
//! | [`report`] | what was found |

pub mod aim;
mod arti;
mod conductor;
mod latency;
mod link;
mod measuring;
pub mod pin;
pub mod pipe;
pub mod report;
pub mod start;
mod world;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use conductor::{MEASURING, Progress, WARMING_UP, run};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Cells on circuits that are there.
    Cells,
    /// The making of circuits.
    Onionskins,
    /// The opening of links.
    Links,
    /// Memory of links on which nothing happens.
    IdleLinks,
    /// Memory of circuits on which nothing happens.
    IdleCircuits,
}

impl Mode {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Cells => "cells",
            Mode::Onionskins => "onionskins",
            Mode::Links => "links",
            Mode::IdleLinks => "idle-links",
            Mode::IdleCircuits => "idle-circuits",
        }
    }
}

/// Which way cells go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the origin to the next hop: the target removes a layer.
    Upload,
    /// From the next hop to the origin: the target adds a layer.
    Download,
    /// Both at once.
    Both,
}

impl Direction {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Upload => "upload",
            Direction::Download => "download",
            Direction::Both => "both",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started for it.
    Start(start::Program),
    /// A relay that runs, and its process if it is on this machine.
    Relay(aim::Aim, Option<u32>),
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to measure.
    pub target: Target,
    /// What to measure of it.
    pub mode: Mode,
    /// Which way cells go.
    pub direction: Direction,
    /// Circuits.
    pub circuits: usize,
    /// Links on both sides together: the first half (rounded up) are ours to the target, the others
    /// its links to us. Of idle links all are ours.
    pub links: usize,
    /// Cells of a circuit in one direction that may be on their way; CREATE2 cells of a link that
    /// may be unanswered. `None`: [`default_window`].
    pub window: Option<u64>,
    /// Cells per second over all circuits, in each direction; `None` is full speed.
    pub rate: Option<f64>,
    /// How long the load is on before anything is measured.
    pub warm_up: Duration,
    /// How long to measure.
    pub seconds: Duration,
    /// Threads of the generator; no more are used than there are links on each side.
    pub threads: usize,
    /// Processors for the target; empty: all.
    pub target_cpus: Vec<usize>,
    /// Processors for the generator; empty: all.
    pub generator_cpus: Vec<usize>,
    /// How long to wait for a sign of life from the target.
    pub patience: Duration,
    /// The address of our own relays.
    pub own_ip: IpAddr,
    /// Keys and cells are functions of this.
    pub seed: u64,
}

/// The window that is used if none is given: as much as a download's circuit window on the real
/// network for few circuits; for many so little that about 20,000 cells (10 MB) are on their way in
/// all, because a relay that is the bottleneck holds most of them in its queues.
pub fn default_window(mode: Mode, circuits: usize) -> u64 {
    match mode {
        Mode::Onionskins => 32,
        _ => (20_000 / circuits.max(1) as u64).clamp(16, 500),
    }
}

/// Whether a load may be put on this address: the generator is for relays of one's own.
pub fn is_private(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}
