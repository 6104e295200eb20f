//! The end of a node's process.
#![allow(unsafe_code)]

use std::io::{self, Write as _};

/// Ends this process, after all that was printed, without the exit handlers of C libraries: threads that still wait for a
/// peer use what these free, and the process would abort now and then.
pub fn leave(success: bool) -> ! {
    // Nobody reads a result that cannot be written.
    let _ = io::stdout().flush();
    // SAFETY: it takes a number and never returns; nothing of this process runs after it.
    unsafe { libc::_exit(i32::from(!success)) }
}
