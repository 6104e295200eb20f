//! Dormancy: participation of a client in the network (C tor's netstatus.c; mainloop.c,
//! `check_network_participation_callback`). A client that was not used for a day fetches nothing
//! and keeps no circuits ready, until it is used again.

use std::time::{Duration, Instant};

use crate::now::Now;

/// Interval of checks for idleness.
const CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The settings of torrc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DormancyOptions {
    /// Idle time after which a client is dormant (`DormantClientTimeout`); `None`: never
    /// (`DormantTimeoutEnabled 0`, and relays).
    pub timeout: Option<Duration>,
    /// An open stream is use of the client, whether it carries anything or not
    /// (`DormantTimeoutDisabledByIdleStreams`).
    pub streams_are_use: bool,
    /// A client that was never started before begins dormant (`DormantOnFirstStartup`).
    pub on_first_start: bool,
    /// A start is use of the client (`DormantCanceledByStartup`).
    pub start_is_use: bool,
}

impl Default for DormancyOptions {
    /// Never dormant.
    fn default() -> Self {
        Self {
            timeout: None,
            streams_are_use: true,
            on_first_start: false,
            start_is_use: false,
        }
    }
}

/// The lines of the state file, as C tor has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// `Dormant`; `None`: this is the first start.
    pub dormant: Option<bool>,
    /// `MinutesSinceUserActivity`.
    pub idle_minutes: u64,
}

/// Dormancy of a client.
#[derive(Clone, Debug)]
pub(crate) struct Dormancy {
    dormant: bool,
    /// When the client was used last. Jumps of the clock, and times when the process did not run,
    /// do not count as idle.
    used: Instant,
    /// Idle time before `used`, from the state file.
    before: Duration,
    checked: Instant,
}

impl Dormancy {
    /// The state at a start.
    pub(crate) fn new(options: &DormancyOptions, remembered: Remembered, now: Instant) -> Self {
        let minutes = remembered.idle_minutes.saturating_mul(60);
        let mut dormancy = Self {
            dormant: remembered.dormant.unwrap_or(options.on_first_start),
            used: now,
            before: match remembered.dormant {
                Some(false) => Duration::from_secs(minutes),
                Some(true) | None => Duration::ZERO,
            },
            checked: now,
        };
        if options.start_is_use {
            dormancy.dormant = false;
            dormancy.before = Duration::ZERO;
        }
        dormancy.dormant &= options.timeout.is_some();
        dormancy
    }

    pub(crate) fn is_dormant(&self) -> bool {
        self.dormant
    }

    /// The client is used. Returns whether it was dormant until now.
    pub(crate) fn used(&mut self, now: Instant) -> bool {
        self.used = now;
        self.before = Duration::ZERO;
        std::mem::take(&mut self.dormant)
    }

    /// A controller wants it dormant, however it was used. Returns whether it was not.
    pub(crate) fn sleep(&mut self) -> bool {
        !std::mem::replace(&mut self.dormant, true)
    }

    /// Looks now and then at whether the client is idle. Returns whether that has changed; a relay, for one, is in use.
    pub(crate) fn check(
        &mut self,
        options: &DormancyOptions,
        has_streams: bool,
        now: Instant,
    ) -> bool {
        if now.saturating_duration_since(self.checked) < CHECK_INTERVAL {
            return false;
        }
        self.checked = now;
        let Some(timeout) = options.timeout else {
            return self.used(now);
        };
        if has_streams && options.streams_are_use {
            return self.used(now);
        }
        self.idle(now) >= timeout && self.sleep()
    }

    fn idle(&self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(self.used)
    }

    /// State for the state file.
    pub(crate) fn remembered(&self, now: Now) -> Remembered {
        Remembered {
            dormant: Some(self.dormant),
            idle_minutes: match self.dormant {
                true => 0,
                false => self.idle(now.mono).as_secs() / 60,
            },
        }
    }
}

impl Remembered {
    /// Nothing: there was no run before this one.
    pub const NOTHING: Self = Self {
        dormant: None,
        idle_minutes: 0,
    };
    /// The keys of the state file.
    pub const KEYS: [&'static str; 2] = ["Dormant", "MinutesSinceUserActivity"];

    /// Reads the lines of a state file. A line that cannot be parsed counts as missing.
    #[must_use]
    pub fn read(lines: &[(String, String)]) -> Self {
        let [dormant, minutes] = Self::KEYS.map(|key| {
            let found = lines
                .iter()
                .rev()
                .find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, value)| value.as_str())
        });
        Self {
            dormant: match dormant {
                Some("0") => Some(false),
                Some("1") => Some(true),
                _ => None,
            },
            idle_minutes: minutes.and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }

    /// The lines.
    #[must_use]
    pub fn lines(self) -> Vec<(&'static str, Vec<String>)> {
        let [dormant, minutes] = Self::KEYS;
        let flag = u8::from(self.dormant == Some(true)).to_string();
        vec![
            (dormant, vec![flag]),
            (minutes, vec![self.idle_minutes.to_string()]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const FIRST: Remembered = Remembered::NOTHING;

    fn options() -> DormancyOptions {
        DormancyOptions {
            timeout: Some(60 * MINUTE),
            ..DormancyOptions::default()
        }
    }

    fn was(dormant: bool, idle_minutes: u64) -> Remembered {
        Remembered {
            dormant: Some(dormant),
            idle_minutes,
        }
    }

    #[test]
    fn a_client_that_nobody_uses_is_dormant_after_its_time_and_until_it_is_used() {
        let start = Instant::now();
        let mut dormancy = Dormancy::new(&options(), FIRST, start);
        assert!(!dormancy.check(&options(), false, start + 59 * MINUTE));
        assert!(
            !dormancy.check(&options(), false, start + 61 * MINUTE),
            "not yet looked at"
        );
        assert!(dormancy.check(&options(), false, start + 64 * MINUTE) && dormancy.is_dormant());
        assert!(
            !dormancy.check(&options(), false, start + 70 * MINUTE),
            "nothing has changed"
        );
        assert!(dormancy.used(start + 71 * MINUTE) && !dormancy.is_dormant());
        assert!(!dormancy.used(start + 72 * MINUTE));
        assert!(!dormancy.check(&options(), false, start + 131 * MINUTE));
        assert!(dormancy.check(&options(), false, start + 136 * MINUTE));
    }

    #[test]
    fn a_stream_is_use_unless_torrc_has_it_otherwise() {
        let start = Instant::now();
        let mut dormancy = Dormancy::new(&options(), FIRST, start);
        assert!(!dormancy.check(&options(), true, start + 90 * MINUTE));
        let idle = DormancyOptions {
            streams_are_use: false,
            ..options()
        };
        assert!(
            !dormancy.check(&idle, true, start + 100 * MINUTE),
            "since the last look"
        );
        assert!(dormancy.check(&idle, true, start + 150 * MINUTE));
    }

    #[test]
    fn what_never_sleeps_wakes() {
        let start = Instant::now();
        let mut dormancy = Dormancy::new(&options(), was(true, 0), start);
        assert!(dormancy.is_dormant());
        let never = DormancyOptions::default();
        assert!(dormancy.check(&never, false, start + 5 * MINUTE) && !dormancy.is_dormant());
        // By a controller's wish it does sleep, until the next look.
        assert!(dormancy.sleep() && !dormancy.sleep());
        assert!(dormancy.check(&never, false, start + 10 * MINUTE));
        assert!(!Dormancy::new(&never, was(true, 0), start).is_dormant());
    }

    #[test]
    fn a_start_goes_on_where_the_last_run_ended() {
        let start = Instant::now();
        let first = DormancyOptions {
            on_first_start: true,
            ..options()
        };
        let cancelled = DormancyOptions {
            start_is_use: true,
            ..first
        };
        for (options, before, dormant) in [
            (options(), FIRST, false),
            (first, FIRST, true),
            (first, was(false, 0), false),
            (options(), was(true, 0), true),
            (cancelled, was(true, 0), false),
            (cancelled, FIRST, false),
        ] {
            let is = Dormancy::new(&options, before, start).is_dormant();
            assert_eq!(is, dormant, "{options:?} {before:?}");
        }
        let mut idle = Dormancy::new(&options(), was(false, 56), start);
        assert!(idle.check(&options(), false, start + 5 * MINUTE));
        let mut used = Dormancy::new(&cancelled, was(false, 56), start);
        assert!(!used.check(&cancelled, false, start + 5 * MINUTE));
    }

    #[test]
    fn the_state_file_has_c_tors_lines() {
        let now = Now {
            mono: Instant::now() + 3 * MINUTE,
            wall: SystemTime::UNIX_EPOCH,
        };
        let dormancy = Dormancy::new(&options(), was(false, 4), now.mono - 3 * MINUTE);
        let lines = dormancy.remembered(now).lines();
        assert_eq!(
            lines,
            [
                ("Dormant", vec!["0".to_owned()]),
                ("MinutesSinceUserActivity", vec!["7".to_owned()])
            ]
        );
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let read = Remembered::read(&[text("dormant", "1"), text("MinutesSinceUserActivity", "7")]);
        assert_eq!(read, was(true, 7));
        assert_eq!(Remembered::read(&[text("Dormant", "x")]), FIRST);
    }
}
