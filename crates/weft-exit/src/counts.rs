//! What an exit counts, for the MetricsPort and the heartbeat.

use crate::query::{DnsError, QueryKind};

/// Counts since the start, but for the last two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitCounts {
    /// BEGINs that the policy let through.
    pub begins: u64,
    /// BEGIN_DIRs that were served.
    pub begin_dirs: u64,
    /// RESOLVEs.
    pub resolves: u64,
    /// BEGINs that the exit policy refused.
    pub rejected_by_policy: u64,
    /// BEGINs to a relay's ORPort.
    pub rejected_as_relay: u64,
    /// Connections that could not be opened for want of a local port.
    pub ports_exhausted: u64,
    /// Connections that could not be opened for want of files or memory.
    pub resources_exhausted: u64,
    /// Streams that were displaced by those of other circuits, because too many waited for answers.
    pub look_ups_refused: u64,
    /// Streams whose name was cached.
    pub cache_hits: u64,
    queries: [u64; 3],
    errors: [u64; REASONS.len()],
    successes: u64,
    /// Names in the cache now.
    pub cached: usize,
    /// Streams that wait for an answer now.
    pub waiting: usize,
}

/// C tor's names for the results of a query; `None`: a result that only C tor's resolver has.
const REASONS: [(&str, Option<DnsError>); 11] = [
    ("format", Some(DnsError::Format)),
    ("serverfailed", Some(DnsError::ServerFailed)),
    ("notexist", Some(DnsError::NotExist)),
    ("notimpl", Some(DnsError::NotImplemented)),
    ("refused", Some(DnsError::Refused)),
    ("truncated", Some(DnsError::Truncated)),
    ("unknown", Some(DnsError::Unknown)),
    ("tor_timeout", Some(DnsError::Timeout)),
    ("shutdown", None),
    ("cancel", None),
    ("nodata", Some(DnsError::NoData)),
];

const fn place(kind: QueryKind) -> usize {
    match kind {
        QueryKind::V4 => 0,
        QueryKind::V6 => 1,
        QueryKind::Reverse => 2,
    }
}

impl ExitCounts {
    pub(crate) fn dns_asked(&mut self, kind: QueryKind) {
        if let Some(count) = self.queries.get_mut(place(kind)) {
            *count += 1;
        }
    }

    pub(crate) fn dns_answered(&mut self, _kind: QueryKind, error: Option<DnsError>) {
        let Some(error) = error else {
            self.successes += 1;
            return;
        };
        let reason = REASONS.iter().position(|(_, of)| *of == Some(error));
        if let Some(count) = reason.and_then(|reason| self.errors.get_mut(reason)) {
            *count += 1;
        }
    }

    /// The number of queries of one record type.
    #[must_use]
    pub fn dns_queries_of(&self, kind: QueryKind) -> u64 {
        self.queries.get(place(kind)).copied().unwrap_or(0)
    }

    /// The number of queries.
    #[must_use]
    pub fn dns_queries(&self) -> u64 {
        self.queries.iter().sum()
    }

    /// The results of queries: C tor's name of each result, and its number.
    pub fn dns_results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let errors = REASONS.iter().zip(self.errors);
        std::iter::once(("success", self.successes))
            .chain(errors.map(|((name, _), count)| (*name, count)))
    }

    /// The number of queries with this error.
    #[must_use]
    pub fn dns_errors(&self, error: DnsError) -> u64 {
        let found = REASONS.iter().zip(self.errors);
        found
            .filter(|((_, of), _)| *of == Some(error))
            .map(|(_, count)| count)
            .sum()
    }
}
