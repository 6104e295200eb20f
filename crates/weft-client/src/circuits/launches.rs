//! Limits on the rate of launching circuits while they fail.

use std::time::{Duration, Instant};

/// Failures within a `NewCircuitPeriod` after which circuits are begun more slowly
/// (C tor's MAX_CIRCUIT_FAILURES).
const MAX_FAILURES: u32 = 5;

/// Counts circuits that failed, and decides whether another may be begun now.
///
/// Call [`note_launch`](Self::note_launch), [`note_failure`](Self::note_failure) and
/// [`note_success`](Self::note_success) for each circuit, [`tick`](Self::tick) once a second.
#[derive(Debug)]
pub(crate) struct Launches {
    /// Failures in this period.
    failures: u32,
    /// Failures since the last tick.
    failures_since_tick: u32,
    /// The start of the period.
    period: Instant,
    /// The time of the last launch of a circuit of several hops.
    last: Instant,
    /// The period before had too many failures, too.
    failed_last_period: bool,
}

impl Launches {
    pub(crate) fn new(now: Instant) -> Self {
        Launches {
            failures: 0,
            failures_since_tick: 0,
            period: now,
            last: now,
            failed_last_period: false,
        }
    }

    /// A circuit of several hops was begun.
    pub(crate) fn note_launch(&mut self, now: Instant) {
        self.last = now;
    }

    /// A circuit failed while it was built.
    pub(crate) fn note_failure(&mut self) {
        self.failures += 1;
        self.failures_since_tick += 1;
    }

    /// A circuit took too long and is only measured from now on.
    pub(crate) fn note_timeout(&mut self) {
        self.failures += 1;
    }

    /// A circuit of several hops is open.
    pub(crate) fn note_success(&mut self) {
        self.failures = 0;
        self.failed_last_period = false;
    }

    /// Drops the failures of this period (NEWNYM).
    pub(crate) fn forgive(&mut self) {
        self.failures = 0;
    }

    /// Starts a new period when `period` is over.
    pub(crate) fn tick(&mut self, period: Duration, now: Instant) {
        self.failures_since_tick = 0;
        if now.saturating_duration_since(self.period) >= period {
            self.period = now;
            self.failed_last_period = self.failures > MAX_FAILURES;
            self.failures = 0;
        }
    }

    /// Returns true if circuits fail so often that none should be launched now: not in this second,
    /// or, after two such periods, not within a tenth of a period after the last. C tor waits for
    /// the next period, up to half a minute; but its failures take longer than those of a network
    /// on one machine that is about to start, and ten circuits in a period are no burden.
    pub(crate) fn is_paused(&self, period: Duration, now: Instant) -> bool {
        let seldom = self.failures > MAX_FAILURES && self.failed_last_period;
        let since = now.saturating_duration_since(self.last);
        seldom && since < period / 10 || self.failures_since_tick > MAX_FAILURES
    }
}
