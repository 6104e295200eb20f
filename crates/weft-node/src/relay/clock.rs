//! Comparison of the wall clock with the monotonic clock.
//!
//! Cells, links and circuits live by the monotonic clock, which cannot be set. Keys and
//! certificates live by the wall clock, because others judge them by theirs: when it is set, what
//! was made by the old time must be looked at again (C tor `update_current_time`,
//! `circuit_note_clock_jumped`).

use std::time::{Duration, Instant, SystemTime};

/// A smaller jump is no matter: C tor's `NUM_JUMPED_SECONDS_BEFORE_WARN`.
const TOLERATED: Duration = Duration::from_secs(100);

/// Jump of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jump {
    Forward(Duration),
    Backward(Duration),
}

impl Jump {
    /// Seconds forward.
    pub(super) fn seconds(self) -> i64 {
        let seconds = |far: Duration| i64::try_from(far.as_secs()).unwrap_or(i64::MAX);
        match self {
            Jump::Forward(far) => seconds(far),
            Jump::Backward(far) => -seconds(far),
        }
    }
}

/// Compares the two clocks.
#[derive(Debug)]
pub(super) struct WallClock {
    last: (Instant, SystemTime),
}

impl WallClock {
    /// Both clocks at one moment.
    pub(super) fn new(now: Instant, wall: SystemTime) -> Self {
        Self { last: (now, wall) }
    }

    /// Both clocks at a later moment; call every second or so. Returns a jump since the last call.
    ///
    /// The monotonic clock stands still while the machine sleeps, so a sleep is a jump, too.
    pub(super) fn note(&mut self, now: Instant, wall: SystemTime) -> Option<Jump> {
        let (then, wall_then) = std::mem::replace(&mut self.last, (now, wall));
        let passed = now.saturating_duration_since(then);
        let jump = match wall.duration_since(wall_then) {
            Ok(by_wall) if by_wall >= passed => Jump::Forward(by_wall - passed),
            Ok(by_wall) => Jump::Backward(passed - by_wall),
            Err(back) => Jump::Backward(back.duration().saturating_add(passed)),
        };
        let (Jump::Forward(far) | Jump::Backward(far)) = jump;
        (far >= TOLERATED).then_some(jump)
    }
}

/// Logs that the wall clock was set, as C tor does.
pub(super) fn log_jump(jump: Jump) {
    let (far, direction) = match jump {
        Jump::Forward(far) => (far, "forward"),
        Jump::Backward(far) => (far, "backward"),
    };
    tracing::warn!(
        "Your system clock just jumped {} seconds {direction}. Circuits go on, and new streams of our own applications get \
         new ones; keys and certificates are looked at by the new time",
        far.as_secs_f64().round()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn only_what_time_does_not_explain_is_a_jump() {
        let (start, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + secs(1_000_000));
        let mut clock = WallClock::new(start, wall);
        // A main thread that was busy for long: both clocks went on.
        assert_eq!(clock.note(start + secs(7200), wall + secs(7200)), None);
        assert_eq!(clock.note(start + secs(7201), wall + secs(7300)), None);
        let now = start + secs(7202);
        assert_eq!(
            clock.note(now, wall + secs(7300 + 3601)),
            Some(Jump::Forward(secs(3600)))
        );
        // It is reported once; from then on the new time counts.
        let now = now + secs(1);
        assert_eq!(clock.note(now, wall + secs(7300 + 3602)), None);
        let now = now + secs(1);
        assert_eq!(
            clock.note(now, wall + secs(7303)),
            Some(Jump::Backward(secs(3600)))
        );
        // Back by less than went by in the meantime.
        assert_eq!(
            clock.note(now + secs(500), wall + secs(7304)),
            Some(Jump::Backward(secs(499)))
        );
        assert_eq!(
            clock.note(now + secs(501), SystemTime::UNIX_EPOCH),
            Some(Jump::Backward(secs(1_007_305)))
        );
    }
}
