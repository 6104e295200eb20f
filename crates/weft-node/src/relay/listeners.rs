//! The ORPort's sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};

use crate::torrc::Options;

/// Connections that the kernel may hold ready.
const BACKLOG: i32 = 1024;

/// A listener that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {addr}: {source}; is another relay running, or the port below 1024?")]
pub struct ListenError {
    addr: SocketAddr,
    source: io::Error,
}

/// The open listeners, and which address and port of each family the descriptor tells.
#[derive(Debug)]
pub(super) struct Listeners {
    /// Sockets.
    pub(super) sockets: Vec<TcpListener>,
    /// Advertised: the address that the line names (or none) and the port as bound.
    pub(super) advertised: Vec<(IpAddr, u16)>,
}

impl Listeners {
    /// Opens what the ORPort lines ask for.
    ///
    /// # Errors
    ///
    /// A port cannot be bound. An address that no line names (IPv6 on a machine without it) may
    /// fail quietly as long as the other family's works.
    pub(super) fn open(options: &Options) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        let mut advertised = Vec::new();
        let mut failed = None;
        for port in &options.network.or_ports {
            let mut number = port.port.to_bind();
            if port.listen {
                let addr = port.to_bind();
                match listen(addr) {
                    Ok(socket) => {
                        let bound = socket.local_addr().map_or(number, |addr| addr.port());
                        number = bound;
                        crate::notice!(
                            "Opened OR listener on {}",
                            SocketAddr::new(addr.ip(), bound)
                        );
                        sockets.push(socket);
                    }
                    Err(source) if !port.explicit_address => {
                        tracing::info!("Not listening on {addr}: {source}");
                        failed = Some(ListenError { addr, source });
                        continue;
                    }
                    Err(source) => return Err(ListenError { addr, source }),
                }
            }
            if port.advertise {
                advertised.push((port.address, number));
            }
        }
        match failed {
            Some(error) if sockets.is_empty() => Err(error),
            _ => Ok(Listeners {
                sockets,
                advertised,
            }),
        }
    }
}

/// One listener; IPv6 ones take no IPv4.
fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Begins to connect; the thread that gets the socket waits for the end of it.
pub(super) fn connect(to: SocketAddr, from: Option<IpAddr>) -> io::Result<std::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
