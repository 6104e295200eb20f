//! Choice of a link to move to another thread when its thread has much more to do than the others.
//!
//! Links live for hours, and their traffic changes: a rule that only chooses a thread for each new
//! link leaves the busiest thread far above the mean (`weft sim balance`, docs/simulation.md).
//! Threads report how long their processors worked and which of their links carry most;
//! [`Balance::decide`] names at most one link a second. A move ([`crate::moves::routes`]) delays a
//! link's circuits by some turns of the threads, so no link moves for a small gain: the busiest
//! thread must be busy, it must have been above the mean for a while, and a link that has moved
//! stays for a while. There are two exceptions: a full thread beside one that is half as busy gives
//! links away without waiting, and a thread that is no longer in use
//! ([`crate::moves::width`]) gives away all links that carry something.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, ThreadId};
use crate::link::load::HALF_LIFE;
use crate::message::HeavyLink;
use crate::moves::width::Work;

/// Largest excess of the busiest thread over the mean at which no link moves.
pub const IMBALANCE: f64 = 0.10;

/// Part of its time that the busiest thread must work: below this, no link waits for it.
const BUSY: f64 = 0.25;

/// Part of the time from which on a thread is full: its links wait.
const FULL: f64 = 0.7;

/// Half-life of a thread's recent load, for the decision that it is full.
const RECENT: Duration = Duration::from_secs(1);

/// Time that the busiest thread must have been too far above the mean.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two moves.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time that a link stays on the thread to which it moved.
const REST: Duration = Duration::from_secs(60);

/// Part of the mean by which the busier one of the two threads must fall.
const GAIN: f64 = 0.03;

/// A link, and the threads between which it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Its connection.
    pub connection: ConnectionId,
    /// Where it is.
    pub from: ThreadId,
    /// Where it goes.
    pub to: ThreadId,
}

/// State of a thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// Processor time, and when that was reported.
    cpu: Option<(Duration, Instant)>,
    /// Part of the time that it worked lately, by [`HALF_LIFE`].
    busy: f64,
    /// Like `busy`, but by [`RECENT`].
    recent: f64,
    /// Bytes that it carried lately.
    bytes_per_second: f64,
    /// Its heaviest links.
    links: Vec<HeavyLink>,
}

/// Recent load of all threads, and the links that moved lately.
#[derive(Clone, Debug)]
pub struct Balance {
    threads: Vec<Thread>,
    /// Number of threads, from the first on, that share the links.
    in_use: usize,
    /// The time at which the busiest thread rose too far above the mean.
    since: Option<Instant>,
    /// When a move began last.
    last: Option<Instant>,
    /// Links that have moved lately, or could not.
    resting: BTreeMap<ConnectionId, Instant>,
}

impl Balance {
    /// Creates the state for this number of threads.
    #[must_use]
    pub fn new(threads: u16) -> Self {
        Balance {
            threads: vec![Thread::default(); usize::from(threads)],
            in_use: usize::from(threads.max(1)),
            since: None,
            last: None,
            resting: BTreeMap::new(),
        }
    }

    /// Makes the first `threads` threads share the links from now on, at least one.
    pub fn use_first(&mut self, threads: u16) {
        self.in_use = usize::from(threads).clamp(1, self.threads.len().max(1));
    }

    /// A thread's report: the processor time that it has used since it began, what it carries, and its heaviest links.
    pub fn report(
        &mut self,
        thread: ThreadId,
        cpu: Duration,
        bytes_per_second: f64,
        links: Vec<HeavyLink>,
        now: Instant,
    ) {
        let Some(known) = self.threads.get_mut(usize::from(thread.0)) else {
            return;
        };
        if let Some((before, at)) = known.cpu {
            let elapsed = now.saturating_duration_since(at).as_secs_f64();
            if elapsed > 0.0 {
                let recent = cpu.saturating_sub(before).as_secs_f64() / elapsed;
                let kept = |half_life: Duration| (-elapsed / half_life.as_secs_f64()).exp2();
                known.busy = recent + (known.busy - recent) * kept(HALF_LIFE);
                known.recent = recent + (known.recent - recent) * kept(RECENT);
            }
        }
        known.cpu = Some((cpu, now));
        known.bytes_per_second = bytes_per_second.max(0.0);
        known.links = links;
    }

    /// Excess of the busiest thread's load over the mean, as a fraction of the mean.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let mean = self.mean();
        match self.most(|thread| thread.busy) {
            Some((_, thread)) if mean > 0.0 => thread.busy / mean - 1.0,
            _ => 0.0,
        }
    }

    /// Load of the threads.
    #[must_use]
    pub fn work(&self) -> Work {
        #[expect(clippy::cast_precision_loss, reason = "threads are few")]
        let count = self.in_use as f64;
        let in_use = self.threads.iter().take(self.in_use);
        Work {
            mean: in_use.map(|thread| thread.recent).sum::<f64>() / count,
            sum: self.threads.iter().map(|thread| thread.busy).sum(),
        }
    }

    /// The link to move now, if any. It counts as moved from here on.
    pub fn decide(&mut self, now: Instant) -> Option<Move> {
        self.resting
            .retain(|_, moved| now.saturating_duration_since(*moved) < REST);
        let (from, to, connection) = self
            .relieve_full()
            .or_else(|| self.relieve_busiest(now))
            .or_else(|| self.empty_unused(now))?;
        let source = self.threads.get_mut(from)?;
        let at = (source.links.iter()).position(|link| link.connection == connection)?;
        let link = source.links.swap_remove(at);
        self.last = Some(now);
        self.resting.insert(connection, now);
        // The next decision counts with it, before the reports do.
        let part = source.part_of(&link);
        let (busy, recent) = (source.busy * part, source.recent * part);
        source.add(-busy, -recent, -link.bytes_per_second);
        if let Some(target) = self.threads.get_mut(to) {
            target.add(busy, recent, link.bytes_per_second);
        }
        Some(Move {
            connection,
            from: ThreadId(u16::try_from(from).ok()?),
            to: ThreadId(u16::try_from(to).ok()?),
        })
    }

    /// From a full thread to one that has half as much to do, or less.
    fn relieve_full(&self) -> Option<(usize, usize, ConnectionId)> {
        let recent = |thread: &Thread| thread.recent;
        let (from, busiest) = self.most(recent)?;
        let (to, idlest) = self.least(recent)?;
        if busiest.recent < FULL || idlest.recent > busiest.recent / 2.0 {
            return None;
        }
        let gap = busiest.recent - idlest.recent;
        let link = self.best(busiest, busiest.recent, gap, 0.0)?;
        Some((from, to, link))
    }

    /// From the busiest thread, when it has been too far above the mean for a while.
    fn relieve_busiest(&mut self, now: Instant) -> Option<(usize, usize, ConnectionId)> {
        let busy = |thread: &Thread| thread.busy;
        let mean = self.mean();
        let (from, most) = self.most(busy).map(|(from, thread)| (from, thread.busy))?;
        if most < BUSY || most <= mean * (1.0 + IMBALANCE) {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < PATIENCE || self.is_early(now) {
            return None;
        }
        let busiest = self.threads.get(from)?;
        let (to, idlest) = self.least(busy)?;
        let link = self.best(
            busiest,
            busiest.busy,
            busiest.busy - idlest.busy,
            GAIN * mean,
        )?;
        Some((from, to, link))
    }

    /// From a thread that is not in use any more, its heaviest link.
    fn empty_unused(&self, now: Instant) -> Option<(usize, usize, ConnectionId)> {
        let (to, idlest) = self.least(|thread| thread.recent)?;
        if self.is_early(now) || idlest.recent > FULL {
            return None;
        }
        let unused = self.threads.iter().enumerate().skip(self.in_use);
        let links = unused.flat_map(|(from, thread)| thread.links.iter().map(move |l| (from, l)));
        let (from, link) = links
            .filter(|(_, link)| !self.resting.contains_key(&link.connection))
            .max_by(|(_, a), (_, b)| a.bytes_per_second.total_cmp(&b.bytes_per_second))?;
        Some((from, to, link.connection))
    }

    /// True if a move began less than an interval ago.
    fn is_early(&self, now: Instant) -> bool {
        let early = |last| now.saturating_duration_since(last) < INTERVAL;
        self.last.is_some_and(early)
    }

    /// The link of a thread whose move comes closest to halving the gap. Its move must gain at
    /// least `gain`.
    fn best(&self, thread: &Thread, work: f64, gap: f64, gain: f64) -> Option<ConnectionId> {
        (thread.links.iter())
            .filter(|link| !self.resting.contains_key(&link.connection))
            .map(|link| {
                let left = (gap - 2.0 * work * thread.part_of(link)).abs();
                (link.connection, left)
            })
            .filter(|(_, left)| *left < gap && (gap - left) / 2.0 >= gain)
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(connection, _)| connection)
    }

    /// Part of the time that the mean thread in use works, were all work theirs.
    fn mean(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "threads are few")]
        let count = self.in_use as f64;
        self.threads.iter().map(|thread| thread.busy).sum::<f64>() / count
    }

    /// The thread that works most, by one of the two measures.
    fn most(&self, by: impl Fn(&Thread) -> f64) -> Option<(usize, &Thread)> {
        (self.threads.iter().enumerate()).max_by(|(_, a), (_, b)| by(a).total_cmp(&by(b)))
    }

    /// The thread in use that works least.
    fn least(&self, by: impl Fn(&Thread) -> f64) -> Option<(usize, &Thread)> {
        let in_use = self.threads.iter().enumerate().take(self.in_use);
        in_use.min_by(|(_, a), (_, b)| by(a).total_cmp(&by(b)))
    }
}

impl Thread {
    /// The part of the thread's work that is a link's, nearly: as much of all as it carries.
    fn part_of(&self, link: &HeavyLink) -> f64 {
        if self.bytes_per_second <= 0.0 {
            return 0.0;
        }
        (link.bytes_per_second / self.bytes_per_second).clamp(0.0, 1.0)
    }

    fn add(&mut self, busy: f64, recent: f64, bytes_per_second: f64) {
        self.busy += busy;
        self.recent += recent;
        self.bytes_per_second += bytes_per_second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::HEAVIEST;

    const STEP: Duration = Duration::from_millis(250);

    /// Threads whose links carry the given bytes per second; a byte costs the same everywhere.
    struct Threads {
        balance: Balance,
        links: Vec<Vec<HeavyLink>>,
        /// Bytes a second that keep one thread busy all the time.
        full: f64,
        cpu: Vec<Duration>,
        now: Instant,
        moves: Vec<Move>,
    }

    impl Threads {
        fn new(rates: &[&[f64]], full: f64) -> Self {
            let mut id = 0;
            let links = rates.iter().map(|rates| {
                let link = |rate: &f64| {
                    id += 1;
                    HeavyLink {
                        connection: ConnectionId(id),
                        bytes_per_second: *rate,
                    }
                };
                rates.iter().map(link).collect()
            });
            Threads {
                links: links.collect(),
                balance: Balance::new(u16::try_from(rates.len()).unwrap()),
                full,
                cpu: vec![Duration::ZERO; rates.len()],
                now: Instant::now(),
                moves: Vec::new(),
            }
        }

        fn load(&self, thread: usize) -> f64 {
            let links = self.links[thread].iter();
            links.map(|link| link.bytes_per_second).sum()
        }

        fn pass(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.now += STEP;
                for thread in 0..self.links.len() {
                    let load = self.load(thread);
                    self.cpu[thread] += STEP.mul_f64((load / self.full).min(1.0));
                    let id = ThreadId(u16::try_from(thread).unwrap());
                    let mut links = self.links[thread].clone();
                    links.sort_by(|a, b| b.bytes_per_second.total_cmp(&a.bytes_per_second));
                    links.truncate(HEAVIEST);
                    (self.balance).report(id, self.cpu[thread], load, links, self.now);
                }
                while let Some(moved) = self.balance.decide(self.now) {
                    let from = &mut self.links[usize::from(moved.from.0)];
                    let at = from
                        .iter()
                        .position(|link| link.connection == moved.connection);
                    let link = from.remove(at.expect("it is there"));
                    self.links[usize::from(moved.to.0)].push(link);
                    self.moves.push(moved);
                }
            }
        }
    }

    #[test]
    fn a_busy_thread_gives_links_away_until_none_is_far_above_the_mean() {
        let mut threads = Threads::new(&[&[10.0; 30], &[10.0; 2], &[], &[10.0; 4]], 400.0);
        threads.pass(Duration::from_secs(90));
        let loads: Vec<f64> = (0..4).map(|thread| threads.load(thread)).collect();
        assert!(
            loads.iter().all(|load| (80.0..=100.0).contains(load)),
            "{loads:?}"
        );
        assert!(
            (20..=24).contains(&threads.moves.len()),
            "{:?}",
            threads.moves
        );
        let before = threads.moves.len();
        threads.pass(Duration::from_secs(600));
        assert_eq!(threads.moves.len(), before, "nothing flaps");
    }

    #[test]
    fn nothing_moves_while_nobody_is_busy() {
        let mut threads = Threads::new(&[&[10.0; 30], &[]], 2_000.0);
        threads.pass(Duration::from_secs(300));
        assert_eq!(threads.moves, []);
    }

    #[test]
    fn nothing_moves_within_a_tenth_of_the_mean() {
        let mut threads = Threads::new(&[&[1.0; 109], &[1.0; 100]], 120.0);
        threads.pass(Duration::from_secs(300));
        assert_eq!(threads.moves, []);
    }

    #[test]
    fn a_link_that_is_all_of_a_threads_load_stays() {
        let mut threads = Threads::new(&[&[100.0], &[1.0; 5]], 120.0);
        threads.pass(Duration::from_secs(300));
        assert_eq!(threads.moves, [], "it would be the same on the other one");
    }

    #[test]
    fn a_burst_of_a_second_moves_nothing_and_moves_come_one_a_second() {
        let mut threads = Threads::new(&[&[10.0; 10], &[10.0; 10]], 200.0);
        threads.pass(Duration::from_secs(60));
        threads.links[0].push(HeavyLink {
            connection: ConnectionId(99),
            bytes_per_second: 300.0,
        });
        threads.pass(Duration::from_secs(1));
        threads.links[0].pop();
        threads.pass(Duration::from_secs(60));
        assert_eq!(threads.moves, []);
        // Half of them end.
        threads.links[1].truncate(2);
        let began = threads.now;
        threads.pass(Duration::from_secs(60));
        assert!(
            (3..=5).contains(&threads.moves.len()),
            "{:?}",
            threads.moves
        );
        assert!(threads.balance.last.unwrap() >= began + PATIENCE);
    }

    #[test]
    fn a_full_thread_gives_half_of_its_links_away_within_seconds() {
        let mut threads = Threads::new(&[&[1.0; 400], &[], &[]], 300.0);
        threads.balance.use_first(1);
        threads.pass(Duration::from_secs(30));
        assert_eq!(threads.moves, [], "there is no other thread in use");
        threads.balance.use_first(2);
        threads.pass(Duration::from_secs(60));
        let loads = [threads.load(0), threads.load(1), threads.load(2)];
        assert!(
            (150.0..=270.0).contains(&loads[0]) && loads[2] == 0.0,
            "{loads:?}"
        );
    }

    #[test]
    fn a_thread_that_is_no_more_in_use_gives_all_away_that_carry_something() {
        let mut threads = Threads::new(&[&[10.0; 3], &[5.0; 20], &[7.0; 10]], 10_000.0);
        threads.pass(Duration::from_secs(60));
        assert_eq!(threads.moves, [], "all are in use");
        threads.balance.use_first(2);
        threads.pass(Duration::from_secs(5));
        assert!(
            (4..=6).contains(&threads.moves.len()),
            "one a second: {:?}",
            threads.moves
        );
        threads.pass(Duration::from_secs(10));
        threads.balance.use_first(1);
        threads.pass(Duration::from_secs(120));
        let loads = [threads.load(0), threads.load(1), threads.load(2)];
        assert_eq!(loads, [200.0, 0.0, 0.0]);
    }

    #[test]
    fn one_thread_and_reports_that_make_no_sense_are_harmless() {
        let mut threads = Threads::new(&[&[10.0; 10]], 100.0);
        threads.pass(Duration::from_secs(60));
        assert_eq!((threads.moves.len(), threads.balance.imbalance()), (0, 0.0));
        let now = threads.now;
        let mut balance = Balance::new(2);
        for cpu in [Duration::MAX, Duration::ZERO] {
            for thread in [0, 1, 9] {
                let links = vec![HeavyLink {
                    connection: ConnectionId(1),
                    bytes_per_second: f64::NAN,
                }];
                balance.report(ThreadId(thread), cpu, f64::NAN, links, now);
                balance.decide(now + REST);
            }
        }
        assert_eq!(Balance::new(0).decide(now), None);
    }
}
