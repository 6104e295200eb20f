//! A node in this program, for the profiler.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};
use weft_config::{Action, CommandLine, Report};
use weft_node::logging::{self, log_all};
use weft_node::process::host::SystemHost;
use weft_node::relay;

/// Runs a node, as `weft` with these words does.
pub(super) fn run(words: Vec<OsString>) -> Result<ExitCode> {
    let wrong = |report: Report| anyhow!("{report}\nnothing was started");
    let quiet = CommandLine::quiet_of(&words);
    let command_line = CommandLine::parse(words).map_err(wrong)?;
    ensure!(
        matches!(command_line.action, Action::Run),
        "a node that is profiled runs, and does nothing else"
    );
    let logging = logging::start(quiet)?;
    let all = weft_config::load_all(&command_line, &SystemHost::new()).map_err(wrong)?;
    for loaded in &all {
        log_all(loaded.report.clone().lines());
    }
    Ok(match relay::launch(&command_line, all, &logging)? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
