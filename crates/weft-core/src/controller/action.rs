//! Actions that the controller requests from its caller, and events that it reports.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use weft_cell::abra::AbraReason;
use weft_cell::circ_msg::CreateRequest;
use weft_cell::identity::RsaIdentity;

use crate::address::{ConnectionId, HalfAddr, StreamAddr, ThreadId};
use crate::memory::ledger::Cut;
use crate::message::{FromController, StreamRequest};
use crate::origin::OriginEvent;

/// Action that the caller must carry out for the controller.
#[derive(Debug)]
pub enum Action {
    /// Send a message to a connection thread.
    Send {
        /// The thread.
        to: ThreadId,
        /// The message.
        message: FromController,
    },
    /// Open a connection and give it to a thread.
    Connect {
        /// Its identifier.
        connection: ConnectionId,
        /// The thread that will own it.
        thread: ThreadId,
        /// Where to.
        addr: SocketAddr,
        /// The RSA identity that the peer must prove; zero: any. Circuits that also name an ed25519 identity get
        /// this connection only if the peer proves that one, too.
        rsa: RsaIdentity,
    },
    /// Answer an onionskin off the cell path, then call
    /// [`onionskin_answered`](super::RelayController::onionskin_answered).
    Onionskin {
        /// The half that waits.
        half: HalfAddr,
        /// The onionskin.
        request: CreateRequest,
        /// When it arrived.
        since: Instant,
    },
    /// A circuit asks for a stream: decide, and answer it by
    /// [`refuse_stream`](super::RelayController::refuse_stream), [`resolved`](super::RelayController::resolved) or
    /// an edge ([`place_edge`](super::RelayController::place_edge)).
    Stream(StreamRequest),
    /// A stream that a circuit asked for has ended: any decision under way about it is void.
    /// Follows its [`Action::Stream`], and perhaps the decision.
    StreamGone(StreamAddr),
    /// Sign this relay's claim, with the time of the wall clock, and hand it to
    /// [`abra_signed`](super::RelayController::abra_signed).
    SignAbra {
        /// In 1/(Mbit/s).
        weight: f64,
        /// Why it is not 0.
        reason: AbraReason,
    },
    /// Send an event to the client thread.
    Origin(OriginEvent),
    /// Something that the operator, or another part of the node, may want to know.
    Notice(Notice),
}

/// Event that the controller reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A relay's clock and ours differ by this many seconds (ours minus theirs).
    ClockSkew {
        /// Seconds.
        seconds: i64,
        /// Where the relay is.
        peer: SocketAddr,
    },
    /// A relay sent us the address that it sees us at (tor-spec 4.5).
    AddressSeen {
        /// Our address.
        addr: IpAddr,
        /// That relay.
        peer: SocketAddr,
    },
    /// Too much memory: the owners that hold most for longest are being closed.
    MemoryPressure {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        allowed: u64,
        /// Bytes that circuits, streams, links and answers must give back; 0 if spare memory is enough.
        to_free: u64,
        /// The part of these that answers of the directory hold ([`Cause::Hop`](crate::memory::ledger::Cause::Hop)).
        answers: Cut,
    },
    /// Owners closed to free memory since the last such notice, per the threads' latest reports.
    MemoryFreed(Freed),
    /// Onionskins come faster than they can be answered.
    OnionskinOverload,
    /// Lost packets hold up a connection to a relay, and there was none such before.
    LossyRelay {
        /// Where the relay is.
        peer: SocketAddr,
    },
}

/// Owners closed to free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Circuits.
    pub circuits: u64,
    /// Links.
    pub links: u64,
    /// Bytes that these and streams gave back.
    pub bytes: u64,
}
