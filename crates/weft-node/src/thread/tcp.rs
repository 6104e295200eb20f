//! The kernel's state of a TCP socket: congestion window and unsent bytes, for KIST, and lost
//! segments.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use weft_core::link::loss::TcpCounters;
use weft_core::scheduler::kist::SocketState;

/// Reads `TCP_INFO` and the number of bytes that the kernel has not sent yet.
///
/// `None` when the kernel does not report them (the caller then schedules as KISTLite).
pub(super) fn info(socket: &impl AsRawFd) -> Option<SocketState> {
    let fd = socket.as_raw_fd();
    let info = tcp_info(fd)?;
    let notsent = unsent(fd)?;
    Some(SocketState {
        congestion_window: info.tcpi_snd_cwnd,
        unacked: info.tcpi_unacked,
        segment_size: info.tcpi_snd_mss,
        not_sent: notsent,
    })
}

/// Counters from `TCP_INFO`. A kernel leaves those that it does not count at 0.
pub(super) fn counters(socket: &impl AsRawFd) -> Option<TcpCounters> {
    let info = tcp_info(socket.as_raw_fd())?;
    Some(TcpCounters {
        sent: info.tcpi_data_segs_out,
        retransmitted: info.tcpi_total_retrans,
        received: info.tcpi_data_segs_in,
        out_of_order: info.tcpi_rcv_ooopack,
        round_trip: Duration::from_micros(info.tcpi_rtt.into()),
    })
}

/// `getsockopt(IPPROTO_TCP, TCP_INFO)`.
fn tcp_info(fd: RawFd) -> Option<libc::tcp_info> {
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: `tcp_info` is a C struct of integers, for which all-zero bytes are a value. The
    // kernel writes at most `length` bytes, the size of the struct, and an older kernel that
    // writes fewer leaves zeros. `fd` is borrowed from a socket that outlives the call.
    let (result, info) = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let result = libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        );
        (result, info)
    };
    (result == 0).then_some(info)
}

/// `ioctl(SIOCOUTQNSD)`: bytes in the send queue that were never sent.
fn unsent(fd: RawFd) -> Option<u32> {
    /// From linux/sockios.h.
    const SIOCOUTQNSD: libc::c_ulong = 0x894B;
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes one int through the pointer, which is valid for the call.
    let result = unsafe { libc::ioctl(fd, SIOCOUTQNSD, &raw mut bytes) };
    if result != 0 {
        return None;
    }
    u32::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connected_socket_has_a_window_and_a_filled_one_has_unsent_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let quiet = info(&socket).unwrap();
        assert!(quiet.congestion_window > 0 && quiet.segment_size > 0);
        assert_eq!(quiet.not_sent, 0);
        socket.set_nonblocking(true).unwrap();
        // Nothing reads: the receiver's window fills, then the send queue.
        while socket.write(&[0; 65536]).is_ok() {}
        assert!(info(&socket).unwrap().not_sent > 0);
    }

    #[test]
    fn segments_are_counted_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut to, _) = listener.accept().unwrap();
        from.write_all(&[0; 100_000]).unwrap();
        to.read_exact(&mut [0; 100_000]).unwrap();
        let [from, to] = [from, to].map(|socket| counters(&socket).unwrap());
        assert!(from.sent > 0 && !from.round_trip.is_zero(), "{from:?}");
        assert!(to.received > 0 && to.sent == 0, "{to:?}");
    }

    #[test]
    fn what_is_no_tcp_socket_has_no_information() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(info(&file).is_none() && counters(&file).is_none());
    }
}
