//! Shows an experiment's progress and results on a terminal.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use weft_cli::print::{failure, note, print};
use weft_lab::experiment::{Conclusion, Progress, Watcher};
use weft_lab::report::Invocation;

use super::progress::{Lines, progress_bar};

/// The program's name.
pub(super) const NAME: &str = "weft-lab";

/// Prints the results, and returns the exit status. Why a run did not come to its end is printed where
/// nobody overlooks it.
pub(super) fn conclude(conclusion: &Conclusion) -> Result<ExitCode> {
    print(&conclusion.text)?;
    if let Some(why) = &conclusion.failure {
        failure(NAME, why);
    }
    Ok(match conclusion.is_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A bar where standard error is a terminal, lines where it is not.
pub(super) struct Terminal {
    pub(super) bar: ProgressBar,
    lines: Lines,
    pub(super) invocation: Invocation,
}

impl Terminal {
    pub(super) fn new() -> Self {
        Terminal {
            bar: progress_bar(),
            lines: Lines::new(Instant::now()),
            invocation: Invocation::default(),
        }
    }
}

impl Watcher for Terminal {
    fn progress(&mut self, progress: &Progress) {
        if !self.bar.is_hidden() {
            self.bar.set_position((progress.done * 1000.0) as u64);
            self.bar.set_message(progress.to_string());
        } else if let Some(line) = self.lines.line(progress, Instant::now()) {
            note(line);
        }
    }

    fn note(&mut self, line: &str) {
        match self.bar.is_hidden() {
            true => note(line),
            false => self.bar.println(line),
        }
    }

    fn invocation(&self) -> Invocation {
        self.invocation.clone()
    }
}
