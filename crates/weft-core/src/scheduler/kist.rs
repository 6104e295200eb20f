//! Write limit of a link for one run of the scheduler.
//!
//! KIST ("kernel-informed socket transport", C tor's `scheduler_kist.c`) hands the kernel about as
//! much as TCP can send at once, plus as much again to send when the acknowledgements come, so
//! that cells wait in the circuits' queues, where priorities count, and not in the kernel, where
//! they do not. [`write_limit`] works that out from what the kernel knows about a socket;
//! [`lite_write_limit`] is KISTLite, for kernels that do not report it. The system calls themselves are
//! made by the owner of the socket.

use std::time::{Duration, Instant};

/// Bytes that C tor reckons for one cell on the wire: the cell (link protocol 4 and up) and TLS's
/// framing around a cell alone in its record. Cells share records here, so this errs on the side
/// of writing less.
pub(crate) const BYTES_PER_CELL: u64 = 514 + 29;

/// The consensus parameter `orconn_high` where it is not set: bytes that may wait in a link's
/// output buffer under KISTLite.
pub const DEFAULT_OUTBUF_HIGH_WATER: u64 = 32 * 1024;

/// The kernel's report on a connected TCP socket (`TCP_INFO` and `SIOCOUTQNSD`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketState {
    /// The congestion window, in segments: `tcpi_snd_cwnd`.
    pub congestion_window: u32,
    /// Segments on the wire that are not acknowledged: `tcpi_unacked`.
    pub unacked: u32,
    /// Bytes in a segment: `tcpi_snd_mss`.
    pub segment_size: u32,
    /// Bytes in the socket that have not been sent once: `SIOCOUTQNSD`.
    pub not_sent: u32,
}

/// The bytes that a link may write now: the room in the congestion window, plus
/// `sock_buf_size_factor` windows, less what already waits in the kernel and in the link's own
/// output buffer (`outbuf` bytes).
#[must_use]
pub fn write_limit(socket: &SocketState, outbuf: u64, sock_buf_size_factor: f64) -> u64 {
    let segment = u64::from(socket.segment_size);
    let window = u64::from(socket.congestion_window) * segment;
    let tcp_space = window.saturating_sub(u64::from(socket.unacked) * segment);
    // Negative or not a number becomes 0, too large becomes the largest there is: what `as` does.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let extra_space = (window as f64 * sock_buf_size_factor) as u64;
    tcp_space
        .saturating_add(extra_space)
        .saturating_sub(u64::from(socket.not_sent))
        .saturating_sub(outbuf)
}

/// Bytes that a link may write by what the kernel answered before, at most: what TCP sends on a connection that it
/// knows nothing of, ten segments (RFC 6928). So much may be beyond the limit of a socket whose window has shrunk
/// since, and then waits in the kernel.
const UNASKED: u64 = 10 * 1448;

/// Longest time for which an answer of the kernel is used.
const ANSWER_LASTS: Duration = Duration::from_secs(1);

/// Estimate of a socket's limit without a system call each time: the kernel's last answer, minus
/// the bytes written since. A link with a handful of cells a second always has room for them,
/// whatever its window has become: KIST is for links with more, and the kernel is asked about these
/// in each run of the scheduler.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownLimit {
    answered: Option<Instant>,
    /// Bytes that may still be written by that answer.
    left: u64,
}

impl KnownLimit {
    /// Bytes that the link may write without asking. With acknowledgements the true limit has grown since the
    /// answer, so this is less than it unless the window shrank.
    #[must_use]
    pub fn known(&self, now: Instant) -> u64 {
        match self.answered {
            Some(answered) if now.saturating_duration_since(answered) < ANSWER_LASTS => self.left,
            _ => 0,
        }
    }

    /// True if the kernel has answered in this run of the scheduler.
    #[must_use]
    pub fn is_new(&self, now: Instant) -> bool {
        self.answered == Some(now)
    }

    /// The kernel gave a limit ([`write_limit`]).
    pub fn answered(&mut self, limit: u64, now: Instant) {
        self.answered = Some(now);
        self.left = limit.min(UNASKED);
    }

    /// So many bytes were written.
    pub fn wrote(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

/// The bytes that a link may write now if the kernel reports nothing: as many cells as bring its
/// output buffer (`outbuf` bytes) to `high_water` or just over it.
#[must_use]
pub fn lite_write_limit(outbuf: u64, high_water: u64) -> u64 {
    high_water
        .saturating_sub(outbuf)
        .div_ceil(514)
        .saturating_mul(BYTES_PER_CELL)
}

/// The number of cells that fit into a limit in bytes: the link's budget
/// ([`Scheduler::set_budget`](super::Scheduler::set_budget)).
#[must_use]
pub fn cells(limit: u64) -> u32 {
    u32::try_from(limit / BYTES_PER_CELL).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: SocketState = SocketState {
        congestion_window: 10,
        unacked: 4,
        segment_size: 1_000,
        not_sent: 0,
    };

    #[test]
    fn a_link_may_fill_its_window_and_one_more() {
        assert_eq!(write_limit(&SOCKET, 0, 1.0), 6_000 + 10_000);
        assert_eq!(write_limit(&SOCKET, 0, 0.5), 6_000 + 5_000);
    }

    #[test]
    fn what_waits_already_counts_against_the_limit() {
        let socket = SocketState {
            not_sent: 3_000,
            ..SOCKET
        };
        assert_eq!(write_limit(&socket, 500, 1.0), 16_000 - 3_500);
        assert_eq!(write_limit(&socket, 20_000, 1.0), 0);
    }

    #[test]
    fn more_unacknowledged_than_the_window_leaves_the_extra_space_only() {
        let socket = SocketState {
            unacked: 30,
            ..SOCKET
        };
        assert_eq!(write_limit(&socket, 0, 1.0), 10_000);
    }

    #[test]
    fn absurd_numbers_saturate() {
        let socket = SocketState {
            congestion_window: u32::MAX,
            unacked: 0,
            segment_size: u32::MAX,
            not_sent: 0,
        };
        assert_eq!(write_limit(&socket, 0, f64::INFINITY), u64::MAX);
        assert_eq!(cells(u64::MAX), u32::MAX);
        assert_eq!(write_limit(&SOCKET, 0, -1.0), 6_000);
        assert_eq!(write_limit(&SOCKET, 0, f64::NAN), 6_000);
    }

    #[test]
    fn kist_lite_fills_the_output_buffer_to_its_high_water_mark() {
        let limit = |outbuf| cells(lite_write_limit(outbuf, DEFAULT_OUTBUF_HIGH_WATER));
        assert_eq!(limit(0), 64, "32 KiB are 63.8 cells");
        assert_eq!(limit(32 * 1024 - 1), 1);
        assert_eq!(limit(32 * 1024), 0);
        assert_eq!(limit(u64::MAX), 0);
    }

    /// A socket whose peer acknowledges at a rate, and what a scheduler that asks in this way wrote to it.
    struct Sender {
        /// Bytes written and not acknowledged.
        outstanding: u64,
        known: KnownLimit,
        asked: u32,
        written: u64,
    }

    impl Sender {
        fn new() -> Self {
            Sender {
                outstanding: 0,
                known: KnownLimit::default(),
                asked: 0,
                written: 0,
            }
        }

        /// The kernel's state with this window.
        fn state(&self, window: u32) -> SocketState {
            let segments = self.outstanding.div_ceil(1448).min(u64::from(window));
            SocketState {
                congestion_window: window,
                unacked: u32::try_from(segments).unwrap(),
                segment_size: 1448,
                not_sent: u32::try_from(self.outstanding.saturating_sub(segments * 1448)).unwrap(),
            }
        }

        /// Runs the scheduler once with this number of cells waiting; returns the number that it
        /// sends.
        fn run(&mut self, waiting: u32, window: u32, asks_always: bool, now: Instant) -> u32 {
            let mut room = cells(self.known.known(now));
            if asks_always || room < waiting {
                self.asked += 1;
                let limit = write_limit(&self.state(window), 0, 1.0);
                self.known.answered(limit, now);
                room = cells(limit);
            }
            let sent = room.min(waiting);
            let bytes = u64::from(sent) * 514;
            self.known.wrote(bytes);
            self.outstanding += bytes;
            self.written += bytes;
            sent
        }
    }

    /// Runs two links with equal cells, one of which asks the kernel in every run. Returns the
    /// cells that both wrote, the number of times that the other asked, and the most that it was
    /// ahead.
    fn compared(seed: u32, most: u32, acked_each_ms: u64) -> (u64, u64, u32, u64) {
        let start = Instant::now();
        let mut random = seed;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let (mut always, mut seldom) = (Sender::new(), Sender::new());
        let (mut waiting, mut ahead) = ((0, 0), 0);
        let mut window = 10;
        for ms in 0..20_000 {
            let now = start + Duration::from_millis(ms);
            for sender in [&mut always, &mut seldom] {
                sender.outstanding = sender.outstanding.saturating_sub(acked_each_ms);
            }
            // The window grows, and after a loss it is two segments.
            window = match next(1000) {
                0 => 2,
                1..20 => window + 1,
                _ => window,
            };
            let come = match next(50) {
                0 => next(most) + 1,
                _ => 0,
            };
            waiting = (waiting.0 + come, waiting.1 + come);
            waiting.0 -= always.run(waiting.0, window, true, now);
            if waiting.1 > 0 {
                waiting.1 -= seldom.run(waiting.1, window, false, now);
            }
            let kist = (u64::from(window) * 1448 * 2).max(always.outstanding);
            ahead = ahead.max(seldom.outstanding.saturating_sub(kist));
        }
        (always.written, seldom.written, seldom.asked, ahead)
    }

    #[test]
    fn a_link_with_a_handful_of_cells_sends_the_same_and_asks_once_a_second() {
        // Twenty cells a second, two at most at once, and as many bytes are acknowledged.
        let (always, seldom, asked, ahead) = compared(1, 2, 20);
        assert_eq!(always, seldom);
        assert!((15..60).contains(&asked), "{asked}");
        assert_eq!(ahead, 0);
    }

    #[test]
    fn a_link_that_is_full_keeps_to_kists_limit_with_few_segments_more() {
        for seed in 1..20 {
            let (always, seldom, _, ahead) = compared(seed, 200, 600);
            assert!(ahead <= UNASKED, "{seed}: {ahead}");
            assert!(
                seldom.abs_diff(always) <= 2 * UNASKED,
                "{seed}: {seldom} {always}"
            );
        }
    }

    #[test]
    fn an_answer_is_forgotten_after_a_second_and_used_up_by_what_is_written() {
        let now = Instant::now();
        let mut known = KnownLimit::default();
        assert_eq!(known.known(now), 0);
        known.answered(u64::MAX, now);
        assert!(known.is_new(now));
        assert_eq!(known.known(now), UNASKED);
        known.wrote(UNASKED - 1000);
        let later = now + ANSWER_LASTS / 2;
        assert!(!known.is_new(later));
        assert_eq!(known.known(later), 1000);
        known.wrote(5000);
        assert_eq!(known.known(later), 0);
        known.answered(500, later);
        assert_eq!(known.known(later), 500);
        assert_eq!(known.known(later + ANSWER_LASTS), 0);
    }
}
