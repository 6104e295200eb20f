//! When a thread's scheduler runs.

use std::time::{Duration, Instant};

/// Shortest time between runs of the scheduler while every link has room for all that waits for it.
/// KISTSchedRunInterval lets cells of many circuits gather, so that the most urgent are sent first;
/// if all are sent at once, the order does not matter. Some gathering remains: without it each cell
/// is a separate write (docs/performance.md).
const UNCONTENDED: Duration = Duration::from_micros(500);

/// Like [`UNCONTENDED`], for a thread that is [`BUSY`]: each wake-up handles more cells, and each
/// write carries more.
const UNCONTENDED_BUSY: Duration = Duration::from_millis(2);

/// Parts of its time that a thread works, from which and up to which its wait grows. With less it serves a few users,
/// who have the latency; a relay of the public network with 40 Mbit/s of thin circuits works a thirtieth of its time,
/// and a wake-up for each few cells is then most of what it costs.
const IDLE: f64 = 0.01;
/// See [`IDLE`].
const BUSY: f64 = 0.03;

/// Over how long that is measured.
const MEASURED_OVER: Duration = Duration::from_millis(100);

/// Bytes that are worth a run and a wake-up: with more, waiting longer makes neither much cheaper for each.
const WORTH_A_RUN: usize = 128 * 514;

/// When the scheduler ran last, and when it may run again.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTimes {
    last: Option<Instant>,
    /// That run left cells for which some link had no room.
    contended: bool,
    /// Bytes that came since.
    gathered: usize,
    /// Part of its time that the thread works.
    work: Work,
}

impl RunTimes {
    /// Shortest time between runs; `interval` is KISTSchedRunInterval.
    #[must_use]
    pub fn interval(&self, interval: Duration) -> Duration {
        match self.contended {
            true => interval,
            false if self.gathered >= WORTH_A_RUN => interval.min(UNCONTENDED),
            false => interval.min(self.work.wait()),
        }
    }

    /// True if the scheduler may run now.
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
        self.gathered = 0;
    }

    /// So many bytes came that it may have to send on.
    pub fn gathered(&mut self, bytes: usize) {
        self.gathered = self.gathered.saturating_add(bytes);
    }

    /// Notes that the thread has worked for this time, until now.
    pub fn worked(&mut self, time: Duration, now: Instant) {
        self.work.add(time, now);
    }

    /// When it may run again; `None`: at once.
    #[must_use]
    pub fn next(&self, interval: Duration) -> Option<Instant> {
        Some(self.last? + self.interval(interval))
    }

    /// The time until which a thread whose last turn moved `moved` bytes on its links may sleep,
    /// whatever its sockets have: bytes that arrive before the next run could not be written before
    /// it. `None`: the turn was worth its wake-up, or it was in vain and the thread has nothing to
    /// do.
    #[must_use]
    pub fn pause(&self, moved: usize, interval: Duration, now: Instant) -> Option<Instant> {
        if moved == 0 || moved >= WORTH_A_RUN {
            return None;
        }
        let longest = now + UNCONTENDED_BUSY;
        let next = self.next(interval)?.min(longest);
        (next > now).then_some(next)
    }
}

/// Part of its time that a thread works.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    since: Option<Instant>,
    worked: Duration,
    /// From 0 to 1, of late.
    share: f64,
}

impl Work {
    fn add(&mut self, time: Duration, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.worked += time;
        let over = now.saturating_duration_since(since);
        if over < MEASURED_OVER {
            return;
        }
        let share = (self.worked.as_secs_f64() / over.as_secs_f64()).min(1.0);
        // A thread that slept for long starts a new average.
        self.share = match over > 2 * MEASURED_OVER {
            true => share,
            false => (self.share + share) / 2.0,
        };
        self.since = Some(now);
        self.worked = Duration::ZERO;
    }

    /// The wait between runs that fits.
    fn wait(&self) -> Duration {
        let part = ((self.share - IDLE) / (BUSY - IDLE)).clamp(0.0, 1.0);
        UNCONTENDED + (UNCONTENDED_BUSY - UNCONTENDED).mul_f64(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    #[test]
    fn cells_gather_where_links_have_no_room_for_all() {
        let start = Instant::now();
        let mut times = RunTimes::default();
        assert!(times.is_due(INTERVAL, start) && times.next(INTERVAL).is_none());
        times.ran(start, false);
        assert!(!times.is_due(INTERVAL, start));
        assert_eq!(times.next(INTERVAL), Some(start + UNCONTENDED));
        assert!(times.is_due(INTERVAL, start + UNCONTENDED));
        times.ran(start, true);
        assert_eq!(times.next(INTERVAL), Some(start + INTERVAL));
        // A shorter interval of the operator's holds in both cases.
        let short = Duration::from_micros(100);
        assert_eq!(times.interval(short), short);
        times.ran(start, false);
        assert_eq!(times.interval(short), short);
    }

    /// A thread that works for `share` of each millisecond, for a second.
    fn after_a_second_of(times: &mut RunTimes, share: f64, mut now: Instant) -> Instant {
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            times.worked(Duration::from_millis(1).mul_f64(share), now);
        }
        now
    }

    #[test]
    fn a_busy_thread_waits_longer_and_an_idle_one_does_not() {
        let mut now = Instant::now();
        let mut times = RunTimes::default();
        let mut last = Duration::ZERO;
        for share in [0.005, 0.015, 0.02, 0.025, 0.03] {
            now = after_a_second_of(&mut times, share, now);
            times.ran(now, false);
            let wait = times.interval(INTERVAL);
            assert!(wait > last, "{share}: {wait:?}");
            last = wait;
        }
        assert!(last > UNCONTENDED_BUSY.mul_f64(0.99) && last <= UNCONTENDED_BUSY);
        // Bytes that are enough for a run do not wait for more.
        times.gathered(WORTH_A_RUN);
        assert_eq!(times.interval(INTERVAL), UNCONTENDED);
        times.ran(now, false);
        assert_eq!(times.interval(INTERVAL), last);
        now = after_a_second_of(&mut times, 0.0, now);
        assert_eq!(times.interval(INTERVAL), UNCONTENDED);
        // One long sleep is as good as many short ones.
        after_a_second_of(&mut times, 0.9, now);
        times.worked(Duration::ZERO, now + Duration::from_secs(10));
        assert_eq!(times.interval(INTERVAL), UNCONTENDED);
    }

    #[test]
    fn a_thread_sleeps_until_the_next_run_after_a_turn_with_little_to_do() {
        let now = Instant::now();
        let mut times = RunTimes::default();
        assert_eq!(times.pause(600, INTERVAL, now), None, "nothing ran yet");
        times.ran(now, false);
        let later = now + Duration::from_micros(100);
        let next = Some(now + UNCONTENDED);
        assert_eq!(times.pause(600, INTERVAL, later), next);
        assert_eq!(times.pause(0, INTERVAL, later), None, "nothing came");
        assert_eq!(times.pause(WORTH_A_RUN, INTERVAL, later), None);
        assert_eq!(times.pause(600, INTERVAL, now + UNCONTENDED), None);
        // Where links have no room, sockets are looked at all the same.
        times.ran(now, true);
        let longest = Some(now + UNCONTENDED_BUSY);
        assert_eq!(times.pause(600, INTERVAL, now), longest);
    }
}
