//! A TCP connection to a relay, by the configured way, before a deadline.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use weft_proxy::Route;

/// Opens a connection. The error is the system's, with the configured source address if that is not one of this machine.
pub(super) fn connect(
    to: SocketAddr,
    route: &Route,
    deadline: Instant,
) -> Result<TcpStream, (Option<IpAddr>, io::Error)> {
    let socket = unconnected(to, route)?;
    connected(socket, to, route, deadline).map_err(|source| (None, source))
}

/// A socket with the configured source address; or that address, if it is not ours, and the system's error.
fn unconnected(to: SocketAddr, route: &Route) -> Result<Socket, (Option<IpAddr>, io::Error)> {
    let domain = Domain::for_address(route.first(to));
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP));
    let socket = socket.map_err(|source| (None, source))?;
    if let Some(bind) = route.source(to) {
        socket
            .bind(&SocketAddr::new(bind, 0).into())
            .map_err(|source| (Some(bind), source))?;
    }
    Ok(socket)
}

/// Connects the socket to a relay, by the route's proxy if it has one.
fn connected(
    socket: Socket,
    to: SocketAddr,
    route: &Route,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let remaining = remaining.max(Duration::from_millis(1));
    socket.connect_timeout(&route.first(to).into(), remaining)?;
    socket.set_tcp_nodelay(true)?;
    let mut socket: TcpStream = socket.into();
    if let Some(request) = route.request(to).map_err(io::Error::other)? {
        ask_proxy(&mut socket, request, deadline)?;
    }
    Ok(socket)
}

/// Requests the connection from a proxy.
fn ask_proxy(
    socket: &mut TcpStream,
    mut request: weft_proxy::Request,
    deadline: Instant,
) -> io::Result<()> {
    let mut answer = [0; 512];
    while !request.is_connected() {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            let why = "the proxy did not answer in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        socket.set_read_timeout(Some(remaining))?;
        socket.set_write_timeout(Some(remaining))?;
        socket.write_all(request.output())?;
        request.sent(request.output().len());
        if request.is_connected() {
            break;
        }
        let count = socket.read(&mut answer)?;
        if count == 0 {
            let why = "the proxy closed the connection";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        let received = answer.get(..count).unwrap_or_default();
        request.receive(received).map_err(io::Error::other)?;
    }
    Ok(())
}
