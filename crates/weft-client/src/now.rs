//! The time as an argument.

use std::time::{Duration, Instant, SystemTime};

/// The time of an event, by both clocks. The caller reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock, for durations.
    pub mono: Instant,
    /// The time of day, for output and storage.
    pub wall: SystemTime,
}

impl Now {
    /// The duration since `then`; zero if `then` is in the future.
    pub(crate) fn since(&self, then: Instant) -> Duration {
        self.mono.saturating_duration_since(then)
    }
}
