//! The interval, its counts, and whether the relay sleeps.

use std::collections::VecDeque;

use sha1::{Digest as _, Sha1};
use weft_log::Line;

use crate::accounting::calendar::{Calendar, iso_time, local_iso_time};
use crate::accounting::config::{Config, Rule};
use crate::accounting::saved::Saved;

/// Active seconds from which on the last interval shows how much to expect of the next
/// (MIN_TIME_FOR_MEASUREMENT).
const MIN_MEASURED: u64 = 1800;
/// Counts are noted this often, in seconds (NOTE_INTERVAL), …
const NOTE_SECONDS: i64 = 600;
/// … or for this many bytes (NOTE_BYTES).
const NOTE_BYTES: u64 = 20 << 20;
/// Seconds until changed counters are written to disk, at most; with AvoidDiskWrites, the second
/// number.
const SAVE_AFTER: (i64, i64) = (60, 7200);
/// Seconds until a change between sleep and waking is written to disk, at most; with
/// AvoidDiskWrites, the second number.
const SAVE_CHANGE_AFTER: (i64, i64) = (0, 600);
/// Two calls that are further apart than these seconds are of a clock that was set, not of activity.
const MOST_ACTIVE: i64 = 10;
/// A clock that is behind the interval's start by this much was set back: the interval was one of a wrong clock.
const SET_BACK: i64 = 3600;
/// The soft limit leaves this many bytes at most (SOFT_LIM_BYTES), …
const SOFT_BYTES: u64 = 500 << 20;
/// … and the bytes expected in this many minutes at most (SOFT_LIM_MINUTES).
const SOFT_MINUTES: u64 = 3 * 60;

/// State of hibernation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was decided yet.
    Initial,
    /// It does.
    Awake,
    /// Little is left: it carries what there is, and accepts nothing new.
    Soft,
    /// It sleeps: all is closed.
    Hard,
}

impl Phase {
    /// C tor's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Initial | Phase::Awake => "AWAKE",
            Phase::Soft => "SOFT",
            Phase::Hard => "HARD",
        }
    }
}

/// Action for the caller of [`Accounting::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Another phase begins.
    Enter(Phase),
    /// A line for the log.
    Log(Line),
    /// Save the counts.
    Save,
}

/// The answers to controllers' questions about accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// True if there is a limit.
    pub enabled: bool,
    /// Awake, soft or hard.
    pub phase: Phase,
    /// Bytes read and written in the interval.
    pub bytes: (u64, u64),
    /// Bytes that may still be read and written.
    pub left: (u64, u64),
    /// When the interval began, wakes and ends; 0: there is none.
    pub interval: (i64, i64, i64),
}

impl Default for View {
    fn default() -> Self {
        View {
            enabled: false,
            phase: Phase::Initial,
            bytes: (0, 0),
            left: (0, 0),
            interval: (0, 0, 0),
        }
    }
}

/// Counts, and decides on sleep.
#[derive(Debug)]
pub struct Accounting {
    config: Config,
    /// The digest of the RSA identity, from which the moment of waking follows.
    identity: [u8; 20],
    phase: Phase,
    /// The phase ends then, if nothing else ends it.
    until: i64,
    counts: Saved,
    interval_end: i64,
    wake_at: i64,
    /// When bytes last moved.
    last_moved: Option<i64>,
    /// When the counts were last noted, and their values.
    noted: (i64, u64, u64),
    /// When they must be on disk.
    save_by: Option<i64>,
    actions: VecDeque<Action>,
}

impl Accounting {
    /// Begins with the saved state. [`set`](Self::set) must follow.
    #[must_use]
    pub fn new(saved: Saved, identity: [u8; 20]) -> Self {
        Accounting {
            config: Config::default(),
            identity,
            phase: Phase::Initial,
            until: 0,
            counts: saved,
            interval_end: 0,
            wake_at: 0,
            last_moved: None,
            noted: (0, 0, 0),
            save_by: None,
            actions: VecDeque::new(),
        }
    }

    /// Follows torrc, at the start and whenever it was read (`configure_accounting`).
    pub fn set(&mut self, config: Config, now: i64, calendar: &dyn Calendar) {
        self.config = config;
        if config.is_enabled() {
            self.configure(now, calendar);
        }
        self.consider(now, calendar);
    }

    /// Bytes moved since the last call. To be called about once a second.
    pub fn moved(&mut self, read: u64, written: u64, now: i64) {
        if !self.config.is_enabled() || read == 0 && written == 0 {
            return;
        }
        self.counts.read = self.counts.read.saturating_add(read);
        self.counts.written = self.counts.written.saturating_add(written);
        let last = self.last_moved.replace(now);
        let passed = last.map_or(0, |last| now.saturating_sub(last));
        if (0..MOST_ACTIVE).contains(&passed) {
            let passed = u64::try_from(passed).unwrap_or(0);
            self.counts.seconds_active = self.counts.seconds_active.saturating_add(passed);
        }
    }

    /// Looks at the clock. To be called about once a second.
    pub fn tick(&mut self, now: i64, calendar: &dyn Calendar) {
        if self.config.is_enabled() {
            self.keep_house(now, calendar);
        }
        self.consider(now, calendar);
        if self
            .save_by
            .is_some_and(|by| now >= by || by > now.saturating_add(SAVE_AFTER.1))
        {
            self.save_by = None;
            self.actions.push_back(Action::Save);
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Counters to keep for the next start.
    #[must_use]
    pub fn saved(&self) -> Saved {
        self.counts
    }

    /// Returns true if the node accepts no new connections.
    #[must_use]
    pub fn is_hibernating(&self) -> bool {
        matches!(self.phase, Phase::Soft | Phase::Hard)
    }

    /// Returns true if the node opens no connections either.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.phase == Phase::Hard
    }

    /// State for controllers.
    #[must_use]
    pub fn view(&self) -> View {
        let max = self.config.max;
        let (read, written) = (self.counts.read, self.counts.written);
        let left = |used: u64| max.saturating_sub(used);
        View {
            enabled: self.config.is_enabled(),
            phase: self.phase,
            bytes: (read, written),
            left: match self.config.rule {
                Rule::Sum => (left(self.used()), left(self.used())),
                Rule::In => (left(read), max),
                Rule::Out => (max, left(written)),
                Rule::Max => (left(read), left(written)),
            },
            interval: (self.counts.interval_start, self.wake_at, self.interval_end),
        }
    }

    /// Returns true if a relay with this rate should be a directory: a relay that may hibernate
    /// should not (`router_should_be_dirserver`).
    #[must_use]
    pub fn may_be_directory(&self, rate: u64) -> bool {
        if !self.config.is_enabled() || self.config.rule == Rule::In {
            return true;
        }
        let max = match self.config.rule {
            Rule::Sum => self.config.max / 2,
            _ => self.config.max,
        };
        let length = self.interval_end.saturating_sub(self.counts.interval_start);
        rate < max / u64::try_from(length).unwrap_or(1).max(1)
    }

    /// The heartbeat's line; `None`: there is no limit, or the relay sleeps.
    #[must_use]
    pub fn heartbeat(&self, now: i64, calendar: &dyn Calendar) -> Option<String> {
        if !self.config.is_enabled() || self.is_hibernating() {
            return None;
        }
        let left = self.interval_end.saturating_sub(now).max(0);
        Some(format!(
            "Heartbeat: Accounting enabled. Sent: {}, Received: {}, Used: {} / {}, Rule: {}. The current accounting \
             interval ends on {}, in {}.",
            usage(self.counts.written),
            usage(self.counts.read),
            usage(self.used()),
            usage(self.config.max),
            self.config.rule.name(),
            local_iso_time(self.interval_end, calendar),
            duration(left),
        ))
    }

    /// Bytes of this interval that count.
    fn used(&self) -> u64 {
        self.config
            .rule
            .count(self.counts.read, self.counts.written)
    }

    fn log(&mut self, line: Line) {
        self.actions.push_back(Action::Log(line.domain("ACCT")));
    }

    fn notice(&mut self, text: impl std::fmt::Display) {
        self.log(Line::notice(text));
    }

    /// The counts must be on disk after these seconds, or, with AvoidDiskWrites, after those.
    fn save_within(&mut self, (soon, late): (i64, i64), now: i64) {
        let after = if self.config.avoid_disk_writes {
            late
        } else {
            soon
        };
        let by = now.saturating_add(after);
        self.save_by = Some(self.save_by.map_or(by, |at| at.min(by)));
    }

    /// Finds the current interval (`configure_accounting`).
    fn configure(&mut self, now: i64, calendar: &dyn Calendar) {
        let (start, end) = self.config.start.interval(now, calendar);
        let known = self.counts.interval_start;
        if known == 0 {
            self.begin(start, end);
        } else if known == start {
            self.interval_end = end;
        } else {
            let (of, to) = self.config.start.interval(known, calendar);
            #[allow(clippy::cast_precision_loss)] // a share, for people
            let moved = start.saturating_sub(known) as f64 / to.saturating_sub(of).max(1) as f64;
            let percent = moved * 100.0;
            if (-0.5..=0.5).contains(&moved) {
                // It begins a little earlier or later than remembered: the bytes counted so far
                // stay counted.
                self.log(Line::info(format!(
                    "Accounting interval moved by {percent:.2}%; that's fine."
                )));
                self.interval_end = end;
            } else if moved >= 0.99 {
                self.log(Line::info(
                    "Accounting interval elapsed; starting a new one",
                ));
                self.begin(start, end);
            } else {
                self.log(Line::warn(format!(
                    "Mismatched accounting interval: moved by {percent:.2}%. Starting a fresh one."
                )));
                self.begin(start, end);
            }
        }
        self.choose_wake_up(now, calendar);
    }

    /// A new interval (`reset_accounting`).
    fn begin(&mut self, start: i64, end: i64) {
        self.log(Line::info("Starting new accounting interval."));
        self.counts = Saved {
            interval_start: start,
            expected: self.expected(),
            ..Saved::default()
        };
        self.interval_end = end;
    }

    /// Bytes per minute that the next interval is expected to have, by the last one; 0: unknown
    /// (`update_expected_bandwidth`). C tor takes a fraction of that, as it divides where it should
    /// multiply, and counts sleep as activity: its relays wake at the start of the interval.
    fn expected(&self) -> u64 {
        let counts = &self.counts;
        let a_minute = |bytes: u64, seconds: u64| bytes / (seconds / 60).max(1);
        let expected = if counts.soft_at > counts.interval_start
            && counts.bytes_at_soft > 0
            && counts.seconds_to_soft >= MIN_MEASURED
        {
            // Beyond the soft limit less moves.
            a_minute(counts.bytes_at_soft, counts.seconds_to_soft)
        } else if counts.seconds_active >= MIN_MEASURED {
            a_minute(self.used(), counts.seconds_active)
        } else {
            0
        };
        let directions = if self.config.rule == Rule::Sum { 2 } else { 1 };
        expected.min(
            self.config
                .rate
                .saturating_mul(60)
                .saturating_mul(directions),
        )
    }

    /// When in the interval the relay wakes (`accounting_set_wakeup_time`): the same moment for each of its restarts.
    fn choose_wake_up(&mut self, now: i64, calendar: &dyn Calendar) {
        let (start, end) = (self.counts.interval_start, self.interval_end);
        let local = |moment| local_iso_time(moment, calendar);
        self.wake_at = start;
        if self.counts.expected == 0 {
            return self.notice(format!(
                "Configured hibernation. This interval begins at {} and ends at {}. We have no prior estimate for \
                 bandwidth, so we will start out awake and hibernate when we exhaust our quota.",
                local(start),
                local(end)
            ));
        }
        let minutes = self.config.max / self.counts.expected.max(1);
        let to_exhaust = i64::try_from(minutes.saturating_mul(60)).unwrap_or(i64::MAX);
        let spare = end.saturating_sub(start).saturating_sub(to_exhaust);
        if spare > 0 {
            let mut hash = Sha1::new();
            hash.update(iso_time(start));
            hash.update(self.identity);
            let digest: [u8; 20] = hash.finalize().into();
            let drawn = digest
                .first_chunk::<4>()
                .map_or(0, |four| u32::from_le_bytes(*four));
            self.wake_at = start.saturating_add(i64::from(drawn) % spare);
        }
        let down = self.wake_at.saturating_add(to_exhaust).min(end);
        let wakes = if now < self.wake_at { "is" } else { "was" };
        let expects = if now < down { "" } else { "ed" };
        self.notice(format!(
            "Configured hibernation.  This interval began at {}; the scheduled wake-up time {wakes} {}; we expect{expects} \
             to exhaust our quota for this interval around {}; the next interval begins at {} (all times local)",
            local(start),
            local(self.wake_at),
            local(down),
            local(end)
        ));
    }

    /// The interval's end, and the counts' way to disk (`accounting_run_housekeeping`).
    fn keep_house(&mut self, now: i64, calendar: &dyn Calendar) {
        if now >= self.interval_end || now.saturating_add(SET_BACK) < self.counts.interval_start {
            self.configure(now, calendar);
        }
        let (at, read, written) = self.noted;
        let far = |before: u64, now: u64| before.saturating_add(NOTE_BYTES) <= now;
        // A clock that was set back notes at once.
        let is_time = at.saturating_add(NOTE_SECONDS) <= now || now < at;
        if is_time || far(read, self.counts.read) || far(written, self.counts.written) {
            self.noted = (now, self.counts.read, self.counts.written);
            self.save_within(SAVE_AFTER, now);
        }
    }

    /// Returns true if little is left (`hibernate_soft_limit_reached`): less than a twentieth, less
    /// than 500 MB, and less than three hours of the expected traffic.
    fn is_soft_limit_reached(&self) -> bool {
        let max = self.config.max;
        let expected = self.counts.expected.saturating_mul(SOFT_MINUTES);
        let mut soft = max
            .saturating_sub(max / 20)
            .max(max.saturating_sub(SOFT_BYTES));
        if expected > 0 {
            soft = soft.max(max.saturating_sub(expected));
        }
        soft > 0 && self.used() >= soft
    }

    fn is_hard_limit_reached(&self) -> bool {
        self.config.is_enabled() && self.used() >= self.config.max
    }

    /// Enters sleep or wakes, if it is time (`consider_hibernation`).
    fn consider(&mut self, now: i64, calendar: &dyn Calendar) {
        let before = self.phase;
        let enabled = self.config.is_enabled();
        if self.is_hibernating() && !enabled {
            self.wake();
        }
        if self.phase == Phase::Hard && (self.until <= now || self.is_set_back(now)) {
            self.elapse(now, calendar);
        }
        if matches!(self.phase, Phase::Initial | Phase::Awake) {
            if self.is_soft_limit_reached() {
                self.notice(
                    "Bandwidth soft limit reached; commencing hibernation. No new connections will be accepted",
                );
                if self.phase == Phase::Awake {
                    self.counts.soft_at = now;
                    self.counts.seconds_to_soft = self.counts.seconds_active;
                    self.counts.bytes_at_soft = self.used();
                }
                self.phase = Phase::Soft;
                self.until = self.interval_end;
            } else if enabled && (self.counts.interval_start..self.wake_at).contains(&now) {
                self.notice(format!(
                    "Commencing hibernation. We will wake up at {} local time.",
                    local_iso_time(self.wake_at, calendar)
                ));
                self.sleep(now);
            } else {
                self.phase = Phase::Awake;
            }
        }
        if self.phase == Phase::Soft {
            if self.is_hard_limit_reached() {
                self.sleep(now);
            } else if self.until <= now || self.is_set_back(now) {
                self.elapse(now, calendar);
            }
        }
        if self.phase != before {
            self.save_within(SAVE_CHANGE_AFTER, now);
            self.actions.push_back(Action::Enter(self.phase));
        }
    }

    /// Returns true if the clock was set back: it is far before the interval's start, or the phase
    /// ends after the interval.
    fn is_set_back(&self, now: i64) -> bool {
        now.saturating_add(SET_BACK) < self.counts.interval_start || self.until > self.interval_end
    }

    /// All is closed from now on (`hibernate_go_dormant`).
    fn sleep(&mut self, now: i64) {
        if self.phase == Phase::Hard {
            return;
        }
        self.phase = Phase::Hard;
        self.notice("Going dormant. Blowing away remaining connections.");
        self.until = self.end_of_sleep(now);
    }

    fn end_of_sleep(&self, now: i64) -> i64 {
        match now < self.wake_at {
            true => self.wake_at,
            false => self.interval_end,
        }
    }

    fn wake(&mut self) {
        self.notice("Hibernation period ended. Resuming normal activity.");
        self.phase = Phase::Awake;
        self.until = 0;
    }

    /// The time of the phase is over (`hibernate_end_time_elapsed`).
    fn elapse(&mut self, now: i64, calendar: &dyn Calendar) {
        self.keep_house(now, calendar);
        if self.wake_at <= now && !self.is_hard_limit_reached() {
            return self.wake();
        }
        let was = self.phase;
        self.until = self.end_of_sleep(now);
        let until = iso_time(self.until);
        if was == Phase::Hard {
            self.notice(format!(
                "Accounting period ended. This period, we will hibernate until {until} UTC"
            ));
        } else {
            self.notice(format!(
                "Accounting period ended. Commencing hibernation until {until} UTC"
            ));
            self.sleep(now);
        }
    }
}

/// `1.50 GB` (bytes_to_usage).
fn usage(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // for people
    let of = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..=0xf_ffff => format!("{} kB", bytes >> 10),
        0x10_0000..=0x3fff_ffff => format!("{:.2} MB", of(1 << 20)),
        _ => format!("{:.2} GB", of(1 << 30)),
    }
}

/// `3 days 2:05 hours` (secs_to_uptime).
fn duration(seconds: i64) -> String {
    let minutes = seconds / 60;
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    match days {
        0 => format!("{hours}:{minutes:02} hours"),
        1 => format!("1 day {hours}:{minutes:02} hours"),
        _ => format!("{days} days {hours}:{minutes:02} hours"),
    }
}

#[cfg(test)]
mod tests;
