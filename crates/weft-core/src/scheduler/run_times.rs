//! When a thread's scheduler runs.

use std::time::{Duration, Instant};

/// The longest time between runs of the scheduler while every link has room for all that waits for it.
/// KISTSchedRunInterval lets cells of many circuits gather, so that the most urgent go first; where all
/// go at once there is no first. Some gathering remains: with none each cell is a write of its own
/// (docs/performance.md).
const UNCONTENDED: Duration = Duration::from_micros(500);

/// When the scheduler ran last, and when it may run again.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTimes {
    last: Option<Instant>,
    /// That run left cells for which some link had no room.
    contended: bool,
}

impl RunTimes {
    /// How long after a run the next one may be; `interval` is KISTSchedRunInterval.
    #[must_use]
    pub fn interval(&self, interval: Duration) -> Duration {
        match self.contended {
            true => interval,
            false => interval.min(UNCONTENDED),
        }
    }

    /// Whether it may run now.
    #[must_use]
    pub fn is_due(&self, interval: Duration, now: Instant) -> bool {
        let wait = self.interval(interval);
        self.last
            .is_none_or(|last| now.saturating_duration_since(last) >= wait)
    }

    /// It ran; `contended`: it left cells for which some link had no room.
    pub fn ran(&mut self, now: Instant, contended: bool) {
        self.last = Some(now);
        self.contended = contended;
    }

    /// When it may run again; `None`: at once.
    #[must_use]
    pub fn next(&self, interval: Duration) -> Option<Instant> {
        Some(self.last? + self.interval(interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_gather_where_links_have_no_room_for_all() {
        let interval = Duration::from_millis(10);
        let start = Instant::now();
        let mut times = RunTimes::default();
        assert!(times.is_due(interval, start) && times.next(interval).is_none());
        times.ran(start, false);
        assert!(!times.is_due(interval, start));
        assert_eq!(times.next(interval), Some(start + UNCONTENDED));
        assert!(times.is_due(interval, start + UNCONTENDED));
        times.ran(start, true);
        assert_eq!(times.next(interval), Some(start + interval));
        // A shorter interval of the operator's holds in both cases.
        let short = Duration::from_micros(100);
        assert_eq!(times.interval(short), short);
        times.ran(start, false);
        assert_eq!(times.interval(short), short);
    }
}
