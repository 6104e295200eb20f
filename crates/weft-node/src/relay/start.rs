//! From options to a running node, in phases: ports, files and keys, threads, the rest.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mio::Interest;
use rand::RngExt as _;
use rand::rngs::StdRng;
use weft_config::Options;
use weft_core::controller::RelayController;
use weft_datadir::lock::{DataDirLock, PATIENCE};
use weft_datadir::state;
use weft_dir::command::Command;

use super::accounting::AccountingSide;
use super::address::{Addresses, OwnAddresses};
use super::app_ports::AppPorts;
use super::apps::AppSide;
use super::authority;
use super::bridge_relay::BridgeRelay;
use super::bridge_transports::BridgeTransports;
use super::client::ClientSide;
use super::client_transports::ClientTransports;
use super::control::ControlSide;
use super::dir_port::DirPortSide;
use super::directory::DirectorySide;
use super::error::StartError;
use super::event_loop::EventLoop;
use super::exits::{self, ExitSide};
use super::identity::{Identity, prepare_directories};
use super::listeners::{self, ListenerSet};
use super::membership::Membership;
use super::metrics::Metrics;
use super::network::NetworkView;
use super::notices::{LogLimits, log_disabled};
use super::onionskins::Assessment;
use super::process::Process;
use super::self_test::SelfTest;
use super::shutdown::Shutdown;
use super::signals::Signals;
use super::statistics::StatisticsSide;
use super::threads::{self, Setup, Threads};
use super::uploads::UploadLines;
use super::{Context, Relay, SIGNAL, claims, identities, limits};
use crate::notice;
use crate::process::limits::raise_file_limit;
use crate::process::machine::{self, keep_pages_small};
use crate::process::pid::PidFile;
use crate::process::{restrict, sandbox, user};
use crate::thread::host::Guest;
use crate::wake::WakeUp;
use crate::workers::Workers;

/// Onionskin workers at most, where `NumCPUs` sets their number.
const MAX_WORKERS: usize = 256;
/// Onionskin workers at most, where it does not: C tor's MAX_DETECTABLE_CPUS.
const MAX_DETECTED_WORKERS: usize = 16;

/// Starts the identities of the process, mostly one, and runs them until a signal ends them.
///
/// # Errors
///
/// [`StartError`]: nothing was started, or an event loop failed.
pub(super) fn run(all: Vec<(Options, Context)>) -> Result<(), StartError> {
    identities::run(start(all)?)
}

/// The process first, then each identity as far as it needs no threads, the threads of all, and the rest of each.
fn start(all: Vec<(Options, Context)>) -> Result<Vec<Relay>, StartError> {
    let torrcs: Vec<String> = all
        .iter()
        .map(|(_, context)| context.torrc.clone())
        .collect();
    let options = all.iter().map(|(options, _)| options.clone());
    let options: Vec<Options> = options.collect();
    let named: Vec<_> = torrcs.iter().map(String::as_str).zip(&options).collect();
    super::check_all(&named)?;
    // Options of the process are equal in all identities.
    let Some(first) = options.first() else {
        return Err(StartError::NothingToDo);
    };
    keep_pages_small();
    let mut rng: StdRng = rand::make_rng();
    let max_files = raise_file_limit(u64::from(first.resources.conn_limit))?;
    restrict::disable_swap(&first.process)?;
    let members = Membership::of(all.len());
    // Ports first, as the user who may bind them; files then, as the user who will own them.
    let mut opened = Vec::new();
    for ((options, context), membership) in all.into_iter().zip(members) {
        let ports = context.within(|| {
            if options.network.disabled {
                log_disabled();
            }
            open_ports(&options, &membership)
        })?;
        opened.push((options, context, ports, membership));
    }
    if let Some(name) = &first.process.user {
        user::drop_privileges(name, options.iter().any(keeps_bind))?;
    }
    restrict::restrict(&first.process);
    for (options, context, ..) in &opened {
        context.within(|| prepare_directories(options))?;
    }
    // Links are known now that all directories are there.
    claims::check_together(&named)?;
    let mut prepared = Vec::new();
    for (options, context, ports, membership) in opened {
        let name = context.name();
        let threads = usize::try_from(threads::wanted(&options)).unwrap_or_default();
        let max_files = membership.max_files(max_files, threads);
        let limits = (max_files, membership);
        prepared.push(name.within(|| Prepared::new(options, context, ports, limits))?);
    }
    let keys = prepared.iter().zip(&torrcs);
    claims::check_keys(keys.map(|(one, torrc)| (one.identity.ids(), torrc.clone(), &one.options)))?;
    let pid_file = first.files.pid_file.as_deref();
    let pid_file = pid_file.map(PidFile::write).transpose()?.map(Arc::new);
    for one in &mut prepared {
        one.process.pid_file.clone_from(&pid_file);
    }
    drop(pid_file);
    // Threads that start from here on inherit it.
    if first.process.sandbox {
        weft_tls::prepare();
        sandbox::enter()?;
    }
    let threads = start_threads(&mut prepared)?;
    log_memory_limit(first);
    let workers = start_workers(first, &prepared, &mut rng)?;
    let mut relays = Vec::new();
    for ((prepared, threads), workers) in prepared.into_iter().zip(threads).zip(workers) {
        let name = prepared.context.name();
        relays.push(name.within(|| prepared.finish(threads, workers))?);
    }
    // The first has the process' background: it is up when the others are.
    for relay in relays.iter_mut().rev() {
        relay.context.name().within(|| relay.announce())?;
    }
    Ok(relays)
}

/// An identity with its ports, files and keys, and without threads.
struct Prepared {
    options: Options,
    context: Context,
    listeners: ListenerSet,
    apps: AppPorts,
    identity: Identity,
    process: Process,
    own: OwnAddresses,
    network: NetworkView,
    event_loop: EventLoop,
    signals: Signals,
    rng: StdRng,
    now: Instant,
    wall: SystemTime,
}

impl Prepared {
    fn new(
        options: Options,
        context: Context,
        (mut listeners, apps): (ListenerSet, AppPorts),
        limits: (usize, Membership),
    ) -> Result<Self, StartError> {
        let mut rng: StdRng = rand::make_rng();
        let lock = DataDirLock::acquire(&options.files.data_directory, PATIENCE)?;
        let (now, wall) = (Instant::now(), SystemTime::now());
        let identity = Identity::load(&options, now, wall, &mut rng)?;
        let process = Process::new(lock, limits, now, wall);
        let advertised = listeners.advertised(&options.network);
        let own = OwnAddresses::find(&options, &advertised, now);
        let mut event_loop = EventLoop::new(now)?;
        listeners.register(event_loop.poll.registry())?;
        let signals = watch_signals(&mut event_loop, options.process.signal_handlers)?;
        Ok(Prepared {
            options,
            context,
            listeners,
            apps,
            identity,
            process,
            own,
            network: NetworkView::default(),
            event_loop,
            signals,
            rng,
            now,
            wall,
        })
    }

    fn finish(mut self, threads: Threads, workers: Workers) -> Result<Relay, StartError> {
        let (options, now) = (self.options, self.now);
        let (max_files, rng) = (self.process.max_files, &mut self.rng);
        let params = limits::controller_params(
            &options,
            &self.network.params,
            max_files,
            workers.count(),
            machine::total_memory(),
        );
        let mut controller = RelayController::new(threads.count(), params, rng.random(), now);
        if !options.resources.use_all_threads {
            let cores = machine::usable_cores();
            controller.adapt_threads(u16::try_from(cores).unwrap_or(u16::MAX));
        }
        let wake = &self.event_loop.wake;
        let exits = start_exits(
            &options,
            &self.network,
            (&self.own.addresses, max_files),
            wake.clone(),
            rng.random(),
            now,
        )?;
        // Before the directory, which publishes to it.
        let authority = match &self.identity.keys {
            Some(keys) => authority::start(&options, keys, &self.own.addresses)?,
            None => None,
        };
        let state = state::load(&options.files.data_directory)?;
        let (own_rsa, _) = self.identity.ids();
        let accounting = AccountingSide::new(&state, own_rsa.0);
        let registry = || self.event_loop.poll.registry().try_clone();
        let bridge_transports = BridgeTransports::new(&state, registry()?);
        let client_transports = ClientTransports::new(registry()?);
        let state = state.lines();
        let keys = self.identity.keys.as_ref();
        let client = ClientSide::start(&options, self.apps.known(), keys, &state, wake, rng)?;
        if client.is_some() {
            controller.serve_client();
        }
        let directory =
            DirectorySide::start(&options, authority, state, rng.random(), wake.clone())?;
        log_start(&options, &self.identity, client.is_some(), &workers);
        warn_of_risks(&options, client.is_some());
        let dir_port = DirPortSide::new(threads.pool.clone());
        Ok(Relay {
            self_test: SelfTest::new(&options, &self.own.addresses, now),
            metrics: Metrics::new(usize::from(threads.count())),
            statistics: StatisticsSide::new(&options, now, self.wall),
            bridge_transports,
            bridge_relay: BridgeRelay::default(),
            options,
            context: self.context,
            event_loop: self.event_loop,
            signals: self.signals,
            listeners: self.listeners,
            identity: self.identity,
            controller,
            threads,
            workers,
            directory,
            dir_port,
            network: self.network,
            own: self.own,
            apps: AppSide::new(self.apps),
            control: ControlSide::new(),
            client,
            client_transports,
            exits,
            log_limits: LogLimits::new(),
            onionskins: Assessment::new(now),
            uploads: UploadLines::default(),
            accounting,
            shutdown: Shutdown::default(),
            process: self.process,
            rng: self.rng,
        })
    }
}

/// The connection threads of all identities: each has as many, and thread *i* of the process takes the turns of thread *i* of
/// each.
fn start_threads(all: &mut [Prepared]) -> Result<Vec<Threads>, StartError> {
    let mut of_each = Vec::new();
    let mut hosted: Vec<Vec<Guest>> = Vec::new();
    for one in all {
        let (threads, guests) = one.context.within(|| {
            let setup = thread_setup(
                &one.options,
                &one.identity,
                &one.network,
                &one.own.addresses,
            );
            let wanted = threads::wanted(&one.options);
            Threads::make(wanted, &one.event_loop, setup, &mut one.rng, one.now)
        })?;
        of_each.push(threads);
        hosted.resize_with(hosted.len().max(guests.len()), Vec::new);
        for (thread, guest) in hosted.iter_mut().zip(guests) {
            thread.push(guest);
        }
    }
    for (number, guests) in hosted.into_iter().enumerate() {
        threads::spawn(number, guests)?;
    }
    Ok(of_each)
}

/// True if the right to bind low ports is kept: torrc asks for it, or has such a port
/// (`have_low_ports`).
fn keeps_bind(options: &Options) -> bool {
    let is_low = |addr: SocketAddr| (1..1024).contains(&addr.port());
    options
        .process
        .keep_bind_capabilities
        .unwrap_or_else(|| super::check::tcp_ports(options).any(|(_, addr)| is_low(addr)))
}

/// Opens the ports that torrc asks for.
fn open_ports(
    options: &Options,
    membership: &Membership,
) -> Result<(ListenerSet, AppPorts), StartError> {
    let mut listeners = ListenerSet::default();
    let mut apps = AppPorts::default();
    let ports = apps.number_all(options)?;
    let user = options.process.user.as_deref();
    let wanted = listeners::wanted(options, &ports, false, membership.leads());
    listeners.follow(wanted, user, None)?;
    apps.follow(options, &ports);
    Ok((listeners, apps))
}

fn watch_signals(event_loop: &mut EventLoop, enabled: bool) -> Result<Signals, StartError> {
    let mut signals = Signals::register(enabled)?;
    let registry = event_loop.poll.registry();
    registry.register(&mut signals.pipe, SIGNAL, Interest::READABLE)?;
    Ok(signals)
}

fn thread_setup(
    options: &Options,
    identity: &Identity,
    network: &NetworkView,
    addresses: &Addresses,
) -> Setup {
    let (rsa, ed25519) = identity.ids();
    let has_ipv6 = addresses.v6.is_some();
    let params = limits::relay_params(options, &network.params, rsa, ed25519, has_ipv6);
    let (relays, ips) = (&network.relays, addresses.ips());
    Setup {
        params: Arc::new(params),
        thread_params: limits::thread_params(
            options,
            &network.params,
            relays,
            ips,
            machine::total_memory(),
        ),
        bandwidth: limits::bandwidth(options),
        tls: identity.tls.clone(),
    }
}

fn log_memory_limit(options: &Options) {
    if options.resources.max_mem_in_queues_set.is_none() {
        let memory = machine::total_memory();
        notice!(
            "{}MaxMemInQueues is set to {} MB. You can override this by setting MaxMemInQueues by \
             hand.",
            memory.map_or("", |_| "Based on detected system memory, "),
            options.resources.max_mem_in_queues(memory) >> 20
        );
    }
}

/// The workers, which all identities share.
fn start_workers(
    first: &Options,
    all: &[Prepared],
    rng: &mut StdRng,
) -> Result<Vec<Workers>, StartError> {
    let detected = machine::usable_cores().min(MAX_DETECTED_WORKERS);
    let wanted = first.resources.num_cpus.map_or(detected, |count| {
        usize::try_from(count).unwrap_or(MAX_WORKERS)
    });
    let most = match all.iter().any(|one| one.identity.keys.is_some()) {
        true => MAX_WORKERS,
        false => 1,
    };
    let mains: Vec<WakeUp> = all.iter().map(|one| one.event_loop.wake.clone()).collect();
    Ok(Workers::start(wanted.clamp(1, most), &mains, rng)?)
}

fn start_exits(
    options: &Options,
    network: &NetworkView,
    (addresses, max_files): (&Addresses, usize),
    main: WakeUp,
    seed: [u8; 32],
    now: Instant,
) -> Result<ExitSide, StartError> {
    let settings = exits::exit_settings(options, &network.params, addresses.ips());
    let mut exits = ExitSide::new(main, settings, seed);
    let dns = exits::dns_config(options, &network.params, max_files);
    if let Err(why) = exits.configure(dns, true, now) {
        if !options.exit.dns.allow_broken_config {
            return Err(StartError::Dns(why));
        }
        tracing::warn!(
            "{why}. Couldn't set up any working nameservers. Network not up yet?  Will try again \
             soon."
        );
    }
    Ok(exits)
}

fn log_start(options: &Options, identity: &Identity, is_client: bool, workers: &Workers) {
    notice!(
        "Weft {} {} on {} ({} onionskin worker(s))",
        env!("CARGO_PKG_VERSION"),
        match (&identity.keys, is_client) {
            (Some(_), true) => "relay and client",
            (Some(_), false) => "relay",
            (None, _) => "client",
        },
        match threads::wanted(options) {
            0 => "the main thread".to_owned(),
            1 => "1 connection thread".to_owned(),
            n => format!("{n} connection threads"),
        },
        workers.count()
    );
}

/// Warns of what an operator or a user may not know of this start.
fn warn_of_risks(options: &Options, is_client: bool) {
    if options.process.user.is_none() && nix::unistd::geteuid().is_root() {
        // C tor's text, which is known to mean this.
        tracing::warn!(
            "You are running Tor as root. You don't need to, and you probably shouldn't. Set User, or start Weft as another \
             user."
        );
    }
    if is_client && options.directory.default_authorities {
        tracing::warn!(
            "This version of Weft is made for private networks, and no DirAuthority is set: on the public Tor network it \
             protects nobody as Tor Browser or C tor do. Use those where privacy matters"
        );
    }
}

impl Relay {
    /// Notifies the others that the node is up: controllers, the directory, metrics, the process that
    /// started this one.
    fn announce(&mut self) -> Result<(), StartError> {
        self.start_control()?;
        self.follow_client_transports(Instant::now());
        self.configure_statistics();
        self.follow_bridge_transports(Instant::now());
        self.set_accounting(Instant::now());
        let (ipv4, ipv6) = self.self_test.reachability.is_reachable();
        self.directory(Command::Reachable { ipv4, ipv6 });
        self.publish_descriptor();
        self.publish_metrics(Instant::now());
        if let Some(background) = self.context.background.take() {
            background.detach(&self.options.files.data_directory)?;
        }
        if self.process.membership.up() {
            self.process.manager.ready();
        }
        Ok(())
    }
}
