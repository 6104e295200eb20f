//! Streams on circuits: the best circuit for each, what the exit answers, and the end (C tor's
//! circuituse.c and connection_edge.c). What is done when a circuit fails one is in `retries`.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{AnswerKind, BeginFlags, Resolved, TTL_ABSENT};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppRefusal, EndedBy, OriginCommand, OriginId, StreamOpening};
use weft_core::routable::is_public;
use weft_path::{ExitWanted, Outcome, PathError, RelayName, TargetPort, Usage};

use crate::client::chooser::Chooser;
use crate::client::config::ListenerConfig;
use crate::client::events::{
    CircuitPurpose, ClientEvent, StreamEnd, StreamInfo, StreamNews, StreamPurpose, StreamStatus,
};
use crate::client::isolation::Fields;
use crate::logging::safe_client as safe;
use crate::notice;

use super::circuit::Circuit;
use super::{Client, Now, Output};

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An application's TCP connection.
    Connect,
    /// An application looks up a name.
    Resolve,
    /// An application looks up an address.
    ResolvePtr(IpAddr),
    /// A request to the relay of this RSA identity.
    Directory([u8; 20]),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for a circuit.
    Waiting,
    /// A controller must attach it.
    Held,
    /// The exit was asked.
    Asked(OriginId),
    /// Data flows.
    Open(OriginId),
}

/// A stream, from its request to its end.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: ConnectionId,
    pub(super) kind: Kind,
    pub(super) state: State,
    /// Where it is to go now.
    pub(super) host: String,
    pub(super) port: u16,
    /// Where the application is.
    pub(super) source: Option<SocketAddr>,
    /// What its listener asks for.
    pub(super) listener: ListenerConfig,
    pub(super) fields: Fields,
    pub(super) created: Instant,
    /// When the exit was asked.
    pub(super) asked: Instant,
    /// How often an exit was silent.
    pub(super) silent: u32,
    /// How often an exit failed or a circuit died.
    pub(super) failed: u32,
    /// Only this exit will do.
    pub(super) exit: Option<RelayName>,
    /// It was only reached by that exit before (`TrackHostExits`): another will do.
    pub(super) exit_optional: bool,
    /// A controller asked for the lookup: it is answered by [`Output::Looked`].
    pub(super) for_controller: bool,
}

/// Why a stream is no longer on its circuit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) circuit: Option<OriginId>,
    pub(super) reason: EndReason,
    pub(super) addr: Option<IpAddr>,
    pub(super) by: EndedBy,
    pub(super) waiting: bool,
}

impl Stream {
    /// For a list.
    pub(super) fn info(&self) -> StreamInfo {
        let connects = matches!(self.kind, Kind::Connect | Kind::Directory(_));
        StreamInfo {
            id: self.id,
            status: match self.state {
                State::Waiting if connects => StreamStatus::New,
                State::Waiting => StreamStatus::NewResolve,
                State::Held => StreamStatus::ControllerWait,
                State::Asked(_) if connects => StreamStatus::SentConnect,
                State::Asked(_) => StreamStatus::SentResolve,
                State::Open(_) => StreamStatus::Succeeded,
            },
            circuit: self.circuit(),
            host: self.host.clone(),
            port: self.port,
            source: self.source,
            purpose: match self.kind {
                Kind::Connect => StreamPurpose::User,
                Kind::Resolve | Kind::ResolvePtr(_) => StreamPurpose::DnsRequest,
                Kind::Directory(_) => StreamPurpose::DirFetch,
            },
            isolation: self.listener.isolation,
            fields: self.fields.clone(),
        }
    }

    /// The circuit that it is on.
    pub(super) fn circuit(&self) -> Option<OriginId> {
        match self.state {
            State::Waiting | State::Held => None,
            State::Asked(circuit) | State::Open(circuit) => Some(circuit),
        }
    }

    /// Whether it is a lookup.
    pub(super) fn is_lookup(&self) -> bool {
        matches!(self.kind, Kind::Resolve | Kind::ResolvePtr(_))
    }

    /// The port that an exit must let through; `None`: any exit does.
    pub(super) fn target(&self) -> Option<TargetPort> {
        if self.is_lookup() {
            return None;
        }
        let ipv6 = match self.host.parse::<IpAddr>() {
            Ok(addr) => addr.is_ipv6(),
            Err(_) => !self.listener.ipv4,
        };
        Some(TargetPort {
            ipv6,
            port: self.port,
        })
    }

    /// The address, where the target is one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// What to send.
    fn opening<G>(&self, circuit: &Circuit<G>) -> StreamOpening {
        match self.kind {
            Kind::Directory(_) => StreamOpening::BeginDir,
            Kind::Resolve => StreamOpening::Resolve {
                name: self.host.clone(),
            },
            Kind::ResolvePtr(addr) => StreamOpening::Resolve {
                name: reverse_name(addr),
            },
            Kind::Connect => StreamOpening::Begin {
                host: self.host.clone(),
                port: self.port,
                flags: self.flags(circuit),
            },
        }
    }

    /// The address families that will do, as far as the exit has them (C tor's
    /// `connection_ap_get_begincell_flags`).
    fn flags<G>(&self, circuit: &Circuit<G>) -> BeginFlags {
        let (ipv4, ipv6) = match self.address() {
            Some(addr) => (addr.is_ipv4(), addr.is_ipv6()),
            None => (self.listener.ipv4, self.listener.ipv6),
        };
        let mut flags = BeginFlags::default();
        if ipv4 && !ipv6 {
            return flags;
        }
        flags.ipv4_not_ok = !ipv4;
        let target = TargetPort {
            ipv6: true,
            port: self.port,
        };
        flags.ipv6_ok = ipv6 && circuit.allows(Some(target));
        flags.ipv6_preferred = flags.ipv6_ok && ipv4 && self.listener.prefer_ipv6;
        flags
    }
}

/// The name that asks for the name of an address (RFC 1035 3.5, RFC 3596 2.5).
fn reverse_name(addr: IpAddr) -> String {
    use std::fmt::Write as _;
    match addr {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let mut name = String::new();
            for byte in v6.octets().iter().rev() {
                let _ = write!(name, "{:x}.{:x}.", byte & 15, byte >> 4);
            }
            name + "ip6.arpa"
        }
    }
}

impl<C: Chooser> Client<C> {
    /// Tries to find a circuit for every stream that waits.
    pub(super) fn serve(&mut self, now: Now) {
        let waiting: Vec<ConnectionId> = self
            .streams
            .values()
            .filter(|stream| stream.state == State::Waiting)
            .map(|stream| stream.id)
            .collect();
        for id in waiting {
            self.serve_one(id, now);
        }
    }

    /// Finds a circuit for a stream, or begins one.
    pub(super) fn serve_one(&mut self, id: ConnectionId, now: Now) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if stream.state != State::Waiting {
            return;
        }
        if let Some(best) = self.best_circuit(stream, true, now) {
            self.attach(id, best, None, now);
            return;
        }
        if matches!(stream.kind, Kind::Directory(_)) {
            // Its circuit was begun with it, and fails with it.
            return;
        }
        if !self.chooser.is_ready() || self.config.disable_network {
            return;
        }
        let wanted = self.wanted(stream);
        if let Some(pending) = self.best_circuit(stream, false, now) {
            self.reserve(pending, id);
            return;
        }
        let pending = self
            .circuits
            .values()
            .filter(|circuit| circuit.is_building() && circuit.purpose == CircuitPurpose::General)
            .count();
        if pending >= self.config.max_pending || self.is_hopeless(now) {
            return;
        }
        match self.launch(&Usage::Exit(wanted), CircuitPurpose::General, now) {
            Ok(circuit) => self.reserve(circuit, id),
            Err(PathError::NoExit(_) | PathError::UnknownRelay(_)) if self.leave_exit(id) => {
                self.serve_one(id, now);
            }
            Err(PathError::NoExit(_)) => {
                if let Some(stream) = self.streams.get(&id) {
                    notice!(
                        "No Tor server allows exit to {}:{}. Rejecting.",
                        safe(&stream.host),
                        stream.port
                    );
                }
                self.refuse(id, StreamEnd::CantAttach, AppRefusal::General, now);
            }
            Err(PathError::UnknownRelay(name)) => {
                tracing::warn!("Requested exit point '{name}' is not known. Closing.");
                self.refuse(id, StreamEnd::CantAttach, AppRefusal::General, now);
            }
            Err(error) => tracing::info!("No circuit for a stream now: {error}"),
        }
    }

    /// What the exit for a stream must be.
    pub(super) fn wanted(&self, stream: &Stream) -> ExitWanted {
        ExitWanted {
            ports: stream.target().into_iter().collect(),
            stable: self.config.long_lived_ports.contains(&stream.port) && !stream.is_lookup(),
            avoid: self.refusing.iter().copied().collect(),
            exit: stream.exit.clone(),
        }
    }

    /// Notes on a circuit that is being built what the stream is that waits for it, so that others
    /// that must be kept apart from it get one of their own.
    fn reserve(&mut self, circuit: OriginId, stream: ConnectionId) {
        if let (Some(circuit), Some(stream)) =
            (self.circuits.get_mut(&circuit), self.streams.get(&stream))
        {
            circuit.isolation.note(&stream.fields);
        }
    }

    /// The best circuit for a stream: open, or else being built.
    fn best_circuit(&self, stream: &Stream, open: bool, now: Now) -> Option<OriginId> {
        let mut best: Option<&Circuit<C::Guard>> = None;
        for circuit in self.circuits.values() {
            if circuit.is_open() != open || !self.is_acceptable(circuit, stream, now) {
                continue;
            }
            if best.is_none_or(|best| is_better(circuit, best, &stream.fields)) {
                best = Some(circuit);
            }
        }
        best.map(|circuit| circuit.id)
    }

    /// Whether a circuit will do for a stream (C tor's `circuit_is_acceptable`).
    fn is_acceptable(&self, circuit: &Circuit<C::Guard>, stream: &Stream, now: Now) -> bool {
        if let Kind::Directory(relay) = stream.kind {
            return circuit.purpose == CircuitPurpose::Directory
                && !circuit.unusable
                && circuit.hops.first().is_some_and(|hop| hop.rsa == relay);
        }
        if circuit.purpose != CircuitPurpose::General
            || circuit.unusable
            || circuit.is_too_dirty(self.config.max_dirtiness, now.mono)
        {
            return false;
        }
        let stable = self.config.long_lived_ports.contains(&stream.port) && !stream.is_lookup();
        if stable && !circuit.stable {
            return false;
        }
        let Some(exit) = &circuit.exit else {
            return false;
        };
        let right_exit = match &stream.exit {
            Some(wanted) => is_called(exit, wanted),
            None => !self.refusing.contains(&exit.rsa),
        };
        let refused = stream
            .address()
            .is_some_and(|addr| circuit.refused.contains(&addr));
        right_exit
            && !refused
            && circuit.allows(stream.target())
            && circuit
                .isolation
                .allows(stream.listener.isolation, &stream.fields)
    }

    /// Puts a stream on a circuit; by default on its last hop.
    pub(super) fn attach(
        &mut self,
        id: ConnectionId,
        circuit_id: OriginId,
        hop: Option<u8>,
        now: Now,
    ) {
        let (Some(stream), Some(circuit)) = (
            self.streams.get_mut(&id),
            self.circuits.get_mut(&circuit_id),
        ) else {
            return;
        };
        let keep_alive = stream.listener.keep_alive_auth && stream.fields.credentials.is_some();
        if circuit.dirty.is_none() || keep_alive {
            circuit.dirty = Some(now.mono);
        }
        circuit.isolation.note(&stream.fields);
        circuit.streams.insert(id);
        let guard = circuit.guard.clone();
        stream.state = State::Asked(circuit_id);
        stream.asked = now.mono;
        let opening = stream.opening(circuit);
        let hop = hop.unwrap_or_else(|| circuit.last_hop());
        let name = circuit
            .hops
            .last()
            .map_or(String::new(), |hop| hop.nickname.clone());
        let news = match stream.is_lookup() {
            true => StreamNews::SentResolve,
            false => StreamNews::SentConnect,
        };
        let directory = matches!(stream.kind, Kind::Directory(_));
        self.command(OriginCommand::Attach {
            stream: id,
            circuit: circuit_id,
            hop,
            opening,
        });
        self.tell_stream(id, news);
        self.tell_use(guard, Outcome::Used, now);
        if directory {
            // The request may go before the answer to BEGIN_DIR comes.
            self.outputs
                .push_back(Output::DirectoryReady { stream: id, name });
        }
    }

    /// Tells a circuit's guard that the circuit is used, or was of use (path-spec 7).
    fn tell_use(&mut self, guard: Option<C::Guard>, outcome: Outcome, now: Now) {
        if let Some(guard) = guard {
            self.chooser.guard(&guard, outcome, now, &mut self.rng);
        }
    }

    /// The exit answered on a circuit.
    fn note_answer(&mut self, circuit: OriginId, now: Now) {
        let guard = self
            .circuits
            .get(&circuit)
            .and_then(|circuit| circuit.guard.clone());
        self.tell_use(guard, Outcome::UseSucceeded, now);
    }

    /// A stream is open.
    pub(super) fn on_connected(
        &mut self,
        id: ConnectionId,
        circuit: OriginId,
        addr: Option<IpAddr>,
        ttl: u32,
        now: Now,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.state != State::Asked(circuit) {
            return;
        }
        stream.state = State::Open(circuit);
        self.note_answer(circuit, now);
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let connects = stream.kind == Kind::Connect;
        let named = stream.address().is_none();
        let host = stream.host.clone();
        // The connection is there already; an exit that says that it leads back to this machine's
        // own network is not to be trusted with it.
        if connects
            && named
            && self.config.reject_internal_answers
            && let Some(addr) = addr.filter(|addr| !is_public(*addr))
        {
            tracing::info!(
                "Got a CONNECTED cell for a name that leads to the internal address {}",
                safe(addr)
            );
            self.end(id, EndReason::TORPROTOCOL);
            return;
        }
        self.note_exit(id, circuit, now);
        self.tell_stream(id, StreamNews::Succeeded);
        if let Some(addr) = addr.filter(|_| connects && named) {
            let ttl = if ttl == TTL_ABSENT { 1800 } else { ttl };
            self.tell(ClientEvent::Mapped {
                from: host,
                to: Some(addr.to_string()),
                expires: Some(now.wall + Duration::from_secs(u64::from(ttl))),
                stream: Some(id),
            });
        }
    }

    /// A lookup was answered.
    pub(super) fn on_resolved(
        &mut self,
        id: ConnectionId,
        circuit: OriginId,
        resolved: Resolved,
        now: Now,
    ) {
        self.note_answer(circuit, now);
        if let Some(circuit) = self.circuits.get_mut(&circuit) {
            circuit.streams.remove(&id);
        }
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        let mut told = false;
        for answer in &resolved.answers {
            let to = match &answer.kind {
                AnswerKind::Hostname(name) => Some(String::from_utf8_lossy(name).into_owned()),
                AnswerKind::Ipv4(addr) => Some(addr.to_string()),
                AnswerKind::Ipv6(addr) => Some(addr.to_string()),
                AnswerKind::TransientError | AnswerKind::Error => None,
            };
            if to.is_some() || !told {
                told = true;
                self.tell(ClientEvent::Mapped {
                    from: stream.host.clone(),
                    to,
                    expires: Some(now.wall + Duration::from_secs(u64::from(answer.ttl))),
                    stream: Some(id),
                });
            }
        }
        self.tell(ClientEvent::Stream {
            stream: stream.info(),
            what: StreamNews::Closed(StreamEnd::Local(EndReason::DONE)),
        });
        if stream.for_controller {
            self.outputs.push_back(Output::Looked {
                stream: id,
                resolved,
            });
        }
    }

    /// Tells an application that it cannot have what it wants.
    pub(super) fn refuse(&mut self, id: ConnectionId, end: StreamEnd, why: AppRefusal, _now: Now) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if matches!(stream.kind, Kind::Directory(_)) {
            self.tell_stream(id, StreamNews::Failed(end));
            let reason = match end {
                StreamEnd::Local(reason) | StreamEnd::Remote(reason) => reason,
                _ => EndReason::MISC,
            };
            self.end(id, reason);
            return;
        }
        self.command(OriginCommand::Refuse { stream: id, why });
        self.tell_stream(id, StreamNews::Failed(end));
        self.forget_stream(id, "refused");
    }

    /// Ends a stream wherever it is.
    pub(super) fn end(&mut self, id: ConnectionId, reason: EndReason) {
        self.command(OriginCommand::CloseStream { stream: id, reason });
        self.forget_stream(id, &reason.to_string());
    }

    /// A stream is over.
    pub(super) fn forget_stream(&mut self, id: ConnectionId, why: &str) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        if let Some(circuit) = stream.circuit().and_then(|id| self.circuits.get_mut(&id)) {
            circuit.streams.remove(&id);
        }
        if matches!(stream.kind, Kind::Directory(_)) {
            self.outputs.push_back(Output::DirectoryGone {
                stream: id,
                why: why.to_owned(),
            });
        } else if stream.for_controller {
            self.outputs.push_back(Output::Looked {
                stream: id,
                resolved: Resolved::default(),
            });
        }
    }

    /// Tells controllers of a stream.
    pub(super) fn tell_stream(&mut self, id: ConnectionId, what: StreamNews) {
        if let Some(stream) = self.streams.get(&id) {
            let stream = stream.info();
            self.tell(ClientEvent::Stream { stream, what });
        }
    }
}

/// Whether a relay is the one that is called so.
fn is_called(relay: &weft_path::Hop, name: &RelayName) -> bool {
    match name {
        RelayName::Rsa(rsa) => relay.rsa == *rsa,
        RelayName::Ed25519(ed25519) => relay.ed25519 == *ed25519,
        RelayName::Nickname(nickname) => relay.nickname.eq_ignore_ascii_case(nickname),
    }
}

/// Whether circuit `a` is the better one of two that will do (C tor's `circuit_is_better`).
fn is_better<G>(a: &Circuit<G>, b: &Circuit<G>, fields: &Fields) -> bool {
    if a.relaxed != b.relaxed {
        // A circuit that was only built because it got more time is slow.
        return b.relaxed;
    }
    // One that is in use but was not for long; otherwise the newest.
    match (a.dirty, b.dirty) {
        (Some(a), Some(b)) if a > b => return true,
        (Some(_), None) => return true,
        (None, None) if a.created > b.created => return true,
        _ => {}
    }
    a.isolation.is_better_than(&b.isolation, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_looked_up_by_their_reverse_names() {
        assert_eq!(
            reverse_name(IpAddr::from([192, 0, 2, 1])),
            "1.2.0.192.in-addr.arpa"
        );
        let v6: IpAddr = "2001:db8::1".parse().expect("an address");
        assert_eq!(
            reverse_name(v6),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }
}
