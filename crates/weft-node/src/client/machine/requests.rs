//! What applications ask for, until it waits for a circuit (C tor's
//! `connection_ap_handshake_rewrite_and_attach`).

use std::net::{IpAddr, SocketAddr};

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Answer, AnswerKind, Resolved};
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal, AppRequest, OriginCommand};
use weft_core::routable::is_public;
use weft_path::RelayName;

use crate::client::chooser::Chooser;
use crate::client::config::ListenerConfig;
use crate::client::events::{ClientEvent, StreamEnd, StreamNews};
use crate::client::isolation::Fields;
use crate::logging::safe_client as safe;

use super::streams::{Kind, State, Stream};
use super::{Client, MAX_STREAMS, Now};

/// For how long an answer that needs nobody may be kept, in seconds.
const LITERAL_TTL: u32 = 3600;

/// Why a request is not even tried.
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
    /// For the log.
    line: String,
    /// The request is refused; otherwise it is only spoken of.
    refused: Option<Refused>,
}

impl Broken {
    fn new(line: String, refused: Refused) -> Self {
        let refused = Some(refused);
        Broken { line, refused }
    }
}

impl<C: Chooser> Client<C> {
    /// An application asks.
    pub(super) fn on_request(&mut self, id: ConnectionId, request: &AppRequest, now: Now) {
        if self.streams.contains_key(&id) {
            return;
        }
        if self.streams.len() >= MAX_STREAMS || self.config.disable_network {
            let why = AppRefusal::General;
            self.command(OriginCommand::Refuse { stream: id, why });
            return;
        }
        let stream = self.new_stream(id, request, now);
        self.begin(stream, now);
    }

    /// A stream as it was asked for.
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
            AppOpening::Connect { host, port } => (Kind::Connect, host.clone(), *port),
            AppOpening::Resolve { name } => (Kind::Resolve, name.clone(), 0),
            AppOpening::ResolvePtr { addr } => (Kind::ResolvePtr(*addr), addr.to_string(), 0),
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
        Stream {
            id,
            kind,
            state: State::Waiting,
            host,
            port,
            source: request
                .from
                .map(|addr| SocketAddr::new(addr, request.from_port)),
            listener,
            fields,
            created: now.mono,
            asked: now.mono,
            silent: 0,
            failed: 0,
            exit: None,
            exit_optional: false,
            for_controller: false,
        }
    }

    /// Takes a stream in: it is refused, answered, or waits.
    pub(super) fn begin(&mut self, stream: Stream, now: Now) {
        let id = stream.id;
        let news = match stream.is_lookup() {
            true => StreamNews::NewResolve,
            false => StreamNews::New,
        };
        self.streams.insert(id, stream);
        self.tell_stream(id, news);
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

    /// Answers a lookup from what is known.
    fn answer(&mut self, id: ConnectionId, resolved: Resolved) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        if stream.for_controller {
            self.outputs.push_back(super::Output::Looked {
                stream: id,
                resolved: resolved.clone(),
            });
        }
        // A controller's lookup has an edge, too, which is over by this.
        self.command(OriginCommand::AnswerResolve {
            stream: id,
            resolved,
        });
        self.tell(ClientEvent::Stream {
            stream: stream.info(),
            what: StreamNews::Closed(StreamEnd::Local(EndReason::DONE)),
        });
    }

    /// Applies maps and rules. An answer, where none has to be asked for.
    fn rewrite(&mut self, id: ConnectionId, now: Now) -> Result<Option<Resolved>, Refused> {
        let mapped = self
            .streams
            .get(&id)
            .and_then(|stream| self.addresses.rewrite(&stream.host));
        if let (Some(host), Some(stream)) = (mapped, self.streams.get_mut(&id)) {
            stream.host = host;
            self.tell_stream(id, StreamNews::Remap { by_exit: false });
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(None);
        };
        // Only maps may lead to these: applications that name them were refused before.
        if let Some(rest) = stream.host.strip_suffix(".exit") {
            let (host, exit) = rest.rsplit_once('.').ok_or_else(Refused::malformed)?;
            let Ok(exit) = exit.parse::<RelayName>() else {
                tracing::warn!("Malformed exit address '{}'. Refusing.", safe(&stream.host));
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
            return Err(Refused::malformed());
        }
        let (checked, answer) = match stream.kind {
            Kind::Directory(_) => (Ok(()), None),
            Kind::Resolve => (check_listener(stream), stream.address().map(literal)),
            Kind::ResolvePtr(addr) => {
                let internal = self.config.reject_internal_answers && !is_public(addr);
                (Ok(()), internal.then(|| single(AnswerKind::Error)))
            }
            Kind::Connect => {
                let checked = check_listener(stream).and_then(|()| self.check_connect(stream));
                (checked, None)
            }
        };
        match checked {
            Ok(()) => Ok(answer),
            Err(broken) => {
                if let Some(more) = self.refusals.check(now.mono) {
                    tracing::warn!("{}{more}", broken.line);
                }
                broken.refused.map_or(Ok(answer), Err)
            }
        }
    }

    /// The rules for connections.
    fn check_connect(&self, stream: &Stream) -> Result<(), Broken> {
        if stream.port == 0 {
            let line = "Application asked to connect to port 0. Refusing.".to_owned();
            return Err(Broken::new(line, Refused::malformed()));
        }
        let local = match stream.address() {
            Some(addr) => !is_public(addr),
            None => is_local_name(&stream.host),
        };
        if self.config.reject_internal && (stream.exit.is_none() || stream.exit_optional) && local {
            let line = format!(
                "Rejecting SOCKS request for anonymous connection to private address {}.",
                safe(&stream.host)
            );
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
            line: format!(
                "Application request to port {}: this port is commonly used for unencrypted \
                 protocols. Please make sure you don't send anything you would mind the rest of \
                 the Internet reading!{}",
                stream.port,
                if rejected { " Closing." } else { "" }
            ),
            refused: rejected.then(Refused::policy),
        })
    }

    /// A controller lets a stream go that it held: to any circuit.
    pub(super) fn release(&mut self, id: ConnectionId, now: Now) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = State::Waiting;
            self.rewrite_and_serve(id, now);
        }
    }
}

/// What a listener lets through.
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
    let line = format!(
        "Refusing to connect to {}: its port does not take {what}.",
        safe(&stream.host)
    );
    Err(Broken::new(line, Refused::policy()))
}

/// Whether a name is this machine's, or its network's, by definition (C tor's
/// `tor_addr_hostname_is_local`).
fn is_local_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".local")
}

/// One answer.
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
    single(match addr {
        IpAddr::V4(v4) => AnswerKind::Ipv4(v4),
        IpAddr::V6(v6) => AnswerKind::Ipv6(v6),
    })
}
