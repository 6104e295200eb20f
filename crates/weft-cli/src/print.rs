//! Output of all commands.
//!
//! A reader that has seen enough closes the pipe (`weft sim synth | head`). This is not an error:
//! nothing is reported, and the exit status is that of the command, which is 0 where it succeeded.
//! C tor's `--list-torrc-options | head` does the same; the status of a program that SIGPIPE ended
//! (141 in a shell) would make scripts with `pipefail` fail for nothing.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

/// Prints to standard output, all of it, now.
///
/// # Errors
///
/// It cannot be written, but for a closed pipe.
pub fn print(text: impl AsRef<str>) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(text.as_ref().as_bytes())
        .and_then(|()| out.flush());
    unless_closed(written).context("cannot write to standard output")
}

/// A line of standard output for people who watch: lines that nobody reads are lost, and the run
/// continues to its end.
pub fn line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A line of standard error.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// As `println!` writes it, by [`line`](fn@crate::print::line).
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

/// Prints why a command of `program` failed, each line of it marked as that program's.
pub fn failure(program: &str, why: &str) {
    note(format_args!(
        "{program}: {}",
        why.replace('\n', &format!("\n{program}: "))
    ));
}

/// The exit status of `program`; why something failed is printed.
pub fn status(program: &str, result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|why| {
        failure(program, &error_chain(&why));
        ExitCode::FAILURE
    })
}

/// An error and its causes. Most errors include their cause in their own message: it is not printed
/// again.
#[must_use]
pub fn error_chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.contains(&cause) {
            _ if text.is_empty() => cause,
            true => text,
            false => format!("{text}: {cause}"),
        }
    })
}

/// A closed pipe is not an error.
///
/// # Errors
///
/// Every other error of `written`.
pub fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct TellsItsCause(io::Error);

    impl fmt::Display for TellsItsCause {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "cannot open /x: {}; change its permissions", self.0)
        }
    }

    impl Error for TellsItsCause {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_is_printed_once() {
        let denied = || io::Error::other("permission denied");
        let own = anyhow::Error::new(TellsItsCause(denied())).context("no log");
        assert_eq!(
            error_chain(&own),
            "no log: cannot open /x: permission denied; change its permissions"
        );
        let other = anyhow::Error::new(denied()).context("no log");
        assert_eq!(error_chain(&other), "no log: permission denied");
    }
}
