//! The relay's bandwidth limit, shared by all threads without a lock.
//!
//! A [`LeasePool`] is a token bucket for one direction: it fills with `rate` bytes a second up to
//! `burst` bytes. A thread does not ask it for every read or write. It has a [`Lease`], takes some
//! milliseconds' worth from the pool at a time, and spends that alone; so the pool, which all
//! threads write to, is touched some hundred times a second.
//!
//! Each thread gets at most its equal share of what the pool holds at a time, so that a thread that
//! always asks first does not starve the others where bandwidth is scarce. What they leave, it gets
//! the next times that it asks.
//!
//! What is guaranteed: from any moment on, no more leaves the pool, over all threads, than what it
//! holds (at most `burst`) plus `rate` for the time that passes. And what a thread does not need
//! goes back: all of it when the thread is about to sleep ([`Lease::release`]), and within half a
//! second when it is awake but busy with other things ([`Lease::expire`]).
//!
//! All times are nanoseconds since a moment that is the same for all threads. A thread whose time
//! lags behind, or stands still, is given less, never more.

use crate::sys::{Arc, AtomicI64, AtomicU64, Ordering};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// How long an unused lease is kept by a thread that calls [`Lease::expire`], in nanoseconds.
const LEASE_LIFE: u64 = SECOND / 2;

/// The share of a second that a lease is for: 1/256, some 4 ms.
const LEASES_PER_SECOND: u64 = 256;

/// The least that a lease asks for, in bytes: some eight cells.
const QUANTUM: u64 = 4_096;

/// The longest time that is reckoned with, some 36 years: sums of two still fit into an `i64`.
const FOREVER: i64 = i64::MAX / 8;

/// A token bucket that many threads take from.
#[derive(Debug)]
pub struct LeasePool {
    /// Bytes per second, at least 1.
    rate: AtomicU64,
    /// Bytes.
    burst: AtomicU64,
    /// The level of the bucket as a time: the moment at which it would have been empty, had it
    /// filled at `rate` since. What it holds at `now` is `rate * (now - empty_at)`, but no more
    /// than `burst`. One number, so that taking is one compare-and-swap; and taking only ever
    /// moves it on, by what the bytes cost in time, rounded up.
    empty_at: AtomicI64,
    /// How many leases there are.
    leases: AtomicU64,
}

impl LeasePool {
    /// A full bucket of `burst` bytes that gains `rate` bytes a second from `now_ns` on. A rate of
    /// 0 counts as 1.
    #[must_use]
    pub fn new(rate: u64, burst: u64, now_ns: u64) -> Self {
        let rate = rate.max(1);
        Self {
            rate: AtomicU64::new(rate),
            burst: AtomicU64::new(burst),
            empty_at: AtomicI64::new(time(now_ns) - time_for(burst, rate)),
            leases: AtomicU64::new(0),
        }
    }

    /// Changes the limit from now on; the bucket stays as full as it was, in time. A thread that
    /// takes in the same moment may see one new number and one old.
    pub fn set_limit(&self, rate: u64, burst: u64) {
        self.rate.store(rate.max(1), Ordering::Relaxed);
        self.burst.store(burst, Ordering::Relaxed);
    }

    /// The limit: bytes per second, and bytes at once.
    #[must_use]
    pub fn limit(&self) -> (u64, u64) {
        (
            self.rate.load(Ordering::Relaxed),
            self.burst.load(Ordering::Relaxed),
        )
    }

    /// What the bucket holds, in bytes.
    #[must_use]
    pub fn level(&self, now_ns: u64) -> u64 {
        let (rate, burst) = self.limit();
        let now = time(now_ns);
        let empty_at = self.empty_at.load(Ordering::Relaxed);
        bytes_in(now - from(empty_at, now, rate, burst), rate)
    }

    /// How long until one lease's share is `bytes` (or the bucket is full), if nobody takes any
    /// until then, in nanoseconds.
    fn ready_in(&self, bytes: u64, now_ns: u64) -> u64 {
        let (rate, burst) = self.limit();
        let now = time(now_ns);
        let empty_at = self.empty_at.load(Ordering::Relaxed);
        let level = bytes.saturating_mul(self.leases()).min(burst);
        let ready_at = from(empty_at, now, rate, burst) + time_for(level, rate);
        ready_at.saturating_sub(now).max(0).unsigned_abs()
    }

    /// Takes up to `wanted` bytes out, but no more than one lease's equal share.
    fn take(&self, wanted: u64, now_ns: u64) -> u64 {
        let (rate, burst) = self.limit();
        let now = time(now_ns);
        // The numbers guard nothing but themselves, so Relaxed is enough.
        let mut empty_at = self.empty_at.load(Ordering::Relaxed);
        loop {
            let start = from(empty_at, now, rate, burst);
            let level = bytes_in(now - start, rate);
            let granted = wanted.min(level.div_ceil(self.leases()));
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

    fn leases(&self) -> u64 {
        self.leases.load(Ordering::Relaxed).max(1)
    }

    /// Puts bytes back in that were taken and not used.
    fn give_back(&self, bytes: u64) {
        let rate = self.rate.load(Ordering::Relaxed);
        // Rounded down, where taking rounds up: never more comes back than went out.
        let nanoseconds = u128::from(bytes) * u128::from(SECOND) / u128::from(rate);
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

/// A moment, as the signed number that is reckoned with.
fn time(now_ns: u64) -> i64 {
    at_most_forever(u128::from(now_ns))
}

/// The nanoseconds in which `bytes` flow in, rounded up.
fn time_for(bytes: u64, rate: u64) -> i64 {
    let nanoseconds = (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(rate));
    at_most_forever(nanoseconds)
}

/// The bytes that flow in in so many nanoseconds (none if it is negative), rounded down.
fn bytes_in(nanoseconds: i64, rate: u64) -> u64 {
    let nanoseconds = u128::from(nanoseconds.max(0).unsigned_abs());
    let bytes = nanoseconds * u128::from(rate) / u128::from(SECOND);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn at_most_forever(nanoseconds: u128) -> i64 {
    i64::try_from(nanoseconds).map_or(FOREVER, |nanoseconds| nanoseconds.min(FOREVER))
}

/// One thread's share of a [`LeasePool`]. Dropping it gives everything back.
#[derive(Debug)]
pub struct Lease {
    pool: Arc<LeasePool>,
    /// Bytes that the pool has handed out and that are not used yet.
    balance: u64,
    /// When something was last taken from this lease.
    used_at_ns: u64,
}

impl Lease {
    /// An empty share of the pool.
    #[must_use]
    pub fn new(pool: Arc<LeasePool>) -> Self {
        pool.leases.fetch_add(1, Ordering::Relaxed);
        Self {
            pool,
            balance: 0,
            used_at_ns: 0,
        }
    }

    /// Asks to read or write `wanted` bytes now. Gives how many may be, from 0 to `wanted`; 0
    /// means to wait ([`Lease::ready_in`]). What is granted and then not used goes to
    /// [`Lease::give_back`].
    #[must_use = "the bytes are counted as used"]
    pub fn take(&mut self, wanted: u64, now_ns: u64) -> u64 {
        if self.balance < wanted {
            let (rate, _) = self.pool.limit();
            let missing = wanted - self.balance;
            let ask = missing.max(rate / LEASES_PER_SECOND).max(QUANTUM);
            self.balance = self.balance.saturating_add(self.pool.take(ask, now_ns));
        }
        let granted = wanted.min(self.balance);
        self.balance -= granted;
        self.used_at_ns = now_ns;
        granted
    }

    /// Takes back `bytes` that [`Lease::take`] granted and that were not read or written after all.
    pub fn give_back(&mut self, bytes: u64) {
        self.balance = self.balance.saturating_add(bytes);
    }

    /// Returns everything to the pool: for a thread that is about to sleep.
    pub fn release(&mut self) {
        if self.balance > 0 {
            self.pool.give_back(std::mem::take(&mut self.balance));
        }
    }

    /// Returns everything to the pool if nothing has been taken for half a second: for a thread
    /// that is awake, some times a second.
    pub fn expire(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.used_at_ns) >= LEASE_LIFE {
            self.release();
        }
    }

    /// How long to wait before asking for `wanted` bytes again, in nanoseconds: 0 if they are here
    /// or in the pool.
    #[must_use]
    pub fn ready_in(&self, wanted: u64, now_ns: u64) -> u64 {
        match wanted.checked_sub(self.balance) {
            None | Some(0) => 0,
            Some(missing) => self.pool.ready_in(missing, now_ns),
        }
    }

    /// The pool that this is a share of.
    #[must_use]
    pub fn pool(&self) -> &LeasePool {
        &self.pool
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
        self.pool.leases.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::model;

    #[test]
    fn threads_that_take_at_once_do_not_take_the_same_bytes() {
        model::check(|| {
            // One byte is one nanosecond, and time stands still.
            let pool = Arc::new(LeasePool::new(SECOND, 5 * QUANTUM, 0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let pool = Arc::clone(&pool);
                    model::spawn(move || {
                        let first = pool.take(2 * QUANTUM, 0);
                        let second = pool.take(QUANTUM, 0);
                        pool.give_back(second);
                        first
                    })
                })
                .collect();
            let taken: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
            assert_eq!(taken, 4 * QUANTUM, "there was enough for everybody");
            assert_eq!(pool.level(0), 5 * QUANTUM - taken, "nothing is lost");
        });
    }

    #[cfg(not(loom))]
    mod in_one_thread {
        use proptest::prelude::*;

        use super::*;

        const MSEC: u64 = SECOND / 1_000;

        fn leases<const N: usize>(pool: LeasePool) -> (Arc<LeasePool>, [Lease; N]) {
            let pool = Arc::new(pool);
            let leases = std::array::from_fn(|_| Lease::new(Arc::clone(&pool)));
            (pool, leases)
        }

        #[test]
        fn the_burst_is_there_at_once_and_then_the_rate() {
            let (pool, [mut lease]) = leases(LeasePool::new(100_000, 300_000, 0));
            let mut taken = 0;
            while let granted @ 1.. = lease.take(10_000, 0) {
                taken += granted;
            }
            assert_eq!(taken, 300_000);
            assert_eq!(lease.ready_in(10_000, 0), 100 * MSEC);
            assert_eq!(lease.take(10_000, 100 * MSEC), 10_000);
            assert_eq!(lease.take(1, 100 * MSEC), 0);
            assert_eq!(pool.level(3 * SECOND), 290_000);
            assert_eq!(pool.level(100 * SECOND), 300_000, "no more than the burst");
        }

        #[test]
        fn what_was_granted_and_not_used_can_be_used_later() {
            let (pool, [mut lease]) = leases(LeasePool::new(1_000, 50_000, 0));
            assert_eq!(lease.take(4_000, 0), 4_000);
            lease.give_back(3_000);
            lease.release();
            assert_eq!(pool.level(0), 49_000);
        }

        #[test]
        fn a_sleeping_thread_leaves_its_share_to_the_others() {
            let (_, [mut sleepy, mut busy]) = leases(LeasePool::new(1_000_000, 1_000_000, 0));
            assert_eq!(sleepy.take(1, 0), 1);
            sleepy.release();
            let taken: u64 = std::iter::from_fn(|| Some(busy.take(10_000, 0)))
                .take_while(|granted| *granted > 0)
                .sum();
            assert_eq!(taken, 999_999);
        }

        #[test]
        fn a_lease_that_is_not_used_comes_back_within_a_second() {
            let (pool, [mut lease]) = leases(LeasePool::new(1, 1_000_000, 0));
            assert_eq!(lease.take(1, 0), 1);
            let kept = 999_999 - pool.level(0);
            assert!(kept > 0);
            lease.expire(LEASE_LIFE - 1);
            assert_eq!(pool.level(0), 999_999 - kept);
            lease.expire(LEASE_LIFE);
            assert_eq!(pool.level(0), 999_999);
        }

        #[test]
        fn a_dropped_lease_gives_everything_back() {
            let (pool, [mut lease]) = leases(LeasePool::new(1, 1_000_000, 0));
            assert_eq!(lease.take(1, 0), 1);
            drop(lease);
            assert_eq!(pool.level(0), 999_999);
        }

        #[test]
        fn threads_that_ask_in_turn_share_a_scarce_pool() {
            let (_, mut leases) = leases::<4>(LeasePool::new(1_000_000, 1_000_000, 0));
            let mut taken = [0; 4];
            for turn in 0..4_000_u64 {
                for (lease, taken) in leases.iter_mut().zip(&mut taken) {
                    *taken += lease.take(100_000, turn * MSEC);
                }
            }
            let total: u64 = taken.iter().sum();
            assert!((4_900_000..=5_000_000).contains(&total), "{taken:?}");
            assert!(taken.iter().all(|taken| *taken > total / 10), "{taken:?}");
        }

        #[test]
        fn a_thread_gets_what_the_others_do_not_want() {
            let (_, [mut lease, _a, _b, _c]) = leases(LeasePool::new(1_000_000, 1_000_000, 0));
            let mut taken = 0;
            let mut now = 0;
            while now < 5 * SECOND {
                match lease.take(20_000, now) {
                    0 => now += lease.ready_in(20_000, now),
                    granted => taken += granted,
                }
            }
            assert!((5_900_000..=6_000_000).contains(&taken), "{taken}");
        }

        #[test]
        fn a_new_limit_holds_at_once() {
            let (pool, [mut lease]) = leases(LeasePool::new(1_000_000, 1_000_000, 0));
            pool.set_limit(10_000, 20_000);
            assert_eq!(pool.limit(), (10_000, 20_000));
            assert!(pool.level(0) <= 20_000);
            while lease.take(1_000, 0) > 0 {}
            assert_eq!(pool.level(SECOND), 10_000);
        }

        #[test]
        fn extreme_limits_and_times_are_harmless() {
            for rate in [0, 1, u64::MAX] {
                for burst in [0, 1, u64::MAX] {
                    for now in [0, SECOND, u64::MAX] {
                        let (pool, [mut lease]) = leases(LeasePool::new(rate, burst, now));
                        let granted = lease.take(u64::MAX, now);
                        assert!(granted <= burst);
                        lease.give_back(u64::MAX);
                        let _ = lease.ready_in(u64::MAX, 0);
                        lease.release();
                        assert!(pool.level(now) <= burst);
                        assert!(pool.level(0) <= burst);
                    }
                }
            }
        }

        #[derive(Debug, Clone)]
        enum Op {
            Wait(u64),
            Take(usize, u64),
            GiveBack(usize, u64),
            Release(usize),
            Expire(usize),
        }

        fn op() -> impl Strategy<Value = Op> {
            prop_oneof![
                3 => (0..SECOND).prop_map(Op::Wait),
                6 => (0..3_usize, 0..200_000_u64).prop_map(|(n, bytes)| Op::Take(n, bytes)),
                1 => (0..3_usize, 0..200_000_u64).prop_map(|(n, bytes)| Op::GiveBack(n, bytes)),
                1 => (0..3_usize).prop_map(Op::Release),
                1 => (0..3_usize).prop_map(Op::Expire),
            ]
        }

        proptest! {
            #![proptest_config(ProptestConfig {
                cases: if cfg!(miri) { 8 } else { 256 },
                failure_persistence: None,
                ..ProptestConfig::default()
            })]

            #[test]
            fn no_more_is_granted_than_the_burst_and_the_rate(
                rate in 1..100_000_000_u64,
                burst in 0..100_000_000_u64,
                ops in proptest::collection::vec(op(), 0..200),
            ) {
                let (_, mut leases) = leases::<3>(LeasePool::new(rate, burst, 0));
                let mut now = 0;
                let mut used = [0_u64; 3];
                for op in ops {
                    match op {
                        Op::Wait(ns) => now += ns,
                        Op::Take(n, bytes) => {
                            let granted = leases[n].take(bytes, now);
                            prop_assert!(granted <= bytes);
                            used[n] += granted;
                        }
                        Op::GiveBack(n, bytes) => {
                            let bytes = bytes.min(used[n]);
                            leases[n].give_back(bytes);
                            used[n] -= bytes;
                        }
                        Op::Release(n) => leases[n].release(),
                        Op::Expire(n) => leases[n].expire(now),
                    }
                    let total: u128 = used.iter().map(|used| u128::from(*used)).sum();
                    let limit = u128::from(burst)
                        + u128::from(rate) * u128::from(now) / u128::from(SECOND);
                    prop_assert!(total <= limit, "{} of {}", total, limit);
                }
            }
        }
    }
}
