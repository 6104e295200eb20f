//! From the options of every identity to a running process: into the background first, where that is asked for.

use weft_config::{CommandLine, Loaded};

use super::{Context, StartError, run};
use crate::logging::{IdentityName, Logging};
use crate::process::daemon::{self, Side};
use crate::process::host::SystemHost;

/// Runs the nodes of a command line, whose options are `all`, until they end. `false`: this process went into the background,
/// and the node there has not come up; its log says why.
///
/// # Errors
///
/// The nodes do not start.
pub fn launch(
    command_line: &CommandLine,
    all: Vec<Loaded>,
    logging: &Logging,
) -> Result<bool, StartError> {
    let Some(first) = all.first() else {
        return Ok(true);
    };
    // First: only a process of one thread, which has opened nothing, becomes two.
    let is_daemon = first.options.process.run_as_daemon;
    let mut background = match is_daemon {
        false => None,
        true => match daemon::split()? {
            Side::Background(background) => Some(background),
            Side::Foreground(foreground) => return Ok(foreground.wait()),
        },
    };
    logging.apply(&first.options.log, None)?;
    let names = names(command_line, &all);
    let command_line = match is_daemon {
        true => command_line.clone().from_anywhere(&SystemHost::new()),
        false => command_line.clone(),
    };
    let torrcs = command_line.identities();
    let torrcs = torrcs.iter().map(CommandLine::torrc_name);
    let mut nodes = Vec::new();
    for ((loaded, torrc), name_in_log) in all.into_iter().zip(torrcs).zip(names) {
        let context = Context {
            command_line: command_line.clone(),
            host: SystemHost::new(),
            report: loaded.report,
            logging: logging.clone(),
            background: background.take(),
            torrc,
            name_in_log,
        };
        nodes.push((loaded.options, context));
    }
    run(nodes)?;
    Ok(true)
}

/// Log prefix of each identity: its nickname, or its torrc if another one has that nickname;
/// nothing, if there is only one. Called once: names are never freed.
fn names(command_line: &CommandLine, all: &[Loaded]) -> Vec<Option<IdentityName>> {
    let nickname = |loaded: &Loaded| loaded.options.identity.nickname.clone();
    let nicknames: Vec<String> = all.iter().map(nickname).collect();
    let lines = command_line.identities();
    let name = |(number, (line, own)): (usize, (&CommandLine, &String))| {
        let same = nicknames
            .iter()
            .filter(|other| other.eq_ignore_ascii_case(own));
        let name = match same.count() {
            1 => own.clone(),
            _ => line.torrc_name(),
        };
        command_line.is_shared().then(|| IdentityName {
            number,
            name: name.leak(),
        })
    };
    lines.iter().zip(&nicknames).enumerate().map(name).collect()
}
