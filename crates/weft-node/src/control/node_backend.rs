//! The [`Backend`] of a running node: it reaches the client thread by [`Access`] and the main thread by
//! [`MainRequest`]s.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use weft_cell::identity::RsaIdentity;
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::Resolved;
use weft_client::{
    BuildTimeouts, Chooser as _, CircuitPurpose, ClientEvent, ControlError, MapSource, Virtual,
};
use weft_core::address::ConnectionId;
use weft_core::controller::OpenLink;
use weft_core::origin::{AppOpening, OriginId};
use weft_dir::documents::CachedDocuments;
use weft_dir::downloads::Downloads;
use weft_dircache::shown;
use weft_path::{Countries, PathError, RelayName};

use super::backend::{
    Backend, ClientCommand, CommandError, CommandOutput, ConfigCommand, Descriptors, DocumentKind,
    RelaySelector, Signal,
};
use super::client_view::{
    bootstrap_view, circuit_reasons, circuit_view, link_status, link_view, stream_event,
    stream_status, stream_view,
};
use super::document_cache::DocumentCache;
use super::events::{Event, Mapping};
use super::view::{
    BootstrapView, CircuitView, LinkView, NodeView, StreamView, iso_time, long_name,
};
use crate::client::{Access, ClientNews, Inside};
use crate::wake::WakeUp;

/// Events that a slow controller may have unread.
const EVENTS: usize = 4096;
/// Requests that may wait for the main thread.
const REQUESTS: usize = 64;

/// A request of the control thread to the main thread.
#[derive(Debug)]
pub(crate) enum MainRequest {
    /// Run a command about the configuration and send its result.
    Configure(ConfigCommand, oneshot::Sender<Result<(), CommandError>>),
    /// Handle a signal.
    Signal(Signal),
    /// See [`Backend::enable_events`].
    Events(&'static str),
    /// Send the relay's documents ([`Backend::fresh_descriptors`]).
    Descriptors(oneshot::Sender<Result<String, &'static str>>),
    /// Send all connections to relays and clients.
    Links(oneshot::Sender<Vec<OpenLink>>),
}

/// The state that follows from the client's events so far.
#[derive(Debug, Default)]
struct EventState {
    established: bool,
    enough: bool,
    /// The digest of the last consensus that controllers were notified of.
    consensus: Option<[u8; 32]>,
    /// Its entries, by RSA identity.
    relays: BTreeMap<RsaIdentity, String>,
}

/// The [`Backend`] of a running node.
#[derive(Clone, Debug)]
pub(crate) struct NodeBackend {
    view: watch::Receiver<Arc<NodeView>>,
    events: broadcast::Sender<Event>,
    access: watch::Receiver<Option<Access>>,
    requests: mpsc::Sender<MainRequest>,
    main: WakeUp,
    event_state: Arc<Mutex<EventState>>,
    documents: Arc<Mutex<DocumentCache>>,
    /// Documents that a relay's directory serves.
    served: Option<Arc<CachedDocuments>>,
}

/// The main thread's ends of the channels.
#[derive(Debug)]
pub(crate) struct NodeBackendEnds {
    /// Publishes the node's state.
    pub view: watch::Sender<Arc<NodeView>>,
    /// Sends events to controllers.
    pub events: broadcast::Sender<Event>,
    /// The client, once it runs.
    pub access: watch::Sender<Option<Access>>,
    /// The requests of controllers.
    pub asks: mpsc::Receiver<MainRequest>,
}

impl NodeBackend {
    /// The backend and the main thread's ends. `served` is what a relay's directory serves; `main` wakes the main
    /// thread.
    #[must_use]
    pub(crate) fn new(
        first: NodeView,
        access: Option<Access>,
        served: Option<Arc<CachedDocuments>>,
        main: WakeUp,
    ) -> (Self, NodeBackendEnds) {
        let (sender, view) = watch::channel(Arc::new(first));
        let (requests, asks) = mpsc::channel(REQUESTS);
        let (events, _) = broadcast::channel(EVENTS);
        let (client, access) = watch::channel(access);
        let node = Self {
            view,
            events: events.clone(),
            access,
            requests,
            main,
            event_state: Arc::default(),
            documents: Arc::default(),
            served,
        };
        let ends = NodeBackendEnds {
            view: sender,
            events,
            access: client,
            asks,
        };
        (node, ends)
    }

    fn access(&self) -> Option<Access> {
        self.access.borrow().clone()
    }

    fn event_state(&self) -> MutexGuard<'_, EventState> {
        // No change of it can stop halfway, so that a panic elsewhere leaves it consistent.
        self.event_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn documents(&self) -> MutexGuard<'_, DocumentCache> {
        // A file that was read in part is read again.
        self.documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A relay's name, with its nickname if the consensus lists it.
    fn name_of(&self, rsa: &RsaIdentity) -> String {
        let directory = self.view.borrow().options.files.cache_directory.clone();
        let nickname = self.documents().nickname(&directory, rsa);
        long_name(rsa, &nickname.unwrap_or_default())
    }

    /// Makes the events of a network in use: if its consensus is new, NEWCONSENSUS with all relays, and NS
    /// with those that the previous one listed differently (C tor's `notify_control_networkstatus_changed`).
    fn on_consensus(&self, digest: [u8; 32]) -> Vec<Event> {
        if self.event_state().consensus.replace(digest) == Some(digest) {
            return Vec::new();
        }
        let directory = self.view.borrow().options.files.cache_directory.clone();
        let all =
            self.documents()
                .find(&directory, &RelaySelector::All, DocumentKind::RouterStatus);
        let relays = self.documents().statuses(&directory);
        let mut known = self.event_state();
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

    /// Sends the client's events to controllers, until the client ends.
    pub(crate) async fn forward_events(self) {
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
                        // Without controllers there is no receiver.
                        let _ = self.events.send(event);
                    }
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!("{missed} events of the client were lost");
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn translate(&self, news: ClientNews) -> Vec<Event> {
        match news {
            ClientNews::Event(event) => self.translate_event(*event),
            ClientNews::Network(network) => self.on_consensus(network.consensus.digest),
        }
    }

    fn translate_event(&self, event: ClientEvent) -> Vec<Event> {
        let status = |text: &str| Event::Status("STATUS_CLIENT", text.to_owned());
        vec![match event {
            ClientEvent::Circuit { circuit, reason } => {
                let reasons = reason.map(circuit_reasons).unwrap_or_default();
                Event::Circuit(circuit_view(&circuit), reasons)
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
                let target = self.name_of(&rsa);
                let (status, reason) = link_status(state);
                let id = connection.0;
                Event::Link(LinkView { id, target, status }, reason)
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
                let both = |time: SystemTime| {
                    (crate::logging::local_iso(time), iso_time(time.into(), ' '))
                };
                Event::Mapped(Mapping {
                    from,
                    to,
                    expires: expires.map(both),
                    stream: stream.map(|stream| stream.0),
                })
            }
            ClientEvent::Guard {
                rsa,
                nickname,
                status,
            } => Event::Guard(long_name(&rsa, &nickname), status),
            ClientEvent::Bootstrap(bootstrap) => Event::Bootstrap(bootstrap_view(&bootstrap)),
            ClientEvent::BootstrapProblem(problem) => status(&format!("WARN {}", problem.event())),
            ClientEvent::Established(is) => {
                self.event_state().established = is;
                let live = Event::Liveness(is);
                // C tor has no event for a client that is no longer established.
                return match is {
                    true => vec![status("NOTICE CIRCUIT_ESTABLISHED"), live],
                    false => vec![live],
                };
            }
            ClientEvent::EnoughDirectory(is) => {
                self.event_state().enough = is;
                status(match is {
                    true => "NOTICE ENOUGH_DIR_INFO",
                    false => "NOTICE NOT_ENOUGH_DIR_INFO",
                })
            }
        }]
    }

    /// Runs `what` on the client thread; `None`: there is no client, or it is ending.
    async fn with_client<T: Send + 'static>(
        &self,
        what: impl FnOnce(Inside<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        self.access()?.with(what).await
    }
}

impl Backend for NodeBackend {
    fn node(&self) -> Arc<NodeView> {
        self.view.borrow().clone()
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    async fn circuits(&self) -> Vec<CircuitView> {
        self.with_client(|inside| {
            let all = inside.client.weighed_circuits(inside.now);
            all.map(|circuit| circuit_view(&circuit)).collect()
        })
        .await
        .unwrap_or_default()
    }

    async fn streams(&self) -> Vec<StreamView> {
        self.with_client(|inside| {
            let all = inside.client.streams();
            all.map(|stream| stream_view(&stream, stream_status(stream.status)))
                .collect()
        })
        .await
        .unwrap_or_default()
    }

    async fn links(&self) -> Vec<LinkView> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(MainRequest::Links(reply)).await;
        self.main.notify();
        let links = match sent {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let directory = self.view.borrow().options.files.cache_directory.clone();
        let names = self.documents().nicknames(&directory);
        let view = |link: OpenLink| {
            let name = |rsa| long_name(&rsa, names.get(&rsa).map_or("", String::as_str));
            link_view(link, link.rsa.map(name))
        };
        links.into_iter().map(view).collect()
    }

    async fn bootstrap(&self) -> Option<BootstrapView> {
        let (bootstrap, problem) = self
            .with_client(|inside| (inside.bootstrap.clone(), inside.problem.clone()))
            .await?;
        Some(BootstrapView {
            problem: problem.map(|problem| problem.event()),
            ..bootstrap_view(&bootstrap?)
        })
    }

    async fn readiness(&self) -> (bool, bool) {
        let now = self
            .with_client(|inside| {
                // With DisableNetwork the directory's documents are not used (should_delay_dir_fetches).
                let network = inside.client.chooser_ref().is_ready()
                    && !inside.client.config().disable_network;
                (inside.client.is_established(), network)
            })
            .await;
        let known = self.event_state();
        now.unwrap_or((known.established, known.enough))
    }

    async fn is_dormant(&self) -> bool {
        let dormant = self.with_client(|inside| inside.client.is_dormant());
        dormant.await.unwrap_or(false)
    }

    async fn guards(&self) -> Vec<String> {
        use weft_path::GuardStatus;
        self.with_client(|inside| {
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

    async fn maps(&self) -> Vec<(String, String, MapSource)> {
        self.with_client(|inside| {
            let all = inside.client.addresses().entries();
            let line = |(from, to, source)| (in_brackets(from), in_brackets(to), source);
            all.into_iter().map(line).collect()
        })
        .await
        .unwrap_or_default()
    }

    async fn document(&self, which: RelaySelector, document: DocumentKind) -> Option<String> {
        let directory = self.view.borrow().options.files.cache_directory.clone();
        self.documents().find(&directory, &which, document)
    }

    async fn descriptors(&self, which: Descriptors) -> Option<String> {
        let options = self.view.borrow().options.clone();
        let served = self.served.as_ref().filter(|_| options.directory.cache)?;
        let bytes = match which {
            Descriptors::Of(RelaySelector::All) => shown::descriptors(served),
            Descriptors::Of(RelaySelector::Id(id)) => shown::descriptor_of(served, &id.0.into())?,
            Descriptors::Of(RelaySelector::Nickname(name)) => {
                let directory = &options.files.cache_directory;
                let id = self.documents().named(directory, &name)?;
                shown::descriptor_of(served, &id.0.into())?
            }
            Descriptors::WithHistories => shown::descriptors_with_histories(served),
            Descriptors::ExtraInfo(digest) => shown::extra_info(served, &digest)?,
            Descriptors::Servers(which) => shown::servers(served, &which, SystemTime::now())?,
        };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn downloads(&self) -> Arc<Downloads> {
        let own = self.with_client(|inside| inside.downloads.clone());
        match own.await {
            Some(downloads) => downloads,
            None => self.view.borrow().downloads.clone().unwrap_or_default(),
        }
    }

    fn countries(&self) -> Arc<Countries> {
        let options = self.view.borrow().options.clone();
        self.documents().countries(&options.settings)
    }

    async fn fresh_descriptors(&self) -> Result<String, &'static str> {
        const ENDED: &str = "Error generating descriptor";
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(MainRequest::Descriptors(reply)).await;
        self.main.notify();
        sent.map_err(|_| ENDED)?;
        answer.await.map_err(|_| ENDED)?
    }

    async fn run_command(&self, command: ClientCommand) -> Result<CommandOutput, CommandError> {
        let names = |path: &[String]| {
            path.iter()
                .map(|name| {
                    name.parse::<RelayName>()
                        .map_err(|_| CommandError::new(552, format!("No such router \"{name}\"")))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        if let ClientCommand::MapAddress { from, to } = &command
            && let Some(kind) = Virtual::asked(from)
        {
            let networks = self.view.borrow().options.apps.virtual_networks;
            let to = to.clone();
            let mapped = self.with_client(move |inside| {
                let rng = &mut rand::rng();
                inside.client.map_virtual_address(kind, &to, networks, rng)
            });
            return match mapped.await.flatten() {
                Some(from) => Ok(CommandOutput::MappedName(in_brackets(from.to_string()))),
                None => Err(CommandError::new(451, "There is no free virtual address")),
            };
        }
        match &command {
            ClientCommand::DropGuards => tracing::warn!(
                "A controller has all guards dropped: others are drawn, and each may be hostile"
            ),
            ClientCommand::DropTimeouts => {
                tracing::warn!("A controller has the times forgotten that building circuits took")
            }
            _ => {}
        }
        let dropped = command == ClientCommand::DropTimeouts;
        let relays = match &command {
            ClientCommand::NewCircuit { path, .. } | ClientCommand::ExtendCircuit { path, .. } => {
                names(path)?
            }
            _ => Vec::new(),
        };
        let done = self
            .with_client(move |inside| {
                run_on_client(inside, command, &relays).map_err(command_error)
            })
            .await
            .unwrap_or_else(|| Err(CommandError::new(551, "This node is no client")));
        if dropped && done.is_ok() {
            let times = self
                .with_client(|inside| inside.client.chooser().timeouts())
                .await;
            if let Some(times) = times {
                // Without controllers there is no receiver.
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

    async fn configure(&self, command: ConfigCommand) -> Result<(), CommandError> {
        let ended = || CommandError::new(551, "The node ends");
        let (reply, answer) = oneshot::channel();
        let request = MainRequest::Configure(command, reply);
        self.requests.send(request).await.map_err(|_| ended())?;
        self.main.notify();
        answer.await.map_err(|_| ended())?
    }

    async fn signal(&self, signal: Signal) {
        // Without a main thread the node ends.
        let _ = self.requests.send(MainRequest::Signal(signal)).await;
        self.main.notify();
    }

    async fn enable_events(&self, kind: &'static str) {
        let _ = self.requests.send(MainRequest::Events(kind)).await;
        self.main.notify();
    }
}

/// BUILDTIMEOUT_SET after the recorded build times were dropped (`cbt_control_event_buildtimeout_set`).
fn build_times_reset(times: BuildTimeouts) -> String {
    format!(
        "RESET TOTAL_TIMES=0 TIMEOUT_MS={} XM=0 ALPHA=0.000000 CUTOFF_QUANTILE=1.000000 \
         TIMEOUT_RATE=0.000000 CLOSE_MS={} CLOSE_RATE=0.000000",
        times.timeout.as_millis(),
        times.close.as_millis()
    )
}

/// Puts an IPv6 address into brackets.
fn in_brackets(host: String) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host,
    }
}

/// Runs a command on the client thread. `relays` are the parsed names of its path.
fn run_on_client(
    inside: Inside<'_>,
    command: ClientCommand,
    relays: &[RelayName],
) -> Result<CommandOutput, ControlError> {
    let Inside { client, now, .. } = inside;
    let purpose = |controller| match controller {
        true => CircuitPurpose::Controller,
        false => CircuitPurpose::General,
    };
    match command {
        ClientCommand::NewCircuit { controller, .. } => {
            let id = client.new_circuit(relays, purpose(controller), now)?;
            return Ok(CommandOutput::Circuit(id.0));
        }
        ClientCommand::ExtendCircuit { circuit, .. } => {
            client.extend_circuit(OriginId(circuit), relays, now)?;
            return Ok(CommandOutput::Circuit(circuit));
        }
        ClientCommand::SetPurpose {
            circuit,
            controller,
        } => client.set_purpose(OriginId(circuit), purpose(controller), now)?,
        ClientCommand::CloseCircuit { circuit, if_unused } => {
            client.close(OriginId(circuit), if_unused, now)?;
        }
        ClientCommand::AttachStream {
            stream,
            circuit,
            hop,
        } => {
            let to = circuit.map(|circuit| (OriginId(circuit), hop));
            client.attach_stream(ConnectionId(stream), to, now)?;
        }
        ClientCommand::RedirectStream { stream, host, port } => {
            client.redirect_stream(ConnectionId(stream), &host, port)?;
        }
        ClientCommand::CloseStream { stream, reason } => {
            client.close_stream(ConnectionId(stream), EndReason(reason), now)?;
        }
        ClientCommand::MapAddress { from, to } => client.map_address(&from, &to)?,
        ClientCommand::DropGuards => client.chooser().drop_guards(now, &mut rand::rng()),
        ClientCommand::DropTimeouts => client.chooser().drop_timeouts(),
    }
    Ok(CommandOutput::None)
}

/// The reply with C tor's code for an error of the client.
fn command_error(error: ControlError) -> CommandError {
    let code = match &error {
        ControlError::NoCircuit(_) | ControlError::NoStream(_) => 552,
        ControlError::NotWaiting => 555,
        ControlError::NoPath(PathError::UnknownRelay(name)) => {
            return CommandError::new(552, format!("No such router \"{name}\""));
        }
        ControlError::NoPath(_) => return CommandError::new(551, "Couldn't start circuit"),
        _ => 551,
    };
    CommandError::new(code, error.to_string())
}
