//! Notifications to the service manager: systemd, for units with `Type=notify` (as Debian's unit of C tor
//! has). As in C tor: ready, reloading, stopping, and the watchdog.

use std::time::{Duration, Instant};

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// The time that a node needs to end, beyond the time that it gives its peers (as in C tor).
const TO_END: Duration = Duration::from_secs(30);

/// Notifies the service manager. Does nothing where there is none.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    /// The interval of watchdog notifications; `None`: the watchdog is off.
    interval: Option<Duration>,
    last: Instant,
}

impl ServiceManager {
    /// The service manager of the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`).
    pub(crate) fn of_this_process(now: Instant) -> Self {
        Self {
            // Twice as often as required, as sd_watchdog_enabled(3) advises.
            interval: watchdog_enabled().map(|most| most / 2),
            last: now,
        }
    }

    /// Notifies that the node is up, or has its new configuration. With RunAsDaemon its process is not the
    /// one that was started, so that the notification has the process id.
    pub(crate) fn ready(&self) {
        send(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
    }

    /// Notifies that the node reads its configuration again; [`ready`](Self::ready) follows.
    pub(crate) fn reloading(&self) {
        send(&[NotifyState::Reloading]);
    }

    /// Notifies that the node ends, after `wait` at the latest.
    pub(crate) fn stopping(&self, wait: Duration) {
        let most = (wait + TO_END).as_micros();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        send(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(most)]);
    }

    /// The time until [`alive`](Self::alive) must be called again; `None`: the watchdog is off.
    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.last);
        self.interval
            .map(|interval| interval.saturating_sub(elapsed))
    }

    /// Notifies the watchdog, if a notification is due and `all` main threads of the process take turns. Call it in each turn
    /// of each.
    pub(crate) fn alive(&mut self, now: Instant, all: impl FnOnce() -> bool) {
        if let Some(interval) = self.interval
            && now.saturating_duration_since(self.last) >= interval
        {
            self.last = now;
            if all() {
                send(&[NotifyState::Watchdog]);
            }
        }
    }
}

/// Sends a notification, or logs the error.
fn send(what: &[NotifyState<'_>]) {
    if let Err(why) = notify(what) {
        let what: Vec<String> = what.iter().map(|state| state.to_string()).collect();
        let what = what.join(", ");
        tracing::warn!("Unable to notify systemd ({}): {why}", what.trim_end());
    }
}
