//! The real node behind a control port: the client, by its [`Access`], and the main thread, by asks
//! that it takes when it can.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::Resolved;
use weft_core::address::ConnectionId;
use weft_core::origin::{AppOpening, AppProtocol, LinkState, OriginId};
use weft_path::{Countries, PathError, RelayName};

use super::backend::{Backend, Change, Document, Done, Order, OrderFailed, Signal, Which};
use super::events::Event;
use super::shelf::Shelf;
use super::view::{
    BootstrapView, CircuitView, LinkView, NodeView, StreamView, iso_time, long_name,
};
use crate::client::chooser::{BuildTimeouts, Chooser as _};
use crate::client::events::{
    Bootstrap, CircuitEnd, CircuitInfo, CircuitPurpose, CircuitStatus, ClientEvent, StreamEnd,
    StreamInfo, StreamNews, StreamPurpose, StreamStatus,
};
use crate::client::machine::OrderError;
use crate::client::virtual_addresses::Virtual;
use crate::client::{Access, Inside};
use crate::thread::mesh::WakeUp;

/// Events that a controller may be behind.
const EVENTS: usize = 4096;
/// Asks that may wait for the main thread.
const ASKS: usize = 64;

/// What the main thread is asked for.
#[derive(Debug)]
pub enum Ask {
    /// A change of the configuration; how it went.
    Configure(Change, oneshot::Sender<Result<(), OrderFailed>>),
    /// A signal.
    Signal(Signal),
    /// A controller wants log lines of this kind: `INFO` or `DEBUG`.
    Log(&'static str),
    /// Our descriptors as they would be published now; or why not.
    Descriptors(oneshot::Sender<Result<String, &'static str>>),
}

/// What is remembered of events.
#[derive(Debug, Default)]
struct Known {
    established: bool,
    enough: bool,
    links: BTreeMap<ConnectionId, LinkView>,
    /// The consensus that was told last, and its relays.
    consensus: Option<[u8; 32]>,
    relays: BTreeMap<[u8; 20], String>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Node {
    view: watch::Receiver<Arc<NodeView>>,
    events: broadcast::Sender<Event>,
    access: watch::Receiver<Option<Access>>,
    asks: mpsc::Sender<Ask>,
    main: WakeUp,
    known: Arc<Mutex<Known>>,
    shelf: Arc<Mutex<Shelf>>,
}

/// The main thread's ends.
#[derive(Debug)]
pub struct NodeEnds {
    /// What controllers see without asking.
    pub view: watch::Sender<Arc<NodeView>>,
    /// What happens.
    pub events: broadcast::Sender<Event>,
    /// The client, once there is one.
    pub access: watch::Sender<Option<Access>>,
    /// What controllers want.
    pub asks: mpsc::Receiver<Ask>,
}

impl Node {
    /// With its other ends. `main` wakes the main thread.
    #[must_use]
    pub fn new(first: NodeView, access: Option<Access>, main: WakeUp) -> (Self, NodeEnds) {
        let (sender, view) = watch::channel(Arc::new(first));
        let (asks, asked) = mpsc::channel(ASKS);
        let (events, _) = broadcast::channel(EVENTS);
        let (client, access) = watch::channel(access);
        let node = Self {
            view,
            events: events.clone(),
            access,
            asks,
            main,
            known: Arc::default(),
            shelf: Arc::default(),
        };
        let ends = NodeEnds {
            view: sender,
            events,
            access: client,
            asks: asked,
        };
        (node, ends)
    }

    /// The client, if there is one.
    fn access(&self) -> Option<Access> {
        self.access.borrow().clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // What is known is whole at any time.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // What is half read is read again.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is a network: all of its relays are told if its consensus is another (NEWCONSENSUS),
    /// and of those that both list the ones that changed (NS; C tor's
    /// `notify_control_networkstatus_changed`).
    fn on_consensus(&self, digest: [u8; 32]) -> Vec<Event> {
        if self.known().consensus.replace(digest) == Some(digest) {
            return Vec::new();
        }
        let directory = self.view.borrow().options.files.cache_directory.clone();
        let all = self
            .shelf()
            .find(&directory, &Which::All, Document::RouterStatus);
        let relays = self.shelf().statuses(&directory);
        let mut known = self.known();
        let changed: String = match known.relays.is_empty() {
            true => all.clone().unwrap_or_default(),
            false => relays
                .iter()
                .filter(|(id, new)| known.relays.get(*id).is_some_and(|old| old != *new))
                .map(|(_, new)| new.as_str())
                .collect(),
        };
        known.relays = relays;
        let mut events = vec![
            Event::Status("STATUS_CLIENT", "NOTICE CONSENSUS_ARRIVED".to_owned()),
            Event::Consensus(all.unwrap_or_default().into()),
        ];
        if !changed.is_empty() {
            events.push(Event::Statuses(changed.into()));
        }
        events
    }

    /// Tells controllers what the client tells, until it ends.
    pub async fn feed(self) {
        let mut client = self.access.clone();
        let mut events = loop {
            let events = client.borrow_and_update().as_ref().map(Access::events);
            match events {
                Some(events) => break events,
                None if client.changed().await.is_err() => return,
                None => {}
            }
        };
        loop {
            match events.recv().await {
                Ok(event) => {
                    for event in self.translate(event) {
                        // Nobody may listen.
                        let _ = self.events.send(event);
                    }
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!("{missed} events of the client were missed");
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn translate(&self, event: ClientEvent) -> Vec<Event> {
        let status = |text: &str| Event::Status("STATUS_CLIENT", text.to_owned());
        vec![match event {
            ClientEvent::Circuit { circuit, reason } => {
                let more = reason.map(circuit_reason).unwrap_or_default();
                Event::Circuit(circuit_view(&circuit), more)
            }
            ClientEvent::Purpose { circuit, was } => {
                Event::Purpose(circuit_view(&circuit), was.name())
            }
            ClientEvent::Stream { stream, what } => stream_event(&stream, &what),
            ClientEvent::Link {
                connection,
                rsa,
                addr: _,
                state,
            } => {
                let link = LinkView {
                    id: connection.0,
                    target: long_name(&rsa, ""),
                    status: link_status(state),
                };
                let mut known = self.known();
                match state {
                    LinkState::Launched | LinkState::Connected => {
                        known.links.insert(connection, link.clone());
                    }
                    LinkState::Failed | LinkState::Closed => {
                        known.links.remove(&connection);
                    }
                }
                Event::Link(link)
            }
            ClientEvent::StreamBytes(all) => {
                Event::StreamBandwidth(all.into_iter().map(|(id, a, b)| (id.0, a, b)).collect())
            }
            ClientEvent::CircuitBytes(all) => Event::CircuitBandwidth(all),
            ClientEvent::Mapped {
                from,
                to,
                expires,
                stream,
            } => {
                let utc = expires.map(|time| iso_time(time.into(), ' '));
                let local = expires.map(crate::logging::local_iso).unwrap_or_default();
                let failed = to.is_none();
                let stream = stream.map(|stream| stream.0);
                let details = Event::map_details(&local, utc.as_deref(), failed, stream);
                Event::Mapped(from, to, details)
            }
            ClientEvent::Network(network) => return self.on_consensus(network.consensus.digest),
            ClientEvent::Guard {
                rsa,
                nickname,
                status,
            } => Event::Guard(long_name(&rsa, &nickname), status),
            ClientEvent::Bootstrap(bootstrap) => Event::Bootstrap(bootstrap_view(&bootstrap)),
            ClientEvent::Established(is) => {
                self.known().established = is;
                let live = Event::Liveness(is);
                // C tor has no word for a network that was switched off.
                return match is {
                    true => vec![status("NOTICE CIRCUIT_ESTABLISHED"), live],
                    false => vec![live],
                };
            }
            ClientEvent::EnoughDirectory(is) => {
                self.known().enough = is;
                status(match is {
                    true => "NOTICE ENOUGH_DIR_INFO",
                    false => "NOTICE NOT_ENOUGH_DIR_INFO",
                })
            }
        }]
    }

    /// Asks the client.
    async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(Inside<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        self.access()?.with(what).await
    }
}

impl Backend for Node {
    fn node(&self) -> Arc<NodeView> {
        self.view.borrow().clone()
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    async fn circuits(&self) -> Vec<CircuitView> {
        self.ask(|inside| inside.client.circuits().map(|c| circuit_view(&c)).collect())
            .await
            .unwrap_or_default()
    }

    async fn streams(&self) -> Vec<StreamView> {
        self.ask(|inside| {
            let all = inside.client.streams();
            all.map(|stream| stream_view(&stream, stream_status(stream.status)))
                .collect()
        })
        .await
        .unwrap_or_default()
    }

    async fn links(&self) -> Vec<LinkView> {
        self.known().links.values().cloned().collect()
    }

    async fn bootstrap(&self) -> Option<BootstrapView> {
        let bootstrap = self.ask(|inside| inside.bootstrap.clone()).await??;
        Some(bootstrap_view(&bootstrap))
    }

    async fn readiness(&self) -> (bool, bool) {
        let now = self
            .ask(|inside| {
                // What is known is not used (should_delay_dir_fetches).
                let network = inside.client.chooser_ref().network().is_some()
                    && !inside.client.config().disable_network;
                (inside.client.is_established(), network)
            })
            .await;
        let known = self.known();
        now.unwrap_or((known.established, known.enough))
    }

    async fn guards(&self) -> Vec<String> {
        use weft_path::GuardStatus;
        self.ask(|inside| {
            let guards = inside.client.chooser_ref().guards();
            let line = |guard: &weft_path::GuardInfo| {
                let since = |word: &str, time: &Option<std::time::SystemTime>| match time {
                    Some(time) => format!("{word} {}", iso_time((*time).into(), ' ')),
                    None => word.to_owned(),
                };
                let status = match &guard.status {
                    GuardStatus::NeverConnected => "never-connected".to_owned(),
                    GuardStatus::Unusable(time) => since("unusable", time),
                    GuardStatus::Down(time) => since("down", time),
                    GuardStatus::Up => "up".to_owned(),
                };
                format!("{} {status}", long_name(&guard.rsa, &guard.nickname))
            };
            guards.iter().map(line).collect()
        })
        .await
        .unwrap_or_default()
    }

    async fn maps(&self) -> Vec<(String, String, Option<String>)> {
        self.ask(|inside| {
            let all = inside.client.addresses().entries();
            let line = |(from, to)| (in_brackets(from), in_brackets(to), None);
            all.into_iter().map(line).collect()
        })
        .await
        .unwrap_or_default()
    }

    async fn document(&self, which: Which, document: Document) -> Option<String> {
        let directory = self.view.borrow().options.files.cache_directory.clone();
        self.shelf().find(&directory, &which, document)
    }

    fn countries(&self) -> Arc<Countries> {
        let options = self.view.borrow().options.clone();
        self.shelf().countries(&options.settings)
    }

    async fn fresh_descriptors(&self) -> Result<String, &'static str> {
        const ENDED: &str = "Error generating descriptor";
        let (reply, answer) = oneshot::channel();
        let sent = self.asks.send(Ask::Descriptors(reply)).await;
        self.main.notify();
        sent.map_err(|_| ENDED)?;
        answer.await.map_err(|_| ENDED)?
    }

    async fn order(&self, order: Order) -> Result<Done, OrderFailed> {
        let names = |path: &[String]| {
            path.iter()
                .map(|name| {
                    name.parse::<RelayName>()
                        .map_err(|_| OrderFailed::new(552, format!("No such router \"{name}\"")))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        if let Order::MapAddress { from, to } = &order
            && let Some(kind) = Virtual::asked(from)
        {
            let networks = self.view.borrow().options.apps.virtual_networks;
            let to = to.clone();
            let mapped = self.ask(move |inside| {
                let rng = &mut rand::rng();
                inside.client.map_virtual_address(kind, &to, networks, rng)
            });
            return match mapped.await.flatten() {
                Some(from) => Ok(Done::Name(in_brackets(from))),
                None => Err(OrderFailed::new(451, "There is no free virtual address")),
            };
        }
        match &order {
            Order::DropGuards => tracing::warn!(
                "A controller has all guards dropped: others are drawn, and each may be hostile"
            ),
            Order::DropTimeouts => {
                tracing::warn!("A controller has the times forgotten that building circuits took")
            }
            _ => {}
        }
        let dropped = order == Order::DropTimeouts;
        let relays = match &order {
            Order::NewCircuit { path, .. } | Order::ExtendCircuit { path, .. } => names(path)?,
            _ => Vec::new(),
        };
        let done = self
            .ask(move |inside| carry_out(inside, order, &relays).map_err(failed))
            .await
            .unwrap_or_else(|| Err(OrderFailed::new(551, "This node is no client")));
        if dropped && done.is_ok() {
            let times = self.ask(|inside| inside.client.chooser().timeouts()).await;
            if let Some(times) = times {
                // Nobody may listen.
                let _ = self
                    .events
                    .send(Event::BuildTimes(build_times_reset(times)));
            }
        }
        done
    }

    async fn look_up(&self, name: String, address: Option<IpAddr>) -> Option<Resolved> {
        let what = match address {
            Some(addr) => AppOpening::ResolvePtr { addr },
            None => AppOpening::Resolve { name },
        };
        self.access()?.look_up(what).await
    }

    async fn configure(&self, change: Change) -> Result<(), OrderFailed> {
        let ended = || OrderFailed::new(551, "The node ends");
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Configure(change, reply);
        self.asks.send(ask).await.map_err(|_| ended())?;
        self.main.notify();
        answer.await.map_err(|_| ended())?
    }

    fn signal(&self, signal: Signal) {
        // Who sends more of them than can wait loses some.
        let _ = self.asks.try_send(Ask::Signal(signal));
        self.main.notify();
    }

    fn want_log(&self, kind: &'static str) {
        let _ = self.asks.try_send(Ask::Log(kind));
        self.main.notify();
    }
}

/// What BUILDTIMEOUT_SET tells when nothing is known of build times any more
/// (`cbt_control_event_buildtimeout_set`).
fn build_times_reset(times: BuildTimeouts) -> String {
    format!(
        "RESET TOTAL_TIMES=0 TIMEOUT_MS={} XM=0 ALPHA=0.000000 CUTOFF_QUANTILE=1.000000 \
         TIMEOUT_RATE=0.000000 CLOSE_MS={} CLOSE_RATE=0.000000",
        times.timeout.as_millis(),
        times.close.as_millis()
    )
}

/// IPv6 addresses stand in brackets.
fn in_brackets(host: String) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host,
    }
}

fn carry_out(inside: Inside<'_>, order: Order, relays: &[RelayName]) -> Result<Done, OrderError> {
    let Inside { client, now, .. } = inside;
    let purpose = |controller| match controller {
        true => CircuitPurpose::Controller,
        false => CircuitPurpose::General,
    };
    match order {
        Order::NewCircuit { controller, .. } => {
            let id = client.new_circuit(relays, purpose(controller), now)?;
            return Ok(Done::Circuit(id.0));
        }
        Order::ExtendCircuit { circuit, .. } => {
            client.extend_circuit(OriginId(circuit), relays, now)?;
            return Ok(Done::Circuit(circuit));
        }
        Order::SetPurpose {
            circuit,
            controller,
        } => client.set_purpose(OriginId(circuit), purpose(controller), now)?,
        Order::CloseCircuit { circuit, if_unused } => {
            client.close(OriginId(circuit), if_unused, now)?;
        }
        Order::AttachStream {
            stream,
            circuit,
            hop,
        } => {
            let to = circuit.map(|circuit| (OriginId(circuit), hop));
            client.attach_stream(ConnectionId(stream), to, now)?;
        }
        Order::RedirectStream { stream, host, port } => {
            client.redirect_stream(ConnectionId(stream), &host, port)?;
        }
        Order::CloseStream { stream, reason } => {
            client.close_stream(ConnectionId(stream), EndReason(reason), now)?;
        }
        Order::MapAddress { from, to } => client.map_address(&from, &to)?,
        Order::DropGuards => client.chooser().drop_guards(now, &mut rand::rng()),
        Order::DropTimeouts => client.chooser().drop_timeouts(),
    }
    Ok(Done::Done)
}

/// C tor's code for what went wrong.
fn failed(error: OrderError) -> OrderFailed {
    let code = match &error {
        OrderError::NoCircuit(_) | OrderError::NoStream(_) => 552,
        OrderError::NotWaiting => 555,
        OrderError::NoPath(PathError::UnknownRelay(name)) => {
            return OrderFailed::new(552, format!("No such router \"{name}\""));
        }
        OrderError::NoPath(_) => return OrderFailed::new(551, "Couldn't start circuit"),
        _ => 551,
    };
    OrderFailed::new(code, error.to_string())
}

fn bootstrap_view(bootstrap: &Bootstrap) -> BootstrapView {
    BootstrapView {
        progress: bootstrap.percent,
        tag: bootstrap.tag.to_owned(),
        summary: bootstrap.summary.to_owned(),
    }
}

fn circuit_view(circuit: &CircuitInfo) -> CircuitView {
    let mut build_flags = Vec::new();
    if circuit.purpose == CircuitPurpose::Directory {
        build_flags.extend(["ONEHOP_TUNNEL", "IS_INTERNAL"]);
    }
    if circuit.need_capacity {
        build_flags.push("NEED_CAPACITY");
    }
    if circuit.need_uptime {
        build_flags.push("NEED_UPTIME");
    }
    let credentials = circuit.used_by.as_ref().and_then(|(fields, mixed)| {
        let same = !mixed.has(crate::client::isolation::Isolation::AUTH);
        fields.credentials.clone().filter(|_| same)
    });
    CircuitView {
        id: circuit.id.0,
        status: match circuit.status {
            CircuitStatus::Launched => "LAUNCHED",
            CircuitStatus::Extended => "EXTENDED",
            CircuitStatus::GuardWait => "GUARD_WAIT",
            CircuitStatus::Built => "BUILT",
            CircuitStatus::Failed => "FAILED",
            CircuitStatus::Closed => "CLOSED",
        },
        path: circuit.path.iter().take(circuit.built).cloned().collect(),
        build_flags,
        purpose: circuit.purpose.name(),
        created: circuit.created,
        credentials,
    }
}

fn circuit_reason(end: CircuitEnd) -> String {
    match end.remote {
        Some(remote) => {
            let name = crate::client::events::EndOfCircuit::Destroy(remote).name();
            format!(" REASON=DESTROYED REMOTE_REASON={name}")
        }
        None => format!(" REASON={}", end.reason.name()),
    }
}

fn link_status(state: LinkState) -> &'static str {
    match state {
        LinkState::Launched => "LAUNCHED",
        LinkState::Connected => "CONNECTED",
        LinkState::Failed => "FAILED",
        LinkState::Closed => "CLOSED",
    }
}

fn stream_status(status: StreamStatus) -> &'static str {
    match status {
        StreamStatus::New => "NEW",
        StreamStatus::NewResolve => "NEWRESOLVE",
        StreamStatus::ControllerWait => "CONTROLLER_WAIT",
        StreamStatus::SentConnect => "SENTCONNECT",
        StreamStatus::SentResolve => "SENTRESOLVE",
        StreamStatus::Succeeded => "SUCCEEDED",
    }
}

fn stream_view(stream: &StreamInfo, status: &'static str) -> StreamView {
    StreamView {
        id: stream.id.0,
        status,
        circuit: stream.circuit.map_or(0, |circuit| circuit.0),
        // IPv6 addresses in brackets, as C tor has them.
        target: match stream.host.contains(':') {
            true => format!("[{}]:{}", stream.host, stream.port),
            false => format!("{}:{}", stream.host, stream.port),
        },
        source: stream.source,
        purpose: match stream.purpose {
            StreamPurpose::User => "USER",
            StreamPurpose::DnsRequest => "DNS_REQUEST",
            StreamPurpose::DirFetch => "DIR_FETCH",
        },
        protocol: match stream.fields.protocol {
            AppProtocol::Socks4 => "SOCKS4",
            AppProtocol::Socks5 => "SOCKS5",
            AppProtocol::HttpConnect => "HTTPCONNECT",
            AppProtocol::Dns => "DNS",
            AppProtocol::Internal => "UNKNOWN",
        },
        nym_epoch: stream.fields.nym_epoch,
        session_group: stream.fields.session_group,
        isolation: stream.isolation.names(),
        credentials: stream.fields.credentials.clone(),
    }
}

fn stream_event(stream: &StreamInfo, what: &StreamNews) -> Event {
    let reason = |end: &StreamEnd| match end.names() {
        (reason, Some(remote)) => format!(" REASON={reason} REMOTE_REASON={remote}"),
        (reason, None) => format!(" REASON={reason}"),
    };
    let (status, more) = match what {
        StreamNews::New => ("NEW", String::new()),
        StreamNews::NewResolve => ("NEWRESOLVE", String::new()),
        StreamNews::Remap { by_exit: true } => ("REMAP", " SOURCE=EXIT".to_owned()),
        StreamNews::Remap { by_exit: false } => ("REMAP", String::new()),
        StreamNews::SentConnect => ("SENTCONNECT", String::new()),
        StreamNews::SentResolve => ("SENTRESOLVE", String::new()),
        StreamNews::Succeeded => ("SUCCEEDED", String::new()),
        StreamNews::Failed(end) => ("FAILED", reason(end)),
        StreamNews::Closed(end) => ("CLOSED", reason(end)),
        StreamNews::Detached(end) => ("DETACHED", reason(end)),
        StreamNews::ControllerWait => ("CONTROLLER_WAIT", String::new()),
    };
    Event::Stream(stream_view(stream, status), more)
}
