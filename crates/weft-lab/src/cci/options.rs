//! The settings of `weft lab cci`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use weft_model::links::{Rate, Topology};

use super::plan::Choice;
use super::scenario::Scenario;

/// Settings of the experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// In virtual time.
    pub(super) is_virtual: bool,
    pub(super) choice: Choice,
    pub(super) cell: Duration,
    pub(super) warm_up: Duration,
    /// Faster links have this rate.
    pub(super) at_most: Option<Rate>,
    pub(super) circuits: usize,
    pub(super) seed: u64,
    pub(super) patience: Duration,
    pub(super) weft: PathBuf,
}

impl Options {
    /// The links of a scenario, none faster than asked for.
    pub(super) fn links(&self, scenario: Scenario) -> Result<Topology> {
        let topology = scenario.topology()?;
        Ok(match self.at_most {
            Some(rate) => topology.at_most(rate),
            None => topology,
        })
    }
}
