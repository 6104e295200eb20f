//! Building blocks of a system call filter.

use std::collections::BTreeMap;

use seccompiler::SeccompRule;

/// The kernel does not restrict the process.
#[derive(Debug, thiserror::Error)]
#[error(
    "Sandbox 1: failed to create the filter of system calls: {0}. Set Sandbox 0 if this kernel, or what Weft runs in, has \
     no seccomp"
)]
pub struct SandboxError(String);

/// A thread that needs less than the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Owns sockets of links and streams.
    Connections,
    /// Computes.
    Worker,
}

pub(super) fn failed(why: impl std::fmt::Display) -> SandboxError {
    SandboxError(why.to_string())
}

/// Calls, each with rules for its arguments: one of the rules must match. Without rules any
/// arguments are allowed.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;
