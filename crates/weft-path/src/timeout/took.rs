//! Build time of one circuit.

/// Width of a bin of times, in milliseconds (CBT_BIN_WIDTH).
pub(super) const BIN: u32 = 10;

/// Build time of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// Milliseconds, at least 1.
    Millis(u32),
    /// It was given up for good.
    Abandoned,
}
