//! `weft`: reads the command line and torrc, does what they ask, and prints what there is to say.
//!
//! Results go to standard output; what is wrong goes to standard error, all of it at once, and the
//! exit status is 1.

mod action;
mod bench;
mod help;
mod lab;
mod sim;
mod stop;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use weft_node::logging;
use weft_node::relay::StartError;
use weft_node::torrc::{Action, CommandLine, Host, Quiet, Report};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        Err(why) => {
            eprintln!("weft: {}", story(&why).replace('\n', "\nweft: "));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1).peekable();
    // All other words are C tor's, which begin with a hyphen or are an option's value.
    if words.peek().is_some_and(|word| word == "bench") {
        return bench::main(words);
    }
    if words.peek().is_some_and(|word| word == "lab") {
        return lab::main(words);
    }
    if words.peek().is_some_and(|word| word == "sim") {
        return sim::main(words);
    }
    let words: Vec<OsString> = words.collect();
    let quiet = CommandLine::quiet_of(&words);
    let command_line = match CommandLine::parse(words) {
        Ok(command_line) => command_line,
        Err(report) => {
            logging::start(quiet)?;
            return Err(told(&report));
        }
    };
    if action::immediate(&command_line)? {
        return Ok(ExitCode::SUCCESS);
    }
    // A dump is read by programs: nothing but it may be on standard output.
    let quiet = match command_line.action {
        Action::DumpConfig(_) => Quiet::Silent,
        _ => command_line.quiet,
    };
    let logging = logging::start(quiet)?;
    let loaded = weft_node::torrc::load(&command_line, &Host::system()).map_err(|report| {
        report.clone().without_errors().log();
        told(&report)
    })?;
    loaded.report.log();
    action::with_options(&command_line, loaded, &logging).inspect_err(|why| {
        if is_read_by_a_program() {
            let start: Option<&StartError> = why.downcast_ref();
            logging::failed(&story(why), start.and_then(StartError::in_tors_words));
        }
    })
}

/// Programs that start a Tor (Stem, browsers) read in its log on standard output why it ended.
/// People at a terminal read it once, on standard error.
fn is_read_by_a_program() -> bool {
    !io::stdout().is_terminal()
}

/// An error and what caused it. Most errors tell their cause in their own words: what has been said
/// is not said again.
fn story(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |story, cause| {
        let cause = cause.to_string();
        match story.contains(&cause) {
            _ if story.is_empty() => cause,
            true => story,
            false => format!("{story}: {cause}"),
        }
    })
}

/// The errors of a report, one per line, and what that means.
fn told(report: &Report) -> anyhow::Error {
    if is_read_by_a_program() {
        report.log_failure();
    }
    anyhow::anyhow!("{report}\nnothing was started: correct the above first")
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
    fn a_cause_is_told_once() {
        let denied = || io::Error::other("permission denied");
        let own = anyhow::Error::new(TellsItsCause(denied())).context("no log");
        assert_eq!(
            story(&own),
            "no log: cannot open /x: permission denied; change its permissions"
        );
        let other = anyhow::Error::new(denied()).context("no log");
        assert_eq!(story(&other), "no log: permission denied");
    }
}
