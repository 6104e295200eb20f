//! How long one circuit took to be built.

/// Width of a bin of times, in milliseconds (CBT_BIN_WIDTH).
pub(super) const BIN: u32 = 10;

/// How long one circuit took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// Milliseconds, at least 1.
    Millis(u32),
    /// It was given up for good.
    Abandoned,
}
