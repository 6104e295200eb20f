//! Local time, as the owner of the machine's clock knows it.

/// A moment as a clock on the wall shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// 2026.
    pub year: i64,
    /// January is 1.
    pub month: i64,
    /// The first is 1.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 60.
    pub second: i64,
    /// Sunday is 0.
    pub weekday: i64,
}

/// Local time. Moments are seconds since 1970 in UTC.
pub trait Calendar {
    /// Local date and time at a moment.
    fn civil(&self, moment: i64) -> Civil;

    /// The moment at which it shows this minute. Months and days may be outside of their range (`mktime`).
    fn moment(&self, year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64;
}

/// A zone without summer time: seconds east of Greenwich.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedOffset(pub i64);

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Days from 1970-01-01 to a date. Months and days outside of their range count on.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let months = year
        .saturating_mul(12)
        .saturating_add(month)
        .saturating_sub(1);
    // The year begins in March, so that its last day is that of a leap year.
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12));
    let (year, month) = match month {
        0 | 1 => (year.saturating_sub(1), month.saturating_add(10)),
        _ => (year, month.saturating_sub(2)),
    };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = month.saturating_mul(153).saturating_add(2) / 5;
    let days = of_era.saturating_mul(365) + of_era / 4 - of_era / 100 + of_year;
    era.saturating_mul(146_097)
        .saturating_add(days)
        .saturating_sub(719_468)
        .saturating_add(day.saturating_sub(1))
}

/// The date of a day since 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let of_era_year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_year + of_era_year / 4 - of_era_year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = of_era_year.saturating_add(era.saturating_mul(400));
    match month {
        0..=9 => (year, month + 3, day),
        _ => (year.saturating_add(1), month - 9, day),
    }
}

impl Calendar for FixedOffset {
    fn civil(&self, moment: i64) -> Civil {
        let local = moment.saturating_add(self.0);
        let (days, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = date_of(days);
        Civil {
            year,
            month,
            day,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            // 1970-01-01 was a Thursday.
            weekday: days.saturating_add(4).rem_euclid(7),
        }
    }

    fn moment(&self, year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        days_of(year, month, day)
            .saturating_mul(DAY)
            .saturating_add(hour.saturating_mul(3600))
            .saturating_add(minute.saturating_mul(60))
            .saturating_sub(self.0)
    }
}

/// `2026-11-22 01:02:03`, in UTC.
#[must_use]
pub fn iso_time(moment: i64) -> String {
    local_iso_time(moment, &FixedOffset(0))
}

/// `2026-11-22 01:02:03`, in local time.
pub(crate) fn local_iso_time(moment: i64, calendar: &dyn Calendar) -> String {
    let Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        ..
    } = calendar.civil(moment);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A moment from `2026-11-22 01:02:03` in UTC, from 1970 to 9999.
pub(crate) fn parse_iso_time(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(' ')?;
    let numbers = |text: &str, between: char, widths: [usize; 3]| {
        let mut parts = text.split(between);
        let mut next = |width: usize| {
            let part = parts.next()?;
            let fits = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<i64>().ok().filter(|_| fits)
        };
        let [first, second, third] = widths;
        let all = (next(first)?, next(second)?, next(third)?);
        parts.next().is_none().then_some(all)
    };
    let (year, month, day) = numbers(date, '-', [4, 2, 2])?;
    let (hour, minute, second) = numbers(time, ':', [2, 2, 2])?;
    let moment = FixedOffset(0)
        .moment(year, month, day, hour, minute)
        .saturating_add(second);
    // The 31st of February does not exist.
    (year >= 1970 && iso_time(moment) == text).then_some(moment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let utc = FixedOffset(0);
        assert_eq!(iso_time(0), "1970-01-01 00:00:00");
        assert_eq!(iso_time(1_709_164_799), "2024-02-28 23:59:59");
        assert_eq!(iso_time(1_709_164_800), "2024-02-29 00:00:00");
        assert_eq!(iso_time(-1), "1969-12-31 23:59:59");
        assert_eq!(utc.civil(0).weekday, 4);
        assert_eq!(utc.civil(1_763_856_000).weekday, 0, "a Sunday");
        assert_eq!(utc.moment(2024, 3, 1, 0, 0), 1_709_251_200);
        assert_eq!(utc.moment(2024, 2, 30, 0, 0), 1_709_251_200);
        assert_eq!(utc.moment(2023, 15, 1, 0, 0), 1_709_251_200);
        assert_eq!(utc.moment(2024, 0, 1, 0, 0), utc.moment(2023, 12, 1, 0, 0));
        assert_eq!(FixedOffset(3600).moment(2024, 3, 1, 1, 0), 1_709_251_200);
    }

    #[test]
    fn only_dates_are_read_as_dates() {
        assert_eq!(parse_iso_time("2024-02-29 00:00:00"), Some(1_709_164_800));
        for text in [
            "",
            "2024-02-30 00:00:00",
            "2024-2-29 00:00:00",
            "2024-02-29",
            "2024-02-29 24:00:00",
            "2024-02-29 00:00:0x",
            "1969-12-31 23:59:59",
            "2024-02-29 00:00:00 ",
            "+024-02-29 00:00:00",
        ] {
            assert_eq!(parse_iso_time(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_date_is_the_moment_that_it_is_of(moment in 0i64..253_402_300_799, offset in -50_000i64..50_000) {
            let zone = FixedOffset(offset);
            let civil = zone.civil(moment);
            let minute = zone.moment(civil.year, civil.month, civil.day, civil.hour, civil.minute);
            prop_assert_eq!(minute + civil.second, moment);
            prop_assert_eq!(parse_iso_time(&iso_time(moment)), Some(moment));
        }

        #[test]
        fn any_numbers_are_a_moment(n in any::<[i64; 5]>()) {
            let [year, month, day, hour, minute] = n;
            let moment = FixedOffset(0).moment(year, month, day, hour, minute);
            let _ = FixedOffset(i64::MAX).civil(moment);
        }
    }
}
