//! The main thread's part of the MetricsPort: which clients are served, and the snapshot that they get.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use weft_config::options::AppService;
use weft_core::controller::FamilyCounts;
use weft_dir::command::RelayFlags;
use weft_dir::sockets::Sockets;
use weft_log::RateLimit;

use super::Relay;
use super::listeners::Service;
use crate::client::ClientCounts;
use crate::logging::safe;
use crate::metrics::{
    ListenerCounts, METRICS, MainCounts, MetricsServer, Snapshot, TypedConnections,
};
use crate::process::cpu;

/// The interval of log lines about refused connections.
const QUIET: Duration = Duration::from_secs(300);
/// A snapshot that is older is renewed when a client connects.
const FRESH: Duration = Duration::from_millis(100);

/// The main thread's state of the MetricsPort.
#[derive(Debug)]
pub(super) struct Metrics {
    /// When the relay started.
    started: SystemTime,
    /// Answers requests, where there is a MetricsPort.
    server: Option<MetricsServer>,
    /// The time of the last snapshot.
    published: Option<Instant>,
    accepted: FamilyCounts,
    refused: FamilyCounts,
    refusals: RateLimit,
    /// The relay's flags in the consensus.
    pub(super) flags: RelayFlags,
    /// The client's last counts, if there is a client.
    pub(super) client: Option<ClientCounts>,
    /// Connections that could not be opened because no local port was left.
    pub(super) ports_exhausted: u64,
    /// Turns of the main thread's loop.
    pub(super) turns: u64,
    /// The most messages of each connection thread that waited since the last snapshot.
    from_threads: Vec<usize>,
}

impl Metrics {
    /// Counters at zero, without a MetricsPort.
    pub(super) fn new(threads: usize) -> Self {
        Metrics {
            started: SystemTime::now(),
            server: None,
            published: None,
            accepted: FamilyCounts::default(),
            refused: FamilyCounts::default(),
            refusals: RateLimit::new(QUIET),
            flags: RelayFlags::empty(),
            client: None,
            ports_exhausted: 0,
            turns: 0,
            from_threads: vec![0; threads],
        }
    }

    /// Notes how many messages of a connection thread wait.
    pub(super) fn see_ring(&mut self, thread: usize, messages: usize) {
        if let Some(most) = self.from_threads.get_mut(thread) {
            *most = (*most).max(messages);
        }
    }
}

/// Sockets by family: since the start, and now.
pub(super) fn by_family(sockets: &Sockets) -> (FamilyCounts, FamilyCounts) {
    let (v4, v6) = (sockets.ipv4(), sockets.ipv6());
    let counts = |ipv4, ipv6| FamilyCounts { ipv4, ipv6 };
    (counts(v4.opened, v6.opened), counts(v4.open, v6.open))
}

impl Relay {
    /// Serves a connection to the MetricsPort, or closes it without a reply if the policy rejects it, as C
    /// tor does.
    pub(super) fn accept_metrics(&mut self, socket: TcpStream, peer: SocketAddr, now: Instant) {
        let allowed = self.options.metrics.policy.accepts(peer.ip());
        let published = self.metrics.published;
        if allowed && published.is_none_or(|at| now.saturating_duration_since(at) >= FRESH) {
            self.publish_metrics(now);
        }
        let metrics = &mut self.metrics;
        let server = metrics.server.as_ref();
        let taken = allowed && server.is_some_and(|server| server.serve(socket, peer.ip()));
        let counts = if taken {
            &mut metrics.accepted
        } else {
            &mut metrics.refused
        };
        *counts.of(peer.ip()) += 1;
        if !taken && let Some(more) = metrics.refusals.check(now) {
            let why = if allowed {
                "more come than it can answer"
            } else {
                "MetricsPortPolicy does not accept it"
            };
            let from = safe(peer);
            tracing::warn!("Refused a connection to the MetricsPort from {from}: {why}{more}");
        }
    }

    /// Publishes a snapshot. Where torrc has a MetricsPort, its thread is started by the identity that leads; where it has
    /// none (any more), that thread ends.
    pub(super) fn publish_metrics(&mut self, now: Instant) {
        self.metrics.published = Some(now);
        if self.options.metrics.ports.is_empty() {
            self.metrics.server = None;
            return;
        }
        let snapshot = self.snapshot();
        let membership = &self.process.membership;
        let snapshots = membership.snapshots();
        snapshots.set(membership.number(), Some(snapshot));
        if self.metrics.server.is_none() && membership.leads() {
            match MetricsServer::start(snapshots.clone()) {
                Ok(server) => self.metrics.server = Some(server),
                Err(error) => tracing::warn!("Could not start the MetricsPort: {error}"),
            }
        }
    }

    /// Connections of every type that there is, in C tor's order.
    fn typed_connections(&self) -> Vec<TypedConnections> {
        let counts = self.controller.counts();
        let (edges, open_edges) = (counts.edges, self.controller.open_edges());
        let listener = |name, service| {
            let ListenerCounts { open, opened } = self.listeners.counts(service);
            TypedConnections::initiated(name, opened, open)
        };
        let or = TypedConnections {
            name: "OR",
            created: counts.booked,
            rejected: counts.refused,
            open: self.controller.open_connections(),
        };
        let exit = TypedConnections::initiated("Exit", edges.destinations, open_edges.destinations);
        // Of every port for applications, as in C tor.
        let socks = TypedConnections {
            rejected: self.apps.rejected,
            ..TypedConnections::received("Socks", edges.applications, open_edges.applications)
        };
        let (created, open) = self.control.connections();
        let control = TypedConnections {
            rejected: self.control.refused,
            ..TypedConnections::received("Control", created, open)
        };
        let metrics = TypedConnections {
            rejected: self.metrics.refused,
            ..TypedConnections::received(METRICS, self.metrics.accepted, FamilyCounts::default())
        };
        let relay_dirs = self.listeners.counts(Service::Dir);
        let (dir_listener, mut directory) = self.directory.connections(relay_dirs);
        directory.rejected = self.dir_port.refused;
        vec![
            listener("OR listener", Service::Or),
            listener("Extended OR listener", Service::ExtOr),
            or,
            exit,
            listener("Socks listener", Service::App(AppService::Socks)),
            socks,
            dir_listener,
            directory,
            listener("Control listener", Service::Control),
            control,
            listener("DNS listener", Service::App(AppService::Dns)),
            listener("HTTP tunnel listener", Service::App(AppService::HttpTunnel)),
            listener("Metrics listener", Service::Metrics),
            metrics,
        ]
    }

    /// All metrics, as of now.
    fn snapshot(&mut self) -> Snapshot {
        let connections = self.typed_connections();
        let directory = self.directory_memory();
        let metrics = &mut self.metrics;
        let threads = metrics.from_threads.len();
        let from_threads = std::mem::replace(&mut metrics.from_threads, vec![0; threads]);
        let offline = self.options.keys.offline_master_key;
        Snapshot {
            identity: self.context.name_in_log.map(|of| of.name),
            started: metrics.started,
            reports: self.controller.reports().cloned().collect(),
            counts: self.controller.counts(),
            introductions: self.controller.introductions(),
            dos: self.controller.dos_counts(),
            dir_port_full: self.dir_port.refused_full,
            connections,
            max_connections: self.process.max_files,
            ports_exhausted: metrics.ports_exhausted,
            exits: self.exits.counts(),
            flags: metrics.flags,
            hs_dir: self
                .directory
                .handle
                .as_ref()
                .map(|directory| directory.hs_dir().counts()),
            directory,
            client: metrics.client,
            abra: self
                .options
                .network
                .abra_weights
                .then(|| self.controller.abra()),
            signing_expires: self
                .identity
                .keys
                .as_ref()
                .filter(|_| offline)
                .map(|keys| keys.signing_expires),
            onionskins_queued: self.controller.onionskins_queued(),
            workers: self.workers.counts(),
            main: MainCounts {
                turns: metrics.turns,
                threads_in_use: self.controller.threads_in_use(),
                cpu: cpu::thread_time(),
                from_threads,
                to_threads: self
                    .threads
                    .ends
                    .iter()
                    .map(|thread| thread.stuck())
                    .collect(),
            },
        }
    }
}
