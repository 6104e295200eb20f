//! The main thread's part of the control port: its sockets, what controllers see, and what they
//! ask of the node.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use rand::RngExt as _;
use tokio::sync::oneshot;
use weft_dir::clock::SystemClock;
use weft_dir::descriptor::Moment;

use super::Relay;
use super::client::ClientSide;
use super::listeners::Service;
use super::local_ports::{LocalPortError, LocalSocket, SocketFile};
use super::signals::Ask as SignalAsk;
use crate::client::ToClient;
use crate::control::VERSION;
use crate::control::auth::{Cookie, write_for_controllers};
use crate::control::events::Event;
use crate::control::node::{Ask, Node, NodeEnds};
use crate::control::view::NodeView;
use crate::control::{Change, ControlServer, ControlSocket, OrderFailed, Shared, Signal};
use crate::logging::{RateLimit, Severity};
use crate::notice;
use crate::process::machine;
use crate::torrc::client_ports::{AppService, ListenAt};
use crate::torrc::settings::Settings;
use crate::torrc::{self, ChangeError, DumpKind, Options, dump};

/// Seconds whose traffic is remembered (N_BW_EVENTS_TO_CACHE).
const RECENT: usize = 300;
/// Tokens of control ports begin here.
const TOKENS: usize = 1 << 33;
/// Connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Asks taken in one turn.
const ASKS_PER_TURN: usize = 64;
/// Log lines about one kind of trouble.
const QUIET: std::time::Duration = std::time::Duration::from_secs(300);

/// A listener.
#[derive(Debug)]
struct Open {
    at: ListenAt,
    bound: String,
    socket: Socket,
    token: Token,
}

#[derive(Debug)]
enum Socket {
    Tcp(mio::net::TcpListener),
    /// With its file, which goes with it.
    Unix(mio::net::UnixListener, #[allow(dead_code)] SocketFile),
}

impl Socket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket, _) => socket,
        }
    }

    fn accept(&self) -> io::Result<ControlSocket> {
        match self {
            Self::Tcp(socket) => socket
                .accept()
                .map(|(socket, from)| ControlSocket::Tcp(socket.into(), from.ip())),
            Self::Unix(socket, _) => socket
                .accept()
                .map(|(socket, _)| ControlSocket::Unix(socket.into())),
        }
    }
}

/// The thread that talks to controllers, and the ends toward it.
#[derive(Debug)]
struct Running {
    server: ControlServer,
    ends: NodeEnds,
    /// The configuration as controllers see it.
    options: Arc<Options>,
    defaults: Arc<Settings>,
    cookie: Cookie,
    /// Bytes moved as of the last second.
    moved: (u64, u64),
    /// Bytes moved in each of the last seconds.
    recent: VecDeque<(u64, u64)>,
    /// Log lines that controllers hear.
    log: Severity,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ControlSide {
    open: Vec<Open>,
    next_token: usize,
    running: Option<Running>,
    started: Instant,
    refusals: RateLimit,
}

impl ControlSide {
    /// Opens what torrc asks for.
    ///
    /// # Errors
    ///
    /// A port cannot be bound.
    pub(super) fn open(options: &Options) -> Result<Self, LocalPortError> {
        let mut side = Self {
            open: Vec::new(),
            next_token: TOKENS,
            running: None,
            started: Instant::now(),
            refusals: RateLimit::new(QUIET),
        };
        side.follow(options, None)?;
        Ok(side)
    }

    /// Watches the sockets.
    ///
    /// # Errors
    ///
    /// epoll refuses.
    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        for open in &mut self.open {
            registry.register(open.socket.source(), open.token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Opens and closes ports until they are what torrc asks for, or all as before.
    ///
    /// # Errors
    ///
    /// A port cannot be bound.
    pub(super) fn follow(
        &mut self,
        options: &Options,
        registry: Option<&Registry>,
    ) -> Result<(), LocalPortError> {
        let wanted = &options.control.ports;
        let user = options.process.user.as_deref();
        let mut new = Vec::new();
        for at in wanted {
            if self.open.iter().any(|open| open.at == *at) {
                continue;
            }
            let socket = LocalSocket::listen(at, user)?;
            let bound = socket.bound();
            let socket = match socket {
                LocalSocket::Tcp(socket) => Socket::Tcp(mio::net::TcpListener::from_std(socket)),
                LocalSocket::Unix(socket, file) => {
                    Socket::Unix(mio::net::UnixListener::from_std(socket), file)
                }
                // Control ports listen.
                LocalSocket::Udp(_) => continue,
            };
            let token = Token(self.next_token);
            self.next_token += 1;
            new.push(Open {
                at: at.clone(),
                bound,
                socket,
                token,
            });
        }
        self.open.retain_mut(|open| {
            let stays = wanted.contains(&open.at);
            if !stays {
                notice!(
                    "Closing no-longer-configured Control listener on {}",
                    open.bound
                );
                if let Some(registry) = registry {
                    let _ = registry.deregister(open.socket.source());
                }
            }
            stays
        });
        for mut open in new {
            notice!("Opened Control listener on {}", open.bound);
            if let Some(registry) = registry {
                let watched =
                    registry.register(open.socket.source(), open.token, Interest::READABLE);
                if let Err(error) = watched {
                    tracing::warn!("Could not watch the listener on {}: {error}", open.bound);
                }
            }
            self.open.push(open);
        }
        Ok(())
    }
}

impl Relay {
    /// Starts the thread for controllers where there is a port, and writes the files that
    /// controllers look for.
    pub(super) fn start_control(&mut self) {
        if self.control.open.is_empty() {
            return;
        }
        if self.control.running.is_none() {
            let options = Arc::new(self.options.clone());
            let testing = self.options.settings.flag("TestingTorNetwork");
            let defaults = Arc::new(Settings::new(testing));
            let view = self.node_view(options.clone(), defaults.clone());
            let access = self.client.as_ref().map(ClientSide::access);
            let (node, ends) = Node::new(view, access, self.wake.clone());
            let mut cookie = Cookie::default();
            self.rng.fill(&mut cookie);
            let shared = Shared {
                cookie: Some(cookie),
                version: VERSION.to_owned(),
            };
            let feed = node.clone().feed();
            let clock = Arc::new(SystemClock::default());
            match ControlServer::start(node, shared, feed, clock) {
                Ok(server) => {
                    let totals = self.controller.totals();
                    self.control.running = Some(Running {
                        server,
                        ends,
                        options,
                        defaults,
                        cookie,
                        moved: (totals.bytes_read, totals.bytes_written),
                        recent: VecDeque::new(),
                        log: Severity::Notice,
                    });
                    self.tap_log(Severity::Notice);
                }
                Err(error) => tracing::warn!("Could not start the ControlPort: {error}"),
            }
        }
        self.write_control_files();
    }

    /// The cookie, and where the ports are.
    fn write_control_files(&self) {
        let options = &self.options.control;
        let Some(running) = &self.control.running else {
            return;
        };
        if let Some(path) = &options.cookie_file {
            let written =
                write_for_controllers(path, &running.cookie, options.cookie_group_readable);
            if let Err(error) = written {
                tracing::warn!("Could not write the authentication cookie: {error}");
            }
        }
        if let Some(path) = &options.write_to_file {
            let line = |open: &Open| match &open.at {
                ListenAt::Tcp { .. } => format!("PORT={}\n", open.bound),
                ListenAt::Unix(unix) => format!("UNIX_PORT={}\n", unix.path.display()),
            };
            let text: String = self.control.open.iter().map(line).collect();
            let written = write_for_controllers(path, text.as_bytes(), options.file_group_readable);
            if let Err(error) = written {
                tracing::warn!("Could not write ControlPortWriteToFile: {error}");
            }
        }
    }

    /// Has log lines told to controllers.
    fn tap_log(&self, least: Severity) {
        let Some(running) = &self.control.running else {
            return;
        };
        let events = running.ends.events.clone();
        let tap = move |severity: Severity, text: &str| {
            let kind = match severity {
                Severity::Err => "ERR",
                Severity::Warn => "WARN",
                Severity::Notice => "NOTICE",
                Severity::Info => "INFO",
                Severity::Debug => "DEBUG",
            };
            // Nobody may listen.
            let _ = events.send(Event::Log(kind, text.to_owned()));
        };
        let logger = self.context.logging.logger();
        logger.set_tap(Some((least, Box::new(tap))));
    }

    /// What controllers see now.
    fn node_view(&mut self, options: Arc<Options>, defaults: Arc<Settings>) -> NodeView {
        let totals = self.controller.totals();
        let mut listeners = Vec::new();
        for (service, at) in self.listeners.bound() {
            let kind = match service {
                Service::Or => "or",
                Service::Metrics => "metrics",
            };
            listeners.push((kind, at.to_string()));
        }
        for (service, at) in self.apps.bound() {
            let kind = match service {
                AppService::Socks => "socks",
                AppService::HttpTunnel => "httptunnel",
                AppService::Dns => "dns",
            };
            listeners.push((kind, at.to_owned()));
        }
        for open in &self.control.open {
            listeners.push(("control", open.bound.clone()));
        }
        let fingerprint = self.keys.as_ref().map(|keys| {
            let id = keys.rsa_id();
            hex::encode_upper(id.as_bytes())
        });
        let addresses: Vec<IpAddr> = self.addresses.ips().into_iter().collect();
        NodeView {
            max_queues: options.resources.max_mem_in_queues(machine::total_memory()),
            options,
            defaults,
            torrc: self.torrc(),
            defaults_torrc: None,
            fingerprint,
            listeners,
            read: totals.bytes_read,
            written: totals.bytes_written,
            recent: match &self.control.running {
                Some(running) => running.recent.iter().copied().collect(),
                None => Vec::new(),
            },
            handshakes: (self.keys.as_ref()).map(|_| self.controller.counts().relay_onionskins),
            reachable: self.keys.is_some() && self.reachability.is_reachable() == (true, true),
            exit_policy: self.keys.as_ref().map(|_| self.exits.policy().clone()),
            addresses,
            started: self.control.started,
            max_files: self.max_connections,
        }
    }

    /// The torrc that was read.
    fn torrc(&self) -> Option<PathBuf> {
        torrc::torrc_path(&self.context.command_line, &self.context.host)
    }

    /// Accepts controllers; nothing, if the token is no control port's.
    pub(super) fn accept_controllers(&mut self, token: Token, now: Instant) {
        let control = &mut self.control;
        let Some(open) = control.open.iter().find(|open| open.token == token) else {
            return;
        };
        for _ in 0..ACCEPTS_PER_TURN {
            let socket = match open.socket.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let server = control.running.as_mut().map(|running| &mut running.server);
            let taken = server.is_some_and(|server| server.serve(socket, now));
            if !taken && let Some(more) = control.refusals.check(now) {
                tracing::warn!("Refused a controller: there are too many{more}");
            }
        }
        self.accept_again = true;
    }

    /// Accepts controllers everywhere.
    pub(super) fn accept_all_controllers(&mut self, now: Instant) {
        let tokens: Vec<Token> = self.control.open.iter().map(|open| open.token).collect();
        for token in tokens {
            self.accept_controllers(token, now);
        }
    }

    /// Does what controllers ask for.
    pub(super) fn take_from_controllers(&mut self, now: Instant) {
        for _ in 0..ASKS_PER_TURN {
            let Some(running) = &mut self.control.running else {
                return;
            };
            let Ok(ask) = running.ends.asks.try_recv() else {
                return;
            };
            match ask {
                Ask::Configure(change, reply) => self.configure(change, reply, now),
                Ask::Signal(signal) => self.controller_signal(signal, now),
                Ask::Descriptors(reply) => {
                    // The controller may have gone.
                    let _ = reply.send(self.fresh_descriptors());
                }
                Ask::Log(kind) => {
                    let least = match kind {
                        "DEBUG" => Severity::Debug,
                        _ => Severity::Info,
                    };
                    if running.log < least {
                        running.log = least;
                        self.tap_log(least);
                    }
                }
            }
        }
    }

    fn controller_signal(&mut self, signal: Signal, now: Instant) {
        let ask = match signal {
            Signal::Reload => SignalAsk::Reload,
            Signal::Shutdown => SignalAsk::Interrupt,
            Signal::Dump => SignalAsk::Statistics,
            Signal::Debug => SignalAsk::Debug,
            Signal::Halt => SignalAsk::Terminate,
            Signal::Heartbeat => SignalAsk::Statistics,
            Signal::NewNym => {
                if let Some(client) = &mut self.client {
                    client.send(ToClient::NewIdentity);
                }
                return self.tell_signal(signal);
            }
            // Nothing is cached, and the node never sleeps.
            Signal::ClearDnsCache | Signal::Active | Signal::Dormant => {
                return self.tell_signal(signal);
            }
        };
        if signal == Signal::Heartbeat {
            self.tell_signal(signal);
            let summary = self.summary(now);
            notice!("{summary}");
            return;
        }
        self.on_signal(ask, now);
    }

    /// Our descriptor and extra-info document as they would be published now, in C tor's words if
    /// they cannot be (control_getinfo.c, `status/fresh-relay-descs`).
    fn fresh_descriptors(&self) -> Result<String, &'static str> {
        let keys = self.keys.as_ref().ok_or("Only relays have descriptors")?;
        let (addresses, policy) = (&self.addresses, self.exits.policy());
        let own = super::descriptor::own_descriptor(&self.options, keys, addresses, policy)
            .ok_or("Cannot get relay address while generating descriptor")?;
        let moment = Moment {
            published: SystemTime::now(),
            uptime: self.control.started.elapsed(),
            observed: 0,
            overload_general: None,
            onion_key_lifetime: self.network.onion_key_lifetime,
            with_tap: self.network.publish_dummy_tap_key,
            with_family: self.network.publish_family_list,
            history: Vec::new(),
        };
        match own.sign(&moment) {
            Ok(signed) => Ok(format!("{}{}", signed.router, signed.extra_info)),
            Err(error) => {
                tracing::warn!("No descriptor could be made for a controller: {error}");
                Err("Cannot generate router descriptor")
            }
        }
    }

    /// A signal came.
    pub(super) fn tell_signal(&self, signal: Signal) {
        self.tell_controllers(Event::Signal(signal.name()));
    }

    /// Tells controllers something.
    fn tell_controllers(&self, event: Event) {
        if let Some(running) = &self.control.running {
            // Nobody may listen.
            let _ = running.ends.events.send(event);
        }
    }

    /// Changes the configuration for a controller.
    fn configure(
        &mut self,
        change: Change,
        reply: oneshot::Sender<Result<(), OrderFailed>>,
        now: Instant,
    ) {
        let host = &self.context.host;
        let changed = match &change {
            Change::Set(pairs) => torrc::change(&self.options, pairs, false, host),
            Change::Reset(pairs) => torrc::change(&self.options, pairs, true, host),
            Change::Load(text) => {
                torrc::reload_text(&self.context.command_line, host, text, &self.options)
            }
            Change::Save { force } => {
                let _ = reply.send(self.save_torrc(*force));
                return;
            }
        };
        let result = match changed {
            Ok((loaded, changes)) => {
                loaded.report.log();
                let before = self.options.settings.clone();
                let names: Vec<_> = changes.iter().map(|change| change.name).collect();
                self.apply_options(loaded.options, changes, now)
                    .map(|()| self.tell_changes(&before, &names))
                    .map_err(|why| OrderFailed::new(553, format!("Unable to set option: {why}")))
            }
            Err(error) => Err(change_failed(&change, error)),
        };
        // The controller may have gone.
        let _ = reply.send(result);
    }

    /// CONF_CHANGED.
    fn tell_changes(&self, before: &Settings, names: &[&'static str]) {
        use crate::control::assignments;
        let mut all = Vec::new();
        for known in torrc::known::KNOWN
            .iter()
            .filter(|k| names.contains(&k.name))
        {
            let (new, old) = (
                assignments(&self.options.settings, known),
                assignments(before, known),
            );
            if new == old {
                continue;
            }
            if new.is_empty() {
                all.push((known.name.to_owned(), None));
            }
            all.extend(
                new.into_iter()
                    .map(|(name, value)| (name.to_owned(), Some(value))),
            );
        }
        if !all.is_empty() {
            self.tell_controllers(Event::Configuration(all));
        }
    }

    /// SAVECONF: what is in force becomes the torrc; the old one is kept beside it.
    fn save_torrc(&self, force: bool) -> Result<(), OrderFailed> {
        let failed = |why: String| {
            tracing::warn!("Could not save the torrc: {why}");
            OrderFailed::new(551, "Unable to write configuration to disk.")
        };
        let path = self
            .torrc()
            .ok_or_else(|| failed("it did not come from a file".to_owned()))?;
        let old = std::fs::read(&path).unwrap_or_default();
        let includes = String::from_utf8_lossy(&old).lines().any(|line| {
            line.trim_start()
                .to_ascii_lowercase()
                .starts_with("%include")
        });
        if includes && !force {
            return Err(failed("it includes others".to_owned()));
        }
        let testing = self.options.settings.flag("TestingTorNetwork");
        let defaults = Settings::new(testing);
        let text = format!(
            "# This file was written by Weft, because a controller asked for it; the one before it\n\
             # is beside it, with \".orig.1\" at its end.\n{}",
            dump(&self.options.settings, &defaults, DumpKind::Short)
        );
        if !old.is_empty() {
            let mut beside = path.clone().into_os_string();
            beside.push(".orig.1");
            std::fs::rename(&path, &beside).map_err(|error| failed(error.to_string()))?;
        }
        std::fs::write(&path, text).map_err(|error| failed(error.to_string()))
    }

    /// A second is over.
    pub(super) fn tick_control(&mut self, now: Instant) {
        self.watch_owner(now);
        let Some(running) = &mut self.control.running else {
            return;
        };
        let (options, defaults) = (running.options.clone(), running.defaults.clone());
        let totals = self.controller.totals();
        let second = (
            totals.bytes_read.saturating_sub(running.moved.0),
            totals.bytes_written.saturating_sub(running.moved.1),
        );
        if running.recent.len() >= RECENT {
            running.recent.pop_front();
        }
        running.recent.push_back(second);
        let idle = running.server.controllers() == 0;
        let view = self.node_view(options, defaults);
        let (read, written) = (view.read, view.written);
        let quiet = idle && running_log(&self.control) > Severity::Notice;
        if let Some(running) = &mut self.control.running {
            running.ends.view.send_replace(Arc::new(view));
            running.moved = (read, written);
            if quiet {
                running.log = Severity::Notice;
            }
        }
        if quiet {
            self.tap_log(Severity::Notice);
        }
        self.tell_controllers(Event::Bandwidth(second.0, second.1));
    }

    /// The configuration has changed.
    pub(super) fn reload_control(&mut self) {
        let options = Arc::new(self.options.clone());
        let Some(running) = &mut self.control.running else {
            // The first port.
            return self.start_control();
        };
        let access = self.client.as_ref().map(ClientSide::access);
        if access.is_some() && running.ends.access.borrow().is_none() {
            running.ends.access.send_replace(access);
        }
        running.options = options.clone();
        let defaults = running.defaults.clone();
        let view = self.node_view(options, defaults);
        if let Some(running) = &self.control.running {
            running.ends.view.send_replace(Arc::new(view));
        }
        self.write_control_files();
    }

    /// The node ends with the process that it belongs to (`__OwningControllerProcess`).
    fn watch_owner(&mut self, now: Instant) {
        let Some(process) = self.options.control.owning_process else {
            return;
        };
        let Ok(number) = i32::try_from(process) else {
            return;
        };
        let owner = nix::unistd::Pid::from_raw(number);
        let gone = nix::sys::signal::kill(owner, None) == Err(nix::errno::Errno::ESRCH);
        if gone && !self.shutdown.is_under_way() {
            notice!("Monitored process {process} is dead.");
            self.on_signal(SignalAsk::Terminate, now);
        }
    }
}

fn running_log(control: &ControlSide) -> Severity {
    let running = control.running.as_ref();
    running.map_or(Severity::Notice, |running| running.log)
}

/// C tor's codes for a configuration that stays as it is.
fn change_failed(change: &Change, error: ChangeError) -> OrderFailed {
    let loads = matches!(change, Change::Load(_));
    let one_line = |report: torrc::Report| report.to_string().replace('\n', "; ");
    let (code, text) = match error {
        ChangeError::Unknown(name) => {
            let text = format!("Unrecognized option: Unknown option '{name}'.  Failing.");
            return OrderFailed::new(552, text);
        }
        ChangeError::Value(report) if loads => {
            // Stem looks for the option's name in C tor's words.
            let words = report.in_tors_words().map(str::to_owned);
            let text = words.unwrap_or_else(|| one_line(report));
            (552, format!("Invalid config file: {text}"))
        }
        ChangeError::Value(report) | ChangeError::Whole(report) => (
            513,
            format!("Unacceptable option value: {}", one_line(report)),
        ),
        ChangeError::Transition(report) => {
            (553, format!("Transition not allowed: {}", one_line(report)))
        }
    };
    OrderFailed::new(code, text)
}
