//! Connections that the firewall redirects to a TransPort (connection_edge.c, `destination_from_socket`).

use std::io;
use std::net::{SocketAddr, TcpStream};

use socket2::SockRef;
use weft_config::options::Redirection;

/// Where a connection led before it was redirected.
///
/// # Errors
///
/// The system does not know; a connection that was made to the TransPort itself leads nowhere.
pub(super) fn destination(socket: &TcpStream, by: Redirection) -> io::Result<SocketAddr> {
    let own = socket.local_addr()?;
    if by == Redirection::Tproxy {
        return Ok(own);
    }
    let socket = SockRef::from(socket);
    let found = match own.is_ipv4() {
        true => socket.original_dst_v4(),
        false => socket.original_dst_v6(),
    }?;
    found
        .as_socket()
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Has a socket take connections to any address, as TPROXY needs it. Where the rights for that are missing it is only
/// logged, as in C tor: then the firewall finds no socket.
pub(super) fn accept_any_destination(socket: SockRef<'_>) {
    if let Err(error) = socket.set_ip_transparent_v4(true) {
        tracing::warn!(
            "Error setting IP_TRANSPARENT flag: {error}. TransProxyType TPROXY requires root privileges or similar \
             capabilities."
        );
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// netfilter has no entry for a connection that was not redirected; without its module it has
    /// none at all.
    #[test]
    fn tproxys_destination_is_the_sockets_own_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let _client = TcpStream::connect(at).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert_eq!(destination(&socket, Redirection::Tproxy).unwrap(), at);
        match destination(&socket, Redirection::Netfilter) {
            Ok(found) => assert_eq!(found, at),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
