//! Addresses of others in log lines: shown only where `SafeLogging` says so.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use super::severity::SafeLogging;

/// What is in force. Process-wide, as the log is; read when a line is formatted.
static MODE: AtomicU8 = AtomicU8::new(2);

/// Sets what is scrubbed from now on. Until it is called, everything is.
pub fn set_safe_logging(mode: SafeLogging) {
    let mode = match mode {
        SafeLogging::Off => 0,
        SafeLogging::Relay => 1,
        SafeLogging::All => 2,
    };
    // Nothing else depends on when a thread sees it.
    MODE.store(mode, Ordering::Relaxed);
}

/// A value that log lines show as `[scrubbed]` unless `SafeLogging` allows it.
#[derive(Clone, Copy)]
pub struct Scrubbed<T> {
    value: T,
    /// The lowest mode that scrubs it.
    from: u8,
}

/// What we know of others as a relay: scrubbed unless `SafeLogging 0` (C tor's `safe_str`).
pub const fn safe<T>(value: T) -> Scrubbed<T> {
    Scrubbed { value, from: 1 }
}

/// What we know of our own users as a client: scrubbed only by `SafeLogging 1` (C tor's
/// `safe_str_client`).
pub const fn safe_client<T>(value: T) -> Scrubbed<T> {
    Scrubbed { value, from: 2 }
}

impl<T> Scrubbed<T> {
    fn shown_in(&self, mode: u8) -> Option<&T> {
        (mode < self.from).then_some(&self.value)
    }
}

impl<T: fmt::Display> fmt::Display for Scrubbed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown_in(MODE.load(Ordering::Relaxed)) {
            Some(value) => value.fmt(f),
            None => f.write_str("[scrubbed]"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Scrubbed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown_in(MODE.load(Ordering::Relaxed)) {
            Some(value) => value.fmt(f),
            None => f.write_str("[scrubbed]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_safe_depends_on_the_mode() {
        let shown = |mode| {
            (
                safe(7).shown_in(mode).is_some(),
                safe_client(7).shown_in(mode).is_some(),
            )
        };
        assert_eq!(shown(0), (true, true));
        assert_eq!(shown(1), (false, true));
        assert_eq!(shown(2), (false, false));
    }

    #[test]
    fn everything_is_scrubbed_until_somebody_says_otherwise() {
        // No test sets the mode, which is the process's.
        assert_eq!(
            format!("{} {:?}", safe("192.0.2.1"), safe_client("192.0.2.1")),
            "[scrubbed] [scrubbed]"
        );
    }
}
