//! A Tor link over a blocking socket: every wait ends at one deadline, and the bytes that the peer may
//! send are bounded.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use rand::CryptoRng;
use rustls::Connection;
use weft_cell::Cell;
use weft_cell::frame::{self, Frame};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_core::handshake::{LinkHandshake, MAX_HANDSHAKE_BYTES, Role};

use weft_proxy::Route;
use weft_tls::{LinkSession, LinkTls, LinkTlsError};

use super::connect::connect;
use super::error::{LinkFault, Step};

/// Bytes that are read from the socket, at most. A probe needs about 8 KiB: two for TLS, three for the
/// link handshake, two cells; the rest is room for padding.
pub(super) const MAX_RECEIVED: usize = 128 * 1024;

/// A link and its deadline.
#[derive(Debug)]
pub(super) struct Link {
    socket: TcpStream,
    session: LinkSession,
    deadline: Instant,
    /// Bytes read from the socket so far, and the most that may be.
    received: usize,
    most: usize,
    /// Decrypted bytes that have not been used.
    plain: Vec<u8>,
    /// Seconds by which our clock is ahead of the peer's, by its NETINFO.
    clock_skew: Option<i64>,
}

/// Why there is no link.
pub(super) enum NoLink {
    /// TLS could not be set up.
    Setup(LinkTlsError),
    /// No connection, because this source address is not one of this machine, or for another reason.
    Connect(Option<IpAddr>, io::Error),
    /// The relay failed in one of its tasks.
    Failed(Step, LinkFault),
}

impl From<LinkTlsError> for NoLink {
    fn from(error: LinkTlsError) -> Self {
        Self::Setup(error)
    }
}

impl Link {
    /// A link to a relay, which has proven these identities.
    pub(super) fn open(
        to: SocketAddr,
        (rsa, ed25519): (RsaIdentity, Option<Ed25519Identity>),
        route: &Route,
        deadline: Instant,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, NoLink> {
        let session = LinkTls::client()?.connect(rng)?;
        let socket =
            connect(to, route, deadline).map_err(|(bind, source)| NoLink::Connect(bind, source))?;
        let mut link = Self::new(socket, session, deadline);
        link.tls_handshake()
            .map_err(|source| NoLink::Failed(Step::Tls, source))?;
        let role = Role::Initiator {
            expected_rsa: Some(rsa),
            expected_ed: ed25519,
        };
        link.link_handshake(role, to.ip(), rng)
            .map_err(|source| NoLink::Failed(Step::LinkHandshake, source))?;
        Ok(link)
    }

    pub(super) fn new(socket: TcpStream, session: LinkSession, deadline: Instant) -> Self {
        Self {
            socket,
            session,
            deadline,
            received: 0,
            most: MAX_RECEIVED,
            plain: Vec::new(),
            clock_skew: None,
        }
    }

    /// Seconds by which our clock is ahead of the peer's, if the peer sent its time.
    pub(super) fn clock_skew(&self) -> Option<i64> {
        self.clock_skew
    }

    /// Raises the limit on received bytes by `bytes`.
    pub(super) fn with_room(mut self, bytes: usize) -> Self {
        self.most = self.most.saturating_add(bytes);
        self
    }

    /// Runs the TLS handshake.
    pub(super) fn tls_handshake(&mut self) -> Result<(), LinkFault> {
        while self.session.tls().is_handshaking() {
            self.fill()?;
        }
        self.flush()
    }

    /// Runs the link handshake; `peer` is the other end's address.
    pub(super) fn link_handshake(
        &mut self,
        role: Role,
        peer: IpAddr,
        rng: &mut dyn CryptoRng,
    ) -> Result<(), LinkFault> {
        let me = self.session.identity();
        let mut handshake = LinkHandshake::new(role, me, peer, Vec::new(), Instant::now());
        handshake.start();
        loop {
            let bytes = std::mem::take(&mut self.plain);
            let used = handshake.receive(&bytes, &self.session, SystemTime::now(), rng)?;
            self.plain = bytes.get(used..).unwrap_or_default().to_vec();
            self.send(&handshake.take_output())?;
            if let Some(established) = handshake.established() {
                self.clock_skew = established.clock_skew;
                return Ok(());
            }
            self.fill()?;
        }
    }

    pub(super) fn send_cell(&mut self, cell: &Cell) -> Result<(), LinkFault> {
        self.send(cell.as_bytes())
    }

    /// The next fixed-length cell. Variable-length cells, which do not matter on an open link, are skipped.
    pub(super) fn next_cell(&mut self) -> Result<Cell, LinkFault> {
        loop {
            while let Some((frame, len)) = frame::next(&self.plain, MAX_HANDSHAKE_BYTES)? {
                let cell = match frame {
                    Frame::Fixed(cell) => Some(Cell::from(cell)),
                    Frame::Variable { .. } => None,
                };
                self.plain.drain(..len);
                if let Some(cell) = cell {
                    return Ok(cell);
                }
            }
            self.fill()?;
        }
    }

    /// Sends close_notify, if there is time, and closes.
    pub(super) fn close(mut self) {
        self.session.tls().send_close_notify();
        let _ = self.flush();
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkFault> {
        self.session.tls().writer().write_all(bytes)?;
        self.flush()
    }

    /// Writes all TLS records that wait.
    fn flush(&mut self) -> Result<(), LinkFault> {
        while self.session.tls().wants_write() {
            let remaining = self.remaining()?;
            self.socket.set_write_timeout(Some(remaining))?;
            match self.session.tls().write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(socket_error(error)),
            }
        }
        Ok(())
    }

    /// Waits for bytes from the peer and decrypts them.
    fn fill(&mut self) -> Result<(), LinkFault> {
        self.flush()?;
        let read = loop {
            let remaining = self.remaining()?;
            self.socket.set_read_timeout(Some(remaining))?;
            match self.session.tls().read_tls(&mut self.socket) {
                Ok(0) => return Err(LinkFault::Closed),
                Ok(read) => break read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(socket_error(error)),
            }
        };
        self.received = self.received.saturating_add(read);
        if self.received > self.most {
            return Err(LinkFault::TooMuch { limit: self.most });
        }
        let decrypted = decrypt(self.session.tls(), &mut self.plain);
        // Flush even after an error, to send the alert.
        let flushed = self.flush();
        decrypted?;
        flushed
    }

    /// The time until the deadline.
    fn remaining(&self) -> Result<Duration, LinkFault> {
        self.deadline
            .checked_duration_since(Instant::now())
            .filter(|remaining| !remaining.is_zero())
            .ok_or(LinkFault::TimedOut)
    }
}

/// Decrypts the records read so far and appends their content to `plain`.
fn decrypt(tls: &mut Connection, plain: &mut Vec<u8>) -> Result<(), LinkFault> {
    let state = tls.process_new_packets()?;
    let mut bytes = vec![0; state.plaintext_bytes_to_read()];
    tls.reader().read_exact(&mut bytes)?;
    plain.append(&mut bytes);
    Ok(())
}

/// Maps a socket's timeout to [`LinkFault::TimedOut`].
fn socket_error(error: std::io::Error) -> LinkFault {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => LinkFault::TimedOut,
        _ => LinkFault::Io(error),
    }
}
