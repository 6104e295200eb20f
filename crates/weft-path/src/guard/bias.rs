//! Counters of circuits that fail beyond a guard (path-spec 7; C tor: circpathbias.c).
//!
//! A guard that lets circuits to others fail and those to its friends through would show by these.
//! C tor only logs it, unless `PathBiasDropGuards` is set; so does Weft.

use crate::options::PathBiasOptions;

/// Counters of the ends of circuits through a guard. They are fractions, since they are halved now
/// and then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathBias {
    /// Circuits that streams were tried on.
    pub(super) use_attempts: f64,
    /// Circuits on which a stream worked.
    pub(super) use_successes: f64,
    /// Circuits whose first hop was built.
    pub(super) circ_attempts: f64,
    /// Circuits that were built.
    pub(super) circ_successes: f64,
    /// Built circuits that ended as they should.
    pub(super) successful_circuits_closed: f64,
    /// Built circuits that the network ended.
    pub(super) collapsed_circuits: f64,
    /// Circuits on which no stream worked.
    pub(super) unusable_circuits: f64,
    /// Circuits that took too long to build.
    pub(super) timeouts: f64,
}

/// Degree of suspicion against a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspicion {
    /// Fewer of its circuits succeed than one would think.
    Low,
    /// Much fewer.
    VeryLow,
    /// So few that it may be an attack.
    Extreme,
}

impl PathBias {
    /// The record with the open circuits counted in: the numbers that were of use, and that may end
    /// well.
    pub(super) fn with_open(mut self, (of_use, well): (f64, f64)) -> Self {
        self.use_successes += of_use;
        self.successful_circuits_closed += well;
        self
    }

    /// The suspicion that the share of circuits that ended well raises.
    pub(super) fn judge_circuits(&self, options: &PathBiasOptions) -> Option<Suspicion> {
        if self.circ_attempts <= options.circ_threshold {
            return None;
        }
        let rate = self.successful_circuits_closed.max(0.0) / self.circ_attempts;
        if rate < options.extreme_rate {
            Some(Suspicion::Extreme)
        } else if rate < options.warn_rate {
            Some(Suspicion::VeryLow)
        } else if rate < options.notice_rate {
            Some(Suspicion::Low)
        } else {
            None
        }
    }

    /// The suspicion that the share of circuits that streams could use raises.
    pub(super) fn judge_uses(&self, options: &PathBiasOptions) -> Option<Suspicion> {
        if self.use_attempts <= options.use_threshold {
            return None;
        }
        let rate = self.use_successes / self.use_attempts;
        if rate < options.extreme_use_rate {
            Some(Suspicion::Extreme)
        } else if rate < options.notice_use_rate {
            Some(Suspicion::Low)
        } else {
            None
        }
    }

    /// Makes counters smaller that have become large, so that what is new counts more.
    pub(super) fn scale(&mut self, options: &PathBiasOptions) {
        if self.circ_attempts > options.scale_threshold {
            for counter in [
                &mut self.circ_attempts,
                &mut self.circ_successes,
                &mut self.timeouts,
                &mut self.successful_circuits_closed,
                &mut self.collapsed_circuits,
                &mut self.unusable_circuits,
            ] {
                *counter *= options.scale_ratio;
            }
        }
        if self.use_attempts > options.scale_use_threshold {
            self.use_attempts *= options.scale_ratio;
            self.use_successes *= options.scale_ratio;
        }
    }
}
