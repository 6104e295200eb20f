//! Settings of a soak.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::relay::program::Program;

/// Settings of a soak.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program of the target.
    pub program: Program,
    /// Length of the soak.
    pub length: Duration,
    /// Length of one cycle.
    pub cycle: Duration,
    /// The part of a cycle that is ebb. At least as long as a relay may keep state that has lost
    /// its user (dead extensions: 60 s).
    pub ebb: Duration,
    /// Interval at which the target is sampled.
    pub every: Duration,
    /// Attackers at a time.
    pub attackers: usize,
    /// Highest rate of all attackers together, 10⁶ bits a second.
    pub mbits: f64,
    /// Load of all honest circuits together, 10⁶ bits of payload a second.
    pub honest_mbits: f64,
    /// Longest time that the target may take to start and to answer.
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
