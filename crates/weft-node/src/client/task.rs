//! The client's task: gives the machine its events, its time and its network, and does what it
//! wants.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use weft_core::address::ConnectionId;
use weft_core::origin::{OriginCommand, OriginEvent};
use weft_dir::client::{ClientDirectory, ClientHandle, DirConnection, DirOutcome, Network};
use weft_dir::clock::SystemClock;
use weft_dir::command::{Event, Severity};
use weft_path::{GuardInfo, GuardStatus};

use super::bootstrap::Progress;
use super::events::{Bootstrap, CircuitEnd, CircuitStatus, ClientEvent};
use super::handle::{FromClient, Inside, Job, LookUps, Outgoing, ToClient};
use super::machine::{Client, Now, Output};
use super::paths::Paths;
use super::settings::ClientSettings;
use super::tunnels::{DirOrder, Tunnels, target};
use crate::logging::RateLimit;
use crate::notice;

/// How often the machine looks at its clock.
const TICK: Duration = Duration::from_secs(1);
/// How long a full channel to the main thread is waited for at a time.
const FULL: Duration = Duration::from_millis(1);
/// How often the state file is written when something in it changed.
const STATE_INTERVAL: Duration = Duration::from_secs(30);
/// Events that are taken before what they caused is done.
const EVENTS_PER_TURN: usize = 256;
/// How long the thread may take to end.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(2);
/// Log lines about one kind of trouble.
const QUIET: Duration = Duration::from_secs(300);

/// A directory stream that waits for its circuit, or that is underway.
#[derive(Debug)]
struct DirStream {
    /// Our end of its socket, and who wants it, until it is handed over.
    waiting: Option<(
        tokio::net::UnixStream,
        oneshot::Sender<io::Result<DirConnection>>,
    )>,
    /// Whom it leads to.
    rsa: [u8; 20],
}

/// See the module.
pub(super) struct Task {
    client: Client<Paths>,
    rng: StdRng,
    inbox: mpsc::Receiver<ToClient>,
    jobs: mpsc::Receiver<Job>,
    dir_orders: mpsc::UnboundedReceiver<DirOrder>,
    dir_events: mpsc::UnboundedReceiver<Event>,
    dir_streams: BTreeMap<ConnectionId, DirStream>,
    /// Who was asked over streams whose outcome is not known, by token.
    dir_asked: BTreeMap<u64, [u8; 20]>,
    directory: ClientHandle,
    network: watch::Receiver<Option<Arc<Network>>>,
    /// The directory's own task, until it runs.
    directory_task: Option<ClientDirectory>,
    look_ups: LookUps,
    told: broadcast::Sender<ClientEvent>,
    out: Outgoing,
    progress: Progress,
    state_saved: Instant,
    skew_lines: RateLimit,
    problem_lines: RateLimit,
    /// The guards as they were told last.
    guards: BTreeMap<[u8; 20], GuardInfo>,
}

impl Task {
    pub(super) fn new(
        settings: ClientSettings,
        state: &[(String, String)],
        seed: [u8; 32],
        inbox: mpsc::Receiver<ToClient>,
        jobs: mpsc::Receiver<Job>,
        told: broadcast::Sender<ClientEvent>,
        out: Outgoing,
    ) -> Self {
        let now = Now::read();
        let mut rng = StdRng::from_seed(seed);
        let paths = Paths::new(settings.paths, settings.times, state, now, &mut rng);
        let mut client = Client::new(settings.config, paths, rng.random(), now);
        map_all(&mut client, &settings.maps);
        let (orders, dir_orders) = mpsc::unbounded_channel();
        let (events, dir_events) = mpsc::unbounded_channel();
        let (directory_task, directory) = ClientDirectory::new(
            settings.directory,
            rng.random(),
            Arc::new(Tunnels { orders }),
            Arc::new(SystemClock::default()),
            Box::new(move |event| {
                // Few and slow; the task that reads them never stops before its sender.
                let _ = events.send(event);
            }),
        );
        Task {
            client,
            rng,
            inbox,
            jobs,
            dir_orders,
            dir_events,
            dir_streams: BTreeMap::new(),
            dir_asked: BTreeMap::new(),
            network: directory.network(),
            directory,
            directory_task: Some(directory_task),
            look_ups: BTreeMap::new(),
            told,
            out,
            progress: Progress::default(),
            state_saved: now.mono,
            skew_lines: RateLimit::new(QUIET),
            problem_lines: RateLimit::new(QUIET),
            guards: BTreeMap::new(),
        }
    }

    /// Runs until the main thread says that it is over, or is gone.
    pub(super) async fn run(mut self) {
        if let Some(directory) = self.directory_task.take() {
            tokio::spawn(directory.run());
        }
        let start = self.progress.start();
        self.tell_progress(start);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let ends = tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(message) => self.take_messages(message),
                    None => true,
                },
                Some(order) = self.dir_orders.recv() => {
                    self.on_dir_order(order);
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
            self.do_all();
            while !self.out.flush() && !ends {
                tokio::time::sleep(FULL).await;
            }
            if ends {
                break;
            }
        }
        self.save_state();
        self.client.close_all(Now::read());
        self.do_all();
        let deadline = Instant::now() + END_PATIENCE / 2;
        while !self.out.flush() && Instant::now() < deadline {
            tokio::time::sleep(FULL).await;
        }
    }

    /// Takes a message and some of what waits behind it. True: it was the last.
    fn take_messages(&mut self, first: ToClient) -> bool {
        let now = Now::read();
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

    /// Takes a message. True: it was the last.
    fn take_message(&mut self, message: ToClient, now: Now) -> bool {
        match message {
            ToClient::Event(event) => {
                let phase = match &event {
                    OriginEvent::Link { state, .. } => self.progress.link(*state),
                    OriginEvent::Launched { .. } => self.progress.create_sent(),
                    _ => None,
                };
                self.tell_progress(phase);
                self.client.on_event(event, now);
            }
            ToClient::Settings(settings) => self.on_settings(*settings, now),
            ToClient::NewIdentity => self.client.new_identity(now),
            ToClient::Shutdown => return true,
        }
        false
    }

    /// torrc has changed.
    fn on_settings(&mut self, settings: ClientSettings, now: Now) {
        let paths = self.client.chooser();
        if paths.set_options(settings.paths, settings.times, now, &mut self.rng) {
            tracing::info!("Other relays are wanted or excluded: circuits so far are abandoned");
            self.client.abandon_circuits();
        }
        self.directory.set_options(settings.directory);
        map_all(&mut self.client, &settings.maps);
        self.client.set_config(settings.config, now);
    }

    /// There is a new network, or none any more.
    fn on_network(&mut self) {
        let now = Now::read();
        let network = self.network.borrow_and_update().clone();
        let had = self.client.chooser_ref().network().is_some();
        let has = network.is_some();
        match network {
            Some(network) => {
                self.out.send(FromClient::Network(network.clone()));
                self.tell(ClientEvent::Network(network.clone()));
                let paths = self.client.chooser();
                if paths.set_network(network, now, &mut self.rng) {
                    crate::notice!("Other guards are in use now: circuits so far are abandoned");
                    self.client.abandon_circuits();
                }
                let phase = self.progress.enough();
                self.tell_progress(phase);
            }
            None => self.client.chooser().lose_network(),
        }
        if had != has {
            self.tell(ClientEvent::EnoughDirectory(has));
        }
        self.client.directory_changed(now);
        // Circuits are begun at once, not with the next second.
        self.client.tick(now);
    }

    /// A second went by.
    fn on_tick(&mut self) {
        let now = Now::read();
        self.client.tick(now);
        if now.mono.saturating_duration_since(self.state_saved) >= STATE_INTERVAL {
            self.save_state();
        }
        self.client.chooser().log_suspicions();
        self.tell_guards();
    }

    /// Tells what became of guards since the last second.
    fn tell_guards(&mut self) {
        if self.told.receiver_count() == 0 {
            return;
        }
        if self.client.chooser().take_guards_dropped() {
            let none = BTreeMap::new();
            let dropped = std::mem::take(&mut self.guards);
            self.tell_guard_news(&dropped, &none);
        }
        let all = self.client.chooser_ref().guards();
        let guards: BTreeMap<_, _> = all.into_iter().map(|guard| (guard.rsa, guard)).collect();
        self.tell_guard_news(&self.guards, &guards);
        self.guards = guards;
    }

    fn tell_guard_news(
        &self,
        old: &BTreeMap<[u8; 20], GuardInfo>,
        new: &BTreeMap<[u8; 20], GuardInfo>,
    ) {
        for (guard, status) in guard_news(old, new) {
            self.tell(ClientEvent::Guard {
                rsa: guard.rsa,
                nickname: guard.nickname.clone(),
                status,
            });
        }
    }

    /// Hands out what the state file shall say.
    fn save_state(&mut self) {
        self.state_saved = Instant::now();
        let lines = self.client.chooser().state_lines();
        if !lines.is_empty() {
            self.out.send(FromClient::State(lines));
        }
    }

    // ---- the directory ----

    fn on_dir_order(&mut self, order: DirOrder) {
        match order {
            DirOrder::Open { source, reply } => {
                let now = Now::read();
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
            DirOrder::Outcome(token, outcome) => {
                let relay = self.dir_asked.remove(&token);
                if let Some(relay) = relay.filter(|_| outcome == DirOutcome::Bad) {
                    self.client.directory_failed(&relay);
                }
            }
        }
    }

    /// Begins a stream to a directory: its number, its relay, and our end of its socket.
    fn open_directory(
        &mut self,
        source: weft_dir::client::DirSource,
        now: Now,
    ) -> io::Result<(ConnectionId, [u8; 20], tokio::net::UnixStream)> {
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
                self.tell_progress(phase);
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
            _ => {}
        }
    }

    /// What the consensus wants of clients, and this one lacks. One that lacks what is required must
    /// not use the network: the node ends, as C tor does (`handle_missing_protocol_warning`).
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
        let now = Now::read();
        match job {
            Job::Do(what) => what(Inside {
                bootstrap: self.progress.told().cloned(),
                client: &mut self.client,
                now,
            }),
            Job::LookUp(what, reply) => match self.client.look_up(what, now) {
                Ok(id) => {
                    self.look_ups.insert(id, reply);
                }
                Err(error) => tracing::info!("A lookup was refused: {error}"),
            },
            Job::Signal(number) => self.out.send(FromClient::Signal(number)),
        }
    }

    /// Does all that the machine wants.
    fn do_all(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                Output::Command(command) => self.out.send(FromClient::Command(command)),
                Output::Told(event) => self.on_told(event),
                Output::DirectoryReady { stream, name } => {
                    if let Some(found) = self.dir_streams.get_mut(&stream)
                        && let Some((socket, reply)) = found.waiting.take()
                    {
                        let token = stream.0;
                        self.dir_asked.insert(token, found.rsa);
                        // Whoever gave up waiting drops the socket, which ends the stream.
                        let _ = reply.send(Ok(DirConnection {
                            io: Box::new(socket),
                            name,
                            token,
                        }));
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
                Output::Looked { stream, resolved } => {
                    if let Some(reply) = self.look_ups.remove(&stream) {
                        let _ = reply.send(resolved);
                    }
                }
            }
        }
    }

    /// Something that the machine tells of itself.
    fn on_told(&mut self, event: ClientEvent) {
        if let ClientEvent::Circuit { circuit, reason } = &event {
            let phase = self.progress.circuit(circuit.purpose, circuit.status);
            self.tell_progress(phase);
            let unreachable = circuit.status == CircuitStatus::Failed && circuit.built == 0;
            if let Some(reason) = reason.filter(|_| unreachable) {
                self.on_problem(reason);
            }
        }
        self.tell(event);
    }

    /// A first hop could not be reached; in the middle of the start the operator should know.
    fn on_problem(&mut self, end: CircuitEnd) {
        let Some((count, stuck)) = self.progress.problem() else {
            return;
        };
        if let Some(more) = self.problem_lines.check(Instant::now()) {
            tracing::warn!(
                "Problem bootstrapping. Stuck at {}% ({}): {}. ({}; count {count}){more}",
                stuck.percent,
                stuck.tag,
                stuck.summary,
                end.reason.name()
            );
        }
    }

    /// Logs a phase of the start and tells controllers.
    fn tell_progress(&mut self, phase: Option<Bootstrap>) {
        let Some(phase) = phase else {
            return;
        };
        let Bootstrap {
            percent,
            tag,
            summary,
        } = &phase;
        notice!("Bootstrapped {percent}% ({tag}): {summary}");
        self.tell(ClientEvent::Bootstrap(phase));
    }

    /// Tells controllers. Without any, nobody hears.
    fn tell(&self, event: ClientEvent) {
        let _ = self.told.send(event);
    }
}

/// What is new of guards, in C tor's words (control_event_guard).
fn guard_news<'a>(
    old: &'a BTreeMap<[u8; 20], GuardInfo>,
    new: &'a BTreeMap<[u8; 20], GuardInfo>,
) -> Vec<(&'a GuardInfo, &'static str)> {
    let is_down = |guard: &GuardInfo| matches!(guard.status, GuardStatus::Down(_));
    let is_up = |guard: &GuardInfo| guard.status == GuardStatus::Up;
    let mut news = Vec::new();
    for (id, guard) in old {
        if !new.contains_key(id) {
            news.push((guard, "DROPPED"));
        }
    }
    for (id, guard) in new {
        let before = old.get(id);
        if before.is_none() {
            news.push((guard, "NEW"));
        }
        if is_up(guard) && !before.is_some_and(is_up) {
            news.push((guard, "UP"));
        }
        if is_down(guard) && !before.is_some_and(is_down) {
            news.push((guard, "DOWN"));
        }
    }
    news
}

/// Takes torrc's maps in.
fn map_all(client: &mut Client<Paths>, maps: &[(String, String)]) {
    for (from, to) in maps {
        if let Err(error) = client.map_address(from, to) {
            tracing::warn!("MapAddress {from} {to}: {error}");
        }
    }
}

/// Two ends of a stream: ours, and that of a connection thread.
fn socket_pair() -> io::Result<(tokio::net::UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((tokio::net::UnixStream::from_std(ours)?, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_told_of_when_something_is_new() {
        let guards = |all: &[(u8, GuardStatus)]| -> BTreeMap<[u8; 20], GuardInfo> {
            let guard = |(id, status): &(u8, GuardStatus)| GuardInfo {
                rsa: [*id; 20],
                nickname: format!("relay{id}"),
                status: *status,
                primary: true,
            };
            all.iter().map(|one| ([one.0; 20], guard(one))).collect()
        };
        let old = guards(&[
            (1, GuardStatus::Up),
            (2, GuardStatus::Down(None)),
            (3, GuardStatus::NeverConnected),
        ]);
        let new = guards(&[
            (1, GuardStatus::Down(None)),
            (2, GuardStatus::Up),
            (4, GuardStatus::NeverConnected),
        ]);
        let news = guard_news(&old, &new);
        let told: Vec<(u8, &str)> = news
            .iter()
            .map(|(guard, what)| (guard.rsa[0], *what))
            .collect();
        assert_eq!(told, [(3, "DROPPED"), (1, "DOWN"), (2, "UP"), (4, "NEW")]);
        assert!(guard_news(&new, &new).is_empty());
    }
}
