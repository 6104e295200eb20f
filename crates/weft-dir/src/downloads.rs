//! State of a directory's fetches, for controllers (`GETINFO downloads/…`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// The attempts at one document, counted as C tor counts them (`download_status_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// The next one is not before this time.
    pub next: SystemTime,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// All of them, since the last success.
    pub attempts: u32,
    /// The delay after the last failure.
    pub delay: Duration,
}

impl Default for Attempts {
    /// Nothing was tried, and nothing has to be waited for.
    fn default() -> Self {
        Self {
            next: SystemTime::UNIX_EPOCH,
            failures: 0,
            attempts: 0,
            delay: Duration::ZERO,
        }
    }
}

impl Attempts {
    pub(crate) fn begun(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    pub(crate) fn failed(&mut self, now: SystemTime, delay: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.delay = delay;
        self.next = now + delay;
    }

    /// The document is there; its successor is fetched at `next`.
    pub(crate) fn succeeded(&mut self, next: SystemTime) {
        *self = Self {
            next,
            ..Self::default()
        };
    }
}

/// The SHA-1 digest of a key.
pub type KeyDigest = [u8; 20];

/// The fetches of consensus and certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Downloads {
    /// The consensus, while there is none that can be used.
    pub first: Attempts,
    /// The consensus that follows one in use.
    pub following: Attempts,
    /// True if a consensus is in use.
    pub has_consensus: bool,
    /// Certificates.
    pub certs: Attempts,
    /// The signing keys of each authority whose certificates are there, by its identity.
    pub keys: BTreeMap<KeyDigest, BTreeSet<KeyDigest>>,
}
