//! One end of a link to the target: TLS, the link handshake, cells. Nothing blocks for longer than its
//! caller asks for, so that attacks end when they must.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use socket2::{Domain, SockAddr, Socket, Type};
use weft_cell::frame::{self, Frame};
use weft_cell::{Cell, ChanCmd};
use weft_core::handshake::{LinkHandshake, Role};
use weft_tls::{LinkSession, LinkTls};

/// Longest duration of a connection, a handshake or an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that one call of [`Peer::pump`] reads at most.
const READ_AT_ONCE: usize = 256 << 10;
/// The longest variable-length cell that is accepted.
const MAX_VARIABLE: usize = 65_535;
/// Longest wait before the end of the attack is checked again.
pub(super) const BEAT: Duration = Duration::from_millis(20);

/// A TCP connection from a loopback address of our choice: the target distinguishes its peers by their
/// addresses. `buffer` bounds what the kernel takes from the target before we read, in bytes.
pub(super) fn connect(from: Ipv4Addr, to: SocketAddr, buffer: Option<usize>) -> Result<TcpStream> {
    ensure!(to.ip().is_loopback(), "{to} is not on loopback");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(bytes) = buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&SockAddr::from(SocketAddr::from((from, 0))))?;
    socket
        .connect_timeout(&SockAddr::from(to), PATIENCE)
        .with_context(|| format!("connecting to {to}"))?;
    let socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Waits until the socket can be read, or written if that is wanted, or the time is over.
pub(super) fn wait_for(socket: &TcpStream, write: bool, wait: Duration) -> Result<()> {
    let mut wanted = PollFlags::POLLIN;
    wanted.set(PollFlags::POLLOUT, write);
    let mut fds = [PollFd::new(socket.as_fd(), wanted)];
    let wait =
        PollTimeout::try_from(wait.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, wait) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("waiting for a socket"),
    }
}

/// One end of a link.
pub(super) struct Peer {
    socket: TcpStream,
    session: LinkSession,
    /// Decrypted bytes; those before `used` have been used.
    plain: Vec<u8>,
    used: usize,
    scratch: Vec<u8>,
    pub(super) rng: ChaCha12Rng,
}

impl Peer {
    /// A TLS session of an initiator, without the link handshake.
    pub(super) fn tls(socket: TcpStream, tls: &LinkTls, seed: u64) -> Result<Peer> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let session = tls.connect(&mut rng).context("beginning a TLS session")?;
        let mut peer = Peer::with(socket, session, rng);
        peer.shake_tls()?;
        Ok(peer)
    }

    /// A link to the target: of a client, or of the relay whose TLS this is.
    pub(super) fn open(socket: TcpStream, tls: &LinkTls, seed: u64) -> Result<Peer> {
        let mut peer = Peer::tls(socket, tls, seed)?;
        peer.shake_link(Role::Initiator {
            expected_rsa: None,
            expected_ed: None,
        })?;
        Ok(peer)
    }

    /// The other side of a connection that the target opened.
    pub(super) fn accept(socket: TcpStream, tls: &LinkTls, seed: u64) -> Result<Peer> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let session = tls.accept().context("beginning a TLS session")?;
        let mut peer = Peer::with(socket, session, ChaCha12Rng::seed_from_u64(seed));
        peer.shake_tls()?;
        peer.shake_link(Role::Responder)?;
        Ok(peer)
    }

    fn with(socket: TcpStream, mut session: LinkSession, rng: ChaCha12Rng) -> Peer {
        // The callers bound what waits.
        session.tls().set_buffer_limit(None);
        Peer {
            socket,
            session,
            plain: Vec::new(),
            used: 0,
            scratch: vec![0; 32 << 10],
            rng,
        }
    }

    fn shake_tls(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.session.tls().is_handshaking() {
            ensure!(Instant::now() < deadline, "TLS took too long");
            self.pump(BEAT)?;
        }
        self.pump(Duration::ZERO)
    }

    fn shake_link(&mut self, role: Role) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let me = self.session.identity();
        let mut handshake = LinkHandshake::new(role, me, own, vec![own], Instant::now());
        handshake.start();
        loop {
            let bytes = self.plain.get(self.used..).unwrap_or_default();
            let used = handshake.receive(bytes, &self.session, SystemTime::now(), &mut self.rng)?;
            self.used += used;
            let output = handshake.take_output();
            self.queue(&output)?;
            if handshake.established().is_some() {
                return self.pump(Duration::ZERO);
            }
            ensure!(
                Instant::now() < deadline,
                "the link handshake took too long"
            );
            self.pump(BEAT)?;
        }
    }

    /// Encrypts bytes, to be sent by [`pump`](Self::pump).
    pub(super) fn queue(&mut self, bytes: &[u8]) -> Result<()> {
        self.session.tls().writer().write_all(bytes)?;
        Ok(())
    }

    /// Queues a KeyUpdate that asks for another one (RFC 8446 4.6.3); how many bytes it takes.
    pub(super) fn queue_key_update(&mut self) -> Result<usize> {
        // Type 22 inside: header of the record 5, message 5, content type 1, tag 16.
        self.session.tls().refresh_traffic_keys()?;
        Ok(27)
    }

    /// True if the kernel has taken all queued bytes.
    pub(super) fn is_clear(&mut self) -> bool {
        !self.session.tls().wants_write()
    }

    /// Writes what the socket takes and reads what has come; waits at most so long if it is nothing.
    ///
    /// # Errors
    ///
    /// The target has closed the link, or TLS has failed.
    pub(super) fn pump(&mut self, wait: Duration) -> Result<()> {
        if self.write()? | self.read()? || wait.is_zero() {
            return Ok(());
        }
        let write = self.session.tls().wants_write();
        wait_for(&self.socket, write, wait)?;
        self.write()?;
        self.read()?;
        Ok(())
    }

    /// Writes and leaves what has come where it is: for a peer that does not read.
    pub(super) fn pump_deaf(&mut self, wait: Duration) -> Result<()> {
        self.write()?;
        if self.session.tls().wants_write() {
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut fds, wait);
            self.write()?;
        }
        Ok(())
    }

    /// Writes, and reads without decrypting: for a caller that needs no answer. It can only end like this.
    pub(super) fn pump_blind(&mut self, wait: Duration) -> Result<()> {
        let wrote = self.write()?;
        if !wrote && !wait.is_zero() {
            let write = self.session.tls().wants_write();
            wait_for(&self.socket, write, wait)?;
            self.write()?;
        }
        for _ in 0..8 {
            match self.socket.read(&mut self.scratch) {
                Ok(0) => bail!("the target closed the link"),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<bool> {
        let mut wrote = false;
        while self.session.tls().wants_write() {
            match self.session.tls().write_tls(&mut self.socket) {
                Ok(_) => wrote = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the target closed the link"),
            }
        }
        Ok(wrote)
    }

    fn read(&mut self) -> Result<bool> {
        let mut total = 0;
        while total < READ_AT_ONCE {
            let count = match self.socket.read(&mut self.scratch) {
                Ok(0) => bail!("the target closed the link"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("the target closed the link"),
            };
            total += count;
            let mut bytes = self.scratch.get(..count).unwrap_or_default();
            while !bytes.is_empty() {
                let tls = self.session.tls();
                tls.read_tls(&mut bytes)?;
                let state = match tls.process_new_packets() {
                    Ok(state) => state,
                    Err(error) => {
                        let _ = self.write();
                        return Err(error).context("TLS has failed");
                    }
                };
                let start = self.plain.len();
                self.plain
                    .resize(start + state.plaintext_bytes_to_read(), 0);
                if let Some(room) = self.plain.get_mut(start..) {
                    self.session.tls().reader().read_exact(room)?;
                }
                ensure!(
                    !state.peer_has_closed() || self.plain.len() > self.used,
                    "the target closed the link"
                );
            }
        }
        Ok(total > 0)
    }

    /// The next fixed-length cell but padding, if one has come.
    pub(super) fn next_cell(&mut self) -> Result<Option<Cell>> {
        loop {
            let rest = self.plain.get(self.used..).unwrap_or_default();
            let Some((frame, length)) = frame::next(rest, MAX_VARIABLE)? else {
                self.plain.drain(..self.used);
                self.used = 0;
                return Ok(None);
            };
            let cell = match frame {
                Frame::Fixed(cell) => Some(Cell::from(cell)),
                Frame::Variable { .. } => None,
            };
            self.used += length;
            let padding = [ChanCmd::PADDING, ChanCmd::PADDING_NEGOTIATE];
            if let Some(cell) = cell.filter(|cell| !padding.contains(&cell.command())) {
                return Ok(Some(cell));
            }
        }
    }

    /// The next cell, which may still have to come.
    pub(super) fn wait_cell(&mut self, deadline: Instant) -> Result<Cell> {
        loop {
            if let Some(cell) = self.next_cell()? {
                return Ok(cell);
            }
            ensure!(Instant::now() < deadline, "no answer in time");
            self.pump(BEAT)?;
        }
    }

    /// Sends a close_notify and closes.
    pub(super) fn close(mut self) {
        self.session.tls().send_close_notify();
        let _ = self.write();
    }
}
