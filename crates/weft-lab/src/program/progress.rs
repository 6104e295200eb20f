//! Progress on standard error: the bar of a terminal, the lines of a log, and the time that is left.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use weft_lab::experiment::Progress;

/// Before this nobody wants to know, and the estimate is worth little.
const EARLIEST: Duration = Duration::from_secs(3);
/// A log has a line so often even if the step stays the same.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// In thousandths of the whole; hidden where standard error is no terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    // The template is a constant.
    if let Ok(style) = ProgressStyle::with_template("{msg:30} [{bar:30}] {percent:>3} %{left}") {
        let left = |state: &ProgressState, text: &mut dyn Write| {
            if let Some(left) = time_left(f64::from(state.fraction()), state.elapsed()) {
                let _ = write!(text, ", {}", Left(left));
            }
        };
        bar.set_style(style.with_key("left", left));
    }
    // So that the time left goes down while nothing is reported.
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Remaining time at the speed so far; `None` while it is unknown.
fn time_left(done: f64, elapsed: Duration) -> Option<Duration> {
    let is_known = (0.005..1.0).contains(&done) && elapsed >= EARLIEST;
    let seconds = elapsed.as_secs_f64() * (1.0 - done) / done;
    is_known
        .then(|| Duration::try_from_secs_f64(seconds).ok())
        .flatten()
}

/// A time that is left, in no more detail than the estimate is worth.
struct Left(Duration);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds / 3600, seconds.div_ceil(60)) {
            (0, 0 | 1) => write!(f, "about {} s left", seconds.max(1)),
            (0, minutes) => write!(f, "about {minutes} min left"),
            (hours, minutes) => write!(f, "about {hours} h {} min left", minutes - hours * 60),
        }
    }
}

/// When a log has a line about progress: at each new step, and now and then within a long one.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The step of the latest line, and when it was written.
    latest: Option<(String, Instant)>,
    since: Instant,
}

impl Lines {
    pub(crate) fn new(now: Instant) -> Lines {
        Lines {
            latest: None,
            since: now,
        }
    }

    /// The line for this progress, if it is to be written.
    pub(crate) fn line(&mut self, progress: &Progress, now: Instant) -> Option<String> {
        let is_new = match &self.latest {
            Some((step, at)) => *step != progress.step || now - *at >= BETWEEN_LINES,
            // An experiment without steps shows nothing at first.
            None => !progress.step.is_empty() || now - self.since >= EARLIEST,
        };
        if !is_new {
            return None;
        }
        self.latest = Some((progress.step.clone(), now));
        let mut line = progress.to_string();
        if let Some(left) = time_left(progress.done, now - self.since) {
            let _ = write!(line, " ({:.0} %, {})", progress.done * 100.0, Left(left));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_as_the_time_until_now() {
        let minute = Duration::from_secs(60);
        assert_eq!(time_left(0.25, minute), Some(minute * 3));
        for (done, elapsed) in [
            (0.0, minute),
            (1.0, minute),
            (f64::NAN, minute),
            (0.5, Duration::from_secs(1)),
        ] {
            assert_eq!(time_left(done, elapsed), None, "{done} {elapsed:?}");
        }
        for (seconds, words) in [
            (0, "about 1 s left"),
            (59, "about 59 s left"),
            (61, "about 2 min left"),
            (3600, "about 1 h 0 min left"),
            (7300, "about 2 h 2 min left"),
        ] {
            assert_eq!(Left(Duration::from_secs(seconds)).to_string(), words);
        }
    }

    #[test]
    fn a_log_has_a_line_for_each_step_and_now_and_then_within_one() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let progress = |done, step: &str, detail: &str| Progress {
            done,
            step: step.to_owned(),
            detail: detail.to_owned(),
        };
        let mut lines = Lines::new(begin);
        for (seconds, done, step, line) in [
            (0, 0.0, "one", Some("one, x")),
            (5, 0.1, "one", None),
            (10, 0.5, "two", Some("two, x (50 %, about 10 s left)")),
            (39, 0.5, "two", None),
            (40, 0.5, "two", Some("two, x (50 %, about 40 s left)")),
        ] {
            let found = lines.line(&progress(done, step, "x"), at(seconds));
            assert_eq!(found.as_deref(), line, "{seconds}");
        }
        let mut without_steps = Lines::new(begin);
        assert_eq!(without_steps.line(&progress(0.1, "", "x"), at(1)), None);
        let line = without_steps.line(&progress(0.5, "", "x"), at(4));
        assert_eq!(line.as_deref(), Some("x (50 %, about 4 s left)"));
    }
}
