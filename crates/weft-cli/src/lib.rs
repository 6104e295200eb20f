//! What the command lines of `weft` and `weft-lab` share: how words are read, what is printed and how a program ends,
//! manual pages, completions of shells.

pub mod args;
pub mod check;
pub mod completions;
pub mod manual;
pub mod print;

/// The variable of the environment in which `weft` tells `weft-lab` its own version.
pub const VERSION_OF_WEFT: &str = "WEFT_VERSION";
