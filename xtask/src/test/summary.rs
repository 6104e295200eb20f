//! The end of a test run: each step with its time, the slowest tests, and everything that failed, with the
//! command that runs it alone.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::tested::{Ended, keep_logs, reason};

/// Number of slowest tests that are listed.
const SLOWEST: usize = 10;

/// Result of a step.
pub(crate) enum Outcome {
    Passed,
    /// Not run, and why.
    Skipped(&'static str),
    /// nextest ran these tests, of which some may have failed.
    Tests(Vec<Ended>),
}

impl Outcome {
    /// Passed, unless there is a reason why it was not run.
    pub(super) fn unless(why: Option<&'static str>) -> Self {
        why.map_or(Outcome::Passed, Outcome::Skipped)
    }
}

/// Results so far, shared by the steps that run at the same time.
pub(crate) struct Summary {
    start: Instant,
    /// Folder of failed tests' output.
    logs: PathBuf,
    ended: Mutex<AllEnded>,
}

/// Steps, tests and failures.
#[derive(Default)]
struct AllEnded {
    steps: Vec<(String, Duration, String)>,
    tests: Vec<Ended>,
    /// Failures, each with the command that runs it alone.
    failures: Vec<(String, String)>,
}

impl Summary {
    pub(crate) fn new(logs: PathBuf) -> Self {
        Self {
            start: Instant::now(),
            logs,
            ended: Mutex::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, AllEnded> {
        // A step that panicked has left it whole: it is changed in single calls.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a step, and adds it.
    pub(crate) fn run(&self, name: &str, alone: &str, run: impl FnOnce() -> Result<Outcome>) {
        // Of a run that is cut off, only the last lines may be left.
        let minutes = self.start.elapsed().as_secs() / 60;
        println!("\n== {name} (after {minutes} min)");
        let start = Instant::now();
        let outcome = run();
        self.step(name, alone, start.elapsed(), outcome);
    }

    /// Number of tests that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.all().tests.len()
    }

    /// Adds a step that has ended; `alone` is the command that runs it alone.
    pub(crate) fn step(&self, name: &str, alone: &str, time: Duration, outcome: Result<Outcome>) {
        let outcome = outcome.and_then(|outcome| match outcome {
            Outcome::Passed => Ok("passed".to_owned()),
            Outcome::Skipped(why) => Ok(format!("not run: {why}")),
            Outcome::Tests(tests) => self.tests(tests),
        });
        let word = outcome.unwrap_or_else(|error| {
            println!("\nFAILED: {error:#}");
            let failure = (format!("{name}: {error:#}"), alone.to_owned());
            self.all().failures.push(failure);
            "FAILED".to_owned()
        });
        self.all().steps.push((name.to_owned(), time, word));
    }

    /// Adds tests, and keeps the output of those that failed.
    fn tests(&self, tests: Vec<Ended>) -> Result<String> {
        let logs = keep_logs(&self.logs, &tests)?;
        let failed = tests.iter().filter(|test| test.failure.is_some());
        for (test, log) in failed.zip(&logs) {
            let why = reason(test.failure.as_deref().unwrap_or_default());
            let what = format!("{} ({}){why}", test.name, log.display());
            let alone = format!("cargo xtask test {}", test.short());
            self.all().failures.push((what, alone));
        }
        let word = match logs.len() {
            0 => format!("passed, {} tests", tests.len()),
            failed => format!("{failed} of {} tests FAILED", tests.len()),
        };
        self.all().tests.extend(tests);
        Ok(word)
    }

    /// The summary as it is printed.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("\n== Summary\n");
        let all = self.all();
        for (name, time, word) in &all.steps {
            let _ = writeln!(text, "  {name:<28} {:>7} {word}", seconds(*time));
        }
        // Less than their sum: some ran at the same time.
        let total = seconds(self.start.elapsed());
        let _ = writeln!(text, "  {:<28} {total:>7}", "in all");
        let tests = all.slowest_first();
        if !tests.is_empty() {
            let _ = writeln!(text, "\nThe slowest tests:");
        }
        for test in tests.iter().take(SLOWEST) {
            let _ = writeln!(text, "  {:>6.1} s {}", test.seconds, test.name);
        }
        text
    }

    /// Writes how long each test took to a file, the slowest first.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn write_times(&self, file: &Path) -> Result<()> {
        let all = self.all();
        let lines = all.slowest_first().into_iter();
        let lines = lines.map(|test| format!("{:.3} {}\n", test.seconds, test.name));
        fs::write(file, lines.collect::<String>())
            .with_context(|| format!("writing {}", file.display()))
    }

    /// Fails if anything failed.
    ///
    /// # Errors
    ///
    /// The list of what failed.
    pub(crate) fn judge(&self) -> Result<()> {
        let failures = &self.all().failures;
        if failures.is_empty() {
            return Ok(());
        }
        let mut text = format!("{} failed:\n", failures.len());
        for (what, alone) in failures {
            let _ = writeln!(text, "  {what}\n    alone: {alone}");
        }
        bail!("{}", text.trim_end());
    }
}

impl AllEnded {
    fn slowest_first(&self) -> Vec<&Ended> {
        let mut tests: Vec<&Ended> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        tests
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, seconds: f64, failure: Option<&str>) -> Ended {
        Ended {
            name: name.to_owned(),
            seconds,
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn every_failure_is_named_at_the_end_with_the_command_that_runs_it_alone() {
        let folder = crate::machine::target().join("tests-of-summary");
        std::fs::create_dir_all(&folder).unwrap();
        let summary = Summary::new(folder.clone());
        let second = Duration::from_secs(1);
        summary.step(
            "fmt",
            "cargo xtask test --only fmt",
            second,
            Ok(Outcome::Passed),
        );
        summary.judge().unwrap();
        let failed = Err(anyhow::anyhow!("exit status: 1"));
        summary.step("clippy", "cargo xtask test --only clippy", second, failed);
        let tests = vec![
            ended("weft-core::it moves::one", 0.5, None),
            ended(
                "weft-core::it moves::two",
                2.0,
                Some("before\n\nthread panicked at x.rs:1:\nno\n"),
            ),
        ];
        summary.step("unit", "", second, Ok(Outcome::Tests(tests)));
        summary.step(
            "page",
            "",
            Duration::ZERO,
            Ok(Outcome::Skipped("no browser")),
        );

        let text = summary.text();
        for line in [
            "  fmt                            1.0 s passed",
            "  clippy                         1.0 s FAILED",
            "  unit                           1.0 s 1 of 2 tests FAILED",
            "  page                           0.0 s not run: no browser",
            "  in all ",
            "     2.0 s weft-core::it moves::two\n     0.5 s weft-core::it moves::one",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        let failures = summary.judge().unwrap_err().to_string();
        let log = folder.join("weft-core.it-moves.two.log");
        assert_eq!(
            failures,
            format!(
                "2 failed:\n  clippy: exit status: 1\n    alone: cargo xtask test --only clippy\n  \
                 weft-core::it moves::two ({})\n    | thread panicked at x.rs:1:\n    | no\n    \
                 alone: cargo xtask test moves::two",
                log.display()
            )
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
