//! The client's task: passes events, the time and the network to the client, and carries out its outputs.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use weft_cell::identity::RsaIdentity;
use weft_client::{
    Bootstrap, BootstrapProblem, Chooser as _, CircuitInfo, CircuitStatus, Client, ClientEvent,
    EndOfCircuit, Now, Output, Paths, Progress, Remembered, guard_events,
};
use weft_core::address::ConnectionId;
use weft_core::origin::{LinkState, OriginCommand, OriginEvent};
use weft_dir::PairSocket;
use weft_dir::client::{
    ClientDirectory, ClientHandle, ClientOptions, DirConnection, DirOutcome, Network,
};
use weft_dir::clock::SystemClock;
use weft_dir::command::{Event, Severity};
use weft_dir::downloads::Downloads;
use weft_path::GuardInfo;

use super::bridges::{BridgeAnswer, BridgeSide};
use super::messages::{
    ClientCounts, ClientNews, END_PATIENCE, FromClient, Inside, Job, LookUps, Outgoing, ToClient,
};
use super::network::path_params;
use super::settings::ClientSettings;
use super::tunnels::{DirCommand, Tunnels, target};
use crate::{logging, notice};
use weft_log::RateLimit;

/// The interval of [`Client::tick`].
const TICK: Duration = Duration::from_secs(1);
/// The interval at which a full channel to the main thread is tried again.
const FULL: Duration = Duration::from_millis(1);
/// Interval at which a changed state file is written.
const STATE_INTERVAL: Duration = Duration::from_secs(30);
/// Events that are handled before the outputs that they caused.
const EVENTS_PER_TURN: usize = 256;
/// The interval of log lines about one kind of trouble.
const QUIET: Duration = Duration::from_secs(300);

/// A directory stream that waits for its circuit, or that is underway.
#[derive(Debug)]
struct DirStream {
    /// Our end of its socket, and the channel to its user, until it is handed over.
    waiting: Option<(PairSocket, oneshot::Sender<io::Result<DirConnection>>)>,
    /// The RSA identity of the directory.
    rsa: RsaIdentity,
}

/// The state of the client thread.
pub(super) struct Task {
    client: Client<Paths>,
    rng: StdRng,
    bridges: BridgeSide,
    bridge_answers: mpsc::UnboundedReceiver<BridgeAnswer>,
    inbox: mpsc::Receiver<ToClient>,
    jobs: mpsc::Receiver<Job>,
    dir_commands: mpsc::UnboundedReceiver<DirCommand>,
    dir_events: mpsc::UnboundedReceiver<Event>,
    dir_streams: BTreeMap<ConnectionId, DirStream>,
    /// The directories of streams whose outcome is not known, by token.
    dir_asked: BTreeMap<u64, RsaIdentity>,
    directory: ClientHandle,
    /// Its settings, as torrc has them.
    directory_options: ClientOptions,
    /// The client was dormant when the directory got its settings.
    dormant: bool,
    network: watch::Receiver<Option<Arc<Network>>>,
    /// The directory's own task, until it runs.
    directory_task: Option<ClientDirectory>,
    look_ups: LookUps,
    news: broadcast::Sender<ClientNews>,
    out: Outgoing,
    progress: Progress,
    state_saved: Instant,
    skew_lines: RateLimit,
    problem_lines: RateLimit,
    /// The guards as last reported.
    guards: BTreeMap<RsaIdentity, GuardInfo>,
    /// The counts as last reported.
    counts: ClientCounts,
    /// Progress of the directory's fetches.
    downloads: Arc<Downloads>,
    /// `__AlwaysCongestionControl`.
    always_congestion_control: bool,
}

/// Settings of the directory; for a dormant client they make it fetch nothing.
fn directory_of(options: &ClientOptions, dormant: bool) -> ClientOptions {
    ClientOptions {
        fetch: options.fetch && !dormant,
        ..options.clone()
    }
}

impl Task {
    pub(super) fn new(
        settings: ClientSettings,
        state: &[(String, String)],
        seed: [u8; 32],
        inbox: mpsc::Receiver<ToClient>,
        jobs: mpsc::Receiver<Job>,
        news: broadcast::Sender<ClientNews>,
        out: Outgoing,
    ) -> Self {
        let now = now();
        let mut rng = StdRng::from_seed(seed);
        let paths = Paths::new(settings.paths, settings.times, state, now, &mut rng);
        let mut client = Client::new(settings.config, paths, rng.random(), now);
        client.remember(Remembered::read(state), now);
        let (commands, dir_commands) = mpsc::unbounded_channel();
        let tunnels = Arc::new(Tunnels { commands });
        let max_stall = settings.directory.max_stall;
        let (mut bridges, bridge_answers) =
            BridgeSide::new(tunnels.clone(), max_stall, settings.proxied);
        bridges.bridges.configure(&settings.bridges, now.mono);
        bridges.restore(settings.directory.cache_directory.as_deref(), now.wall);
        let (events, dir_events) = mpsc::unbounded_channel();
        let dormant = client.is_dormant();
        let (directory_task, directory) = ClientDirectory::new(
            directory_of(&settings.directory, dormant),
            rng.random(),
            tunnels,
            Arc::new(SystemClock::default()),
            Box::new(move |event| {
                // Few and slow; the task that reads them never stops before its sender.
                let _ = events.send(event);
            }),
        );
        let mut task = Task {
            directory_options: settings.directory,
            dormant,
            client,
            rng,
            bridges,
            bridge_answers,
            inbox,
            jobs,
            dir_commands,
            dir_events,
            dir_streams: BTreeMap::new(),
            dir_asked: BTreeMap::new(),
            always_congestion_control: settings.always_congestion_control,
            network: directory.network(),
            directory,
            directory_task: Some(directory_task),
            look_ups: BTreeMap::new(),
            news,
            out,
            progress: Progress::default(),
            state_saved: now.mono,
            skew_lines: RateLimit::new(QUIET),
            problem_lines: RateLimit::new(QUIET),
            guards: BTreeMap::new(),
            counts: ClientCounts::default(),
            downloads: Arc::default(),
        };
        task.bridges.changed(&mut task.client, &mut task.rng, now);
        task
    }

    /// Runs until the main thread sends [`ToClient::Shutdown`], or has ended.
    pub(super) async fn run(mut self) {
        if let Some(directory) = self.directory_task.take() {
            tokio::spawn(directory.run());
        }
        let start = self.progress.start();
        self.report_progress(start);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let ends = tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(message) => self.take_messages(message),
                    None => true,
                },
                Some(command) = self.dir_commands.recv() => {
                    self.on_dir_command(command);
                    false
                }
                Some(answer) = self.bridge_answers.recv() => {
                    self.on_bridge_answer(answer);
                    false
                }
                Some(event) = self.dir_events.recv() => {
                    self.on_dir_event(event);
                    false
                }
                Some(job) = self.jobs.recv() => {
                    self.on_job(job);
                    false
                }
                changed = self.network.changed() => {
                    if changed.is_ok() {
                        self.on_network();
                    }
                    changed.is_err()
                }
                _ = tick.tick() => {
                    self.on_tick();
                    false
                }
            };
            self.follow_dormancy();
            self.do_all();
            while !self.out.flush() && !ends {
                tokio::time::sleep(FULL).await;
            }
            if ends {
                break;
            }
        }
        self.save_state();
        self.client.close_all(now());
        self.do_all();
        let deadline = Instant::now() + END_PATIENCE / 2;
        while !self.out.flush() && Instant::now() < deadline {
            tokio::time::sleep(FULL).await;
        }
    }

    /// Handles a message and those that wait behind it, up to a bound. Returns whether the task must end.
    fn take_messages(&mut self, first: ToClient) -> bool {
        let now = now();
        if self.take_message(first, now) {
            return true;
        }
        for _ in 0..EVENTS_PER_TURN {
            let Ok(message) = self.inbox.try_recv() else {
                break;
            };
            if self.take_message(message, now) {
                return true;
            }
        }
        false
    }

    /// Handles a message. Returns whether the task must end.
    fn take_message(&mut self, message: ToClient, now: Now) -> bool {
        match message {
            ToClient::Event(event) => {
                let phase = match &event {
                    OriginEvent::Link {
                        state: LinkState::Failed(failure),
                        rsa,
                        addr,
                        ..
                    } => {
                        let problem = self.progress.link_failed(
                            *rsa,
                            *addr,
                            *failure,
                            self.bridges.bridges.are_used(),
                            now.mono,
                        );
                        self.report_problem(problem);
                        None
                    }
                    OriginEvent::Link { state, rsa, .. } => {
                        self.progress.link(*state, self.bridges.via(rsa))
                    }
                    OriginEvent::LinkStep { rsa, step } => {
                        self.progress.link_step(*step, self.bridges.via(rsa))
                    }
                    OriginEvent::Launched { .. } => self.progress.create_sent(),
                    _ => None,
                };
                self.report_progress(phase);
                let met = match &event {
                    OriginEvent::Link {
                        state: LinkState::Connected,
                        rsa,
                        addr,
                        ..
                    } => Some((*addr, *rsa)),
                    _ => None,
                };
                self.client.on_event(event, now);
                if let Some((addr, rsa)) = met {
                    let bridges = &mut self.bridges;
                    bridges.meet((addr, rsa), &mut self.client, &mut self.rng, now);
                    self.run_bridges(now);
                }
            }
            ToClient::Transports(transports) => {
                self.bridges.bridges.set_transports(transports, now.mono);
                self.run_bridges(now);
            }
            ToClient::Settings(settings) => self.on_settings(*settings, now),
            ToClient::NewIdentity => self.client.new_identity(now),
            ToClient::Participate(true) => self.client.wake(now),
            ToClient::Participate(false) => self.client.go_dormant(),
            ToClient::Shutdown => return true,
        }
        false
    }

    /// Follows a changed torrc.
    fn on_settings(&mut self, settings: ClientSettings, now: Now) {
        let paths = self.client.chooser();
        if paths.set_options(settings.paths, settings.times, now, &mut self.rng) {
            tracing::info!("Other relays are wanted or excluded: circuits so far are abandoned");
            self.client.abandon_circuits();
        }
        self.bridges.max_stall = settings.directory.max_stall;
        self.bridges.proxied = settings.proxied;
        self.directory_options = settings.directory;
        self.dormant = self.client.is_dormant();
        let options = directory_of(&self.directory_options, self.dormant);
        self.directory.set_options(options);
        self.always_congestion_control = settings.always_congestion_control;
        let mut changed = self.bridges.bridges.configure(&settings.bridges, now.mono);
        // ReconfigDropsBridgeDescs: the descriptors are fetched again.
        if changed && !settings.bridges.reload_drops_descriptors {
            let directory = self.directory_options.cache_directory.as_deref();
            changed |= self.bridges.restore(directory, now.wall);
        }
        if changed {
            tracing::info!("Other bridges are wanted: circuits so far are abandoned");
            self.bridges.changed(&mut self.client, &mut self.rng, now);
            self.client.abandon_circuits();
        }
        self.client.set_config(settings.config, now);
        self.run_bridges(now);
    }

    /// A bridge has sent its descriptor, or not.
    fn on_bridge_answer(&mut self, answer: BridgeAnswer) {
        let now = now();
        let directory = self.directory_options.cache_directory.as_deref();
        let (client, rng) = (&mut self.client, &mut self.rng);
        self.bridges.on_answer(answer, directory, client, rng, now);
        self.run_bridges(now);
    }

    /// Connects to the bridges, and asks them, as far as that is due.
    fn run_bridges(&mut self, now: Now) {
        self.bridges
            .run(&mut self.client, &self.directory, &mut self.rng, now);
    }

    /// A dormant client fetches nothing, and one that wakes fetches at once.
    fn follow_dormancy(&mut self) {
        let dormant = self.client.is_dormant();
        let options = || directory_of(&self.directory_options, dormant);
        // Otherwise it is tried again with the next message.
        if dormant != self.dormant && self.directory.set_options(options()) {
            self.dormant = dormant;
        }
    }

    /// Follows a new network, or the loss of it.
    fn on_network(&mut self) {
        let now = now();
        let network = self.network.borrow_and_update().clone();
        let had = self.client.chooser_ref().is_ready();
        let has = network.is_some();
        match network {
            Some(network) => {
                self.out.send(FromClient::Network(network.clone()));
                // Without a controller there is no receiver.
                let _ = self.news.send(ClientNews::Network(network.clone()));
                let params = path_params(network.params(), self.always_congestion_control);
                let paths = self.client.chooser();
                if paths.set_network(&network.netdir, &params, now, &mut self.rng) {
                    crate::notice!("Other guards are in use now: circuits so far are abandoned");
                    self.client.abandon_circuits();
                }
                let phase = self.progress.enough();
                self.report_progress(phase);
            }
            None => self.client.chooser().lose_network(),
        }
        if had != has {
            self.report(ClientEvent::EnoughDirectory(has));
        }
        self.client.directory_changed(now);
        // Launch circuits now, not at the next tick.
        self.client.tick(now);
    }

    /// Runs the work of each second.
    fn on_tick(&mut self) {
        let now = now();
        self.client.tick(now);
        self.run_bridges(now);
        if now.mono.saturating_duration_since(self.state_saved) >= STATE_INTERVAL {
            self.save_state();
        }
        self.report_guards();
        self.report_counts();
    }

    /// Sends the main thread what the client counts, if it has changed.
    fn report_counts(&mut self) {
        let is_open = |circuit: &CircuitInfo| circuit.status == CircuitStatus::Built;
        let open = self.client.circuits().filter(is_open).count();
        let counts = ClientCounts {
            open: open as u64,
            probes: self.client.probes(),
            round_trip_limit: self.client.chooser_ref().timeouts().round_trip,
            statements: self.client.statements(),
            tunnels: self.client.tunnel_counts(),
        };
        if counts != self.counts {
            self.counts = counts;
            self.out.send(FromClient::Counts(counts));
        }
    }

    /// Reports the changes of guards since the last second.
    fn report_guards(&mut self) {
        if self.news.receiver_count() == 0 {
            return;
        }
        if self.client.chooser().take_guards_dropped() {
            let none = BTreeMap::new();
            let dropped = std::mem::take(&mut self.guards);
            self.report_guard_events(&dropped, &none);
        }
        let all = self.client.chooser_ref().guards();
        let guards: BTreeMap<_, _> = all.into_iter().map(|guard| (guard.rsa, guard)).collect();
        self.report_guard_events(&self.guards, &guards);
        self.guards = guards;
    }

    fn report_guard_events(
        &self,
        old: &BTreeMap<RsaIdentity, GuardInfo>,
        new: &BTreeMap<RsaIdentity, GuardInfo>,
    ) {
        for (guard, status) in guard_events(old, new) {
            self.report(ClientEvent::Guard {
                rsa: guard.rsa,
                nickname: guard.nickname.clone(),
                status,
            });
        }
    }

    /// Sends the lines for the state file.
    fn save_state(&mut self) {
        self.state_saved = Instant::now();
        let mut lines = self.client.chooser().state_lines();
        lines.extend(self.client.remembered(now()).lines());
        self.out.send(FromClient::State(lines));
    }

    // ---- the directory ----

    fn on_dir_command(&mut self, command: DirCommand) {
        match command {
            DirCommand::Open { source, reply } => {
                let now = now();
                match self.open_directory(source, now) {
                    Ok((id, rsa, ours)) => {
                        let waiting = Some((ours, reply));
                        self.dir_streams.insert(id, DirStream { waiting, rsa });
                        self.client.serve_now(now);
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error));
                    }
                }
            }
            DirCommand::Outcome(token, outcome) => {
                let relay = self.dir_asked.remove(&token);
                if let Some(relay) = relay.filter(|_| outcome == DirOutcome::Bad) {
                    self.client.directory_failed(&relay);
                }
            }
        }
    }

    /// Opens a stream to a directory. Returns its number, its relay, and our end of its socket.
    fn open_directory(
        &mut self,
        source: weft_dir::client::DirSource,
        now: Now,
    ) -> io::Result<(ConnectionId, RsaIdentity, PairSocket)> {
        let id = self
            .client
            .open_directory(&target(source), now)
            .map_err(io::Error::other)?;
        let sockets = socket_pair();
        let rsa = self.client.directory_of(id);
        match (sockets, rsa) {
            (Ok((ours, theirs)), Some(rsa)) => {
                self.out
                    .send(FromClient::Command(OriginCommand::AdoptInternal {
                        stream: id,
                        socket: theirs,
                    }));
                Ok((id, rsa, ours))
            }
            (Err(error), _) => {
                self.client.close_directory(id);
                Err(error)
            }
            (Ok(_), None) => Err(io::Error::other("the stream is gone")),
        }
    }

    fn on_dir_event(&mut self, event: Event) {
        match event {
            Event::Bootstrap {
                percent,
                tag,
                summary,
            } => {
                let phase = self.progress.directory(percent, tag, summary);
                self.report_progress(phase);
            }
            Event::ClockSkew { seconds, source } => {
                if let Some(more) = self.skew_lines.check(Instant::now()) {
                    tracing::warn!(
                        "Our clock differs from the directory's ({source}) by {seconds} seconds: \
                         check your time and date settings{more}"
                    );
                }
            }
            Event::Message(severity, text) => match severity {
                Severity::Info => tracing::info!("{text}"),
                Severity::Notice => notice!("{text}"),
                Severity::Warn => tracing::warn!("{text}"),
            },
            Event::MissingProtocols {
                required,
                protocols,
            } => self.on_protocols(required, &protocols),
            Event::Downloads(downloads) => self.downloads = Arc::from(downloads),
            _ => {}
        }
    }

    /// Handles protocols that the consensus requires or recommends and this client lacks. A client that
    /// lacks a required one must not use the network: the node ends, as C tor does
    /// (`handle_missing_protocol_warning`).
    fn on_protocols(&mut self, required: bool, protocols: &str) {
        if required {
            self.out.send(FromClient::TooOld(protocols.to_owned()));
        } else if !protocols.is_empty() {
            tracing::info!(
                "The consensus recommends protocols that this version does not speak: {protocols}"
            );
        }
    }

    // ---- others ----

    fn on_job(&mut self, job: Job) {
        let now = now();
        match job {
            Job::Do(what) => what(Inside {
                bootstrap: self.progress.current().cloned(),
                problem: self.progress.last_problem().cloned(),
                downloads: &self.downloads,
                client: &mut self.client,
                now,
            }),
            Job::LookUp(what, reply) => match self.client.look_up(what, now) {
                Ok(id) => {
                    self.look_ups.insert(id, reply);
                }
                Err(error) => tracing::info!("A lookup was refused: {error}"),
            },
        }
    }

    /// Carries out the outputs of the client.
    fn do_all(&mut self) {
        for line in self.client.chooser().take_lines() {
            logging::log(&line);
        }
        while let Some(output) = self.client.poll() {
            match output {
                Output::Command(command) => self.out.send(FromClient::Command(command)),
                Output::Event(event) => self.on_client_event(event),
                Output::Log(line) => logging::log(&line),
                Output::DirectoryReady { stream, name } => {
                    if let Some(found) = self.dir_streams.get_mut(&stream)
                        && let Some((socket, reply)) = found.waiting.take()
                    {
                        let token = stream.0;
                        let rsa = found.rsa;
                        let sent = reply.send(Ok(DirConnection {
                            io: Box::new(socket),
                            name,
                            token,
                        }));
                        // If the receiver has gone, the socket is dropped, which ends the stream, and no outcome follows.
                        if sent.is_ok() {
                            self.dir_asked.insert(token, rsa);
                        }
                    }
                }
                Output::DirectoryGone { stream, why } => {
                    if let Some(DirStream {
                        waiting: Some((_, reply)),
                        ..
                    }) = self.dir_streams.remove(&stream)
                    {
                        let _ = reply.send(Err(io::Error::other(why)));
                    }
                }
                Output::LookedUp { stream, resolved } => {
                    if let Some(reply) = self.look_ups.remove(&stream) {
                        let _ = reply.send(resolved);
                    }
                }
            }
        }
    }

    /// Handles an event of the client.
    fn on_client_event(&mut self, event: ClientEvent) {
        if let ClientEvent::Circuit { circuit, reason } = &event {
            let phase = self.progress.circuit(circuit.purpose, circuit.status);
            self.report_progress(phase);
            // A first hop without a link is reported with the link.
            let refused = circuit.status == CircuitStatus::Failed && circuit.built == 0;
            let remote = reason.and_then(|end| end.remote).filter(|_| refused);
            if let (Some(remote), Some((host, _))) = (remote, circuit.path.first()) {
                let reason = EndOfCircuit::Destroy(remote).name();
                let problem = self.progress.refused(*host, reason, Instant::now());
                self.report_problem(problem);
            }
        }
        self.report(event);
    }

    /// Logs what keeps the client from bootstrapping, and reports it to controllers.
    fn report_problem(&mut self, problem: Option<BootstrapProblem>) {
        let Some(problem) = problem else {
            return;
        };
        if !problem.warn {
            tracing::info!("{problem}");
        } else if let Some(more) = self.problem_lines.check(Instant::now()) {
            tracing::warn!("{problem}{more}");
        }
        self.report(ClientEvent::BootstrapProblem(problem));
    }

    /// Logs a phase of bootstrapping and reports it to controllers.
    fn report_progress(&mut self, phase: Option<Bootstrap>) {
        let Some(phase) = phase else {
            return;
        };
        let Bootstrap {
            percent,
            tag,
            summary,
        } = &phase;
        notice!("Bootstrapped {percent}% ({tag}): {summary}");
        self.report(ClientEvent::Bootstrap(phase));
    }

    /// Reports an event to controllers; without any there is no receiver.
    fn report(&self, event: ClientEvent) {
        let _ = self.news.send(ClientNews::Event(Box::new(event)));
    }
}

/// The two ends of a directory stream: ours, and the connection thread's.
fn socket_pair() -> io::Result<(PairSocket, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    Ok((PairSocket::from_std(ours)?, theirs))
}

/// Both clocks now.
fn now() -> Now {
    Now {
        mono: Instant::now(),
        wall: std::time::SystemTime::now(),
    }
}
