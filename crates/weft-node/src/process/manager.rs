//! The service manager that started us, if one did: systemd, for units with `Type=notify` as
//! Debian's for C tor is. It learns what C tor tells it: that the node is ready, reads its
//! configuration again, ends, and lives.

use std::time::{Duration, Instant};

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// What a node takes to end, beyond the time that it gives its peers (C tor's figure).
const TO_END: Duration = Duration::from_secs(30);

/// Tells the service manager. Does nothing where there is none.
#[derive(Debug)]
pub struct ServiceManager {
    /// How often it wants to hear that we live.
    beat: Option<Duration>,
    last: Instant,
}

impl ServiceManager {
    /// The one that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`).
    pub fn of_this_process(now: Instant) -> Self {
        Self {
            // Twice as often as it asks for, as sd_watchdog_enabled(3) advises.
            beat: watchdog_enabled().map(|most| most / 2),
            last: now,
        }
    }

    /// The node is up, or has its new configuration. The process may be another than was started.
    pub fn ready(&self) {
        tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
    }

    /// The node reads its configuration again; [`ready`](Self::ready) follows.
    pub fn reloading(&self) {
        tell(&[NotifyState::Reloading]);
    }

    /// The node ends, `wait` from now at the latest.
    pub fn stopping(&self, wait: Duration) {
        let most = (wait + TO_END).as_micros();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(most)]);
    }

    /// How long it wants to hear nothing at most, from now on.
    pub fn patience(&self, now: Instant) -> Option<Duration> {
        let quiet = now.saturating_duration_since(self.last);
        self.beat.map(|beat| beat.saturating_sub(quiet))
    }

    /// The main thread works. To be called often: it speaks as often as is wanted.
    pub fn alive(&mut self, now: Instant) {
        if let Some(beat) = self.beat
            && now.saturating_duration_since(self.last) >= beat
        {
            self.last = now;
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Says it; what cannot be said is logged, as there is nothing else to do.
fn tell(what: &[NotifyState<'_>]) {
    if let Err(why) = notify(what) {
        tracing::warn!("Unable to tell systemd ({what:?}): {why}");
    }
}
