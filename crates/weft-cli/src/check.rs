//! Rules for every command line of ours: each number has a bound, and each default is accepted as
//! help shows it. The tests of the programs check them.

use std::any::TypeId;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use crate::args::is_number;

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
/// Arguments for which every number of their type is as good: only there a type is a bound.
const UNBOUNDED: [&str; 1] = ["seed"];

/// Defaults that are written in the text of help, since they depend on something, in words rather than as a value.
const IN_WORDS: [&str; 20] = [
    "as --key, or else family",
    // Of lists: without the argument there is each.
    "all",
    "all four",
    "20000 divided by the circuits, between 16 and 500",
    "a tenth of --seconds, at most 10",
    "as --peer",
    "as many as there are cores",
    "as many as this machine has cores",
    "by scale",
    "by setting",
    "nine countries, with delays that are Weft's own",
    "no time",
    "simulations, in the folder of the results",
    "what so many circuits carry if they live as long as measured, 9.2 minutes",
    "so that the fast relays have 500 kB/s on average",
    "the arti on PATH, if there is one",
    "their share",
    "tor, and weft with 0, 1, 2 … connection threads, up to the cores",
    "a temporary one, removed at the end",
    "what this machine holds",
];

/// Every argument of a command and of those below it, with the words that lead to it and its
/// command.
fn walk(command: &Command, above: &str, each: &mut impl FnMut(&str, &Command, &Arg)) {
    let here = format!("{above}{} ", command.get_name());
    for arg in command.get_arguments() {
        each(&here, command, arg);
    }
    for below in command.get_subcommands() {
        walk(below, &here, each);
    }
}

/// Error of a command that has this argument alone, for the value; `None`: it takes it.
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

/// Arguments of a command that take numbers without a bound, with the numbers that they accept.
#[must_use]
pub fn without_bound(command: &Command) -> Vec<String> {
    let mut wrong = Vec::new();
    walk(command, "", &mut |place, _, arg| {
        if !is_number(arg) {
            return;
        }
        let name = arg.get_id();
        for value in SILLY {
            match refusal(arg, value) {
                None => wrong.push(format!("{place}{name} takes {value:?}")),
                Some(error) if error.contains(" from ") && error.contains(" to ") => {}
                Some(error) => wrong.push(format!("{place}{name}, {value:?}: {error}")),
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
            wrong.push(format!("{place}{name} takes {most}"));
        }
    });
    wrong
}

/// Parses one word as this kind of argument; returns its values as they are shown.
fn read(arg: &Arg, word: &str) -> Result<Vec<String>, String> {
    let mut alone = Arg::new("it")
        .long("it")
        .allow_negative_numbers(true)
        .action(clap::ArgAction::Append)
        .value_parser(arg.get_value_parser().clone());
    if let Some(delimiter) = arg.get_value_delimiter() {
        alone = alone.value_delimiter(delimiter);
    }
    let matches = Command::new("alone")
        .arg(alone)
        .try_get_matches_from(["alone", &format!("--it={word}")])
        .map_err(|error| error.to_string())?;
    let raw = matches.get_raw("it").into_iter().flatten();
    Ok(raw
        .map(|value| value.to_string_lossy().into_owned())
        .collect())
}

/// The value that clap prints as the default in long help.
fn printed(command: &Command, arg: &Arg) -> Option<String> {
    let help = command.clone().render_long_help().to_string();
    let name = match (arg.get_long(), arg.get_value_names()) {
        (Some(long), _) => format!(" --{long} <"),
        (None, Some([name])) => format!("\n  [{name}]\n"),
        (None, _) => return None,
    };
    let (_, after) = help.split_once(&name)?;
    let end = after.find("\n      --").unwrap_or(after.len());
    let (_, default) = after.get(..end)?.rsplit_once("\n          [default: ")?;
    default.split_once("]\n").map(|(value, _)| value.to_owned())
}

/// Number of defaults that help shows, and the defaults that a command does not accept as they are
/// printed.
#[must_use]
pub fn defaults_as_printed(commands: &[Command]) -> (usize, Vec<String>) {
    let (mut seen, mut wrong) = (0, Vec::new());
    for command in commands {
        walk(command, "", &mut |place, command, arg| {
            let defaults = arg.get_default_values();
            if defaults.is_empty()
                || !arg.get_action().takes_values()
                || arg.is_hide_default_value_set()
            {
                return;
            }
            let Some(shown) = printed(command, arg) else {
                wrong.push(format!("{place}{}: no default is shown", arg.get_id()));
                return;
            };
            // As a shell takes quotes away.
            let shown = shown.trim_matches('"');
            seen += 1;
            let wanted: Vec<String> = defaults
                .iter()
                .flat_map(|value| read(arg, &value.to_string_lossy()))
                .flatten()
                .collect();
            match read(arg, shown) {
                Ok(values) if values == wanted => {}
                other => wrong.push(format!(
                    "{place}{} {shown:?}: {other:?}, not {wanted:?}",
                    arg.get_id()
                )),
            }
        });
    }
    (seen, wrong)
}

/// The defaults in a text: the words after `default: ` or `of --quick: `, up to a bracket or
/// semicolon.
fn written(text: &str) -> impl Iterator<Item = &str> {
    let after = |mark: &'static str| text.split(mark).skip(1);
    after("[default: ")
        .chain(after("of --quick: "))
        .filter_map(|rest| rest.split([']', ';']).next())
}

/// Defaults that are written in the text of help and are neither values nor words that are meant as such.
#[must_use]
pub fn defaults_in_text(commands: &[Command]) -> Vec<String> {
    let mut wrong = Vec::new();
    for command in commands {
        walk(command, "", &mut |place, _, arg| {
            let help = arg.get_long_help().or_else(|| arg.get_help());
            let help = help.map(StyledStr::to_string).unwrap_or_default();
            for default in written(&help) {
                let default = default.split_whitespace().collect::<Vec<_>>().join(" ");
                if IN_WORDS.contains(&default.as_str()) {
                    continue;
                }
                if default.contains(", ") || read(arg, &default).is_err() {
                    wrong.push(format!("{place}{}: {default}", arg.get_id()));
                }
            }
        });
    }
    wrong
}
