//! Moments as documents have them, and the day over which is counted.

use std::time::{Duration, SystemTime};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// The time over which is counted (C tor `WRITE_STATS_INTERVAL`).
pub const PERIOD: Duration = Duration::from_secs(24 * 3600);

/// `YYYY-MM-DD HH:MM:SS`, in UTC.
const FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
/// Its length.
pub(crate) const LENGTH: usize = 19;

/// A moment in the format of documents. Only a wildly wrong clock exceeds the calendar's range:
/// then it is 1970.
pub(crate) fn iso(time: SystemTime) -> String {
    let seconds = i64::try_from(seconds(time)).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .format(FORMAT)
        .unwrap_or_default()
}

/// The moment that a document has.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let parsed = PrimitiveDateTime::parse(text, FORMAT).ok()?;
    Some(parsed.assume_utc().into())
}

/// Seconds since the epoch.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// The beginning of the hour of a moment.
pub(crate) fn hour(time: SystemTime) -> SystemTime {
    let seconds = seconds(time);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds - seconds % 3600)
}

/// The next noon of UTC after a moment, from which days of onion services count (C tor
/// `hs_get_start_time_of_next_time_period`).
pub(crate) fn next_noon(time: SystemTime) -> SystemTime {
    let (day, half) = (24 * 3600, 12 * 3600);
    let noons = (seconds(time) + half) / day;
    SystemTime::UNIX_EPOCH + Duration::from_secs(noons * day + half)
}

/// Something that is counted for a day.
#[derive(Clone, Debug)]
pub(crate) struct Day<T> {
    /// Since when; a day that begins at a certain hour may begin later than now.
    since: SystemTime,
    pub(crate) counts: T,
}

impl<T> Day<T> {
    pub(crate) fn new(since: SystemTime, counts: T) -> Self {
        Self { since, counts }
    }

    /// Since when; that may be later than now.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// If the day is over, returns its counters, with its end and length as in a line of the
    /// document (`2026-01-01 12:00:00 (86400 s)`), and begins again with `fresh`. A clock set back
    /// by more than a day begins the day again, too, without a result.
    pub(crate) fn end(&mut self, now: SystemTime, fresh: T) -> Option<(T, String)> {
        let length = match now.duration_since(self.since) {
            Ok(length) if length < PERIOD => return None,
            Ok(length) => Some(length),
            Err(early) if early.duration() <= PERIOD => return None,
            Err(_) => None,
        };
        self.since = now;
        let counts = std::mem::replace(&mut self.counts, fresh);
        length.map(|length| (counts, format!("{} ({} s)", iso(now), length.as_secs())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> SystemTime {
        parse(text).unwrap()
    }

    #[test]
    fn a_day_ends_after_twenty_four_hours_with_its_true_length() {
        let start = at("2026-01-01 10:00:00");
        let mut day = Day::new(start, 7);
        assert_eq!(day.end(start + PERIOD - Duration::from_secs(1), 0), None);
        let ended = day.end(start + PERIOD + Duration::from_secs(60), 0);
        assert_eq!(ended, Some((7, "2026-01-02 10:01:00 (86460 s)".into())));
        assert_eq!(day.end(start + PERIOD + Duration::from_secs(61), 0), None);
    }

    #[test]
    fn a_clock_set_back_by_days_begins_the_day_again_without_a_result() {
        let start = at("2026-01-05 10:00:00");
        let mut day = Day::new(start, 7);
        assert_eq!(day.end(start - Duration::from_secs(3600), 0), None);
        assert_eq!(day.counts, 7, "an hour is what daylight saving can do");
        assert_eq!(day.end(start - 2 * PERIOD, 0), None);
        assert_eq!(day.counts, 0);
        assert!(day.end(start - PERIOD, 0).is_some());
    }

    #[test]
    fn noon_is_the_next_one() {
        for (now, noon) in [
            ("2026-01-01 11:59:59", "2026-01-01 12:00:00"),
            ("2026-01-01 12:00:00", "2026-01-02 12:00:00"),
            ("2026-01-01 23:00:00", "2026-01-02 12:00:00"),
        ] {
            assert_eq!(next_noon(at(now)), at(noon), "{now}");
        }
        assert_eq!(hour(at("2026-01-01 11:59:59")), at("2026-01-01 11:00:00"));
    }

    proptest! {
        #[test]
        fn no_clock_breaks_a_line(seconds in 0_u64..(1 << 60)) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let text = iso(time);
            prop_assert_eq!(text.len(), LENGTH);
            prop_assert!(parse(&text).is_some());
            let _ = next_noon(time);
        }
    }
}
