//! When the relay measures its own bandwidth, and with how much (C tor `router_perform_bandwidth_test`).
//!
//! Clients do not use a relay whose bandwidth the authorities do not know, and so it would show
//! none. Once its ORPort is reachable, a relay makes four circuits that end at itself and sends
//! meaningless cells on them. No I/O.

use std::time::{Duration, Instant};

use weft_cell::CELL_LEN;

use super::pause_after;

/// Circuits of a test (`NUM_PARALLEL_TESTING_CIRCS`).
pub(crate) const CIRCUITS: u32 = 4;
/// Cells of a test at most (`CIRCWINDOW_START`): a circuit's window.
const MAX_CELLS: u64 = 1000;
/// A test is of this many seconds of BandwidthRate.
const SECONDS: u64 = 10;
/// Interval between tests of a slow relay (`BANDWIDTH_RECHECK_INTERVAL`).
const AGAIN: Duration = Duration::from_secs(12 * 3600);
/// A relay is slow whose published bandwidth is below this, in bytes per second.
const SLOW: u64 = 51_200;

/// The schedule of tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BandwidthTest {
    state: State,
    /// When it is looked at again whether the relay is slow.
    again: Instant,
    /// Tests that failed in a row.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Due(Instant),
    Running,
    Done,
}

impl BandwidthTest {
    /// A relay that starts.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: State::Due(now),
            again: now + AGAIN,
            failures: 0,
        }
    }

    /// True if a test should begin: `published` is the bandwidth in the last descriptor, `rate` is
    /// BandwidthRate. The relay's ORPort must be reachable.
    pub(crate) fn due(&mut self, published: u64, rate: u64, now: Instant) -> bool {
        if now >= self.again {
            self.again = now + AGAIN;
            if self.state == State::Done && published < rate && published < SLOW {
                self.state = State::Due(now);
            }
        }
        matches!(self.state, State::Due(at) if now >= at)
    }

    /// A test has begun.
    pub(crate) fn started(&mut self) {
        self.state = State::Running;
    }

    /// A test has ended; `sent`: some circuit carried its cells.
    pub(crate) fn ended(&mut self, sent: bool, now: Instant) {
        self.failures = if sent { 0 } else { self.failures + 1 };
        self.state = match sent {
            true => State::Done,
            // As many relays were asked as reachability asks in a round.
            false => State::Due(now + pause_after(self.failures.saturating_mul(3))),
        };
    }

    /// The relay has another address.
    pub(crate) fn address_changed(&mut self, now: Instant) {
        if self.state == State::Done {
            self.state = State::Due(now);
        }
    }
}

/// Cells to be sent on each circuit.
pub(crate) fn cells_per_circuit(rate: u64) -> u32 {
    let cells = rate.saturating_mul(SECONDS) / CELL_LEN as u64;
    u32::try_from(cells.min(MAX_CELLS)).unwrap_or(u32::MAX) / CIRCUITS
}

/// The time that one circuit leaves between cells, so that all together keep to the rate.
pub(crate) fn pace(rate: u64) -> Duration {
    let bytes = u64::from(CIRCUITS) * CELL_LEN as u64;
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1 << 20;

    #[test]
    fn a_test_has_c_tors_number_of_cells_and_keeps_to_the_rate() {
        for (rate, cells) in [
            (1 << 30, 250),
            (51_400, 250),
            (25_700, 125),
            (514, 2),
            (0, 0),
        ] {
            assert_eq!(cells_per_circuit(rate), cells, "{rate}");
        }
        assert_eq!(pace(4 * 514), Duration::from_secs(1));
        assert!(pace(1 << 30) < Duration::from_micros(3));
        assert!(pace(0) > Duration::from_secs(1));
    }

    #[test]
    fn a_relay_is_tested_once_and_a_slow_one_every_twelve_hours() {
        let start = Instant::now();
        let mut test = BandwidthTest::new(start);
        assert!(test.due(0, RATE, start));
        test.started();
        assert!(!test.due(0, RATE, start));
        test.ended(true, start);
        assert!(!test.due(0, RATE, start + AGAIN - Duration::from_secs(1)));
        assert!(test.due(SLOW - 1, RATE, start + AGAIN));
        test.started();
        test.ended(true, start + AGAIN);
        assert!(
            !test.due(SLOW, RATE, start + 2 * AGAIN),
            "not slow any more"
        );
        assert!(
            !test.due(100, 100, start + 3 * AGAIN),
            "it shows all that it may"
        );
        assert!(test.due(0, RATE, start + 4 * AGAIN));
    }

    #[test]
    fn a_test_that_failed_is_repeated_with_growing_pauses() {
        let start = Instant::now();
        let mut test = BandwidthTest::new(start);
        let minute = Duration::from_secs(60);
        let mut now = start;
        for pause in [1, 2, 4] {
            assert!(test.due(0, RATE, now));
            test.started();
            test.ended(false, now);
            assert!(!test.due(0, RATE, now + pause * minute - Duration::from_secs(1)));
            now += pause * minute;
        }
    }

    #[test]
    fn another_address_is_tested_anew() {
        let start = Instant::now();
        let mut test = BandwidthTest::new(start);
        test.started();
        test.address_changed(start);
        assert!(!test.due(0, RATE, start), "one runs");
        test.ended(true, start);
        test.address_changed(start);
        assert!(test.due(0, RATE, start));
    }
}
