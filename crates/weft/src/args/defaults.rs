//! Defaults as help shows them: so that they can be given as they are printed.

use clap::{Arg, Command};

/// Shows the default of an argument that takes a list with the separator that the list is read with. clap shows it with spaces.
pub(super) fn as_accepted(command: Command) -> Command {
    command.mut_args(joined).mut_subcommands(as_accepted)
}

fn joined(arg: Arg) -> Arg {
    let values = arg.get_default_values();
    let (Some(delimiter), 2..) = (arg.get_value_delimiter(), values.len()) else {
        return arg;
    };
    let words: Vec<&str> = values.iter().filter_map(|value| value.to_str()).collect();
    let list = words.join(&delimiter.to_string());
    arg.default_value(list)
}

#[cfg(test)]
mod tests {
    use clap::builder::StyledStr;

    use super::*;
    use crate::args::prepared;

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

    fn commands() -> [Command; 8] {
        [
            <crate::doctor::DoctorArgs as clap::CommandFactory>::command(),
            <crate::backup::BackupArgs as clap::CommandFactory>::command(),
            <crate::backup::RestoreArgs as clap::CommandFactory>::command(),
            <crate::family::FamilyArgs as clap::CommandFactory>::command(),
            crate::lab::command(),
            crate::sim::command(),
            <crate::manual::ManArgs as clap::CommandFactory>::command(),
            <crate::command::CompletionsArgs as clap::CommandFactory>::command(),
        ]
        .map(prepared)
    }

    fn walk(command: &Command, above: &str, each: &mut impl FnMut(&str, &Command, &Arg)) {
        let here = format!("{above}{} ", command.get_name());
        for arg in command.get_arguments() {
            each(&here, command, arg);
        }
        for below in command.get_subcommands() {
            walk(below, &here, each);
        }
    }

    /// What an argument of this kind makes of one word; its values, as they are shown.
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

    #[test]
    fn each_default_that_help_shows_is_taken_as_it_is_printed() {
        let (mut seen, mut wrong) = (0, Vec::new());
        for command in commands() {
            walk(&command, "", &mut |place, command, arg| {
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
        assert_eq!(wrong, [""; 0]);
        assert!(seen > 80, "{seen}");
    }

    /// The defaults in a text: what follows `default: ` or `of --quick: `, up to a bracket or semicolon.
    fn written(text: &str) -> impl Iterator<Item = &str> {
        let after = |mark: &'static str| text.split(mark).skip(1);
        after("[default: ")
            .chain(after("of --quick: "))
            .filter_map(|rest| rest.split([']', ';']).next())
    }

    #[test]
    fn defaults_that_are_written_by_hand_are_values_or_words_that_are_meant_as_such() {
        let mut wrong = Vec::new();
        for command in commands() {
            walk(&command, "", &mut |place, _, arg| {
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
        assert_eq!(wrong, [""; 0]);
    }
}
