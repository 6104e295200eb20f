//! The first half of an exit's connection: a socket that begins to connect. The connection thread
//! that gets it waits for the rest.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};
use weft_cell::reason::EndReason;

/// Begins to connect to `to`, from the address that OutboundBindAddressExit says, if any.
///
/// # Errors
/// What the system says; [`end_reason`] puts it into the client's words.
pub fn connect(to: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(from) = from {
        // The port is chosen when the destination is known: so many destinations can share one.
        nix::sys::socket::setsockopt(
            &socket,
            nix::sys::socket::sockopt::IpBindAddressNoPort,
            &true,
        )
        .ok();
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Whether no local port was left for another connection.
#[must_use]
pub fn is_port_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL)
    )
}

/// Whether the process has no more files, or the system no more memory.
#[must_use]
pub fn is_resource_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// What END says of a connection that failed (reasons.c, `errno_to_stream_end_reason`).
#[must_use]
pub fn end_reason(error: &io::Error) -> EndReason {
    match error.raw_os_error() {
        Some(libc::EPIPE) => EndReason::DONE,
        Some(
            libc::EBADF
            | libc::EFAULT
            | libc::EINVAL
            | libc::EISCONN
            | libc::ENOTSOCK
            | libc::EPROTONOSUPPORT
            | libc::EAFNOSUPPORT
            | libc::ENOTCONN,
        ) => EndReason::INTERNAL,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EPERM) => {
            EndReason::NOROUTE
        }
        Some(libc::ECONNREFUSED) => EndReason::CONNECTREFUSED,
        Some(libc::ECONNRESET) => EndReason::CONNRESET,
        Some(libc::ETIMEDOUT) => EndReason::TIMEOUT,
        _ if is_port_exhaustion(error) || is_resource_exhaustion(error) => EndReason::RESOURCELIMIT,
        _ => EndReason::MISC,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn connections_come_from_the_address_that_is_set() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let from: IpAddr = "127.0.0.3".parse().unwrap();
        let socket = connect(to, Some(from)).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), from);
        drop(socket);
        let foreign = connect(to, Some("192.0.2.1".parse().unwrap())).unwrap_err();
        assert!(is_port_exhaustion(&foreign));
        assert_eq!(end_reason(&foreign), EndReason::RESOURCELIMIT);
    }

    #[test]
    fn clients_are_told_what_the_system_says() {
        let told = |errno| end_reason(&io::Error::from_raw_os_error(errno));
        assert_eq!(told(libc::ECONNREFUSED), EndReason::CONNECTREFUSED);
        assert_eq!(told(libc::EHOSTUNREACH), EndReason::NOROUTE);
        assert_eq!(told(libc::ETIMEDOUT), EndReason::TIMEOUT);
        assert_eq!(told(libc::ECONNRESET), EndReason::CONNRESET);
        assert_eq!(told(libc::EMFILE), EndReason::RESOURCELIMIT);
        assert_eq!(told(libc::EADDRNOTAVAIL), EndReason::RESOURCELIMIT);
        assert_eq!(told(libc::EINVAL), EndReason::INTERNAL);
        assert_eq!(told(libc::ELOOP), EndReason::MISC);
        assert_eq!(end_reason(&io::Error::other("x")), EndReason::MISC);
    }
}
