//! Queries to name servers, and their answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The record type of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryKind {
    /// A records.
    V4,
    /// AAAA records.
    V6,
    /// PTR records.
    Reverse,
}

impl QueryKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Reverse];

    /// The record type as DNS names it.
    #[must_use]
    pub const fn record(self) -> &'static str {
        match self {
            Self::V4 => "A",
            Self::V6 => "AAAA",
            Self::Reverse => "PTR",
        }
    }
}

/// The purpose of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryPurpose {
    /// A stream waits.
    Stream,
    /// The name should not exist (ServerDNSDetectHijacking).
    Bogus,
    /// The name is well known (ServerDNSTestAddresses).
    Test,
}

/// A query to name servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The name, in lower case, without a dot at the end.
    pub name: Arc<[u8]>,
    /// The record type.
    pub kind: QueryKind,
    /// Its purpose.
    pub purpose: QueryPurpose,
}

/// The records that answer a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Addresses of the family that was asked for, at least one.
    Addresses(Vec<IpAddr>),
    /// A name.
    Host(Arc<[u8]>),
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The query.
    pub query: Query,
    /// The records with their TTL, or the error.
    pub result: Result<(Found, Duration), DnsError>,
}

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsError {
    /// The name does not exist.
    NotExist,
    /// The name exists and has no record of that type.
    NoData,
    /// The name server could not parse the query (FORMERR).
    Format,
    /// The name server failed (SERVFAIL).
    ServerFailed,
    /// The name server does not support such queries (NOTIMP).
    NotImplemented,
    /// The name server refuses our queries (REFUSED).
    Refused,
    /// The answer is incomplete.
    Truncated,
    /// No answer arrived in time.
    Timeout,
    /// No name server could be asked.
    Unreachable,
    /// Another error: the answer is malformed, or has another code.
    Unknown,
}

impl DnsError {
    /// Returns true if asking again later may help (`evdns_err_is_transient`).
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::ServerFailed | Self::Truncated | Self::Timeout | Self::Unreachable
        )
    }
}
