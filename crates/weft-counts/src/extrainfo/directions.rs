//! Directions in which connections are used (`conn-bi-direct`; C tor connstats.c).

use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// Bytes of both directions below which a connection is idle (`BIDI_THRESHOLD`).
const THRESHOLD: u64 = 20_480;
/// Ratio of bytes from which on a connection counts as used in one direction (`BIDI_FACTOR`).
const FACTOR: u64 = 10;

/// Connections of one kind, each counted in every interval in which it moved bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    below: u64,
    read: u64,
    written: u64,
    both: u64,
}

/// Connections of all kinds, and those over IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    all: DirectionCounts,
    ipv6: DirectionCounts,
}

impl Directions {
    /// The interval over which a connection's bytes are compared (`BIDI_INTERVAL`).
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// Counts a connection that moved these bytes in an interval.
    pub fn add(&mut self, read: u64, written: u64, ipv6: bool) {
        if read == 0 && written == 0 {
            return;
        }
        let count = |counts: &mut DirectionCounts| {
            let which = if read.saturating_add(written) < THRESHOLD {
                &mut counts.below
            } else if read >= written.saturating_mul(FACTOR) {
                &mut counts.read
            } else if written >= read.saturating_mul(FACTOR) {
                &mut counts.written
            } else {
                &mut counts.both
            };
            *which += 1;
        };
        count(&mut self.all);
        if ipv6 {
            count(&mut self.ipv6);
        }
    }

    /// The lines of a day that ended so.
    pub(crate) fn lines(&self, end: &str) -> String {
        let line = |keyword: &str, counts: DirectionCounts| {
            let DirectionCounts {
                below,
                read,
                written,
                both,
            } = counts;
            format!("{keyword} {end} {below},{read},{written},{both}\n")
        };
        line("conn-bi-direct", self.all) + &line("ipv6-conn-bi-direct", self.ipv6)
    }
}

impl AddAssign for DirectionCounts {
    fn add_assign(&mut self, other: Self) {
        self.below += other.below;
        self.read += other.read;
        self.written += other.written;
        self.both += other.both;
    }
}

impl Sub for DirectionCounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            below: self.below.saturating_sub(other.below),
            read: self.read.saturating_sub(other.read),
            written: self.written.saturating_sub(other.written),
            both: self.both.saturating_sub(other.both),
        }
    }
}

impl AddAssign for Directions {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.ipv6 += other.ipv6;
    }
}

impl Sub for Directions {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            all: self.all - other.all,
            ipv6: self.ipv6 - other.ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C tor's own example (test_stats.c), and its continuation: of two intervals, the second does
    /// not end there.
    #[test]
    fn connections_count_by_the_way_that_they_are_used() {
        let mut directions = Directions::default();
        directions.add(60_000, 800_000, false);
        directions.add(1, 800_000, false);
        directions.add(400_000, 30_000, false);
        directions.add(400_000, 400_000, false);
        directions.add(100, 200, true);
        directions.add(0, 0, true);
        assert_eq!(
            directions.lines("2010-08-12 13:27:30 (86400 s)"),
            "conn-bi-direct 2010-08-12 13:27:30 (86400 s) 1,1,2,1\n\
             ipv6-conn-bi-direct 2010-08-12 13:27:30 (86400 s) 1,0,0,0\n"
        );
    }
}
