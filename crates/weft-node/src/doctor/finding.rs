//! What the doctor answers.

use std::fmt;

/// How good an answer is.
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
    /// What it is about, in a word or two.
    pub about: &'static str,
    /// How good it is.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub advice: Option<String>,
}
