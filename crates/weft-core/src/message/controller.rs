//! Messages between a connection thread and the relay controller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::identity::RendezvousCookie;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::Resolved;
use weft_crypto::HopKeys;

use super::introduction::{IntroNews, IntroOrder};
use super::report::Report;
use super::requests::{ExtendRequest, StreamRequest};
use super::tunnels::{TunnelNews, TunnelOrder};
use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId, StreamAddr, ThreadId};
use crate::extensions::abra::{Capacity, Rates};
use crate::handshake::PeerIdentity;
use crate::memory::ledger::{Cut, Holdings, Ledger};
use crate::origin::{AppRefusal, HopFlow, LinkFailure, LinkStep, OriginEvent, StreamOpening};
use crate::params::RelayParams;

/// Measurements of a connection thread over a second, for the relay's weight
/// ([`crate::extensions::abra`]).
#[derive(Clone, Debug)]
pub struct AbraReport {
    /// The thread.
    pub thread: ThreadId,
    /// The rates of its circuits.
    pub rates: Rates,
    /// Limits that the thread reached.
    pub capacity: Capacity,
    /// Circuits on it that asked.
    pub subscribers: u32,
}

/// From a connection thread to the relay controller.
#[derive(Debug)]
pub enum ToController {
    /// The memory of a thread, between two reports.
    Held {
        /// The thread.
        thread: ThreadId,
        /// Everything that it holds.
        ledger: Box<Ledger>,
        /// Requests to free memory that it has met.
        memory_rounds: u64,
    },
    /// A link finished its handshake.
    LinkOpened {
        /// The connection.
        connection: ConnectionId,
        /// The identity that the peer proved.
        peer: PeerIdentity,
        /// The address is one that the peer's NETINFO names as its own (tor-spec 4.5).
        canonical: bool,
        /// Our clock minus the peer's, in seconds, if it sent a time.
        clock_skew: Option<i64>,
        /// Our address as the peer sees it.
        my_addr: Option<IpAddr>,
    },
    /// A connection that we open has come further.
    LinkStep {
        /// The connection.
        connection: ConnectionId,
        /// The step reached.
        step: LinkStep,
    },
    /// A link gets no new circuits: its TLS keys near their end, or it is full.
    LinkWorn {
        /// The connection.
        connection: ConnectionId,
    },
    /// A link has had no circuit for a while.
    LinkIdle {
        /// The connection.
        connection: ConnectionId,
        /// When it lost its last circuit, or opened.
        since: Instant,
        /// [`FromController::Join`]s carried out for it, or refused.
        joins: u64,
    },
    /// Number of circuits of a link, and its loss, sent when they have changed and the controller
    /// wants them ([`RelayParams::report_load`](crate::params::RelayParams::report_load)).
    LinkLoad {
        /// The connection.
        connection: ConnectionId,
        /// Circuits on it, from either side.
        circuits: usize,
        /// [`FromController::Join`]s carried out for it, or refused.
        joins: u64,
        /// Lost packets hold it up ([`LossMeter`](crate::link::loss::LossMeter)).
        lossy: bool,
    },
    /// A connection was closed, as a link or before it was one.
    ConnectionClosed {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        why: LinkFailure,
    },
    /// A CREATE_FAST or CREATE2 arrived.
    Create {
        /// The new half, which waits.
        half: HalfAddr,
        /// The link it arrived on.
        connection: ConnectionId,
        /// The onionskin.
        request: CreateRequest,
    },
    /// An EXTEND2 arrived.
    Extend(ExtendRequest),
    /// A BEGIN, BEGIN_DIR or RESOLVE arrived.
    Stream(StreamRequest),
    /// A stream ended before it was decided about: the decision is void.
    StreamGone(StreamAddr),
    /// A circuit of our own exists, and its CREATE is on its way.
    OriginMade {
        /// The circuit.
        circuit: OriginId,
        /// Its half.
        half: HalfAddr,
        /// The link.
        connection: ConnectionId,
    },
    /// Something for the client thread.
    Origin(OriginEvent),
    /// An edge was removed.
    EdgeClosed {
        /// Its connection.
        connection: ConnectionId,
    },
    /// About a tunnel.
    Tunnel(TunnelNews),
    /// About introduction circuits.
    Intro(IntroNews),
    /// The half waits here for a rendezvous (rend-spec-v3 4.1).
    EstablishRendezvous {
        /// The half that waits.
        half: HalfAddr,
        /// The link it came on.
        connection: ConnectionId,
        /// The cookie that the other side must show.
        cookie: RendezvousCookie,
    },
    /// A half that waited for a rendezvous has closed.
    RendezvousGone {
        /// The half.
        half: HalfAddr,
    },
    /// The half brings a rendezvous' other end.
    Rendezvous {
        /// The half that will be spliced.
        half: HalfAddr,
        /// The cookie.
        cookie: RendezvousCookie,
        /// The handshake for the waiting client, which follows the cookie.
        handshake: Vec<u8>,
    },
    /// A circuit from this connection was closed because it filled the queue toward its next hop.
    QueueOverflowed {
        /// The connection that leads to the circuit's origin.
        connection: ConnectionId,
    },
    /// A link has left for another thread: all messages about its halves from here have been sent.
    LinkLeft {
        /// The number of the transfer.
        number: u64,
        /// Where it goes.
        to: ThreadId,
    },
    /// A link has moved.
    LinkMoved {
        /// Its connection.
        connection: ConnectionId,
        /// The sender.
        thread: ThreadId,
    },
    /// A link has not moved: it has closed, or cannot now.
    NotMoved {
        /// Its connection.
        connection: ConnectionId,
    },
    /// A circuit asks for this relay's weight, and nothing is measured.
    AbraAsked,
    /// The thread's measurements of a second.
    Abra(Box<AbraReport>),
    /// The periodic report (Engler and Goldberg 2021, 4.3, 4.5).
    Report(Box<Report>),
    /// The answer to [`FromController::CountHoldings`].
    Holdings {
        /// The thread.
        thread: ThreadId,
        /// Its owners of memory.
        holdings: Box<Holdings>,
    },
}

impl From<TunnelNews> for ToController {
    fn from(news: TunnelNews) -> Self {
        ToController::Tunnel(news)
    }
}

impl From<IntroNews> for ToController {
    fn from(news: IntroNews) -> Self {
        ToController::Intro(news)
    }
}

/// From the relay controller to a connection thread.
#[derive(Debug)]
pub enum FromController {
    /// Make the far half of a circuit on this link and send CREATE2.
    Join {
        /// The link.
        connection: ConnectionId,
        /// The extension that this serves.
        request: ExtendRequest,
    },
    /// A stream that will not be opened: END.
    RefuseStream {
        /// The stream.
        stream: StreamAddr,
        /// END's body.
        end: Vec<u8>,
    },
    /// A RESOLVE is answered.
    Resolved {
        /// The stream.
        stream: StreamAddr,
        /// The answer.
        resolved: Resolved,
    },
    /// A circuit of our own has another hop.
    AddHop {
        /// Its half.
        half: HalfAddr,
        /// The hop's keys.
        keys: Box<HopKeys>,
        /// Flow control of the hop.
        flow: HopFlow,
    },
    /// Extend a circuit of our own.
    SendExtend {
        /// Its half.
        half: HalfAddr,
        /// EXTEND2's body.
        extend2: Vec<u8>,
    },
    /// An application's stream is attached to a circuit.
    Attach {
        /// The application's connection, on this thread.
        stream: ConnectionId,
        /// The circuit.
        circuit: OriginId,
        /// The circuit's half, anywhere.
        half: HalfAddr,
        /// The hop that opens the stream.
        hop: HopIndex,
        /// The kind of stream, and its target.
        opening: StreamOpening,
    },
    /// An application's request fails.
    RefuseApp {
        /// The application's connection.
        stream: ConnectionId,
        /// Why.
        why: AppRefusal,
    },
    /// An application's resolve request is answered.
    AnswerApp {
        /// The application's connection.
        stream: ConnectionId,
        /// The answer.
        resolved: Resolved,
    },
    /// A stream that is not connected yet leaves its circuit.
    Detach {
        /// The application's connection.
        stream: ConnectionId,
        /// END's reason.
        reason: EndReason,
    },
    /// End a stream.
    CloseStream {
        /// The application's connection.
        stream: ConnectionId,
        /// Why.
        reason: EndReason,
    },
    /// An extension that will not happen.
    ExtendFailed {
        /// The half that asked.
        half: HalfAddr,
        /// The number of the extension.
        extension: u32,
        /// The reason for DESTROY.
        reason: DestroyReason,
    },
    /// An onionskin was answered.
    Created {
        /// The half that waits for it.
        half: HalfAddr,
        /// CREATED_FAST or CREATED2.
        reply: CreateReply,
        /// The keys that the half holds from now on.
        keys: Box<HopKeys>,
        /// Cells that one SENDME acknowledges, if congestion control was negotiated.
        sendme_inc: Option<u8>,
    },
    /// An onionskin was refused.
    CreateRefused {
        /// The half that waits for it.
        half: HalfAddr,
        /// The reason for DESTROY.
        reason: DestroyReason,
    },
    /// About a tunnel.
    Tunnel(TunnelOrder),
    /// About introduction circuits.
    Intro(IntroOrder),
    /// The half's rendezvous cookie is kept.
    RendezvousEstablished {
        /// The half that asked.
        half: HalfAddr,
    },
    /// The half's circuit meets the one that waited; it notifies the other half.
    Splice {
        /// The half that brought the RENDEZVOUS1.
        half: HalfAddr,
        /// The half that waited.
        with: HalfAddr,
        /// For the waiting client.
        handshake: Vec<u8>,
    },
    /// A rendezvous or hidden-service request that cannot be served.
    CloseHalf {
        /// The half.
        half: HalfAddr,
        /// The reason for DESTROY.
        reason: DestroyReason,
    },
    /// Close this connection: denial of service, shutting down, or it gave way to another.
    CloseConnection {
        /// The connection.
        connection: ConnectionId,
    },
    /// A link leads, or no longer leads, to a relay of the consensus at one of that relay's
    /// addresses. Such a link may be idle for longer. New links count as not listed.
    LinkListed {
        /// The connection.
        connection: ConnectionId,
        /// It leads to one.
        listed: bool,
    },
    /// End the stream of this edge: a new exit policy forbids its destination.
    ForbidEdge {
        /// The edge's.
        connection: ConnectionId,
    },
    /// Memory is short: report who holds how much.
    CountHoldings,
    /// Free the memory that this cut names.
    FreeMemory(Cut),
    /// New parameters (a new consensus, SIGHUP).
    Params(Arc<RelayParams>),
    /// Ask a hop of a circuit of our own for its weight.
    AskWeight {
        /// The circuit's half.
        half: HalfAddr,
        /// The hop.
        hop: HopIndex,
    },
    /// Measure a circuit of our own.
    Probe {
        /// Its half.
        half: HalfAddr,
        /// See [`OriginCommand::Probe`](crate::origin::OriginCommand::Probe).
        nonce: [u8; 3],
    },
    /// Measure what circuits move, or no longer.
    MeasureAbra(bool),
    /// This relay's statement, for the circuits that asked.
    AbraStatement(Arc<[u8]>),
    /// Send a link to another thread.
    Move {
        /// Its connection.
        connection: ConnectionId,
        /// The other thread.
        to: ThreadId,
        /// The number of the transfer.
        number: u64,
    },
    /// To the thread where a link goes: what its halves had sent has been handled.
    MovePassed {
        /// The number of the transfer.
        number: u64,
    },
    /// To the thread that a link has left: no message about the connection comes any more.
    MoveOver {
        /// The connection.
        connection: ConnectionId,
    },
    /// Refuse new circuits and streams, or accept them again: the relay shuts down, or hibernates.
    Drain(bool),
}

impl From<TunnelOrder> for FromController {
    fn from(order: TunnelOrder) -> Self {
        FromController::Tunnel(order)
    }
}

impl From<IntroOrder> for FromController {
    fn from(order: IntroOrder) -> Self {
        FromController::Intro(order)
    }
}

impl FromController {
    /// The half that it is for. `None`: it is for a connection, or for the thread.
    pub(crate) fn half(&self) -> Option<HalfAddr> {
        match self {
            FromController::RefuseStream { stream, .. }
            | FromController::Resolved { stream, .. } => Some(stream.half),
            FromController::AddHop { half, .. }
            | FromController::SendExtend { half, .. }
            | FromController::ExtendFailed { half, .. }
            | FromController::Created { half, .. }
            | FromController::CreateRefused { half, .. }
            | FromController::RendezvousEstablished { half }
            | FromController::Splice { half, .. }
            | FromController::CloseHalf { half, .. }
            | FromController::AskWeight { half, .. }
            | FromController::Probe { half, .. }
            | FromController::Tunnel(TunnelOrder::DropLeg { half }) => Some(*half),
            FromController::Intro(order) => Some(order.half()),
            FromController::Tunnel(
                TunnelOrder::Make { leg, .. } | TunnelOrder::Join { leg, .. },
            ) => Some(leg.half),
            FromController::Join { .. }
            | FromController::Attach { .. }
            | FromController::RefuseApp { .. }
            | FromController::AnswerApp { .. }
            | FromController::Detach { .. }
            | FromController::CloseStream { .. }
            | FromController::LinkListed { .. }
            | FromController::CloseConnection { .. }
            | FromController::ForbidEdge { .. }
            | FromController::CountHoldings
            | FromController::FreeMemory(_)
            | FromController::Params(_)
            | FromController::MeasureAbra(_)
            | FromController::AbraStatement(_)
            | FromController::Move { .. }
            | FromController::MovePassed { .. }
            | FromController::MoveOver { .. }
            | FromController::Drain(_) => None,
        }
    }
}
