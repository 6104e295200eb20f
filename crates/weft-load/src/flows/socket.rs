//! One non-blocking socket, edge-triggered: read and written until it blocks, or for a turn.

use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::TcpStream;

/// Bytes read at a time.
pub(super) const CHUNK: usize = 64 * 1024;
/// Reads or writes of one connection in a turn, so that every connection gets its turn.
pub(super) const TURNS: usize = 4;

/// The result of a read.
pub(super) enum Reading {
    /// Number of bytes read.
    Bytes(usize),
    /// Nothing now.
    Blocked,
    /// The other end sends no more.
    End,
}

pub(super) fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Reading> {
    loop {
        return match stream.read(buffer) {
            Ok(0) => Ok(Reading::End),
            Ok(count) => Ok(Reading::Bytes(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Reading::Blocked),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

/// Number of bytes that the socket took; `None` if it takes none now.
pub(super) fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
    loop {
        return match stream.write(bytes) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}
