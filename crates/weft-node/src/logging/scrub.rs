//! Scrubs addresses of others in log lines, unless `SafeLogging` allows them.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use weft_log::SafeLogging;

/// The mode in force, as a number. Process-wide, as the log is; read when a line is formatted.
static MODE: AtomicU8 = AtomicU8::new(SafeLogging::All as u8);

/// Sets the mode. Until then everything is scrubbed.
pub(super) fn set_safe_logging(mode: SafeLogging) {
    // Nothing else depends on when a thread sees it.
    MODE.store(mode as u8, Ordering::Relaxed);
}

/// The mode in force.
pub(super) fn mode() -> SafeLogging {
    match MODE.load(Ordering::Relaxed) {
        0 => SafeLogging::Off,
        1 => SafeLogging::Relay,
        _ => SafeLogging::All,
    }
}

/// A value that log lines show as `[scrubbed]` unless `SafeLogging` allows it.
#[derive(Clone, Copy)]
pub struct Scrubbed<T> {
    value: T,
    /// The lowest mode that scrubs it.
    from: SafeLogging,
}

/// A value that a relay knows of others: scrubbed unless `SafeLogging 0` (C tor's `safe_str`).
pub const fn safe<T>(value: T) -> Scrubbed<T> {
    Scrubbed {
        value,
        from: SafeLogging::Relay,
    }
}

/// A value that a client knows of its users: scrubbed only by `SafeLogging 1` (C tor's
/// `safe_str_client`).
pub const fn safe_client<T>(value: T) -> Scrubbed<T> {
    Scrubbed {
        value,
        from: SafeLogging::All,
    }
}

impl<T> Scrubbed<T> {
    fn shown_in(&self, mode: SafeLogging) -> Option<&T> {
        (mode < self.from).then_some(&self.value)
    }
}

impl<T: fmt::Display> fmt::Display for Scrubbed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown_in(mode()) {
            Some(value) => value.fmt(f),
            None => f.write_str("[scrubbed]"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Scrubbed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown_in(mode()) {
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
        assert_eq!(shown(SafeLogging::Off), (true, true));
        assert_eq!(shown(SafeLogging::Relay), (false, true));
        assert_eq!(shown(SafeLogging::All), (false, false));
    }

    #[test]
    fn everything_is_scrubbed_until_a_mode_is_set() {
        // No test sets the mode, which is the process's.
        assert_eq!(
            format!("{} {:?}", safe("192.0.2.1"), safe_client("192.0.2.1")),
            "[scrubbed] [scrubbed]"
        );
    }
}
