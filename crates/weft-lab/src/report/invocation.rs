//! The command line of an experiment, as it was understood.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::model::Setting;

/// The command that runs an experiment, and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// The command that repeats it, for a shell.
    pub command: String,
    /// Every argument, with those that have their default.
    pub settings: Vec<Setting>,
}

/// Arguments on where results go and how they look: not what is measured.
const ELSEWHERE: [&str; 6] = ["out", "within", "format", "style", "width_mm", "help"];

impl Invocation {
    /// Of these words of a program (`weft lab throughput`), the command that defines the arguments after
    /// them, and what was found there.
    #[must_use]
    pub fn of(words: &str, command: &Command, matches: &ArgMatches) -> Invocation {
        let mut line = words.to_owned();
        let mut settings = Vec::new();
        for arg in command.get_arguments() {
            let id = arg.get_id().as_str();
            if ELSEWHERE.contains(&id) {
                continue;
            }
            let Ok(Some(values)) = matches.try_get_raw(id) else {
                continue;
            };
            let values: Vec<String> = values
                .map(|value| value.to_string_lossy().into_owned())
                .collect();
            let is_default = matches.value_source(id) != Some(ValueSource::CommandLine);
            let is_flag = !arg.get_action().takes_values();
            if !is_default {
                if let Some(long) = arg.get_long() {
                    line += &format!(" --{long}");
                }
                if !is_flag {
                    let separator = match arg.get_value_delimiter() {
                        Some(delimiter) => delimiter.to_string(),
                        None => " ".to_owned(),
                    };
                    let quoted: Vec<String> = values.iter().map(|value| quote(value)).collect();
                    line += &format!(" {}", quoted.join(&separator));
                }
            }
            settings.push(Setting {
                name: arg.get_long().unwrap_or(id).to_owned(),
                value: match (is_flag, values.first().map(String::as_str)) {
                    (true, Some("true")) => "yes".to_owned(),
                    (true, Some("false")) => "no".to_owned(),
                    _ => values.join(", "),
                },
                is_default,
            });
        }
        Invocation {
            command: line,
            settings,
        }
    }
}

/// A word as a shell reads it.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[allow(dead_code)]
    struct Args {
        names: Vec<String>,
        #[arg(long)]
        quick: bool,
        #[arg(long)]
        all: bool,
        #[arg(long, value_delimiter = ',')]
        arm: Vec<String>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long)]
        file: Option<String>,
        #[arg(long)]
        out: Option<String>,
    }

    #[test]
    fn a_command_line_is_written_as_it_was_understood() {
        use clap::CommandFactory as _;
        let words = [
            "x", "one", "--quick", "--arm", "a,b", "--file", "it's", "--out", "/tmp/x",
        ];
        let command = Args::command();
        let matches = command.clone().get_matches_from(words);
        let found = Invocation::of("weft lab x", &command, &matches);
        assert_eq!(
            found.command,
            r"weft lab x one --quick --arm a,b --file 'it'\''s'"
        );
        let settings: Vec<(&str, &str, bool)> = found
            .settings
            .iter()
            .map(|one| (&*one.name, &*one.value, one.is_default))
            .collect();
        assert_eq!(
            settings,
            [
                ("names", "one", false),
                ("quick", "yes", false),
                ("all", "no", true),
                ("arm", "a, b", false),
                ("seed", "1", true),
                ("file", "it's", false),
            ]
        );
    }
}
