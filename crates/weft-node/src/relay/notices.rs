//! What the controller noticed, told to the operator and to the directory.

use std::time::{Instant, SystemTime};

use weft_core::controller::Notice;
use weft_dir::command::Command;

use super::Relay;
use crate::logging::safe;
use crate::notice;

impl Relay {
    /// Something that the controller noticed.
    pub(super) fn on_notice(&mut self, notice: &Notice, now: Instant) {
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
                to_free,
            } => {
                if let Some(more) = self.memory_lines.check(now) {
                    self.overloaded();
                    tracing::warn!(
                        "We are low on memory ({} of MaxMemInQueues {} MB): circuits, streams and \
                         links that hold most for longest are closed, to free {} MB{more}",
                        used >> 20,
                        allowed >> 20,
                        to_free.div_ceil(1 << 20),
                    );
                }
            }
            Notice::MemoryFreed(freed) => {
                if let Some(more) = self.freed_lines.check(now) {
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
    pub(super) fn overloaded(&mut self) {
        self.directory(Command::Overloaded(SystemTime::now()));
    }
}
