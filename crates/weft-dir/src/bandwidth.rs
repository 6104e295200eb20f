//! Observed bandwidth and bandwidth histories, as C tor keeps them (`bwhist.c`).
//!
//! The observed bandwidth of a descriptor is the most that was read *and* written per second over
//! any ten seconds of the last five days (dir-spec 2.1.1, `bandwidth`). The histories of the
//! extra-info document are daily totals over the same five days (`read-history` …). Both survive
//! a restart in the state file's `BWHistory…` lines. Nothing here reads a clock.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use tor_netdoc::types::Iso8601TimeSp;

/// Seconds over which bandwidth is averaged (`NUM_SECS_ROLLING_MEASURE`).
const ROLLING: usize = 10;
/// [`ROLLING`] as a divisor.
const ROLLING_SECONDS: u64 = 10;
/// Seconds of one period of the histories (`NUM_SECS_BW_SUM_INTERVAL`).
const PERIOD: u64 = 24 * 3600;
/// Periods that are kept (`NUM_TOTALS`).
const PERIODS: usize = 5;
/// [`PERIODS`] in seconds: what is older is forgotten.
const VALID: u64 = PERIOD * 5;
/// Values in a state line past which the line is not taken for ours.
const MAX_STATE_VALUES: usize = 64;

/// Bytes moved since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Read from relays and clients.
    pub read: u64,
    /// Written to relays and clients.
    pub written: u64,
    /// Of `read`, over IPv6.
    pub read_ipv6: u64,
    /// Of `written`, over IPv6.
    pub written_ipv6: u64,
    /// Read in directory requests.
    pub dir_read: u64,
    /// Written in directory requests.
    pub dir_written: u64,
}

impl Totals {
    /// The values in the order of [`SERIES`].
    fn values(&self) -> [u64; 6] {
        [
            self.written,
            self.read,
            self.written_ipv6,
            self.read_ipv6,
            self.dir_written,
            self.dir_read,
        ]
    }
}

/// The six series: line of the extra-info document, key in the state file; in C tor's order.
const SERIES: [(&str, &str); 6] = [
    ("write-history", "BWHistoryWrite"),
    ("read-history", "BWHistoryRead"),
    ("ipv6-write-history", "BWHistoryIPv6Write"),
    ("ipv6-read-history", "BWHistoryIPv6Read"),
    ("dirreq-write-history", "BWHistoryDirWrite"),
    ("dirreq-read-history", "BWHistoryDirRead"),
];

/// One finished period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    /// Bytes in it.
    total: u64,
    /// Most bytes in any [`ROLLING`] consecutive seconds of it.
    maximum: u64,
}

/// Observations of one series. Times are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Series {
    /// Bytes in each of the last [`ROLLING`] seconds, the current one last.
    recent: VecDeque<u64>,
    /// The second being observed.
    now: u64,
    /// When the current period ends.
    period_end: u64,
    /// The current period so far.
    current: Period,
    /// Finished periods, oldest first, at most [`PERIODS`].
    past: VecDeque<Period>,
}

impl Series {
    /// Nothing observed, from `now` on.
    fn new(now: u64) -> Self {
        Self {
            recent: VecDeque::from([0; ROLLING]),
            now,
            period_end: now.saturating_add(PERIOD),
            current: Period {
                total: 0,
                maximum: 0,
            },
            past: VecDeque::new(),
        }
    }

    /// Ends the current second.
    fn tick(&mut self) {
        let sum = self
            .recent
            .iter()
            .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        self.current.maximum = self.current.maximum.max(sum);
        self.recent.pop_front();
        self.recent.push_back(0);
        self.now = self.now.saturating_add(1);
        self.end_periods();
    }

    /// Ends the current period if its time is over.
    fn end_periods(&mut self) {
        while self.now >= self.period_end {
            self.past.push_back(self.current);
            if self.past.len() > PERIODS {
                self.past.pop_front();
            }
            self.current = Period {
                total: 0,
                maximum: 0,
            };
            self.period_end = self.period_end.saturating_add(PERIOD);
        }
    }

    /// `bytes` more in second `when`. The past is closed: a clock set back loses observations.
    fn add(&mut self, when: u64, bytes: u64) {
        if when < self.now {
            return;
        }
        if when - self.now > VALID + PERIOD {
            // So much later that nothing observed so far counts any more.
            *self = Self::new(when);
        }
        while self.now < when {
            if self.recent.iter().any(|bytes| *bytes != 0) {
                self.tick();
            } else {
                // Silence has no maxima: on to the end of the period at once.
                self.now = when.min(self.period_end);
                self.end_periods();
            }
        }
        if let Some(last) = self.recent.back_mut() {
            *last = last.saturating_add(bytes);
        }
        self.current.total = self.current.total.saturating_add(bytes);
    }

    /// `rate` bytes in each of the next `length` seconds, of which no more than that is known.
    fn restore(&mut self, mut length: u64, rate: u64) {
        while length > 0 {
            self.end_periods();
            let step = length.min(self.period_end.saturating_sub(self.now));
            self.current.total = self.current.total.saturating_add(rate.saturating_mul(step));
            self.now = self.now.saturating_add(step);
            length -= step;
        }
    }

    /// Largest [`ROLLING`]-second sum; the current period counts once it has lasted `min_time`.
    fn maximum(&self, min_time: u64) -> u64 {
        let start = self.period_end.saturating_sub(PERIOD);
        let current = if self.now > start.saturating_add(min_time) {
            self.current.maximum
        } else {
            0
        };
        self.past
            .iter()
            .map(|period| period.maximum)
            .fold(current, u64::max)
    }

    /// The finished periods as a line of the extra-info document.
    fn history_line(&self, keyword: &str, rate_limit: Option<u64>) -> Option<String> {
        if self.past.is_empty() {
            return None;
        }
        // Reporting more than we are willing to relay would reveal how much traffic is our own.
        let cutoff = rate_limit.map_or(u64::MAX, |rate| rate.saturating_mul(PERIOD));
        let totals: Vec<String> = self
            .past
            .iter()
            .map(|period| kib(period.total).min(cutoff).to_string())
            .collect();
        let end = iso(self.period_end.saturating_sub(PERIOD));
        Some(format!("{keyword} {end} ({PERIOD} s) {}", totals.join(",")))
    }

    /// The lines of the state file.
    fn state(&self, key: &str, lines: &mut Vec<(String, String)>) {
        let periods = || self.past.iter().chain(std::iter::once(&self.current));
        let list = |value: fn(&Period) -> u64| {
            periods()
                .map(|period| kib(value(period)).to_string())
                .collect::<Vec<_>>()
                .join(",")
        };
        lines.push((format!("{key}Ends"), iso(self.period_end)));
        lines.push((format!("{key}Interval"), PERIOD.to_string()));
        lines.push((format!("{key}Values"), list(|period| period.total)));
        lines.push((
            format!("{key}Maxima"),
            list(|period| period.maximum / ROLLING_SECONDS),
        ));
    }

    /// Restores a series from the state file's lines; `None` if they are not usable.
    fn from_state(
        key: &str,
        state: &[(String, String)],
        now: u64,
    ) -> Result<Option<Self>, StateError> {
        let get = |suffix: &str| {
            state
                .iter()
                .find(|(name, _)| name.strip_prefix(key) == Some(suffix))
                .map(|(_, value)| value.as_str())
                .filter(|value| !value.is_empty())
        };
        let bad = |suffix: &str, value: &str| StateError {
            key: format!("{key}{suffix}"),
            value: value.chars().take(80).collect(),
        };
        let (Some(ends), Some(values)) = (get("Ends"), get("Values")) else {
            return Ok(None);
        };
        let end = ends
            .parse::<Iso8601TimeSp>()
            .ok()
            .and_then(|time| seconds(*time))
            .ok_or_else(|| bad("Ends", ends))?;
        let interval = match get("Interval") {
            None => PERIOD,
            Some(text) => match text.parse::<u64>() {
                Ok(interval) if (1..=VALID).contains(&interval) => interval,
                _ => return Err(bad("Interval", text)),
            },
        };
        let totals = numbers(values).ok_or_else(|| bad("Values", values))?;
        let maxima = match get("Maxima") {
            Some(text) => Some(numbers(text).ok_or_else(|| bad("Maxima", text))?),
            None => None,
        }
        .filter(|maxima| maxima.len() == totals.len());
        if end < now.saturating_sub(VALID) {
            return Ok(None);
        }
        let length = interval.saturating_mul(u64::try_from(totals.len()).unwrap_or(u64::MAX));
        let mut start = end.saturating_sub(length);
        if start > now || now - start > VALID + 2 * PERIOD {
            return Ok(None);
        }
        let mut series = Self::new(start);
        for (at, total) in totals.iter().copied().enumerate() {
            if start >= now {
                break;
            }
            let length = interval.min(now - start);
            series.restore(length, total / length);
            let maximum = maxima
                .as_ref()
                .and_then(|maxima| maxima.get(at).copied())
                .unwrap_or(total / interval);
            series.current.maximum = maximum.saturating_mul(ROLLING_SECONDS);
            start += length;
        }
        series.end_periods();
        Ok(Some(series))
    }
}

/// Rounded down to KiB, as published.
fn kib(bytes: u64) -> u64 {
    bytes & !0x3ff
}

/// `YYYY-MM-DD HH:MM:SS` of seconds since the epoch.
fn iso(second: u64) -> String {
    // Past what the calendar can show; only a wildly wrong clock comes here.
    let second = second.min(253_402_300_799);
    Iso8601TimeSp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).to_string()
}

/// Seconds since the epoch.
fn seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
}

/// A comma-separated list of numbers, not too long.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let numbers: Option<Vec<u64>> = text
        .split(',')
        .take(MAX_STATE_VALUES + 1)
        .map(|number| number.trim().parse().ok())
        .collect();
    numbers.filter(|numbers| numbers.len() <= MAX_STATE_VALUES)
}

/// A line of the state file is not bandwidth history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read the bandwidth history: {key} {value:?} in the state file is malformed; starting a new history"
)]
pub struct StateError {
    /// Key of the line.
    key: String,
    /// Value of the line.
    value: String,
}

/// Observed bandwidth and histories of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandwidthHistory {
    /// In the order of [`SERIES`].
    series: [Series; 6],
    /// When totals were last handed in, and which.
    last: Option<(u64, Totals)>,
}

impl BandwidthHistory {
    /// An empty history that begins at `now`.
    pub fn new(now: SystemTime) -> Self {
        let now = seconds(now).unwrap_or_default();
        Self {
            series: std::array::from_fn(|_| Series::new(now)),
            last: None,
        }
    }

    /// The history in the state file's `BWHistory…` lines (others are ignored).
    pub fn from_state(state: &[(String, String)], now: SystemTime) -> Result<Self, StateError> {
        let mut history = Self::new(now);
        let now = seconds(now).unwrap_or_default();
        for ((_, key), series) in SERIES.iter().zip(&mut history.series) {
            if let Some(restored) = Series::from_state(key, state, now)? {
                *series = restored;
            }
        }
        Ok(history)
    }

    /// The state file's lines: keys and values.
    pub fn state(&self) -> Vec<(String, String)> {
        let mut lines = Vec::with_capacity(4 * SERIES.len());
        for ((_, key), series) in SERIES.iter().zip(&self.series) {
            series.state(key, &mut lines);
        }
        lines
    }

    /// Takes the node's totals at `now`. The bytes since the last call are spread evenly over the
    /// seconds since, so that a late report never looks like a burst.
    pub fn note(&mut self, now: SystemTime, totals: Totals) {
        let now = seconds(now).unwrap_or_default();
        let (since, before) = self.last.unwrap_or((now, Totals::default()));
        self.last = Some((now, totals));
        let elapsed = now.saturating_sub(since).clamp(1, VALID);
        let first = now.saturating_sub(elapsed - 1);
        for ((series, total), before) in self
            .series
            .iter_mut()
            .zip(totals.values())
            .zip(before.values())
        {
            let bytes = total.saturating_sub(before);
            for second in first..=now {
                let share = bytes / elapsed + if second == now { bytes % elapsed } else { 0 };
                series.add(second, share);
            }
        }
    }

    /// Observed bandwidth in bytes per second. A current period shorter than `min_time` does not
    /// count yet (TestingMinTimeToReportBandwidth).
    pub fn observed(&self, min_time: Duration) -> u64 {
        let [written, read, ..] = &self.series;
        let min_time = min_time.as_secs();
        written.maximum(min_time).min(read.maximum(min_time)) / ROLLING_SECONDS
    }

    /// The history lines of the extra-info document, none above `rate_limit` bytes per second.
    pub fn lines(&self, rate_limit: Option<u64>) -> Vec<String> {
        SERIES
            .iter()
            .zip(&self.series)
            .filter_map(|((keyword, _), series)| series.history_line(keyword, rate_limit))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second)
    }

    fn both(bytes: u64) -> Totals {
        Totals {
            read: bytes,
            written: bytes,
            ..Totals::default()
        }
    }

    /// A history with `rate` bytes per second both ways for `seconds`.
    fn steady(rate: u64, seconds: u64) -> BandwidthHistory {
        let mut history = BandwidthHistory::new(at(0));
        for second in 0..=seconds {
            history.note(at(second), both(rate * second));
        }
        history
    }

    #[test]
    fn observed_is_the_best_ten_seconds_per_second() {
        let mut history = steady(1000, 30);
        assert_eq!(history.observed(Duration::ZERO), 1000);
        // One second of 50 kB counts a tenth.
        history.note(at(31), both(30_000 + 51_000));
        history.note(at(33), both(30_000 + 51_000));
        assert_eq!(history.observed(Duration::ZERO), (9 * 1000 + 51_000) / 10);
    }

    #[test]
    fn what_was_only_read_does_not_count() {
        let mut history = BandwidthHistory::new(at(0));
        for second in 0..60 {
            history.note(
                at(second),
                Totals {
                    read: 1_000_000 * second,
                    ..Totals::default()
                },
            );
        }
        assert_eq!(history.observed(Duration::ZERO), 0);
    }

    #[test]
    fn a_young_period_does_not_count_until_it_is_old_enough() {
        let history = steady(1000, 3600);
        assert_eq!(history.observed(Duration::from_secs(86_400)), 0);
        assert_eq!(history.observed(Duration::from_secs(3000)), 1000);
    }

    #[test]
    fn maxima_are_forgotten_after_five_days() {
        let mut history = steady(1000, 60);
        history.note(at(PERIOD * 5 + 10), both(60_000));
        assert_eq!(history.observed(Duration::ZERO), 1000);
        history.note(at(PERIOD * 6 + 10), both(60_000));
        assert_eq!(history.observed(Duration::ZERO), 0);
    }

    #[test]
    fn a_late_report_is_not_a_burst() {
        let mut history = BandwidthHistory::new(at(0));
        history.note(at(0), both(0));
        history.note(at(100), both(100_000));
        history.note(at(102), both(100_000));
        assert_eq!(history.observed(Duration::ZERO), 1000);
    }

    #[test]
    fn finished_days_are_published_rounded_and_capped() {
        let history = steady(1000, 2 * PERIOD + 5);
        let lines = history.lines(None);
        assert_eq!(lines.len(), 6, "every series has finished days");
        let day = kib(1000 * PERIOD);
        assert_eq!(
            lines[0],
            format!(
                "write-history 2023-11-16 22:13:20 (86400 s) {},{day}",
                kib(1000 * (PERIOD - 1))
            )
        );
        assert!(history.lines(Some(10))[1].ends_with(&format!(" {},{}", 10 * PERIOD, 10 * PERIOD)));
        assert!(
            steady(1000, 60).lines(None).is_empty(),
            "no finished day, no line"
        );
    }

    #[test]
    fn a_history_survives_the_state_file() {
        let history = steady(4096, PERIOD + 1000);
        let restored = BandwidthHistory::from_state(&history.state(), at(PERIOD + 1000)).unwrap();
        assert_eq!(
            restored.observed(Duration::from_secs(PERIOD)),
            history.observed(Duration::from_secs(PERIOD))
        );
        let totals = |history: &BandwidthHistory| -> Vec<u64> {
            history.series[0]
                .past
                .iter()
                .map(|period| period.total / PERIOD)
                .collect()
        };
        assert_eq!(totals(&restored), totals(&history));
        assert_eq!(
            restored.state()[0],
            history.state()[0],
            "periods end when they did"
        );
    }

    #[test]
    fn malformed_state_lines_are_named() {
        let state = |key: &str, value: &str| {
            let mut lines = steady(4096, 1000).state();
            for line in &mut lines {
                if line.0 == key {
                    line.1 = value.to_string();
                }
            }
            BandwidthHistory::from_state(&lines, at(1000))
        };
        for (key, value) in [
            ("BWHistoryWriteEnds", "yesterday"),
            ("BWHistoryReadValues", "1,x"),
            ("BWHistoryReadMaxima", "-1"),
            ("BWHistoryDirReadInterval", "0"),
        ] {
            let error = state(key, value).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        assert!(state("Nickname", "x").is_ok());
    }

    proptest! {
        // Days pass second by second: few cases suffice and more would be slow.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn no_state_file_breaks_it(ends in "\\PC{0,30}", values in "[0-9,]{0,200}", interval in "[0-9]{0,22}", now: u32) {
            let state = vec![
                ("BWHistoryReadEnds".to_string(), ends),
                ("BWHistoryReadValues".to_string(), values.clone()),
                ("BWHistoryReadInterval".to_string(), interval.clone()),
                ("BWHistoryWriteEnds".to_string(), "2023-11-15 00:00:00".to_string()),
                ("BWHistoryWriteValues".to_string(), values),
                ("BWHistoryWriteInterval".to_string(), interval),
            ];
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.into());
            let _ = BandwidthHistory::from_state(&state, now);
        }

        #[test]
        fn clocks_may_jump_without_inventing_bandwidth(jumps in prop::collection::vec(0_u64..2_000_000, 1..8)) {
            let mut history = BandwidthHistory::new(at(0));
            let mut total = 0;
            for jump in jumps {
                total += 500;
                history.note(at(jump), both(total));
            }
            prop_assert!(history.observed(Duration::ZERO) <= 500);
        }
    }
}
