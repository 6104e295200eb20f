//! Overload (`overload-ratelimits`, `overload-fd-exhausted`; C tor `rep_hist_get_overload_stats_lines`).

use std::time::{Duration, SystemTime};

use crate::extrainfo::moment::{hour, iso};

/// The version of the lines (`OVERLOAD_STATS_VERSION`).
const VERSION: u32 = 1;
/// Time for which reaching a bandwidth limit is published.
const LIMITS_ARE_NEWS: Duration = Duration::from_secs(24 * 3600);
/// Time for which a lack of file descriptors is published.
const FILES_ARE_NEWS: Duration = Duration::from_secs(72 * 3600);
/// A limit counts once in this time.
const COUNTED_EVERY: Duration = Duration::from_secs(60);

/// One direction of the bandwidth limit.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    /// Times that it was reached, as the threads count them.
    total: u64,
    /// Minutes in which it was.
    minutes: u64,
    counted: Option<SystemTime>,
}

impl Limit {
    /// Notes the total, and returns true if the limit was reached since the last call.
    fn note(&mut self, total: u64, now: SystemTime) -> bool {
        let reached = total > std::mem::replace(&mut self.total, total);
        let soon = self.counted.is_some_and(|counted| {
            now.duration_since(counted)
                .is_ok_and(|since| since < COUNTED_EVERY)
        });
        if reached && !soon {
            self.minutes += 1;
            self.counted = Some(now);
        }
        reached
    }
}

/// Resources that this relay exhausted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overload {
    read: Limit,
    written: Limit,
    limits: Option<SystemTime>,
    files: Option<SystemTime>,
}

impl Overload {
    /// The totals of times that reading and writing waited for the bandwidth of all connections.
    pub(crate) fn note_limits(&mut self, read: u64, written: u64, now: SystemTime) {
        let read = self.read.note(read, now);
        let written = self.written.note(written, now);
        if read || written {
            self.limits = Some(hour(now));
        }
    }

    /// There was no file descriptor left.
    pub(crate) fn note_files(&mut self, now: SystemTime) {
        self.files = Some(hour(now));
    }

    /// The lines, with the limits that are set.
    pub(crate) fn lines(&self, (rate, burst): (u64, u64), now: SystemTime) -> String {
        let news = |when: Option<SystemTime>, time| {
            when.filter(|when| now.duration_since(*when).is_ok_and(|age| age < time))
        };
        let mut text = String::new();
        if let Some(when) = news(self.limits, LIMITS_ARE_NEWS) {
            text.push_str(&format!(
                "overload-ratelimits {VERSION} {} {rate} {burst} {} {}\n",
                iso(when),
                self.read.minutes,
                self.written.minutes
            ));
        }
        if let Some(when) = news(self.files, FILES_ARE_NEWS) {
            text.push_str(&format!("overload-fd-exhausted {VERSION} {}\n", iso(when)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extrainfo::moment::parse;

    #[test]
    fn a_limit_is_published_for_a_day_by_the_hour_and_counts_once_a_minute() {
        let now = parse("2026-01-01 10:30:00").unwrap();
        let second = Duration::from_secs(1);
        let mut overload = Overload::default();
        overload.note_limits(0, 0, now);
        assert_eq!(overload.lines((1, 2), now), "");
        overload.note_limits(5, 0, now + second);
        overload.note_limits(9, 3, now + 2 * second);
        overload.note_limits(10, 3, now + 61 * second);
        overload.note_limits(10, 3, now + 200 * second);
        let line = "overload-ratelimits 1 2026-01-01 10:00:00 1024 2048 2 1\n";
        assert_eq!(overload.lines((1024, 2048), now + 300 * second), line);
        let hours = Duration::from_secs(23 * 3600);
        assert_eq!(overload.lines((1024, 2048), now + hours), line);
        assert_eq!(
            overload.lines((1024, 2048), now + hours + 3600 * second),
            ""
        );
    }

    #[test]
    fn missing_file_descriptors_are_published_for_three_days() {
        let now = parse("2026-01-01 10:30:00").unwrap();
        let mut overload = Overload::default();
        overload.note_files(now);
        let line = "overload-fd-exhausted 1 2026-01-01 10:00:00\n";
        let hours = |hours: u64| now + Duration::from_secs(hours * 3600);
        assert_eq!(overload.lines((1, 2), hours(71)), line);
        assert_eq!(overload.lines((1, 2), hours(72)), "");
    }
}
