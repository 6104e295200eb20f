//! Tests of a relay's capacity, and the cause that limits it.

use std::time::Duration;

use weft_cell::abra::AbraReason;

/// Limits that a thread reached in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The bandwidth that all connections share blocked reading or writing in at least half of the bins.
    pub limited: bool,
    /// The thread was in its turns for at least 90 % of the second.
    pub busy: bool,
    /// At least half of the cells that the scheduler chose went to links that had more waiting at the end
    /// of every bin.
    pub links_full: bool,
}

impl Capacity {
    /// The limit to report: the relay's own limits before a busy thread, and a busy thread before
    /// full links, because each causes those after it.
    pub fn reason(self) -> AbraReason {
        match self {
            Capacity { limited: true, .. } => AbraReason::OwnLimits,
            Capacity { busy: true, .. } => AbraReason::BusyThread,
            Capacity {
                links_full: true, ..
            } => AbraReason::FullLink,
            _ => AbraReason::BelowCapacity,
        }
    }

    /// Combines the limits of a relay's threads: one thread at its capacity is enough, because its
    /// circuits cannot move to another.
    #[must_use]
    pub fn or(self, other: Capacity) -> Capacity {
        Capacity {
            limited: self.limited || other.limited,
            busy: self.busy || other.busy,
            links_full: self.links_full || other.links_full,
        }
    }
}

/// Finds a thread's [`Capacity`] of each second.
#[derive(Debug, Default)]
pub(crate) struct CapacityMeter {
    /// The limits blocked something in the current bin.
    limited_now: bool,
    /// Bins in which they did.
    limited_bins: u32,
    /// Bins so far.
    bins: u32,
    /// Time in turns.
    busy: Duration,
    /// Cells that the scheduler chose.
    cells: u32,
}

impl CapacityMeter {
    /// The limits blocked reading or writing.
    pub(crate) fn note_limited(&mut self) {
        self.limited_now = true;
    }

    /// Notes the duration of a turn.
    pub(crate) fn note_turn(&mut self, took: Duration) {
        self.busy = self.busy.saturating_add(took);
    }

    /// The scheduler chose cells.
    pub(crate) fn note_cells(&mut self, cells: u32) {
        self.cells = self.cells.saturating_add(cells);
    }

    /// A bin ended, or several that nothing was seen between.
    pub(crate) fn bins_ended(&mut self, bins: u32) {
        self.bins += bins;
        if std::mem::take(&mut self.limited_now) {
            self.limited_bins += bins;
        }
    }

    /// Ends a second of length `took`; `full` of its cells were for links that were full all the
    /// time.
    pub(crate) fn second_ended(&mut self, took: Duration, full: u32) -> Capacity {
        let CapacityMeter {
            limited_now,
            limited_bins,
            bins,
            busy,
            cells,
        } = std::mem::take(self);
        self.limited_now = limited_now;
        Capacity {
            limited: limited_bins > 0 && limited_bins * 2 >= bins,
            busy: busy > Duration::ZERO && busy * 10 >= took * 9,
            links_full: full > 0 && full.saturating_mul(2) >= cells,
        }
    }
}

/// Fill level of a link during a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkFill {
    /// The second.
    second: u32,
    /// Cells that the scheduler chose for it.
    cells: u32,
    /// Ends of bins at which more waited.
    full: u32,
}

impl LinkFill {
    /// The state for this second, reset if a new one has begun.
    fn of(&mut self, second: u32) -> &mut Self {
        if self.second != second {
            *self = LinkFill {
                second,
                ..LinkFill::default()
            };
        }
        self
    }

    /// The scheduler chose cells for the link.
    pub(crate) fn note_cells(&mut self, second: u32, cells: u32) {
        let fill = self.of(second);
        fill.cells = fill.cells.saturating_add(cells);
    }

    /// A bin ended and cells wait for the link.
    pub(crate) fn note_full(&mut self, second: u32) {
        self.of(second).full += 1;
    }

    /// Its cells, if it was full at the ends of all these bins.
    pub(crate) fn cells_if_full(&mut self, second: u32, ends: u32) -> u32 {
        let fill = self.of(second);
        match fill.full >= ends {
            true => fill.cells,
            false => 0,
        }
    }
}

/// Capacity of a thread, as the scheduler meters it while circuits are measured.
#[derive(Debug, Default)]
pub(crate) struct Metering {
    /// Finds the capacity of the seconds.
    pub(crate) meter: CapacityMeter,
    /// The number of the current second.
    pub(crate) second: u32,
}

impl Metering {
    /// The scheduler chose cells for a link.
    pub(crate) fn note_scheduled(&mut self, link: &mut LinkFill, cells: u32) {
        self.meter.note_cells(cells);
        link.note_cells(self.second, cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_thread_at_its_capacity_is_enough() {
        let of = |bits: u8| Capacity {
            limited: bits & 1 != 0,
            busy: bits & 2 != 0,
            links_full: bits & 4 != 0,
        };
        for one in 0..8 {
            for other in 0..8 {
                assert_eq!(of(one).or(of(other)), of(one | other), "{one}, {other}");
            }
        }
    }

    /// A second of ten bins: those in which the limits blocked, milliseconds of turns, cells, and those to
    /// full links.
    fn second(limited: u32, busy: u64, cells: u32, full: u32) -> Capacity {
        let mut meter = CapacityMeter::default();
        for bin in 0..10 {
            if bin < limited {
                meter.note_limited();
            }
            meter.note_turn(Duration::from_millis(busy) / 10);
            meter.bins_ended(1);
        }
        meter.note_cells(cells);
        meter.second_ended(SECOND, full)
    }

    #[test]
    fn a_relay_with_bandwidth_left_is_below_its_capacity() {
        assert_eq!(second(0, 0, 0, 0), Capacity::default());
        assert_eq!(second(4, 899, 1001, 500), Capacity::default());
        assert_eq!(Capacity::default().reason(), AbraReason::BelowCapacity);
    }

    #[test]
    fn each_condition_is_found_by_itself() {
        let limited = second(5, 0, 100, 0);
        assert_eq!(limited.reason(), AbraReason::OwnLimits);
        let busy = second(0, 900, 100, 0);
        assert_eq!(busy.reason(), AbraReason::BusyThread);
        let full = second(0, 0, 1000, 500);
        assert_eq!(full.reason(), AbraReason::FullLink);
    }

    #[test]
    fn limits_come_before_busy_threads_and_these_before_full_links() {
        assert_eq!(second(9, 950, 10, 10).reason(), AbraReason::OwnLimits);
        assert_eq!(second(0, 950, 10, 10).reason(), AbraReason::BusyThread);
        let threads = second(0, 0, 10, 10).or(second(0, 950, 10, 0));
        assert_eq!(threads.reason(), AbraReason::BusyThread);
    }

    #[test]
    fn bins_that_a_long_turn_swallowed_are_counted() {
        let mut meter = CapacityMeter::default();
        meter.note_limited();
        meter.bins_ended(6);
        meter.bins_ended(4);
        assert!(meter.second_ended(SECOND, 0).limited);
    }

    #[test]
    fn a_second_begins_anew() {
        let mut meter = CapacityMeter::default();
        meter.note_limited();
        meter.bins_ended(10);
        assert!(meter.second_ended(SECOND, 0).limited);
        meter.bins_ended(10);
        assert_eq!(meter.second_ended(SECOND, 0), Capacity::default());
    }

    #[test]
    fn a_link_is_full_if_it_was_at_the_end_of_every_bin_of_the_second() {
        let mut fill = LinkFill::default();
        for _ in 0..10 {
            fill.note_cells(1, 30);
            fill.note_full(1);
        }
        assert_eq!(fill.cells_if_full(1, 10), 300);
        fill.note_cells(2, 30);
        for _ in 0..9 {
            fill.note_full(2);
        }
        assert_eq!(fill.cells_if_full(2, 10), 0);
    }
}
