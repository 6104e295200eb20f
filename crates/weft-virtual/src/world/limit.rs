//! A relay's own limit: BandwidthRate and BandwidthBurst, for what it reads and for what it writes.

use std::time::{Duration, Instant};

use weft_core::limits::bucket::TokenBucket;

/// Less than this is not worth a turn.
const LEAST: u64 = 4_096;

/// Both directions of a relay, whose threads share them.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) read: Limit,
    pub(super) write: Limit,
}

impl Limits {
    pub(super) fn new(limit: Option<(u64, u64)>, now: Instant) -> Limits {
        let one = || Limit {
            bucket: limit.map(|(rate, burst)| TokenBucket::new(rate, burst, now)),
            refused: false,
        };
        Limits {
            read: one(),
            write: one(),
        }
    }

    /// True if one of them was out of tokens since the last call.
    pub(super) fn take_refused(&mut self) -> bool {
        let (read, write) = (&mut self.read.refused, &mut self.write.refused);
        std::mem::take(read) | std::mem::take(write)
    }
}

/// One direction.
#[derive(Debug)]
pub(super) struct Limit {
    bucket: Option<TokenBucket>,
    /// It had nothing to give lately.
    refused: bool,
}

impl Limit {
    /// Up to so many bytes may be moved now, or how long to wait.
    pub(super) fn take(&mut self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        let Some(bucket) = &mut self.bucket else {
            return Ok(wanted);
        };
        let wanted = wanted as u64;
        let least = LEAST.min(wanted);
        if bucket.level(now) < least {
            self.refused = true;
            let wait = bucket.ready_in(least, now);
            // A rate of 0 never gives any: look again now and then, as the time to stop comes.
            return Err(wait.unwrap_or(Duration::from_secs(1)));
        }
        Ok(usize::try_from(bucket.take(wanted, now)).unwrap_or(0))
    }

    /// So many of the bytes that were taken were not moved.
    pub(super) fn give_back(&mut self, unused: usize) {
        if let Some(bucket) = &mut self.bucket {
            bucket.give_back(unused as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_lets_its_rate_through() {
        let start = Instant::now();
        let mut limits = Limits::new(Some((100_000, 10_000)), start);
        let (mut now, mut moved) = (start, 0);
        while now < start + Duration::from_secs(10) {
            match limits.read.take(3_000, now) {
                Ok(count) => {
                    moved += count - 500;
                    limits.read.give_back(500);
                }
                Err(wait) => now += wait,
            }
        }
        assert!((1_000_000..=1_020_000).contains(&moved), "{moved}");
        assert_eq!(Limits::new(None, start).write.take(7, start), Ok(7));
    }
}
