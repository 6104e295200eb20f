//! The origin's side of circuits and streams: the client thread's commands to the node, and the events
//! that it is sent.
//!
//! Choosing, building and attaching are rare and are decided on the client thread. Cells are not:
//! an origin's circuit is a half like any other, on the thread that owns the link to its first hop,
//! and holds the keys of all hops; its streams are edges. The client thread names circuits by
//! [`OriginId`] and streams by the [`ConnectionId`] of the application's connection, and never
//! learns where they live. Commands for what is closed are ignored: the event about that has been sent.

pub mod traffic;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use weft_cell::circ_msg::{CreateReply, CreateRequest};
pub use weft_cell::conflux_msg::DesiredUx;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::mtor_msg::SECRET_LEN;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_cell::stream_msg::{BeginFlags, Resolved};
use weft_crypto::HopKeys;

use crate::address::{ConnectionId, HopIndex};
use crate::origin::traffic::CircuitReport;

pub use crate::address::OriginId;

/// A relay to have a link to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget {
    /// Its ORPorts, the one to try first, first; at least one.
    pub addrs: Vec<SocketAddr>,
    /// Its RSA identity digest; zero: any; so for a bridge whose fingerprint is not known.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity, if known.
    pub ed25519: Option<Ed25519Identity>,
}

/// Kind and target of a stream to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOpening {
    /// BEGIN: a TCP connection from the last hop.
    Begin {
        /// Host name or literal address, without brackets.
        host: String,
        /// Port.
        port: u16,
        /// Acceptable address families.
        flags: BeginFlags,
    },
    /// BEGIN_DIR: the hop's directory.
    BeginDir,
    /// RESOLVE: no stream, one answer. For a reverse lookup the name is in `in-addr.arpa` or
    /// `ip6.arpa`.
    Resolve {
        /// Name to look up.
        name: String,
    },
}

/// Flow control at a circuit's far end, per its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopFlow {
    /// Fixed windows (tor-spec 7.3).
    Fixed,
    /// Congestion control (proposal 324).
    Vegas {
        /// cc_sendme_inc that the hop granted, in cells.
        sendme_inc: u8,
    },
}

/// Protocol by which the far end joins a tunnel's legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// A conflux set (proposal 329).
    Conflux {
        /// Identifies the set at the far end: random, the same for all legs.
        nonce: [u8; 32],
        /// Goal of the far end's scheduling.
        ux: DesiredUx,
    },
    /// A tunnel of mTor (docs/extensions/mtor.md), with relays whose protocol list has `WeftMtor=1`. The second leg may be linked
    /// when the first one is.
    Mtor {
        /// Proves to the far end that the legs belong to one client: random, the same for all.
        secret: [u8; SECRET_LEN],
    },
}

/// A command of the client thread's.
#[derive(Debug)]
pub enum OriginCommand {
    /// Make a circuit of one hop: find or open a link and send the CREATE. Answered by
    /// [`OriginEvent::Launched`] and [`OriginEvent::Answered`], or by [`OriginEvent::Closed`].
    Launch {
        /// Its name from now on.
        circuit: OriginId,
        /// The first hop.
        first: LinkTarget,
        /// The handshake.
        create: CreateRequest,
    },
    /// The handshake with the next hop succeeded.
    AddHop {
        /// The circuit.
        circuit: OriginId,
        /// The hop's keys.
        keys: Box<HopKeys>,
        /// Flow control of the hop.
        flow: HopFlow,
    },
    /// Ask the last hop to extend (in a RELAY_EARLY cell). Answered by [`OriginEvent::Answered`].
    Extend {
        /// The circuit.
        circuit: OriginId,
        /// EXTEND2's body, encoded.
        extend2: Vec<u8>,
    },
    /// End a circuit, with a DESTROY or, for `TRUNCATE`, see tor-spec 5.4. Answered by
    /// [`OriginEvent::Closed`].
    CloseCircuit {
        /// The circuit.
        circuit: OriginId,
        /// Why; only logged (an origin always sends NONE).
        reason: DestroyReason,
    },
    /// Begin no new circuit on a link: its circuits continue, and it closes after the last. There
    /// is no event.
    RetireLink {
        /// The link's connection.
        connection: ConnectionId,
    },
    /// Ask a hop for its weight (docs/extensions/abra.md): only one whose protocol list has `WeftAbra=1`.
    /// Answered by [`OriginEvent::Weight`], again every five seconds.
    AskWeight {
        /// The circuit.
        circuit: OriginId,
        /// The hop.
        hop: HopIndex,
    },
    /// Measure a circuit: ask its last hop for a stream that it must refuse (docs/extensions/circuit-rtt.md). Answered by
    /// [`OriginEvent::Probed`], unless the circuit closes first or the hop does not answer.
    Probe {
        /// The circuit.
        circuit: OriginId,
        /// The last bytes of the address that is asked for, which the refusal repeats: random.
        nonce: [u8; 3],
    },
    /// Make a circuit a leg of a tunnel: several circuits to one relay over which streams are
    /// spread (proposal 329, Yang and Li 2015). The first leg makes the tunnel, which has a name
    /// like a circuit's: [`OriginCommand::Attach`] (to hop 0) and [`OriginCommand::CloseCircuit`]
    /// take it, and [`OriginEvent::Closed`] reports its end. Answered by [`OriginEvent::Linked`],
    /// or by [`OriginEvent::Closed`] of the circuit. Streams may be attached when all legs are
    /// linked; a leg itself carries no streams.
    Link {
        /// The leg, which leads to the same relay as the others.
        circuit: OriginId,
        /// Its last hop.
        hop: HopIndex,
        /// The tunnel's name, or the name for it.
        tunnel: OriginId,
        /// The kind of tunnel.
        kind: TunnelKind,
    },
    /// Give up a slow leg of a tunnel of mTor: no more is sent on it, and its circuit closes when all that the far end sent has
    /// arrived. Answered by [`OriginEvent::Closed`] of the circuit.
    DropLeg {
        /// The leg.
        circuit: OriginId,
    },
    /// Open an application's stream on a circuit. Answered by [`OriginEvent::Connected`],
    /// [`OriginEvent::Resolved`] or [`OriginEvent::Ended`].
    Attach {
        /// The application's connection, which waits.
        stream: ConnectionId,
        /// The circuit.
        circuit: OriginId,
        /// The hop that opens it.
        hop: HopIndex,
        /// The kind of stream, and its target.
        opening: StreamOpening,
    },
    /// Take a stream whose exit has not answered yet from its circuit, with END. Its application
    /// still waits, with all that it sent, for another [`OriginCommand::Attach`]; there is no
    /// event.
    Detach {
        /// The application's connection.
        stream: ConnectionId,
        /// END's reason.
        reason: EndReason,
    },
    /// Answer an application's request and end its connection.
    Refuse {
        /// The application's connection, which waits.
        stream: ConnectionId,
        /// The answer.
        why: AppRefusal,
    },
    /// Answer an application's resolve request from what is known already.
    AnswerResolve {
        /// The application's connection, which waits.
        stream: ConnectionId,
        /// The answer.
        resolved: Resolved,
    },
    /// End a stream that is open or waits (END with reason MISC; the application's connection is
    /// closed).
    CloseStream {
        /// The application's connection.
        stream: ConnectionId,
        /// Why.
        reason: EndReason,
    },
    /// Take over one end of a socket pair as a stream of our own; it waits for
    /// [`OriginCommand::Attach`].
    AdoptInternal {
        /// Its name. The client thread numbers its own streams downward from `u64::MAX`.
        stream: ConnectionId,
        /// Non-blocking.
        socket: UnixStream,
    },
    /// Resolve on behalf of no connection (DNSPort, control port): a stream that carries only
    /// RESOLVE; answered by [`OriginEvent::Resolved`] or [`OriginEvent::Ended`]. It waits for
    /// [`OriginCommand::Attach`].
    AdoptResolve {
        /// Its name, downward from `u64::MAX` as above.
        stream: ConnectionId,
    },
}

/// An event for the client thread.
#[derive(Clone, Debug)]
pub enum OriginEvent {
    /// A link to the first hop is there and the CREATE on its way.
    Launched {
        /// The circuit.
        circuit: OriginId,
        /// The link's connection.
        connection: ConnectionId,
    },
    /// CREATED_FAST, CREATED2 or EXTENDED2 came (an EXTENDED2 as `Created2`).
    Answered {
        /// The circuit.
        circuit: OriginId,
        /// The handshake's answer.
        reply: CreateReply,
    },
    /// The circuit is no more, or never was. [`OriginEvent::Ended`] is sent for its streams,
    /// before or after.
    Closed {
        /// The circuit.
        circuit: OriginId,
        /// Why: from DESTROY or TRUNCATED if `remote`, otherwise ours.
        reason: DestroyReason,
        /// Another relay closed it.
        remote: bool,
    },
    /// A hop that was asked stated its weight.
    Weight {
        /// The circuit.
        circuit: OriginId,
        /// The hop.
        hop: HopIndex,
        /// ABRA_WEIGHT's body, not checked ([`crate::extensions::abra::Memo`]).
        statement: Vec<u8>,
    },
    /// A circuit is a leg of its tunnel.
    Linked {
        /// The leg.
        circuit: OriginId,
        /// The tunnel.
        tunnel: OriginId,
        /// The time from the question to the answer.
        took: Duration,
    },
    /// A leg of a tunnel of mTor is so slow that another should take its place. Sent once of each leg.
    LegSlow {
        /// The leg.
        circuit: OriginId,
        /// The tunnel.
        tunnel: OriginId,
    },
    /// The last hop has answered what it must refuse.
    Probed {
        /// The circuit.
        circuit: OriginId,
        /// The time from the request to the answer.
        took: Duration,
        /// The answer was the refusal that only a relay that has read the request can give.
        refused: bool,
    },
    /// A link was opened or closed (ORCONN events, guard reachability).
    Link {
        /// The connection.
        connection: ConnectionId,
        /// The relay's RSA identity digest.
        rsa: RsaIdentity,
        /// The address.
        addr: SocketAddr,
        /// The event.
        state: LinkState,
    },
    /// A link that is being opened has come further.
    LinkStep {
        /// The relay's RSA identity digest; zero: not known.
        rsa: RsaIdentity,
        /// The step reached.
        step: LinkStep,
    },
    /// An application asks.
    Request {
        /// Its connection.
        stream: ConnectionId,
        /// The request.
        request: AppRequest,
    },
    /// CONNECTED came; data flows.
    Connected {
        /// The stream.
        stream: ConnectionId,
        /// The circuit.
        circuit: OriginId,
        /// The address that the exit connected to, if it gave it.
        addr: Option<IpAddr>,
        /// Lifetime of that address, in seconds.
        ttl: u32,
    },
    /// RESOLVED came; the application has been answered and the stream is over.
    Resolved {
        /// The stream.
        stream: ConnectionId,
        /// The circuit.
        circuit: OriginId,
        /// The answers.
        resolved: Resolved,
    },
    /// The stream is no longer on its circuit.
    Ended {
        /// The stream.
        stream: ConnectionId,
        /// The circuit it was on, if it was on one.
        circuit: Option<OriginId>,
        /// Why.
        reason: EndReason,
        /// END's address, of EXITPOLICY.
        addr: Option<IpAddr>,
        /// The side that ended it.
        by: EndedBy,
        /// It was not yet connected and the application still waits: attach it elsewhere, or
        /// refuse it.
        waiting: bool,
        /// Bytes that the application got, and gave.
        bytes: (u64, u64),
    },
    /// Bytes moved by streams and circuits since the last such event: about once a second, and at
    /// once when a circuit is closed or carried a message that no honest peer sends.
    Traffic {
        /// Per stream: got, gave.
        streams: Vec<(ConnectionId, u64, u64)>,
        /// Per circuit.
        circuits: Vec<CircuitReport>,
    },
}

/// A link's state, in the control port's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Being opened.
    Launched,
    /// Open.
    Connected,
    /// Could not be opened.
    Failed(LinkFailure),
    /// Closed after having been open.
    Closed(LinkFailure),
}

/// Progress of a link that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkStep {
    /// A proxy or a pluggable transport is connected to, and is asked for the rest.
    ProxyConnected,
    /// The relay is connected to; TLS begins.
    Connected,
    /// TLS is there; the link handshake begins.
    Encrypted,
}

/// Why a link could not be opened, as C tor classifies it (`errno_to_orconn_end_reason`, control-spec 4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFailure {
    /// Nothing listens at the address, or a firewall rejects.
    Refused,
    /// The address cannot be reached from here.
    NoRoute,
    /// The connection was reset before it was a link.
    Reset,
    /// Nobody answered in time, to the connection or to the handshake.
    Timeout,
    /// The peer closed the connection before it was a link.
    Done,
    /// The peer is another relay than wanted.
    Identity,
    /// TLS or the link handshake failed.
    Handshake,
    /// A certificate of the relay is not valid at this machine's time.
    Clock,
    /// This node lacks files, memory or ports.
    Resource,
    /// The proxy of torrc gave no connection.
    Proxy,
    /// Options of torrc rule the connection out.
    Forbidden,
    /// The pluggable transport of a bridge is not there.
    NoTransport,
    /// It is not needed any more, or its reason is not known.
    Other,
}

impl LinkFailure {
    /// The control port's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "CONNECTREFUSED",
            Self::NoRoute => "NOROUTE",
            Self::Reset => "CONNECTRESET",
            Self::Timeout => "TIMEOUT",
            Self::Done => "DONE",
            Self::Identity => "IDENTITY",
            Self::Resource => "RESOURCELIMIT",
            Self::Handshake | Self::Clock | Self::Proxy => "IOERROR",
            Self::NoTransport => "PT_MISSING",
            Self::Forbidden | Self::Other => "MISC",
        }
    }

    /// The reason in words, as C tor logs it.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Refused => "Connection refused",
            Self::NoRoute => "No route to host",
            Self::Reset => "Connection reset by peer",
            Self::Timeout => "Connection timed out",
            Self::Done => "Connection closed",
            Self::Identity => "Unexpected identity in router certificate",
            Self::Handshake => "TLS or link handshake failed",
            Self::Clock => "A certificate is not valid at this machine's time",
            Self::Resource => "Out of files, memory or ports",
            Self::Proxy => "The proxy gave no connection",
            Self::Forbidden => "Not allowed by the configuration",
            Self::NoTransport => "Can't connect to bridge",
            Self::Other => "Miscellaneous error",
        }
    }

    /// Why the circuits end that waited for the link.
    #[must_use]
    pub const fn destroy_reason(self) -> DestroyReason {
        match self {
            Self::Refused
            | Self::NoRoute
            | Self::Reset
            | Self::Timeout
            | Self::Proxy
            | Self::Forbidden
            | Self::NoTransport => DestroyReason::CONNECTFAILED,
            Self::Identity => DestroyReason::OR_IDENTITY,
            Self::Resource => DestroyReason::RESOURCELIMIT,
            Self::Done | Self::Handshake | Self::Clock | Self::Other => {
                DestroyReason::CHANNEL_CLOSED
            }
        }
    }
}

/// The side that ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// END from the far end.
    Exit,
    /// The application closed or broke its connection.
    Application,
    /// Its circuit was closed.
    Circuit,
    /// The client thread asked for it.
    Us,
}

/// Request of an application, by SOCKS, HTTP CONNECT, DNSPort or the control port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppRequest {
    /// The kind of stream, and its target.
    pub opening: AppOpening,
    /// Where the application is, for isolation by address.
    pub from: Option<IpAddr>,
    /// Its port (control port's SOURCE_ADDR).
    pub from_port: u16,
    /// Listener that accepted it, as numbered by the node's main thread; the number stands for the
    /// listener's isolation flags and session group.
    pub listener: u32,
    /// Protocol of the request.
    pub protocol: AppProtocol,
    /// Credentials that isolate it: SOCKS user name and password; HTTP's isolation headers.
    pub credentials: Option<Arc<AppCredentials>>,
}

/// The target of an application's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppOpening {
    /// A TCP connection.
    Connect {
        /// Host name or literal address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// The addresses of a name.
    Resolve {
        /// The name.
        name: String,
    },
    /// The name of an address.
    ResolvePtr {
        /// The address.
        addr: IpAddr,
    },
}

/// Protocol of an application's request: one of the properties by which streams can be isolated
/// (IsolateClientProtocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppProtocol {
    /// SOCKS 4 or 4a.
    Socks4,
    /// SOCKS 5.
    Socks5,
    /// HTTP CONNECT.
    HttpConnect,
    /// A DNS query.
    Dns,
    /// None: a firewall redirected the connection.
    Transparent,
    /// natd's line.
    Natd,
    /// Weft itself: directory requests, the control port's RESOLVE.
    Internal,
}

/// See [`AppRequest::credentials`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppCredentials {
    /// User name, or `X-Tor-Stream-Isolation`.
    pub user: Vec<u8>,
    /// Password, or `Proxy-Authorization`.
    pub password: Vec<u8>,
}

/// Why an application's request fails, in terms of SOCKS 5 (socks-extensions) and HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppRefusal {
    /// A general failure.
    General,
    /// The rules do not allow it (exit policy, SafeSocks).
    NotAllowed,
    /// The network cannot be reached.
    NetUnreachable,
    /// The host cannot be reached.
    HostUnreachable,
    /// The destination refused.
    ConnectionRefused,
    /// It took too long.
    TtlExpired,
    /// The request is not understood.
    CommandNotSupported,
    /// The address is of no kind that is known.
    AddressTypeNotSupported,
    /// Onion service addresses: socks-extensions' 0xF0 to 0xF7 by their low digit.
    OnionService(u8),
}
