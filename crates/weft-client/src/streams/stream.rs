//! One stream, as the client knows it.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use weft_cell::identity::RsaIdentity;
use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::origin::{EndedBy, OriginId};
use weft_path::TargetPort;

use super::rewritten::{ExitChoice, Rewritten};
use crate::addresses::Host;
use crate::config::ListenerConfig;
use crate::events::{StreamInfo, StreamPurpose, StreamStatus};
use crate::isolation::Fields;

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// An application's TCP connection.
    Connect,
    /// An application looks up a name.
    Resolve,
    /// An application looks up an address.
    ResolvePtr,
    /// A request to the relay of this RSA identity.
    Directory(RsaIdentity),
}

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// It waits for a circuit.
    Waiting,
    /// A controller must attach it.
    Held,
    /// The BEGIN or RESOLVE was sent.
    Asked(OriginId),
    /// Data flows.
    Open(OriginId),
}

/// A stream, from its request to its end.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: ConnectionId,
    pub(crate) kind: StreamKind,
    pub(crate) state: StreamState,
    /// The destination that the application, or a controller after it, asked for.
    pub(crate) requested: (Host, u16),
    /// The destination after maps; `None`: they were not applied yet.
    pub(crate) rewritten: Option<Rewritten>,
    /// Where the application is.
    pub(crate) source: Option<SocketAddr>,
    /// The settings of its listener.
    pub(crate) listener: ListenerConfig,
    pub(crate) fields: Fields,
    pub(crate) created: Instant,
    /// When the BEGIN or RESOLVE was sent.
    pub(crate) asked: Instant,
    /// Attempts that an exit did not answer.
    pub(crate) silent: u32,
    /// Attempts that failed otherwise: the exit refused, or the circuit closed.
    pub(crate) failed: u32,
    /// Exits that refused its address.
    pub(crate) refused_by: Vec<RsaIdentity>,
    /// Where its circuit is a conflux set: the set's first leg when it was attached.
    pub(crate) leg: Option<OriginId>,
    /// A lookup of a controller: its answer is an [`Output::LookedUp`](crate::Output::LookedUp).
    pub(crate) for_controller: bool,
}

/// Why a stream is no longer on its circuit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamEnded {
    pub(crate) circuit: Option<OriginId>,
    pub(crate) reason: EndReason,
    pub(crate) addr: Option<IpAddr>,
    pub(crate) by: EndedBy,
    pub(crate) waiting: bool,
}

impl Stream {
    /// A stream to `host` and `port` that begins now and waits for a circuit. `fields` are what it was
    /// asked with, its id among them: they stay when maps change the destination.
    pub(crate) fn new(
        kind: StreamKind,
        host: Host,
        port: u16,
        listener: ListenerConfig,
        fields: Fields,
        now: Instant,
    ) -> Self {
        Self {
            id: fields.stream,
            kind,
            state: StreamState::Waiting,
            requested: (host, port),
            rewritten: None,
            source: None,
            listener,
            fields,
            created: now,
            asked: now,
            silent: 0,
            failed: 0,
            refused_by: Vec::new(),
            leg: None,
            for_controller: false,
        }
    }

    /// For a list.
    pub(crate) fn info(&self) -> StreamInfo {
        let connects = matches!(self.kind, StreamKind::Connect | StreamKind::Directory(_));
        StreamInfo {
            id: self.id,
            status: match self.state {
                StreamState::Waiting if connects => StreamStatus::New,
                StreamState::Waiting => StreamStatus::NewResolve,
                StreamState::Held => StreamStatus::ControllerWait,
                StreamState::Asked(_) if connects => StreamStatus::SentConnect,
                StreamState::Asked(_) => StreamStatus::SentResolve,
                StreamState::Open(_) => StreamStatus::Succeeded,
            },
            circuit: self.circuit(),
            host: self.host().to_string(),
            port: self.port(),
            source: self.source,
            purpose: match self.kind {
                StreamKind::Connect => StreamPurpose::User,
                StreamKind::Resolve | StreamKind::ResolvePtr => StreamPurpose::DnsRequest,
                StreamKind::Directory(_) => StreamPurpose::DirFetch,
            },
            isolation: self.listener.isolation,
            fields: self.fields.clone(),
        }
    }

    /// The circuit that it is on.
    pub(crate) fn circuit(&self) -> Option<OriginId> {
        match self.state {
            StreamState::Waiting | StreamState::Held => None,
            StreamState::Asked(circuit) | StreamState::Open(circuit) => Some(circuit),
        }
    }

    /// Returns true if it is a lookup.
    pub(crate) fn is_lookup(&self) -> bool {
        matches!(self.kind, StreamKind::Resolve | StreamKind::ResolvePtr)
    }

    /// Its destination as far as it is known: a name or an address.
    pub(crate) fn host(&self) -> &Host {
        self.rewritten
            .as_ref()
            .map_or(&self.requested.0, Rewritten::host)
    }

    pub(crate) fn port(&self) -> u16 {
        self.rewritten
            .as_ref()
            .map_or(self.requested.1, Rewritten::port)
    }

    /// The exit that it is for.
    pub(crate) fn exit(&self) -> &ExitChoice {
        self.rewritten
            .as_ref()
            .map_or(&ExitChoice::Any, Rewritten::exit)
    }

    /// Returns true if only one certain exit may serve it.
    pub(crate) fn is_tied(&self) -> bool {
        matches!(self.exit(), ExitChoice::Only(_))
    }

    /// The port that an exit must let through; `None`: any exit does.
    pub(crate) fn target(&self) -> Option<TargetPort> {
        if self.is_lookup() {
            return None;
        }
        let ipv6 = match self.address() {
            Some(addr) => addr.is_ipv6(),
            None => !self.listener.ipv4,
        };
        Some(TargetPort {
            ipv6,
            port: self.port(),
        })
    }

    /// The address, where the destination is one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.host().address()
    }
}
