//! What a log line is about: C tor's severities and domains, and where lines go.
//!
//! C tor has five severities and `tracing` five levels, but they are not the same five. Weft maps
//! by meaning, so that code reads as it logs:
//!
//! | C tor    | in the code                     | `tracing` level             |
//! |----------|---------------------------------|-----------------------------|
//! | `err`    | `tracing::error!`               | `ERROR`                     |
//! | `warn`   | `tracing::warn!`                | `WARN`                      |
//! | `notice` | [`notice!`](crate::notice)      | `INFO` with a field `notice` |
//! | `info`   | `tracing::info!`                | `INFO`                      |
//! | `debug`  | `tracing::debug!`               | `DEBUG`                     |
//!
//! `TRACE` is never written: it is for a debugger's eyes, and dependencies use it per system call.

use std::fmt;
use std::path::PathBuf;

use tracing::{Level, Metadata};

/// The field that marks an `INFO` event as a C tor `notice`.
pub(crate) const NOTICE_FIELD: &str = "notice";

/// How much a log line matters, most important first (doc/man/tor.1.txt, option `Log`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something that stops the node.
    Err,
    /// Something that the operator should do something about.
    Warn,
    /// Something that the operator likely wants to see.
    Notice,
    /// Something that happens often enough to be uninteresting.
    Info,
    /// Something that only a developer wants to see.
    Debug,
}

impl Severity {
    /// Every severity, most important first.
    pub const ALL: [Self; 5] = [Self::Err, Self::Warn, Self::Notice, Self::Info, Self::Debug];

    /// The word used in torrc and in log lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Err => "err",
            Self::Warn => "warn",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Reads the word used in torrc, in any case.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|s| s.name().eq_ignore_ascii_case(word))
    }

    /// The severity of events with this metadata; `None` for `TRACE`, which is never written.
    #[must_use]
    pub fn of(metadata: &Metadata<'_>) -> Option<Self> {
        match *metadata.level() {
            Level::ERROR => Some(Self::Err),
            Level::WARN => Some(Self::Warn),
            Level::INFO if metadata.fields().field(NOTICE_FIELD).is_some() => Some(Self::Notice),
            Level::INFO => Some(Self::Info),
            Level::DEBUG => Some(Self::Debug),
            _ => None,
        }
    }

    /// The number that syslog uses (`LOG_ERR` and so on).
    pub(crate) const fn syslog_level(self) -> u8 {
        match self {
            Self::Err => 3,
            Self::Warn => 4,
            Self::Notice => 5,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

/// Which domain the events of a module belong to; the longest matching prefix wins.
const DOMAIN_OF_MODULE: [(&str, &str); 15] = [
    ("weft_cell", "PROTOCOL"),
    ("weft_core", "CHANNEL"),
    ("weft_core::circuit", "CIRC"),
    ("weft_core::dos", "DOS"),
    ("weft_core::handshake", "HANDSHAKE"),
    ("weft_core::link", "OR"),
    ("weft_core::memory", "MM"),
    ("weft_core::scheduler", "SCHED"),
    ("weft_crypto", "CRYPTO"),
    ("weft_dir", "DIR"),
    ("weft_node::keys", "CRYPTO"),
    ("weft_node::process", "PROCESS"),
    ("weft_node::thread", "OR"),
    ("weft_node::tls", "HANDSHAKE"),
    ("weft_node::torrc", "CONFIG"),
];

impl Domains {
    /// No domain.
    pub const NONE: Self = Self(0);
    /// Every domain.
    pub const ALL: Self = Self((1 << DOMAIN_NAMES.len()) - 1);

    /// The one domain with this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let bit = DOMAIN_NAMES
            .iter()
            .position(|n| n.eq_ignore_ascii_case(name))?;
        Some(Self(1 << bit))
    }

    /// The domain of events with this `tracing` target: the target itself where it is a domain's
    /// name (`target: "HEARTBEAT"`), else the domain of the module that it names.
    #[must_use]
    pub fn of_target(target: &str) -> Self {
        let module = || {
            DOMAIN_OF_MODULE
                .iter()
                .filter(|(prefix, _)| {
                    target
                        .strip_prefix(prefix)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
                })
                .max_by_key(|(prefix, _)| prefix.len())
                .and_then(|(_, name)| Self::from_name(name))
        };
        Self::from_name(target).or_else(module).unwrap_or(Self(1))
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

    /// Whether a domain is in both.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no domain is in the set.
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

/// Which lines a log takes: for each severity, the domains that it takes them of.
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
            if most <= severity && severity <= least {
                let slot = &mut self.0[severity.index()];
                *slot = slot.union(domains);
            }
        }
    }

    /// Whether the log takes lines of this severity that belong to one of these domains.
    #[must_use]
    pub fn takes(&self, severity: Severity, domains: Domains) -> bool {
        self.0[severity.index()].intersects(domains)
    }

    /// The least important severity that is taken in any domain.
    #[must_use]
    pub fn least(&self) -> Option<Severity> {
        Severity::ALL
            .into_iter()
            .rev()
            .find(|s| !self.0[s.index()].is_empty())
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
    /// Which lines it takes.
    pub takes: SeverityMask,
    /// Where they go.
    pub to: Destination,
}

/// What is scrubbed from log lines (`SafeLogging`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SafeLogging {
    /// `0`: nothing.
    Off,
    /// `relay`: the addresses of others that we see as a relay.
    Relay,
    /// `1`: every sensitive string.
    #[default]
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_its_domain_or_its_module_does() {
        let name = |target| Domains::of_target(target).to_string();
        assert_eq!(name("HEARTBEAT"), "HEARTBEAT");
        assert_eq!(name("weft_core::scheduler::kist"), "SCHED");
        assert_eq!(name("weft_core::schedulers"), "CHANNEL");
        assert_eq!(name("weft_node::run"), "GENERAL");
        assert_eq!(name("mio::poll"), "GENERAL");
    }

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
