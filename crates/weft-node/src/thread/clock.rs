//! The clocks that a connection thread reads, and its sleep: the one place where it does.

use std::time::{Duration, Instant, SystemTime};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The wall clock, which certificates are held against.
#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
pub(super) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Sleeps. Nothing ends it early.
#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
pub(super) fn sleep(time: Duration) {
    std::thread::sleep(time);
}
