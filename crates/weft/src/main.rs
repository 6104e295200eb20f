//! `weft`: reads the command line and torrc, runs the action, and prints the result.
//!
//! Results go to standard output; errors go to standard error, all of them at once, and the exit
//! status is 1.

mod action;
mod backup;
mod command;
mod doctor;
mod family;
mod help;
mod keygen;
mod lab;
mod manual;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use weft_cli::print::{self, error_chain};
use weft_config::{Action, CommandLine, Quiet, Report};
use weft_node::logging::{self, Logging, log_all};
use weft_node::process::exit::leave;
use weft_node::process::host::SystemHost;
use weft_node::relay::StartError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    // All other words are C tor's, which begin with a hyphen or are an option's value.
    // `bench` is what `lab relay` and `lab pipe` were called before: recorded commands still work.
    let result = match words.peek().and_then(|word| word.to_str()) {
        Some("lab" | "bench") => lab::start(words.skip(1)),
        Some("sim") => lab::start(words),
        Some("family") => family::main(words),
        Some("doctor") => doctor::main(words),
        Some("backup") => backup::backup(words),
        Some("restore") => backup::restore(words),
        Some("man") => manual::main(words),
        Some("completions") => command::completions(words),
        // A node's threads may outlive it.
        _ => leave(status(node(words.collect())) == ExitCode::SUCCESS),
    };
    status(result)
}

/// The exit status; why something failed is printed.
fn status(result: anyhow::Result<ExitCode>) -> ExitCode {
    print::status("weft", result)
}

/// Does what C tor's command line asks for: mostly, runs a node.
fn node(words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let quiet = CommandLine::quiet_of(&words);
    let command_line = match CommandLine::parse(words) {
        Ok(command_line) => command_line,
        Err(report) => {
            let logging = logging::start(quiet)?;
            return unless_read(as_error(&report), &logging);
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
    let all = match weft_config::load_all(&command_line, &SystemHost::new()) {
        Ok(all) => all,
        Err(report) => {
            log_all(report.clone().without_errors().lines());
            return unless_read(as_error(&report), &logging);
        }
    };
    let mut shown = Report::default();
    for loaded in &all {
        log_all(loaded.report.clone().without(&shown).lines());
        shown.join(loaded.report.clone());
    }
    action::with_options(&command_line, all, &logging).or_else(|why| {
        if is_read_by_a_program() {
            let start: Option<&StartError> = why.downcast_ref();
            logging::failed(
                &error_chain(&why),
                start.and_then(StartError::c_tor_message),
            );
        }
        unless_read(why, &logging)
    })
}

/// Programs that start a Tor (Stem, browsers) read in its log on standard output why it ended.
/// People at a terminal read it once, on standard error.
fn is_read_by_a_program() -> bool {
    !io::stdout().is_terminal()
}

/// Returns the error for standard error, unless it is in a log on standard output that goes to the
/// same place (`2>&1`, the journal of a service), so that it is printed once.
fn unless_read(why: anyhow::Error, logging: &Logging) -> anyhow::Result<ExitCode> {
    let place = |fd: io::Result<OwnedFd>| {
        let meta = fd.and_then(|fd| File::from(fd).metadata()).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let out = place(io::stdout().as_fd().try_clone_to_owned());
    let err = place(io::stderr().as_fd().try_clone_to_owned());
    let read = is_read_by_a_program() && logging.is_on_stdout() && out.is_some() && out == err;
    match read {
        true => Ok(ExitCode::FAILURE),
        false => Err(why),
    }
}

/// The errors of a report, one per line, and the consequence.
fn as_error(report: &Report) -> anyhow::Error {
    if is_read_by_a_program() {
        log_all(report.failure_lines());
    }
    anyhow::anyhow!("{report}\nnothing was started: correct the above first")
}
