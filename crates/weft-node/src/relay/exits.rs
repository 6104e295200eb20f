//! The main thread's part of an exit: passes requests of circuits, torrc, consensus and the relay's
//! addresses to [`Exits`], and carries out its actions.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::End;
use weft_core::address::{ConnectionId, StreamAddr};
use weft_core::controller::EdgePeer;
use weft_core::message::{StreamAsk, StreamRequest, ToController};
use weft_core::stream::edge::StreamAt;
use weft_dir::command::Command;
use weft_dir::consensus::KnownRelay;
use weft_dir::params::Params;
use weft_dircache::server::Asker;
use weft_exit::{
    DnsAnswer, DnsError, ExitAction, ExitCounts, ExitSettings, Exits, MAX_ASKING, PreviousKind,
};
use weft_share::PreviousHop;

use super::{Relay, outgoing};
use crate::exit::connect_errors::{end_reason, is_port_exhaustion, is_resource_exhaustion};
use crate::exit::dns::{DnsConfig, DnsThread};
use crate::logging::{self, safe};
use crate::thread::edges::{AdoptEdge, AdoptKind, EdgeSocket};
use crate::thread::mesh::ToThread;
use crate::wake::WakeUp;
use weft_config::Options;
use weft_log::RateLimit;
use weft_policy::ExitPolicy;

/// Log lines about one kind of trouble.
const QUIET: Duration = Duration::from_secs(300);
/// Interval at which a resolv.conf that cannot be read is tried again (RETRY_DNS_INTERVAL).
const RETRY: Duration = Duration::from_secs(600);
/// Answers that may wait for the main thread: as many as there can be questions, and as many again that
/// were cancelled too late.
const ANSWERS: usize = 4 * MAX_ASKING + 256;

/// The main thread's state of an exit.
#[derive(Debug)]
pub(super) struct ExitSide {
    exits: Exits,
    /// Asks name servers, once anything may exit.
    dns: Option<DnsThread>,
    sender: SyncSender<DnsAnswer>,
    answers: Receiver<DnsAnswer>,
    main: WakeUp,
    /// Current DNS configuration.
    config: Option<DnsConfig>,
    /// When a resolv.conf that could not be read is tried again.
    retry: Option<Instant>,
    exhausted: RateLimit,
    refused: RateLimit,
    /// Addresses that the policy rejects besides those of torrc.
    pub(super) rejected: Vec<IpAddr>,
}

impl ExitSide {
    /// An exit without streams. `main` wakes the main thread.
    pub(super) fn new(main: WakeUp, settings: ExitSettings, seed: [u8; 32]) -> Self {
        let (sender, answers) = mpsc::sync_channel(ANSWERS);
        Self {
            exits: Exits::new(settings, seed),
            dns: None,
            sender,
            answers,
            main,
            config: None,
            retry: None,
            exhausted: RateLimit::new(QUIET),
            refused: RateLimit::new(QUIET),
            rejected: Vec::new(),
        }
    }

    /// Counts since the start.
    pub(super) fn counts(&self) -> ExitCounts {
        self.exits.counts()
    }

    /// A stream ended before anything was decided about it.
    pub(super) fn forget(&mut self, stream: StreamAddr) {
        self.exits.forget(stream);
    }

    /// The policy that the descriptor publishes.
    pub(super) fn policy(&self) -> &ExitPolicy {
        self.exits.effective_policy()
    }

    /// Applies a DNS configuration; `anew`: resolv.conf may have changed.
    ///
    /// # Errors
    /// resolv.conf cannot be read; or, the first time, there is no thread to be had.
    pub(super) fn configure(
        &mut self,
        config: DnsConfig,
        anew: bool,
        now: Instant,
    ) -> Result<(), String> {
        // A relay that is no exit needs no name servers.
        if (self.exits.is_shut() && self.dns.is_none())
            || (!anew && self.config.as_ref() == Some(&config))
        {
            return Ok(());
        }
        let conf = match config.servers() {
            Ok(conf) => conf,
            Err(why) => {
                self.retry = Some(now + RETRY);
                self.exits.set_configured(false, false);
                return Err(why);
            }
        };
        self.retry = None;
        self.config = Some(config.clone());
        self.exits.set_at_once(config.names_at_once());
        self.exits.set_configured(true, true);
        match &self.dns {
            Some(dns) => dns.configure(config, conf),
            None => {
                let (sender, main) = (self.sender.clone(), self.main.clone());
                let sink = Box::new(move |answer| {
                    // There is room for every question that can be on its way.
                    let _ = sender.try_send(answer);
                    main.notify();
                });
                let dns = DnsThread::start(config, conf, sink);
                self.dns = Some(dns.map_err(|error| error.to_string())?);
            }
        }
        Ok(())
    }

    /// Ends the DNS thread.
    pub(super) fn end(&mut self) {
        if let Some(dns) = self.dns.take() {
            dns.shutdown();
        }
    }
}

/// DNS configuration by these options.
pub(super) fn dns_config(options: &Options, network: &Params, max_files: usize) -> DnsConfig {
    let dns = &options.exit.dns;
    DnsConfig {
        resolv_conf: dns.resolv_conf.clone(),
        search: dns.search_domains,
        randomize_case: dns.randomize_case,
        timeout: network.exit_dns_timeout,
        attempts: network.exit_dns_num_attempts,
        max_files,
    }
}

/// Settings of the exit. `own` are the relay's addresses.
pub(super) fn exit_settings(options: &Options, network: &Params, own: Vec<IpAddr>) -> ExitSettings {
    let exit = &options.exit;
    let policy = match options.is_relay() {
        true => exit.policy.with_rejected(rejected(options, own)),
        // A client is no exit, whatever its torrc has.
        false => ExitPolicy::reject_all(),
    };
    let tests = exit.dns.test_addresses.iter();
    ExitSettings {
        policy,
        ipv6: exit.ipv6,
        any_names: exit.dns.allow_non_rfc953,
        refuse_unknown: exit.refuse_unknown.unwrap_or(network.refuse_unknown_exits),
        reentry: network.allow_network_reentry,
        detect_hijacking: exit.dns.detect_hijacking,
        test_addresses: tests.map(|name| name.as_bytes().into()).collect(),
    }
}

/// Addresses that the policy rejects besides what torrc names
/// (policies_parse_exit_policy_from_options).
fn rejected(options: &Options, own: Vec<IpAddr>) -> Vec<IpAddr> {
    let exit = &options.exit;
    let mut rejected = if exit.reject_private { own } else { Vec::new() };
    if exit.reject_local_interfaces {
        rejected.extend(options.network.outbound_bind.all());
        rejected.extend(interfaces());
    }
    rejected
}

/// The addresses of this machine's interfaces.
fn interfaces() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|addr| IpAddr::V4(addr.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|addr| IpAddr::V6(addr.ip())))
    });
    addresses.collect()
}

impl Relay {
    /// Applies torrc, consensus and addresses. `anew`: resolv.conf may have changed.
    pub(super) fn apply_exits(&mut self, anew: bool, now: Instant) {
        let own = self.own.addresses.ips();
        self.exits.rejected = match self.options.is_relay() {
            true => rejected(&self.options, own.clone()),
            false => Vec::new(),
        };
        self.exits
            .exits
            .set(exit_settings(&self.options, &self.network.params, own));
        let config = dns_config(&self.options, &self.network.params, self.process.max_files);
        if let Err(why) = self.exits.configure(config, anew, now) {
            tracing::warn!("{why}");
        }
        self.act_exits(now);
    }

    /// Ends the streams that the policy forbids, where torrc wants that (connection_reapply_exit_policy).
    pub(super) fn reevaluate_exits(&mut self) {
        if !self.options.exit.reevaluate {
            return;
        }
        let policy = self.exits.policy().clone();
        let ended = self
            .controller
            .end_forbidden(|to| policy.allows(to.ip(), to.port()));
        if ended > 0 {
            crate::notice!("Closed {ended} exit stream(s) that the exit policy now forbids.");
        }
    }

    /// The relays' ORPorts: streams to them are refused, and connections to them are known to be good.
    pub(super) fn know_or_ports(&mut self, now: Instant) {
        let Some(consensus) = &self.network.consensus else {
            return;
        };
        let ports = |(_, relay): (_, &KnownRelay)| relay.or_ports.clone();
        let ports: HashSet<SocketAddr> = consensus.relays().flat_map(ports).collect();
        let relays = consensus
            .relays()
            .map(|(id, relay)| (id.into(), relay.or_ports.clone()));
        self.controller.set_relays(relays.collect(), now);
        self.exits.exits.set_relays(ports);
    }

    /// Once a second.
    pub(super) fn tick_exits(&mut self, now: Instant) {
        if self.exits.retry.is_some_and(|at| now >= at) {
            self.apply_exits(true, now);
        }
        self.exits.exits.tick(now);
        self.act_exits(now);
        if cfg!(debug_assertions)
            && let Err(broken) = self.exits.exits.audit()
        {
            panic!("of the exit it does not hold that {broken}");
        }
    }

    /// Takes the answers of name servers.
    pub(super) fn take_dns_answers(&mut self, now: Instant) {
        while let Ok(answer) = self.exits.answers.try_recv() {
            self.exits.exits.answered(answer, now);
        }
        self.act_exits(now);
    }

    /// A circuit asks for a stream.
    pub(super) fn on_stream(&mut self, request: StreamRequest, now: Instant) {
        let stream = request.at;
        let hop = self.controller.previous_hop(request.connection);
        match request.ask {
            StreamAsk::Begin(begin) => {
                let previous = self.previous(request.connection, request.from_client);
                if previous != PreviousKind::Relay
                    && let Some(more) = self.exits.refused.check(now)
                {
                    tracing::info!(
                        "A stream was asked for {}{more}",
                        match previous {
                            PreviousKind::Client => "on the first hop of a circuit",
                            _ => "by an unknown relay",
                        }
                    );
                }
                let ending = self.shutdown.is_under_way() || self.accounting.is_hibernating();
                self.exits.exits.set_hibernating(ending);
                self.exits.exits.begin(stream, hop, previous, &begin, now);
            }
            StreamAsk::Resolve(resolve) => self.exits.exits.resolve(stream, hop, &resolve, now),
            StreamAsk::BeginDir => {
                self.begin_dir(stream, request.connection, request.from_client);
            }
        }
        self.act_exits(now);
    }

    /// BEGIN_DIR: one end of a socket pair is the stream's, the other the directory's.
    fn begin_dir(&mut self, at: StreamAt, connection: ConnectionId, from_client: bool) {
        let (_, addr) = self.controller.peer_of(connection);
        let from = addr.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let hop = self.controller.previous_hop(connection);
        let asker = Asker {
            peer: from,
            hop,
            circuit: at.addr.half.number(),
            by_relay: !from_client,
            // Circuits have limits of their own.
            bandwidth: None,
        };
        let serve = |theirs| match &self.directory.handle {
            Some(directory) if self.options.directory.cache => directory.serve(theirs, asker),
            _ => false,
        };
        let pair = UnixStream::pair().ok().and_then(|(ours, theirs)| {
            ours.set_nonblocking(true).ok()?;
            theirs.set_nonblocking(true).ok()?;
            serve(theirs).then_some(ours)
        });
        let place =
            pair.and_then(|socket| Some((socket, self.controller.place_edge(at.addr.half, hop)?)));
        let Some((socket, (id, thread))) = place else {
            let end = End::new(EndReason::NOTDIRECTORY);
            return self.controller.refuse_stream(at.addr, &end);
        };
        self.exits.exits.counts_mut().begin_dirs += 1;
        let adopt = AdoptEdge {
            id,
            socket: EdgeSocket::Unix(socket),
            kind: AdoptKind::Exit {
                at,
                peer: None,
                ttl: 0,
            },
        };
        self.threads
            .send(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
    }

    /// Kind of a circuit's previous hop.
    fn previous(&self, connection: ConnectionId, from_client: bool) -> PreviousKind {
        if from_client {
            return PreviousKind::Client;
        }
        let (rsa, _) = self.controller.peer_of(connection);
        match rsa.is_some_and(|rsa| self.network.recent.knows(&rsa)) {
            true => PreviousKind::Relay,
            false => PreviousKind::UnknownRelay,
        }
    }

    /// Carries out what the exit decided.
    fn act_exits(&mut self, now: Instant) {
        while let Some(action) = self.exits.exits.poll_action() {
            match action {
                ExitAction::LookUp(query) => {
                    let failed = match &self.exits.dns {
                        Some(dns) => dns.look_up(query).err(),
                        None => Some(DnsAnswer {
                            query,
                            result: Err(DnsError::Unreachable),
                        }),
                    };
                    if let Some(answer) = failed {
                        self.exits.exits.answered(answer, now);
                    }
                }
                ExitAction::Cancel(query) => {
                    if let Some(dns) = &self.exits.dns {
                        dns.cancel(query);
                    }
                }
                ExitAction::Connect {
                    stream,
                    hop,
                    to,
                    ttl,
                } => self.connect_exit(stream, hop, (to, ttl), now),
                ExitAction::End { stream, end } => {
                    self.controller.refuse_stream(stream.addr, &end);
                }
                ExitAction::Resolved { stream, resolved } => {
                    self.controller.resolved(stream.addr, resolved);
                }
                ExitAction::Log(line) => logging::log(&line),
                ExitAction::PolicyChanged(why) => {
                    self.publish_descriptor();
                    self.directory(Command::Publish(why));
                }
            }
        }
    }

    /// Begins to connect; the connection thread that gets the socket does the rest.
    fn connect_exit(
        &mut self,
        at: StreamAt,
        hop: PreviousHop,
        (to, ttl): (SocketAddr, u32),
        now: Instant,
    ) {
        let Some((id, thread)) = self.controller.place_edge(at.addr.half, hop) else {
            self.exits.exits.counts_mut().resources_exhausted += 1;
            if let Some(more) = self.exits.exhausted.check(now) {
                tracing::warn!(
                    "There are as many connections as the process may have; an exit stream was \
                     refused. Raise the limit on open files (ulimit -n, LimitNOFILE){more}"
                );
            }
            let end = End::new(EndReason::RESOURCELIMIT);
            return self.controller.refuse_stream(at.addr, &end);
        };
        let from = self.options.network.outbound_bind.for_exit(to.ip());
        let constrained = self.options.resources.constrained_sock_size;
        match outgoing::connect(to, from, constrained) {
            Ok(socket) => {
                self.controller
                    .note_edge_peer(id, EdgePeer::Destination(to));
                let adopt = AdoptEdge {
                    id,
                    socket: EdgeSocket::Tcp(socket),
                    kind: AdoptKind::Exit {
                        at,
                        peer: Some(to),
                        ttl,
                    },
                };
                self.threads
                    .send(thread.0, ToThread::AdoptEdge(Box::new(adopt)));
            }
            Err(error) => {
                self.controller
                    .handle(ToController::EdgeClosed { connection: id }, now);
                self.note_connect_failed(to, &error, now);
                let end = End::new(end_reason(&error));
                self.controller.refuse_stream(at.addr, &end);
            }
        }
    }

    /// A connection could not even begin.
    fn note_connect_failed(&mut self, to: SocketAddr, error: &std::io::Error, now: Instant) {
        let counts = self.exits.exits.counts_mut();
        let ports = is_port_exhaustion(error);
        counts.ports_exhausted += u64::from(ports);
        counts.resources_exhausted += u64::from(is_resource_exhaustion(error));
        if is_resource_exhaustion(error) {
            self.note_files_exhausted();
        }
        if !ports && !is_resource_exhaustion(error) {
            tracing::info!("Could not connect to {}: {error}", safe(to));
        } else if let Some(more) = self.exits.exhausted.check(now) {
            self.overloaded();
            tracing::warn!(
                "Exit streams are refused for want of {}: {error}{more}",
                if ports {
                    "local ports (net.ipv4.ip_local_port_range, OutboundBindAddressExit)"
                } else {
                    "files or memory"
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    const EXIT: &str = "ORPort 9001\nContactInfo x\nExitRelay 1\n";

    fn settings(torrc: &str) -> ExitSettings {
        let own = vec!["192.0.2.9".parse().unwrap()];
        exit_settings(&options(&format!("{EXIT}{torrc}")), &Params::default(), own)
    }

    #[test]
    fn the_relay_s_own_addresses_are_rejected_with_the_private_ones() {
        let allows =
            |settings: &ExitSettings, addr: &str| settings.policy.allows(addr.parse().unwrap(), 80);
        let plain = settings("");
        assert!(!allows(&plain, "192.0.2.9") && !allows(&plain, "10.0.0.1"));
        assert!(allows(&plain, "192.0.2.8"));
        let open = settings("ExitPolicyRejectPrivate 0\n");
        assert!(allows(&open, "192.0.2.9") && allows(&open, "10.0.0.1"));
        let local = settings(
            "ExitPolicyRejectPrivate 0\nExitPolicyRejectLocalInterfaces 1\n\
             OutboundBindAddressExit 192.0.2.5\n",
        );
        assert!(!allows(&local, "192.0.2.5") && !allows(&local, "127.0.0.1"));
        assert!(allows(&local, "192.0.2.9"));
    }

    #[test]
    fn the_consensus_is_followed_where_torrc_has_nothing() {
        let mut consensus = Params::default();
        consensus.refuse_unknown_exits = false;
        consensus.allow_network_reentry = true;
        let of = |torrc: &str| {
            let options = options(&format!("{EXIT}{torrc}"));
            exit_settings(&options, &consensus, Vec::new())
        };
        assert!(!of("").refuse_unknown && of("").reentry);
        assert!(of("RefuseUnknownExits 1\n").refuse_unknown);
        let asking = dns_config(&options(EXIT), &consensus, 1000);
        assert_eq!(
            (asking.timeout, asking.attempts),
            (Duration::from_secs(1), 2)
        );
        assert!(asking.randomize_case && !asking.search);
    }

    #[test]
    fn a_node_that_is_no_relay_lets_nothing_out() {
        let client = options("SocksPort 9050\nExitRelay 1\nExitPolicy accept *:*\n");
        let settings = exit_settings(&client, &Params::default(), Vec::new());
        assert!(settings.policy.rejects_all());
    }
}
