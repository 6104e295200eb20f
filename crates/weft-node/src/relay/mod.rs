//! The running relay: the main thread, which owns listeners, signals, keys and the relay
//! controller, and carries out what the controller decides (architecture rule 4).

mod address;
mod clock;
mod descriptor;
mod heartbeat;
mod limits;
mod listeners;
mod shutdown;
mod signals;
mod start;
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use mio::{Events, Poll, Token};
use rand::rngs::StdRng;
use weft_cell::reason::DestroyReason;
use weft_core::controller::{Action, Notice, RelayController};
use weft_core::handshake::{PeerIdentity, Role};
use weft_core::manager::RelayParams;
use weft_core::message::ToController;
use weft_crypto::handshake::{OnionKeys, ReplyParams};
use weft_dir::bandwidth::Totals;
use weft_dir::command::{Command, Event, Severity};
use weft_dir::consensus::Consensus;
use weft_dir::params::Params;
use weft_dir::task::DirectoryHandle;
use weft_sync::lease::LeasePool;
use weft_sync::wake::WakeFlag;

use crate::keys::{OnionKeyParams, RelayKeys, Rotation};
use crate::logging::{Logging, RateLimit, safe};
use crate::notice;
use crate::process::lock::DataDirLock;
use crate::process::pid::PidFile;
use crate::process::state;
use crate::reachability::{Candidate, Probe, ProbeError, Reachability};
use crate::thread::mesh::{MainEnds, ToThread};
use crate::thread::{Adopt, ConnectionThread};
use crate::tls::LinkTls;
use crate::torrc::{self, CommandLine, Host, Options};
use crate::workers::Workers;

use address::{Addresses, Found, HostNames};
use clock::{Jump, WallClock};
use heartbeat::Heartbeat;
use listeners::Listeners;
use shutdown::Shutdown;
use signals::{Ask, Signals};

pub use start::{StartError, key_config, run};

/// Event-loop token of the signal pipe.
const SIGNAL: Token = Token(usize::MAX - 2);
/// Connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// How long connection threads may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often housekeeping runs.
const TICK: Duration = Duration::from_secs(1);
/// How often the signing key's lifetime is looked at, as C tor does.
const SIGNING_CHECK: Duration = Duration::from_secs(30);
/// How often the onion keys' lifetime is looked at, as C tor does.
const ONION_CHECK: Duration = Duration::from_secs(3600);
/// How long a probe of our own ORPort may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// What the program gives the relay besides its options.
#[derive(Debug)]
pub struct Context {
    /// To read the configuration again on SIGHUP.
    pub command_line: CommandLine,
    /// The same.
    pub host: Host,
    /// To reopen logs on SIGHUP.
    pub logging: Logging,
}

/// The running relay. See the module.
struct Relay {
    options: Options,
    context: Context,
    poll: Poll,
    events: Events,
    flag: Arc<WakeFlag>,
    listeners: Listeners,
    signals: Signals,
    keys: RelayKeys,
    onion_keys: OnionKeys,
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
    shutdown: Shutdown,
    max_connections: usize,
    last_tick: Instant,
    wall_clock: WallClock,
    next_signing_check: Instant,
    next_onion_check: Instant,
    accept_failures: RateLimit,
    /// A listener had more connections than one turn accepts.
    accept_again: bool,
    /// A connection thread ended before its time.
    failed: bool,
    overloads: RateLimit,
    memory_lines: RateLimit,
    freed_lines: RateLimit,
    skew_lines: RateLimit,
    rng: StdRng,
    pid_file: Option<PidFile>,
    _lock: DataDirLock,
}

impl Relay {
    /// Takes turns until it is over.
    fn run(mut self) -> io::Result<()> {
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
        let wait = if self.accept_again {
            Duration::ZERO
        } else if self.threads.iter().any(MainEnds::is_stuck) {
            wait.min(Duration::from_millis(1))
        } else {
            wait
        };
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
        let now = Instant::now();
        let asked = self.events.iter().any(|event| event.token() == SIGNAL);
        let ready: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
        if std::mem::take(&mut self.accept_again) {
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
        while let Ok(event) = self.directory_events.try_recv() {
            self.on_directory(event, now);
        }
        if now.saturating_duration_since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(now);
        }
        self.act(now);
        for thread in &mut self.threads {
            thread.flush();
        }
        Ok(())
    }

    /// Takes what connection threads and workers sent.
    fn take_messages(&mut self, now: Instant) {
        for index in 0..self.threads.len() {
            while let Some(message) = self
                .threads
                .get_mut(index)
                .and_then(|thread| thread.from.pop())
            {
                self.note_reachable(&message, now);
                self.controller.handle(message, now);
                self.act(now);
            }
        }
        while let Some(answer) = self.workers.poll() {
            self.controller
                .onionskin_answered(answer.half, answer.result);
        }
    }

    // ---- connections ----

    /// Accepts what waits at every listener.
    fn accept_all(&mut self, now: Instant) {
        for listener in self.listeners.tokens() {
            self.accept(listener, now);
        }
    }

    /// Accepts what waits at a listener; nothing, if the token is no listener's.
    fn accept(&mut self, listener: Token, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(accepted) = self.listeners.accept(listener) else {
                return;
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    if let Some(more) = self.accept_failures.check(now) {
                        tracing::warn!("Could not accept a connection: {error}{more}");
                    }
                    // Out of descriptors, most likely: the tick tries again.
                    return;
                }
            };
            if self.shutdown.is_under_way() {
                continue;
            }
            if let Some((id, thread)) = self.controller.accepted(peer, now) {
                // Latency before packing: the thread writes whole batches.
                let _ = socket.set_nodelay(true);
                let constrained = self.options.resources.constrained_sock_size;
                listeners::constrain((&socket).into(), constrained);
                let adopt = Adopt {
                    id,
                    socket: socket.into(),
                    peer,
                    role: Role::Responder,
                };
                self.tell(thread.0, ToThread::Adopt(Box::new(adopt)));
            }
        }
        // More may wait, and the kernel will not say so again.
        self.accept_again = true;
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
                    ed25519,
                } => {
                    let from = self.options.network.outbound_bind.for_relay(addr.ip());
                    let constrained = self.options.resources.constrained_sock_size;
                    match listeners::connect(addr, from, constrained) {
                        Ok(socket) => {
                            let adopt = Adopt {
                                id: connection,
                                socket,
                                peer: addr,
                                role: Role::Initiator {
                                    expected_rsa: Some(rsa),
                                    expected_ed: ed25519,
                                },
                            };
                            self.tell(thread.0, ToThread::Adopt(Box::new(adopt)));
                        }
                        Err(error) => {
                            tracing::info!("Could not connect to {}: {error}", safe(addr));
                            let reason = DestroyReason::CONNECTFAILED;
                            let closed = ToController::LinkClosed { connection, reason };
                            self.controller.handle(closed, now);
                        }
                    }
                }
                Action::Onionskin { half, request } => {
                    let params = ReplyParams::default();
                    if !self
                        .workers
                        .submit(half, request, &self.onion_keys, &params)
                    {
                        let refused = Err(DestroyReason::RESOURCELIMIT);
                        self.controller.onionskin_answered(half, refused);
                    }
                }
                Action::Notice(notice) => self.on_notice(&notice, now),
            }
        }
    }

    /// Something that the controller noticed.
    fn on_notice(&mut self, notice: &Notice, now: Instant) {
        match notice {
            Notice::ClockSkew { seconds, peer } => {
                if seconds.unsigned_abs() >= 3600
                    && let Some(more) = self.skew_lines.check(now)
                {
                    tracing::warn!(
                        "Our clock is {} a relay's at {} by {} seconds. Tor needs an accurate \
                         clock to work: check your time and date settings{more}",
                        if *seconds > 0 { "ahead of" } else { "behind" },
                        safe(peer),
                        seconds.unsigned_abs(),
                    );
                }
            }
            // A relay may lie; what authorities say counts (`Event::AddressSuggested`).
            Notice::AddressSeen { addr, peer } => {
                tracing::debug!("A relay at {} sees us at {}", safe(peer), safe(addr));
            }
            Notice::MemoryPressure {
                used,
                allowed,
                older_than,
            } => {
                if let Some(more) = self.memory_lines.check(now) {
                    self.overloaded();
                    tracing::warn!(
                        "We are low on memory ({} of MaxMemInQueues {} MB): circuits with cells \
                         queued for {:.1} s or longer are closed{more}",
                        used >> 20,
                        allowed >> 20,
                        older_than.as_secs_f64(),
                    );
                }
            }
            Notice::MemoryFreed { circuits, bytes } => {
                if let Some(more) = self.freed_lines.check(now) {
                    let sum = self.controller.totals();
                    notice!(
                        "Removed {bytes} bytes of queued cells by closing {circuits} circuits; \
                         since the start, {} bytes and {} circuits{more}",
                        sum.freed_for_memory,
                        sum.killed_for_memory,
                    );
                }
            }
            Notice::OnionskinOverload => {
                if let Some(more) = self.overloads.check(now) {
                    self.overloaded();
                    tracing::warn!(
                        "Your computer is too slow to handle this many circuit creation requests! \
                         Some are refused. Consider a faster computer, or MaxAdvertisedBandwidth \
                         to restrict your traffic{more}"
                    );
                }
            }
        }
    }

    /// Tells the directory that we were overloaded. The descriptor gives the hour: once per log
    /// line is enough, and a flood of refusals does not become a flood of messages.
    fn overloaded(&mut self) {
        self.directory(Command::Overloaded(SystemTime::now()));
    }

    // ---- time ----

    /// Housekeeping, once a second.
    fn tick(&mut self, now: Instant) {
        self.accept_all(now);
        if self.handles.iter().any(JoinHandle::is_finished) && !self.shutdown.is_under_way() {
            // Its links are gone, and others wait for its rings: nothing good comes of going on.
            tracing::error!("A connection thread has ended; the relay cannot go on without it");
            self.failed = true;
            self.shutdown.now(now);
        }
        let totals = self.controller.totals();
        self.directory(Command::Bandwidth(Totals {
            read: totals.bytes_read,
            written: totals.bytes_written,
            read_ipv6: totals.bytes_read_ipv6,
            written_ipv6: totals.bytes_written_ipv6,
            // This version answers no directory requests.
            ..Totals::default()
        }));
        let jump = self.wall_clock.note(now, SystemTime::now());
        if let Some(jump) = jump {
            tell_jump(jump);
        }
        if now >= self.next_signing_check || jump.is_some() {
            self.next_signing_check = now + SIGNING_CHECK;
            // What was certified by a wrong clock may be worthless by the right one.
            self.renew_keys(jump.is_some());
        }
        if now >= self.next_onion_check {
            self.next_onion_check = now + ONION_CHECK;
            self.rotate_onion_keys();
        }
        if self.names.poll(&self.options, now) {
            self.find_addresses();
        }
        self.test_reachability(now);
        if let Some(period) = self.options.log.heartbeat_period {
            let summary = self.heartbeat.due(now, period).then(|| self.summary(now));
            if let Some(summary) = summary {
                notice!("{summary}");
            }
        }
    }

    /// The heartbeat line.
    fn summary(&self, now: Instant) -> String {
        self.heartbeat.line(
            now,
            &self.controller,
            self.options.resources.connection_threads,
            self.threads.len(),
        )
    }

    /// A new signing key, or link keys that are old or not wanted any more: links get new
    /// certificates.
    fn renew_keys(&mut self, unwanted: bool) {
        let wall = SystemTime::now();
        let changed = match self.keys.renew_signing_if_due(wall, &mut self.rng) {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!("Could not renew the signing key: {error}");
                false
            }
        };
        if changed || unwanted || self.tls.renew_at().is_some_and(|at| wall >= at) {
            match start::link_tls(&self.keys, &self.options, wall, &mut self.rng) {
                Ok(tls) => {
                    self.tls = Arc::new(tls);
                    for thread in 0..self.threads.len() {
                        let tls = self.tls.clone();
                        if let Ok(thread) = u16::try_from(thread) {
                            self.tell(thread, ToThread::Renewed(tls));
                        }
                    }
                }
                Err(error) => tracing::warn!("Could not renew the link keys: {error}"),
            }
        }
        if changed {
            self.publish_descriptor();
        }
    }

    /// Onion keys that are old are replaced, and the old ones kept for a while.
    fn rotate_onion_keys(&mut self) {
        let params = OnionKeyParams {
            lifetime: self.network.onion_key_lifetime,
            grace: self.network.onion_key_grace_period,
        };
        match self
            .keys
            .rotate_if_due(SystemTime::now(), params, &mut self.rng)
        {
            Ok(Rotation::None) => {}
            Ok(_) => {
                self.onion_keys = start::onion_keys(&self.keys);
                self.publish_descriptor();
            }
            Err(error) => tracing::warn!("Could not rotate the onion keys: {error}"),
        }
    }

    // ---- reachability ----

    /// A relay that opened a connection to us proves that it can; where to, it says in NETINFO.
    fn note_reachable(&mut self, message: &ToController, now: Instant) {
        if let ToController::LinkOpened {
            connection,
            peer: PeerIdentity::Relay { .. },
            my_addr: Some(my_addr),
            ..
        } = message
            && self.controller.was_accepted(*connection)
            && self.reachability.found_reachable(*my_addr, now)
        {
            self.found_reachable();
        }
    }

    /// Starts and collects probes of our own ORPort.
    fn test_reachability(&mut self, now: Instant) {
        let (done, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.probes)
            .into_iter()
            .partition(|(_, probe)| probe.is_finished());
        self.probes = running;
        for (addr, probe) in done {
            match probe.join() {
                Ok(Ok(())) => {
                    if self.reachability.succeeded(addr, now) {
                        self.found_reachable();
                    }
                }
                Ok(Err(error)) => {
                    self.reachability.failed(addr, now);
                    if error.is_verdict() {
                        tracing::warn!("Testing whether our ORPort is reachable: {error}");
                    } else {
                        tracing::info!("Testing whether our ORPort is reachable: {error}");
                    }
                }
                Err(_) => self.reachability.failed(addr, now),
            }
        }
        let Some(consensus) = self.consensus.clone() else {
            return;
        };
        let Some(addr) = self.reachability.due(now).filter(|_| self.probes.len() < 2) else {
            return;
        };
        let own = self.params.own_rsa;
        let candidates: Vec<Candidate> = consensus
            .relays()
            .filter_map(|(id, relay)| {
                let rsa: [u8; 20] = id.as_bytes().try_into().ok()?;
                // Over a link that is open already a relay would prove nothing.
                if rsa == own || self.controller.has_link_to(&rsa) {
                    return None;
                }
                let via = relay
                    .or_ports
                    .iter()
                    .find(|port| port.is_ipv4() == addr.is_ipv4())?;
                Some(Candidate { addr: *via, rsa })
            })
            .collect();
        let Some(via) = self.reachability.choose(addr, &candidates, &mut self.rng) else {
            return;
        };
        let probe = Probe {
            via: via.addr,
            via_rsa: via.rsa,
            own_addr: addr,
            own_rsa: self.params.own_rsa,
            own_ed25519: self.names_ed25519().then_some(self.params.own_ed25519),
            own_ntor: self.keys.ntor.current.public,
            bind: self.options.network.outbound_bind.for_relay(via.addr.ip()),
            timeout: PROBE_TIMEOUT,
        };
        let mut rng = {
            use rand::SeedableRng as _;
            StdRng::from_rng(&mut self.rng)
        };
        let started = std::thread::Builder::new()
            .name("reachability".into())
            .spawn(move || probe.run(&mut rng));
        if let Ok(handle) = started {
            self.reachability.started(addr, now);
            self.probes.push((addr, handle));
        }
    }

    /// Whether our EXTEND2s name ed25519 identities (`ExtendByEd25519ID`).
    fn names_ed25519(&self) -> bool {
        self.options
            .network
            .extend_by_ed25519_id
            .unwrap_or(self.network.extend_by_ed25519_id)
    }

    /// Our ORPort was reached from outside: the descriptor may be published.
    fn found_reachable(&mut self) {
        let (ipv4, ipv6) = self.reachability.is_reachable();
        if ipv4 {
            notice!("Self-testing indicates your ORPort is reachable from the outside. Excellent.");
        }
        self.directory(Command::Reachable { ipv4, ipv6 });
    }

    // ---- directory ----

    /// Sends the directory task a command.
    fn directory(&mut self, command: Command) {
        if let Some(directory) = &self.directory
            && directory.send(command).is_err()
        {
            tracing::info!("The directory task is busy; it misses a message");
        }
    }

    /// Tells the directory what our descriptor says now.
    fn publish_descriptor(&mut self) {
        match descriptor::own_descriptor(&self.options, &self.keys, &self.addresses) {
            Some(own) => self.directory(Command::Descriptor(Box::new(own))),
            None => tracing::info!("No IPv4 address known yet: no descriptor is published"),
        }
    }

    /// News from the directory.
    fn on_directory(&mut self, event: Event, now: Instant) {
        match event {
            Event::Consensus(consensus) => {
                self.network = consensus.params.clone();
                self.consensus = Some(consensus);
                self.apply_params();
            }
            Event::Bootstrap {
                percent,
                tag,
                summary,
            } => notice!("Bootstrapped {percent}% ({tag}): {summary}"),
            Event::Uploaded { authority, outcome } => {
                tracing::info!("Upload of our descriptor to {authority}: {outcome:?}");
            }
            Event::Published {
                accepted,
                of,
                reason,
                observed,
            } => notice!(
                "Published our descriptor ({reason}): {accepted} of {of} authorities have it, \
                 observed bandwidth {} kB/s",
                observed / 1000
            ),
            Event::Listed(Some(flags)) => {
                notice!("The consensus lists us, with flags: {flags:?}");
            }
            Event::Listed(None) => notice!("The consensus does not list us (any more)"),
            Event::MissingProtocols {
                required,
                protocols,
            } => {
                // C tor stops when it lacks a required protocol. A relay of this version lacks
                // those of onion services and exits by design, and its descriptor says so.
                if required {
                    tracing::warn!(
                        "The consensus requires protocols that this version does not speak: \
                         {protocols}. It is not for the public network yet: relays there are to \
                         speak them, and the authorities may leave this one out"
                    );
                } else {
                    tracing::info!(
                        "The consensus recommends protocols that this version does not speak: \
                         {protocols}"
                    );
                }
            }
            Event::ClockSkew { seconds, source } => {
                if let Some(more) = self.skew_lines.check(now) {
                    tracing::warn!(
                        "Our clock differs from the directory's ({source}) by {seconds} seconds: \
                         check your time and date settings{more}"
                    );
                }
            }
            Event::AddressSuggested { address, source } if self.address_seen != Some(address) => {
                tracing::info!("{source} sees us at {}", safe(address));
                self.address_seen = Some(address);
                self.find_addresses();
            }
            Event::State(lines) => self.save_state(&lines),
            Event::Message(severity, text) => match severity {
                Severity::Info => tracing::info!("{text}"),
                Severity::Notice => notice!("{text}"),
                Severity::Warn => tracing::warn!("{text}"),
            },
            _ => {}
        }
    }

    /// Puts what torrc and consensus say into force.
    fn apply_params(&mut self) {
        let has_ipv6 = self.addresses.v6.is_some();
        let params = limits::relay_params(
            &self.options,
            &self.network,
            self.params.own_rsa,
            self.params.own_ed25519,
            has_ipv6,
        );
        self.params = Arc::new(params);
        self.controller.set_relay_params(&self.params);
        self.controller.set_params(limits::controller_params(
            &self.options,
            &self.network,
            self.max_connections,
            self.workers.count(),
            crate::process::machine::total_memory(),
        ));
        let (rate, burst) = limits::bandwidth(&self.options);
        self.pool.set_limit(rate, burst);
        self.know_relays();
        self.tell_thread_params();
    }

    /// Tells the connection threads what they follow.
    fn tell_thread_params(&mut self) {
        let params = limits::thread_params(
            &self.options,
            &self.network,
            &self.known_relays,
            self.addresses.ips(),
        );
        for thread in 0..self.threads.len() {
            if let Ok(thread) = u16::try_from(thread) {
                self.tell(thread, ToThread::Params(Box::new(params.clone())));
            }
        }
    }

    /// Lists the consensus' relays, if connections to others are limited.
    fn know_relays(&mut self) {
        let needed = limits::per_connection(&self.options, &self.network).is_some();
        let relays = self.consensus.iter().filter(|_| needed);
        let relays = relays.flat_map(|consensus| consensus.relays());
        let ids = relays.filter_map(|(id, _)| id.as_bytes().try_into().ok());
        self.known_relays = Arc::new(ids.collect());
    }

    /// Looks for our addresses again.
    fn find_addresses(&mut self) {
        let found = Addresses::find(
            &self.options,
            &self.names,
            &self.listeners.advertised,
            address::interface_address,
            self.address_seen,
        );
        if found.refused != self.refused {
            tell_refused(&found);
            self.refused.clone_from(&found.refused);
        }
        let found = found.addresses;
        if found != self.addresses {
            self.addresses = found;
            self.tell_thread_params();
            self.reachability
                .set_addresses(found.v4.map(SocketAddr::V4), found.v6.map(SocketAddr::V6));
            let (ipv4, ipv6) = self.reachability.is_reachable();
            self.directory(Command::Reachable { ipv4, ipv6 });
            self.publish_descriptor();
        }
    }

    /// Keeps the bandwidth history for the next start.
    fn save_state(&self, lines: &[(String, String)]) {
        let saved = state::update(
            &self.options.files.data_directory,
            SystemTime::now(),
            |state| {
                for (key, value) in lines {
                    state.set(key, value);
                }
            },
        );
        if let Err(error) = saved {
            tracing::warn!("Could not save the state: {error}");
        }
    }

    // ---- signals ----

    /// What the operator asks for.
    fn on_signal(&mut self, ask: Ask, now: Instant) {
        match ask {
            Ask::Terminate => {
                notice!("Catching signal TERM, exiting cleanly.");
                self.controller.drain();
                self.shutdown.now(now);
            }
            Ask::Interrupt if self.shutdown.is_under_way() => {
                notice!("Catching signal INT again, exiting now.");
                self.shutdown.now(now);
            }
            Ask::Interrupt => {
                let wait = self.options.process.shutdown_wait_length;
                notice!(
                    "Interrupt: we have stopped accepting new connections, and will shut down when \
                     nobody is connected any more, in {} seconds at the latest. Interrupt again to \
                     exit now.",
                    wait.as_secs()
                );
                self.controller.drain();
                self.shutdown.after(wait, now);
            }
            Ask::Reload => self.reload(now),
            Ask::Statistics => {
                let summary = self.summary(now);
                notice!("{summary}");
                for line in Heartbeat::details(&self.controller) {
                    notice!("{line}");
                }
            }
            Ask::Debug => {
                self.context.logging.debug();
                notice!("Switching to loglevel debug.");
            }
        }
    }

    /// SIGHUP: the configuration again, logs reopened, keys reread, descriptor republished.
    fn reload(&mut self, now: Instant) {
        notice!("Received reload signal (hup). Reloading config and resetting internal state.");
        let mut republish = Some("config change");
        if !self.options.process.reload_on_sighup {
            notice!("Not reloading the configuration, as __ReloadTorrcOnSIGHUP says.");
            let log = &self.options.log;
            if let Err(error) = self.context.logging.apply(log, Some(log)) {
                tracing::warn!("{error}");
            }
        } else if let Err(why) = self.reload_options(now) {
            for line in why.lines() {
                tracing::warn!("{line}");
            }
            tracing::warn!(
                "The old configuration stays in force. Correct the above and send SIGHUP again"
            );
            republish = None;
        }
        match self.keys.reload_signing(SystemTime::now(), &mut self.rng) {
            Ok(true) => self.next_signing_check = Instant::now(),
            Ok(false) => {}
            Err(error) => tracing::warn!("Could not read the keys again: {error}"),
        }
        self.publish_descriptor();
        if let Some(reason) = republish {
            self.directory(Command::Publish(reason));
        }
    }

    /// Reads the configuration and puts it into force; or nothing of it, if any of it fails.
    fn reload_options(&mut self, now: Instant) -> Result<(), String> {
        let context = &self.context;
        let (loaded, changes) =
            match torrc::reload(&context.command_line, &context.host, &self.options) {
                Ok(reloaded) => reloaded,
                Err(report) => {
                    let why = report.to_string();
                    report.without_errors().log();
                    return Err(why);
                }
            };
        loaded.report.log();
        let new = loaded.options;
        if changes.iter().any(|change| change.name == "ConnLimit") {
            let wanted = u64::from(new.resources.conn_limit);
            self.max_connections = crate::process::limits::raise_file_limit(wanted)
                .map_err(|error| error.to_string())?;
        }
        context
            .logging
            .apply(&new.log, Some(&self.options.log))
            .map_err(|error| error.to_string())?;
        if let Err(error) = self.listeners.reopen(&new, self.poll.registry()) {
            if let Err(error) = context.logging.apply(&self.options.log, Some(&new.log)) {
                tracing::warn!("{error}");
            }
            return Err(error.to_string());
        }
        self.options = new;
        for change in changes {
            if change.affects_authorities() {
                notice!("The directory authorities changed");
            }
            if change.needs_restart() {
                tracing::warn!("{} takes effect after a restart", change.name);
            }
        }
        self.keys.set_config(start::key_config(&self.options));
        if let Err(error) = start::prepare_directories(&self.options) {
            tracing::warn!("{error}");
        }
        let directory = &self.options.directory;
        self.reachability
            .set_assumed(directory.assume_reachable, directory.assume_reachable_ipv6);
        let (ipv4, ipv6) = self.reachability.is_reachable();
        self.directory(Command::Reachable { ipv4, ipv6 });
        let options = descriptor::directory_options(&self.options);
        self.directory(Command::Options(Box::new(options)));
        self.names.look_up_soon();
        self.names.poll(&self.options, now);
        self.find_addresses();
        self.apply_params();
        Ok(())
    }

    /// Ends everything in order.
    fn end(mut self) -> io::Result<()> {
        for thread in &mut self.threads {
            thread.send(ToThread::Stop);
        }
        // Full rings empty while both sides take turns; a thread that does not is not waited for.
        let deadline = Instant::now() + STOP_PATIENCE;
        loop {
            for thread in &mut self.threads {
                thread.flush();
                while thread.from.pop().is_some() {}
            }
            if let Some(thread) = &mut self.inline {
                thread.turn(Duration::ZERO)?;
            }
            let inline_ended = self
                .inline
                .as_ref()
                .is_none_or(ConnectionThread::is_stopping);
            let ended = inline_ended && self.handles.iter().all(JoinHandle::is_finished);
            if ended || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.handles.retain(|handle| {
            let ended = handle.is_finished();
            if !ended {
                tracing::warn!("A connection thread does not end; the process ends without it");
            }
            ended
        });
        let mut result = match self.failed {
            true => Err(io::Error::other(
                "a connection thread ended before its time",
            )),
            false => Ok(()),
        };
        for handle in self.handles.drain(..) {
            match handle.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => result = Err(error),
                Err(_) => result = Err(io::Error::other("a connection thread panicked")),
            }
        }
        if let Some(directory) = self.directory.take() {
            directory.shutdown();
        }
        let mut last = None;
        while let Ok(event) = self.directory_events.try_recv() {
            if let Event::State(lines) = event {
                last = Some(lines);
            }
        }
        if let Some(lines) = last {
            self.save_state(&lines);
        }
        drop(self.pid_file.take());
        notice!("Exiting.");
        result
    }
}

/// Tells the operator that the wall clock was set, as C tor does.
fn tell_jump(jump: Jump) {
    let (far, direction) = match jump {
        Jump::Forward(far) => (far, "forward"),
        Jump::Backward(far) => (far, "backward"),
    };
    tracing::warn!(
        "Your system clock just jumped {} seconds {direction}. Circuits go on; keys and \
         certificates are looked at by the new time",
        far.as_secs_f64().round()
    );
}

/// Tells the operator of addresses that cannot be used, and what to do.
fn tell_refused(found: &Found) {
    for addr in &found.refused {
        tracing::warn!(
            "Address {} is private: nobody on the public network can reach it, and no descriptor \
             is published. Set Address to this machine's public address. In a network of your own \
             set DirAuthority, or DirAllowPrivateAddresses 1",
            safe(addr)
        );
    }
}
