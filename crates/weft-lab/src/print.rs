//! Lines for those who watch. A pipe that its reader has closed (`weft lab demo | head`) is no error: what nobody reads is
//! lost, and the run goes on to its end.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A line of standard output.
pub fn line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A line of standard error.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// As `println!` writes it, by [`line`].
macro_rules! say {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

pub(crate) use say;
