//! The words of `weft lab` and `weft sim`: read by clap, in one way.

mod defaults;

use std::any::TypeId;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::output::unless_closed;

/// What was asked for.
pub(crate) struct Asked<P> {
    pub(crate) args: P,
    /// The command line that there is, and how it was used.
    pub(crate) command: Command,
    pub(crate) matches: ArgMatches,
}

/// Reads the words. Help, and errors, are printed: then there is an exit status.
pub(crate) fn read<P: CommandFactory + FromArgMatches>(
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
pub(crate) fn own_first<P: CommandFactory>(
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
        // Whether the next word is its value.
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

/// A command line as it is read, and as help, manual pages and completions have it.
pub(crate) fn prepared(command: Command) -> Command {
    defaults::as_accepted(with_negative_numbers(command))
}

/// Lets `-1` be the value of an argument that is a number, which refuses it with what is allowed. Otherwise clap takes it for an
/// argument that it does not know.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let is_number = is_number(&arg);
            arg.allow_negative_numbers(is_number)
        })
        .mut_subcommands(with_negative_numbers)
}

/// Whether an argument's values are numbers.
fn is_number(arg: &Arg) -> bool {
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

    /// No number has a use for any of these.
    const SILLY: [&str; 7] = [
        "1e300",
        "NaN",
        "inf",
        "-1",
        "99999999999999999999",
        "many",
        "",
    ];
    /// What a type holds is no bound of a number, except where all that it holds are as good.
    const UNBOUNDED: [&str; 1] = ["seed"];

    /// Every argument of a command and of those below it, with the words that lead to it.
    fn walk(command: &Command, above: &str, each: &mut impl FnMut(&str, &Arg)) {
        let here = format!("{above} {}", command.get_name());
        for arg in command.get_arguments() {
            each(&here, arg);
        }
        for below in command.get_subcommands() {
            walk(below, &here, each);
        }
    }

    /// How a command that has this argument alone refuses the value; `None`: it takes it.
    fn refusal(arg: &Arg, value: &str) -> Option<String> {
        let name = arg.get_id().to_string();
        let alone = Arg::new(name.clone())
            .long("it")
            .allow_negative_numbers(true)
            .value_parser(arg.get_value_parser().clone());
        let alone = Command::new("alone").arg(alone);
        let refused = alone.try_get_matches_from(["alone", &format!("--it={value}")]);
        refused.err().map(|error| error.to_string())
    }

    /// What is wrong with the numbers of a command.
    fn without_bound(command: &Command) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut numbers = 0;
        walk(command, "", &mut |place, arg| {
            if !is_number(arg) {
                return;
            }
            numbers += 1;
            let name = arg.get_id();
            for value in SILLY {
                match refusal(arg, value) {
                    None => wrong.push(format!("{place} {name} takes {value:?}")),
                    Some(error) if error.contains(" from ") && error.contains(" to ") => {}
                    Some(error) => wrong.push(format!("{place} {name}, {value:?}: {error}")),
                }
            }
            let most = match arg.get_value_parser().type_id() {
                of if of == TypeId::of::<u8>() => u64::from(u8::MAX),
                of if of == TypeId::of::<u16>() => u64::from(u16::MAX),
                of if of == TypeId::of::<u32>() => u64::from(u32::MAX),
                _ => u64::MAX,
            };
            let is_taken = refusal(arg, &most.to_string()).is_none();
            if is_taken && !UNBOUNDED.contains(&name.as_str()) {
                wrong.push(format!("{place} {name} takes {most}"));
            }
        });
        assert!(numbers > 0, "no numbers were found");
        wrong
    }

    #[test]
    fn no_command_of_the_simulator_takes_a_number_without_a_bound() {
        assert_eq!(without_bound(&crate::sim::command()), [""; 0]);
    }

    #[test]
    fn no_command_of_the_lab_takes_a_number_without_a_bound() {
        assert_eq!(without_bound(&crate::lab::command()), [""; 0]);
    }
}
