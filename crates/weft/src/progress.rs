//! The progress bar on standard error.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

/// In thousandths of the whole; hidden where standard error is no terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    // The template is a constant.
    if let Ok(style) = ProgressStyle::with_template("{msg:30} [{bar:30}] {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}
