//! The whole command line as one command of clap: what manual pages and the completions of shells are made from. The
//! words of a node are read by `weft-config`, as C tor reads them; those of `weft lab` and the others by clap.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _, Parser, ValueHint};
use clap_complete::Shell;
use weft_config::flags::{Argument, FLAGS, Flag, Purpose};
use weft_config::reference::{self, Described};

use crate::args::{self, Asked};
use crate::backup::{BackupArgs, RestoreArgs};
use crate::doctor::DoctorArgs;
use crate::family::FamilyArgs;
use crate::manual::ManArgs;
use crate::output::print;
use crate::{lab, sim};

/// What Weft is.
pub(crate) const ABOUT: &str = "a Tor relay and client that uses every core";

/// Prints what makes a shell complete the words of `weft`.
///
/// bash: `weft completions bash > /usr/share/bash-completion/completions/weft`. zsh: into a file `_weft` in a folder of
/// $fpath. fish: `weft completions fish > ~/.config/fish/completions/weft.fish`.
#[derive(Debug, Parser)]
#[command(name = "weft completions", bin_name = "weft completions")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Does what the words after `weft` ask for, `completions` being the first.
pub(crate) fn completions(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let shell = match args::read::<CompletionsArgs>(words)? {
        Ok(Asked { args, .. }) => args.shell,
        Err(status) => return Ok(status),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(), "weft", &mut script);
    script.flush()?;
    print(String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// `weft` with all that may follow it. Words that other parts of Weft give it are left out.
pub(crate) fn whole() -> Command {
    let flags = FLAGS.iter().filter(|flag| flag.purpose != Purpose::Nothing);
    let options = reference::sections().into_iter();
    // Those of one session are set by programs that start a Tor, and fish takes no name that begins with them.
    let options = options
        .flat_map(|section| section.options)
        .filter(|option| !option.name.starts_with("__"));
    Command::new("weft")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(flags.map(flag))
        .args(options.map(option))
        .subcommands(commands())
}

/// The commands of `weft`.
pub(crate) fn commands() -> [Command; 8] {
    [
        DoctorArgs::command().name("doctor"),
        BackupArgs::command().name("backup"),
        RestoreArgs::command().name("restore"),
        FamilyArgs::command().name("family"),
        listed(&lab::command()).name("lab"),
        sim::command().name("sim"),
        ManArgs::command().name("man"),
        CompletionsArgs::command().name("completions"),
    ]
    .map(args::prepared)
}

/// A command with those of its commands that help lists.
fn listed(command: &Command) -> Command {
    let below = command.get_subcommands();
    Command::new("listed")
        .about(command.get_about().cloned().unwrap_or_default())
        .subcommand_required(true)
        .subcommands(below.filter(|command| !command.is_hide_set()).cloned())
}

fn flag(flag: &Flag) -> Arg {
    let name = flag.long.trim_start_matches('-');
    let short = flag.short.and_then(|short| short.chars().nth(1));
    let arg = Arg::new(name).long(name).short(short).help(flag.help);
    match flag.argument {
        Argument::None => arg.action(ArgAction::SetTrue),
        Argument::File => arg.value_name("FILE").value_hint(ValueHint::FilePath),
        Argument::Word => arg.value_name("WORD"),
        Argument::OneOf(words) => arg.value_parser(PossibleValuesParser::new(words)),
        Argument::MaybeOneOf(words) => arg
            .num_args(0..=1)
            .value_parser(PossibleValuesParser::new(words)),
    }
}

/// An option of torrc.
fn option(option: Described) -> Arg {
    let arg = Arg::new(option.name).long(option.name).help(option.help);
    match option.kind {
        "flag" => arg.value_parser(PossibleValuesParser::new(["0", "1"])),
        "flag or `auto`" => arg.value_parser(PossibleValuesParser::new(["0", "1", "auto"])),
        "path" => arg.value_name("PATH").value_hint(ValueHint::AnyPath),
        _ => arg.value_name("VALUE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_command_is_one_that_clap_takes() {
        whole().debug_assert();
    }
}
