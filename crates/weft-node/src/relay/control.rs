//! The main thread's part of the control port: the view of the node for controllers, and their commands.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rand::RngExt as _;
use tokio::sync::oneshot;
use weft_config::options::AppService;
use weft_config::{ChangeError, DumpKind, Options, Settings, dump, keys};
use weft_core::controller::FamilyCounts;
use weft_core::message::Activity;
use weft_datadir::file::FileError;
use weft_datadir::torrc::Torrc;
use weft_dir::clock::SystemClock;
use weft_dir::descriptor::Moment;
use weft_log::{RateLimit, Severity};

use super::client::ClientSide;
use super::error::StartError;
use super::listen_socket::{Accepted, Bound, OwnFile};
use super::listeners::Service;
use super::signals::Ask as SignalAsk;
use super::{Context, Relay};
use crate::client::ToClient;
use crate::control::VERSION;
use crate::control::activity::PendingActivity;
use crate::control::auth::{Cookie, write_for_controllers};
use crate::control::events::Event;
use crate::control::node_backend::{MainRequest, NodeBackend, NodeBackendEnds};
use crate::control::view::NodeView;
use crate::control::{
    CommandError, ConfigCommand, ControlServer, ControlSocket, Shared, Signal, Standing, inherited,
};
use crate::logging::log_all;
use crate::notice;
use crate::process::machine;

/// Seconds whose traffic is remembered (N_BW_EVENTS_TO_CACHE).
const RECENT: usize = 300;
/// Asks taken in one turn.
const ASKS_PER_TURN: usize = 64;
/// Log lines about one kind of trouble.
const QUIET: std::time::Duration = std::time::Duration::from_secs(300);

/// The thread that talks to controllers, and the ends toward it.
#[derive(Debug)]
struct Running {
    server: ControlServer,
    ends: NodeBackendEnds,
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

/// Events that cost something on the data path: what they need is measured only while a controller wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MeasuredEvents {
    /// CONN_BW.
    pub(super) connections: bool,
    /// CELL_STATS.
    pub(super) queues: bool,
}

/// The main thread's state of the control port.
#[derive(Debug)]
pub(super) struct ControlSide {
    running: Option<Running>,
    /// Files for controllers that were written; they go with the node.
    written: Vec<OwnFile>,
    started: Instant,
    refusals: RateLimit,
    /// Measurements that controllers want.
    pub(super) measured: MeasuredEvents,
    /// Traffic of connections and queues that threads reported in this second.
    activity: PendingActivity,
    /// Controllers that came when there were too many.
    pub(super) refused: FamilyCounts,
}

impl ControlSide {
    pub(super) fn new() -> Self {
        Self {
            running: None,
            written: Vec::new(),
            started: Instant::now(),
            refusals: RateLimit::new(QUIET),
            measured: MeasuredEvents::default(),
            activity: PendingActivity::default(),
            refused: FamilyCounts::default(),
        }
    }

    /// Keeps what a thread reported of connections and queues for the events of this second.
    pub(super) fn note_activity(&mut self, activity: &Activity) {
        self.activity.add(activity, self.measured.queues);
    }

    /// Connections of controllers: since the start, and now.
    pub(super) fn connections(&self) -> (FamilyCounts, FamilyCounts) {
        let running = self.running.as_ref();
        running.map_or_else(Default::default, |running| {
            super::metrics::by_family(running.server.sockets())
        })
    }
}

impl Relay {
    /// Starts the thread for controllers where there is a port, and writes the files that
    /// controllers look for.
    ///
    /// # Errors
    ///
    /// The cookie cannot be written, without which controllers cannot come in.
    pub(super) fn start_control(&mut self) -> Result<(), StartError> {
        let options = &self.options.control;
        if options.ports.is_empty() && options.owning_fd.is_none() {
            return Ok(());
        }
        if self.control.running.is_none() {
            let options = Arc::new(self.options.clone());
            let defaults = Arc::new(self.defaults());
            let view = self.node_view(options.clone(), defaults.clone());
            let access = self.client.as_ref().map(ClientSide::access);
            let directory = self.directory.handle.as_ref();
            let served = directory.map(|directory| directory.documents().clone());
            let main = self.event_loop.wake.clone();
            let (node, ends) = NodeBackend::new(view, access, served, main);
            let mut cookie = Cookie::default();
            self.rng.fill(&mut cookie);
            let shared = Shared {
                cookie: Some(cookie),
                version: VERSION.to_owned(),
            };
            let feed = node.clone().forward_events();
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
                    self.serve_owner();
                }
                Err(error) => tracing::warn!("Could not start the ControlPort: {error}"),
            }
        }
        self.write_control_files().map_err(StartError::Cookie)
    }

    /// Serves the controller that the node belongs to by a connection that it was started with.
    fn serve_owner(&mut self) {
        let Some(fd) = self.options.control.owning_fd else {
            return;
        };
        let now = Instant::now();
        let running = self.control.running.as_mut();
        let served = inherited::connection(fd).map(|socket| {
            running.is_some_and(|running| running.server.serve(socket, Standing::Owner, now))
        });
        let why = match served {
            Ok(true) => return,
            Ok(false) => "there is no place for it".to_owned(),
            Err(error) => error.to_string(),
        };
        // C tor does not start then.
        tracing::error!(
            "Could not add local controller connection with given FD (__OwningControllerFD {fd}): {why}"
        );
        self.on_signal(SignalAsk::Terminate, now);
    }

    /// Where the ports are, and the cookie.
    fn write_control_files(&mut self) -> Result<(), FileError> {
        let options = &self.options.control;
        let Some(running) = &self.control.running else {
            return Ok(());
        };
        let before = std::mem::take(&mut self.control.written);
        if let Some(path) = &options.write_to_file {
            let bound = self.listeners.bound();
            let bound = bound.filter(|(service, _)| *service == Service::Control);
            let line = |(_, bound): (Service, &Bound)| match bound {
                Bound::Addr(addr) => format!("PORT={addr}\n"),
                Bound::Path(path) => format!("UNIX_PORT={}\n", path.display()),
            };
            let text: String = bound.map(line).collect();
            match write_for_controllers(path, text.as_bytes(), options.file_group_readable) {
                Ok(()) => self.control.written.extend(OwnFile::of(path)),
                Err(error) => tracing::warn!("Could not write ControlPortWriteToFile: {error}"),
            }
        }
        if let Some(path) = &options.cookie_file {
            let access = options.cookie_group_readable;
            if let Err(error) = write_for_controllers(path, &running.cookie, access) {
                // The cookie of before lets controllers in.
                self.control.written.extend(before);
                return Err(error);
            }
            self.control.written.extend(OwnFile::of(path));
        }
        // A cookie written over an old one is another file and stays; files that torrc no longer
        // names are deleted.
        drop(before);
        Ok(())
    }

    /// Sends log lines to controllers.
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
            // Without a controller there is no receiver.
            let _ = events.send(Event::Log(kind, text.to_owned()));
        };
        let logger = self.context.logging.logger();
        logger.set_tap(Some((least, Box::new(tap))));
    }

    /// The current view for controllers.
    fn node_view(&mut self, options: Arc<Options>, defaults: Arc<Settings>) -> NodeView {
        let totals = self.controller.totals();
        let mut listeners = Vec::new();
        for (service, at) in self.listeners.bound() {
            let kind = match service {
                Service::Or => "or",
                Service::Dir => "dir",
                Service::Metrics => "metrics",
                Service::App(AppService::Socks) => "socks",
                Service::App(AppService::HttpTunnel) => "httptunnel",
                Service::App(AppService::Dns) => "dns",
                Service::App(AppService::Transparent(_)) => "trans",
                Service::App(AppService::Natd) => "natd",
                Service::Control => "control",
                Service::ExtOr => "extor",
            };
            listeners.push((kind, at.to_string()));
        }
        let fingerprint = self.identity.keys.as_ref().map(|keys| {
            let id = keys.rsa_id();
            hex::encode_upper(id.as_bytes())
        });
        let addresses: Vec<IpAddr> = self.own.addresses.ips().into_iter().collect();
        NodeView {
            max_queues: options.resources.max_mem_in_queues(machine::total_memory()),
            options,
            defaults,
            torrc: self.torrc(),
            defaults_torrc: Some(self.defaults_torrc()),
            fingerprint,
            listeners,
            read: totals.bytes_read,
            written: totals.bytes_written,
            recent: match &self.control.running {
                Some(running) => running.recent.iter().copied().collect(),
                None => Vec::new(),
            },
            handshakes: (self.identity.keys.as_ref())
                .map(|_| self.controller.counts().relay_onionskins),
            reachable: self.identity.keys.is_some()
                && self.self_test.reachability.is_reachable() == (true, true),
            exit_policy: self
                .identity
                .keys
                .as_ref()
                .map(|_| self.exits.policy().clone()),
            rejected: self.exits.rejected.clone(),
            bootstrap: self.network.bootstrap.clone(),
            accepted: self.network.accepted,
            downloads: self.network.downloads.clone(),
            addresses,
            accounting: self.accounting.view(),
            clients_seen: self.clients_seen(),
            exiting: self.shutdown.is_under_way(),
            started: self.control.started,
            max_files: self.process.max_files,
        }
    }

    /// The torrc that was read.
    fn torrc(&self) -> Option<PathBuf> {
        let number = self.process.membership.number();
        let command_line = self.context.command_line.identity(number);
        weft_config::torrc_path(&command_line, &self.context.host)
    }

    /// Settings in force by the defaults torrc alone.
    fn defaults(&self) -> Settings {
        let number = self.process.membership.number();
        let command_line = self.context.command_line.identity(number);
        let testing = self.options.settings.flag(keys::TestingTorNetwork);
        weft_config::read_defaults(&command_line, &self.context.host, testing)
    }

    fn defaults_torrc(&self) -> PathBuf {
        let number = self.process.membership.number();
        let command_line = self.context.command_line.identity(number);
        weft_config::defaults_torrc_path(&command_line, &self.context.host)
    }

    /// Gives a connection of a controller to the control thread.
    pub(super) fn accept_controller(&mut self, accepted: Accepted, now: Instant) {
        let socket = match accepted {
            Accepted::Tcp(socket, from) => ControlSocket::Tcp(socket, from.ip()),
            Accepted::Unix(socket) => ControlSocket::Unix(socket),
        };
        let control = &mut self.control;
        let peer = socket.peer();
        let server = control.running.as_mut().map(|running| &mut running.server);
        let taken = server.is_some_and(|server| server.serve(socket, Standing::Stranger, now));
        if let Some(peer) = peer.filter(|_| !taken) {
            *control.refused.of(peer) += 1;
        }
        if !taken && let Some(more) = control.refusals.check(now) {
            tracing::warn!("Refused a controller: there are too many{more}");
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
                MainRequest::Configure(change, reply) => self.configure(change, reply, now),
                MainRequest::Signal(signal) => self.controller_signal(signal, now),
                MainRequest::Descriptors(reply) => {
                    // The controller may have gone.
                    let _ = reply.send(self.fresh_descriptors());
                }
                MainRequest::Links(reply) => {
                    let _ = reply.send(self.controller.links().collect());
                }
                MainRequest::Events(kind) => self.enable_events(kind),
            }
        }
    }

    /// A controller wants events that are none by default.
    fn enable_events(&mut self, kind: &'static str) {
        let Some(running) = &mut self.control.running else {
            return;
        };
        let least = match kind {
            "CONN_BW" => return self.measure_for(|wanted| wanted.connections = true),
            "CELL_STATS" => return self.measure_for(|wanted| wanted.queues = true),
            "DEBUG" => Severity::Debug,
            _ => Severity::Info,
        };
        if running.log < least {
            running.log = least;
            self.tap_log(least);
        }
    }

    /// Changes what threads measure for controllers.
    fn measure_for(&mut self, change: impl FnOnce(&mut MeasuredEvents)) {
        let before = self.control.measured;
        change(&mut self.control.measured);
        if self.control.measured != before {
            self.apply_params();
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
                return self.report_signal(signal);
            }
            Signal::Active | Signal::Dormant => {
                if let Some(client) = &mut self.client {
                    client.send(ToClient::Participate(signal == Signal::Active));
                }
                return self.report_signal(signal);
            }
            // Nothing is cached.
            Signal::ClearDnsCache => return self.report_signal(signal),
        };
        if signal == Signal::Heartbeat {
            self.report_signal(signal);
            self.log_heartbeat(now);
            return;
        }
        self.on_signal(ask, now);
    }

    /// Our descriptor and extra-info document as they would be published now, in C tor's words if
    /// they cannot be (control_getinfo.c, `status/fresh-relay-descs`).
    fn fresh_descriptors(&self) -> Result<String, &'static str> {
        let keys = self
            .identity
            .keys
            .as_ref()
            .ok_or("Only relays have descriptors")?;
        let (addresses, policy) = (&self.own.addresses, self.exits.policy());
        let families = &self.identity.families.0;
        let mut own =
            super::descriptor::own_descriptor(&self.options, keys, families, addresses, policy)
                .ok_or("Cannot get relay address while generating descriptor")?;
        self.accounting.describe(&mut own, &self.options);
        own.transports = self.bridge_transports.lines(addresses);
        let moment = Moment {
            published: SystemTime::now(),
            uptime: self.control.started.elapsed(),
            observed: 0,
            overload_general: None,
            onion_key_lifetime: self.network.params.onion_key_lifetime,
            with_tap: self.network.params.publish_dummy_tap_key,
            with_family: self.network.params.publish_family_list,
            history: Vec::new(),
            statistics: self.statistics_lines(),
        };
        match own.sign(&moment) {
            Ok(signed) => Ok(format!("{}{}", signed.router, signed.extra_info)),
            Err(error) => {
                tracing::warn!("No descriptor could be made for a controller: {error}");
                Err("Cannot generate router descriptor")
            }
        }
    }

    /// Reports a signal to controllers.
    pub(super) fn report_signal(&self, signal: Signal) {
        self.report(Event::Signal(signal.name()));
    }

    /// Reports STATUS_SERVER to controllers: a severity, the event, and its arguments.
    pub(super) fn report_server_status(&self, severity: &str, event: &str) {
        let text = format!("{severity} {event}");
        self.report(Event::Status("STATUS_SERVER", text));
    }

    /// Reports STATUS_GENERAL to controllers, as [`report_server_status`](Self::report_server_status).
    pub(super) fn report_general_status(&self, severity: &str, event: &str) {
        let text = format!("{severity} {event}");
        self.report(Event::Status("STATUS_GENERAL", text));
    }

    /// Reports an event to controllers.
    pub(super) fn report(&self, event: Event) {
        if let Some(running) = &self.control.running {
            // Without a controller there is no receiver.
            let _ = running.ends.events.send(event);
        }
    }

    /// Changes the configuration for a controller.
    fn configure(
        &mut self,
        change: ConfigCommand,
        reply: oneshot::Sender<Result<(), CommandError>>,
        now: Instant,
    ) {
        let Context {
            command_line, host, ..
        } = &self.context;
        let shared = command_line.is_shared();
        let changed = match &change {
            ConfigCommand::Set(pairs) => {
                weft_config::change(&self.options, pairs, false, shared, host)
            }
            ConfigCommand::Reset(pairs) => {
                weft_config::change(&self.options, pairs, true, shared, host)
            }
            ConfigCommand::Load(text) => {
                weft_config::reload_text(command_line, host, text, &self.options)
            }
            ConfigCommand::Save { force } => {
                let _ = reply.send(self.save_torrc(*force));
                return;
            }
        };
        let result = match changed {
            Ok((loaded, changes)) => {
                log_all(loaded.report.clone().without(&self.context.report).lines());
                self.context.report.join(loaded.report);
                let before = self.options.settings.clone();
                let names: Vec<_> = changes.iter().map(|change| change.name).collect();
                self.apply_options(loaded.options, changes, now)
                    .map(|()| self.report_changes(&before, &names))
                    .map_err(|why| CommandError::new(553, format!("Unable to set option: {why}")))
            }
            Err(error) => Err(change_failed(&change, error)),
        };
        if let Err(refused) = &result {
            tracing::warn!(
                "Controller gave us config lines that didn't validate: {}",
                refused.text
            );
        }
        // The controller may have gone.
        let _ = reply.send(result);
    }

    /// CONF_CHANGED.
    fn report_changes(&self, before: &Settings, names: &[&'static str]) {
        use crate::control::assignments;
        let mut all = Vec::new();
        for known in weft_config::table::all().filter(|k| names.contains(&k.name)) {
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
            self.report(Event::Configuration(all));
        }
    }

    /// SAVECONF: the effective options become the torrc; one that a person wrote is kept beside it.
    fn save_torrc(&self, force: bool) -> Result<(), CommandError> {
        let failed = |why: String| {
            tracing::warn!("Could not save the torrc: {why}");
            CommandError::new(551, "Unable to write configuration to disk.")
        };
        let path = self
            .torrc()
            .ok_or_else(|| failed("it did not come from a file".to_owned()))?;
        let torrc = Torrc::read(&path).map_err(|error| failed(error.to_string()))?;
        if torrc.includes_others() && !force {
            return Err(failed("it includes others".to_owned()));
        }
        let options = dump(&self.options.settings, &self.defaults(), DumpKind::Short);
        torrc
            .replace(&options)
            .map_err(|error| failed(error.to_string()))
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
        let idle = running.server.sockets().open() == 0;
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
        if idle {
            self.measure_for(|wanted| *wanted = MeasuredEvents::default());
        }
        self.report(Event::Bandwidth(second.0, second.1));
        let (connections, circuits) = self.control.activity.take();
        if !connections.is_empty() {
            self.report(Event::ConnectionBandwidth(connections));
        }
        if !circuits.is_empty() {
            self.report(Event::CellStats(circuits));
        }
    }

    /// The configuration has changed.
    pub(super) fn reload_control(&mut self) {
        let options = Arc::new(self.options.clone());
        let defaults = Arc::new(self.defaults());
        let Some(running) = &mut self.control.running else {
            // The first port.
            if let Err(error) = self.start_control() {
                tracing::warn!("{error}");
            }
            return;
        };
        let access = self.client.as_ref().map(ClientSide::access);
        if access.is_some() && running.ends.access.borrow().is_none() {
            running.ends.access.send_replace(access);
        }
        running.options = options.clone();
        running.defaults = defaults.clone();
        let view = self.node_view(options, defaults);
        if let Some(running) = &self.control.running {
            running.ends.view.send_replace(Arc::new(view));
        }
        if let Err(error) = self.write_control_files() {
            tracing::warn!("Could not write the authentication cookie: {error}");
        }
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
fn change_failed(change: &ConfigCommand, error: ChangeError) -> CommandError {
    let loads = matches!(change, ConfigCommand::Load(_));
    let one_line = |report: weft_config::Report| report.to_string().replace('\n', "; ");
    let (code, text) = match error {
        ChangeError::Unknown(name) => {
            let text = format!("Unrecognized option: Unknown option '{name}'.  Failing.");
            return CommandError::new(552, text);
        }
        ChangeError::Value(report) if loads => {
            // Stem looks for the option's name in C tor's words.
            let words = report.c_tor_message().map(str::to_owned);
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
    CommandError::new(code, text)
}
