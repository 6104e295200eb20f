//! How a soak is made.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::relay::program::Program;

/// How a soak is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is soaked.
    pub program: Program,
    /// How long in all.
    pub length: Duration,
    /// How long one cycle lasts.
    pub cycle: Duration,
    /// How much of it is ebb. At least as long as a relay may keep what has lost its user (dead
    /// extensions: 60 s).
    pub ebb: Duration,
    /// How often the target is looked at.
    pub every: Duration,
    /// Attackers at a time.
    pub attackers: usize,
    /// What they send together at most, 10⁶ bits a second.
    pub mbits: f64,
    /// What honest circuits carry together, 10⁶ bits of payload a second.
    pub honest_mbits: f64,
    /// How long the target may take to start and to answer.
    pub patience: Duration,
    /// Everything that is drawn is a function of this.
    pub seed: u64,
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        ensure!(self.attackers > 0, "a soak needs at least one attacker");
        ensure!(
            self.mbits > 0.0 && self.mbits.is_finite(),
            "the rate of attacks must be more than 0"
        );
        ensure!(
            self.honest_mbits > 0.0 && self.honest_mbits.is_finite(),
            "the honest rate must be more than 0"
        );
        ensure!(
            self.ebb < self.cycle,
            "an ebb of {:?} leaves nothing of a cycle of {:?}",
            self.ebb,
            self.cycle
        );
        ensure!(
            self.length >= self.cycle,
            "{:?} is less than one cycle of {:?}",
            self.length,
            self.cycle
        );
        Ok(())
    }
}
