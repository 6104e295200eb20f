//! Names of items, and the order in which items give way.

/// An item's name. It is never used again, so that nothing can be released twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// The order in which an owner's items give way: those that are not proven first, of these the one
/// that has been so for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) proven: bool,
    /// Counts up with each admission, and each time that an item becomes so.
    pub(crate) since: u64,
    pub(crate) ticket: Ticket,
}
