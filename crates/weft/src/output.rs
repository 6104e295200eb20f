//! What is printed, for all commands.
//!
//! A reader that has seen enough closes the pipe (`weft sim synth | head`). That is no error: nothing is reported, and the exit
//! status is that of the command, which is 0 where it succeeded. C tor's `--list-torrc-options | head` does the same; the
//! status of a program that SIGPIPE ended (141 in a shell) would make scripts with `pipefail` fail for nothing.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
pub(crate) use weft_lab::print::note;

/// Prints to standard output, all of it, now.
pub(crate) fn print(text: impl AsRef<str>) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(text.as_ref().as_bytes())
        .and_then(|()| out.flush());
    unless_closed(written).context("cannot write to standard output")
}

/// Prints why a command failed, each line of it marked as this program's.
pub(crate) fn failure(why: &str) {
    note(format_args!("weft: {}", why.replace('\n', "\nweft: ")));
}

/// A closed pipe is no error.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
