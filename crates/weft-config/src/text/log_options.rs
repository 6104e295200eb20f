//! Parser of `Log` lines: C tor's logging domains, severities, and destinations.

use std::fmt;
use std::path::PathBuf;

use weft_log::Severity;

/// A set of C tor's logging domains, as a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Domains(u32);

/// C tor's domain names; the position is the bit (src/lib/log/log.c, `domain_list`).
const DOMAIN_NAMES: [&str; 30] = [
    "GENERAL",
    "CRYPTO",
    "NET",
    "CONFIG",
    "FS",
    "PROTOCOL",
    "MM",
    "HTTP",
    "APP",
    "CONTROL",
    "CIRC",
    "REND",
    "BUG",
    "DIR",
    "DIRSERV",
    "OR",
    "EDGE",
    "ACCT",
    "HIST",
    "HANDSHAKE",
    "HEARTBEAT",
    "CHANNEL",
    "SCHED",
    "GUARD",
    "CONSDIFF",
    "DOS",
    "PROCESS",
    "PT",
    "BTRACK",
    "MESG",
];

impl Domains {
    /// No domain.
    pub const NONE: Self = Self(0);
    /// Every domain.
    pub const ALL: Self = Self((1 << DOMAIN_NAMES.len()) - 1);
    /// `GENERAL`, the domain of messages without another one.
    pub const GENERAL: Self = Self(1);

    /// The one domain with this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let bit = DOMAIN_NAMES
            .iter()
            .position(|n| n.eq_ignore_ascii_case(name))?;
        Some(Self(1 << bit))
    }

    /// Every domain that is in `self` or in `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Every domain that is in `self` and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns true if a domain is in both.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if no domain is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (bit, name) in DOMAIN_NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                if !first {
                    f.write_str(",")?;
                }
                first = false;
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

/// Lines that a log takes: for each severity, the domains whose lines it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeverityMask([Domains; 5]);

impl SeverityMask {
    /// Everything at least as important as `least`, of every domain.
    #[must_use]
    pub fn at_least(least: Severity) -> Self {
        let mut mask = Self::default();
        mask.add(Severity::Err, least, Domains::ALL);
        mask
    }

    /// Also takes the severities from `most` to `least` of `domains`.
    pub fn add(&mut self, most: Severity, least: Severity, domains: Domains) {
        for severity in Severity::ALL {
            if (most..=least).contains(&severity)
                && let Some(slot) = self.0.get_mut(severity as usize)
            {
                *slot = slot.union(domains);
            }
        }
    }

    fn of(&self, severity: Severity) -> Domains {
        self.0
            .get(severity as usize)
            .copied()
            .unwrap_or(Domains::NONE)
    }

    /// Returns true if the log takes lines of this severity that belong to one of these domains.
    #[must_use]
    pub fn takes(&self, severity: Severity, domains: Domains) -> bool {
        self.of(severity).intersects(domains)
    }

    /// The least important severity that is taken in any domain.
    #[must_use]
    pub fn least(&self) -> Option<Severity> {
        Severity::ALL
            .into_iter()
            .rev()
            .find(|s| !self.of(*s).is_empty())
    }
}

/// Where a log's lines go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The system's log daemon, by `/dev/log`.
    Syslog,
    /// A file, appended to (or emptied first: `TruncateLogFile`).
    File(PathBuf),
}

/// One `Log` option of torrc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Lines that it takes.
    pub takes: SeverityMask,
    /// Where they go.
    pub to: Destination,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_takes_a_range_of_severities_in_some_domains() {
        let dir = Domains::from_name("dir").unwrap();
        let mut mask = SeverityMask::at_least(Severity::Warn);
        mask.add(Severity::Notice, Severity::Info, dir);
        assert!(mask.takes(Severity::Err, Domains::from_name("OR").unwrap()));
        assert!(mask.takes(Severity::Info, dir));
        assert!(!mask.takes(Severity::Info, Domains::from_name("OR").unwrap()));
        assert!(!mask.takes(Severity::Debug, dir));
        assert_eq!(mask.least(), Some(Severity::Info));
    }
}
