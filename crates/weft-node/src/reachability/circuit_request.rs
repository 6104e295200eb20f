//! One request to a directory at the end of a circuit, over relays that are given: how a bridge asks directories, so that nobody
//! sees more than an ordinary client there.
//!
//! It blocks a thread for some seconds, as a [`Probe`](super::Probe) does. The circuit is used once.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rand::CryptoRng;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Semaphore;
use weft_cell::circ_msg::{Extend2, handshake_type};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::Sendme;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::Role;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::ntor;
use weft_dir::circuits::{AnswerFuture, CircuitRequest, Circuits, Hop};
use weft_tls::LinkTls;

use super::error::LinkFault;
use super::link::Link;
use super::probe::{Extension, circuit_id, create_fast, destroy, destroyed, extend, next_cell};

/// Requests at once, at most; others wait. Each has a link of its own.
const MOST_REQUESTS: usize = 4;
/// DATA cells for which a SENDME is due, on a stream and on a circuit (tor-spec 7.3, 7.4).
const PER_STREAM_SENDME: usize = 50;
const PER_CIRCUIT_SENDME: usize = 100;
/// Cells of a request, at most: as many as may be sent on a stream before the other end answers (tor-spec 7.4).
const MOST_CELLS: usize = 500;
/// The stream on the circuit.
const STREAM: u16 = 1;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    /// The path has no relay.
    #[error("no path")]
    NoPath,
    /// The answer is too long.
    #[error("the answer has more than {0} bytes")]
    Longer(usize),
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

/// Makes the requests of a directory task, each on a thread.
#[derive(Debug)]
pub struct CircuitRequests {
    rng: Mutex<StdRng>,
    places: Arc<Semaphore>,
}

impl CircuitRequests {
    /// With randomness from this seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            rng: Mutex::new(StdRng::from_seed(seed)),
            places: Arc::new(Semaphore::new(MOST_REQUESTS)),
        }
    }
}

impl Circuits for CircuitRequests {
    fn ask(&self, request: CircuitRequest) -> AnswerFuture {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let (seed, places): ([u8; 32], _) = (rng.random(), self.places.clone());
        drop(rng);
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let asking = tokio::task::spawn_blocking(move || {
                let _place = place;
                ask(&request, &mut StdRng::from_seed(seed))
            });
            let answer = asking.await.map_err(io::Error::other)?;
            answer.map_err(io::Error::other)
        })
    }
}

/// A circuit to the directory.
struct Circuit {
    link: Link,
    id: u32,
    crypt: OriginCircuit,
    last: usize,
}

/// Makes the circuit, sends the request, and returns what is answered.
///
/// # Errors
///
/// There is no answer in time.
fn ask(request: &CircuitRequest, rng: &mut impl CryptoRng) -> Result<Vec<u8>, RequestError> {
    if request.request.len().div_ceil(relay::MAX_DATA) > MOST_CELLS {
        return Err(RequestError::TooLong);
    }
    let mut circuit = Circuit::build(request, rng)?;
    let answer = circuit.ask(&request.request, request.longest, rng);
    let Circuit { link, id, last, .. } = circuit;
    destroy(link, id);
    match answer {
        Ok(answer) if answer.is_empty() => Err(RequestError::Ended),
        Ok(answer) if answer.len() > request.longest => Err(RequestError::Longer(request.longest)),
        Ok(answer) => Ok(answer),
        Err(source) => Err(RequestError::Hop(last + 1, source)),
    }
}

fn connect(
    request: &CircuitRequest,
    to: SocketAddr,
    end: Instant,
) -> Result<TcpStream, RequestError> {
    super::probe::connect(to, &request.route, end).map_err(RequestError::Connect)
}

impl Circuit {
    fn build(request: &CircuitRequest, rng: &mut impl CryptoRng) -> Result<Self, RequestError> {
        let (first, rest) = request.path.split_first().ok_or(RequestError::NoPath)?;
        let deadline = Instant::now() + request.timeout;
        let session = LinkTls::client()?.connect(rng)?;
        let socket = connect(request, first.addr, deadline)?;
        // Cells and records are some more than what they carry.
        let room = request.longest.saturating_add(request.longest / 8);
        let mut link = Link::new(socket, session, deadline).with_room(room);
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

    /// Sends a message on the stream, or about the circuit (stream 0).
    fn send(
        &mut self,
        command: RelayCmd,
        stream: u16,
        data: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<(), LinkFault> {
        let mut cell = Cell::new(self.id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, stream, data, rng)?;
        self.crypt
            .encrypt_forward(self.last, cell.command(), cell.body_mut())?;
        self.link.send_cell(&cell)
    }

    /// Sends the request; all that is sent on the stream until its end, or until it is longer than it may be.
    fn ask(
        &mut self,
        request: &[u8],
        longest: usize,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, LinkFault> {
        self.send(RelayCmd::BEGIN_DIR, STREAM, &[], rng)?;
        let mut answer = Vec::new();
        loop {
            let cell = self.next()?;
            match RelayBody::new(cell.body()).command() {
                RelayCmd::CONNECTED => break,
                RelayCmd::END => return Ok(answer),
                _ => {}
            }
        }
        for part in request.chunks(relay::MAX_DATA) {
            self.send(RelayCmd::DATA, STREAM, part, rng)?;
        }
        let mut cells: usize = 0;
        while answer.len() <= longest {
            let cell = self.next()?;
            let message = RelayBody::new(cell.body());
            match message.command() {
                RelayCmd::DATA => {
                    answer.extend_from_slice(message.data()?);
                    cells += 1;
                    self.acknowledge(cells, rng)?;
                }
                RelayCmd::END => break,
                _ => {}
            }
        }
        Ok(answer)
    }

    /// Sends the SENDMEs that are due after so many DATA cells. The circuit's proves that this was the last of them.
    fn acknowledge(&mut self, cells: usize, rng: &mut impl CryptoRng) -> Result<(), LinkFault> {
        if cells.is_multiple_of(PER_CIRCUIT_SENDME) {
            let seen = self.crypt.received(self.last);
            let sendme = Sendme { version: 1, seen };
            self.send(RelayCmd::SENDME, 0, &sendme.encode(), rng)?;
        }
        if cells.is_multiple_of(PER_STREAM_SENDME) {
            self.send(RelayCmd::SENDME, STREAM, &[], rng)?;
        }
        Ok(())
    }

    /// The next cell with a message on the stream, decrypted.
    fn next(&mut self) -> Result<Cell, LinkFault> {
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
            if RelayBody::new(cell.body()).stream_id() == STREAM {
                return Ok(cell);
            }
        }
    }
}

#[cfg(test)]
mod tests;
