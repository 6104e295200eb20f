//! One edge's socket: what it is given as, what the thread knows of it.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::slots::EdgeKey;
use weft_core::stream::edge::StreamAt;

use crate::thread::limit::Allowance;
use weft_apps::{AppRules, Handshake};

/// A stream's socket that a thread is given.
#[derive(Debug)]
pub(crate) struct AdoptEdge {
    /// Its identifier.
    pub id: ConnectionId,
    /// Non-blocking; perhaps still connecting.
    pub socket: EdgeSocket,
    /// Its use.
    pub kind: AdoptKind,
}

/// Source and destination of a stream's bytes.
#[derive(Debug)]
pub(crate) enum EdgeSocket {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// One end of a socket pair, or an application on a Unix socket.
    Unix(std::os::unix::net::UnixStream),
    /// Nothing: a stream that is one question and one answer (RESOLVE).
    None,
}

/// Use of a stream's socket.
#[derive(Debug)]
pub(crate) enum AdoptKind {
    /// A stream that a circuit asked for.
    Exit {
        /// The stream.
        at: StreamAt,
        /// Where the socket leads; `None` for the directory.
        peer: Option<SocketAddr>,
        /// The TTL of the address for CONNECTED, in seconds.
        ttl: u32,
    },
    /// An application that came to a listener.
    Application {
        /// Rules of the listener.
        rules: Arc<AppRules>,
        /// Where it came from; `None` on a Unix socket.
        from: Option<SocketAddr>,
        /// Where it led before it was redirected to a TransPort, if that is known.
        to: Option<SocketAddr>,
    },
    /// A stream of this node's own.
    Internal,
}

/// A socket as the event loop knows it.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    None,
}

impl Socket {
    /// The source that the event loop watches.
    pub(super) fn source(&mut self) -> Option<&mut dyn Source> {
        match self {
            Socket::Tcp(socket) => Some(socket),
            Socket::Unix(socket) => Some(socket),
            Socket::None => None,
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Unix(socket) => socket.read(buffer),
            Socket::None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Unix(socket) => socket.write(bytes),
            Socket::None => Ok(bytes.len()),
        }
    }
}

/// Progress of a socket.
#[derive(Debug)]
pub(super) enum Stage {
    /// TCP connects, for an exit: where to, and for how long that is good.
    Connecting(Option<IpAddr>, u32),
    /// An application sends its request, or waits for the reply.
    Asking(Box<Handshake>),
    /// Bytes are bytes.
    Open,
}

/// One edge's socket.
#[derive(Debug)]
pub(super) struct EdgeConnection {
    pub(super) id: ConnectionId,
    /// The manager's slot.
    pub(super) edge: EdgeKey,
    pub(super) socket: Socket,
    pub(super) stage: Stage,
    /// The destination's port; 0: it is none, or ports are not counted.
    pub(super) port: u16,
    /// Bytes read and written since the last report, while these are reported.
    pub(super) unreported: (u64, u64),
    /// Limits on the bytes that it may move; not used for Unix sockets.
    pub(super) allowance: Option<Allowance>,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Listed among those to be read.
    pub(super) listed: bool,
    /// The kernel reported the end of the input.
    pub(super) peer_ended: bool,
    /// Read and not yet taken: an application's words, then its first data.
    pub(super) held: Vec<u8>,
    /// To be written before anything of the circuit's.
    pub(super) reply: Vec<u8>,
    /// It has asked, and is not looked at until it is answered.
    pub(super) asked: bool,
    /// The request of an application must be complete by then.
    pub(super) deadline: Option<Instant>,
    /// It is an exit's.
    pub(super) exit: bool,
    /// Its stream is over, and it has taken nothing of what is left since then.
    pub(super) idle_since: Option<Instant>,
}

impl EdgeConnection {
    /// Writes what is to go before the circuit's bytes. False: the socket is broken.
    pub(super) fn flush_reply(&mut self) -> bool {
        while !self.reply.is_empty() {
            match self.socket.write(&self.reply) {
                Ok(count) => {
                    self.reply.drain(..count.min(self.reply.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// END's reason for a socket's failure (C tor `errno_to_stream_end_reason`).
pub(super) fn end_reason(error: &io::Error) -> EndReason {
    match error.kind() {
        io::ErrorKind::BrokenPipe => EndReason::DONE,
        io::ErrorKind::ConnectionRefused => EndReason::CONNECTREFUSED,
        io::ErrorKind::ConnectionReset => EndReason::CONNRESET,
        io::ErrorKind::TimedOut => EndReason::TIMEOUT,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::PermissionDenied => EndReason::NOROUTE,
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory => {
            EndReason::RESOURCELIMIT
        }
        _ => EndReason::MISC,
    }
}
