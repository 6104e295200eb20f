//! The other end of a link, played over a real socket: a client, a relay, or something worse.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use socket2::{Domain, Socket, Type};
use weft_cell::frame::{self, Frame};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::link_msg::Destroy;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd};
use weft_core::handshake::{EphemeralKeys, Established, LinkHandshake, PeerIdentity, Role};
use weft_crypto::handshake::OnionKeys;
use weft_tls::{LinkLifetimes, LinkSession, LinkTls};

use crate::hostile::process::PATIENCE;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A relay that the test plays.
pub(crate) struct Identity {
    /// TLS certificates and keys of its links.
    pub(crate) tls: LinkTls,
    /// Its RSA identity.
    pub(crate) rsa: RsaIdentity,
    /// Its ed25519 identity.
    pub(crate) ed25519: Ed25519Identity,
    pub(crate) onion: OnionKeys,
}

impl Identity {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let now = SystemTime::now();
        let keys = EphemeralKeys::generate(now, &mut rng).unwrap();
        let tls = LinkTls::relay(keys.keys(), LinkLifetimes::default(), now, &mut rng).unwrap();
        let identity = tls.identity().unwrap();
        let (rsa, ed25519) = (*identity.rsa_id(), *identity.ed_id());
        Identity {
            tls,
            rsa,
            ed25519,
            onion: OnionKeys::new(rsa, ed25519, &[9; 32], None),
        }
    }
}

/// Relays that the test plays, made when they are first needed and then shared by all tests: their
/// RSA keys take a while. The relay under test must not meet one at two places at once, because it
/// would use the link that it has.
static IDENTITIES: [LazyLock<Identity>; 12] = [
    LazyLock::new(|| Identity::new(1)),
    LazyLock::new(|| Identity::new(2)),
    LazyLock::new(|| Identity::new(3)),
    LazyLock::new(|| Identity::new(4)),
    LazyLock::new(|| Identity::new(5)),
    LazyLock::new(|| Identity::new(6)),
    LazyLock::new(|| Identity::new(7)),
    LazyLock::new(|| Identity::new(8)),
    LazyLock::new(|| Identity::new(9)),
    LazyLock::new(|| Identity::new(10)),
    LazyLock::new(|| Identity::new(11)),
    LazyLock::new(|| Identity::new(12)),
];

/// One of them.
pub(crate) fn identity(number: usize) -> &'static Identity {
    &IDENTITIES[number]
}

/// TLS of clients.
static CLIENT: LazyLock<LinkTls> = LazyLock::new(|| LinkTls::client().unwrap());

/// One end of a link to the relay under test.
pub(crate) struct Peer {
    socket: TcpStream,
    session: LinkSession,
    /// Decrypted bytes that have not been used.
    plain: Vec<u8>,
    /// Every byte is sent by itself, in its own TLS record.
    pub(crate) byte_by_byte: bool,
    /// The identity that the relay under test proved.
    pub(crate) identity: PeerIdentity,
    pub(crate) rng: StdRng,
}

impl Peer {
    /// A client's TLS to the relay, with no link handshake yet.
    pub(crate) fn tls(relay: SocketAddr) -> Self {
        Self::over(TcpStream::connect(relay).unwrap(), &CLIENT)
    }

    /// A client's TLS over a socket that has been opened.
    pub(crate) fn over(socket: TcpStream, tls: &LinkTls) -> Self {
        let mut rng = StdRng::seed_from_u64(7);
        let session = tls.connect(&mut rng).unwrap();
        let mut peer = Self::with(socket, session, rng);
        peer.tls_handshake().unwrap();
        peer
    }

    fn with(socket: TcpStream, mut session: LinkSession, rng: StdRng) -> Self {
        session.tls().set_buffer_limit(None);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Peer {
            socket,
            session,
            plain: Vec::new(),
            byte_by_byte: false,
            identity: PeerIdentity::Unauthenticated,
            rng,
        }
    }

    /// A client's link, which the relay may refuse.
    pub(crate) fn try_client(relay: SocketAddr) -> Result<Self, String> {
        let mut rng = StdRng::seed_from_u64(7);
        let session = CLIENT.connect(&mut rng).unwrap();
        let mut peer = Self::with(TcpStream::connect(relay).unwrap(), session, rng);
        peer.tls_handshake()?;
        peer.link_handshake(initiator())
            .map_err(|error| format!("{error:?}"))?;
        Ok(peer)
    }

    /// A client's link.
    pub(crate) fn client(relay: SocketAddr) -> Self {
        let mut peer = Self::tls(relay);
        peer.link_handshake(initiator()).unwrap();
        peer
    }

    /// A relay's link, which the relay under test accepts.
    pub(crate) fn relay(relay: SocketAddr, identity: &Identity) -> Self {
        let mut peer = Self::over(TcpStream::connect(relay).unwrap(), &identity.tls);
        peer.link_handshake(initiator()).unwrap();
        peer
    }

    /// A client's link over a socket that takes few bytes before its owner reads them.
    pub(crate) fn client_with_small_buffer(relay: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&relay.into()).unwrap();
        let mut peer = Self::over(socket.into(), &CLIENT);
        peer.link_handshake(initiator()).unwrap();
        peer
    }

    /// The responder's side of a connection that the relay opened.
    pub(crate) fn accept(listener: &TcpListener, identity: &Identity) -> Result<Self, String> {
        let (socket, _) = listener.accept().unwrap();
        let session = identity.tls.accept().unwrap();
        let mut peer = Self::with(socket, session, StdRng::seed_from_u64(8));
        peer.tls_handshake()?;
        peer.link_handshake(Role::Responder)?;
        Ok(peer)
    }

    fn tls_handshake(&mut self) -> Result<(), String> {
        while self.session.tls().is_handshaking() {
            self.flush();
            if !self.fill()? {
                return Err("closed in the TLS handshake".to_owned());
            }
        }
        self.flush();
        Ok(())
    }

    /// The link handshake; the relay's identity is kept.
    pub(crate) fn link_handshake(&mut self, role: Role) -> Result<Established, String> {
        let me = self.session.identity();
        let mut handshake =
            LinkHandshake::new(role, me, LOCALHOST, vec![LOCALHOST], Instant::now());
        handshake.start();
        loop {
            let bytes = std::mem::take(&mut self.plain);
            let used = handshake
                .receive(&bytes, &self.session, SystemTime::now(), &mut self.rng)
                .map_err(|error| error.to_string())?;
            self.plain = bytes[used..].to_vec();
            self.send_raw(&handshake.take_output());
            if let Some(established) = handshake.established() {
                self.identity = established.peer;
                return Ok(established.clone());
            }
            if !self.fill()? {
                return Err("closed in the link handshake".to_owned());
            }
        }
    }

    /// Sends bytes inside TLS. A closed link is not an error.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let at_once = if self.byte_by_byte {
            1
        } else {
            bytes.len().max(1)
        };
        for some in bytes.chunks(at_once) {
            self.session.tls().writer().write_all(some).unwrap();
            self.flush();
        }
    }

    pub(crate) fn send(&mut self, cell: &Cell) {
        self.send_raw(cell.as_bytes());
    }

    /// Sends cells in as few TLS records as they fit.
    pub(crate) fn send_all(&mut self, cells: &[Cell]) {
        for some in cells.chunks(100) {
            let bytes: Vec<u8> = some.iter().flat_map(|cell| *cell.as_bytes()).collect();
            self.send_raw(&bytes);
        }
    }

    pub(crate) fn send_below_tls(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends new TLS keys and requests others in return, `times` times or until the relay closes.
    /// Returns the number of times that it did.
    pub(crate) fn update_keys(&mut self, times: usize) -> usize {
        for time in 0..times {
            self.session.tls().refresh_traffic_keys().unwrap();
            while self.session.tls().wants_write() {
                match self.session.tls().write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if gone(error.kind()) => return time,
                    Err(error) => panic!("the relay does not read: {error}"),
                }
            }
        }
        times
    }

    /// The next cell but padding; `None` when the relay has closed.
    pub(crate) fn next(&mut self) -> Option<Cell> {
        loop {
            let cell = self.next_of_any_kind()?;
            if !matches!(
                cell.command(),
                ChanCmd::PADDING | ChanCmd::PADDING_NEGOTIATE
            ) {
                return Some(cell);
            }
        }
    }

    /// The next fixed-length cell; `None` when the relay has closed.
    pub(crate) fn next_of_any_kind(&mut self) -> Option<Cell> {
        loop {
            while let Some((frame, length)) = frame::next(&self.plain, 65535).unwrap() {
                let cell = match frame {
                    Frame::Fixed(cell) => Some(Cell::from(cell)),
                    Frame::Variable { .. } => None,
                };
                self.plain.drain(..length);
                if cell.is_some() {
                    return cell;
                }
            }
            if !self.fill().unwrap() {
                return None;
            }
        }
    }

    /// The next cell, which must be of this kind and circuit.
    pub(crate) fn expect(&mut self, command: ChanCmd, circ_id: u32) -> Cell {
        let cell = self
            .next()
            .unwrap_or_else(|| panic!("closed where {command} should come"));
        let reason = (cell.command() == ChanCmd::DESTROY).then(|| Destroy::decode(cell.body()));
        assert_eq!(
            (cell.command(), cell.circ_id()),
            (command, circ_id),
            "{reason:?}"
        );
        cell
    }

    /// The next cell, which must be a DESTROY for this reason.
    pub(crate) fn expect_destroy(&mut self, circ_id: u32, reason: DestroyReason) {
        let cell = self.expect(ChanCmd::DESTROY, circ_id);
        assert_eq!(Destroy::decode(cell.body()).reason, reason);
    }

    /// The relay closes the connection, whatever it sends before.
    pub(crate) fn expect_closed(&mut self) {
        while self.next().is_some() {}
    }

    /// Reads until the relay closes, below TLS: for a link that never came to be one.
    pub(crate) fn expect_closed_below_tls(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if gone(error.kind()) => return,
                Err(error) => panic!("the relay did not close: {error}"),
            }
        }
    }

    /// Writes all that TLS holds. A closed link is not an error here: reading shows it.
    fn flush(&mut self) {
        while self.session.tls().wants_write() {
            match self.session.tls().write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if gone(error.kind()) => return,
                Err(error) => panic!("the relay does not read: {error}"),
            }
        }
    }

    /// Waits for bytes. False: the relay has closed.
    fn fill(&mut self) -> Result<bool, String> {
        match self.session.tls().read_tls(&mut self.socket) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if gone(error.kind()) => return Ok(false),
            Err(error) => return Err(format!("the relay sends nothing: {error}")),
        }
        let state = self
            .session
            .tls()
            .process_new_packets()
            .map_err(|error| error.to_string())?;
        let start = self.plain.len();
        self.plain
            .resize(start + state.plaintext_bytes_to_read(), 0);
        let room = &mut self.plain[start..];
        self.session.tls().reader().read_exact(room).unwrap();
        Ok(!(state.peer_has_closed() && self.plain.is_empty()))
    }
}

/// A client does not know the relay that it connects to.
pub(crate) fn initiator() -> Role {
    Role::Initiator {
        expected_rsa: None,
        expected_ed: None,
    }
}

/// The errors of a socket whose other end has closed.
fn gone(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}
