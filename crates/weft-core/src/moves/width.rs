//! Number of connection threads that get links.
//!
//! The cost of a cell depends on the number of cells for each wake-up, not on the number of
//! threads: work that one thread can do costs least on one. So a relay begins with one thread,
//! takes another when those in use are busy and a core is idle for it, and gives one up when the
//! others have had room for its work for a while.

use std::time::{Duration, Instant};

/// Part of the time that the threads in use work, in the mean: from here on there is one more.
const BUSY: f64 = 0.6;

/// Highest mean load, computed for one thread less, at which one less is in use. Half of [`BUSY`],
/// so that a load between the two changes nothing.
const ROOM: f64 = 0.3;

/// Cores of the machine that must be idle for one more thread: without them it would take turns with the others.
const IDLE_CORES: f64 = 0.5;

/// Number of measurements at which they must all have been idle: a core is idle for a moment
/// whenever a load begins.
const TIMES: usize = 3;

/// Between two changes upward: what is measured must be of the threads that are in use.
const UP: Duration = Duration::from_secs(1);

/// Time that there must have been room before one thread less is in use.
const DOWN: Duration = Duration::from_secs(60);

/// Load of the threads in use, as fractions of one thread's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Mean over the threads in use, within about the last second.
    pub mean: f64,
    /// Sum over all threads, within about the last ten seconds.
    pub sum: f64,
}

/// Chooses the number of threads that get links.
#[derive(Clone, Debug)]
pub struct Width {
    /// As many as there are, or as the machine has cores for.
    most: u16,
    in_use: u16,
    idle_cores: [Option<f64>; TIMES],
    changed: Option<Instant>,
    /// The time from which on there is room.
    room_since: Option<Instant>,
}

impl Width {
    /// Creates the state for at most `most` threads, at least one.
    #[must_use]
    pub fn new(most: u16) -> Self {
        Width {
            most: most.max(1),
            in_use: 1,
            idle_cores: [None; TIMES],
            changed: None,
            room_since: None,
        }
    }

    /// Number of threads in use.
    #[must_use]
    pub fn in_use(&self) -> u16 {
        self.in_use
    }

    /// Sets the number of the machine's cores that were idle in the last second. Where it is
    /// unknown, there are assumed to be enough.
    pub fn set_idle_cores(&mut self, cores: Option<f64>) {
        self.idle_cores.rotate_right(1);
        self.idle_cores[0] = cores;
    }

    /// The number from now on, if it changes.
    pub fn decide(&mut self, work: Work, now: Instant) -> Option<u16> {
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        let mut known = self.idle_cores.iter().flatten();
        let has_idle_core = known.all(|idle| *idle >= IDLE_CORES);
        let rests = since(self.changed).is_some_and(|time| time < UP);
        let wanted = if work.mean >= BUSY && has_idle_core && !rests {
            // Half as many again: a load for sixteen threads that comes at once has them within ten seconds.
            let more = (self.in_use / 2).max(1);
            self.in_use.saturating_add(more).min(self.most)
        } else {
            self.in_use
        };
        let fewer = self.in_use.saturating_sub(1);
        if fewer == 0 || work.sum > ROOM * f64::from(fewer) {
            self.room_since = None;
        } else {
            self.room_since.get_or_insert(now);
        }
        let wanted = match since(self.room_since) {
            Some(time) if time >= DOWN => fewer,
            _ => wanted,
        };
        (wanted != self.in_use).then(|| {
            self.in_use = wanted;
            self.changed = Some(now);
            self.room_since = None;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    /// Applies changes of a load, each for the given number of seconds; returns the threads in use
    /// at the end of each.
    fn widths(width: &mut Width, loads: &[(f64, u32)]) -> Vec<u16> {
        let mut now = Instant::now();
        let mut seen = Vec::new();
        for (load, seconds) in loads {
            for _ in 0..seconds * 4 {
                now += STEP;
                let mean = (load / f64::from(width.in_use())).min(1.0);
                let sum = mean * f64::from(width.in_use());
                width.decide(Work { mean, sum }, now);
            }
            seen.push(width.in_use());
        }
        seen
    }

    #[test]
    fn a_load_has_as_many_threads_as_it_needs() {
        let mut width = Width::new(16);
        let loads = [(0.0, 600), (0.59, 600), (0.7, 600), (3.0, 600), (20.0, 600)];
        assert_eq!(widths(&mut width, &loads), [1, 1, 2, 6, 16]);
    }

    #[test]
    fn a_load_for_all_threads_that_comes_at_once_has_them_within_ten_seconds() {
        let mut width = Width::new(16);
        assert_eq!(widths(&mut width, &[(16.0, 10)]), [16]);
    }

    #[test]
    fn threads_are_left_out_one_by_one_when_there_has_been_room_for_a_minute() {
        let mut width = Width::new(4);
        let loads = [(4.0, 60), (0.2, 59), (0.2, 2), (0.2, 60), (0.2, 600)];
        assert_eq!(widths(&mut width, &loads), [4, 4, 3, 2, 1]);
        let loads = [(2.0, 60), (0.4, 40), (1.5, 1), (0.4, 40)];
        assert_eq!(
            widths(&mut Width::new(4), &loads)[1..],
            [4, 4, 4],
            "a burst in between begins the minute anew"
        );
    }

    #[test]
    fn no_load_makes_the_number_go_up_and_down() {
        for hundredths in 0..=900 {
            let load = f64::from(hundredths) / 100.0;
            let mut width = Width::new(16);
            widths(&mut width, &[(load, 600)]);
            let before = width.changed;
            widths(&mut width, &[(load, 600)]);
            assert_eq!(width.changed, before, "{load}");
        }
    }

    #[test]
    fn without_an_idle_core_there_is_no_other_thread() {
        let mut width = Width::new(8);
        width.set_idle_cores(Some(0.3));
        assert_eq!(widths(&mut width, &[(1.0, 600)]), [1]);
        for _ in 1..TIMES {
            width.set_idle_cores(Some(0.9));
        }
        assert_eq!(widths(&mut width, &[(1.0, 600)]), [1], "for a moment");
        width.set_idle_cores(Some(0.9));
        assert_eq!(widths(&mut width, &[(0.5, 60), (1.0, 60)]), [1, 2]);
        width.set_idle_cores(Some(0.0));
        assert_eq!(widths(&mut width, &[(2.0, 60), (0.1, 90)]), [2, 1]);
    }

    #[test]
    fn numbers_that_make_no_sense_are_harmless() {
        let now = Instant::now();
        let mut width = Width::new(0);
        for number in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            width.set_idle_cores(Some(number));
            let (mean, sum) = (number, number);
            assert_eq!(width.decide(Work { mean, sum }, now), None);
        }
    }
}
