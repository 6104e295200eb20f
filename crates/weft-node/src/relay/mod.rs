//! The running relay: the main thread, which owns listeners, signals, keys and the relay
//! controller, and carries out what the controller decides (architecture rule 4).

mod abra;
mod accepting;
mod accounting;
mod address;
mod app_ports;
mod apps;
mod authority;
mod bridge_relay;
mod bridge_transports;
mod check;
mod claims;
mod client;
mod client_transports;
mod clock;
mod congestion;
mod connections;
mod control;
mod descriptor;
mod dir_port;
mod directory;
mod error;
mod event_loop;
mod exits;
mod family;
mod heartbeat;
mod hs_dir;
mod identities;
mod identity;
mod launch;
mod limits;
mod listen_socket;
mod listeners;
mod membership;
mod metrics;
mod network;
mod notices;
mod onionskins;
mod outgoing;
mod process;
mod redirected;
mod reload;
mod self_test;
mod shutdown;
mod signals;
mod start;
mod statistics;
mod tables;
#[cfg(test)]
mod testing;
mod threads;
mod upkeep;
mod uploads;

use std::io;
use std::time::{Duration, Instant};

use mio::Token;
use rand::rngs::StdRng;
use weft_cell::reason::DestroyReason;
use weft_config::{CommandLine, Options, Report};
use weft_core::controller::{Action, OnionskinKind, RelayController};
use weft_core::handshake::Role;
use weft_crypto::handshake::ReplyParams;

use crate::client::ToClient;
use crate::logging::{IdentityName, Logging};
use crate::process::daemon::Background;
use crate::process::host::SystemHost;
use crate::thread::mesh::{MainEnds, ToThread};
use crate::transports::PIPES;
use crate::workers::Workers;

use accounting::AccountingSide;
use address::OwnAddresses;
use apps::AppSide;
use bridge_relay::BridgeRelay;
use bridge_transports::BridgeTransports;
use client::ClientSide;
use client_transports::ClientTransports;
use control::ControlSide;
use dir_port::DirPortSide;
use directory::DirectorySide;
use event_loop::EventLoop;
use exits::ExitSide;
use identity::Identity;
use listeners::ListenerSet;
use metrics::Metrics;
use network::NetworkView;
use notices::LogLimits;
use onionskins::Assessment;
use process::Process;
use self_test::SelfTest;
use shutdown::Shutdown;
use signals::Signals;
use statistics::StatisticsSide;
use threads::Threads;
use uploads::UploadLines;

pub(crate) use address::has_host_names;
pub use address::own_addresses;
pub use check::check;
pub(crate) use check::directories;
pub use claims::check_all;
pub use error::StartError;
pub use identity::key_config;
pub use launch::launch;
use start::run;

/// Event-loop token of the signal pipe.
const SIGNAL: Token = Token(usize::MAX - 2);
/// Messages taken from one connection thread in one turn. A requested stream costs the system calls of a
/// connection: everything else, with `ConnectionThreads 0` all cells, waits for that long.
const MESSAGES_PER_TURN: usize = 64;
/// Interval of housekeeping.
const TICK: Duration = Duration::from_secs(1);

/// Values that the program passes to the relay besides its options.
#[derive(Debug)]
struct Context {
    /// The process', to read the configuration again on SIGHUP.
    command_line: CommandLine,
    /// The machine that the configuration was read on.
    host: SystemHost,
    /// The messages about the configuration that was read last, which are logged.
    report: Report,
    /// To reopen logs on SIGHUP.
    logging: Logging,
    /// With RunAsDaemon: the process that waits until the node is up.
    background: Option<Background>,
    /// The name of its torrc, as it was given.
    torrc: String,
    /// Its name in log lines and metrics, if there are several identities.
    name_in_log: Option<IdentityName>,
}

/// The running node: the state of the main thread.
///
/// Each field is the state of one duty, in the file of that name, where the methods for it are. A turn takes
/// events (sockets, signals, messages of other threads), and ends by carrying out the actions of the
/// controller.
struct Relay {
    options: Options,
    context: Context,
    event_loop: EventLoop,
    signals: Signals,
    listeners: ListenerSet,
    identity: Identity,
    controller: RelayController,
    threads: Threads,
    workers: Workers,
    directory: DirectorySide,
    dir_port: DirPortSide,
    network: NetworkView,
    own: OwnAddresses,
    self_test: SelfTest,
    apps: AppSide,
    control: ControlSide,
    /// Where torrc has ports for applications.
    client: Option<ClientSide>,
    client_transports: ClientTransports,
    exits: ExitSide,
    metrics: Metrics,
    statistics: StatisticsSide,
    bridge_transports: BridgeTransports,
    bridge_relay: BridgeRelay,
    log_limits: LogLimits,
    onionskins: Assessment,
    uploads: UploadLines,
    accounting: AccountingSide,
    shutdown: Shutdown,
    process: Process,
    rng: StdRng,
}

impl Relay {
    /// Takes turns until the node ends.
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
        let wait = (self.event_loop.last_tick + TICK).saturating_duration_since(now);
        let has_more = self.event_loop.accept_again
            || self.threads.ends.iter().any(MainEnds::has_more)
            || self.transports_have_more();
        let wait = if has_more {
            Duration::ZERO
        } else if self.threads.ends.iter().any(MainEnds::is_stuck)
            || self.client.as_ref().is_some_and(ClientSide::is_stuck)
        {
            wait.min(Duration::from_millis(1))
        } else {
            wait
        };
        let wait = self
            .process
            .manager
            .patience(now)
            .map_or(wait, |most| wait.min(most));
        let mut wait = if wait.is_zero() || self.event_loop.flag.prepare_sleep() {
            wait
        } else {
            Duration::ZERO
        };
        if let Some(thread) = &mut self.threads.inline {
            // The connection thread's poll waits for this one's, too. The messages of the last turn are in
            // the thread's rings already.
            thread.turn(wait)?;
            wait = Duration::ZERO;
        }
        let polled = self
            .event_loop
            .poll
            .poll(&mut self.event_loop.events, Some(wait));
        if self.options.log.mainloop_stats {
            let events = !self.event_loop.events.is_empty();
            let counts = self.event_loop.counts.get_or_insert_default();
            counts.note(&polled, events);
        } else {
            self.event_loop.counts = None;
        }
        match polled {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        self.event_loop.flag.take();
        self.metrics.turns += 1;
        let now = Instant::now();
        let asked = self
            .event_loop
            .events
            .iter()
            .any(|event| event.token() == SIGNAL);
        let ready: Vec<Token> = self
            .event_loop
            .events
            .iter()
            .map(|event| event.token())
            .collect();
        let printed = ready.contains(&PIPES);
        if std::mem::take(&mut self.event_loop.accept_again) {
            self.accept_all(now);
        }
        for listener in ready {
            self.accept(listener, now);
        }
        if asked {
            for ask in self.signals.take() {
                self.on_signal(ask, now);
            }
        }
        self.take_messages(now);
        self.take_dns_answers(now);
        while let Ok(event) = self.directory.events.try_recv() {
            self.on_directory(event, now);
        }
        self.take_from_client(now);
        self.take_from_controllers(now);
        self.take_from_transports(now);
        if printed || self.transports_have_more() {
            self.turn_bridge_transports(now);
            self.turn_client_transports(now);
        }
        if now.saturating_duration_since(self.event_loop.last_tick) >= TICK {
            self.event_loop.last_tick = now;
            self.tick(now);
        }
        let membership = &self.process.membership;
        self.process.manager.alive(now, || membership.alive());
        self.act(now);
        self.publish_files();
        self.threads.flush();
        Ok(())
    }

    /// Takes what connection threads and workers sent.
    fn take_messages(&mut self, now: Instant) {
        for index in 0..self.threads.ends.len() {
            let waiting = self
                .threads
                .ends
                .get(index)
                .map_or(0, |ends| ends.from.len());
            self.metrics.see_ring(index, waiting);
            for _ in 0..MESSAGES_PER_TURN {
                let ends = self.threads.ends.get_mut(index);
                let Some(message) = ends.and_then(|ends| ends.from.pop()) else {
                    break;
                };
                self.note_reachable(&message);
                self.note_statistics(&message);
                self.note_bridge_link(&message);
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
                now,
            );
        }
    }

    /// Carries out what the controller decided.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Send { to, message } => self.threads.send(to.0, ToThread::Message(message)),
                Action::Connect {
                    connection,
                    thread,
                    addr,
                    rsa,
                } => {
                    let role = Role::Initiator {
                        expected_rsa: Some(rsa).filter(|rsa| !rsa.is_zero()),
                        expected_ed: None,
                    };
                    self.connect(connection, thread, addr, role, now);
                }
                Action::Onionskin {
                    half,
                    request,
                    since,
                } => {
                    let cc = &self.threads.params.cc;
                    let params = ReplyParams {
                        sendme_inc: cc.enabled.then_some(cc.sendme_inc),
                    };
                    let kind = OnionskinKind::of(&request);
                    let submitted = self.identity.onion_keys.as_ref().is_some_and(|keys| {
                        self.workers.submit(half, request, keys, &params, since)
                    });
                    if !submitted {
                        let refused = Err(DestroyReason::RESOURCELIMIT);
                        self.controller
                            .onionskin_answered(half, kind, None, refused, now);
                    }
                }
                Action::Stream(request) => self.on_stream(request, now),
                Action::StreamGone(stream) => self.exits.forget(stream),
                Action::SignAbra { weight, reason } => self.sign_abra(weight, reason),
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
