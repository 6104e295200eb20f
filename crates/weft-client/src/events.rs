//! Events and lists of circuits and streams, from which a control port makes its lines (control-spec 4.1,
//! 3.9).

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use weft_cell::identity::RsaIdentity;
use weft_cell::reason::{DestroyReason, EndReason};
use weft_core::address::ConnectionId;
use weft_core::origin::traffic::CircuitReport;
use weft_core::origin::{LinkState, OriginId};

use crate::isolation::{Fields, Isolation};

/// An event for controllers.
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// To a circuit (CIRC).
    Circuit {
        /// The circuit as it is now.
        circuit: CircuitInfo,
        /// Why it failed or was closed.
        reason: Option<CircuitEnd>,
    },
    /// A circuit's purpose changed (CIRC_MINOR).
    Purpose {
        /// The circuit as it is now.
        circuit: CircuitInfo,
        /// The previous purpose.
        was: CircuitPurpose,
    },
    /// To a stream (STREAM).
    Stream {
        /// The stream as it is now.
        stream: StreamInfo,
        /// The event.
        what: StreamNews,
    },
    /// To a link (ORCONN).
    Link {
        /// The connection.
        connection: ConnectionId,
        /// Its relay's RSA identity.
        rsa: RsaIdentity,
        /// The peer's address.
        addr: SocketAddr,
        /// New state of the link.
        state: LinkState,
    },
    /// Bytes of streams (STREAM_BW): received, sent.
    StreamBytes(Vec<(ConnectionId, u64, u64)>),
    /// Bytes of circuits (CIRC_BW).
    CircuitBytes(Vec<CircuitReport>),
    /// A name stands for something (ADDRMAP).
    Mapped {
        /// The name.
        from: String,
        /// The replacement; `None`: the lookup failed.
        to: Option<String>,
        /// Until when.
        expires: Option<SystemTime>,
        /// The stream that caused the lookup.
        stream: Option<ConnectionId>,
    },
    /// A guard was added, was dropped, or has changed its state (GUARD).
    Guard {
        /// Its RSA identity.
        rsa: RsaIdentity,
        /// Its name.
        nickname: String,
        /// `NEW`, `UP`, `DOWN`, `DROPPED`.
        status: &'static str,
    },
    /// Bootstrapping has reached a phase (STATUS_CLIENT BOOTSTRAP).
    Bootstrap(Bootstrap),
    /// Something keeps bootstrapping from going on (the same, with a severity of WARN).
    BootstrapProblem(BootstrapProblem),
    /// The client can build circuits (`true`), or cannot any more
    /// (STATUS_CLIENT CIRCUIT_ESTABLISHED, NETWORK_LIVENESS).
    Established(bool),
    /// There is enough of a directory (`true`), or not any more
    /// (STATUS_CLIENT ENOUGH_DIR_INFO and NOT_ENOUGH_DIR_INFO).
    EnoughDirectory(bool),
}

/// A phase of bootstrapping, by C tor's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Per cent.
    pub percent: u8,
    /// For programs: `conn_done`.
    pub tag: &'static str,
    /// For people: `Connected to a relay`.
    pub summary: &'static str,
}

/// Something that keeps the start from going on (C tor's `control_event_bootstrap_problem`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapProblem {
    /// The phase that does not end.
    pub stuck: Bootstrap,
    /// The problem in words.
    pub message: &'static str,
    /// The problem as the control port names it.
    pub reason: &'static str,
    /// Problems since the last progress.
    pub count: u32,
    /// It is worth a warning.
    pub warn: bool,
    /// The relay.
    pub host: RsaIdentity,
    /// Its address, if it is known.
    pub addr: Option<SocketAddr>,
}

impl BootstrapProblem {
    fn recommendation(&self) -> &'static str {
        match self.warn {
            true => "warn",
            false => "ignore",
        }
    }

    fn addr(&self) -> String {
        self.addr.map_or("?".to_owned(), |addr| addr.to_string())
    }

    /// The STATUS_CLIENT event (control-spec 4.1.10), without its severity.
    #[must_use]
    pub fn event(&self) -> String {
        let Bootstrap {
            percent,
            tag,
            summary,
        } = &self.stuck;
        format!(
            "BOOTSTRAP PROGRESS={percent} TAG={tag} SUMMARY=\"{summary}\" WARNING=\"{}\" REASON={} COUNT={} \
             RECOMMENDATION={} HOSTID=\"{}\" HOSTADDR=\"{}\"",
            self.message,
            self.reason,
            self.count,
            self.recommendation(),
            fingerprint(&self.host),
            self.addr(),
        )
    }
}

impl fmt::Display for BootstrapProblem {
    /// C tor's log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bootstrap {
            percent,
            tag,
            summary,
        } = &self.stuck;
        write!(
            f,
            "Problem bootstrapping. Stuck at {percent}% ({tag}): {summary}. ({}; {}; count {}; recommendation {}; host {} \
             at {})",
            self.message,
            self.reason,
            self.count,
            self.recommendation(),
            fingerprint(&self.host),
            self.addr(),
        )
    }
}

/// A fingerprint as C tor writes it in these lines.
fn fingerprint(rsa: &RsaIdentity) -> String {
    rsa.0.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// State of a circuit on the control port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitStatus {
    /// The CREATE is on its way.
    Launched,
    /// Some hops are there; the number is in [`CircuitInfo::built`].
    Extended,
    /// All hops are there, but better guards must be tried first.
    GuardWait,
    /// It carries streams.
    Built,
    /// It ended before it was built.
    Failed,
    /// It ended.
    Closed,
}

/// The purpose of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitPurpose {
    /// Streams of applications.
    General,
    /// One hop to a directory.
    Directory,
    /// A controller made it or took it.
    Controller,
    /// It was too slow; it only shows how slow.
    Measure,
    /// It should become a leg of a conflux set.
    ConfluxUnlinked,
    /// It is a leg of a conflux set that carries streams.
    ConfluxLinked,
    /// No circuit, but a conflux set as a whole, to which streams are attached; in no list and no event.
    ConfluxSet,
    /// As [`ConfluxUnlinked`](Self::ConfluxUnlinked), of a tunnel of mTor.
    MtorUnlinked,
    /// As [`ConfluxLinked`](Self::ConfluxLinked), of a tunnel of mTor.
    MtorLinked,
    /// As [`ConfluxSet`](Self::ConfluxSet), of a tunnel of mTor.
    MtorTunnel,
}

impl CircuitPurpose {
    /// The control port's name.
    pub fn name(self) -> &'static str {
        match self {
            CircuitPurpose::General | CircuitPurpose::Directory => "GENERAL",
            CircuitPurpose::Controller => "CONTROLLER",
            CircuitPurpose::Measure => "MEASURE_TIMEOUT",
            // The purposes known to controllers that are nearest to tunnels of mTor.
            CircuitPurpose::ConfluxUnlinked | CircuitPurpose::MtorUnlinked => "CONFLUX_UNLINKED",
            CircuitPurpose::ConfluxLinked
            | CircuitPurpose::ConfluxSet
            | CircuitPurpose::MtorLinked
            | CircuitPurpose::MtorTunnel => "CONFLUX_LINKED",
        }
    }

    /// Returns true if it carries streams of applications, alone or with other circuits.
    pub(crate) fn is_for_streams(self) -> bool {
        matches!(self, Self::General | Self::ConfluxUnlinked)
    }

    /// Returns true if it is a leg of a conflux set or a tunnel.
    pub(crate) fn is_leg(self) -> bool {
        matches!(
            self,
            Self::ConfluxUnlinked | Self::ConfluxLinked | Self::MtorUnlinked | Self::MtorLinked
        )
    }

    /// Returns true if it is not a circuit, but a set or a tunnel as a whole.
    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::ConfluxSet | Self::MtorTunnel)
    }
}

/// A circuit, for a list.
#[derive(Clone, Debug)]
pub struct CircuitInfo {
    /// Its name.
    pub id: OriginId,
    /// State of the circuit.
    pub status: CircuitStatus,
    /// All its relays, built or not: RSA identity and nickname.
    pub path: Vec<(RsaIdentity, String)>,
    /// Relays of the path that are built.
    pub built: usize,
    /// Use of the circuit.
    pub purpose: CircuitPurpose,
    /// It was built for streams that live long.
    pub need_uptime: bool,
    /// It was built for streams that want bandwidth.
    pub need_capacity: bool,
    /// When it was begun.
    pub created: SystemTime,
    /// Duration of building, once it is built.
    pub build_time: Option<Duration>,
    /// Time from a request to its last relay to the answer (docs/extensions/circuit-rtt.md), if it
    /// was measured.
    pub round_trip: Option<Duration>,
    /// The conflux set that it is a leg of: the first half of its nonce. The round trip is that of CONFLUX_LINK.
    pub conflux: Option<[u8; 16]>,
    /// The sum of its relays' weights (docs/extensions/abra.md), in 1/(Mbit/s), in lists and where they are asked.
    pub weight: Option<f64>,
    /// Of how many of its relays the weight is known.
    pub stated: usize,
    /// Streams that it was given so far.
    pub uses: u32,
    /// The isolation fields of its first stream, and the fields in which later streams differed.
    pub used_by: Option<(Fields, Isolation)>,
}

/// Why a circuit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitEnd {
    /// Our reason.
    pub reason: EndOfCircuit,
    /// The reason that another relay sent.
    pub remote: Option<DestroyReason>,
}

/// Why a circuit ended: the reasons of the control port, some of which are not DESTROY reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfCircuit {
    /// The reason in a DESTROY.
    Destroy(DestroyReason),
    /// There is no path.
    NoPath,
    /// It was late, was measured, and that is over.
    MeasurementExpired,
    /// A better guard is there.
    GuardLimit,
}

impl EndOfCircuit {
    /// The control port's name.
    pub fn name(self) -> &'static str {
        match self {
            EndOfCircuit::Destroy(reason) => match reason {
                DestroyReason::PROTOCOL => "TORPROTOCOL",
                DestroyReason::CHANNEL_CLOSED => "CHANNEL_CLOSED",
                other => other.name().unwrap_or("NONE"),
            },
            EndOfCircuit::NoPath => "NOPATH",
            EndOfCircuit::MeasurementExpired => "MEASUREMENT_EXPIRED",
            EndOfCircuit::GuardLimit => "GUARD_LIMIT",
        }
    }
}

/// A stream's state, for a list (control-spec 3.9 "stream-status").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStatus {
    /// It waits for a circuit to connect.
    New,
    /// It waits for a circuit to resolve.
    NewResolve,
    /// A controller must attach it.
    ControllerWait,
    /// BEGIN was sent.
    SentConnect,
    /// RESOLVE was sent.
    SentResolve,
    /// Data flows.
    Succeeded,
}

/// A stream, for a list.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    /// Its name.
    pub id: ConnectionId,
    /// State of the stream.
    pub status: StreamStatus,
    /// The circuit that it is on.
    pub circuit: Option<OriginId>,
    /// Its current destination: a name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The address of the application.
    pub source: Option<SocketAddr>,
    /// Use of the stream.
    pub purpose: StreamPurpose,
    /// The fields by which it is isolated.
    pub isolation: Isolation,
    /// The values of its isolation fields.
    pub fields: Fields,
}

/// The purpose of a stream, as the control port reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPurpose {
    /// An application's connection.
    User,
    /// A lookup.
    DnsRequest,
    /// A request to a directory.
    DirFetch,
}

/// Who replaced a stream's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapSource {
    /// A map.
    Map,
    /// The exit.
    Exit,
}

/// A change of a stream's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamNews {
    /// An application requests a connection.
    New,
    /// An application requests a lookup.
    NewResolve,
    /// Its target was replaced.
    Remap(RemapSource),
    /// It went on its way.
    SentConnect,
    /// The lookup went on its way.
    SentResolve,
    /// It is open.
    Succeeded,
    /// It failed.
    Failed(StreamEnd),
    /// It ended.
    Closed(StreamEnd),
    /// It is no longer on its circuit, and may be tried again.
    Detached(StreamEnd),
    /// A controller must attach it.
    ControllerWait,
}

/// Why a stream ended, as the control port reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The reason of the exit's END.
    Remote(EndReason),
    /// Our own reason, one of END's.
    Local(EndReason),
    /// No circuit could take it.
    CantAttach,
    /// Its target is internal.
    PrivateAddr,
    /// The rules of its listener forbid it.
    EntryPolicy,
}

impl StreamEnd {
    /// The control port's names: `REASON=` and `REMOTE_REASON=`.
    pub fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            StreamEnd::Remote(reason) => ("END", Some(end_name(reason))),
            StreamEnd::Local(reason) => (end_name(reason), None),
            StreamEnd::CantAttach => ("CANT_ATTACH", None),
            StreamEnd::PrivateAddr => ("PRIVATE_ADDR", None),
            StreamEnd::EntryPolicy => ("ENTRYPOLICY", None),
        }
    }
}

/// END's reasons as control-spec 4.1.2 names them.
fn end_name(reason: EndReason) -> &'static str {
    reason.name().unwrap_or("MISC")
}
