//! Reports the task's state to the node, each change once.

use std::time::{Duration, SystemTime};

use tor_netdoc::doc::netstatus::ProtocolSupportError;

use super::DirectoryTask;
use crate::command::Event;

/// Warnings about the clock are at least this far apart.
const SKEW_WARNING_INTERVAL: Duration = Duration::from_secs(3600);

impl DirectoryTask {
    /// Warns of a wrong clock, at most once an hour.
    pub(super) fn skew(&mut self, seconds: i64, source: String, monotonic: Duration) {
        let recently = self
            .skew_warned_at
            .is_some_and(|at| monotonic.saturating_sub(at) < SKEW_WARNING_INTERVAL);
        if !recently {
            self.skew_warned_at = Some(monotonic);
            (self.events)(Event::ClockSkew { seconds, source });
        }
    }

    /// Compares what the consensus wants of relays with what we speak.
    pub(super) fn check_protocols(&mut self) {
        let (Some(consensus), Some(descriptor)) = (self.fetcher.consensus(), &self.descriptor)
        else {
            return;
        };
        let missing = match consensus
            .relay_protocols
            .check_protocols(&descriptor.protocols)
        {
            Err(ProtocolSupportError::MissingRequired(protocols)) => Some((true, protocols)),
            Err(ProtocolSupportError::MissingRecommended(protocols)) => Some((false, protocols)),
            _ => None,
        };
        let missing = missing.map(|(required, protocols)| (required, protocols.to_string()));
        if missing == self.protocols_reported {
            return;
        }
        self.protocols_reported = missing.clone();
        if let Some((required, protocols)) = missing {
            (self.events)(Event::MissingProtocols {
                required,
                protocols,
            });
        }
    }

    /// Reports whether the consensus lists us, when that changed.
    pub(super) fn report_listing(&mut self, now: SystemTime) {
        let (Some(consensus), Some(descriptor)) = (self.fetcher.consensus(), &self.descriptor)
        else {
            return;
        };
        if self.options.bridge || !consensus.is_live(now) {
            return;
        }
        let flags = consensus
            .relay(&descriptor.rsa_id())
            .map(|relay| relay.flags);
        if self.listed != Some(flags) {
            self.listed = Some(flags);
            (self.events)(Event::Listed(flags));
        }
    }

    /// Reports how far the start has come; never goes back.
    pub(super) fn progress(&mut self, percent: u8, tag: &'static str, summary: &'static str) {
        if self.bootstrap.is_none_or(|before| percent > before) {
            self.bootstrap = Some(percent);
            (self.events)(Event::Bootstrap {
                percent,
                tag,
                summary,
            });
        }
    }

    /// The start is over when there is a live consensus and, if we publish, an authority has us.
    pub(super) fn maybe_done(&mut self, now: SystemTime) {
        if self.fetcher.is_live(now) && (!self.options.publish || self.publisher.is_published()) {
            self.progress(100, "done", "Done");
        }
    }
}
