//! Words of commands: read by clap, in one way.

mod defaults;

use std::any::TypeId;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::print::unless_closed;

/// Parsed arguments.
pub struct Asked<P> {
    /// The arguments.
    pub args: P,
    /// The command line that there is, and how it was used.
    pub command: Command,
    /// The words as clap matched them.
    pub matches: ArgMatches,
}

/// Reads the words. Help, and errors, are printed: then there is an exit status.
///
/// # Errors
///
/// Help cannot be printed.
pub fn read<P: CommandFactory + FromArgMatches>(
    words: impl Iterator<Item = OsString>,
) -> Result<Result<Asked<P>, ExitCode>> {
    let mut command = prepared(P::command());
    let asked = command.try_get_matches_from_mut(words).and_then(|matches| {
        let args = P::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok((args, matches))
    });
    match asked {
        Ok((args, matches)) => Ok(Ok(Asked {
            args,
            command,
            matches,
        })),
        Err(error) => {
            let to = if error.use_stderr() {
                "error"
            } else {
                "output"
            };
            unless_closed(error.print())
                .with_context(|| format!("cannot write to standard {to}"))?;
            Ok(Err(match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }))
        }
    }
}

/// The words of a command whose last ones are a node's (`weft doctor -f torrc --offline`): its own options first, wherever they
/// stand. Among the node's words they would be taken for options of torrc.
pub fn own_first<P: CommandFactory>(
    words: impl Iterator<Item = OsString>,
) -> impl Iterator<Item = OsString> {
    let command = P::command();
    let own = |word: &OsString| {
        let long = word.to_str()?.strip_prefix("--")?;
        let (name, value) = match long.split_once('=') {
            Some((name, _)) => (name, true),
            None => (long, false),
        };
        let mut all = command.get_arguments();
        let arg = all.find(|arg| arg.get_long() == Some(name))?;
        // Set if the next word is its value.
        Some(arg.get_action().takes_values() && !value)
    };
    let mut words = words;
    let mut first: Vec<OsString> = words.next().into_iter().collect();
    let mut others = Vec::new();
    while let Some(word) = words.next() {
        match own(&word) {
            Some(has_value) => {
                first.push(word);
                if has_value {
                    first.extend(words.next());
                }
            }
            None => others.push(word),
        }
    }
    first.into_iter().chain(others)
}

/// A command line as it is read, and as shown in help, manual pages and completions.
#[must_use]
pub fn prepared(command: Command) -> Command {
    defaults::as_accepted(with_negative_numbers(command))
}

/// Lets `-1` be the value of an argument that is a number, which refuses it with the allowed range.
/// Otherwise clap treats it as an unknown argument.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let is_number = is_number(&arg);
            arg.allow_negative_numbers(is_number)
        })
        .mut_subcommands(with_negative_numbers)
}

/// Set for an argument whose values are numbers.
pub(crate) fn is_number(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
        TypeId::of::<f32>(),
        TypeId::of::<f64>(),
        TypeId::of::<std::num::NonZeroUsize>(),
        TypeId::of::<Duration>(),
    ]
    .iter()
    .any(|number| of == *number)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct OfNode {
        #[arg(long)]
        offline: bool,
        #[arg(long)]
        format: Option<String>,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    }

    #[test]
    fn a_command_s_own_options_may_stand_behind_the_node_s_words() {
        for text in [
            "doctor --offline --format json -f t --SocksPort 9050",
            "doctor -f t --offline --SocksPort 9050 --format json",
            "doctor -f t --SocksPort 9050 --format=json --offline",
        ] {
            let words = text.split(' ').map(OsString::from);
            let read = OfNode::try_parse_from(own_first::<OfNode>(words)).unwrap();
            assert!(read.offline, "{text}");
            assert_eq!(read.format.as_deref(), Some("json"), "{text}");
            assert_eq!(read.words, ["-f", "t", "--SocksPort", "9050"], "{text}");
        }
    }
}
