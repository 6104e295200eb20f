//! C tor's severities.

use std::fmt;

/// Severity of a log line, most important first (doc/man/tor.1.txt, option `Log`).
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
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
