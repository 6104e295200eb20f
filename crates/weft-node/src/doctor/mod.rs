//! What operators and users ask when something does not work, answered from the outside (`weft doctor`): the torrc, the
//! files, the process, the ports, the clock, the consensus, the guards.
//!
//! [`facts`] looks at this machine and asks the running node and the network; [`judge`] makes findings of it, by
//! arguments alone. Nothing is changed: it runs beside the node, whose lock is at most tried for a moment
//! ([`weft_datadir::lock::holder`]).

mod controller;
mod facts;
mod judge;
mod ports;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::time::SystemTime;

use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_config::Options;

pub use facts::{addresses, still_runs};

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

/// How much is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Other machines are asked, too. If not, only this one is.
    pub network: bool,
}

/// Examines the node that these options are for.
pub fn examine(options: &Options, scope: Scope, now: SystemTime) -> Vec<Finding> {
    judge::findings(&facts::gather(options, scope, now))
}

/// The identities of a relay, as links prove them.
type Ids = (RsaIdentity, Option<Ed25519Identity>);

/// Where something answers, and how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tried {
    /// `ORPort 0.0.0.0:9001`, `guard alice`.
    what: String,
    address: Option<SocketAddr>,
    /// Why it does not.
    answer: Result<(), String>,
}

impl Tried {
    fn new(
        what: impl Into<String>,
        address: Option<SocketAddr>,
        answer: Result<(), String>,
    ) -> Self {
        Self {
            what: what.into(),
            address,
            answer,
        }
    }
}
