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
