//! TCP sockets that connect, and the bounds of a socket's buffers.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Begins to connect to `to`, from the address `from` (OutboundBindAddress and its kind) if there is one. The
/// connection thread that gets the socket waits for the result. `constrained` is ConstrainedSockSize, in
/// bytes, if ConstrainedSockets is set.
pub(super) fn connect(
    to: SocketAddr,
    from: Option<IpAddr>,
    constrained: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    constrain(SockRef::from(&socket), constrained);
    if let Some(from) = from {
        // The kernel chooses the port when it knows the destination, so that connections to different
        // destinations can share one.
        setsockopt(&socket, IpBindAddressNoPort, &true).ok();
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Bounds the kernel's buffers of a socket (`ConstrainedSockets`).
pub(super) fn constrain(socket: SockRef<'_>, bytes: Option<usize>) {
    let Some(bytes) = bytes else { return };
    for (set, which) in [
        (socket.set_send_buffer_size(bytes), "send"),
        (socket.set_recv_buffer_size(bytes), "receive"),
    ] {
        if let Err(error) = set {
            tracing::warn!("Could not constrain a {which} buffer to {bytes} bytes: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_cell::reason::EndReason;

    use super::*;
    use crate::exit::connect_errors::{end_reason, is_port_exhaustion};
    use crate::relay::testing::options;

    #[test]
    fn sockets_are_constrained_where_they_shall_be() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let size = |constrained| {
            let socket = connect(to, None, constrained).unwrap();
            SockRef::from(&socket).send_buffer_size().unwrap()
        };
        // Linux doubles what it is asked for.
        assert_eq!(size(Some(8192)), 2 * 8192);
        assert!(size(None) > 2 * 8192);
    }

    #[test]
    fn connections_come_from_the_address_that_is_set() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let options = options("OutboundBindAddress 127.0.0.2\nOutboundBindAddressOR 127.0.0.3\n");
        let from = options.network.outbound_bind.for_relay(to.ip());
        let socket = connect(to, from, None).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), "127.0.0.3".parse::<IpAddr>().unwrap());
        drop(socket);
        let foreign = connect(to, Some("192.0.2.1".parse().unwrap()), None).unwrap_err();
        assert!(is_port_exhaustion(&foreign));
        assert_eq!(end_reason(&foreign), EndReason::RESOURCELIMIT);
    }
}
