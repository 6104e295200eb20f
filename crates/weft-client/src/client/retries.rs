//! Streams that failed on a circuit: refused by the exit, ended with the circuit, or without an answer.
//! Another circuit is tried, or the stream fails (C tor's circuituse.c, and `connection_edge_process_end_not_open` of relay.c).

use std::net::IpAddr;
use std::time::Duration;

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::origin::{AppRefusal, EndedBy, OriginCommand, OriginId};
use weft_core::routable::is_public;
use weft_log::Line;

use crate::chooser::Chooser;
use crate::events::{CircuitPurpose, RemapSource, StreamEnd, StreamNews};

use crate::now::Now;
use crate::streams::{Stream, StreamEnded, StreamKind, StreamState};

use super::Client;

/// Circuits that a stream is tried on when exits cannot reach its target, or circuits die
/// (C tor's MAX_RESOLVE_FAILURES).
const MAX_ATTEMPTS: u32 = 3;
/// Retries after silence before an exit is given more time.
const QUICK_RETRIES: u32 = 2;

/// Exits that may refuse a stream for their policy's sake before it is given up: each was chosen
/// because it should have taken it.
const MAX_POLICY_ATTEMPTS: u32 = 8;

/// The reply to an application for a reason of END, before its stream was open
/// (C tor's `stream_end_reason_to_socks5_response`).
fn refusal(reason: EndReason) -> AppRefusal {
    match reason {
        EndReason::RESOLVEFAILED | EndReason::NOROUTE => AppRefusal::HostUnreachable,
        EndReason::CONNECTREFUSED | EndReason::DONE | EndReason::CONNRESET => {
            AppRefusal::ConnectionRefused
        }
        EndReason::EXITPOLICY => AppRefusal::NotAllowed,
        EndReason::TIMEOUT => AppRefusal::TtlExpired,
        _ => AppRefusal::General,
    }
}

impl<C: Chooser> Client<C> {
    /// Handles a stream that is no longer on its circuit.
    pub(super) fn on_ended(&mut self, id: ConnectionId, ended: StreamEnded, now: Now) {
        if let Some(circuit) = ended.circuit.and_then(|id| self.circuits.get_mut(&id)) {
            circuit.streams.remove(&id);
            // The end of the circuit itself is reported after its streams.
            circuit.unusable |= ended.by == EndedBy::Circuit;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        // It may have been moved meanwhile.
        let stale = match stream.state {
            StreamState::Waiting | StreamState::Held => ended.circuit.is_some(),
            StreamState::Asked(circuit) | StreamState::Open(circuit) => {
                ended.circuit.is_some_and(|ended| ended != circuit)
            }
        };
        if stale && ended.waiting {
            return;
        }
        let end = match ended.by {
            EndedBy::Exit => StreamEnd::Remote(ended.reason),
            _ => StreamEnd::Local(ended.reason),
        };
        if let (StreamState::Asked(circuit), EndedBy::Exit, true) =
            (stream.state, ended.by, ended.waiting)
        {
            self.note_refusal(circuit, ended.reason, now);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !ended.waiting {
            match (stream.state, ended.by) {
                // Nobody waits for an answer any more.
                (
                    StreamState::Waiting | StreamState::Held | StreamState::Asked(_),
                    EndedBy::Application,
                ) => {
                    let done = StreamEnd::Local(EndReason::DONE);
                    self.emit_stream(id, StreamNews::Closed(done));
                }
                _ => self.emit_over(id, end),
            }
            self.forget_stream(id, &ended.reason.to_string());
            return;
        }
        if matches!(stream.kind, StreamKind::Directory(_)) {
            self.end(id, end);
            return;
        }
        let again = match ended.by {
            EndedBy::Exit => self.may_try_again(id, ended),
            EndedBy::Circuit => {
                stream.failed += 1;
                stream.failed < MAX_ATTEMPTS
            }
            EndedBy::Application | EndedBy::Us => false,
        };
        if again {
            self.detach(id, end, now);
        } else {
            self.refuse(id, end, refusal(ended.reason), now);
        }
    }

    /// The exit of a circuit ended a stream instead of opening it: most reasons show that it has read what was sent
    /// (path-spec 7.2; C tor's `connection_ap_process_end_not_open`).
    fn note_refusal(&mut self, circuit: OriginId, reason: EndReason, now: Now) {
        match reason {
            // A guard that changes cells can cause these.
            EndReason::TORPROTOCOL | EndReason::DESTROY => {
                if let Some(circuit) = self.circuits.get_mut(&circuit) {
                    circuit.unusable = true;
                }
            }
            // Exits sent it where the network was at fault.
            EndReason::INTERNAL => {}
            _ => self.note_answer(circuit, now),
        }
    }

    /// The exit refused a stream: returns whether another may be tried (C tor's
    /// `connection_edge_process_end_not_open`).
    fn may_try_again(&mut self, id: ConnectionId, ended: StreamEnded) -> bool {
        self.leave_exit(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let circuit = ended.circuit.and_then(|id| self.circuits.get_mut(&id));
        match ended.reason {
            EndReason::EXITPOLICY => {
                if let Some(addr) = ended.addr {
                    let wrong_family = match addr {
                        IpAddr::V4(_) => !stream.listener.ipv4,
                        IpAddr::V6(_) => !stream.listener.ipv6,
                    };
                    let internal = self.config.reject_internal_answers && !is_public(addr);
                    if addr.is_unspecified() || wrong_family || internal {
                        self.log(
                            Line::info("An exit resolved a name to ")
                                .client(addr)
                                .text(": closing"),
                        );
                        return false;
                    }
                }
                let literal = stream.address();
                if let Some(circuit) = circuit {
                    // An exit that names no address allows less than its summary, which has no
                    // addresses: a refused address implies nothing about others.
                    match circuit.exit.as_ref().map(|exit| exit.rsa) {
                        Some(exit) if ended.addr.is_none() => _ = self.refusing.insert(exit),
                        Some(exit) => stream.refused_by.push(exit),
                        None => {}
                    }
                    circuit.refused.extend(ended.addr.or(literal));
                }
                stream.failed += 1;
                let again = stream.failed < MAX_POLICY_ATTEMPTS;
                if let Some(addr) = ended.addr.filter(|_| literal.is_none())
                    && let Some(rewritten) = &mut stream.rewritten
                {
                    rewritten.found(addr);
                    self.emit_stream(id, StreamNews::Remap(RemapSource::Exit));
                }
                again
            }
            EndReason::RESOLVEFAILED | EndReason::MISC | EndReason::NOROUTE => {
                stream.failed += 1;
                if stream.failed >= MAX_ATTEMPTS {
                    let line = Line::notice("Have tried resolving or connecting to address '")
                        .client(stream.host())
                        .text(format!("' at {MAX_ATTEMPTS} different places. Giving up."));
                    self.log(line);
                    return false;
                }
                if let Some(circuit) = circuit {
                    circuit.unusable = true;
                }
                true
            }
            EndReason::HIBERNATING | EndReason::RESOURCELIMIT => {
                let Some(exit) = circuit.and_then(|circuit| circuit.exit.as_ref()) else {
                    return false;
                };
                // All exits may be full; then no exit is left.
                self.refusing.insert(exit.rsa);
                stream.failed += 1;
                stream.failed < MAX_POLICY_ATTEMPTS && !stream.is_tied()
            }
            _ => false,
        }
    }

    /// Lets a stream wait for another circuit.
    pub(super) fn detach(&mut self, id: ConnectionId, end: StreamEnd, now: Now) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let circuit = stream.circuit();
        // The event names the circuit.
        self.emit_stream(id, StreamNews::Detached(end));
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = StreamState::Waiting;
        }
        if let Some(circuit) = circuit.and_then(|id| self.circuits.get_mut(&id)) {
            circuit.streams.remove(&id);
        }
        if self.config.leave_streams_unattached {
            self.hold(id);
        } else {
            self.serve_one(id, now);
        }
    }

    /// Lets a stream wait for a controller.
    pub(super) fn hold(&mut self, id: ConnectionId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = StreamState::Held;
            self.emit_stream(id, StreamNews::ControllerWait);
        }
    }

    /// Releases a stream that a controller held: to any circuit.
    pub(super) fn release(&mut self, id: ConnectionId, now: Now) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = StreamState::Waiting;
            self.serve_one(id, now);
        }
    }

    /// No controller holds streams any more.
    pub(super) fn release_held(&mut self, now: Now) {
        for stream in self.streams.values_mut() {
            if stream.state == StreamState::Held {
                stream.state = StreamState::Waiting;
            }
        }
        self.serve(now);
    }

    /// Ends streams that have waited too long, and retries those whose exit does not answer.
    pub(super) fn check_stream_times(&mut self, now: Now) {
        let mut late = Vec::new();
        let mut old = Vec::new();
        for stream in self.streams.values() {
            match stream.state {
                StreamState::Open(_) => {}
                StreamState::Waiting | StreamState::Held => {
                    if now.since(stream.created) >= self.config.socks_timeout {
                        old.push(stream.id);
                    }
                }
                StreamState::Asked(circuit) => {
                    let timeout = self.answer_timeout(stream, circuit);
                    if now.since(stream.asked) >= timeout {
                        late.push((stream.id, circuit));
                    }
                }
            }
        }
        for id in old {
            if let Some(stream) = self.streams.get(&id) {
                let waited = now.since(stream.created).as_secs();
                let line = match stream.kind {
                    StreamKind::Directory(_) => Line::info(format!(
                        "Tried for {waited} seconds to reach a directory. Giving up."
                    )),
                    _ => Line::notice(format!(
                        "Tried for {waited} seconds to get a connection to "
                    ))
                    .client(stream.host())
                    .text(format!(
                        ":{}. Giving up. (waiting for {})",
                        stream.port(),
                        match stream.state {
                            StreamState::Held => "controller",
                            _ => "circuit",
                        }
                    )),
                };
                self.log(line);
            }
            let end = StreamEnd::Local(EndReason::TIMEOUT);
            self.refuse(id, end, AppRefusal::TtlExpired, now);
        }
        for (id, circuit) in late {
            self.on_silence(id, circuit, now);
        }
    }

    /// Time that an exit has to answer.
    fn answer_timeout(&self, stream: &Stream, circuit: OriginId) -> Duration {
        let circuit = self.circuits.get(&circuit);
        let purpose = circuit.map(|circuit| circuit.purpose);
        if purpose == Some(CircuitPurpose::Controller)
            || matches!(stream.kind, StreamKind::Directory(_))
        {
            return self.config.socks_timeout;
        }
        if let Some(timeout) = self.config.stream_timeout {
            return timeout;
        }
        let usual = match stream.silent < QUICK_RETRIES {
            true => Duration::from_secs(10),
            false => Duration::from_secs(15),
        };
        match purpose {
            // A round trip over slow, busy relays takes longer than other circuits have time for,
            // and another tunnel is not faster.
            Some(CircuitPurpose::MtorTunnel) => {
                let waited = stream.asked.saturating_duration_since(stream.created);
                usual.max(self.tunnel_patience().saturating_sub(waited))
            }
            _ => usual,
        }
    }

    /// The exit of a circuit did not answer a stream in time.
    fn on_silence(&mut self, id: ConnectionId, circuit: OriginId, now: Now) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.silent += 1;
        // One exit may be slow, or what it connects to.
        if stream.silent >= QUICK_RETRIES {
            self.outage.late(now.mono);
        }
        self.leave_exit(id);
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let end = StreamEnd::Local(EndReason::TIMEOUT);
        let too_old = now.since(stream.created) >= self.config.socks_timeout;
        if too_old || matches!(stream.kind, StreamKind::Directory(_)) {
            self.refuse(id, end, AppRefusal::TtlExpired, now);
            return;
        }
        let exit = match self.circuits.get_mut(&circuit) {
            Some(circuit) => {
                // Streams on it may continue.
                circuit.unusable = true;
                circuit.hops.last().map(|hop| hop.nickname.clone())
            }
            None => None,
        };
        let tried = now.since(stream.asked).as_secs();
        // As in C tor, the first retries are not worth a notice.
        let text = format!("We tried for {tried} seconds to connect to '");
        let line = match stream.silent > QUICK_RETRIES {
            true => Line::notice(text),
            false => Line::info(text),
        };
        let line = line.client(stream.host()).text(format!(
            "' using exit {}. Retrying on a new circuit.",
            exit.unwrap_or_default()
        ));
        self.log(line);
        self.command(OriginCommand::Detach {
            stream: id,
            reason: EndReason::TIMEOUT,
        });
        self.detach(id, end, now);
    }
}
