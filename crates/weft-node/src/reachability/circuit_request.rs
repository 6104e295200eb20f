//! One request to a directory at the end of a circuit, over given relays: a bridge asks directories
//! by it, so that they see no more than of an ordinary client.
//!
//! It blocks a thread for some seconds, as a [`Probe`](super::Probe) does. The circuit is used once.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rand::CryptoRng;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Semaphore;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::Sendme;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_dir::circuits::{AnswerFuture, CircuitRequest, Circuits, Hop};

use super::circuit::{Circuit, Extension, NotExtended};
use super::conversation::{Conversation, Step};
use super::error::LinkFault;
use super::link::{Link, NoLink};

/// Requests at once, at most; others wait. Each has a separate link.
const MOST_REQUESTS: usize = 4;
/// Uploads at once.
const MOST_UPLOADS: usize = 2;
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
    /// Places of uploads: they do not wait until a slow directory has answered.
    upload_places: Arc<Semaphore>,
}

impl CircuitRequests {
    /// With randomness from this seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            rng: Mutex::new(StdRng::from_seed(seed)),
            places: Arc::new(Semaphore::new(MOST_REQUESTS)),
            upload_places: Arc::new(Semaphore::new(MOST_UPLOADS)),
        }
    }
}

impl Circuits for CircuitRequests {
    fn ask(&self, request: CircuitRequest) -> AnswerFuture {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let seed: [u8; 32] = rng.random();
        drop(rng);
        let places = match request.is_upload {
            true => self.upload_places.clone(),
            false => self.places.clone(),
        };
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let asking = tokio::task::spawn_blocking(move || {
                let _place = place;
                let first = request.path.first().map(|hop| hop.addr.ip());
                let _open = request.sockets.count(first);
                ask(&request, &mut StdRng::from_seed(seed))
            });
            let answer = asking.await.map_err(io::Error::other)?;
            answer.map_err(io::Error::other)
        })
    }
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
    let mut circuit = build(request, rng)?;
    let answer = converse(&mut circuit, &request.request, request.longest, rng);
    let last = circuit.hops();
    circuit.close();
    match answer {
        Ok(answer) if answer.is_empty() => Err(RequestError::Ended),
        Ok(answer) if answer.len() > request.longest => Err(RequestError::Longer(request.longest)),
        Ok(answer) => Ok(answer),
        Err(source) => Err(RequestError::Hop(last, source)),
    }
}

fn build(request: &CircuitRequest, rng: &mut impl CryptoRng) -> Result<Circuit, RequestError> {
    let (first, rest) = request.path.split_first().ok_or(RequestError::NoPath)?;
    let deadline = Instant::now() + request.timeout;
    let expected = (
        RsaIdentity::from(first.rsa),
        first.ed25519.map(Ed25519Identity::from),
    );
    let link = Link::open(first.addr, expected, &request.route, deadline, rng)?;
    // Cells and records are some more than what they carry.
    let link = link.with_room(request.longest.saturating_add(request.longest / 8));
    let mut circuit = Circuit::create(link, rng).map_err(|source| RequestError::Hop(1, source))?;
    for hop in rest {
        if let Err(error) = extend(&mut circuit, hop, rng) {
            circuit.close();
            return Err(error);
        }
    }
    Ok(circuit)
}

fn extend(circuit: &mut Circuit, hop: &Hop, rng: &mut impl CryptoRng) -> Result<(), RequestError> {
    let number = circuit.hops() + 1;
    let extended = Extension::to(&hop.into(), rng)
        .map_err(NotExtended::from)
        .and_then(|extension| circuit.extend(extension, rng));
    extended.map_err(|error| match error {
        NotExtended::Refused { reason, .. } => RequestError::NotExtended(number, reason),
        NotExtended::Handshake(error) => RequestError::Hop(number, error.into()),
        NotExtended::Fault(source) => RequestError::Hop(number, source),
    })
}

/// Sends the request; all that is sent on the stream until its end, or until it is longer than it may be.
fn converse(
    circuit: &mut Circuit,
    request: &[u8],
    longest: usize,
    rng: &mut impl CryptoRng,
) -> Result<Vec<u8>, LinkFault> {
    send(circuit, RelayCmd::BEGIN_DIR, STREAM, &[], rng)?;
    let mut conversation = Conversation::new(longest);
    loop {
        let cell = next(circuit)?;
        let message = RelayBody::new(cell.body());
        match conversation.take(message.command(), message.data()?) {
            Step::Wait => {}
            Step::Ask => {
                for part in request.chunks(relay::MAX_DATA) {
                    send(circuit, RelayCmd::DATA, STREAM, part, rng)?;
                }
            }
            Step::Acknowledge { of_circuit } => {
                if of_circuit {
                    // It proves that this was the last cell.
                    let seen = circuit.seen();
                    let sendme = Sendme { version: 1, seen };
                    send(circuit, RelayCmd::SENDME, 0, &sendme.encode(), rng)?;
                }
                send(circuit, RelayCmd::SENDME, STREAM, &[], rng)?;
            }
            Step::Over => return Ok(conversation.answer()),
        }
    }
}

fn send(
    circuit: &mut Circuit,
    message: RelayCmd,
    stream: u16,
    data: &[u8],
    rng: &mut impl CryptoRng,
) -> Result<(), LinkFault> {
    circuit.send((ChanCmd::RELAY, message), stream, data, rng)
}

/// The next cell with a message on the stream, decrypted.
fn next(circuit: &mut Circuit) -> Result<Cell, LinkFault> {
    loop {
        let cell = circuit.next_message()?;
        if RelayBody::new(cell.body()).stream_id() == STREAM {
            return Ok(cell);
        }
    }
}

impl From<NoLink> for RequestError {
    fn from(error: NoLink) -> Self {
        match error {
            NoLink::Setup(error) => Self::Setup(error),
            NoLink::Connect(_, source) => Self::Connect(source),
            NoLink::Failed(_, source) => Self::Hop(1, source),
        }
    }
}

#[cfg(test)]
mod tests;
