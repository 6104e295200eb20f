//! Padding (`padding-counts`; C tor `rep_hist_get_padding_count_lines`).

use std::ops::{AddAssign, Sub};

use crate::extrainfo::obscure::round_up;

/// Numbers are rounded up to a multiple of this (`ROUND_CELL_COUNTS_TO`).
const BIN: u64 = 10_000;

/// Cells of links, and padding among them. Totals since the start, or those of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaddingTotals {
    /// RELAY_DROP messages sent.
    pub write_drop: u64,
    /// PADDING cells sent.
    pub write_pad: u64,
    /// Cells sent.
    pub write_total: u64,
    /// RELAY_DROP messages received.
    pub read_drop: u64,
    /// PADDING cells received.
    pub read_pad: u64,
    /// Cells received.
    pub read_total: u64,
    /// `read_pad` on links where padding is on.
    pub enabled_read_pad: u64,
    /// `read_total` on links where padding is on.
    pub enabled_read_total: u64,
    /// `write_pad` on links where padding is on.
    pub enabled_write_pad: u64,
    /// `write_total` on links where padding is on.
    pub enabled_write_total: u64,
}

/// Applies a function to each field.
macro_rules! each {
    ($one:expr, $other:expr, $with:expr, $($field:ident),*) => {
        PaddingTotals { $($field: $with($one.$field, $other.$field),)* }
    };
}

impl PaddingTotals {
    fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        each!(
            self,
            other,
            with,
            write_drop,
            write_pad,
            write_total,
            read_drop,
            read_pad,
            read_total,
            enabled_read_pad,
            enabled_read_total,
            enabled_write_pad,
            enabled_write_total
        )
    }

    /// The line of a day that ended at `end`, with the most padding timers that ran at once; none
    /// if nothing was sent or received.
    pub(crate) fn line(self, end: &str, timers: u64) -> Option<String> {
        if self.read_total == 0 || self.write_total == 0 {
            return None;
        }
        let rounded = self.combine(self, |count, _| round_up(count, BIN));
        let PaddingTotals {
            write_drop,
            write_pad,
            write_total,
            read_drop,
            read_pad,
            read_total,
            enabled_read_pad,
            enabled_read_total,
            enabled_write_pad,
            enabled_write_total,
        } = rounded;
        Some(format!(
            "padding-counts {end} bin-size={BIN} write-drop={write_drop} write-pad={write_pad} \
             write-total={write_total} read-drop={read_drop} read-pad={read_pad} \
             read-total={read_total} enabled-read-pad={enabled_read_pad} \
             enabled-read-total={enabled_read_total} enabled-write-pad={enabled_write_pad} \
             enabled-write-total={enabled_write_total} max-chanpad-timers={timers}\n"
        ))
    }
}

impl AddAssign for PaddingTotals {
    fn add_assign(&mut self, other: Self) {
        *self = self.combine(other, u64::saturating_add);
    }
}

impl Sub for PaddingTotals {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_published_as_c_tor_does() {
        let totals = PaddingTotals {
            write_drop: 1,
            write_pad: 10_000,
            write_total: 25_000,
            read_drop: 0,
            read_pad: 10_001,
            read_total: 123_456,
            enabled_read_pad: 2,
            enabled_read_total: 99_999,
            enabled_write_pad: 3,
            enabled_write_total: 20_000,
        };
        assert_eq!(
            totals.line("2026-01-01 12:00:00 (86400 s)", 5).unwrap(),
            "padding-counts 2026-01-01 12:00:00 (86400 s) bin-size=10000 write-drop=10000 \
             write-pad=10000 write-total=30000 read-drop=0 read-pad=20000 read-total=130000 \
             enabled-read-pad=10000 enabled-read-total=100000 enabled-write-pad=10000 \
             enabled-write-total=20000 max-chanpad-timers=5\n"
        );
        let idle = PaddingTotals {
            read_total: 0,
            ..totals
        };
        assert_eq!(idle.line("x", 5), None);
        let mut sum = totals;
        sum += totals;
        assert_eq!(sum - totals, totals);
    }
}
