//! One TLS connection between the generator and the target, or between the bare pipe and its
//! neighbours: bytes in, bytes out.

use std::hash::Hasher;
use std::io::{self, Read as _, Write as _};

use mio::net::TcpStream;
use weft_cell::CELL_LEN;
use weft_tls::LinkSession;

/// Whole cells that fit one TLS record (16384 bytes), as many as the relay itself puts there.
pub(super) const CELLS_PER_RECORD: usize = 31;
/// Bytes of such a record.
pub(super) const RECORD: usize = CELLS_PER_RECORD * CELL_LEN;
/// Plaintext that is encrypted before the socket is asked to take it: what rustls's buffer holds.
pub(super) const BATCH: usize = 4 * RECORD;
/// Bytes that are read from one socket before others have their turn, as the relay does it.
pub(super) const READ_AT_ONCE: usize = 128 * 1024;

/// Circuit ids hash to themselves, spread by one multiplication: they are the target's random
/// numbers, and the target is no attacker here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A socket with TLS on it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: TcpStream,
    pub(super) session: LinkSession,
    /// The socket may have bytes.
    pub(super) readable: bool,
    /// The socket may take bytes.
    pub(super) writable: bool,
    /// The kernel reported that the peer sends no more; what it sent may still be there.
    pub(super) peer_ended: bool,
    /// The beginning of a cell whose rest has not come.
    left: Vec<u8>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The socket has been emptied, for now.
    Empty,
    /// There may be more.
    More,
    /// The peer has closed.
    Ended,
}

impl Link {
    /// Notes what epoll reports of the socket.
    pub(super) fn note(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable();
        self.peer_ended |= event.is_read_closed() || event.is_error();
    }

    pub(super) fn new(socket: TcpStream, session: LinkSession) -> Link {
        Link {
            socket,
            session,
            readable: false,
            writable: false,
            peer_ended: false,
            left: Vec::new(),
        }
    }

    /// Reads at most [`READ_AT_ONCE`] bytes. `plain` becomes the beginning of a cell that earlier
    /// reads left, and what has come now.
    pub(super) fn read(&mut self, scratch: &mut [u8], plain: &mut Vec<u8>) -> io::Result<Read> {
        plain.clear();
        plain.append(&mut self.left);
        let mut read = 0;
        while read < READ_AT_ONCE {
            let count = match self.socket.read(scratch) {
                Ok(0) => {
                    self.readable = false;
                    return Ok(Read::Ended);
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(Read::Empty);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            read += count;
            if self.decrypt(scratch.get(..count).unwrap_or_default(), plain)? {
                self.readable = false;
                return Ok(Read::Ended);
            }
            // A short read has emptied the socket, and the kernel will report more (epoll(7)); but
            // not an end that it has reported already.
            if count < scratch.len() && !self.peer_ended {
                self.readable = false;
                return Ok(Read::Empty);
            }
        }
        Ok(Read::More)
    }

    /// Keeps the beginning of a cell until the next [`read`](Self::read).
    pub(super) fn keep(&mut self, rest: &[u8]) {
        self.left.extend_from_slice(rest);
    }

    /// Appends what some bytes of the TLS stream decrypt to. True: the peer has sent its end.
    fn decrypt(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        let tls = self.session.tls();
        let mut ended = false;
        while !bytes.is_empty() && !ended {
            tls.read_tls(&mut bytes)?;
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The alert with the reason, if the socket takes it.
                    let _ = tls.write_tls(&mut self.socket);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            let ready = state.plaintext_bytes_to_read();
            if ready > 0 {
                let start = plain.len();
                plain.resize(start + ready, 0);
                if let Some(room) = plain.get_mut(start..) {
                    tls.reader().read_exact(room)?;
                }
            }
            ended = state.peer_has_closed();
        }
        Ok(ended)
    }

    /// Encrypts bytes, one record's at most, to be sent by the next [`flush`](Self::flush). No more
    /// than [`BATCH`] bytes in between.
    pub(super) fn encrypt(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.session.tls().writer().write_all(bytes)
    }

    /// Writes what has been encrypted. False: the socket takes no more now.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let tls = self.session.tls();
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends a close-notify and the end of TCP's stream; the peer's end may still come.
    pub(super) fn end_writing(&mut self) -> io::Result<()> {
        self.session.tls().send_close_notify();
        self.flush()?;
        self.socket.shutdown(std::net::Shutdown::Write)
    }

    /// Sends a close-notify, as far as the socket takes it.
    pub(super) fn close(mut self) {
        self.session.tls().send_close_notify();
        let _ = self.flush();
    }
}
