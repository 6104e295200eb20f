//! Time as an argument.

use std::time::Duration;

/// A point in time: nanoseconds since the network began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// When the network began.
    pub const START: Moment = Moment(0);

    /// So many nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    /// So long after the start; past 584 years it stays there.
    #[must_use]
    pub fn after_start(elapsed: Duration) -> Moment {
        Moment(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds later.
    #[must_use]
    pub const fn plus(self, nanos: u64) -> Moment {
        Moment(self.0.saturating_add(nanos))
    }

    /// Time from `earlier` to this; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
