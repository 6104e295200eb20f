//! Log lines that a peer can cause at will: one per interval, with a count of the others
//! (C tor: src/lib/log/ratelim.c).

use std::fmt;
use std::time::{Duration, Instant};

/// Counting stops here (RATELIM_TOOMANY).
const TOO_MANY: u32 = 16_000_000;

/// Lets one line through per interval.
#[derive(Clone, Debug)]
pub struct RateLimit {
    interval: Duration,
    last: Option<Instant>,
    /// Lines that were not let through since, and when the first of them came.
    suppressed: u32,
    since: Option<Instant>,
}

impl RateLimit {
    /// One line per `interval`.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self {
            interval,
            last: None,
            suppressed: 0,
            since: None,
        }
    }

    /// Asks to log a line at `now`. `None`: do not. Else write what is returned behind the line.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use weft_log::RateLimit;
    /// let mut limit = RateLimit::new(Duration::from_secs(3600));
    /// if let Some(suppressed) = limit.check(Instant::now()) {
    ///     let line = weft_log::Line::warn("A peer sent nonsense").text(suppressed);
    /// }
    /// ```
    pub fn check(&mut self, now: Instant) -> Option<Suppressed> {
        let ready = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= self.interval);
        if !ready {
            self.suppressed = self.suppressed.saturating_add(1).min(TOO_MANY);
            self.since.get_or_insert(now);
            return None;
        }
        let over = self
            .since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let suppressed = Suppressed {
            count: self.suppressed,
            over,
        };
        self.last = Some(now);
        self.suppressed = 0;
        self.since = None;
        Some(suppressed)
    }
}

/// Number of suppressed lines; displays as nothing where there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suppressed {
    count: u32,
    over: Duration,
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return Ok(());
        }
        let more = if self.count == TOO_MANY { "over " } else { "" };
        // Whole minutes, so that the text does not reveal when exactly something happened.
        let seconds = self.over.as_secs().div_ceil(60).max(1) * 60;
        write!(
            f,
            " [{more}{} similar message(s) suppressed in last {seconds} seconds]",
            self.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_interval_counts_the_others() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limit = RateLimit::new(Duration::from_secs(600));
        let mut ask = |seconds| limit.check(at(seconds)).map(|s| s.to_string());
        assert_eq!(ask(0), Some(String::new()));
        assert_eq!(ask(1), None);
        assert_eq!(ask(599), None);
        let shown = " [2 similar message(s) suppressed in last 600 seconds]";
        assert_eq!(ask(600).as_deref(), Some(shown));
        assert_eq!(ask(601), None);
        assert_eq!(
            ask(1300).as_deref(),
            Some(" [1 similar message(s) suppressed in last 720 seconds]")
        );
        assert_eq!(ask(9000), Some(String::new()));
    }

    #[test]
    fn a_clock_that_goes_back_lets_nothing_through_twice() {
        let later = Instant::now() + Duration::from_secs(1000);
        let mut limit = RateLimit::new(Duration::from_secs(10));
        assert!(limit.check(later).is_some());
        assert!(limit.check(later - Duration::from_secs(500)).is_none());
    }
}
