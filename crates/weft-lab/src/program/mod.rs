//! The command line of `weft-lab`. What it starts is in the library, and in weft-sim; here is the terminal: words, a
//! progress bar, signals, what is printed.

mod lab;
mod node;
mod progress;
mod sim;
mod terminal;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use weft_cli::{VERSION_OF_WEFT, print};

use terminal::NAME;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Does what the words ask for, the first being the program.
pub(super) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    print::status(NAME, run(words))
}

fn run(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    if let Some(weft) = env::var_os(VERSION_OF_WEFT) {
        let weft = weft.to_string_lossy();
        ensure!(
            weft == VERSION,
            "this is {NAME} {VERSION}, and the weft that started it has version {weft}: install both of one version"
        );
    }
    let mut words = words.peekable();
    let program = words.next();
    match words.peek().and_then(|word| word.to_str()) {
        Some("sim") => sim::main(words),
        Some("--version" | "-V") => {
            print::print(format!("{NAME} {VERSION}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        _ => lab::main(program.into_iter().chain(words)),
    }
}

#[cfg(test)]
mod tests {
    use weft_cli::args::prepared;
    use weft_cli::check;

    use super::*;

    #[test]
    fn no_command_takes_a_number_without_a_bound() {
        assert_eq!(check::without_bound(&lab::command()), [""; 0]);
        assert_eq!(check::without_bound(&sim::command()), [""; 0]);
    }

    #[test]
    fn defaults_are_taken_as_help_shows_them() {
        let commands = [lab::command(), sim::command()].map(prepared);
        let (seen, wrong) = check::defaults_as_printed(&commands);
        assert_eq!(wrong, [""; 0]);
        assert!(seen > 80, "{seen}");
        assert_eq!(check::defaults_in_text(&commands), [""; 0]);
    }

    #[test]
    fn every_command_that_help_lists_has_a_page() {
        let pages = lab::pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in [
            "weft-lab",
            "weft-lab-up",
            "weft-lab-net-probe",
            "weft-sim-links",
        ] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        let internal = |name: &&&str| name.contains("profiled-node");
        assert_eq!(names.iter().find(internal), None);
    }
}
