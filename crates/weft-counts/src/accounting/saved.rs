//! State kept over restarts: C tor's lines of the state file.

use crate::accounting::calendar::{iso_time, parse_iso_time};

const START: &str = "AccountingIntervalStart";
const READ: &str = "AccountingBytesReadInInterval";
const WRITTEN: &str = "AccountingBytesWrittenInInterval";
const ACTIVE: &str = "AccountingSecondsActive";
const EXPECTED: &str = "AccountingExpectedUsage";
const TO_SOFT: &str = "AccountingSecondsToReachSoftLimit";
const SOFT_AT: &str = "AccountingSoftLimitHitAt";
const SOFT_BYTES: &str = "AccountingBytesAtSoftLimit";

/// Counts of an interval. Zeros are as good as none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// When the interval began; 0: there was none.
    pub interval_start: i64,
    /// Bytes read in it.
    pub read: u64,
    /// Bytes written in it.
    pub written: u64,
    /// Seconds of it in which bytes moved.
    pub seconds_active: u64,
    /// Bytes a minute that were expected when it began; 0: unknown.
    pub expected: u64,
    /// Active seconds before the soft limit was reached.
    pub seconds_to_soft: u64,
    /// When it was; 0: it was not.
    pub soft_at: i64,
    /// Bytes that counted by then.
    pub bytes_at_soft: u64,
}

impl Saved {
    /// Reads the lines of a state file; `get` returns the value of a key. A malformed number or
    /// time counts as 0.
    pub fn read<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let number = |key| {
            get(key)
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0)
        };
        let time = |key| {
            get(key)
                .and_then(|text| parse_iso_time(text.trim()))
                .unwrap_or(0)
        };
        let mut saved = Saved {
            interval_start: time(START),
            read: number(READ),
            written: number(WRITTEN),
            seconds_active: number(ACTIVE),
            expected: number(EXPECTED),
            seconds_to_soft: number(TO_SOFT),
            soft_at: time(SOFT_AT),
            bytes_at_soft: number(SOFT_BYTES),
        };
        // As in C tor: the state of an older version.
        if saved.soft_at <= saved.interval_start {
            (saved.soft_at, saved.seconds_to_soft, saved.bytes_at_soft) = (0, 0, 0);
        }
        saved
    }

    /// The lines; a key without a value has no line, as in C tor.
    #[must_use]
    pub fn lines(&self) -> [(&'static str, Option<String>); 8] {
        let number = |number: u64| Some(number.to_string()).filter(|_| number > 0);
        let time = |time: i64| Some(iso_time(time)).filter(|_| time > 0);
        [
            (SOFT_BYTES, number(self.bytes_at_soft)),
            (READ, number(rounded_up(self.read))),
            (WRITTEN, number(rounded_up(self.written))),
            (EXPECTED, number(self.expected)),
            (START, time(self.interval_start)),
            (ACTIVE, number(self.seconds_active)),
            (TO_SOFT, number(self.seconds_to_soft)),
            (SOFT_AT, time(self.soft_at)),
        ]
    }
}

/// To whole kilobytes (ROUND_UP).
fn rounded_up(bytes: u64) -> u64 {
    bytes.saturating_add(0x3ff) & !0x3ff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn read(lines: &[(&str, &str)]) -> Saved {
        let lines: BTreeMap<&str, &str> = lines.iter().copied().collect();
        Saved::read(|key| lines.get(key).copied())
    }

    #[test]
    fn lines_are_c_tors() {
        let saved = read(&[
            ("AccountingIntervalStart", "2026-11-25 10:00:00"),
            ("AccountingBytesReadInInterval", "93939712"),
            ("AccountingBytesWrittenInInterval", "95191040"),
            ("AccountingSecondsActive", "600"),
            ("AccountingExpectedUsage", "12"),
            ("AccountingSecondsToReachSoftLimit", "500"),
            ("AccountingSoftLimitHitAt", "2026-11-25 11:00:00"),
            ("AccountingBytesAtSoftLimit", "95000000"),
        ]);
        assert_eq!((saved.read, saved.seconds_active), (93_939_712, 600));
        assert_eq!(saved.soft_at - saved.interval_start, 3600);
        let lines = saved.lines();
        let of = |key| {
            lines
                .iter()
                .find(|line| line.0 == key)
                .unwrap()
                .1
                .as_deref()
        };
        assert_eq!(of("AccountingIntervalStart"), Some("2026-11-25 10:00:00"));
        assert_eq!(of("AccountingBytesReadInInterval"), Some("93939712"));
        assert!(Saved::default().lines().iter().all(|line| line.1.is_none()));
    }

    #[test]
    fn what_cannot_be_read_counts_as_nothing() {
        let saved = read(&[
            ("AccountingIntervalStart", "yesterday"),
            ("AccountingBytesReadInInterval", "-5"),
            ("AccountingBytesWrittenInInterval", "99999999999999999999"),
            ("AccountingSecondsActive", ""),
        ]);
        assert_eq!(saved, Saved::default());
        let old = read(&[
            ("AccountingIntervalStart", "2026-11-25 10:00:00"),
            ("AccountingSoftLimitHitAt", "2026-10-25 10:00:00"),
            ("AccountingBytesAtSoftLimit", "5"),
        ]);
        assert_eq!((old.soft_at, old.bytes_at_soft), (0, 0));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(n in any::<[u32; 8]>()) {
            let n = n.map(u64::from);
            let saved = Saved {
                interval_start: 1 + n[0] as i64,
                read: n[1] << 10,
                written: n[2] << 10,
                seconds_active: n[3],
                expected: n[4],
                seconds_to_soft: n[5],
                soft_at: 2 + (n[0] + n[6]) as i64,
                bytes_at_soft: n[7],
            };
            let lines = saved.lines();
            let again = Saved::read(|key| lines.iter().find(|line| line.0 == key)?.1.as_deref());
            prop_assert_eq!(again, saved);
        }
    }
}
