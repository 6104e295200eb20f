//! Findings of the doctor.

use std::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It cannot be known from here.
    Unknown,
    /// It works, and something is worth a look.
    Warning,
    /// It does not work.
    Bad,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Good => "good",
            Verdict::Unknown => "unknown",
            Verdict::Warning => "warning",
            Verdict::Bad => "bad",
        })
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Subject, in a word or two.
    pub about: &'static str,
    /// Severity.
    pub verdict: Verdict,
    /// The finding.
    pub text: String,
    /// Remedy.
    pub advice: Option<String>,
}
