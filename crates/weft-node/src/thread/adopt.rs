//! Passing of connections from the main thread to a connection thread.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_core::address::ConnectionId;
use weft_core::handshake::Role;
use weft_proxy::Proxy;

/// A connection that a thread is given.
#[derive(Debug)]
pub(crate) struct Adopt {
    /// Its identifier.
    pub id: ConnectionId,
    /// The socket, non-blocking; perhaps still connecting.
    pub socket: std::net::TcpStream,
    /// The other end.
    pub peer: SocketAddr,
    /// The role, with the identity that the peer must have if we opened the connection.
    pub role: Role,
    /// The proxy that the socket leads to, which is to connect to `peer`.
    pub proxy: Option<Arc<Proxy>>,
    /// A program of transports handed it over.
    pub handed_over: bool,
}
