//! One test of one address: a circuit of two hops that ends at this relay itself.
//!
//! The probe connects to the asked relay as a client: it does not authenticate, so that the relay does not
//! know this link as one to us and has to open another. The circuit is CREATE_FAST to that relay, then
//! EXTEND2 with our address, identities and ntor onion key (tor-spec 5.1, 5.3). Only we can answer that
//! onionskin.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rand::CryptoRng;
use socket2::{Domain, Protocol, Socket, Type};
use weft_cell::circ_msg::handshake_type;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, Extended2, Truncated};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::{CELL_LEN, Cell, ChanCmd, RelayCmd};
use weft_core::handshake::Role;
use weft_crypto::Tor1Keys;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::{fast, ntor};
use weft_proxy::Route;

use super::error::{LinkFault, ProbeError, Step};
use super::link::Link;
use weft_tls::LinkTls;

/// The upper bound of [`Probe::timeout`].
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A request to the relay `via` to extend a circuit to this relay.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The ORPort of the relay to ask.
    pub via: SocketAddr,
    /// SHA-1 of its RSA identity key.
    pub via_rsa: RsaIdentity,
    /// Our address under test.
    pub own_addr: SocketAddr,
    /// SHA-1 of our RSA identity key.
    pub own_rsa: RsaIdentity,
    /// Our Ed25519 identity key, if EXTEND2 contains it (ExtendByEd25519ID).
    pub own_ed25519: Option<Ed25519Identity>,
    /// Our current ntor onion key.
    pub own_ntor: [u8; 32],
    /// The source address or proxy for the connection (OutboundBindAddress, Socks5Proxy).
    pub route: Route,
    /// The time limit of the whole probe; C tor gives a link a minute.
    pub timeout: Duration,
}

/// The relay's answer to the EXTEND2.
pub(super) enum Extension {
    /// EXTENDED2, with the handshake of the node at our address.
    Extended(Vec<u8>),
    /// DESTROY from the relay itself, or TRUNCATED with the reason that the next hop sent.
    Failed {
        reason: DestroyReason,
        truncated: bool,
    },
}

impl Probe {
    /// Runs the probe; blocks for at most [`timeout`](Self::timeout). Success means that the relay reached
    /// a node at `own_addr` that has our onion key.
    pub fn run(&self, rng: &mut impl CryptoRng) -> Result<(), ProbeError> {
        self.circuit(rng).map(ProbeCircuit::close)
    }

    /// Runs the probe, and sends cells without meaning (DROP) to ourselves, `pace` apart. The circuit stays open for
    /// `linger` behind them: what still waits at the relay then is lost. Returns how many bytes of cells were sent.
    pub fn send_drops(
        &self,
        drops: u32,
        (pace, linger): (Duration, Duration),
        rng: &mut impl CryptoRng,
    ) -> Result<u64, ProbeError> {
        let mut circuit = self.circuit(rng)?;
        let sent = circuit.send_drops(drops, pace, rng);
        std::thread::sleep(linger);
        circuit.close();
        sent.map_err(|source| self.via_failed(Step::Drops, source))?;
        Ok(u64::from(drops) * CELL_LEN as u64)
    }

    /// Makes the circuit.
    fn circuit(&self, rng: &mut impl CryptoRng) -> Result<ProbeCircuit, ProbeError> {
        let timeout = self.timeout.min(LONGEST_TIMEOUT);
        let deadline = Instant::now() + timeout;
        // First the checks that need no network.
        let onionskin = ntor::ClientState::start(&self.own_rsa, &self.own_ntor, rng);
        let extend2 = self.extend2(&onionskin)?;

        let expected = (self.via_rsa, None);
        let mut link = open_link(self.via, expected, &self.route, deadline, rng)?;

        let circ_id = circuit_id(rng);
        let mut crypt = create_fast(&mut link, circ_id, rng)
            .map_err(|source| self.via_failed(Step::CreateFast, source))?;
        let verdict = match extend(&mut link, (circ_id, 0), &mut crypt, &extend2, rng) {
            Ok(Extension::Extended(reply)) => match self.check_reply(onionskin, &reply) {
                Ok(keys) => {
                    crypt.add_hop(&keys.into());
                    let link = Box::new(link);
                    return Ok(ProbeCircuit {
                        link,
                        circ_id,
                        crypt,
                    });
                }
                Err(error) => Err(error),
            },
            Ok(Extension::Failed { reason, truncated }) => {
                Err(self.not_extended(reason, truncated))
            }
            Err(LinkFault::TimedOut) => Err(ProbeError::NoAnswer {
                via: self.via,
                own_addr: self.own_addr,
                timeout,
            }),
            Err(source) => Err(self.via_failed(Step::Extend, source)),
        };
        destroy(link, circ_id);
        verdict
    }

    /// The data of the EXTEND2 with our address and identities.
    fn extend2(&self, onionskin: &ntor::ClientState) -> Result<Vec<u8>, ProbeError> {
        let (ipv4, ipv6) = match self.own_addr {
            SocketAddr::V4(addr) => (Some(addr), None),
            SocketAddr::V6(addr) => (None, Some(addr)),
        };
        Extend2 {
            ipv4,
            ipv6,
            rsa: Some(self.own_rsa),
            ed25519: self.own_ed25519,
            link_specifiers: Vec::new(),
            handshake_type: handshake_type::NTOR,
            handshake: onionskin.onionskin().to_vec(),
        }
        .encode()
        .map_err(|source| ProbeError::OwnAddress {
            own_addr: self.own_addr,
            source,
        })
    }

    /// Checks that the answer to the onionskin is ours.
    fn check_reply(
        &self,
        onionskin: ntor::ClientState,
        reply: &[u8],
    ) -> Result<Tor1Keys, ProbeError> {
        onionskin.finish(reply).map_err(|source| ProbeError::NotUs {
            via: self.via,
            own_addr: self.own_addr,
            source,
        })
    }

    /// The error for a circuit that was not extended. A relay that cannot connect sends one of the first four
    /// reasons. Any other reason is the next hop's in a TRUNCATED, and the relay's own in a DESTROY.
    fn not_extended(&self, reason: DestroyReason, truncated: bool) -> ProbeError {
        let (via, own_addr) = (self.via, self.own_addr);
        match reason {
            DestroyReason::CONNECTFAILED
            | DestroyReason::OR_IDENTITY
            | DestroyReason::CHANNEL_CLOSED
            | DestroyReason::TIMEOUT => ProbeError::NotReached {
                via,
                own_addr,
                reason,
            },
            _ if truncated => ProbeError::Refused {
                via,
                own_addr,
                reason,
            },
            _ => self.via_failed(Step::Extend, LinkFault::Destroyed(reason)),
        }
    }

    fn via_failed(&self, step: Step, source: LinkFault) -> ProbeError {
        via_failed(self.via, step, source)
    }
}

fn via_failed(via: SocketAddr, step: Step, source: LinkFault) -> ProbeError {
    ProbeError::Via { via, step, source }
}

/// Opens a link to the relay at `to`, which must prove these identities, and closes it; blocks for at most `timeout`.
/// So an authority tests whether relays run.
pub fn reach(
    to: SocketAddr,
    expected: (RsaIdentity, Option<Ed25519Identity>),
    route: &Route,
    timeout: Duration,
    rng: &mut impl CryptoRng,
) -> Result<(), ProbeError> {
    let deadline = Instant::now() + timeout;
    open_link(to, expected, route, deadline, rng).map(Link::close)
}

/// A link to the relay at `via`, which has proven these identities.
fn open_link(
    via: SocketAddr,
    (rsa, ed25519): (RsaIdentity, Option<Ed25519Identity>),
    route: &Route,
    deadline: Instant,
    rng: &mut impl CryptoRng,
) -> Result<Link, ProbeError> {
    let session = LinkTls::client()?.connect(rng)?;
    let socket = connect_via(via, route, deadline)?;
    let mut link = Link::new(socket, session, deadline);
    link.tls_handshake()
        .map_err(|source| via_failed(via, Step::Tls, source))?;
    let role = Role::Initiator {
        expected_rsa: Some(rsa),
        expected_ed: ed25519,
    };
    link.link_handshake(role, via.ip(), rng)
        .map_err(|source| via_failed(via, Step::LinkHandshake, source))?;
    Ok(link)
}

/// Opens a TCP connection to the relay.
fn connect_via(via: SocketAddr, route: &Route, deadline: Instant) -> Result<TcpStream, ProbeError> {
    let failed = |source: io::Error| ProbeError::Connect { via, source };
    let socket = unconnected(via, route).map_err(|(bind, source)| match bind {
        Some(bind) => ProbeError::Bind {
            bind,
            via: route.first(via),
            source,
        },
        None => failed(source),
    })?;
    connected(socket, via, route, deadline).map_err(failed)
}

/// A circuit of two hops, of which this relay is the second.
struct ProbeCircuit {
    link: Box<Link>,
    circ_id: u32,
    crypt: OriginCircuit,
}

impl ProbeCircuit {
    fn send_drops(
        &mut self,
        drops: u32,
        pace: Duration,
        rng: &mut impl CryptoRng,
    ) -> Result<(), LinkFault> {
        for _ in 0..drops {
            let mut cell = Cell::new(self.circ_id, ChanCmd::RELAY);
            relay::encode(cell.body_mut(), RelayCmd::DROP, 0, &[], rng)?;
            self.crypt
                .encrypt_forward(1, cell.command(), cell.body_mut())?;
            self.link.send_cell(&cell)?;
            if !pace.is_zero() {
                std::thread::sleep(pace);
            }
        }
        Ok(())
    }

    fn close(self) {
        destroy(*self.link, self.circ_id);
    }
}

/// A connection to a relay.
pub(super) fn connect(to: SocketAddr, route: &Route, deadline: Instant) -> io::Result<TcpStream> {
    let socket = unconnected(to, route).map_err(|(_, source)| source)?;
    connected(socket, to, route, deadline)
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

/// Closes a circuit and its link. With a DESTROY both relays forget the circuit at once. An origin sends no reason but
/// NONE.
pub(super) fn destroy(mut link: Link, circ_id: u32) {
    let _ = link.send_cell(&Cell::new(circ_id, ChanCmd::DESTROY));
    link.close();
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

/// A random circuit id with the bit of the link's initiator set (tor-spec 5.1.1).
pub(super) fn circuit_id(rng: &mut impl CryptoRng) -> u32 {
    let mut bytes = [0; 4];
    rng.fill_bytes(&mut bytes);
    u32::from_be_bytes(bytes) | 1 << 31
}

/// Creates the circuit's first hop.
pub(super) fn create_fast(
    link: &mut Link,
    circ_id: u32,
    rng: &mut impl CryptoRng,
) -> Result<OriginCircuit, LinkFault> {
    let handshake = fast::ClientState::start(rng);
    let request = CreateRequest::Fast { x: *handshake.x() };
    link.send_cell(&request.encode(circ_id)?)?;
    let cell = next_cell(link, circ_id)?;
    if let Some(reason) = destroyed(&cell) {
        return Err(LinkFault::Destroyed(reason));
    }
    let keys = match CreateReply::decode(cell.command(), cell.body())? {
        CreateReply::Fast { y, kh } => handshake.finish(&y, &kh)?,
        CreateReply::Created2 { .. } => return Err(unexpected(cell.command())),
    };
    let mut crypt = OriginCircuit::new();
    crypt.add_hop(&keys.into());
    Ok(crypt)
}

/// Extends the circuit with this id from its hop of this number.
pub(super) fn extend(
    link: &mut Link,
    (circ_id, hop): (u32, usize),
    crypt: &mut OriginCircuit,
    extend2: &[u8],
    rng: &mut impl CryptoRng,
) -> Result<Extension, LinkFault> {
    let mut cell = Cell::new(circ_id, ChanCmd::RELAY_EARLY);
    relay::encode(cell.body_mut(), RelayCmd::EXTEND2, 0, extend2, rng)?;
    crypt.encrypt_forward(hop, cell.command(), cell.body_mut())?;
    link.send_cell(&cell)?;
    loop {
        let mut cell = next_cell(link, circ_id)?;
        if let Some(reason) = destroyed(&cell) {
            let truncated = false;
            return Ok(Extension::Failed { reason, truncated });
        }
        if cell.command() != ChanCmd::RELAY {
            return Err(unexpected(cell.command()));
        }
        if crypt.decrypt_backward(cell.body_mut()).is_none() {
            return Err(LinkFault::Unrecognized);
        }
        let message = RelayBody::new(cell.body());
        match message.command() {
            RelayCmd::EXTENDED2 => {
                let extended = Extended2::decode(message.data()?)?;
                return Ok(Extension::Extended(extended.data));
            }
            RelayCmd::TRUNCATED => {
                let reason = Truncated::decode(message.data()?)?.reason;
                let truncated = true;
                return Ok(Extension::Failed { reason, truncated });
            }
            // Padding.
            RelayCmd::DROP => {}
            other => return Err(LinkFault::Unexpected(format!("relay message {other}"))),
        }
    }
}

/// The next cell of the circuit. Padding and cells of circuits that do not exist are skipped.
pub(super) fn next_cell(link: &mut Link, circ_id: u32) -> Result<Cell, LinkFault> {
    loop {
        let cell = link.next_cell()?;
        if cell.circ_id() == circ_id {
            return Ok(cell);
        }
    }
}

/// The reason of a DESTROY cell; `None` for other cells.
pub(super) fn destroyed(cell: &Cell) -> Option<DestroyReason> {
    let [reason, ..] = *cell.body();
    (cell.command() == ChanCmd::DESTROY).then_some(DestroyReason(reason))
}

fn unexpected(command: ChanCmd) -> LinkFault {
    LinkFault::Unexpected(format!("cell {command}"))
}
