//! What is done from time to time: totals, keys, names, the heartbeat.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use weft_dir::bandwidth::Totals;
use weft_dir::command::Command;

use super::{Relay, clock, start};
use crate::keys::{OnionKeyParams, Rotation};
use crate::notice;
use crate::thread::mesh::ToThread;

/// How often the signing key's lifetime is looked at, as C tor does.
pub(super) const SIGNING_CHECK: Duration = Duration::from_secs(30);
/// How often the onion keys' lifetime is looked at, as C tor does.
const ONION_CHECK: Duration = Duration::from_secs(3600);

impl Relay {
    /// Housekeeping, once a second.
    pub(super) fn tick(&mut self, now: Instant) {
        self.accept_all(now);
        self.take_all_applications(now);
        self.accept_all_controllers(now);
        self.tick_control(now);
        self.expire_queries(now);
        if self.handles.iter().any(JoinHandle::is_finished) && !self.shutdown.is_under_way() {
            // Its links are gone, and others wait for its rings: nothing good comes of going on.
            self.fail(start::thread_ended("a connection thread"), now);
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
        if now >= self.next_signing_check || jump.is_some() {
            self.next_signing_check = now + SIGNING_CHECK;
            // What was certified by a wrong clock may be worthless by the right one.
            self.renew_keys(jump.is_some());
        }
        if let Some(jump) = jump {
            clock::tell_jump(jump);
        }
        if now >= self.next_onion_check {
            self.next_onion_check = now + ONION_CHECK;
            self.rotate_onion_keys();
        }
        if self.names.poll(&self.options, now) {
            self.find_addresses();
        }
        self.test_reachability(now);
        self.tick_exits(now);
        self.tell_metrics(now);
        if let Some(period) = self.options.log.heartbeat_period {
            let summary = self.heartbeat.due(now, period).then(|| self.summary(now));
            if let Some(summary) = summary {
                notice!("{summary}");
            }
        }
    }

    /// The heartbeat line.
    pub(super) fn summary(&self, now: Instant) -> String {
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
        let Some(keys) = &mut self.keys else {
            return;
        };
        let changed = match keys.renew_signing_if_due(wall, &mut self.rng) {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!("Could not renew the signing key: {error}");
                false
            }
        };
        if changed || unwanted || self.tls.renew_at().is_some_and(|at| wall >= at) {
            match start::link_tls(keys, &self.options, wall, &mut self.rng) {
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
        let Some(keys) = &mut self.keys else {
            return;
        };
        match keys.rotate_if_due(SystemTime::now(), params, &mut self.rng) {
            Ok(Rotation::None) => {}
            Ok(_) => {
                self.onion_keys = Some(start::onion_keys(keys));
                self.publish_descriptor();
            }
            Err(error) => tracing::warn!("Could not rotate the onion keys: {error}"),
        }
    }
}
