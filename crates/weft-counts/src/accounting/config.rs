//! AccountingMax, AccountingRule and AccountingStart.

use crate::accounting::calendar::Calendar;

/// Rule by which bytes of the two directions count (`AccountingRule`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The one with more.
    #[default]
    Max,
    /// Both.
    Sum,
    /// Bytes read.
    In,
    /// Bytes written.
    Out,
}

impl Rule {
    /// A value of the option. C tor minds the case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "max" => Rule::Max,
            "sum" => Rule::Sum,
            "in" => Rule::In,
            "out" => Rule::Out,
            _ => return None,
        })
    }

    /// Its value in torrc.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::Max => "max",
            Rule::Sum => "sum",
            Rule::In => "in",
            Rule::Out => "out",
        }
    }

    /// Bytes that count, of these.
    pub(crate) fn count(self, read: u64, written: u64) -> u64 {
        match self {
            Rule::Max => read.max(written),
            Rule::Sum => read.saturating_add(written),
            Rule::In => read,
            Rule::Out => written,
        }
    }
}

/// When an interval begins, by local time (`AccountingStart`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On this day of each month, 1 to 28.
    Month {
        /// The day.
        day: u8,
        /// 0 to 23.
        hour: u8,
        /// 0 to 59.
        minute: u8,
    },
    /// On this day of each week; 1 is Monday, 7 Sunday.
    Week {
        /// The day.
        day: u8,
        /// 0 to 23.
        hour: u8,
        /// 0 to 59.
        minute: u8,
    },
    /// Each day.
    Day {
        /// 0 to 23.
        hour: u8,
        /// 0 to 59.
        minute: u8,
    },
}

impl Default for Start {
    fn default() -> Self {
        Start::Month {
            day: 1,
            hour: 0,
            minute: 0,
        }
    }
}

/// Reason for which a text is not an AccountingStart, in C tor's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError(pub String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole number in a range.
fn number(text: &str, least: u8, most: u8) -> Option<u8> {
    let value: u8 = text.parse().ok()?;
    (least..=most).contains(&value).then_some(value)
}

impl Start {
    /// Reads `month 3 15:00`, `week 1 00:00` or `day 10:00` (`accounting_parse_options`).
    ///
    /// # Errors
    ///
    /// It has none of these forms.
    pub fn parse(text: &str) -> Result<Self, StartError> {
        let failed = |text: &str| Err(StartError(text.to_owned()));
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (unit, first) = match words.as_slice() {
            [unit, first, ..] => (*unit, *first),
            _ => return failed("Too few arguments to AccountingStart"),
        };
        let is = |name: &str| unit.eq_ignore_ascii_case(name);
        let day = match () {
            () if is("month") => match number(first, 1, 28) {
                Some(day) => day,
                None => return failed("Monthly accounting must begin on a day between 1 and 28"),
            },
            () if is("week") => match number(first, 1, 7) {
                Some(day) => day,
                None => {
                    return failed(
                        "Weekly accounting must begin on a day between 1 (Monday) and 7 (Sunday)",
                    );
                }
            },
            () if is("day") => 0,
            () => {
                return Err(StartError(format!(
                    "Unrecognized accounting unit '{unit}': only 'month', 'week', and 'day' are supported."
                )));
            }
        };
        let wanted: usize = if is("day") { 1 } else { 2 };
        let time = match words.get(wanted) {
            Some(time) if words.len() == wanted.saturating_add(1) => *time,
            _ => {
                return Err(StartError(format!(
                    "Accounting unit '{unit}' requires {wanted} argument{}.",
                    if wanted > 1 { "s" } else { "" }
                )));
            }
        };
        let Some((hour, minute)) = time.split_once(':') else {
            return failed("Accounting start time not parseable: not in HH:MM format");
        };
        let Some(hour) = number(hour, 0, 23) else {
            return failed("Accounting start time not parseable: bad hour.");
        };
        let Some(minute) = number(minute, 0, 59) else {
            return failed("Accounting start time not parseable: bad minute");
        };
        Ok(match () {
            () if is("month") => Start::Month { day, hour, minute },
            () if is("week") => Start::Week { day, hour, minute },
            () => Start::Day { hour, minute },
        })
    }

    /// The start of the interval that `now` is in, and of the one behind it.
    pub(crate) fn interval(self, now: i64, calendar: &dyn Calendar) -> (i64, i64) {
        let civil = calendar.civil(now);
        let (Start::Month { hour, minute, .. }
        | Start::Week { hour, minute, .. }
        | Start::Day { hour, minute }) = self;
        let (hour, minute) = (i64::from(hour), i64::from(minute));
        // Today's moment is still to come.
        let before = (civil.hour, civil.minute) < (hour, minute);
        let at = |month, day| calendar.moment(civil.year, month, day, hour, minute);
        match self {
            Start::Month { day, .. } => {
                let day = i64::from(day);
                let is_last_month = civil.day < day || civil.day == day && before;
                let month = civil.month.saturating_sub(i64::from(is_last_month));
                (at(month, day), at(month.saturating_add(1), day))
            }
            Start::Week { day, .. } => {
                let since = civil.weekday.saturating_sub(i64::from(day)).rem_euclid(7);
                let since = if since == 0 && before { 7 } else { since };
                let day = civil.day.saturating_sub(since);
                (at(civil.month, day), at(civil.month, day.saturating_add(7)))
            }
            Start::Day { .. } => {
                let day = civil.day.saturating_sub(i64::from(before));
                (at(civil.month, day), at(civil.month, day.saturating_add(1)))
            }
        }
    }
}

/// The options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `AccountingMax`, in bytes; 0: no limit.
    pub max: u64,
    /// `AccountingRule`.
    pub rule: Rule,
    /// `AccountingStart`.
    pub start: Start,
    /// Bytes a second that each direction may have at most (`RelayBandwidthRate`, or `BandwidthRate`).
    pub rate: u64,
    /// `AvoidDiskWrites`: the counts are saved less often.
    pub avoid_disk_writes: bool,
}

impl Config {
    /// Returns true if there is a limit.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.max > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::calendar::{FixedOffset, iso_time};
    use proptest::prelude::*;

    #[test]
    fn starts_are_read_as_by_c_tor() {
        let parse = |text| Start::parse(text).map_err(|error| error.0);
        let month = Start::Month {
            day: 3,
            hour: 15,
            minute: 0,
        };
        assert_eq!(parse("month 3 15:00"), Ok(month));
        assert_eq!(parse("  MONTH\t3  15:00 "), Ok(month));
        assert_eq!(
            parse("week 7 00:59"),
            Ok(Start::Week {
                day: 7,
                hour: 0,
                minute: 59
            })
        );
        assert_eq!(parse("day 9:05"), Ok(Start::Day { hour: 9, minute: 5 }));
        for (text, why) in [
            ("", "Too few"),
            ("day", "Too few"),
            ("year 1 0:00", "Unrecognized accounting unit 'year'"),
            ("month 29 0:00", "between 1 and 28"),
            ("month 0 0:00", "between 1 and 28"),
            ("week 8 0:00", "(Monday)"),
            ("month 3", "requires 2 arguments."),
            ("month 3 0:00 x", "requires 2 arguments."),
            ("day 0:00 x", "requires 1 argument."),
            ("day 24:00", "bad hour"),
            ("day x:00", "bad hour"),
            ("day 1200", "HH:MM"),
            ("day 12:60", "bad minute"),
            ("day 12:", "bad minute"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn intervals_begin_at_their_local_time() {
        // 2026-11-26 is a Thursday.
        let show = |start: &str, now: (i64, i64, i64, i64, i64), offset| {
            let zone = FixedOffset(offset);
            let now = zone.moment(now.0, now.1, now.2, now.3, now.4);
            let (from, to) = Start::parse(start).unwrap().interval(now, &zone);
            (iso_time(from), iso_time(to))
        };
        let own = |(from, to): (&str, &str)| (from.to_owned(), to.to_owned());
        for (start, now, offset, wanted) in [
            (
                "month 26 10:00",
                (2026, 11, 26, 9, 59),
                0,
                ("2026-10-26 10:00:00", "2026-11-26 10:00:00"),
            ),
            (
                "month 26 10:00",
                (2026, 11, 26, 10, 0),
                0,
                ("2026-11-26 10:00:00", "2026-12-26 10:00:00"),
            ),
            (
                "month 28 00:00",
                (2026, 1, 5, 0, 0),
                0,
                ("2025-12-28 00:00:00", "2026-01-28 00:00:00"),
            ),
            (
                "week 1 00:00",
                (2026, 11, 26, 9, 0),
                0,
                ("2026-11-23 00:00:00", "2026-11-30 00:00:00"),
            ),
            (
                "week 4 09:01",
                (2026, 11, 26, 9, 0),
                0,
                ("2026-11-19 09:01:00", "2026-11-26 09:01:00"),
            ),
            (
                "week 7 00:00",
                (2026, 11, 29, 0, 0),
                0,
                ("2026-11-29 00:00:00", "2026-12-06 00:00:00"),
            ),
            (
                "day 10:00",
                (2026, 3, 1, 9, 0),
                3600,
                ("2026-02-28 09:00:00", "2026-03-01 09:00:00"),
            ),
        ] {
            assert_eq!(show(start, now, offset), own(wanted), "{start} {now:?}");
        }
    }

    proptest! {
        #[test]
        fn each_moment_is_in_its_interval(
            now in 0i64..4_000_000_000,
            kind in 0u8..3, day in 1u8..=28, hour in 0u8..24, minute in 0u8..60,
            offset in -50_000i64..50_000,
        ) {
            let start = match kind {
                0 => Start::Month { day, hour, minute },
                1 => Start::Week { day: day % 7 + 1, hour, minute },
                _ => Start::Day { hour, minute },
            };
            let zone = FixedOffset(offset);
            let (from, to) = start.interval(now, &zone);
            prop_assert!(from <= now && now < to);
            // The interval behind it begins where it ends.
            prop_assert_eq!(start.interval(to, &zone).0, to);
            prop_assert_eq!(start.interval(to - 1, &zone), (from, to));
        }
    }
}
