//! One TCP connection with TLS on it: bytes in and out, nothing about circuits.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;
use weft_cell::{CELL_LEN, Cell};
use weft_core::address::ConnectionId;
use weft_core::handshake::LinkHandshake;
use weft_core::manager::{LinkError, LocalConnectionManager};
use weft_core::memory::cells::Empties;
use weft_core::origin::LinkStep;
use weft_core::scheduler::kist::KnownLimit;
use weft_core::slots::LinkKey;
use weft_proxy::{Proxy, ProxyError};

use super::close_reason::{CloseReason, WriteError};
use super::limit::Allowance;
use weft_tls::LinkSession;
use weft_tls::records::{MAX_PLAINTEXT, RecordError, Records};

/// Whole cells that fit one TLS record.
const CELLS_PER_RECORD: usize = MAX_PLAINTEXT / CELL_LEN;
/// Bytes sealed before the socket is asked to take them. With a quarter of it, relays among C tor nodes
/// spent a fifth more on what goes up (docs/performance.md).
const BATCH_BYTES: usize = 16 * CELLS_PER_RECORD * CELL_LEN;

/// Bytes that may come before a link is open, TLS's own and those inside: a relay's handshakes have
/// some 7 KiB, and with each byte of its cells in its own record some 80 KiB.
const MAX_BYTES_BEFORE_OPEN: usize = 1 << 17;
/// Records that may come before a link is open and have nothing for it in them: an honest peer's
/// handshake and tickets have about ten. A KeyUpdate is one, and so is each piece of a message.
const MAX_EMPTY_BEFORE_OPEN: usize = 128;

/// Progress of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// TCP, TLS and the link handshake.
    Handshake(Box<Handshaking>),
    /// The TLS session is changing hands: never seen from outside.
    Transition,
    /// An opened link.
    Open(LinkKey, Box<Records>),
}

/// A connection whose handshakes go on.
#[derive(Debug)]
pub(super) struct Handshaking {
    /// The proxy that has not connected yet; TLS begins when it has.
    pub(super) proxy: Option<Proxying>,
    /// TLS.
    pub(super) session: LinkSession,
    /// The handshake inside TLS.
    pub(super) handshake: LinkHandshake,
    /// The step that the last call of [`new_step`](Self::new_step) found.
    step: Option<LinkStep>,
    /// Bytes that came.
    bytes: usize,
    /// Records that came with nothing for the link in them.
    empty_records: usize,
}

/// A proxy that is asked for a connection.
#[derive(Debug)]
pub(super) struct Proxying {
    /// The proxy.
    pub(super) proxy: Arc<Proxy>,
    /// Progress of the request.
    pub(super) request: weft_proxy::Request,
}

impl Proxying {
    /// Begins to ask for a connection to `peer`.
    ///
    /// # Errors
    ///
    /// The proxy's protocol cannot express it.
    pub(super) fn new(proxy: Arc<Proxy>, peer: SocketAddr) -> Result<Self, ProxyError> {
        let request = weft_proxy::Request::new(&proxy.protocol, peer)?;
        Ok(Self { proxy, request })
    }
}

impl Handshaking {
    pub(super) fn new(
        proxy: Option<Proxying>,
        session: LinkSession,
        handshake: LinkHandshake,
    ) -> Self {
        Handshaking {
            proxy,
            session,
            handshake,
            step: None,
            bytes: 0,
            empty_records: 0,
        }
    }

    /// The step that it has reached, once TCP is connected; `None`: the same as at the last call.
    pub(super) fn new_step(&mut self) -> Option<LinkStep> {
        let step = match self.proxy {
            Some(_) => LinkStep::ProxyConnected,
            None if self.session.tls().is_handshaking() => LinkStep::Connected,
            None => LinkStep::Encrypted,
        };
        (self.step.replace(step) != Some(step)).then_some(step)
    }

    /// Gives TLS a whole record and appends what it decrypts to. True: the peer has closed the
    /// session.
    ///
    /// # Errors
    ///
    /// The peer broke TLS, or sends more than a handshake needs. rustls's own limits are not enough:
    /// each record of application data allows 32 more KeyUpdates.
    pub(super) fn decrypt(
        &mut self,
        mut record: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, CloseReason> {
        self.bytes += record.len();
        let before = plain.len();
        let tls = self.session.tls();
        let mut ended = false;
        while !record.is_empty() && !ended {
            tls.read_tls(&mut record)?;
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
        if plain.len() == before {
            self.empty_records += 1;
        }
        if self.bytes > MAX_BYTES_BEFORE_OPEN || self.empty_records > MAX_EMPTY_BEFORE_OPEN {
            return Err(RecordError::Overhead("records before the link is open").into());
        }
        Ok(ended)
    }
}

/// A connection that a thread owns. The fields that each cell needs are first, in one cache line
/// and the next.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Connection {
    /// The TCP socket.
    pub(super) socket: TcpStream,
    /// The socket may have bytes.
    pub(super) readable: bool,
    /// The socket may take bytes.
    pub(super) writable: bool,
    /// Listed among the connections to be read.
    pub(super) listed: bool,
    /// The kernel reported that the peer sends no more; earlier bytes may still wait.
    pub(super) peer_ended: bool,
    /// The last write found the kernel's buffer full, and cells wait.
    pub(super) blocked: bool,
    /// We opened it.
    pub(super) initiated: bool,
    /// Its identifier.
    pub(super) id: ConnectionId,
    /// Progress, with the TLS session.
    pub(super) phase: Phase,
    /// State of its KIST limit.
    pub(super) limit: KnownLimit,
    /// Limits on the bytes that it may move.
    pub(super) allowance: Allowance,
    /// The beginning of a TLS record whose rest has not come.
    pub(super) wire_in: Vec<u8>,
    /// The beginning of a cell whose rest has not come.
    pub(super) left: Vec<u8>,
    /// Bytes of a cell that is skipped, still to arrive.
    pub(super) skip: usize,
    /// Sealed bytes that the socket has not taken.
    pub(super) wire_out: Vec<u8>,
    /// The other end.
    pub(super) peer: SocketAddr,
    /// Bytes of the handshake that the socket took and that are not counted yet.
    pub(super) handshake_written: usize,
    /// Bytes read and written in this interval, while connections are counted by them.
    pub(super) moved: (u64, u64),
    /// Bytes read and written since the last report, while these are reported.
    pub(super) unreported: (u64, u64),
}

/// Result of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOutcome {
    /// Bytes taken from the socket.
    pub(super) socket_bytes: usize,
    /// Bytes in the buffer: those and the beginning of a record that was left.
    pub(super) filled: usize,
    /// The peer closed.
    pub(super) ended: bool,
}

impl Connection {
    /// Reports how far a connection of ours has come that is no link yet. TCP is connected.
    pub(super) fn report_step(&mut self, manager: &mut LocalConnectionManager) {
        if self.initiated
            && let Phase::Handshake(handshaking) = &mut self.phase
            && let Some(step) = handshaking.new_step()
        {
            manager.links_mut().connection_reached(self.id, step);
        }
    }

    /// Reads up to `max` bytes from the socket to `scratch`, behind what an earlier read left.
    /// `scratch` is large, so that a busy socket costs few system calls.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub(super) fn fill(&mut self, max: usize, scratch: &mut [u8]) -> io::Result<ReadOutcome> {
        let kept = self.wire_in.len();
        let mut outcome = ReadOutcome {
            socket_bytes: 0,
            filled: kept,
            ended: false,
        };
        let Some((front, room)) = scratch.split_at_mut_checked(kept) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        front.copy_from_slice(&self.wire_in);
        let room = match room.get_mut(..max) {
            Some(room) => room,
            None => room,
        };
        let count = loop {
            match self.socket.read(room) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(outcome);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        outcome.ended = count == 0;
        outcome.socket_bytes = count;
        outcome.filled += count;
        // A short read has emptied the socket, and the kernel will report more (epoll(7)); but not
        // an end that it has reported already.
        if outcome.ended || (count < room.len() && !self.peer_ended) {
            self.readable = false;
        }
        Ok(outcome)
    }

    /// Hands application data of an opened link to the manager, cells where they lie. Only a cell
    /// that two records share is put together first.
    ///
    /// # Errors
    ///
    /// The peer's bytes are no cells, or it must be cut off.
    pub(super) fn receive(
        &mut self,
        link: LinkKey,
        bytes: &[u8],
        manager: &mut LocalConnectionManager,
        now: Instant,
    ) -> Result<(), LinkError> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let mut bytes = bytes.get(skipped..).unwrap_or_default();
        while !self.left.is_empty() && !bytes.is_empty() {
            let missing = CELL_LEN.saturating_sub(self.left.len()).min(bytes.len());
            let (more, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            self.left.extend_from_slice(more);
            let received = manager.receive(link, &self.left, now)?;
            self.left.drain(..received.used);
            let skipped = received.skip.min(rest.len());
            self.skip = received.skip - skipped;
            bytes = rest.get(skipped..).unwrap_or_default();
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let received = manager.receive(link, bytes, now)?;
        self.skip = received.skip;
        let rest = bytes.get(received.used..).unwrap_or_default();
        self.left.extend_from_slice(rest);
        Ok(())
    }

    /// Gives the proxy's answer to the request that waits for it; `None`: none does.
    ///
    /// # Errors
    ///
    /// It does not connect, or the socket failed.
    pub(super) fn receive_from_proxy(&mut self, bytes: &[u8]) -> Option<Result<(), CloseReason>> {
        let Phase::Handshake(handshaking) = &mut self.phase else {
            return None;
        };
        let request = &mut handshaking.proxy.as_mut()?.request;
        if let Err(error) = request.receive(bytes) {
            return Some(Err(error.into()));
        }
        if request.is_connected() {
            handshaking.proxy = None;
        }
        Some(self.flush_handshake().map_err(CloseReason::from))
    }

    /// Writes the bytes of the handshake.
    ///
    /// # Errors
    ///
    /// The socket failed.
    pub(super) fn flush_handshake(&mut self) -> io::Result<()> {
        let Phase::Handshake(handshaking) = &mut self.phase else {
            return Ok(());
        };
        if let Some(Proxying { request, .. }) = &mut handshaking.proxy {
            let count = send(&mut self.socket, request.output())?;
            request.sent(count);
            self.handshake_written += count;
            self.writable = request.output().is_empty();
            if !request.is_connected() {
                return Ok(());
            }
            // It answers nothing.
            handshaking.proxy = None;
        }
        let tls = handshaking.session.tls();
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.handshake_written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what the socket did not take before, then cells from `out`, as far as the socket and
    /// `allowance` bytes go. Sealed cells go to `spent`; `wire` is where they are sealed. Returns
    /// the bytes that the socket took.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub(super) fn write(
        &mut self,
        out: &mut VecDeque<Box<Cell>>,
        allowance: usize,
        wire: &mut Vec<u8>,
        spent: &mut Empties,
    ) -> Result<usize, WriteError> {
        let Phase::Open(_, records) = &mut self.phase else {
            return Ok(0);
        };
        let mut written = 0;
        if !self.wire_out.is_empty() {
            let count = send(&mut self.socket, &self.wire_out)?;
            written += count;
            self.wire_out.drain(..count);
            if !self.wire_out.is_empty() {
                self.writable = false;
                self.blocked = true;
                return Ok(written);
            }
            // Buffers of blocked links are not kept by idle ones.
            self.wire_out = Vec::new();
        }
        while !out.is_empty() && written < allowance {
            wire.clear();
            while !out.is_empty() && wire.len() < BATCH_BYTES && written + wire.len() < allowance {
                let count = out.len().min(CELLS_PER_RECORD);
                let pieces = out.iter().take(count).map(|cell| &cell.as_bytes()[..]);
                records.seal(pieces, wire)?;
                spent.extend(out.drain(..count));
            }
            let count = send(&mut self.socket, wire)?;
            written += count;
            if let Some(rest) = wire.get(count..)
                && !rest.is_empty()
            {
                self.wire_out.extend_from_slice(rest);
                self.writable = false;
                self.blocked = true;
                return Ok(written);
            }
        }
        self.blocked = false;
        Ok(written)
    }

    /// Bytes that it holds for sockets and peers that are slow.
    pub(super) fn buffered(&self) -> usize {
        self.wire_in.capacity() + self.left.capacity() + self.wire_out.capacity()
    }

    /// Sends the peer a close-notify, if the socket takes it at once.
    pub(super) fn send_close_notify(&mut self) {
        match &mut self.phase {
            Phase::Open(_, records) => {
                // Behind what the socket did not take, or not at all.
                if self.wire_out.is_empty() && records.seal_close_notify(&mut self.wire_out).is_ok()
                {
                    let _ = send(&mut self.socket, &self.wire_out);
                }
            }
            Phase::Handshake(handshaking) => {
                handshaking.session.tls().send_close_notify();
                let _ = self.flush_handshake();
            }
            Phase::Transition => {}
        }
    }
}

/// Writes as much as a socket takes now: the number of bytes, less than all if it takes no more.
fn send(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        match socket.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
