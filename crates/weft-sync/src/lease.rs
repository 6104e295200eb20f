//! The relay's bandwidth limit, shared by all threads without a lock.
//!
//! A [`LeasePool`] is two token buckets, one for reading and one for writing: each fills with
//! `rate` bytes a second up to `burst` bytes. A thread does not ask it for every read or write. It
//! has a [`Lease`], takes some milliseconds' worth from the pool at a time, and spends that alone;
//! so the pool, which all threads write to, is touched some hundred times a second.
//!
//! Each thread gets at most its equal share of a bucket's level at a time, so that a thread that
//! always asks first does not starve the others where bandwidth is scarce. It gets the bytes that
//! the others leave by asking again.
//!
//! Guarantee: from any moment on, no more leaves a bucket, over all threads, than what it holds (at
//! most `burst`) plus `rate` for the time that passes. And what a thread does not need goes back:
//! all of it when the thread is about to sleep ([`Lease::release`]), and within half a second when
//! it is awake but busy with other things ([`Lease::expire`]). A thread whose clock reading is old,
//! or jumped back, is given less, never more.

use std::time::{Duration, Instant};

use crate::sys::{Arc, AtomicI64, AtomicU64, Ordering};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Time after which a thread that calls [`Lease::expire`] returns an unused lease.
const LEASE_LIFE: Duration = Duration::from_millis(500);

/// The share of a second that a lease is for: 1/256, some 4 ms.
const LEASES_PER_SECOND: u64 = 256;

/// The least that a lease asks for, in bytes: some eight cells.
const QUANTUM: u64 = 4_096;

/// The longest time that is computed with, some 36 years in nanoseconds: sums of two still fit
/// into an `i64`.
const FOREVER: i64 = i64::MAX / 8;

/// Bandwidth that all threads share, for reading and for writing.
#[derive(Debug)]
pub struct LeasePool {
    /// Time zero of the buckets' clock.
    origin: Instant,
    read: Bucket,
    write: Bucket,
    /// Number of leases.
    leases: AtomicU64,
}

impl LeasePool {
    /// Two full buckets of `burst` bytes that gain `rate` bytes a second from `now` on. A rate of
    /// 0 counts as 1.
    #[must_use]
    pub fn new(rate: u64, burst: u64, now: Instant) -> Self {
        Self {
            origin: now,
            read: Bucket::new(rate, burst),
            write: Bucket::new(rate, burst),
            leases: AtomicU64::new(0),
        }
    }

    /// Changes the limit from now on; the buckets stay as full as they were, in time. A thread
    /// that takes in the same moment may see one new number and one old.
    pub fn set_limit(&self, rate: u64, burst: u64) {
        self.read.set_limit(rate, burst);
        self.write.set_limit(rate, burst);
    }

    /// The limit: bytes per second, and bytes at once.
    #[must_use]
    pub fn limit(&self) -> (u64, u64) {
        self.read.limit()
    }

    /// Levels of the buckets for reading and for writing, in bytes.
    #[must_use]
    pub fn levels(&self, now: Instant) -> (u64, u64) {
        let now = self.nanoseconds(now);
        (self.read.level(now), self.write.level(now))
    }

    /// The time since the pool was made, as the number that the buckets compute with.
    fn nanoseconds(&self, now: Instant) -> i64 {
        at_most_forever(now.saturating_duration_since(self.origin).as_nanos())
    }

    fn leases(&self) -> u64 {
        self.leases.load(Ordering::Relaxed).max(1)
    }
}

/// One thread's share of a [`LeasePool`]. Dropping it gives everything back.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<LeasePool>,
    read: Share,
    write: Share,
    /// When something was last taken.
    used_at: Option<Instant>,
}

impl Lease {
    /// An empty share of the pool.
    #[must_use]
    pub fn new(pool: Arc<LeasePool>) -> Self {
        pool.leases.fetch_add(1, Ordering::Relaxed);
        Self {
            pool,
            read: Share::default(),
            write: Share::default(),
            used_at: None,
        }
    }

    /// Asks to read `wanted` bytes now. Returns how many may be read, from 0 to `wanted`; 0 means
    /// to wait for [`Lease::retry_after`]. Return bytes that are not read by
    /// [`Lease::give_back_read`].
    #[must_use = "the bytes are counted as read"]
    pub fn take_read(&mut self, wanted: usize, now: Instant) -> usize {
        self.used_at = Some(now);
        let leases = self.pool.leases();
        let now = self.pool.nanoseconds(now);
        self.read.take(&self.pool.read, leases, wanted, now)
    }

    /// Asks to write `wanted` bytes now, like [`Lease::take_read`].
    #[must_use = "the bytes are counted as written"]
    pub fn take_write(&mut self, wanted: usize, now: Instant) -> usize {
        self.used_at = Some(now);
        let leases = self.pool.leases();
        let now = self.pool.nanoseconds(now);
        self.write.take(&self.pool.write, leases, wanted, now)
    }

    /// Takes back bytes that [`Lease::take_read`] granted and that were not read after all.
    pub fn give_back_read(&mut self, bytes: usize) {
        self.read.give_back(bytes);
    }

    /// Takes back bytes that [`Lease::take_write`] granted and that were not written after all.
    pub fn give_back_write(&mut self, bytes: usize) {
        self.write.give_back(bytes);
    }

    /// After a 0 from [`Lease::take_read`] or [`Lease::take_write`]: how long until asking again
    /// is worth it, from then on. The longer of the two if both were 0.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.read.retry_after.max(self.write.retry_after)
    }

    /// Returns everything to the pool: for a thread that is about to sleep.
    pub fn release(&mut self) {
        self.read.release(&self.pool.read);
        self.write.release(&self.pool.write);
    }

    /// Returns everything to the pool if nothing has been taken for half a second: for a thread
    /// that is awake, some times a second.
    pub fn expire(&mut self, now: Instant) {
        let unused = |at| now.saturating_duration_since(at) >= LEASE_LIFE;
        if self.used_at.is_some_and(unused) {
            self.release();
        }
    }

    /// The pool that this is a share of.
    #[must_use]
    pub fn pool(&self) -> &Arc<LeasePool> {
        &self.pool
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
        self.pool.leases.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One direction of a lease.
#[derive(Debug, Default)]
struct Share {
    /// Bytes that the pool has handed out and that are not used yet.
    balance: u64,
    /// The wait that the last refusal returned; zero after a grant.
    retry_after: Duration,
}

impl Share {
    fn take(&mut self, bucket: &Bucket, leases: u64, wanted: usize, now: i64) -> usize {
        let size = wanted;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let worth_it = (bucket.limit().0 / LEASES_PER_SECOND).max(QUANTUM);
        if self.balance < wanted {
            let ask = (wanted - self.balance).max(worth_it);
            let got = bucket.take(ask, leases, now);
            self.balance = self.balance.saturating_add(got);
        }
        let granted = wanted.min(self.balance);
        self.balance -= granted;
        self.retry_after = match granted {
            0 if wanted > 0 => bucket.ready_in(wanted.min(worth_it), leases, now),
            _ => Duration::ZERO,
        };
        // No more than `wanted`, so it fits.
        usize::try_from(granted).unwrap_or(size)
    }

    fn give_back(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.balance = self.balance.saturating_add(bytes);
    }

    fn release(&mut self, bucket: &Bucket) {
        if self.balance > 0 {
            bucket.give_back(std::mem::take(&mut self.balance));
        }
    }
}

/// A token bucket that many threads take from.
#[derive(Debug)]
struct Bucket {
    /// Bytes per second, at least 1.
    rate: AtomicU64,
    /// Bytes.
    burst: AtomicU64,
    /// The level of the bucket as a time, in nanoseconds since the pool's origin: the moment at
    /// which it would have been empty, had it filled at `rate` since. Its level at `now` is
    /// `rate * (now - empty_at)`, but no more than `burst`. One number, so that taking bytes is one
    /// compare-and-swap, which only ever advances it, by the time in which the bytes flow in,
    /// rounded up.
    empty_at: AtomicI64,
}

impl Bucket {
    /// Full at the origin of time.
    fn new(rate: u64, burst: u64) -> Self {
        let rate = rate.max(1);
        Self {
            rate: AtomicU64::new(rate),
            burst: AtomicU64::new(burst),
            empty_at: AtomicI64::new(-time_for(burst, rate)),
        }
    }

    fn set_limit(&self, rate: u64, burst: u64) {
        self.rate.store(rate.max(1), Ordering::Relaxed);
        self.burst.store(burst, Ordering::Relaxed);
    }

    fn limit(&self) -> (u64, u64) {
        (
            self.rate.load(Ordering::Relaxed),
            self.burst.load(Ordering::Relaxed),
        )
    }

    fn level(&self, now: i64) -> u64 {
        let (rate, burst) = self.limit();
        let empty_at = self.empty_at.load(Ordering::Relaxed);
        bytes_in(now - from(empty_at, now, rate, burst), rate)
    }

    /// Time until one lease's share is `bytes` (or the bucket is full), if no thread takes any
    /// until then.
    fn ready_in(&self, bytes: u64, leases: u64, now: i64) -> Duration {
        let (rate, burst) = self.limit();
        let empty_at = self.empty_at.load(Ordering::Relaxed);
        let level = bytes.saturating_mul(leases).min(burst);
        let ready_at = from(empty_at, now, rate, burst).saturating_add(time_for(level, rate));
        Duration::from_nanos(ready_at.saturating_sub(now).max(0).unsigned_abs())
    }

    /// Takes up to `wanted` bytes out, but no more than one lease's equal share.
    fn take(&self, wanted: u64, leases: u64, now: i64) -> u64 {
        let (rate, burst) = self.limit();
        // The numbers guard nothing but themselves, so Relaxed is enough.
        let mut empty_at = self.empty_at.load(Ordering::Relaxed);
        loop {
            let start = from(empty_at, now, rate, burst);
            let level = bytes_in(now - start, rate);
            let granted = wanted.min(level.div_ceil(leases));
            if granted == 0 {
                return 0;
            }
            // Not past `now`: the level was rounded down, and `now - start` is a whole number.
            let next = start + time_for(granted, rate);
            match self.empty_at.compare_exchange_weak(
                empty_at,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return granted,
                Err(current) => empty_at = current,
            }
        }
    }

    /// Puts bytes back in that were taken and not used.
    fn give_back(&self, bytes: u64) {
        let (rate, burst) = self.limit();
        // Rounded down, where taking rounds up: never more comes back than went out. More than a
        // whole burst would be a caller's mistake, and must not move the number out of range.
        let nanoseconds = u128::from(bytes.min(burst)) * u128::from(SECOND) / u128::from(rate);
        self.empty_at
            .fetch_sub(at_most_forever(nanoseconds), Ordering::Relaxed);
    }
}

/// When the bucket would have been empty, given that it holds no more than `burst`. In the future
/// for a thread whose time lags behind.
fn from(empty_at: i64, now: i64, rate: u64, burst: u64) -> i64 {
    let full = u128::from(burst) * u128::from(SECOND) / u128::from(rate);
    empty_at.max(now - at_most_forever(full))
}

/// The nanoseconds in which `bytes` flow in, rounded up.
fn time_for(bytes: u64, rate: u64) -> i64 {
    let nanoseconds = (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(rate));
    at_most_forever(nanoseconds)
}

/// Bytes that flow in within this number of nanoseconds (none if it is negative), rounded down.
fn bytes_in(nanoseconds: i64, rate: u64) -> u64 {
    let nanoseconds = u128::from(nanoseconds.max(0).unsigned_abs());
    let bytes = nanoseconds * u128::from(rate) / u128::from(SECOND);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn at_most_forever(nanoseconds: u128) -> i64 {
    i64::try_from(nanoseconds).map_or(FOREVER, |nanoseconds| nanoseconds.min(FOREVER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::model;

    #[test]
    fn threads_that_take_at_once_do_not_take_the_same_bytes() {
        model::check(|| {
            // One byte is one nanosecond, and time stands still.
            let bucket = Arc::new(Bucket::new(SECOND, 5 * QUANTUM));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let bucket = Arc::clone(&bucket);
                    model::spawn(move || {
                        let first = bucket.take(2 * QUANTUM, 1, 0);
                        let second = bucket.take(QUANTUM, 1, 0);
                        bucket.give_back(second);
                        first
                    })
                })
                .collect();
            let taken: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
            assert_eq!(taken, 4 * QUANTUM, "there was enough for all threads");
            assert_eq!(bucket.level(0), QUANTUM, "nothing is lost");
        });
    }

    // Slow under Miri, which has nothing to find in code without unsafe.
    #[cfg(not(any(loom, miri)))]
    mod in_one_thread {
        use proptest::prelude::*;

        use super::*;

        const MSEC: Duration = Duration::from_millis(1);
        const SEC: Duration = Duration::from_secs(1);

        /// A moment to count from, a pool made then, and some leases.
        fn leases<const N: usize>(rate: u64, burst: u64) -> (Instant, Arc<LeasePool>, [Lease; N]) {
            let now = Instant::now();
            let pool = Arc::new(LeasePool::new(rate, burst, now));
            let leases = std::array::from_fn(|_| Lease::new(Arc::clone(&pool)));
            (now, pool, leases)
        }

        fn take_everything(lease: &mut Lease, at_once: usize, now: Instant) -> usize {
            std::iter::repeat_with(|| lease.take_read(at_once, now))
                .take_while(|granted| *granted > 0)
                .sum()
        }

        #[test]
        fn the_burst_is_there_at_once_and_then_the_rate() {
            let (now, pool, [mut lease]) = leases(100_000, 300_000);
            assert_eq!(take_everything(&mut lease, 10_000, now), 300_000);
            assert_eq!(lease.retry_after(), QUANTUM as u32 * SEC / 100_000);
            assert_eq!(lease.take_read(10_000, now + 100 * MSEC), 10_000);
            assert_eq!(lease.retry_after(), Duration::ZERO);
            assert_eq!(lease.take_read(1, now + 100 * MSEC), 0);
            assert_eq!(pool.levels(now + 3 * SEC).0, 290_000);
            assert_eq!(
                pool.levels(now + 100 * SEC).0,
                300_000,
                "not past the burst"
            );
        }

        #[test]
        fn reading_and_writing_do_not_share() {
            let (now, pool, [mut lease]) = leases(1_000, 50_000);
            assert_eq!(take_everything(&mut lease, 10_000, now), 50_000);
            assert_eq!(lease.take_write(20_000, now), 20_000);
            lease.give_back_write(5_000);
            lease.release();
            assert_eq!(pool.levels(now), (0, 35_000));
        }

        #[test]
        fn what_was_granted_and_not_used_can_be_used_later() {
            let (now, pool, [mut lease]) = leases(1_000, 50_000);
            assert_eq!(lease.take_read(4_000, now), 4_000);
            lease.give_back_read(3_000);
            assert_eq!(lease.take_read(500, now), 500);
            lease.release();
            assert_eq!(pool.levels(now).0, 48_500);
        }

        #[test]
        fn a_sleeping_thread_leaves_its_share_to_the_others() {
            let (now, _, [mut sleepy, mut busy]) = leases(1_000_000, 1_000_000);
            assert_eq!(sleepy.take_read(1, now), 1);
            sleepy.release();
            assert_eq!(take_everything(&mut busy, 10_000, now), 999_999);
        }

        #[test]
        fn a_lease_that_is_not_used_comes_back_within_a_second() {
            let (now, pool, [mut lease]) = leases(1, 1_000_000);
            assert_eq!(lease.take_read(1, now), 1);
            let left = pool.levels(now).0;
            assert!(left < 999_999);
            lease.expire(now + LEASE_LIFE - MSEC);
            assert_eq!(pool.levels(now).0, left);
            lease.expire(now + LEASE_LIFE);
            assert_eq!(pool.levels(now).0, 999_999);
        }

        #[test]
        fn a_dropped_lease_gives_everything_back() {
            let (now, pool, [mut lease]) = leases(1, 1_000_000);
            assert_eq!(lease.take_read(1, now), 1);
            drop(lease);
            assert_eq!(pool.levels(now).0, 999_999);
        }

        #[test]
        fn threads_that_ask_in_turn_share_a_scarce_pool() {
            let (now, _, mut leases) = leases::<4>(1_000_000, 1_000_000);
            let mut taken = [0; 4];
            for turn in 0..4_000 {
                for (lease, taken) in leases.iter_mut().zip(&mut taken) {
                    *taken += lease.take_read(100_000, now + turn * MSEC);
                }
            }
            let total: usize = taken.iter().sum();
            assert!((4_900_000..=5_000_000).contains(&total), "{taken:?}");
            assert!(taken.iter().all(|taken| *taken > total / 10), "{taken:?}");
        }

        #[test]
        fn a_thread_gets_what_the_others_do_not_want() {
            let (start, _, [mut lease, _a, _b, _c]) = leases(1_000_000, 1_000_000);
            let mut now = start;
            let mut taken = 0;
            while now < start + 5 * SEC {
                match lease.take_read(20_000, now) {
                    0 => now += lease.retry_after(),
                    granted => taken += granted,
                }
            }
            assert!((5_900_000..=6_100_000).contains(&taken), "{taken}");
        }

        #[test]
        fn a_new_limit_holds_at_once() {
            let (now, pool, [mut lease]) = leases(1_000_000, 1_000_000);
            pool.set_limit(10_000, 20_000);
            assert_eq!(pool.limit(), (10_000, 20_000));
            assert!(take_everything(&mut lease, 1_000, now) <= 20_000);
            assert_eq!(pool.levels(now + SEC).0, 10_000);
        }

        #[test]
        fn a_clock_that_jumps_back_gives_nothing_away() {
            let (now, pool, [mut lease]) = leases(1_000, 50_000);
            let later = now + 100 * SEC;
            assert_eq!(take_everything(&mut lease, 1_000, later), 50_000);
            assert_eq!(lease.take_read(1_000, now), 0);
            assert_eq!(pool.levels(later + SEC).0, 1_000);
        }

        #[test]
        fn extreme_limits_and_times_are_harmless() {
            for rate in [0, 1, u64::MAX] {
                for burst in [0, 1, u64::MAX] {
                    for age in [Duration::ZERO, SEC, 1_000_000_000 * SEC] {
                        let (start, pool, [mut lease]) = leases(rate, burst);
                        let now = start + age;
                        let granted = lease.take_read(usize::MAX, now);
                        assert!(granted as u64 <= burst);
                        for _ in 0..20 {
                            lease.give_back_read(usize::MAX);
                            lease.release();
                        }
                        assert!(pool.levels(now).0 <= burst);
                        assert!(pool.levels(start).0 <= burst);
                    }
                }
            }
        }

        #[derive(Debug, Clone)]
        enum Op {
            Wait(u64),
            Take(usize, usize),
            GiveBack(usize, usize),
            Release(usize),
            Expire(usize),
        }

        fn op() -> impl Strategy<Value = Op> {
            prop_oneof![
                3 => (0..SECOND).prop_map(Op::Wait),
                6 => (0..3_usize, 0..200_000_usize).prop_map(|(n, bytes)| Op::Take(n, bytes)),
                1 => (0..3_usize, 0..200_000_usize).prop_map(|(n, bytes)| Op::GiveBack(n, bytes)),
                1 => (0..3_usize).prop_map(Op::Release),
                1 => (0..3_usize).prop_map(Op::Expire),
            ]
        }

        proptest! {
            #![proptest_config(ProptestConfig {
                failure_persistence: None,
                ..ProptestConfig::default()
            })]

            #[test]
            fn no_more_is_granted_than_the_burst_and_the_rate(
                rate in 1..100_000_000_u64,
                burst in 0..100_000_000_u64,
                ops in proptest::collection::vec(op(), 0..200),
            ) {
                let (start, _, mut leases) = leases::<3>(rate, burst);
                let mut now = start;
                let mut used = [0_usize; 3];
                for op in ops {
                    match op {
                        Op::Wait(ns) => now += Duration::from_nanos(ns),
                        Op::Take(n, bytes) => {
                            let granted = leases[n].take_write(bytes, now);
                            prop_assert!(granted <= bytes);
                            used[n] += granted;
                        }
                        Op::GiveBack(n, bytes) => {
                            let bytes = bytes.min(used[n]);
                            leases[n].give_back_write(bytes);
                            used[n] -= bytes;
                        }
                        Op::Release(n) => leases[n].release(),
                        Op::Expire(n) => leases[n].expire(now),
                    }
                    let total: u128 = used.iter().map(|used| *used as u128).sum();
                    let elapsed = now.duration_since(start).as_nanos();
                    let limit = u128::from(burst) + u128::from(rate) * elapsed / u128::from(SECOND);
                    prop_assert!(total <= limit, "{} of {}", total, limit);
                }
            }
        }
    }
}
