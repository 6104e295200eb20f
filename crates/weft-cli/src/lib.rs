//! Shared code of the command lines of `weft` and `weft-lab`: reading of words, output and exit
//! statuses, manual pages, completions of shells.

pub mod args;
pub mod check;
pub mod completions;
pub mod manual;
pub mod print;

/// Environment variable with the version of the `weft` that starts `weft-lab`.
pub const VERSION_OF_WEFT: &str = "WEFT_VERSION";
