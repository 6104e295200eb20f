//! Messages between threads (Engler and Goldberg 2021, Figure 4b).
//!
//! Three kinds, each with its own pair of rings: connection thread to connection thread
//! ([`Control`] on the control lane, [`LaneMsg`] on the cell lane), connection thread to relay
//! controller ([`ToController`]), and back ([`FromController`]). Every message is owned: sending it
//! gives it away.

mod activity;
mod edges;
mod introduction;
mod report;
mod tunnels;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::abra::{Capacity, Rates};
use crate::address::{ConnectionId, EdgeAddr, HalfAddr, HopIndex, OriginId, StreamAddr, ThreadId};
use crate::edge::{Asked, StreamAt};
use crate::ended::Left;
use crate::handshake::PeerIdentity;
use crate::ledger::{Cut, Holdings, Ledger};
use crate::origin::{AppRefusal, HopFlow, LinkFailure, LinkStep, OriginEvent, StreamOpening};
use crate::params::RelayParams;
use crate::transfer::{TransferCell, TransferControl};
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::hs_msg::IntroduceStatus;
use weft_cell::identity::{Ed25519Identity, RendezvousCookie, RsaIdentity};
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::{Begin, Resolve, Resolved};
use weft_cell::{Cell, RelayCmd};
use weft_crypto::HopKeys;

pub use activity::{Activity, CommandUse, ConnectionBytes, QueueKind, QueueUse};
pub use edges::{EdgeCell, EdgeControl};
pub use introduction::{EstablishRequest, IntroNews, IntroOrder};
pub use report::{
    CircpadTotals, IntroTotals, LinkCells, RendezvousTotals, Report, RingDepths, StreamTotals,
    Totals, TunnelTotals,
};
pub use tunnels::{LegCell, LegControl, LegRequest, TunnelAsk, TunnelNews, TunnelOrder};

/// One relay cell on its way to the half that owns the next link. Its circuit id is meaningless
/// here; the receiving half writes its own.
#[derive(Debug)]
pub struct HalfCell {
    /// The half that it comes from, which must be the receiver's peer.
    pub from: HalfAddr,
    /// The half that sends it on.
    pub to: HalfAddr,
    /// RELAY or RELAY_EARLY and the body.
    pub cell: Box<Cell>,
}

/// A message of the cell lane.
#[derive(Debug)]
pub enum LaneMsg {
    /// From half to half.
    Relay(HalfCell),
    /// From a half to one of its edges.
    ToEdge(EdgeCell),
    /// From an edge to its half.
    FromEdge(EdgeCell),
    /// From a tunnel to one of its legs.
    ToLeg(LegCell),
    /// From a leg to its tunnel.
    FromLeg(LegCell),
    /// About a link that moves.
    Transfer(TransferCell),
}

impl LaneMsg {
    /// The cell, if it is one.
    pub fn cell(&self) -> Option<&Cell> {
        match self {
            LaneMsg::Relay(HalfCell { cell, .. })
            | LaneMsg::ToEdge(EdgeCell { cell, .. })
            | LaneMsg::FromEdge(EdgeCell { cell, .. })
            | LaneMsg::ToLeg(LegCell { cell, .. })
            | LaneMsg::FromLeg(LegCell { cell, .. }) => Some(cell),
            LaneMsg::Transfer(_) => None,
        }
    }
}

/// A message of the control lane.
#[derive(Debug)]
pub enum Control {
    /// For a half.
    Half(HalfControl),
    /// For an edge.
    Edge(EdgeControl),
    /// About a link that moves.
    Transfer(TransferControl),
}

/// A control message of a half's, or of an edge's, to a half. It overtakes cells.
#[derive(Debug)]
pub enum HalfControl {
    /// The edge of a stream that the circuit asked for exists (exit's side).
    EdgeMade {
        /// The stream.
        stream: StreamAddr,
        /// Its edge.
        edge: EdgeAddr,
    },
    /// A stream's edge has bytes to send, and no credit.
    CreditAsked {
        /// The stream.
        stream: StreamAddr,
    },
    /// A stream's edge has sent nothing for a while, and gives its credit back.
    CreditReturned {
        /// The stream.
        stream: StreamAddr,
        /// Cells.
        cells: u32,
    },
    /// A stream's far end broke the rules: the circuit is closed.
    Broken {
        /// The half.
        to: HalfAddr,
        /// What it did.
        what: &'static str,
    },
    /// An edge is about to send END: its far end does not know yet.
    Ending {
        /// The stream.
        stream: StreamAddr,
        /// The far end has not answered yet.
        connected: bool,
        /// What it may still send.
        left: Left,
    },
    /// An edge wants a stream on this circuit (origin's side).
    Attach {
        /// The edge that asks.
        edge: EdgeAddr,
        /// Its request, with the half.
        asked: Asked,
        /// The hop that opens it.
        hop: HopIndex,
        /// BEGIN, BEGIN_DIR or RESOLVE.
        command: RelayCmd,
        /// The message's data.
        data: Vec<u8>,
    },
    /// The far half exists and its CREATE2 is on its way: cells may follow.
    Joined {
        /// The half that asked to be extended.
        to: HalfAddr,
        /// The new half.
        peer: HalfAddr,
        /// Which of its extensions this answers.
        extension: u32,
    },
    /// The next hop answered CREATED2: becomes an EXTENDED2, sent backward.
    Created {
        /// The half that asked to be extended.
        to: HalfAddr,
        /// The far half, which must still be its peer.
        from: HalfAddr,
        /// The next hop's handshake.
        handshake: Vec<u8>,
    },
    /// Two circuits toward their own origins were spliced at this rendezvous point
    /// (rend-spec-v3 4.1).
    Spliced {
        /// The half that waited with a cookie.
        to: HalfAddr,
        /// The half that brought the RENDEZVOUS1.
        peer: HalfAddr,
        /// RENDEZVOUS1's handshake data, delivered as RENDEZVOUS2.
        handshake: Vec<u8>,
    },
    /// The answer to an INTRODUCE1 that was for a service here (rend-spec-v3 3.2).
    Introduced {
        /// The client's half.
        to: HalfAddr,
        /// What it shall be sent.
        status: IntroduceStatus,
    },
    /// The circuit is over on the sender's side.
    Destroyed {
        /// The half that must close too.
        to: HalfAddr,
        /// The half that closed; no longer anyone's peer.
        from: HalfAddr,
        /// The reason for DESTROY on the other link.
        reason: DestroyReason,
        /// It closed because its queue was full: the other end of the circuit sent too much.
        overflowed: bool,
    },
    /// Between a tunnel and one of its legs.
    Leg(LegControl),
    /// A message of the controller's, which sends to the thread where a half was made.
    Controller {
        /// The half.
        to: HalfAddr,
        /// The message.
        message: Box<FromController>,
    },
    /// The extension could not be made; nothing was joined.
    ExtendFailed {
        /// The half that asked.
        to: HalfAddr,
        /// Which of its extensions this answers.
        extension: u32,
        /// The reason for DESTROY.
        reason: DestroyReason,
    },
}

impl From<HalfControl> for Control {
    fn from(control: HalfControl) -> Self {
        Control::Half(control)
    }
}

impl From<EdgeControl> for Control {
    fn from(control: EdgeControl) -> Self {
        Control::Edge(control)
    }
}

impl HalfControl {
    /// The half this is for.
    pub fn to(&self) -> HalfAddr {
        match self {
            HalfControl::EdgeMade { stream, .. }
            | HalfControl::CreditAsked { stream }
            | HalfControl::CreditReturned { stream, .. }
            | HalfControl::Ending { stream, .. } => stream.half,
            HalfControl::Attach { asked, .. } => asked.half,
            HalfControl::Leg(control) => control.to(),
            HalfControl::Controller { to, .. }
            | HalfControl::Broken { to, .. }
            | HalfControl::Joined { to, .. }
            | HalfControl::Created { to, .. }
            | HalfControl::Spliced { to, .. }
            | HalfControl::Introduced { to, .. }
            | HalfControl::Destroyed { to, .. }
            | HalfControl::ExtendFailed { to, .. } => *to,
        }
    }
}

/// What a link is asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A half that got an EXTEND2.
    Half {
        /// The half.
        half: HalfAddr,
        /// The link under it.
        connection: ConnectionId,
        /// Which of its extensions this is (a TRUNCATE may have come since).
        extension: u32,
    },
    /// A circuit of our own, for its first hop.
    Origin(OriginId),
}

/// A request to have a circuit on a link to another relay: from a checked EXTEND2, or for a circuit
/// of our own.
#[derive(Clone, Debug)]
pub struct ExtendRequest {
    /// What asks.
    pub from: Requester,
    /// The relay's addresses that we may connect to; at least one.
    pub addrs: Vec<SocketAddr>,
    /// Its RSA identity digest; never zero.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity, if known.
    pub ed25519: Option<Ed25519Identity>,
    /// What to send: CREATE2, or CREATE_FAST on a circuit of our own.
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
    /// What is asked for.
    pub ask: StreamAsk,
}

/// What a circuit asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAsk {
    /// BEGIN.
    Begin(Begin),
    /// BEGIN_DIR.
    BeginDir,
    /// RESOLVE.
    Resolve(Resolve),
}

/// What a connection thread measured of a second, for the relay's weight ([`crate::abra`]).
#[derive(Clone, Debug)]
pub struct AbraReport {
    /// Which thread.
    pub thread: ThreadId,
    /// The rates of its circuits.
    pub rates: Rates,
    /// What held it back.
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
        /// How far.
        step: LinkStep,
    },
    /// The TLS keys of a link near their end: it shall get no new circuits.
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
    /// How many circuits a link carries and whether lost packets hold it up, where the controller wants that
    /// ([`RelayParams::report_load`](crate::params::RelayParams::report_load)) and it has changed.
    LinkLoad {
        /// The connection.
        connection: ConnectionId,
        /// Circuits on it, from either side.
        circuits: usize,
        /// [`FromController::Join`]s carried out for it, or refused.
        joins: u64,
        /// Lost packets hold it up ([`LossMeter`](crate::loss::LossMeter)).
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
    /// A stream ended before anything was decided about it: nobody waits for the decision.
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
        /// What follows it: the handshake for the waiting client.
        handshake: Vec<u8>,
    },
    /// A circuit from this connection was closed because it filled the queue toward its next hop.
    QueueOverflowed {
        /// The connection that leads to the circuit's origin.
        connection: ConnectionId,
    },
    /// A link has left for another thread: all messages about its halves from here have been sent.
    LinkLeft {
        /// Which transfer.
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
    /// What the thread measured of a second.
    Abra(Box<AbraReport>),
    /// The periodic report (Engler and Goldberg 2021, 4.3, 4.5).
    Report(Box<Report>),
    /// The answer to [`FromController::CountHoldings`].
    Holdings {
        /// Which thread.
        thread: ThreadId,
        /// Its owners of memory.
        holdings: Box<Holdings>,
    },
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
        /// What is known.
        resolved: Resolved,
    },
    /// A circuit of our own has another hop.
    AddHop {
        /// Its half.
        half: HalfAddr,
        /// The hop's keys.
        keys: Box<HopKeys>,
        /// How it counts.
        flow: HopFlow,
    },
    /// A circuit of our own shall be extended.
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
        /// What to open.
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
    /// A stream shall end.
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
        /// Which of its extensions.
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
        /// Congestion control was agreed on: one SENDME for so many cells.
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
    /// Whether a link leads to a relay of the consensus, at an address of that relay's: it may be
    /// idle for longer. At first it does not.
    LinkListed {
        /// The connection.
        connection: ConnectionId,
        /// Whether it does.
        listed: bool,
    },
    /// End the stream of this edge: a new exit policy forbids its destination.
    ForbidEdge {
        /// The edge's.
        connection: ConnectionId,
    },
    /// Memory is short: report who holds how much.
    CountHoldings,
    /// Free so much.
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
        /// Which transfer.
        number: u64,
    },
    /// To the thread where a link goes: what its halves had sent has been handled.
    MovePassed {
        /// Which transfer.
        number: u64,
    },
    /// To the thread that a link has left: no message about the connection comes any more.
    MoveOver {
        /// The connection.
        connection: ConnectionId,
    },
    /// Whether to refuse new circuits and streams: the relay is going down, or hibernates.
    Drain(bool),
}
