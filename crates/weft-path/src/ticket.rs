//! Identifiers of circuits for their guards.

/// A circuit through a guard, or an attempt at one. Give it back by
/// [`Selector::forget`](crate::Selector::forget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuardTicket(u64);

impl GuardTicket {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }
}
