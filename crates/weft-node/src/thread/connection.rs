//! One TCP connection with TLS on it: bytes in and out, nothing about circuits.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::SocketAddr;

use mio::net::TcpStream;
use weft_cell::{CELL_LEN, Cell};
use weft_core::address::ConnectionId;
use weft_core::cells::Empties;
use weft_core::handshake::LinkHandshake;
use weft_core::scheduler::LinkKey;

use super::limit::Allowance;
use crate::tls::LinkSession;

/// Whole cells that fit one TLS record (16384 bytes).
const CELLS_PER_RECORD: usize = 31;
/// Plaintext encrypted before the socket is asked to take it.
const BATCH_BYTES: usize = 4 * CELLS_PER_RECORD * CELL_LEN;

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum Phase {
    /// TCP, TLS and the link handshake.
    Handshake(Box<LinkHandshake>),
    /// An opened link.
    Open(LinkKey),
}

/// A connection that a thread owns.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its identifier.
    pub(super) id: ConnectionId,
    /// The other end.
    pub(super) peer: SocketAddr,
    /// The TCP socket.
    pub(super) socket: TcpStream,
    /// How much it may move.
    pub(super) allowance: Allowance,
    /// The TLS session.
    pub(super) session: LinkSession,
    /// How far it has come.
    pub(super) phase: Phase,
    /// We opened it.
    pub(super) initiated: bool,
    /// The socket may have bytes.
    pub(super) readable: bool,
    /// The socket may take bytes.
    pub(super) writable: bool,
    /// Listed among the connections to be read.
    pub(super) listed: bool,
    /// The kernel said that the peer sends no more; what it sent may still be there.
    pub(super) peer_ended: bool,
    /// The beginning of a cell whose rest has not come.
    pub(super) left: Vec<u8>,
    /// Bytes of a cell that nobody needs, still to come.
    pub(super) skip: usize,
    /// Plaintext bytes that TLS has encrypted and the socket has not taken whole.
    pub(super) unsent: usize,
    /// The last write found the kernel's buffer full, and cells wait.
    pub(super) blocked: bool,
}

/// What a read brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOutcome {
    /// Bytes taken from the socket.
    pub(super) socket_bytes: usize,
    /// The peer closed.
    pub(super) ended: bool,
}

impl Connection {
    /// Reads up to `max` bytes from the socket and appends what they decrypt to. `scratch` is where
    /// they are read to: large, so that a busy socket costs few system calls.
    ///
    /// # Errors
    ///
    /// The socket failed, or the peer broke TLS.
    pub(super) fn read(
        &mut self,
        max: usize,
        scratch: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> io::Result<ReadOutcome> {
        let mut outcome = ReadOutcome {
            socket_bytes: 0,
            ended: false,
        };
        while outcome.socket_bytes < max && !outcome.ended {
            let room = scratch.len().min(max - outcome.socket_bytes);
            let Some(buffer) = scratch.get_mut(..room) else {
                break;
            };
            let count = match self.socket.read(buffer) {
                Ok(0) => {
                    outcome.ended = true;
                    break;
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            outcome.socket_bytes += count;
            let bytes = buffer.get(..count).unwrap_or_default();
            outcome.ended |= decrypt(self.session.tls(), bytes, plain)?;
            // A short read has emptied the socket, and the kernel will tell of more (epoll(7)); but
            // not of an end that it has told of already.
            if count < room && !self.peer_ended {
                self.readable = false;
                break;
            }
        }
        if outcome.ended {
            self.readable = false;
        }
        Ok(outcome)
    }

    /// Sends bytes of the link handshake.
    ///
    /// # Errors
    ///
    /// TLS refuses (it never does for so few bytes).
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.session.tls().writer().write_all(bytes)
    }

    /// Writes what TLS holds ready, then cells from `out`, as far as the socket and `allowance`
    /// bytes go. Cells whose bytes TLS has taken go to `spent`. Returns the bytes that the socket
    /// took.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub(super) fn write(
        &mut self,
        out: &mut VecDeque<Box<Cell>>,
        allowance: usize,
        spent: &mut Empties,
    ) -> io::Result<usize> {
        let mut written = 0;
        loop {
            if !self.flush_tls(&mut written)? {
                self.blocked = true;
                return Ok(written);
            }
            self.unsent = 0;
            if out.is_empty() || written >= allowance {
                self.blocked = false;
                return Ok(written);
            }
            let mut batch = 0;
            while !out.is_empty() && batch < BATCH_BYTES && written + batch < allowance {
                batch += self.encrypt_record(out, spent)?;
            }
            self.unsent = batch;
        }
    }

    /// Encrypts as many of the cells as one TLS record holds.
    fn encrypt_record(
        &mut self,
        out: &mut VecDeque<Box<Cell>>,
        spent: &mut Empties,
    ) -> io::Result<usize> {
        let count = out.len().min(CELLS_PER_RECORD);
        let mut slices = [IoSlice::new(&[]); CELLS_PER_RECORD];
        for (slice, cell) in slices.iter_mut().zip(out.iter()) {
            *slice = IoSlice::new(cell.as_bytes());
        }
        let bytes = count * CELL_LEN;
        let taken = self
            .session
            .tls()
            .writer()
            .write_vectored(slices.get(..count).unwrap_or_default())?;
        if taken != bytes {
            // The session has no buffer limit, so it takes all or is closing.
            return Err(io::ErrorKind::WriteZero.into());
        }
        spent.extend(out.drain(..count));
        Ok(bytes)
    }

    /// Tells the peer that the connection ends here, if the socket takes it at once.
    pub(super) fn say_goodbye(&mut self) {
        self.session.tls().send_close_notify();
        let mut written = 0;
        // A socket that takes no more is closed without.
        let _ = self.flush_tls(&mut written);
    }

    /// Writes what TLS holds ready. False: the socket takes no more.
    fn flush_tls(&mut self, written: &mut usize) -> io::Result<bool> {
        let tls = self.session.tls();
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => *written += bytes,
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
}

/// Appends what some bytes of a TLS stream decrypt to. True: the peer has said that it ends here.
fn decrypt(
    tls: &mut rustls::Connection,
    mut bytes: &[u8],
    plain: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut ended = false;
    while !bytes.is_empty() && !ended {
        tls.read_tls(&mut bytes)?;
        let state = tls
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
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
