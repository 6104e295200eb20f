//! Detection of links that lost packets hold up, from the kernel's counters of the TCP connection.
//!
//! TCP delivers in order. Segments that arrive behind a lost one wait until it has been sent again,
//! about a round trip, and with them the cells of every circuit on the link. [`LossMeter`] measures
//! the share of that wait in each direction, whichever end of the link has lost segments to resend:
//!
//! - of what we received: the share of segments that arrived out of order, which are those that waited;
//! - of what we sent: a round trip of waiting for each segment that was sent again.
//!
//! A few long waits are what congestion looks like, and frequent ones are what a lossy path looks like. So the
//! meter counts the periods that were held up, not the segments that were lost. docs/circuit-connections.md
//! has the measurements behind the numbers here.

use std::time::{Duration, Instant};

/// Two readings make a period if they are so far apart.
const PERIOD: Duration = Duration::from_secs(1);
/// Segments in one direction without which a period shows nothing of it.
const MIN_SEGMENTS: u32 = 16;
/// Percentage of waits from which on a period is held up.
const HELD_UP_PERCENT: u64 = 3;
/// Number of held-up periods, of the last 16 with traffic, that make a link lossy.
const LOSSY: u32 = 6;
/// Number of them, or fewer, that make it clean again.
const CLEAN: u32 = 2;
/// Time without a period with traffic after which the link counts as clean.
const FORGET: Duration = Duration::from_secs(600);

/// The kernel's counters since a TCP connection opened. They wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Segments with data that were sent, or sent again: `tcpi_data_segs_out`.
    pub sent: u32,
    /// Segments that were sent again: `tcpi_total_retrans`.
    pub retransmitted: u32,
    /// Segments with data that were received: `tcpi_data_segs_in`.
    pub received: u32,
    /// Segments that arrived before an earlier one: `tcpi_rcv_ooopack`, since Linux 5.4.
    pub out_of_order: u32,
    /// The smoothed round-trip time: `tcpi_rtt`.
    pub round_trip: Duration,
}

/// Decides whether lost packets hold up a link.
///
/// [`read`](Self::read) takes the counters of one connection in the order of time, as often as the caller
/// likes; readings closer than a second to the one before change nothing. The verdict follows the last 16
/// periods with traffic: six of them held up make the link lossy, at most two make it clean again, and
/// between these it stays as it is. Periods without traffic do not count, and ten minutes of them make it
/// clean.
#[derive(Debug, Clone, Copy, Default)]
pub struct LossMeter {
    /// The reading at which this period began.
    begun: Option<(TcpCounters, Instant)>,
    /// The last period with traffic ended then.
    judged: Option<Instant>,
    /// The last 16 periods with traffic, the latest lowest: whether each was held up.
    held_up: u16,
    lossy: bool,
}

impl LossMeter {
    /// Takes a reading, and returns whether the link is lossy.
    pub fn read(&mut self, counters: TcpCounters, now: Instant) -> bool {
        let Some((begun, since)) = self.begun else {
            self.begun = Some((counters, now));
            return self.lossy;
        };
        let length = now.saturating_duration_since(since);
        if length < PERIOD {
            return self.lossy;
        }
        self.begun = Some((counters, now));
        match held_up(begun, counters, length) {
            Some(held_up) => {
                self.judged = Some(now);
                self.held_up = self.held_up << 1 | u16::from(held_up);
            }
            None => {
                let is_old = |at: Instant| now.saturating_duration_since(at) >= FORGET;
                if self.judged.is_some_and(is_old) {
                    self.held_up = 0;
                }
            }
        }
        let limit = if self.lossy { CLEAN + 1 } else { LOSSY };
        self.lossy = self.held_up.count_ones() >= limit;
        self.lossy
    }

    /// True if the link is lossy, by the readings so far.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }
}

/// Waits for lost segments made up a good part of the period between two readings. `None`: too few
/// segments to decide.
fn held_up(before: TcpCounters, after: TcpCounters, length: Duration) -> Option<bool> {
    let sent = after.sent.wrapping_sub(before.sent);
    let received = after.received.wrapping_sub(before.received);
    if sent.max(received) < MIN_SEGMENTS {
        return None;
    }
    let retransmitted = after.retransmitted.wrapping_sub(before.retransmitted);
    let out_of_order = after.out_of_order.wrapping_sub(before.out_of_order);
    let waited = after.round_trip.saturating_mul(retransmitted);
    let sending = sent >= MIN_SEGMENTS
        && waited.as_micros().saturating_mul(100)
            >= length.as_micros() * u128::from(HELD_UP_PERCENT);
    let receiving = received >= MIN_SEGMENTS
        && u64::from(out_of_order) * 100 >= u64::from(received) * HELD_UP_PERCENT;
    Some(sending || receiving)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A meter, and the connection that it is read from.
    struct Line {
        meter: LossMeter,
        counters: TcpCounters,
        now: Instant,
    }

    impl Line {
        fn new() -> Self {
            // Counters that are about to wrap.
            let counters = TcpCounters {
                sent: u32::MAX - 150,
                retransmitted: u32::MAX - 2,
                received: u32::MAX - 150,
                out_of_order: u32::MAX - 2,
                round_trip: Duration::from_millis(50),
            };
            let mut line = Line {
                meter: LossMeter::default(),
                counters,
                now: Instant::now(),
            };
            line.meter.read(line.counters, line.now);
            line
        }

        /// Seconds in which this was added to the counters.
        fn pass(
            &mut self,
            seconds: u32,
            [sent, again]: [u32; 2],
            [received, late]: [u32; 2],
        ) -> bool {
            for _ in 0..seconds {
                self.now += SECOND;
                let counters = &mut self.counters;
                counters.sent = counters.sent.wrapping_add(sent);
                counters.retransmitted = counters.retransmitted.wrapping_add(again);
                counters.received = counters.received.wrapping_add(received);
                counters.out_of_order = counters.out_of_order.wrapping_add(late);
                self.meter.read(*counters, self.now);
            }
            self.meter.is_lossy()
        }
    }

    #[test]
    fn six_seconds_held_up_in_either_direction_make_a_link_lossy() {
        let mut receiving = Line::new();
        assert!(!receiving.pass(5, [0, 0], [100, 3]));
        assert!(receiving.pass(1, [0, 0], [100, 3]));
        let mut sending = Line::new();
        assert!(!sending.pass(5, [100, 1], [0, 0]));
        assert!(sending.pass(1, [100, 1], [0, 0]));
    }

    #[test]
    fn less_than_three_percent_of_waits_is_no_loss() {
        assert!(!Line::new().pass(60, [1000, 0], [1000, 29]));
        // Thirty milliseconds are three percent of a second.
        let mut line = Line::new();
        line.counters.round_trip = Duration::from_millis(29);
        assert!(!line.pass(60, [1000, 1], [1000, 0]));
        assert!(line.pass(6, [1000, 2], [1000, 0]));
    }

    #[test]
    fn rare_waits_are_no_loss_however_long_they_are() {
        let mut line = Line::new();
        for _ in 0..20 {
            assert!(!line.pass(3, [2000, 0], [2000, 0]));
            assert!(!line.pass(1, [2000, 900], [2000, 900]));
        }
    }

    #[test]
    fn a_lossy_link_becomes_clean_when_two_of_sixteen_seconds_are_held_up() {
        let mut line = Line::new();
        assert!(line.pass(6, [100, 2], [100, 20]));
        // Five of them are still among the last sixteen, then four, then three.
        assert!(line.pass(13, [100, 0], [100, 0]));
        assert!(!line.pass(1, [100, 0], [100, 0]));
    }

    #[test]
    fn seconds_without_traffic_show_nothing_and_ten_minutes_of_them_are_forgotten() {
        let mut line = Line::new();
        assert!(line.pass(6, [100, 2], [0, 0]));
        assert!(line.pass(599, [15, 15], [15, 15]));
        assert!(!line.pass(1, [0, 0], [0, 0]));
        assert!(!line.pass(5, [100, 2], [0, 0]), "it begins anew");
    }

    #[test]
    fn readings_closer_than_a_second_and_clocks_that_jump_back_change_nothing() {
        let mut line = Line::new();
        for step in 1..100u32 {
            let counters = TcpCounters {
                sent: line.counters.sent.wrapping_add(100 * step),
                retransmitted: line.counters.retransmitted.wrapping_add(100 * step),
                ..line.counters
            };
            assert!(!line.meter.read(counters, line.now + step * SECOND / 100));
            assert!(!line.meter.read(counters, line.now - SECOND));
        }
        assert_eq!(line.meter.held_up, 0);
    }

    #[test]
    fn absurd_counters_do_no_harm() {
        let mut meter = LossMeter::default();
        let now = Instant::now();
        let all = TcpCounters {
            sent: u32::MAX,
            retransmitted: u32::MAX,
            received: u32::MAX,
            out_of_order: u32::MAX,
            round_trip: Duration::MAX,
        };
        for second in 0..20 {
            let counters = [TcpCounters::default(), all][second as usize % 2];
            meter.read(counters, now + second * SECOND);
        }
        assert!(meter.is_lossy());
    }
}
