//! Periodic work: totals, keys, names, the heartbeat.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use weft_dir::bandwidth::Totals;
use weft_dir::command::Command;

use super::error::thread_ended;
use super::identity::SIGNING_CHECK;
use super::{Relay, clock, identity};
use crate::notice;
use crate::process::sandbox;
use crate::thread::host::GuestHandle;
use crate::thread::mesh::ToThread;
use weft_datadir::keys::{OnionKeyParams, Rotation};

/// Interval at which the onion keys' lifetime is checked, as in C tor.
const ONION_CHECK: Duration = Duration::from_secs(3600);

impl Relay {
    /// Housekeeping, once a second.
    pub(super) fn tick(&mut self, now: Instant) {
        self.accept_all(now);
        self.tick_control(now);
        self.turn_client_transports(now);
        self.expire_queries(now);
        if self.threads.handles.iter().any(GuestHandle::is_finished)
            && !self.shutdown.is_under_way()
        {
            // Its links are lost, and other threads wait for its rings: the node cannot continue.
            self.fail(thread_ended("a connection thread"), now);
        }
        let totals = self.controller.totals();
        let requests = self.directory.handle.as_ref();
        let (dir_read, dir_written) = requests.map_or((0, 0), |handle| handle.requests().bytes());
        self.directory(Command::Bandwidth(Totals {
            read: totals.bytes_read,
            written: totals.bytes_written + self.self_test.sent,
            read_ipv6: totals.bytes_read_ipv6,
            written_ipv6: totals.bytes_written_ipv6,
            dir_read,
            dir_written,
        }));
        if self.controller.adapts_threads() && self.threads.ends.len() > 1 {
            let idle = self.process.idle_cores.since_last(now);
            self.controller.set_idle_cores(idle);
        }
        self.tick_statistics(&totals, now);
        self.assess_onionskins(now);
        self.tick_accounting(now);
        for call in sandbox::denied() {
            // C tor's words.
            tracing::warn!(
                "(Sandbox) Caught a bad syscall attempt (syscall {call}). It failed, and Weft goes on. Please report it, \
                 unless somebody is attacking this relay"
            );
        }
        let jump = self.process.wall_clock.note(now, SystemTime::now());
        if now >= self.identity.next_signing_check || jump.is_some() {
            self.identity.next_signing_check = now + SIGNING_CHECK;
            // Certificates made by a wrong clock may be worthless by the right one.
            self.renew_keys(jump.is_some());
        }
        if let Some(jump) = jump {
            clock::log_jump(jump);
            let event = format!("CLOCK_JUMPED TIME={} IDLE=0", jump.seconds());
            self.report_general_status("WARN", &event);
        }
        if now >= self.identity.next_onion_check {
            self.identity.next_onion_check = now + ONION_CHECK;
            self.rotate_onion_keys();
        }
        if self.own.names.poll(&self.options, now) {
            self.find_addresses();
        }
        self.test_reachability(now);
        self.test_bandwidth(now);
        self.tick_exits(now);
        self.tick_hs_dir(now);
        self.count_directory();
        self.tick_dir_port(now);
        self.turn_bridge_transports(now);
        self.share_limits();
        self.follow_lead(now);
        self.publish_metrics(now);
        if let Some(period) = self.options.log.heartbeat_period
            && self.process.heartbeat.due(now, period)
        {
            self.log_heartbeat(now);
        }
    }

    /// Logs how the node is doing.
    pub(super) fn log_heartbeat(&mut self, now: Instant) {
        let summary = self.summary(now);
        notice!("{summary}");
        self.log_accounting();
        self.log_bridge_users();
        if let Some(counts) = self.event_loop.counts {
            notice!("{}", counts.line());
        }
    }

    /// The heartbeat line.
    pub(super) fn summary(&self, now: Instant) -> String {
        let line = self.process.heartbeat.line(
            now,
            &self.controller,
            self.options.resources.connection_threads,
            self.threads.ends.len(),
        );
        match self.accounting.is_hibernating() {
            true => line + " We are currently hibernating.",
            false => line,
        }
    }

    /// A new signing key, or link keys that are old or not wanted any more: links get new
    /// certificates.
    fn renew_keys(&mut self, unwanted: bool) {
        let wall = SystemTime::now();
        let Some(keys) = &mut self.identity.keys else {
            return;
        };
        let changed = match keys.renew_signing_if_due(wall, &mut self.rng) {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!("Could not renew the signing key: {error}");
                false
            }
        };
        if changed || unwanted || self.identity.tls.renew_at().is_some_and(|at| wall >= at) {
            match identity::link_tls(keys, &self.options, wall, &mut self.rng) {
                Ok(tls) => {
                    self.identity.tls = Arc::new(tls);
                    self.threads
                        .send_all(|| ToThread::Renewed(self.identity.tls.clone()));
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
            lifetime: self.network.params.onion_key_lifetime,
            grace: self.network.params.onion_key_grace_period,
        };
        let Some(keys) = &mut self.identity.keys else {
            return;
        };
        match keys.rotate_if_due(SystemTime::now(), params, &mut self.rng) {
            Ok(Rotation::None) => {}
            Ok(_) => {
                self.identity.onion_keys = Some(identity::onion_keys(keys));
                self.publish_descriptor();
            }
            Err(error) => tracing::warn!("Could not rotate the onion keys: {error}"),
        }
    }
}
