//! Streams on circuits: the best circuit for each, the exit's answers, and the end (C tor's
//! circuituse.c and connection_edge.c). Failures of circuits are handled in `retries`.

use std::net::IpAddr;
use std::time::Duration;

use weft_cell::identity::RsaIdentity;
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{AnswerKind, Resolved, TTL_ABSENT};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppRefusal, OriginCommand, OriginId};
use weft_core::routable::{is_public, remove_internal};
use weft_log::Line;
use weft_path::{CircuitSelection, ExitWanted, Outcome, PathError, RelayName, Usage};
use weft_planted::{Fault, planted};

use crate::chooser::Chooser;
use crate::config::ListenerConfig;
use crate::events::{CircuitPurpose, ClientEvent, RemapSource, StreamEnd, StreamNews};
use crate::isolation::Fields;
use crate::streams::{ExitChoice, Stream, StreamKind, StreamState};

use crate::circuits::Circuit;
use crate::now::Now;
use crate::output::Output;

use super::Client;

impl<C: Chooser> Client<C> {
    /// Tries to find a circuit for every stream that waits.
    pub(super) fn serve(&mut self, now: Now) {
        let waiting: Vec<ConnectionId> = self
            .streams
            .values()
            .filter(|stream| stream.state == StreamState::Waiting)
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
        if stream.state != StreamState::Waiting || self.admit(id, now, |_, _| ()).is_err() {
            return;
        }
        if self.serve_by_tunnel(id, now) {
            return;
        }
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let open = match self.config.selection {
            CircuitSelection::Default => self.best_circuit(stream, true, now),
            CircuitSelection::Abra | CircuitSelection::AbraStay => self.lightest_circuit(id, now),
        };
        if let Some(best) = open {
            self.attach(id, best, None, now);
            return;
        }
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if matches!(stream.kind, StreamKind::Directory(_)) {
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
        if pending >= self.config.max_pending || self.is_launch_paused(now) {
            return;
        }
        match self.launch(&Usage::Exit(wanted), CircuitPurpose::General, now) {
            Ok(circuit) => self.reserve(circuit, id),
            Err(PathError::NoExit(_) | PathError::UnknownRelay(_)) if self.leave_exit(id) => {
                self.serve_one(id, now);
            }
            Err(PathError::NoExit(_)) => {
                if let Some(stream) = self.streams.get(&id) {
                    let line = Line::notice("No Tor server allows exit to ")
                        .client(stream.host())
                        .text(format!(":{}. Rejecting.", stream.port()));
                    self.log(line);
                }
                self.refuse(id, StreamEnd::CantAttach, AppRefusal::General, now);
            }
            Err(PathError::UnknownRelay(name)) => {
                let line = format!("Requested exit point '{name}' is not known. Closing.");
                self.log(Line::warn(line));
                self.refuse(id, StreamEnd::CantAttach, AppRefusal::General, now);
            }
            Err(error) => self.log(Line::info(format!("No circuit for a stream now: {error}"))),
        }
    }

    /// The requirements for a stream's exit.
    pub(super) fn wanted(&self, stream: &Stream) -> ExitWanted {
        ExitWanted {
            ports: stream.target().into_iter().collect(),
            stable: self.wants_stable(stream),
            avoid: self.avoided(stream),
            exit: match stream.exit() {
                ExitChoice::Any => None,
                ExitChoice::Only(name) => Some(name.clone()),
                ExitChoice::Tracked(exit) => Some(RelayName::Rsa(*exit)),
            },
        }
    }

    /// The exits that a stream is not sent to.
    pub(super) fn avoided(&self, stream: &Stream) -> Vec<RsaIdentity> {
        self.refusing
            .iter()
            .chain(&stream.refused_by)
            .copied()
            .collect()
    }

    /// True for all other exits.
    pub(super) fn may_ask(&self, exit: &RsaIdentity, stream: &Stream) -> bool {
        !self.refusing.contains(exit) && !stream.refused_by.contains(exit)
    }

    /// Returns true if a stream is expected to live long.
    fn wants_stable(&self, stream: &Stream) -> bool {
        self.config.long_lived_ports.contains(&stream.port()) && !stream.is_lookup()
    }

    /// Notes the waiting stream on a circuit that is being built, so that streams that must be
    /// isolated from it get another circuit.
    fn reserve(&mut self, circuit: OriginId, stream: ConnectionId) {
        if let (Some(circuit), Some(stream)) =
            (self.circuits.get_mut(&circuit), self.streams.get(&stream))
        {
            circuit.isolation.note(&stream.fields);
        }
    }

    /// The best circuit for a stream: open, or else being built.
    pub(super) fn best_circuit(&self, stream: &Stream, open: bool, now: Now) -> Option<OriginId> {
        let mut best: Option<&Circuit<C::Guard>> = None;
        for circuit in self.circuits.values() {
            if circuit.is_open() != open || !self.is_acceptable(circuit, stream, now) {
                continue;
            }
            let better = best.is_none_or(|best| match (circuit.is_set(), best.is_set()) {
                // A set is better than a circuit (`circuit_get_best`).
                (true, false) => true,
                (false, true) => false,
                _ => is_better(circuit, best, &stream.fields),
            });
            if better {
                best = Some(circuit);
            }
        }
        best.map(|circuit| circuit.id)
    }

    /// Returns true if a stream may use a circuit (C tor's `circuit_is_acceptable`).
    pub(super) fn is_acceptable(
        &self,
        circuit: &Circuit<C::Guard>,
        stream: &Stream,
        now: Now,
    ) -> bool {
        if let StreamKind::Directory(relay) = stream.kind {
            return circuit.purpose == CircuitPurpose::Directory
                && !circuit.unusable
                && circuit.hops.first().is_some_and(|hop| hop.rsa == relay);
        }
        let right_purpose = match circuit.purpose {
            CircuitPurpose::General => true,
            CircuitPurpose::ConfluxSet => self.may_use_sets(stream),
            CircuitPurpose::MtorTunnel => self.wants_tunnel(stream),
            _ => false,
        };
        if !right_purpose
            || circuit.unusable
            || circuit.is_too_dirty(self.config.max_dirtiness, now.mono)
        {
            return false;
        }
        if self.wants_stable(stream) && !circuit.stable {
            return false;
        }
        let Some(exit) = &circuit.exit else {
            return false;
        };
        let right_exit = match stream.exit() {
            ExitChoice::Only(wanted) => is_called(exit, wanted),
            ExitChoice::Tracked(wanted) => exit.rsa == *wanted,
            ExitChoice::Any => self.may_ask(&exit.rsa, stream),
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

    /// Puts a stream that the rules allow on a circuit; by default on its last hop. Others are refused, or answered.
    pub(super) fn attach(
        &mut self,
        id: ConnectionId,
        circuit_id: OriginId,
        hop: Option<u8>,
        now: Now,
    ) {
        let asking = self.admit(id, now, |checked, circuits| {
            let circuit = circuits.get(&circuit_id)?;
            Some(checked.opening(circuit))
        });
        let Ok(Some(opening)) = asking else {
            return;
        };
        let wanted = self
            .streams
            .get(&id)
            .map(|stream| self.wants_tunnel(stream));
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
        if wanted == Some(true) && circuit.purpose != CircuitPurpose::MtorTunnel {
            self.tunnel_counts.without += 1;
        }
        circuit.isolation.note(&stream.fields);
        circuit.streams.insert(id);
        circuit.uses = circuit.uses.saturating_add(1);
        stream.state = StreamState::Asked(circuit_id);
        stream.leg = (self.sets.get(&circuit_id)).and_then(|set| set.legs.first().copied());
        stream.asked = now.mono;
        let hop = hop.unwrap_or_else(|| circuit.last_hop());
        let name = circuit
            .hops
            .last()
            .map_or(String::new(), |hop| hop.nickname.clone());
        let news = match stream.is_lookup() {
            true => StreamNews::SentResolve,
            false => StreamNews::SentConnect,
        };
        let directory = matches!(stream.kind, StreamKind::Directory(_));
        self.command(OriginCommand::Attach {
            stream: id,
            circuit: circuit_id,
            hop: weft_core::address::HopIndex(hop),
            opening,
        });
        self.emit_stream(id, news);
        self.note_use(circuit_id, Outcome::Used, now);
        if directory {
            // The request may be sent before the answer to BEGIN_DIR arrives.
            self.outputs
                .push_back(Output::DirectoryReady { stream: id, name });
        }
    }

    /// Reports to a circuit's guard, or to those of a set, that the circuit is used, or was useful (path-spec 7).
    fn note_use(&mut self, circuit: OriginId, outcome: Outcome, now: Now) {
        let legs = self.sets.get(&circuit).map(|set| set.legs.as_slice());
        let circuits = legs.unwrap_or_default().iter().chain([&circuit]);
        let guards: Vec<C::Guard> = circuits
            .filter_map(|id| self.circuits.get(id)?.guard.clone())
            .collect();
        for guard in guards {
            self.chooser.guard(&guard, outcome, now, &mut self.rng);
        }
    }

    /// The exit answered on a circuit.
    pub(super) fn note_answer(&mut self, circuit: OriginId, now: Now) {
        self.note_use(circuit, Outcome::UseSucceeded, now);
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
        let asked = self.streams.get(&id);
        if asked.is_none_or(|stream| stream.state != StreamState::Asked(circuit)) {
            return;
        }
        self.note_answer(circuit, now);
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let connects = stream.kind == StreamKind::Connect;
        let named = stream.address().is_none();
        let host = stream.host().to_string();
        // The connection is there already; an exit that claims that it leads back to this machine's
        // own network is not to be trusted with it.
        if connects
            && named
            && self.config.reject_internal_answers
            && let Some(addr) = addr.filter(|addr| !is_public(*addr))
        {
            self.log(
                Line::info("Got a CONNECTED cell for a name that leads to the internal address ")
                    .client(addr),
            );
            self.end(id, StreamEnd::Local(EndReason::TORPROTOCOL));
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = StreamState::Open(circuit);
        }
        self.note_exit(id, circuit, now);
        if let Some(addr) = addr.filter(|_| connects) {
            if named {
                let ttl = if ttl == TTL_ABSENT { 1800 } else { ttl };
                self.emit(ClientEvent::Mapped {
                    from: host,
                    to: Some(addr.to_string()),
                    expires: Some(now.wall + Duration::from_secs(u64::from(ttl))),
                    stream: Some(id),
                });
            }
            self.note_found(id, addr);
        }
        self.emit_stream(id, StreamNews::Succeeded);
    }

    /// An exit states the address of a stream's destination, by which the stream goes from then on, as in C tor
    /// (`remap_event_helper`).
    fn note_found(&mut self, id: ConnectionId, addr: IpAddr) {
        let stream = self.streams.get_mut(&id);
        if let Some(rewritten) = stream.and_then(|stream| stream.rewritten.as_mut()) {
            rewritten.found(addr);
            self.emit_stream(id, StreamNews::Remap(RemapSource::Exit));
        }
    }

    /// A lookup was answered.
    pub(super) fn on_resolved(
        &mut self,
        id: ConnectionId,
        circuit: OriginId,
        mut resolved: Resolved,
        now: Now,
    ) {
        self.note_answer(circuit, now);
        let answered = !resolved.answers.is_empty();
        if self.config.reject_internal_answers {
            remove_internal(&mut resolved);
        }
        let end = StreamEnd::Local(match answered && resolved.answers.is_empty() {
            true => EndReason::TORPROTOCOL,
            false => EndReason::DONE,
        });
        if let Some(circuit) = self.circuits.get_mut(&circuit) {
            circuit.streams.remove(&id);
        }
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let (asked, listener) = (stream.host().to_string(), stream.listener);
        let mut reported = false;
        for answer in &resolved.answers {
            let to = match &answer.kind {
                AnswerKind::Hostname(name) => Some(String::from_utf8_lossy(name).into_owned()),
                AnswerKind::Ipv4(addr) => Some(addr.to_string()),
                AnswerKind::Ipv6(addr) => Some(addr.to_string()),
                AnswerKind::TransientError | AnswerKind::Error => None,
            };
            if to.is_some() || !reported {
                reported = true;
                self.emit(ClientEvent::Mapped {
                    from: asked.clone(),
                    to,
                    expires: Some(now.wall + Duration::from_secs(u64::from(answer.ttl))),
                    stream: Some(id),
                });
            }
        }
        if let Some(addr) = first_address(&resolved, &listener) {
            self.note_found(id, addr);
        }
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        self.emit(ClientEvent::Stream {
            stream: self.stream_info(&stream),
            what: StreamNews::Closed(end),
        });
        if stream.for_controller {
            self.outputs.push_back(Output::LookedUp {
                stream: id,
                resolved,
            });
        }
    }

    /// Refuses a stream: the application gets a reply with the reason.
    pub(super) fn refuse(&mut self, id: ConnectionId, end: StreamEnd, why: AppRefusal, _now: Now) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if matches!(stream.kind, StreamKind::Directory(_)) {
            self.end(id, end);
            return;
        }
        self.command(OriginCommand::Refuse { stream: id, why });
        self.emit_over(id, end);
        self.forget_stream(id, "refused");
    }

    /// Ends a stream in any state, and reports it.
    pub(super) fn end(&mut self, id: ConnectionId, end: StreamEnd) {
        self.emit_over(id, end);
        let reason = match end {
            StreamEnd::Local(reason) | StreamEnd::Remote(reason) => reason,
            _ => EndReason::MISC,
        };
        self.command(OriginCommand::CloseStream { stream: id, reason });
        self.forget_stream(id, &reason.to_string());
    }

    /// Forgets a stream whose end was reported.
    pub(super) fn forget_stream(&mut self, id: ConnectionId, why: &str) {
        if planted(Fault::ClientKeepsStream) {
            return;
        }
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        if let Some(circuit) = stream.circuit().and_then(|id| self.circuits.get_mut(&id)) {
            circuit.streams.remove(&id);
        }
        if matches!(stream.kind, StreamKind::Directory(_)) {
            self.outputs.push_back(Output::DirectoryGone {
                stream: id,
                why: why.to_owned(),
            });
        } else if stream.for_controller {
            self.outputs.push_back(Output::LookedUp {
                stream: id,
                resolved: Resolved::default(),
            });
        }
    }

    /// Emits the events of a stream's end, in C tor's order: FAILED if its application still waited for a connection (a
    /// lookup has no such event), and CLOSED.
    pub(super) fn emit_over(&mut self, id: ConnectionId, end: StreamEnd) {
        let waited = self.streams.get(&id).is_some_and(|stream| {
            !stream.is_lookup() && !matches!(stream.state, StreamState::Open(_))
        });
        if waited {
            self.emit_stream(id, StreamNews::Failed(end));
        }
        self.emit_stream(id, StreamNews::Closed(end));
    }

    /// Emits the event of a stream.
    pub(super) fn emit_stream(&mut self, id: ConnectionId, what: StreamNews) {
        if let Some(stream) = self.streams.get(&id) {
            let stream = self.stream_info(stream);
            self.emit(ClientEvent::Stream { stream, what });
        }
    }
}

/// Returns true if the name is this relay's.
fn is_called(relay: &weft_path::Hop, name: &RelayName) -> bool {
    match name {
        RelayName::Rsa(rsa) => relay.rsa == *rsa,
        RelayName::Ed25519(ed25519) => relay.ed25519 == *ed25519,
        RelayName::Nickname(nickname) => relay.nickname.eq_ignore_ascii_case(nickname),
    }
}

/// Returns true if circuit `a` is the better one of two that a stream may use (C tor's
/// `circuit_is_better`).
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

/// The address of an answer that an application gets (`connection_ap_handshake_socks_got_resolved_cell`).
fn first_address(resolved: &Resolved, listener: &ListenerConfig) -> Option<IpAddr> {
    let first = |v4: bool| {
        let mut kinds = resolved.answers.iter().map(|answer| &answer.kind);
        kinds.find_map(|kind| match kind {
            AnswerKind::Ipv4(addr) if v4 && listener.ipv4 => Some(IpAddr::from(*addr)),
            AnswerKind::Ipv6(addr) if !v4 && listener.ipv6 => Some(IpAddr::from(*addr)),
            _ => None,
        })
    };
    let v4_first = !listener.prefer_ipv6;
    first(v4_first).or_else(|| first(!v4_first))
}
