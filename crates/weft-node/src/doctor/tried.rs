//! Where something answers, and how it went.

use std::net::SocketAddr;

/// Where something answers, and how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// `ORPort 0.0.0.0:9001`, `guard alice`.
    pub(super) what: String,
    pub(super) address: Option<SocketAddr>,
    /// Why it does not.
    pub(super) answer: Result<(), String>,
}

impl Tried {
    pub(super) fn new(
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
