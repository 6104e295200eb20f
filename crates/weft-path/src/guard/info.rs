//! Information about guards for an operator, and the uses of a guard.

use std::time::SystemTime;

use weft_cell::identity::RsaIdentity;

/// A guard as `GETINFO entry-guards` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardInfo {
    /// SHA-1 of its RSA identity key.
    pub rsa: RsaIdentity,
    /// Its name; empty: it is not known, of a bridge without a descriptor.
    pub nickname: String,
    /// State of the guard.
    pub status: GuardStatus,
    /// True for a primary guard, which circuits try first.
    pub primary: bool,
}

/// State of a guard, in control-spec's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardStatus {
    /// `never-connected`
    NeverConnected,
    /// `unusable`, perhaps since then: unlisted, or excluded by the configuration.
    Unusable(Option<SystemTime>),
    /// `down` since then.
    Down(Option<SystemTime>),
    /// `up`
    Up,
}

/// Relays that are excluded as the guard of a path (entrynodes.c, `entry_guard_restriction_t`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Restriction<'a> {
    /// The row of the relay at the end of the path: neither it nor of its family.
    pub(crate) exit: Option<usize>,
    /// None of these: guards of the other legs of a conflux set.
    pub(crate) avoid: &'a [RsaIdentity],
}

/// Use of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardUsage<'a> {
    /// The first hop of a longer circuit.
    Traffic,
    /// The first hop of a tunnel's second leg or a later one, whose other legs have these guards, each as often as it has
    /// legs.
    Leg(&'a [RsaIdentity]),
    /// The first hop of a tunnel's second leg or a later one, through this guard.
    Entry(RsaIdentity),
    /// A directory request.
    Directory,
}
