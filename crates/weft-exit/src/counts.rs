//! Counters of an exit, for the MetricsPort and the heartbeat.

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
    queries: [u64; QueryKind::ALL.len()],
    /// By the record type that was asked for.
    results: [Results; QueryKind::ALL.len()],
    /// Names in the cache now.
    pub cached: usize,
    /// Streams that wait for an answer now.
    pub waiting: usize,
}

/// The results of queries for one record type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Results {
    successes: u64,
    errors: [u64; REASONS.len()],
}

/// The names of errors: C tor's, and one for an error that C tor's resolver does not distinguish.
const REASONS: [(&str, DnsError); 10] = [
    ("format", DnsError::Format),
    ("serverfailed", DnsError::ServerFailed),
    ("notexist", DnsError::NotExist),
    ("notimpl", DnsError::NotImplemented),
    ("refused", DnsError::Refused),
    ("truncated", DnsError::Truncated),
    ("unknown", DnsError::Unknown),
    ("tor_timeout", DnsError::Timeout),
    ("nodata", DnsError::NoData),
    ("unreachable", DnsError::Unreachable),
];

/// C tor's names in C tor's order. Two are results that only C tor's resolver has.
const C_TOR_REASONS: [(&str, &[DnsError]); 11] = [
    ("format", &[DnsError::Format]),
    (
        "serverfailed",
        &[DnsError::ServerFailed, DnsError::Unreachable],
    ),
    ("notexist", &[DnsError::NotExist]),
    ("notimpl", &[DnsError::NotImplemented]),
    ("refused", &[DnsError::Refused]),
    ("truncated", &[DnsError::Truncated]),
    ("unknown", &[DnsError::Unknown]),
    ("tor_timeout", &[DnsError::Timeout]),
    ("shutdown", &[]),
    ("cancel", &[]),
    ("nodata", &[DnsError::NoData]),
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

    pub(crate) fn dns_answered(&mut self, kind: QueryKind, error: Option<DnsError>) {
        let Some(results) = self.results.get_mut(place(kind)) else {
            return;
        };
        let Some(error) = error else {
            results.successes += 1;
            return;
        };
        let reason = REASONS.iter().position(|(_, of)| *of == error);
        if let Some(count) = reason.and_then(|reason| results.errors.get_mut(reason)) {
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

    /// The results of queries for one record type: the name of each result, and its number.
    pub fn dns_results_of(&self, kind: QueryKind) -> impl Iterator<Item = (&'static str, u64)> {
        let of = self.results.get(place(kind)).copied().unwrap_or_default();
        let errors = REASONS.iter().zip(of.errors);
        std::iter::once(("success", of.successes))
            .chain(errors.map(|((name, _), count)| (*name, count)))
    }

    /// The results of all queries: C tor's name of each, and its number.
    pub fn dns_results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let successes = self.results.iter().map(|of| of.successes).sum();
        let errors = C_TOR_REASONS.iter().map(|(name, errors)| {
            let counts = errors.iter().map(|error| self.dns_errors(*error));
            (*name, counts.sum())
        });
        std::iter::once(("success", successes)).chain(errors)
    }

    /// The number of queries with this error.
    #[must_use]
    pub fn dns_errors(&self, error: DnsError) -> u64 {
        let results = self.results.iter();
        let counts = results.flat_map(|of| REASONS.iter().zip(of.errors));
        counts
            .filter(|((_, of), _)| *of == error)
            .map(|(_, count)| count)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_counted_under_its_name_and_its_record_type() {
        let mut counts = ExitCounts::default();
        let errors = REASONS.map(|(name, error)| (name, Some(error)));
        let results: Vec<_> = std::iter::once(("success", None)).chain(errors).collect();
        // A different number for each result of each type.
        let number = |kind: usize, result: usize| u64::try_from(20 * kind + result + 1).unwrap();
        for (at, kind) in QueryKind::ALL.into_iter().enumerate() {
            for (result, (_, error)) in results.iter().enumerate() {
                for _ in 0..number(at, result) {
                    counts.dns_answered(kind, *error);
                }
            }
        }
        let all = |result| (0..3).map(|kind| number(kind, result)).sum::<u64>();
        for (at, kind) in QueryKind::ALL.into_iter().enumerate() {
            let counted: Vec<_> = counts.dns_results_of(kind).collect();
            let expected = results.iter().enumerate();
            let expected: Vec<_> = expected
                .map(|(result, (name, _))| (*name, number(at, result)))
                .collect();
            assert_eq!(counted, expected, "{kind:?}");
        }
        let place = |name| results.iter().position(|(of, _)| *of == name).unwrap();
        for (name, count) in counts.dns_results() {
            let expected = match name {
                "shutdown" | "cancel" => 0,
                "serverfailed" => all(place(name)) + all(place("unreachable")),
                _ => all(place(name)),
            };
            assert_eq!(count, expected, "{name}");
        }
        assert_eq!(
            counts.dns_errors(DnsError::Timeout),
            all(place("tor_timeout"))
        );
    }
}
