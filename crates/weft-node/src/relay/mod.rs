//! The running relay: the main thread, which owns listeners, signals, keys and the relay
//! controller, and carries out what the controller decides (architecture rule 4).

mod address;
mod app_listeners;
mod apps;
mod authority;
mod check;
mod client;
mod clock;
mod congestion;
mod connections;
mod control;
mod descriptor;
mod exits;
mod heartbeat;
mod limits;
mod listeners;
mod local_ports;
mod metrics;
mod news;
mod notices;
mod reload;
mod self_test;
mod shutdown;
mod signals;
mod start;
#[cfg(test)]
mod testing;
mod upkeep;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use rand::rngs::StdRng;
use weft_cell::reason::DestroyReason;
use weft_core::controller::{Action, OnionskinKind, RelayController};
use weft_core::handshake::Role;
use weft_core::manager::RelayParams;
use weft_crypto::handshake::{OnionKeys, ReplyParams};
use weft_dir::command::Event;
use weft_dir::consensus::Consensus;
use weft_dir::params::Params;
use weft_dir::private_authority::server::AuthorityHandle;
use weft_dir::task::DirectoryHandle;
use weft_sync::lease::LeasePool;
use weft_sync::wake::WakeFlag;

use crate::client::ToClient;
use crate::keys::RelayKeys;
use crate::logging::{Logging, RateLimit};
use crate::process::daemon::Background;
use crate::process::lock::DataDirLock;
use crate::process::manager::ServiceManager;
use crate::process::pid::PidFile;
use crate::reachability::{ProbeError, Reachability};
use crate::thread::ConnectionThread;
use crate::thread::mesh::{MainEnds, ToThread, WakeUp};
use crate::tls::LinkTls;
use crate::torrc::{CommandLine, Host, Options};
use crate::workers::Workers;

use address::{Addresses, HostNames};
use apps::AppSide;
use client::ClientSide;
use clock::WallClock;
use control::ControlSide;
use exits::ExitSide;
use heartbeat::Heartbeat;
use listeners::Listeners;
use metrics::Metrics;
use shutdown::Shutdown;
use signals::Signals;

pub use check::check;
pub use start::{StartError, key_config, run};

/// Event-loop token of the signal pipe.
const SIGNAL: Token = Token(usize::MAX - 2);
/// Messages taken from one connection thread in one turn. A stream that is asked for costs the system calls
/// of a connection: whatever else is due, and with `ConnectionThreads 0` all cells, comes after so many.
const MESSAGES_PER_TURN: usize = 64;
/// How often housekeeping runs.
const TICK: Duration = Duration::from_secs(1);

/// What the program gives the relay besides its options.
#[derive(Debug)]
pub struct Context {
    /// To read the configuration again on SIGHUP.
    pub command_line: CommandLine,
    /// The same.
    pub host: Host,
    /// To reopen logs on SIGHUP.
    pub logging: Logging,
    /// With RunAsDaemon: who waits for the relay to be up.
    pub background: Option<Background>,
}

/// The running relay. See the module.
struct Relay {
    options: Options,
    context: Context,
    poll: Poll,
    events: Events,
    flag: Arc<WakeFlag>,
    /// How others wake this thread.
    wake: WakeUp,
    listeners: Listeners,
    signals: Signals,
    /// What it is as a relay; `None`: it is a client alone.
    keys: Option<RelayKeys>,
    onion_keys: Option<OnionKeys>,
    tls: Arc<LinkTls>,
    controller: RelayController,
    params: Arc<RelayParams>,
    pool: Arc<LeasePool>,
    threads: Vec<MainEnds>,
    handles: Vec<JoinHandle<io::Result<()>>>,
    /// The connection thread that the main thread is, with `ConnectionThreads 0`.
    inline: Option<ConnectionThread>,
    workers: Workers,
    directory: Option<DirectoryHandle>,
    /// The authority of a private network; answers until the relay is gone.
    authority: Option<AuthorityHandle>,
    /// Ports for applications.
    apps: AppSide,
    /// Control ports.
    control: ControlSide,
    /// The client, where there are ports for applications.
    client: Option<ClientSide>,
    directory_events: Receiver<Event>,
    consensus: Option<Arc<Consensus>>,
    network: Params,
    /// Host names of `Address`.
    names: HostNames,
    addresses: Addresses,
    /// Addresses that the operator was told cannot be used.
    refused: Vec<IpAddr>,
    /// The consensus' relays, where connections to others are limited.
    known_relays: Arc<BTreeSet<[u8; 20]>>,
    address_seen: Option<IpAddr>,
    reachability: Reachability,
    probes: Vec<(SocketAddr, JoinHandle<Result<(), ProbeError>>)>,
    heartbeat: Heartbeat,
    /// Streams that leave the network here.
    exits: ExitSide,
    metrics: Metrics,
    shutdown: Shutdown,
    max_connections: usize,
    last_tick: Instant,
    wall_clock: WallClock,
    next_signing_check: Instant,
    next_onion_check: Instant,
    accept_failures: RateLimit,
    /// A listener had more connections than one turn accepts.
    accept_again: bool,
    /// Why the node cannot go on.
    failed: Option<StartError>,
    overloads: RateLimit,
    memory_lines: RateLimit,
    freed_lines: RateLimit,
    skew_lines: RateLimit,
    rng: StdRng,
    pid_file: Option<PidFile>,
    /// Who started the process.
    manager: ServiceManager,
    _lock: DataDirLock,
}

impl Relay {
    /// Takes turns until it is over.
    fn run(mut self) -> Result<(), StartError> {
        while !self
            .shutdown
            .is_over(Instant::now(), self.controller.connections())
        {
            self.turn()?;
        }
        self.end()
    }

    /// One turn of the main thread's loop.
    fn turn(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let wait = (self.last_tick + TICK).saturating_duration_since(now);
        let wait = if self.accept_again || self.threads.iter().any(MainEnds::has_more) {
            Duration::ZERO
        } else if self.threads.iter().any(MainEnds::is_stuck)
            || self.client.as_ref().is_some_and(ClientSide::is_stuck)
        {
            wait.min(Duration::from_millis(1))
        } else {
            wait
        };
        let wait = self
            .manager
            .patience(now)
            .map_or(wait, |most| wait.min(most));
        let mut wait = if wait.is_zero() || self.flag.prepare_sleep() {
            wait
        } else {
            Duration::ZERO
        };
        if let Some(thread) = &mut self.inline {
            // The connection thread's poll waits for this one's, too. What the controller said in
            // the last turn is in the thread's rings already.
            thread.turn(wait)?;
            wait = Duration::ZERO;
        }
        match self.poll.poll(&mut self.events, Some(wait)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.flag.take();
        self.metrics.turns += 1;
        let now = Instant::now();
        let asked = self.events.iter().any(|event| event.token() == SIGNAL);
        let ready: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
        if std::mem::take(&mut self.accept_again) {
            self.accept_all(now);
            self.take_all_applications(now);
            self.accept_all_controllers(now);
        }
        for listener in ready {
            self.accept(listener, now);
            self.take_applications(listener, now);
            self.accept_controllers(listener, now);
        }
        if asked {
            for ask in self.signals.take() {
                self.on_signal(ask, now);
            }
        }
        self.take_messages(now);
        self.take_dns_answers(now);
        while let Ok(event) = self.directory_events.try_recv() {
            self.on_directory(event, now);
        }
        self.take_from_client(now);
        self.take_from_controllers(now);
        if now.saturating_duration_since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(now);
        }
        self.manager.alive(now);
        self.act(now);
        for thread in &mut self.threads {
            thread.flush();
        }
        Ok(())
    }

    /// Takes what connection threads and workers sent.
    fn take_messages(&mut self, now: Instant) {
        for index in 0..self.threads.len() {
            let waiting = self.threads.get(index).map_or(0, |ends| ends.from.len());
            self.metrics.see_ring(index, waiting);
            for _ in 0..MESSAGES_PER_TURN {
                let ends = self.threads.get_mut(index);
                let Some(message) = ends.and_then(|ends| ends.from.pop()) else {
                    break;
                };
                self.note_reachable(&message, now);
                self.controller.handle(message, now);
                self.act(now);
            }
        }
        while let Some(answer) = self.workers.poll() {
            self.controller.onionskin_answered(
                answer.half,
                answer.kind,
                Some(answer.spent),
                answer.result,
            );
        }
    }

    /// Queues a message for a connection thread.
    fn tell(&mut self, thread: u16, message: ToThread) {
        if let Some(ends) = self.threads.get_mut(usize::from(thread)) {
            ends.send(message);
        }
    }

    /// Carries out what the controller decided.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Send { to, message } => self.tell(to.0, ToThread::Message(message)),
                Action::Connect {
                    connection,
                    thread,
                    addr,
                    rsa,
                } => {
                    let role = Role::Initiator {
                        expected_rsa: Some(rsa),
                        expected_ed: None,
                    };
                    self.connect(connection, thread, addr, role, now);
                }
                Action::Onionskin {
                    half,
                    request,
                    since,
                } => {
                    let cc = &self.params.cc;
                    let params = ReplyParams {
                        sendme_inc: cc.enabled.then_some(cc.sendme_inc),
                    };
                    let kind = OnionskinKind::of(&request);
                    let submitted = self.onion_keys.as_ref().is_some_and(|keys| {
                        self.workers.submit(half, request, keys, &params, since)
                    });
                    if !submitted {
                        let refused = Err(DestroyReason::RESOURCELIMIT);
                        self.controller
                            .onionskin_answered(half, kind, None, refused);
                    }
                }
                Action::Stream(request) => self.on_stream(request, now),
                Action::StreamGone(stream) => self.exits.forget(stream),
                Action::Origin(event) => {
                    self.note_answer(&event);
                    if let Some(client) = &mut self.client {
                        client.send(ToClient::Event(event));
                    }
                }
                Action::Notice(notice) => self.on_notice(&notice, now),
            }
        }
    }
}
