//! A token bucket: at most `rate` tokens a second on average, at most `burst` at once.
//!
//! For one owner, such as a link or a client address; threads share a limit by
//! `weft_sync::lease`. The arithmetic is exact: what less than a whole token is earned counts
//! later, however often the bucket is asked.

use std::time::{Duration, Instant};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Tokens that come at a steady rate and are kept up to a bound.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// Tokens per second.
    rate: u64,
    /// The most tokens that are kept.
    burst: u64,
    level: u64,
    /// Earned part of the next token, in billionths.
    fraction: u32,
    /// The latest time that the bucket has seen.
    now: Instant,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: u64, burst: u64, now: Instant) -> Self {
        Self {
            rate,
            burst,
            level: burst,
            fraction: 0,
            now,
        }
    }

    /// Changes the limit. Tokens past the new burst are lost; the time since the last call counts
    /// at the new rate.
    pub fn set_limit(&mut self, rate: u64, burst: u64) {
        self.rate = rate;
        self.burst = burst;
        self.level = self.level.min(burst);
    }

    /// The tokens in the bucket.
    pub fn level(&mut self, now: Instant) -> u64 {
        self.refill(now);
        self.level
    }

    /// True if the bucket is full, and so equal to a new one.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.level(now) >= self.burst
    }

    /// Takes up to `wanted` tokens, and returns how many there were.
    pub fn take(&mut self, wanted: u64, now: Instant) -> u64 {
        let taken = self.level(now).min(wanted);
        self.level -= taken;
        taken
    }

    /// Puts tokens back that were taken and not used.
    pub fn give_back(&mut self, tokens: u64) {
        self.level = self.level.saturating_add(tokens).min(self.burst);
    }

    /// Time until `wanted` tokens (or a full bucket) are available, if none are taken until then.
    /// `None`: never, because the rate is 0.
    pub fn ready_in(&mut self, wanted: u64, now: Instant) -> Option<Duration> {
        let missing = wanted.min(self.burst).saturating_sub(self.level(now));
        if missing == 0 {
            return Some(Duration::ZERO);
        }
        let missing = u128::from(missing) * NANOS_PER_SEC - u128::from(self.fraction);
        let nanoseconds = missing.div_ceil(u128::from(self.rate).max(1));
        let wait = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        (self.rate > 0).then_some(wait)
    }

    /// Adds what has been earned since the last time. A clock that jumps back earns nothing, and
    /// nothing twice when it gets there again.
    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.now);
        self.now = self.now.max(now);
        let earned = elapsed
            .as_nanos()
            .saturating_mul(u128::from(self.rate))
            .saturating_add(u128::from(self.fraction));
        let tokens = u64::try_from(earned / NANOS_PER_SEC).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add(tokens).min(self.burst);
        // A full bucket earns nothing.
        self.fraction = if self.level < self.burst {
            u32::try_from(earned % NANOS_PER_SEC).unwrap_or(0)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MSEC: Duration = Duration::from_millis(1);

    #[test]
    fn a_bucket_starts_full_and_fills_at_its_rate() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(1_000, 5_000, now);
        assert_eq!(bucket.take(6_000, now), 5_000);
        assert_eq!(bucket.take(1, now), 0);
        assert_eq!(bucket.ready_in(20, now), Some(20 * MSEC));
        assert_eq!(bucket.take(100, now + 20 * MSEC), 20);
        assert_eq!(bucket.level(now + 3_020 * MSEC), 3_000);
        assert_eq!(bucket.level(now + 60_000 * MSEC), 5_000);
        assert!(bucket.is_full(now + 60_000 * MSEC));
    }

    #[test]
    fn fractions_of_tokens_are_not_lost() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(3, 100, start);
        bucket.take(100, start);
        // Asked every millisecond, when 0.003 of a token have come.
        let taken: u64 = (1..=10_000)
            .map(|n| bucket.take(10, start + n * MSEC))
            .sum();
        assert_eq!(taken, 30);
    }

    #[test]
    fn a_clock_that_jumps_back_is_harmless() {
        let start = Instant::now();
        let later = start + 10_000 * MSEC;
        let mut bucket = TokenBucket::new(10, 100, start);
        bucket.take(100, later);
        assert_eq!(bucket.take(100, start), 0);
        assert_eq!(bucket.take(100, later), 0, "no second is earned twice");
        assert_eq!(bucket.take(100, later + 1_000 * MSEC), 10);
    }

    #[test]
    fn a_lower_limit_takes_effect_at_once() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(10, 100, now);
        bucket.set_limit(5, 20);
        assert_eq!(bucket.take(100, now), 20);
        assert_eq!(bucket.take(100, now + 1_000 * MSEC), 5);
        bucket.give_back(50);
        assert_eq!(bucket.level(now + 1_000 * MSEC), 20);
    }

    #[test]
    fn a_rate_of_zero_never_fills() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(0, 1, now);
        assert_eq!(bucket.take(1, now), 1);
        assert_eq!(bucket.ready_in(1, now), None);
        assert_eq!(bucket.ready_in(0, now), Some(Duration::ZERO));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_comes_out_is_exactly_what_the_time_brings(
            rate in 0..1_000_000_u64,
            waits in proptest::collection::vec(0..100_000_000_u64, 0..100),
        ) {
            let mut now = Instant::now();
            let start = now;
            // Never full, so that nothing spills.
            let burst = 1_000_000_000_000;
            let mut bucket = TokenBucket::new(rate, burst, now);
            let mut taken = u128::from(bucket.take(burst, now));
            for wait in waits {
                now += Duration::from_nanos(wait);
                let ready = bucket.ready_in(1, now);
                taken += u128::from(bucket.take(burst, now));
                let earned = now.duration_since(start).as_nanos() * u128::from(rate) / NANOS_PER_SEC;
                prop_assert_eq!(taken, u128::from(burst) + earned);
                if let Some(ready) = ready && ready > Duration::ZERO {
                    prop_assert_eq!(bucket.clone().level(now + ready), 1);
                    prop_assert_eq!(bucket.clone().level(now + ready - Duration::from_nanos(1)), 0);
                }
            }
        }
    }
}
