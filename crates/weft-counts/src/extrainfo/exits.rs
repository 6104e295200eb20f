//! Exit traffic by port (`exit-*`; C tor `rep_hist_format_exit_stats`).

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::extrainfo::obscure::round_up;

/// Bytes are rounded up to a multiple of this (`EXIT_STATS_ROUND_UP_BYTES`).
const BYTES: u64 = 1024;
/// Streams are rounded up to a multiple of this (`EXIT_STATS_ROUND_UP_STREAMS`).
const STREAMS: u64 = 4;
/// Ports that are named; the rest is `other` (`EXIT_STATS_TOP_N_PORTS`).
const NAMED: usize = 10;

/// Traffic to and from destinations at one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortUse {
    /// Bytes sent to destinations.
    pub written: u64,
    /// Bytes that came from them.
    pub read: u64,
    /// Streams that were opened.
    pub streams: u64,
}

impl AddAssign for PortUse {
    fn add_assign(&mut self, other: Self) {
        let PortUse {
            written,
            read,
            streams,
        } = other;
        self.written = self.written.saturating_add(written);
        self.read = self.read.saturating_add(read);
        self.streams = self.streams.saturating_add(streams);
    }
}

/// [`PortUse`] by port: 65,535 at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortTraffic(BTreeMap<u16, PortUse>);

impl PortTraffic {
    /// Adds what was used of a port.
    pub fn add(&mut self, port: u16, more: PortUse) {
        *self.0.entry(port).or_default() += more;
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: &Self) {
        for (port, more) in &other.0 {
            self.add(*port, *more);
        }
    }

    /// Returns true if no port was used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines of a day that ended so.
    pub(crate) fn lines(&self, end: &str) -> String {
        let bytes = |used: &PortUse| used.written.saturating_add(used.read);
        let mut by_bytes: Vec<(&u16, &PortUse)> = self
            .0
            .iter()
            .filter(|(port, used)| **port != 0 && bytes(used) > 0)
            .collect();
        by_bytes.sort_by_key(|(port, used)| (std::cmp::Reverse(bytes(used)), **port));
        let mut named: Vec<u16> = by_bytes
            .iter()
            .take(NAMED)
            .map(|(port, _)| **port)
            .collect();
        named.sort_unstable();
        let list = |of: fn(&PortUse) -> u64, bin: u64, unit: u64| {
            let number = |count| round_up(count, bin) / unit;
            let mut other = 0_u64;
            let mut entries = Vec::new();
            for (port, used) in self.0.iter().filter(|(port, _)| **port != 0) {
                let count = of(used);
                if named.binary_search(port).is_err() {
                    other = other.saturating_add(count);
                } else if count > 0 {
                    entries.push(format!("{port}={}", number(count)));
                }
            }
            entries.push(format!("other={}", number(other)));
            entries.join(",")
        };
        format!(
            "exit-stats-end {end}\n\
             exit-kibibytes-written {}\n\
             exit-kibibytes-read {}\n\
             exit-streams-opened {}\n",
            list(|used| used.written, BYTES, 1024),
            list(|used| used.read, BYTES, 1024),
            list(|used| used.streams, STREAMS, 1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_published_as_nothing() {
        assert_eq!(
            PortTraffic::default().lines("2010-08-12 13:27:30 (86400 s)"),
            "exit-stats-end 2010-08-12 13:27:30 (86400 s)\nexit-kibibytes-written other=0\n\
             exit-kibibytes-read other=0\nexit-streams-opened other=0\n"
        );
    }

    /// C tor's own example (test_stats.c).
    #[test]
    fn ports_are_published_as_in_c_tors_own_test() {
        let mut traffic = PortTraffic::default();
        let mut note = |port, written, read, streams| {
            let used = PortUse {
                written,
                read,
                streams,
            };
            traffic.add(port, used);
        };
        note(80, 100, 10_000, 1);
        note(443, 100, 10_000, 1);
        note(443, 100, 10_000, 0);
        let mut more = PortTraffic::default();
        for port in 50..60 {
            let used = PortUse {
                written: port.into(),
                read: port.into(),
                streams: 1,
            };
            more.add(port, used);
        }
        assert_eq!(
            traffic.lines("x"),
            "exit-stats-end x\nexit-kibibytes-written 80=1,443=1,other=0\n\
             exit-kibibytes-read 80=10,443=20,other=0\nexit-streams-opened 80=4,443=4,other=0\n"
        );
        traffic.add_all(&more);
        assert_eq!(
            traffic.lines("x"),
            "exit-stats-end x\n\
             exit-kibibytes-written 52=1,53=1,54=1,55=1,56=1,57=1,58=1,59=1,80=1,443=1,other=1\n\
             exit-kibibytes-read 52=1,53=1,54=1,55=1,56=1,57=1,58=1,59=1,80=10,443=20,other=1\n\
             exit-streams-opened 52=4,53=4,54=4,55=4,56=4,57=4,58=4,59=4,80=4,443=4,other=4\n"
        );
    }
}
