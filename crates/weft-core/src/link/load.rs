//! Recent load of a connection thread. The thread measures the bytes that it reads and writes and
//! reports them to the controller, which gives new links to the least loaded thread
//! ([`Placement`](crate::moves::placement::Placement)).

use std::time::{Duration, Instant};

/// Half-life of the bytes that a thread has carried.
pub(crate) const HALF_LIFE: Duration = Duration::from_secs(10);

/// An exponentially weighted average of the bytes that a thread carries.
#[derive(Debug, Clone)]
pub struct Load {
    /// Bytes since `counted_at`, not in the average yet: the path of a cell only adds here.
    pending: u64,
    counted_at: Instant,
    bytes_per_second: f64,
}

impl Load {
    /// The load of a thread that has carried nothing.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            pending: 0,
            counted_at: now,
            bytes_per_second: 0.0,
        }
    }

    /// Counts bytes that were read or written.
    pub fn add(&mut self, bytes: u64) {
        self.pending = self.pending.saturating_add(bytes);
    }

    /// The average as of `now`, in bytes per second. To be asked a few times a second: the bytes
    /// since the last time count as if they had come evenly.
    pub fn bytes_per_second(&mut self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.counted_at).as_secs_f64();
        if elapsed > 0.0 {
            #[allow(clippy::cast_precision_loss)] // an estimate
            let recent = std::mem::take(&mut self.pending) as f64 / elapsed;
            let kept = (-elapsed / HALF_LIFE.as_secs_f64()).exp2();
            self.bytes_per_second = recent + (self.bytes_per_second - recent) * kept;
            self.counted_at = now;
        }
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn a_steady_load_is_measured_as_it_is() {
        let mut now = Instant::now();
        let mut load = Load::new(now);
        for _ in 0..100 {
            now += SEC;
            load.add(40_000);
            load.add(10_000);
            load.bytes_per_second(now);
        }
        let measured = load.bytes_per_second(now);
        assert!((49_900.0..=50_000.0).contains(&measured), "{measured}");
    }

    #[test]
    fn a_load_that_ends_is_halved_every_half_life() {
        let mut now = Instant::now();
        let mut load = Load::new(now);
        now += 10 * HALF_LIFE;
        load.add(1_000_000_000);
        let before = load.bytes_per_second(now);
        let after = load.bytes_per_second(now + HALF_LIFE);
        assert!((after / before - 0.5).abs() < 1e-9);
        assert_eq!(
            load.bytes_per_second(now),
            after,
            "a clock that jumps back changes nothing"
        );
    }
}
