//! How much a link may write in one run of the scheduler.
//!
//! KIST ("kernel-informed socket transport", C tor's `scheduler_kist.c`) hands the kernel about as
//! much as TCP can send at once, plus as much again to send when the acknowledgements come, so
//! that cells wait in the circuits' queues, where priorities count, and not in the kernel, where
//! they do not. [`write_limit`] works that out from what the kernel knows about a socket;
//! [`lite_write_limit`] is KISTLite, for kernels that do not report it. The system calls themselves are
//! made by the owner of the socket.

/// Bytes that C tor reckons for one cell on the wire: the cell (link protocol 4 and up) and TLS's
/// framing around a cell alone in its record. Cells share records here, so this errs on the side
/// of writing less.
pub(crate) const BYTES_PER_CELL: u64 = 514 + 29;

/// The consensus parameter `orconn_high` where it is not set: bytes that may wait in a link's
/// output buffer under KISTLite.
pub const DEFAULT_OUTBUF_HIGH_WATER: u64 = 32 * 1024;

/// What the kernel reports about a connected TCP socket (`TCP_INFO` and `SIOCOUTQNSD`).
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

/// The bytes that a link may write now if the kernel reports nothing: as many cells as bring its
/// output buffer (`outbuf` bytes) to `high_water` or just over it.
#[must_use]
pub fn lite_write_limit(outbuf: u64, high_water: u64) -> u64 {
    high_water
        .saturating_sub(outbuf)
        .div_ceil(514)
        .saturating_mul(BYTES_PER_CELL)
}

/// The cells that fit into a limit of so many bytes: the link's budget
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
}
