//! Choice of the thread that gets the next link.
//!
//! The controller gives a new link to the thread with the least recent load ([`Load`](crate::link::load::Load)): Engler and
//! Goldberg 2021, 4.3 proposes this instead of taking turns, because some links carry far more than others and live longer.

use crate::address::ThreadId;

/// Links count as loaded before they are, and this much of that remains after each report: half
/// after one [`HALF_LIFE`](crate::link::load::HALF_LIFE) of reports four times a second, as the measured load takes its place.
const EXPECTED_AFTER_REPORT: f64 = 0.982_821; // 2^(-1/40)

/// Bytes per second below which a thread is not busy: less than a tenth of what one can carry.
const BUSY: f64 = 32.0 * 1024.0 * 1024.0;

/// Chooses threads for new links by what the threads report.
///
/// A link that has just been placed carries nothing yet. So that many links that come between two
/// reports spread, each counts for as much as the average link until it shows in the reports.
#[derive(Debug, Clone)]
pub struct Placement {
    threads: Vec<Thread>,
    /// Number of threads, from the first on, that get links.
    used: usize,
}

#[derive(Debug, Clone, Default)]
struct Thread {
    /// As reported.
    bytes_per_second: f64,
    links: u32,
    /// Load that is expected of links placed lately and does not show in the reports yet.
    expected: f64,
    /// Links placed since the last report.
    placed: u32,
}

impl Thread {
    fn load(&self) -> f64 {
        self.bytes_per_second + self.expected
    }

    fn links(&self) -> u32 {
        self.links.saturating_add(self.placed)
    }
}

impl Placement {
    /// Creates the state for this number of threads (at least one), before any has reported.
    #[must_use]
    pub fn new(threads: u16) -> Self {
        let threads = usize::from(threads.max(1));
        Self {
            threads: vec![Thread::default(); threads],
            used: threads,
        }
    }

    /// Makes only the first `threads` threads get links from now on, at least one: the others have
    /// no core to run on.
    pub fn use_first(&mut self, threads: u16) {
        self.used = usize::from(threads).clamp(1, self.threads.len());
    }

    /// Takes note of a thread's report: its recent load and its open links.
    pub fn report(&mut self, thread: ThreadId, bytes_per_second: f64, links: u32) {
        if let Some(thread) = self.threads.get_mut(usize::from(thread.0)) {
            thread.bytes_per_second = bytes_per_second.max(0.0);
            thread.links = links;
            thread.expected *= EXPECTED_AFTER_REPORT;
            thread.placed = 0;
        }
    }

    /// The thread for something that works together with what is on `near`: that one, unless it
    /// carries more than half again as much as the least busy one, and much at all.
    pub(crate) fn place_near(&self, near: ThreadId) -> ThreadId {
        let least = (0_u16..)
            .zip(self.threads.iter().take(self.used))
            .min_by(|(_, a), (_, b)| a.bytes_per_second.total_cmp(&b.bytes_per_second));
        let here = self.threads.get(usize::from(near.0));
        match (here, least) {
            (Some(here), Some((thread, least)))
                if here.bytes_per_second > BUSY
                    && here.bytes_per_second > 1.5 * least.bytes_per_second =>
            {
                ThreadId(thread)
            }
            _ => near,
        }
    }

    /// The thread for a new link: the one with the least recent load; of equals, the one with the
    /// fewest links; of those, the first.
    pub fn place(&mut self) -> ThreadId {
        let links: u64 = self.threads.iter().map(|t| u64::from(t.links)).sum();
        let load: f64 = self.threads.iter().map(|t| t.bytes_per_second).sum();
        #[allow(clippy::cast_precision_loss)] // an estimate
        let average = load / links.max(1) as f64;
        let used = self.threads.iter_mut().take(self.used);
        let best = (0_u16..).zip(used).min_by(|(_, a), (_, b)| {
            a.load()
                .total_cmp(&b.load())
                .then(a.links().cmp(&b.links()))
        });
        let Some((thread, chosen)) = best else {
            return ThreadId(0);
        };
        chosen.placed = chosen.placed.saturating_add(1);
        // At least something, so that links spread also where nothing has been carried at all.
        chosen.expected += average.max(1.0);
        ThreadId(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(placement: &mut Placement, links: usize, threads: usize) -> Vec<usize> {
        let mut placed = vec![0; threads];
        for _ in 0..links {
            placed[usize::from(placement.place().0)] += 1;
        }
        placed
    }

    #[test]
    fn the_least_loaded_thread_gets_the_next_link() {
        let mut placement = Placement::new(3);
        placement.report(ThreadId(0), 5_000.0, 3);
        placement.report(ThreadId(1), 100.0, 90);
        placement.report(ThreadId(2), 7_000.0, 1);
        assert_eq!(placement.place(), ThreadId(1));
    }

    #[test]
    fn of_equally_loaded_threads_the_one_with_fewest_links_is_chosen() {
        let mut placement = Placement::new(3);
        for (thread, links) in [(0, 5), (1, 3), (2, 4)] {
            placement.report(ThreadId(thread), 0.0, links);
        }
        assert_eq!(placement.place(), ThreadId(1));
    }

    #[test]
    fn a_burst_of_links_between_two_reports_spreads() {
        let mut placement = Placement::new(4);
        assert_eq!(place(&mut placement, 40, 4), [10; 4], "an idle relay");
        for thread in 0..4 {
            placement.report(ThreadId(thread), 1_000_000.0, 10);
        }
        assert_eq!(place(&mut placement, 40, 4), [10; 4], "a loaded relay");
    }

    #[test]
    fn a_burst_of_links_fills_up_the_idle_thread_first() {
        let mut placement = Placement::new(2);
        placement.report(ThreadId(0), 1_000.0, 10);
        placement.report(ThreadId(1), 0.0, 0);
        // 100 bytes per second are expected of each.
        assert_eq!(place(&mut placement, 10, 2), [0, 10]);
        assert_eq!(place(&mut placement, 10, 2), [5, 5]);
    }

    #[test]
    fn a_report_does_not_forget_links_that_are_about_to_carry_something() {
        let mut placement = Placement::new(2);
        placement.report(ThreadId(0), 1_000.0, 10);
        placement.report(ThreadId(1), 900.0, 10);
        assert_eq!(place(&mut placement, 4, 2), [1, 3]);
        placement.report(ThreadId(1), 900.0, 13);
        placement.report(ThreadId(0), 1_000.0, 11);
        assert_eq!(
            placement.place(),
            ThreadId(0),
            "the others are still expected"
        );
    }

    #[test]
    fn threads_without_a_core_get_no_links() {
        let mut placement = Placement::new(4);
        placement.use_first(2);
        for thread in 0..2 {
            placement.report(ThreadId(thread), BUSY * 4.0, 100);
        }
        assert_eq!(place(&mut placement, 10, 4), [5, 5, 0, 0]);
        assert_eq!(placement.place_near(ThreadId(0)), ThreadId(0));
        placement.use_first(9);
        assert_eq!(place(&mut placement, 1, 4), [0, 0, 1, 0]);
        placement.use_first(0);
        assert_eq!(place(&mut placement, 1, 4), [1, 0, 0, 0]);
    }

    #[test]
    fn reports_that_make_no_sense_are_harmless() {
        let mut placement = Placement::new(0);
        placement.report(ThreadId(7), 1.0, 1);
        placement.report(ThreadId(0), f64::NAN, u32::MAX);
        placement.report(ThreadId(0), f64::INFINITY, 0);
        assert_eq!(placement.place(), ThreadId(0));
    }
}
