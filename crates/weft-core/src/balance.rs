//! Which link moves to another thread, because the one that it is on has much more to do than the others.
//!
//! Links live for hours, and what they carry changes: a rule that only chooses a thread for each new link leaves the
//! busiest thread far above the mean (`weft sim balance`, docs/simulation.md). Threads report how long their
//! processors worked and which of their links carry most; [`Balance::decide`] names at most one link a second.
//! A move ([`crate::transfer`]) delays a link's circuits by some turns of the threads, so nothing moves that gains little: the busiest
//! thread must be busy, it must have been above the mean for a while, and a link that has moved stays for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::address::{ConnectionId, ThreadId};
use crate::load::HALF_LIFE;

/// Links that a thread names in a report: the heaviest.
pub const HEAVIEST: usize = 16;

/// How far above the mean the busiest thread may be: below this nothing moves.
pub const IMBALANCE: f64 = 0.10;

/// Part of the time that the busiest thread must work: below this, nobody waits for it.
const BUSY: f64 = 0.25;

/// How long the busiest thread must have been too far above the mean.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two moves.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a link stays where it has moved to.
const REST: Duration = Duration::from_secs(60);

/// By how much of the mean the busier one of the two threads must fall.
const GAIN: f64 = 0.03;

/// A link, and what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeavyLink {
    /// Its connection.
    pub connection: ConnectionId,
    /// Bytes of cells in both directions.
    pub bytes_per_second: f64,
}

/// A link that shall move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Its connection.
    pub connection: ConnectionId,
    /// Where it is.
    pub from: ThreadId,
    /// Where it goes.
    pub to: ThreadId,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// Processor time, and when that was reported.
    cpu: Option<(Duration, Instant)>,
    /// Part of the time that it worked lately.
    busy: f64,
    /// Bytes that it carried lately.
    bytes_per_second: f64,
    /// Its heaviest links.
    links: Vec<HeavyLink>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Balance {
    threads: Vec<Thread>,
    /// Since when the busiest thread is too far above the mean.
    since: Option<Instant>,
    /// When a move began last.
    last: Option<Instant>,
    /// Links that have moved lately, or could not.
    resting: BTreeMap<ConnectionId, Instant>,
}

impl Balance {
    /// For so many threads.
    #[must_use]
    pub fn new(threads: u16) -> Self {
        Balance {
            threads: vec![Thread::default(); usize::from(threads)],
            since: None,
            last: None,
            resting: BTreeMap::new(),
        }
    }

    /// The first so many threads share the links from now on, at least one.
    pub fn use_first(&mut self, threads: u16) {
        self.threads.truncate(usize::from(threads.max(1)));
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
                let kept = (-elapsed / HALF_LIFE.as_secs_f64()).exp2();
                known.busy = recent + (known.busy - recent) * kept;
            }
        }
        known.cpu = Some((cpu, now));
        known.bytes_per_second = bytes_per_second.max(0.0);
        known.links = links;
    }

    /// How far the busiest thread is above the mean, as a part of it.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let mean = self.mean();
        match self.busiest() {
            Some((_, thread)) if mean > 0.0 => thread.busy / mean - 1.0,
            _ => 0.0,
        }
    }

    /// The link that shall move now, if one shall. It counts as moved from here on.
    pub fn decide(&mut self, now: Instant) -> Option<Move> {
        let mean = self.mean();
        let (from, busy) = self.busiest().map(|(from, thread)| (from, thread.busy))?;
        if busy < BUSY || busy <= mean * (1.0 + IMBALANCE) {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let is_early = |since: Instant, time| now.saturating_duration_since(since) < time;
        if is_early(since, PATIENCE) || self.last.is_some_and(|last| is_early(last, INTERVAL)) {
            return None;
        }
        self.resting
            .retain(|_, moved| now.saturating_duration_since(*moved) < REST);
        let busiest = self.threads.get(from)?;
        let (to, idlest) =
            (self.threads.iter().enumerate()).min_by(|(_, a), (_, b)| a.busy.total_cmp(&b.busy))?;
        let gap = busiest.busy - idlest.busy;
        let best = (busiest.links.iter())
            .filter(|link| !self.resting.contains_key(&link.connection))
            .map(|link| (link.connection, busiest.work_of(link)))
            // What remains of the gap, on either side: least where the link is half of it.
            .map(|(connection, work)| (connection, work, (gap - 2.0 * work).abs()))
            .filter(|(_, _, left)| (gap - left) / 2.0 >= GAIN * mean)
            .min_by(|(.., a), (.., b)| a.total_cmp(b));
        let (connection, work, _) = best?;
        let rate = (busiest.links.iter())
            .find(|link| link.connection == connection)
            .map_or(0.0, |link| link.bytes_per_second);
        self.last = Some(now);
        self.resting.insert(connection, now);
        // The next decision counts with it, before the reports do.
        if let Some(thread) = self.threads.get_mut(from) {
            thread.busy -= work;
            thread.bytes_per_second -= rate;
            thread.links.retain(|link| link.connection != connection);
        }
        if let Some(thread) = self.threads.get_mut(to) {
            thread.busy += work;
            thread.bytes_per_second += rate;
        }
        Some(Move {
            connection,
            from: ThreadId(u16::try_from(from).ok()?),
            to: ThreadId(u16::try_from(to).ok()?),
        })
    }

    /// Part of the time that the mean thread works.
    fn mean(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "threads are few")]
        let count = self.threads.len().max(1) as f64;
        self.threads.iter().map(|thread| thread.busy).sum::<f64>() / count
    }

    /// The thread that works most.
    fn busiest(&self) -> Option<(usize, &Thread)> {
        (self.threads.iter().enumerate()).max_by(|(_, a), (_, b)| a.busy.total_cmp(&b.busy))
    }
}

impl Thread {
    /// The part of the time that a link of it costs, nearly: as much of all as it carries.
    fn work_of(&self, link: &HeavyLink) -> f64 {
        if self.bytes_per_second <= 0.0 {
            return 0.0;
        }
        self.busy * (link.bytes_per_second / self.bytes_per_second).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    /// Threads with links of so many bytes a second; a byte costs as much everywhere.
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
                if let Some(moved) = self.balance.decide(self.now) {
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
