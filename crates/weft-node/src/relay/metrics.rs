//! The main thread's part of the MetricsPort: who may come, and what there is to tell.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use mio::net::TcpStream;
use weft_core::controller::FamilyCounts;
use weft_dir::command::RelayFlags;

use super::Relay;
use super::listeners::Service;
use crate::logging::{RateLimit, safe};
use crate::metrics::{MainCounts, MetricsServer, Snapshot};
use crate::process::cpu;

/// Log lines about those who may not come.
const QUIET: Duration = Duration::from_secs(300);
/// What was told so long ago is told anew to who asks.
const FRESH: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(super) struct Metrics {
    /// When the relay started.
    started: SystemTime,
    /// Answers requests, where there is a MetricsPort.
    server: Option<MetricsServer>,
    /// When it was last told something.
    told: Option<Instant>,
    accepted: FamilyCounts,
    refused: FamilyCounts,
    refusals: RateLimit,
    /// What the consensus says of the relay.
    pub(super) flags: RelayFlags,
    /// Connections that could not be opened because no local port was left.
    pub(super) ports_exhausted: u64,
    /// Turns of the main thread's loop.
    pub(super) turns: u64,
    /// The most messages of each connection thread that waited since the last snapshot.
    from_threads: Vec<usize>,
}

impl Metrics {
    /// Nothing to tell yet, to nobody.
    pub(super) fn new(threads: usize) -> Self {
        Metrics {
            started: SystemTime::now(),
            server: None,
            told: None,
            accepted: FamilyCounts::default(),
            refused: FamilyCounts::default(),
            refusals: RateLimit::new(QUIET),
            flags: RelayFlags::empty(),
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

impl Relay {
    /// A connection to the MetricsPort: whom the policy does not accept hears nothing, as in C tor.
    pub(super) fn accept_metrics(&mut self, socket: TcpStream, peer: SocketAddr, now: Instant) {
        let allowed = self.options.metrics.policy.accepts(peer.ip());
        let told = self.metrics.told;
        if allowed && told.is_none_or(|told| now.saturating_duration_since(told) >= FRESH) {
            self.tell_metrics(now);
        }
        let metrics = &mut self.metrics;
        let server = metrics.server.as_ref();
        let taken = allowed && server.is_some_and(|server| server.serve(socket.into(), peer.ip()));
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

    /// Tells the MetricsPort what there is to tell now. Where torrc has one, the thread that
    /// answers is started; where it has none (any more), that thread ends.
    pub(super) fn tell_metrics(&mut self, now: Instant) {
        self.metrics.told = Some(now);
        if self.options.metrics.ports.is_empty() {
            self.metrics.server = None;
            return;
        }
        let snapshot = self.snapshot();
        match &self.metrics.server {
            Some(server) => server.publish(snapshot),
            None => match MetricsServer::start(snapshot) {
                Ok(server) => self.metrics.server = Some(server),
                Err(error) => tracing::warn!("Could not start the MetricsPort: {error}"),
            },
        }
    }

    /// Everything that is told, as of now.
    fn snapshot(&mut self) -> Snapshot {
        let metrics = &mut self.metrics;
        let threads = metrics.from_threads.len();
        let from_threads = std::mem::replace(&mut metrics.from_threads, vec![0; threads]);
        let offline = self.options.keys.offline_master_key;
        Snapshot {
            started: metrics.started,
            reports: self.controller.reports().cloned().collect(),
            counts: self.controller.counts(),
            dos: self.controller.dos_counts(),
            connections: self.controller.open_connections(),
            or_listeners: self.listeners.counts(Service::Or),
            metrics_listeners: self.listeners.counts(Service::Metrics),
            metrics_accepted: metrics.accepted,
            metrics_refused: metrics.refused,
            max_connections: self.max_connections,
            ports_exhausted: metrics.ports_exhausted,
            exits: self.exits.counts(),
            flags: metrics.flags,
            signing_expires: self
                .keys
                .as_ref()
                .filter(|_| offline)
                .map(|keys| keys.signing_expires),
            onionskins_queued: self.controller.onionskins_queued(),
            workers: self.workers.counts(),
            main: MainCounts {
                turns: metrics.turns,
                cpu: cpu::thread_time(),
                from_threads,
                to_threads: self.threads.iter().map(|thread| thread.stuck()).collect(),
            },
        }
    }
}
