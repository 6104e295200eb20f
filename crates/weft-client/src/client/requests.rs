//! Requests of applications, until they wait for a circuit (C tor's
//! `connection_ap_handshake_rewrite_and_attach`).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Answer, Resolved};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest, OriginCommand, OriginId};
use weft_log::Line;

use crate::addresses::{Host, Virtual};
use crate::chooser::Chooser;
use crate::circuits::Circuit;
use crate::events::{ClientEvent, RemapSource, StreamEnd, StreamInfo, StreamNews};
use crate::isolation::Fields;
use crate::now::Now;
use crate::output::Output;
use crate::streams::{
    Checked, Refused, Rewritten, Stream, StreamKind, Verdict, answer_kind, check, plaintext_line,
};

use super::{Client, MAX_STREAMS};

/// The TTL of a virtual address, in seconds (C tor's `dnsserv_resolved`).
const VIRTUAL_TTL: u32 = 60;

/// Why a stream is not sent to an exit: it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotSent {
    Refused,
    /// A lookup that needs no exit.
    Answered,
}

impl<C: Chooser> Client<C> {
    /// Handles a request of an application.
    pub(super) fn on_request(&mut self, id: ConnectionId, request: &AppRequest, now: Now) {
        if self.streams.contains_key(&id) {
            return;
        }
        if self.streams.len() >= MAX_STREAMS || self.config.disable_network {
            let why = AppRefusal::General;
            self.command(OriginCommand::Refuse { stream: id, why });
            return;
        }
        self.wake(now);
        let stream = self.new_stream(id, request, now);
        self.begin(stream, now);
    }

    /// The stream of a request.
    pub(super) fn new_stream(&self, id: ConnectionId, request: &AppRequest, now: Now) -> Stream {
        let number = usize::try_from(request.listener).unwrap_or(usize::MAX);
        let mut listener = self
            .config
            .listeners
            .get(number)
            .copied()
            .unwrap_or_default();
        if request.protocol == AppProtocol::Socks4 {
            listener.ipv6 = false;
        }
        let (kind, host, port) = match &request.opening {
            AppOpening::Connect { host, port } => (StreamKind::Connect, Host::new(host), *port),
            AppOpening::Resolve { name } => (StreamKind::Resolve, Host::new(name), 0),
            AppOpening::ResolvePtr { addr } => (StreamKind::ResolvePtr, Host::from(*addr), 0),
        };
        let fields = Fields {
            stream: id,
            port,
            host: host.clone(),
            credentials: request.credentials.clone(),
            protocol: request.protocol,
            client: request.from,
            session_group: listener.session_group,
            nym_epoch: self.nym_epoch,
        };
        let mut stream = Stream::new(kind, host, port, listener, fields, now.mono);
        stream.source = request
            .from
            .map(|addr| SocketAddr::new(addr, request.from_port));
        stream
    }

    /// Adds a stream: it is refused, answered, or waits.
    pub(super) fn begin(&mut self, stream: Stream, now: Now) {
        let id = stream.id;
        let news = match stream.is_lookup() {
            true => StreamNews::NewResolve,
            false => StreamNews::New,
        };
        self.streams.insert(id, stream);
        self.emit_stream(id, news);
        if self.config.leave_streams_unattached {
            self.hold(id);
        } else {
            self.serve_one(id, now);
        }
    }

    /// Applies maps to a stream, unless that was done, and the rules, and then does `then` for it. One that is not allowed
    /// is over: it was refused, or answered.
    pub(super) fn admit<T>(
        &mut self,
        id: ConnectionId,
        now: Now,
        then: impl FnOnce(&Checked<'_>, &BTreeMap<OriginId, Circuit<C::Guard>>) -> T,
    ) -> Result<T, NotSent> {
        let outcome = match self.rewrite(id, now) {
            Err(refused) => Err(refused),
            Ok(Some(answer)) => Ok(Err(answer)),
            Ok(None) => match self.streams.get(&id) {
                None => return Err(NotSent::Refused),
                Some(stream) => check(stream, &self.config).map(|verdict| match verdict {
                    Verdict::Allowed(checked) => Ok(then(&checked, &self.circuits)),
                    Verdict::Answered(answer) => Err(answer),
                }),
            },
        };
        match outcome {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(answer)) => {
                self.answer(id, answer);
                Err(NotSent::Answered)
            }
            Err(refused) => {
                self.turn_away(id, refused, now);
                Err(NotSent::Refused)
            }
        }
    }

    /// Refuses a stream that breaks a rule.
    fn turn_away(&mut self, id: ConnectionId, refused: Refused, now: Now) {
        let Refused {
            why,
            end,
            line,
            always,
        } = refused;
        self.warn(line, always, now);
        self.refuse(id, end, why, now);
    }

    /// Logs a line about a request.
    fn warn(&mut self, line: Line, always: bool, now: Now) {
        if always {
            self.log(line);
        } else if let Some(more) = self.refusals.check(now.mono) {
            self.log(line.text(more));
        }
    }

    /// Answers a lookup without an exit.
    fn answer(&mut self, id: ConnectionId, resolved: Resolved) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        if stream.for_controller {
            self.outputs.push_back(Output::LookedUp {
                stream: id,
                resolved: resolved.clone(),
            });
        }
        // A controller's lookup has an edge, too, which is over by this.
        self.command(OriginCommand::AnswerResolve {
            stream: id,
            resolved,
        });
        // By what was asked for, as in C tor.
        let info = StreamInfo {
            host: stream.requested.0.to_string(),
            ..self.stream_info(&stream)
        };
        self.emit(ClientEvent::Stream {
            stream: info,
            what: StreamNews::Closed(StreamEnd::Local(EndReason::DONE)),
        });
    }

    /// Applies maps to a stream, unless that was done. Returns the answer if they have one.
    fn rewrite(&mut self, id: ConnectionId, now: Now) -> Result<Option<Resolved>, Refused> {
        let Some(stream) = self.streams.get(&id) else {
            return Ok(None);
        };
        let (kind, (asked, port)) = (stream.kind, &stream.requested);
        if stream.rewritten.is_some() || matches!(kind, StreamKind::Directory(_)) {
            return Ok(None);
        }
        let (mut rewritten, mapped) = match kind {
            StreamKind::ResolvePtr => (Rewritten::reverse(asked), None),
            _ => Rewritten::new(asked, *port, &self.addresses)?,
        };
        if let Some(mapped) = &mapped {
            let mut info = self.stream_info(stream);
            info.host = mapped.to_string();
            self.outputs.push_back(Output::Event(ClientEvent::Stream {
                stream: info,
                what: StreamNews::Remap(RemapSource::Map),
            }));
        }
        if let Some(answer) = self.automap(id, mapped.as_ref())? {
            return Ok(Some(answer));
        }
        if let Some(exit) = self.tracked_exit(kind, rewritten.host(), now) {
            rewritten.keep_to(exit);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(None);
        };
        stream.rewritten = Some(rewritten);
        let Ok(Verdict::Allowed(_)) = check(stream, &self.config) else {
            return Ok(None);
        };
        let (target, port, tied) = (stream.target(), stream.port(), stream.is_tied());
        if let Some(target) = target {
            self.predicted.note(target, now.mono);
            if !tied && self.config.warn_plaintext_ports.contains(&port) {
                self.warn(plaintext_line(port, ""), false, now);
            }
        }
        Ok(None)
    }

    /// The virtual address of a name that is looked up, if it is to have one (connection_edge.c,
    /// `connection_ap_handshake_rewrite`). To a DNSPort, which asks for one family or the other, it has one of each.
    fn automap(
        &mut self,
        id: ConnectionId,
        mapped: Option<&Host>,
    ) -> Result<Option<Resolved>, Refused> {
        let Some(stream) = self.streams.get(&id) else {
            return Ok(None);
        };
        let name = mapped.unwrap_or(&stream.requested.0).clone();
        let is_name = stream.kind == StreamKind::Resolve && name.address().is_none();
        if !is_name || !self.config.automap.covers(name.as_str()) {
            return Ok(None);
        }
        let listener = stream.listener;
        let six = !listener.ipv4
            || (listener.ipv6 && listener.prefer_ipv6)
            || listener.prefer_ipv6_automap;
        let kinds: &[Virtual] = match stream.fields.protocol {
            AppProtocol::Dns => &[Virtual::Ipv4, Virtual::Ipv6],
            AppProtocol::Socks4 => &[Virtual::Ipv4],
            _ if six => &[Virtual::Ipv6],
            _ => &[Virtual::Ipv4],
        };
        let networks = self.config.virtual_networks;
        let mut answers = Vec::new();
        for kind in kinds {
            let addresses = &mut self.addresses;
            let address = addresses.automap(*kind, &name, networks, &mut self.rng);
            answers.extend(address.and_then(|address| address.address()));
        }
        if answers.is_empty() {
            let line = Line::warn("Unable to automap address ").client(&name);
            let end = StreamEnd::Local(EndReason::INTERNAL);
            return Err(Refused::new(AppRefusal::General, end, line));
        }
        let answers = answers.into_iter().map(|addr| Answer {
            kind: answer_kind(addr),
            ttl: VIRTUAL_TTL,
        });
        Ok(Some(Resolved {
            answers: answers.collect(),
        }))
    }
}
