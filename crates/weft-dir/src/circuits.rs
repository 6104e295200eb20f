//! Requests over circuits, as the directory of a bridge wants them made: neither an observer of its line nor a directory
//! authority learns from its requests where it is (C tor's bridges ask their guards, and upload by `DIRIND_ANONYMOUS`).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_proxy::Route;

use crate::sockets::Sockets;

/// A relay of a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its ORPort.
    pub addr: SocketAddr,
    /// Its RSA identity.
    pub rsa: RsaIdentity,
    /// Its Ed25519 identity.
    pub ed25519: Option<[u8; 32]>,
    /// Its ntor onion key.
    pub ntor: [u8; 32],
}

/// One request over a separate circuit.
#[derive(Clone, Debug)]
pub struct CircuitRequest {
    /// The relays of the circuit; the last is the directory.
    pub path: Vec<Hop>,
    /// Proxies and local address of the connection to the first relay.
    pub route: Route,
    /// The request that is sent on the stream that BEGIN_DIR opens.
    pub request: Vec<u8>,
    /// Bytes of an answer, at most.
    pub longest: usize,
    /// The time for everything.
    pub timeout: Duration,
    /// True if it uploads our descriptor, or asks for it: it does not wait for the others.
    pub is_upload: bool,
    /// Where its connection counts while it is open.
    pub sockets: Arc<Sockets>,
}

/// Future returned by [`Circuits::ask`].
pub type AnswerFuture = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// Makes circuits.
pub trait Circuits: Send + Sync + 'static {
    /// Makes a circuit, sends the request, and returns all that the directory sends until it ends the stream.
    fn ask(&self, request: CircuitRequest) -> AnswerFuture;
}

/// No circuits can be made: of a relay that is no bridge, and of tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCircuits;

impl Circuits for NoCircuits {
    fn ask(&self, _: CircuitRequest) -> AnswerFuture {
        Box::pin(async { Err(io::Error::other("there are no circuits")) })
    }
}
