//! When to fetch the next consensus, and how long to wait after a failure.
//!
//! dir-spec 4.1 and 5.1: relays that serve or depend on fresh directory information fetch at a
//! random moment in the first half interval after the consensus stops being fresh; failures are
//! repeated by "exponential backoff with decorrelated jitter" (dir-spec 5.5; C tor `dlstatus.c`).

use std::time::{Duration, SystemTime};

use rand::{Rng, RngExt as _};

/// Authorities get this long to agree before relays and clients ask (`CONSENSUS_MIN_SECONDS_BEFORE_CACHING`).
const MIN_BEFORE_FETCHING: Duration = Duration::from_secs(120);
/// The interval within which a consensus is fetched extra early (`FetchDirInfoExtraEarly`).
const EXTRA_EARLY: Duration = Duration::from_secs(60);

/// Earlier fetching of documents than that of other nodes of the same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Earliness {
    /// As others do.
    #[default]
    Usual,
    /// A client fetches as caches do, from the authorities (`FetchDirInfoEarly`).
    Early,
    /// And before most of them (`FetchDirInfoExtraEarly`).
    ExtraEarly,
}

/// The moment at which to fetch the successor of a consensus with this lifetime.
///
/// Never before it stops being fresh and always before it ends, also in private networks whose
/// intervals are seconds.
pub(crate) fn next_consensus_fetch(
    valid_after: SystemTime,
    fresh_until: SystemTime,
    valid_until: SystemTime,
    extra_early: bool,
    rng: &mut impl Rng,
) -> SystemTime {
    let second = Duration::from_secs(1);
    let interval = fresh_until.duration_since(valid_after).unwrap_or_default();
    let slack = MIN_BEFORE_FETCHING.min(interval / 16).max(second);
    let window = match extra_early && slack + EXTRA_EARLY <= interval {
        true => EXTRA_EARLY,
        false => (interval / 2).max(second),
    };
    let mut start = fresh_until + slack;
    // A start so late that the window passes the end happens only with intervals of seconds.
    if start + window >= valid_until {
        start = valid_until
            .checked_sub(window + second)
            .unwrap_or(fresh_until)
            .max(fresh_until);
    }
    start + window.mul_f64(rng.random::<f64>())
}

/// The moment at which a client fetches the successor of a consensus. It leaves the caches time to
/// fetch it first (dir-spec 5.1; C tor `update_consensus_networkstatus_fetch_time_impl`): from
/// three quarters of an interval after the consensus stops being fresh, within seven eighths of the
/// remaining time.
pub(crate) fn next_client_fetch(
    valid_after: SystemTime,
    fresh_until: SystemTime,
    valid_until: SystemTime,
    rng: &mut impl Rng,
) -> SystemTime {
    let second = Duration::from_secs(1);
    let interval = fresh_until.duration_since(valid_after).unwrap_or_default();
    let mut start = fresh_until + interval * 3 / 4;
    let left = valid_until.duration_since(start).unwrap_or_default();
    let window = (left * 7 / 8).max(second);
    if start + window >= valid_until {
        start = valid_until
            .checked_sub(window + second)
            .unwrap_or(fresh_until)
            .max(fresh_until);
    }
    start + window.mul_f64(rng.random::<f64>())
}

/// Growing, randomised delays between attempts at the same thing.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    /// Smallest delay.
    base: Duration,
    /// Largest delay.
    cap: Duration,
    /// The delay before, zero after a success.
    last: Duration,
}

impl Backoff {
    /// Delays from `base` (one second at least) to `cap`.
    pub(crate) fn new(base: Duration, cap: Duration) -> Self {
        let base = base.max(Duration::from_secs(1));
        Self {
            base,
            cap: cap.max(base),
            last: Duration::ZERO,
        }
    }

    /// Records one more failure; returns the delay until the next attempt.
    pub(crate) fn failed(&mut self, rng: &mut impl Rng) -> Duration {
        let high = (self.last * 3).max(self.base + Duration::from_secs(1));
        let spread = high.saturating_sub(self.base);
        self.last = (self.base + spread.mul_f64(rng.random::<f64>())).min(self.cap);
        self.last
    }

    /// It worked: the next failure waits shortly again.
    pub(crate) fn succeeded(&mut self) {
        self.last = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    proptest! {
        #[test]
        fn a_fetch_falls_after_freshness_and_before_the_end(
            fresh in 5_u64..86_400, extra in 3_u64..86_400, seed: u64,
        ) {
            let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + s);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let valid_until = at(fresh + extra);
            let when = next_consensus_fetch(at(0), at(fresh), valid_until, false, &mut rng);
            let early = next_consensus_fetch(at(0), at(fresh), valid_until, true, &mut rng);
            prop_assert!(early >= at(fresh));
            prop_assert!(when >= at(fresh));
            let window = Duration::from_secs(fresh) / 2;
            if extra > window.as_secs() + 1 {
                prop_assert!(when < valid_until);
            }
            let when = next_client_fetch(at(0), at(fresh), valid_until, &mut rng);
            prop_assert!(at(fresh) <= when && when < valid_until);
        }

        #[test]
        fn delays_stay_within_base_and_cap(seed: u64, base in 0_u64..100, cap in 0_u64..10_000) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut backoff = Backoff::new(Duration::from_secs(base), Duration::from_secs(cap));
            for _ in 0..50 {
                let delay = backoff.failed(&mut rng);
                prop_assert!(delay >= Duration::from_secs(base.max(1)));
                prop_assert!(delay <= Duration::from_secs(cap.max(base).max(1)));
            }
        }
    }

    #[test]
    fn an_hourly_consensus_is_fetched_within_the_first_half_hour_of_staleness() {
        let at = |minutes: u64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + minutes * 60)
        };
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..100 {
            let when = next_consensus_fetch(at(0), at(60), at(180), false, &mut rng);
            assert!((at(62)..at(92)).contains(&when));
            let early = next_consensus_fetch(at(0), at(60), at(180), true, &mut rng);
            assert!((at(62)..at(63)).contains(&early));
        }
    }

    #[test]
    fn a_client_fetches_an_hourly_consensus_when_the_caches_have_it_and_before_its_end() {
        let at = |minutes: u64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + minutes * 60)
        };
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..100 {
            let when = next_client_fetch(at(0), at(60), at(180), &mut rng);
            assert!((at(105)..at(171)).contains(&when));
        }
    }

    #[test]
    fn a_success_forgets_the_failures_before_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3600));
        for _ in 0..20 {
            backoff.failed(&mut rng);
        }
        backoff.succeeded();
        assert!(backoff.failed(&mut rng) <= Duration::from_secs(2));
    }
}
