//! Local times for log lines and controllers.
//!
//! Only `localtime_r` is correct in a process with threads and across a change of summer time: hence this
//! module's unsafe code.
#![allow(unsafe_code)]

use std::time::{SystemTime, UNIX_EPOCH};

use weft_counts::accounting::{Calendar, Civil};

/// A moment's local date and time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalTime {
    /// 0 is January.
    pub(super) month: usize,
    pub(super) day: u8,
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
    pub(super) millisecond: u16,
    /// Seconds east of Greenwich.
    pub(super) offset: i64,
}

impl LocalTime {
    /// The local time of `moment`, rounded down to a multiple of `granularity` milliseconds.
    pub(super) fn of(moment: SystemTime, granularity: u64) -> Self {
        // A clock before 1970 shows 1970.
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        let granularity = u128::from(granularity.max(1));
        let millis = since.as_millis() / granularity * granularity;
        let seconds = i64::try_from(millis / 1000).unwrap_or(i64::MAX);
        let broken_down = local(seconds);
        let small = |value: libc::c_int| u8::try_from(value).unwrap_or(0);
        Self {
            month: usize::try_from(broken_down.tm_mon).unwrap_or(0).min(11),
            day: small(broken_down.tm_mday),
            hour: small(broken_down.tm_hour),
            minute: small(broken_down.tm_min),
            second: small(broken_down.tm_sec),
            millisecond: u16::try_from(millis % 1000).unwrap_or(0),
            offset: broken_down.tm_gmtoff,
        }
    }
}

/// The local time of a moment in the format for controllers: `2026-11-22 01:02:03`.
#[must_use]
pub fn local_iso(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let broken_down = local(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02}",
        i64::from(broken_down.tm_year) + 1900,
        broken_down.tm_mon + 1,
        broken_down.tm_mday,
        broken_down.tm_hour,
        broken_down.tm_min,
        broken_down.tm_sec
    )
}

/// The machine's time zone.
#[derive(Clone, Copy, Debug)]
pub struct LocalCalendar;

impl Calendar for LocalCalendar {
    fn civil(&self, moment: i64) -> Civil {
        let broken_down = local(moment);
        Civil {
            year: i64::from(broken_down.tm_year) + 1900,
            month: i64::from(broken_down.tm_mon) + 1,
            day: i64::from(broken_down.tm_mday),
            hour: i64::from(broken_down.tm_hour),
            minute: i64::from(broken_down.tm_min),
            second: i64::from(broken_down.tm_sec),
            weekday: i64::from(broken_down.tm_wday),
        }
    }

    fn moment(&self, year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        let small = |number: i64| libc::c_int::try_from(number).unwrap_or(0);
        let mut broken_down = local(0);
        broken_down.tm_year = small(year.saturating_sub(1900));
        broken_down.tm_mon = small(month.saturating_sub(1));
        broken_down.tm_mday = small(day);
        broken_down.tm_hour = small(hour);
        broken_down.tm_min = small(minute);
        broken_down.tm_sec = 0;
        // Negative: `mktime` finds out if summer time applies.
        broken_down.tm_isdst = -1;
        // SAFETY: the pointer is to a live local of the type that `mktime` takes. `mktime` reads
        // and normalizes it, whatever numbers it holds, and does not keep it. For the environment
        // see `localtime_r` below.
        unsafe { libc::mktime(&mut broken_down) }
    }
}

/// `localtime_r`; all zero if the year does not fit.
fn local(seconds: i64) -> libc::tm {
    // SAFETY: `libc::tm` is a C struct of integers and one pointer (`tm_zone`), for all of which
    // all-zero bytes are a valid value.
    let mut out: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, properly aligned locals of the types that `localtime_r`
    // takes; it writes only to `*out` and keeps neither pointer. Its one precondition beyond that
    // is that the environment (`TZ`) does not change meanwhile, and Weft never changes it: `set_var`
    // is itself unsafe, and denied. `tm_zone`, which points into the C library, is never read.
    let done = unsafe { libc::localtime_r(&seconds, &mut out) };
    if done.is_null() {
        // The result may be incomplete.
        // SAFETY: as above.
        out = unsafe { std::mem::zeroed() };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_local_time_is_utc_plus_its_offset() {
        for seconds in [
            0_u64,
            951_782_400,
            1_700_000_000,
            1_720_000_000,
            4_000_000_000,
        ] {
            let local = LocalTime::of(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 123), 1);
            let shifted = i64::try_from(seconds).unwrap() + local.offset;
            let want = time::OffsetDateTime::from_unix_timestamp(shifted).unwrap();
            assert_eq!(local.month + 1, usize::from(u8::from(want.month())));
            assert_eq!((local.day, local.hour), (want.day(), want.hour()));
            assert_eq!((local.minute, local.second), (want.minute(), want.second()));
            assert_eq!(local.millisecond, 123);
            assert!(local.offset.abs() <= 15 * 3600);
        }
    }

    #[test]
    fn times_are_rounded_down() {
        let at = UNIX_EPOCH + Duration::from_millis(1_700_000_007_987);
        assert_eq!(LocalTime::of(at, 100).millisecond, 900);
        assert_eq!(LocalTime::of(at, 1000).millisecond, 0);
        assert_eq!(LocalTime::of(at, 5000).second % 5, 0);
    }

    #[test]
    fn a_local_minute_is_the_moment_that_it_is_of() {
        for moment in [
            0_i64,
            951_782_400,
            1_700_000_000,
            1_720_000_000,
            4_000_000_000,
        ] {
            let civil = LocalCalendar.civil(moment);
            let minute =
                LocalCalendar.moment(civil.year, civil.month, civil.day, civil.hour, civil.minute);
            assert_eq!(minute + civil.second, moment);
        }
        let first = LocalCalendar.moment(2027, 1, 1, 0, 0);
        assert_eq!(LocalCalendar.moment(2026, 13, 1, 0, 0), first);
        assert_eq!(LocalCalendar.moment(2026, 12, 32, 0, 0), first);
        assert_eq!(LocalCalendar.civil(first).year, 2027);
    }

    #[test]
    fn a_year_that_does_not_fit_shows_as_zero() {
        assert_eq!(local(i64::MAX).tm_mday, 0);
    }
}
