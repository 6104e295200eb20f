//! Targets, repetitions and rule of an experiment.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use weft_testnet::network::Program;

use super::meter::INTERVAL;
use super::sizes::{MEMORY_OF_A_NODE, Sizes, free_memory};
use super::streams;
use super::sustained::Rule;
use super::which::Which;

/// An experiment to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Programs in the middle.
    pub targets: Vec<Which>,
    /// The `weft` that is run.
    pub weft: PathBuf,
    /// Table 1's name for the sizes that were scaled.
    pub setting: String,
    /// The scale.
    pub scale: f64,
    /// The sizes after scaling.
    pub sizes: Sizes,
    /// Measurements of each target.
    pub repetitions: u32,
    /// Rule for finding the throughput.
    pub rule: Rule,
    /// Payloads are functions of this.
    pub seed: u64,
    /// Entries and exits are Weft, and not C tor: they then leave more processor time to the target.
    pub weft_around: bool,
    /// Processors for the target; empty: all.
    pub target_cpus: Vec<usize>,
    /// Processors for all other nodes and this program; empty: all.
    pub other_cpus: Vec<usize>,
}

impl Options {
    /// The first thing that is wrong.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = self.sizes;
        ensure!(!self.targets.is_empty(), "name at least one target");
        for (place, target) in self.targets.iter().enumerate() {
            let again = self.targets.iter().skip(place + 1).any(|one| one == target);
            ensure!(!again, "{target} is named twice");
        }
        ensure!(self.repetitions > 0, "0 repetitions measure nothing");
        ensure!(
            sizes.clients > 0
                && sizes.entries > 0
                && sizes.exits > 0
                && sizes.streams_per_client > 0,
            "at least one client proxy, entry, exit and stream are needed"
        );
        ensure!(
            sizes.bytes_per_stream >= streams::LEAST,
            "a stream has at least {} bytes",
            streams::LEAST
        );
        ensure!(
            self.rule.window_s >= INTERVAL.as_secs_f64() && self.rule.discard_s >= 0.0,
            "the window is at least {} s, the time of a reading",
            INTERVAL.as_secs_f64()
        );
        let need = sizes.nodes() as u64 * MEMORY_OF_A_NODE;
        let free = free_memory();
        ensure!(
            need <= free || free == 0,
            "{} nodes take about {:.1} GB of memory, and {:.1} are free: choose a smaller --scale",
            sizes.nodes(),
            need as f64 * 1e-9,
            free as f64 * 1e-9
        );
        Ok(())
    }

    pub(super) fn program(&self, which: Which) -> Result<Program> {
        match which {
            Which::Tor => Program::tor(),
            Which::Weft(threads) => Program::weft(&self.weft, threads),
        }
    }
}
