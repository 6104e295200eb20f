//! Notices of the controller: log lines, and reports to the directory.

use std::time::{Duration, Instant, SystemTime};

use weft_core::controller::Notice;
use weft_dir::command::Command;
use weft_log::RateLimit;

use super::Relay;
use crate::logging::safe;
use crate::notice;

/// Log lines about one kind of trouble are so far apart.
const INTERVAL: Duration = Duration::from_secs(300);

/// Limits of log lines that others can cause.
#[derive(Debug)]
pub(super) struct LogLimits {
    pub(super) accept: RateLimit,
    pub(super) overload: RateLimit,
    pub(super) memory: RateLimit,
    pub(super) freed: RateLimit,
    pub(super) pruned: RateLimit,
    pub(super) skew: RateLimit,
    pub(super) loss: RateLimit,
}

impl LogLimits {
    pub(super) const fn new() -> Self {
        LogLimits {
            accept: RateLimit::new(INTERVAL),
            overload: RateLimit::new(INTERVAL),
            memory: RateLimit::new(INTERVAL),
            freed: RateLimit::new(INTERVAL),
            pruned: RateLimit::new(INTERVAL),
            skew: RateLimit::new(INTERVAL),
            loss: RateLimit::new(INTERVAL),
        }
    }
}

/// Logs that `DisableNetwork` is set.
pub(super) fn log_disabled() {
    notice!(
        "DisableNetwork is set. Weft will not make or accept non-control network connections. \
         Shutting down all existing connections."
    );
}

impl Relay {
    /// Handles a notice of the controller.
    pub(super) fn on_notice(&mut self, notice: &Notice, now: Instant) {
        match notice {
            Notice::ClockSkew { seconds, peer } => {
                if seconds.unsigned_abs() >= 3600
                    && let Some(more) = self.log_limits.skew.check(now)
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
            // A relay may lie; the authorities decide (`Event::AddressSuggested`).
            Notice::AddressSeen { addr, peer } => {
                tracing::debug!("A relay at {} sees us at {}", safe(peer), safe(addr));
            }
            Notice::MemoryPressure {
                used,
                allowed,
                to_free,
                answers,
            } => {
                self.relieve_directory(answers.clone());
                if let Some(more) = self.log_limits.memory.check(now) {
                    self.overloaded();
                    tracing::warn!(
                        "We are low on memory ({} of MaxMemInQueues {} MB): circuits, streams, \
                         links and directory answers that hold most for longest are closed, to free {} MB{more}",
                        used >> 20,
                        allowed >> 20,
                        to_free.div_ceil(1 << 20),
                    );
                }
            }
            Notice::MemoryFreed(freed) => {
                if let Some(more) = self.log_limits.freed.check(now) {
                    let sum = self.controller.totals();
                    notice!(
                        "Removed {} bytes of queued cells and data by closing {} circuits and {} \
                         links, and streams; since the start, {} bytes and {} circuits{more}",
                        freed.bytes,
                        freed.circuits,
                        freed.links,
                        sum.freed_for_memory,
                        sum.killed_for_memory,
                    );
                }
            }
            Notice::LossyRelay { peer } => {
                if let Some(more) = self.log_limits.loss.check(now) {
                    tracing::info!(
                        "Lost packets hold up our connection to the relay at {}: circuits to it get \
                         connections of their own (ConnectionPerCircuit auto){more}",
                        safe(peer),
                    );
                }
            }
            Notice::OnionskinOverload => {
                if let Some(more) = self.log_limits.overload.check(now) {
                    tracing::warn!(
                        "Your computer is too slow to handle this many circuit creation requests! \
                         Some are refused. Consider a faster computer, or MaxAdvertisedBandwidth \
                         to restrict your traffic{more}"
                    );
                }
            }
        }
    }

    /// Reports to the directory that we were overloaded. The descriptor gives the hour: once per log
    /// line is enough, and a flood of refusals does not become a flood of messages.
    pub(super) fn overloaded(&mut self) {
        self.directory(Command::Overloaded(SystemTime::now()));
    }
}
