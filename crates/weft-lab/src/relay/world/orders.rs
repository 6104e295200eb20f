//! State shared by the conductor and the worlds: its orders, and their reports.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use crate::relay::latency::Latencies;

/// The conductor's order to the worlds. Stages follow in this order; some may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::relay) enum Stage {
    /// Wait.
    Wait,
    /// Open half of the links.
    LinkHalf,
    /// Open the links.
    Link,
    /// Build half of the circuits, and one over each link at least, so that all links are there.
    BuildHalf,
    /// Build all circuits.
    Build,
    /// Drive cells, or what the mode asks for.
    Run,
    /// Go on; what happens now is measured.
    Measure,
    /// Send nothing new; wait for what is on its way.
    Drain,
    /// End.
    Stop,
}

const STAGES: [Stage; 9] = [
    Stage::Wait,
    Stage::LinkHalf,
    Stage::Link,
    Stage::BuildHalf,
    Stage::Build,
    Stage::Run,
    Stage::Measure,
    Stage::Drain,
    Stage::Stop,
];

/// The stage that all worlds shall be in. After [`Stage::Drain`] another round may come, at another rate.
#[derive(Debug)]
pub(in crate::relay) struct SharedStage {
    /// The stage, and above its byte the number of the round.
    stage: AtomicU64,
    /// The bits of the rate over all worlds, in cells per second; 0 at full speed.
    rate: AtomicU64,
}

impl SharedStage {
    pub(in crate::relay) fn new() -> SharedStage {
        SharedStage {
            stage: AtomicU64::new(Stage::Wait as u64),
            rate: AtomicU64::new(0),
        }
    }

    /// The next stage of this round. Only the conductor calls this and [`begin_round`](Self::begin_round).
    pub(in crate::relay) fn set(&self, stage: Stage) {
        let round = self.stage.load(Ordering::Relaxed) >> 8;
        self.stage
            .store(round << 8 | stage as u64, Ordering::Release);
    }

    /// [`Stage::Run`] of another round.
    pub(in crate::relay) fn begin_round(&self, rate: Option<f64>) {
        let round = (self.stage.load(Ordering::Relaxed) >> 8) + 1;
        self.rate
            .store(rate.map_or(0, f64::to_bits), Ordering::Relaxed);
        self.stage
            .store(round << 8 | Stage::Run as u64, Ordering::Release);
    }

    /// The round, and its stage.
    pub(super) fn get(&self) -> (u64, Stage) {
        let word = self.stage.load(Ordering::Acquire);
        let stage = STAGES.get((word & 0xff) as usize);
        (word >> 8, stage.copied().unwrap_or(Stage::Stop))
    }

    pub(super) fn rate(&self) -> Option<f64> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits)),
        }
    }
}

/// Counters of a world, published once in a turn of its loop.
#[derive(Debug, Default)]
pub(in crate::relay) struct Counters {
    /// Cells that arrived at next hops.
    pub(in crate::relay) upload: AtomicU64,
    /// Cells that arrived at origins.
    pub(in crate::relay) download: AtomicU64,
    /// Cells that were sent, both ways.
    pub(in crate::relay) sent: AtomicU64,
    /// Circuits made and links opened: what setting up and the other modes count.
    pub(in crate::relay) events: AtomicU64,
    /// Counters of the live mix while cells were driven.
    pub(in crate::relay) churn: Churn<AtomicU64>,
}

/// Openings and closings in the live mix.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::relay) struct Churn<T> {
    /// Circuits made, and circuits that were destroyed because their time was over.
    pub(in crate::relay) circuits_made: T,
    pub(in crate::relay) circuits_ended: T,
    /// Links opened, and links closed, on both sides.
    pub(in crate::relay) links_opened: T,
    pub(in crate::relay) links_closed: T,
}

impl Churn<AtomicU64> {
    pub(in crate::relay) fn load(&self) -> Churn<u64> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Churn {
            circuits_made: load(&self.circuits_made),
            circuits_ended: load(&self.circuits_ended),
            links_opened: load(&self.links_opened),
            links_closed: load(&self.links_closed),
        }
    }

    pub(super) fn store(&self, churn: Churn<u64>) {
        let store = |count: &AtomicU64, value| count.store(value, Ordering::Relaxed);
        store(&self.circuits_made, churn.circuits_made);
        store(&self.circuits_ended, churn.circuits_ended);
        store(&self.links_opened, churn.links_opened);
        store(&self.links_closed, churn.links_closed);
    }
}

/// Times that a world measured in a round.
#[derive(Clone, Debug)]
pub(in crate::relay) struct Timed {
    /// Latency of cells.
    pub(in crate::relay) cells: Latencies,
    /// Delay with which the generator noticed that cells were due: its own part of the latency.
    pub(in crate::relay) late: Latencies,
}

impl Timed {
    pub(in crate::relay) fn new() -> Timed {
        Timed {
            cells: Latencies::new(),
            late: Latencies::new(),
        }
    }

    pub(in crate::relay) fn add(&mut self, other: &Timed) {
        self.cells.add(&other.cells);
        self.late.add(&other.late);
    }
}

/// Report of a world to the conductor.
#[derive(Debug)]
pub(in crate::relay) enum News {
    /// Its keys are made and its next hops listen.
    Prepared,
    /// It has done what its stage asked for.
    Done(Stage),
    /// All cells of a round have arrived: what was timed in it. Before [`News::Done`] of [`Stage::Drain`].
    Timed(Box<Timed>),
    /// It has ended, what was timed in a round that did not come to its end, and why it ended if it should not have.
    Ended(Box<Timed>, Result<()>),
}
