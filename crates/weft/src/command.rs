//! The whole command line as one command of clap: the source of manual pages and of the completions
//! of shells. The words of a node are read by `weft-config`, as C tor reads them; those of `weft
//! doctor` and the others by clap.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _, Parser, ValueHint};
use weft_cli::args::{self, Asked};
use weft_cli::{completions, manual};
use weft_config::flags::{Argument, FLAGS, Flag, Purpose};
use weft_config::table::reference::{self, Described};

use crate::backup::{BackupArgs, RestoreArgs};
use crate::doctor::DoctorArgs;
use crate::family::FamilyArgs;

/// Description of Weft in one line.
pub(crate) const ABOUT: &str = "a Tor relay and client that uses every core";

/// Prints a manual page, for `man -l -` or a file in a folder man1.
#[derive(Debug, Parser)]
#[command(name = "weft man", bin_name = "weft man")]
pub(crate) struct ManArgs {
    #[command(flatten)]
    pub(crate) args: manual::Args,
}

/// Prints what makes a shell complete the words of `weft`.
///
/// bash: `weft completions bash > /usr/share/bash-completion/completions/weft`. zsh: into a file `_weft` in a folder of
/// $fpath. fish: `weft completions fish > ~/.config/fish/completions/weft.fish`. Those of `weft-lab` are of `weft-lab completions`.
#[derive(Debug, Parser)]
#[command(name = "weft completions", bin_name = "weft completions")]
pub(crate) struct CompletionsArgs {
    #[command(flatten)]
    args: completions::Args,
}

/// Does what the words after `weft` ask for, `completions` being the first.
pub(crate) fn completions(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    match args::read::<CompletionsArgs>(words)? {
        Ok(Asked { args, .. }) => completions::completions(&args.args, whole(), "weft"),
        Err(status) => Ok(status),
    }
}

/// `weft` with all that may follow it. Words that other parts of Weft give it are left out.
pub(crate) fn whole() -> Command {
    let flags = FLAGS.iter().filter(|flag| flag.purpose != Purpose::Nothing);
    let options = reference::sections().into_iter();
    // Options for one session are set by programs that start a Tor, and fish accepts no name that
    // begins with them.
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
        of_lab(
            "lab",
            "Experiments in private networks on loopback, and measurements of one relay",
        ),
        of_lab(
            "sim",
            "Simulates paths through Tor networks, real and synthetic. Nothing is sent to any network",
        ),
        ManArgs::command().name("man"),
        CompletionsArgs::command().name("completions"),
    ]
    .map(args::prepared)
}

/// The commands that are weft-lab's.
pub(crate) const OF_LAB: [&str; 2] = ["lab", "sim"];

/// A command of `weft-lab`, whose own help has the details.
fn of_lab(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .disable_help_flag(true)
        .arg(Arg::new("words").num_args(0..))
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
    use weft_cli::check;

    use super::*;

    #[test]
    fn the_whole_command_is_one_that_clap_takes() {
        whole().debug_assert();
    }

    #[test]
    fn no_command_takes_a_number_without_a_bound() {
        for command in commands() {
            assert_eq!(check::without_bound(&command), [""; 0]);
        }
    }

    #[test]
    fn defaults_are_taken_as_help_shows_them() {
        let commands = commands();
        let (seen, wrong) = check::defaults_as_printed(&commands);
        assert_eq!(wrong, [""; 0]);
        assert!(seen > 0);
        assert_eq!(check::defaults_in_text(&commands), [""; 0]);
    }
}
