//! Requests of applications, until they wait for a circuit (C tor's
//! `connection_ap_handshake_rewrite_and_attach`).

use std::net::{IpAddr, SocketAddr};

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest, OriginCommand};
use weft_core::routable::is_public;
use weft_log::Line;
use weft_path::RelayName;

use crate::chooser::Chooser;
use crate::config::ListenerConfig;
use crate::events::{ClientEvent, StreamEnd, StreamNews};
use crate::isolation::Fields;

use crate::now::Now;
use crate::output::Output;
use crate::stream::{Stream, StreamKind, StreamState};

use crate::virtual_addresses::Virtual;

use super::{Client, MAX_STREAMS};

/// The TTL of an answer that needs no exit, in seconds.
const LITERAL_TTL: u32 = 3600;
/// The TTL of a virtual address, in seconds (C tor's `dnsserv_resolved`).
const VIRTUAL_TTL: u32 = 60;

/// A request that is refused without a circuit.
struct Refused {
    why: AppRefusal,
    end: StreamEnd,
}

impl Refused {
    fn new(why: AppRefusal, end: StreamEnd) -> Self {
        Refused { why, end }
    }

    /// C tor's END_STREAM_REASON_ENTRYPOLICY.
    fn policy() -> Self {
        Self::new(AppRefusal::NotAllowed, StreamEnd::EntryPolicy)
    }

    /// C tor's END_STREAM_REASON_TORPROTOCOL.
    fn malformed() -> Self {
        let end = StreamEnd::Local(EndReason::TORPROTOCOL);
        Self::new(AppRefusal::General, end)
    }
}

/// A rule that a request breaks.
struct Broken {
    line: Line,
    /// The refusal; `None`: the line is only logged.
    refused: Option<Refused>,
}

impl Broken {
    fn new(line: Line, refused: Refused) -> Self {
        let refused = Some(refused);
        Broken { line, refused }
    }
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
            AppOpening::Connect { host, port } => (StreamKind::Connect, host.clone(), *port),
            AppOpening::Resolve { name } => (StreamKind::Resolve, name.clone(), 0),
            AppOpening::ResolvePtr { addr } => (StreamKind::ResolvePtr(*addr), addr.to_string(), 0),
        };
        let fields = Fields {
            stream: id,
            port,
            host: host.to_ascii_lowercase().into(),
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
            self.rewrite_and_serve(id, now);
        }
    }

    /// Applies maps and rules to a stream, and finds it a circuit.
    fn rewrite_and_serve(&mut self, id: ConnectionId, now: Now) {
        match self.rewrite(id, now) {
            Err(Refused { why, end }) => self.refuse(id, end, why, now),
            Ok(Some(resolved)) => self.answer(id, resolved),
            Ok(None) => {
                if let Some(stream) = self.streams.get(&id)
                    && let Some(target) = stream.target()
                {
                    self.predicted.note(target, now.mono);
                }
                self.serve_one(id, now);
            }
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
        self.emit(ClientEvent::Stream {
            stream: self.stream_info(&stream),
            what: StreamNews::Closed(StreamEnd::Local(EndReason::DONE)),
        });
    }

    /// Applies maps and rules. Returns the answer if it needs no exit.
    fn rewrite(&mut self, id: ConnectionId, now: Now) -> Result<Option<Resolved>, Refused> {
        let mapped = self
            .streams
            .get(&id)
            .and_then(|stream| self.addresses.rewrite(&stream.host));
        if let (Some(host), Some(stream)) = (mapped, self.streams.get_mut(&id)) {
            stream.host = host;
            self.emit_stream(id, StreamNews::Remap { by_exit: false });
        }
        if let Some(answer) = self.automap(id, now)? {
            return Ok(Some(answer));
        }
        self.refuse_unmapped(id)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(None);
        };
        // Only maps lead to these: requests of applications for them were refused before.
        if let Some(rest) = stream.host.strip_suffix(".exit") {
            let (host, exit) = rest.rsplit_once('.').ok_or_else(Refused::malformed)?;
            let Ok(exit) = exit.parse::<RelayName>() else {
                let line = Line::warn("Malformed exit address '")
                    .client(&stream.host)
                    .text("'. Refusing.");
                self.log(line);
                return Err(Refused::malformed());
            };
            stream.exit = Some(exit);
            stream.host = host.to_owned();
        }
        self.keep_to_exit(id, now);
        let Some(stream) = self.streams.get(&id) else {
            return Ok(None);
        };
        // Nor are onion services there by another name; an exit must not hear of them.
        if stream.host.to_ascii_lowercase().ends_with(".onion") {
            let line = Line::warn("")
                .client(&stream.host)
                .text(" is an onion service; this version of Weft cannot connect to them");
            self.log(line);
            return Err(Refused::new(
                AppRefusal::OnionService(0),
                StreamEnd::Local(EndReason::RESOLVEFAILED),
            ));
        }
        let (checked, answer) = match stream.kind {
            StreamKind::Directory(_) => (Ok(()), None),
            StreamKind::Resolve => (check_listener(stream), stream.address().map(literal)),
            StreamKind::ResolvePtr(addr) => {
                let internal = self.config.reject_internal_answers && !is_public(addr);
                (Ok(()), internal.then(|| single(AnswerKind::Error)))
            }
            StreamKind::Connect => {
                let checked = check_listener(stream).and_then(|()| self.check_connect(stream));
                (checked, None)
            }
        };
        match checked {
            Ok(()) => Ok(answer),
            Err(broken) => {
                if let Some(more) = self.refusals.check(now.mono) {
                    self.log(broken.line.text(more));
                }
                broken.refused.map_or(Ok(answer), Err)
            }
        }
    }

    /// The virtual address of a name that is looked up, if it is to have one (connection_edge.c,
    /// `connection_ap_handshake_rewrite`). To a DNSPort, which asks for one family or the other, it has one of each.
    fn automap(&mut self, id: ConnectionId, now: Now) -> Result<Option<Resolved>, Refused> {
        let Some(stream) = self.streams.get(&id) else {
            return Ok(None);
        };
        let name = stream.host.to_ascii_lowercase();
        let is_name = stream.kind == StreamKind::Resolve && stream.address().is_none();
        if !is_name || !self.config.automap.covers(&name) {
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
            answers.extend(address.and_then(|address| address.parse::<IpAddr>().ok()));
        }
        if answers.is_empty() {
            if let Some(more) = self.refusals.check(now.mono) {
                let line = Line::warn("Unable to automap address ").client(&name);
                self.log(line.text(more));
            }
            let end = StreamEnd::Local(EndReason::INTERNAL);
            return Err(Refused::new(AppRefusal::General, end));
        }
        let answers = answers.into_iter().map(|addr| Answer {
            kind: answer_kind(addr),
            ttl: VIRTUAL_TTL,
        });
        Ok(Some(Resolved {
            answers: answers.collect(),
        }))
    }

    /// Refuses a virtual address that stands for nothing (any more): at an exit it would fail, or mean something else.
    fn refuse_unmapped(&mut self, id: ConnectionId) -> Result<(), Refused> {
        let networks = self.config.virtual_networks;
        let kinds = [Virtual::Name, Virtual::Ipv4, Virtual::Ipv6];
        let Some(stream) = self.streams.get(&id).filter(|stream| {
            let asked = matches!(stream.kind, StreamKind::Connect | StreamKind::Resolve);
            asked && kinds.iter().any(|kind| kind.owns(&stream.host, networks))
        }) else {
            return Ok(());
        };
        let line = Line::warn("Missing mapping for virtual address '")
            .client(&stream.host)
            .text("'. Refusing.");
        self.log(line);
        let end = StreamEnd::Local(EndReason::INTERNAL);
        Err(Refused::new(AppRefusal::General, end))
    }

    /// The rules for connections.
    fn check_connect(&self, stream: &Stream) -> Result<(), Broken> {
        if stream.port == 0 {
            let line = Line::warn("Application asked to connect to port 0. Refusing.");
            return Err(Broken::new(line, Refused::malformed()));
        }
        let local = match stream.address() {
            Some(addr) => !is_public(addr),
            None => is_local_name(&stream.host),
        };
        if self.config.reject_internal && (stream.exit.is_none() || stream.exit_optional) && local {
            let line =
                Line::warn("Rejecting SOCKS request for anonymous connection to private address ")
                    .client(&stream.host)
                    .text(".");
            let refused = Refused::new(AppRefusal::General, StreamEnd::PrivateAddr);
            return Err(Broken::new(line, refused));
        }
        if stream.exit.is_some() && !stream.exit_optional {
            return Ok(());
        }
        let rejected = self.config.reject_plaintext_ports.contains(&stream.port);
        if !rejected && !self.config.warn_plaintext_ports.contains(&stream.port) {
            return Ok(());
        }
        Err(Broken {
            line: Line::warn(format!(
                "Application request to port {}: this port is commonly used for unencrypted \
                 protocols. Please make sure you don't send anything you would mind the rest of \
                 the Internet reading!{}",
                stream.port,
                if rejected { " Closing." } else { "" }
            )),
            refused: rejected.then(Refused::policy),
        })
    }

    /// Releases a stream that a controller held: to any circuit.
    pub(super) fn release(&mut self, id: ConnectionId, now: Now) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = StreamState::Waiting;
            self.rewrite_and_serve(id, now);
        }
    }
}

/// Checks a stream against the flags of its listener.
fn check_listener(stream: &Stream) -> Result<(), Broken> {
    let ListenerConfig {
        ipv4, ipv6, dns, ..
    } = stream.listener;
    let (allowed, what) = match stream.address() {
        None => (dns && (ipv4 || ipv6), "host names"),
        Some(IpAddr::V4(_)) => (ipv4, "IPv4 addresses"),
        Some(IpAddr::V6(_)) => (ipv6, "IPv6 addresses"),
    };
    if allowed {
        return Ok(());
    }
    let line = Line::warn("Refusing to connect to ")
        .client(&stream.host)
        .text(format!(": its port does not take {what}."));
    Err(Broken::new(line, Refused::policy()))
}

/// Whether a name is this machine's, or its network's, by definition (C tor's
/// `tor_addr_hostname_is_local`).
fn is_local_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".local")
}

/// A RESOLVED with one answer.
fn single(kind: AnswerKind) -> Resolved {
    Resolved {
        answers: vec![Answer {
            kind,
            ttl: LITERAL_TTL,
        }],
    }
}

/// An address is its own answer.
fn literal(addr: IpAddr) -> Resolved {
    single(answer_kind(addr))
}

fn answer_kind(addr: IpAddr) -> AnswerKind {
    match addr {
        IpAddr::V4(v4) => AnswerKind::Ipv4(v4),
        IpAddr::V6(v6) => AnswerKind::Ipv6(v6),
    }
}
