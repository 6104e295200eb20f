//! AccountingMax: carries out what `weft-counts` decides. While the relay hibernates it accepts nothing; while it
//! sleeps, it has no connection either. Controllers, monitoring and the directory go on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weft_config::Options;
use weft_counts::accounting::{Accounting, Action, Calendar, Phase, Saved, View};
use weft_datadir::state::{self, State};
use weft_dir::descriptor::OwnDescriptor;

use super::{Relay, listeners};
use crate::logging::{self, LocalCalendar};
use crate::notice;

/// Time after which listeners that could not be opened are tried again.
const RETRY: Duration = Duration::from_secs(60);

/// The counts, and how far they are taken.
#[derive(Debug)]
pub(super) struct AccountingSide {
    accounting: Accounting,
    /// Bytes read and written since the start, as of the last second.
    moved: (u64, u64),
    /// Listeners are to be opened then.
    retry: Option<Instant>,
}

/// The wall clock as the state file and C tor count it.
fn seconds(wall: SystemTime) -> i64 {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl AccountingSide {
    /// Begins with what the state file has. `identity` is the digest of the RSA identity.
    pub(super) fn new(state: &State, identity: [u8; 20]) -> Self {
        AccountingSide {
            accounting: Accounting::new(Saved::read(|key| state.get(key)), identity),
            moved: (0, 0),
            retry: None,
        }
    }

    /// True if the relay accepts nothing new.
    pub(super) fn is_hibernating(&self) -> bool {
        self.accounting.is_hibernating()
    }

    /// True if the relay opens no connections, either.
    pub(super) fn is_asleep(&self) -> bool {
        self.accounting.is_asleep()
    }

    /// The view for controllers.
    pub(super) fn view(&self) -> View {
        self.accounting.view()
    }

    /// The heartbeat's line.
    pub(super) fn heartbeat(&self) -> Option<String> {
        let now = seconds(SystemTime::now());
        self.accounting.heartbeat(now, &LocalCalendar)
    }

    /// Puts into the descriptor what others should know of it.
    pub(super) fn describe(&self, own: &mut OwnDescriptor, options: &Options) {
        own.hibernating = self.is_hibernating();
        own.tunnelled_dir_server &= self
            .accounting
            .may_be_directory(options.bandwidth.effective_rate());
    }
}

impl Relay {
    /// Follows torrc.
    pub(super) fn set_accounting(&mut self, now: Instant) {
        let config = self.options.bandwidth.accounting;
        let wall = seconds(SystemTime::now());
        self.accounting.accounting.set(config, wall, &LocalCalendar);
        self.act_accounting(now);
    }

    /// Once a second.
    pub(super) fn tick_accounting(&mut self, now: Instant) {
        let totals = self.controller.totals();
        let side = &mut self.accounting;
        let (dir_read, dir_written) = self.dir_port.bandwidth.moved();
        let moved = (
            totals.bytes_read.saturating_add(dir_read),
            totals.bytes_written.saturating_add(dir_written),
        );
        let (read, written) = std::mem::replace(&mut side.moved, moved);
        let wall = seconds(SystemTime::now());
        let calendar: &dyn Calendar = &LocalCalendar;
        side.accounting.moved(
            moved.0.saturating_sub(read),
            moved.1.saturating_sub(written),
            wall,
        );
        side.accounting.tick(wall, calendar);
        self.act_accounting(now);
        if self.accounting.retry.is_some_and(|at| now >= at) {
            self.follow_listeners(now);
        }
    }

    fn act_accounting(&mut self, now: Instant) {
        while let Some(action) = self.accounting.accounting.poll() {
            match action {
                Action::Log(line) => logging::log(&line),
                Action::Save => self.save_accounting(),
                Action::Enter(phase) => self.enter(phase, now),
            }
        }
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        self.report_server_status(
            "NOTICE",
            &format!("HIBERNATION_STATUS STATUS={}", phase.name()),
        );
        let refuses = self.accounting.is_hibernating() || self.shutdown.is_under_way();
        self.controller.set_draining(refuses);
        self.follow_listeners(now);
        self.reload_client();
        if phase == Phase::Hard {
            self.controller.close_all_connections();
        }
        self.publish_descriptor();
    }

    /// Opens and closes the ports of others, as the phase wants it.
    pub(super) fn follow_listeners(&mut self, now: Instant) {
        self.accounting.retry = None;
        let hibernating = self.accounting.is_hibernating();
        let leads = self.process.membership.leads();
        let registry = self.event_loop.poll.registry();
        let followed = self.apps.ports.number_all(&self.options).and_then(|ports| {
            let wanted = listeners::wanted(&self.options, &ports, hibernating, leads);
            let user = self.options.process.user.as_deref();
            self.listeners.follow(wanted, user, Some(registry))
        });
        if let Err(error) = followed {
            tracing::warn!("{error}. It is tried again every minute");
            self.accounting.retry = Some(now + RETRY);
        }
    }

    /// Keeps the counts for the next start.
    pub(super) fn save_accounting(&self) {
        let lines = self.accounting.accounting.saved().lines();
        let saved = state::update(
            &self.options.files.data_directory,
            SystemTime::now(),
            |state| {
                for (key, value) in &lines {
                    match value {
                        Some(value) => state.set(key, value),
                        None => state.remove(key),
                    }
                }
            },
        );
        if let Err(error) = saved {
            tracing::warn!("Couldn't record bandwidth usage to disk. {error}");
        }
    }

    /// The heartbeat's line about the interval.
    pub(super) fn log_accounting(&self) {
        if let Some(line) = self.accounting.heartbeat() {
            notice!("{line}");
        }
    }
}
