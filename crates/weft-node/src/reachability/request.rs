//! One request to a directory at the end of a circuit, over relays that are given: how a bridge sends its descriptor to the
//! authority of bridges, so that an observer of that authority does not see the bridge (C tor: `DIRIND_ANONYMOUS`).
//!
//! It blocks a thread for some seconds, as a [`Probe`](super::Probe) does. The circuit is used once.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rand::CryptoRng;
use weft_cell::circ_msg::{Extend2, handshake_type};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::Role;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::ntor;
use weft_dir::command::Hop;
use weft_proxy::Route;
use weft_tls::LinkTls;

use super::error::LinkFault;
use super::link::Link;
use super::probe::{Extension, circuit_id, create_fast, destroy, destroyed, extend, next_cell};

/// Bytes of an answer, at most: authorities send a line and some headers.
const LONGEST_ANSWER: usize = 8192;
/// Cells of a request, at most: as many as may be sent on a stream before the other end answers (tor-spec 7.4).
const MOST_CELLS: usize = 500;
/// The stream on the circuit.
const STREAM: u16 = 1;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The path has no relay.
    #[error("no path")]
    NoPath,
    /// The request is too long.
    #[error("the request has more than {MOST_CELLS} cells")]
    TooLong,
    /// No connection to the first relay.
    #[error("cannot connect to the first relay: {0}")]
    Connect(std::io::Error),
    /// TLS could not be set up.
    #[error("{0}")]
    Setup(#[from] weft_tls::LinkTlsError),
    /// A relay on the path failed.
    #[error("relay {0} of the path: {1}")]
    Hop(usize, LinkFault),
    /// The circuit was not extended.
    #[error("relay {0} of the path could not be reached (reason {1})")]
    NotExtended(usize, weft_cell::reason::DestroyReason),
    /// The directory ended the stream.
    #[error("the directory did not answer")]
    Ended,
}

/// A request to a directory.
#[derive(Clone, Debug)]
pub struct CircuitRequest {
    /// The relays of the circuit; the last is the directory.
    pub path: Vec<Hop>,
    /// How the first is connected to.
    pub route: Route,
    /// What is sent on the stream.
    pub request: Vec<u8>,
    /// The time for everything.
    pub timeout: Duration,
}

/// A circuit to the directory.
struct Circuit {
    link: Link,
    id: u32,
    crypt: OriginCircuit,
    last: usize,
}

impl CircuitRequest {
    /// Sends it; what is answered.
    ///
    /// # Errors
    ///
    /// There is no whole answer in time.
    pub fn run(&self, rng: &mut impl CryptoRng) -> Result<Vec<u8>, RequestError> {
        if self.request.len().div_ceil(relay::MAX_DATA) > MOST_CELLS {
            return Err(RequestError::TooLong);
        }
        let mut circuit = self.circuit(rng)?;
        let answer = circuit.ask(&self.request, rng);
        let Circuit { link, id, last, .. } = circuit;
        destroy(link, id);
        match answer {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(RequestError::Ended),
            Err(source) => Err(RequestError::Hop(last + 1, source)),
        }
    }

    fn circuit(&self, rng: &mut impl CryptoRng) -> Result<Circuit, RequestError> {
        let (first, rest) = self.path.split_first().ok_or(RequestError::NoPath)?;
        let deadline = Instant::now() + self.timeout;
        let session = LinkTls::client()?.connect(rng)?;
        let socket = self.connect(first.addr, deadline)?;
        let mut link = Link::new(socket, session, deadline);
        let of_first = |source| RequestError::Hop(1, source);
        link.tls_handshake().map_err(of_first)?;
        let role = Role::Initiator {
            expected_rsa: Some(RsaIdentity::from(first.rsa)),
            expected_ed: first.ed25519.map(Ed25519Identity::from),
        };
        link.link_handshake(role, first.addr.ip(), rng)
            .map_err(of_first)?;
        let id = circuit_id(rng);
        let crypt = create_fast(&mut link, id, rng).map_err(of_first)?;
        let mut circuit = Circuit {
            link,
            id,
            crypt,
            last: 0,
        };
        for hop in rest {
            if let Err(error) = circuit.extend(hop, rng) {
                destroy(circuit.link, id);
                return Err(error);
            }
        }
        Ok(circuit)
    }

    fn connect(&self, to: SocketAddr, deadline: Instant) -> Result<TcpStream, RequestError> {
        super::probe::connect(to, &self.route, deadline).map_err(RequestError::Connect)
    }
}

impl Circuit {
    fn extend(&mut self, hop: &Hop, rng: &mut impl CryptoRng) -> Result<(), RequestError> {
        let number = self.last + 2;
        let failed = |source| RequestError::Hop(number, source);
        let rsa = RsaIdentity::from(hop.rsa);
        let onionskin = ntor::ClientState::start(&rsa, &hop.ntor, rng);
        let (ipv4, ipv6) = match hop.addr {
            SocketAddr::V4(addr) => (Some(addr), None),
            SocketAddr::V6(addr) => (None, Some(addr)),
        };
        let extend2 = Extend2 {
            ipv4,
            ipv6,
            rsa: Some(rsa),
            ed25519: hop.ed25519.map(Ed25519Identity::from),
            link_specifiers: Vec::new(),
            handshake_type: handshake_type::NTOR,
            handshake: onionskin.onionskin().to_vec(),
        };
        let extend2 = extend2.encode().map_err(LinkFault::from).map_err(failed)?;
        let at = (self.id, self.last);
        match extend(&mut self.link, at, &mut self.crypt, &extend2, rng).map_err(failed)? {
            Extension::Extended(reply) => {
                let keys = onionskin.finish(&reply).map_err(LinkFault::from);
                self.crypt.add_hop(&keys.map_err(failed)?.into());
                self.last += 1;
                Ok(())
            }
            Extension::Failed { reason, .. } => Err(RequestError::NotExtended(number, reason)),
        }
    }

    fn send(
        &mut self,
        command: RelayCmd,
        data: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<(), LinkFault> {
        let mut cell = Cell::new(self.id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, STREAM, data, rng)?;
        self.crypt
            .encrypt_forward(self.last, cell.command(), cell.body_mut())?;
        self.link.send_cell(&cell)
    }

    /// Sends the request. Nothing: the stream ended before an answer.
    fn ask(
        &mut self,
        request: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Option<Vec<u8>>, LinkFault> {
        self.send(RelayCmd::BEGIN_DIR, &[], rng)?;
        match self.next(&mut |command, _| command == RelayCmd::CONNECTED)? {
            true => {}
            false => return Ok(None),
        }
        for part in request.chunks(relay::MAX_DATA) {
            self.send(RelayCmd::DATA, part, rng)?;
        }
        let mut answer = Vec::new();
        self.next(&mut |command, data| {
            if command == RelayCmd::DATA {
                answer.extend_from_slice(data);
            }
            answer.len() > LONGEST_ANSWER
        })?;
        answer.truncate(LONGEST_ANSWER);
        Ok((!answer.is_empty()).then_some(answer))
    }

    /// Hands messages of the stream to `take`, until that is content; false: the stream ended.
    fn next(&mut self, take: &mut dyn FnMut(RelayCmd, &[u8]) -> bool) -> Result<bool, LinkFault> {
        loop {
            let mut cell = next_cell(&mut self.link, self.id)?;
            if let Some(reason) = destroyed(&cell) {
                return Err(LinkFault::Destroyed(reason));
            }
            if cell.command() != ChanCmd::RELAY {
                continue;
            }
            if self.crypt.decrypt_backward(cell.body_mut()) != Some(self.last) {
                return Err(LinkFault::Unrecognized);
            }
            let message = RelayBody::new(cell.body());
            if message.stream_id() != STREAM {
                continue;
            }
            if message.command() == RelayCmd::END {
                return Ok(false);
            }
            if take(message.command(), message.data()?) {
                return Ok(true);
            }
        }
    }
}
