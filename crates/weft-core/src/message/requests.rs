//! Requests of circuits to the controller.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_cell::circ_msg::CreateRequest;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::stream_msg::{Begin, Resolve};

use crate::address::{ConnectionId, HalfAddr, OriginId, StreamAddr};
use crate::stream::edge::StreamAt;

/// The requester that waits for the answer. A half has one request at a time, besides its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    /// A half, for its onionskin or its extension.
    Half(HalfAddr),
    /// A stream.
    Stream(StreamAddr),
}

impl Asker {
    pub(crate) const fn half(self) -> HalfAddr {
        match self {
            Self::Half(half) => half,
            Self::Stream(stream) => stream.half,
        }
    }
}

/// The requester of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A half that got an EXTEND2.
    Half {
        /// The half.
        half: HalfAddr,
        /// The link under it.
        connection: ConnectionId,
        /// The number of the half's extension (a TRUNCATE may have arrived since).
        extension: u32,
    },
    /// A circuit of our own, for its first hop.
    Origin(OriginId),
}

/// A request to have a circuit on a link to another relay: from a checked EXTEND2, or for a circuit
/// of our own.
#[derive(Clone, Debug)]
pub struct ExtendRequest {
    /// The requester.
    pub from: Requester,
    /// The relay's addresses that we may connect to; at least one.
    pub addrs: Vec<SocketAddr>,
    /// Its RSA identity digest; never zero.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity, if known.
    pub ed25519: Option<Ed25519Identity>,
    /// The request to send: CREATE2, or CREATE_FAST on a circuit of our own.
    pub create: Arc<CreateRequest>,
}

/// A circuit asks for a stream here.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    /// The stream, and what the circuit's ends agreed on.
    pub at: StreamAt,
    /// The link that it comes by.
    pub connection: ConnectionId,
    /// The link's peer is no relay: the circuit has one hop.
    pub from_client: bool,
    /// The request.
    pub ask: StreamAsk,
}

/// Request for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAsk {
    /// BEGIN.
    Begin(Begin),
    /// BEGIN_DIR.
    BeginDir,
    /// RESOLVE.
    Resolve(Resolve),
}
