//! Output of `--help`.

use weft_config::flags::{FLAGS, Flag, Purpose};

const USAGE: &str = "\
Usage: weft [-f TORRC]... [FLAG]... [--OPTION VALUE]...

Runs a Tor relay or client as `tor -f TORRC` does, on every core.

";

/// Syntax of torrc options on the command line; the manual page has this, too.
pub(crate) const OPTIONS: [(&str, &str); 3] = [
    (
        "--OPTION VALUE",
        "set a torrc option, in place of what torrc sets",
    ),
    ("--+OPTION VALUE", "add to a list that torrc sets"),
    ("--/OPTION", "forget what torrc sets"),
];

const END: &str = "
       weft doctor [FLAG]... [WORD]...
Says what works of a node and what does not; see weft doctor --help.

       weft backup FILE [WORD]...
       weft restore FILE [WORD]...
A relay's identity in an encrypted file, and back; see weft backup --help.

       weft family add -f TORRC...
Makes relays one family, by a key; see weft family --help.

       weft lab COMMAND [FLAG]...
Private networks and measurements on this machine; see weft lab --help.

       weft sim COMMAND [FLAG]...
Simulates paths through consensus documents; see weft sim --help. Both are
in the program weft-lab.

       weft man [PAGE]
Prints the manual page, which has every option; weft man | man -l - shows it.

       weft completions SHELL
Prints what makes a shell complete these words; see weft completions --help.

Options are those of tor(1), and ConnectionThreads N: how many threads own
connections (without it, one for each core that the process may use; 0 does
everything on one thread). An option of tor that Weft does not support is
refused where safety rests on it; else a warning names what will not happen.
";

/// The column of explanations, and that of their last character.
const COLUMN: usize = 29;
const WIDTH: usize = 79;

/// All of it.
pub(crate) fn help() -> String {
    let mut text = USAGE.to_owned();
    for flag in of(Purpose::Run) {
        row(&mut text, &words(flag), flag.help);
    }
    for (words, help) in OPTIONS {
        row(&mut text, &format!("      {words}"), help);
    }
    text.push_str("\nInstead of running:\n");
    for flag in of(Purpose::Instead) {
        row(&mut text, &words(flag), flag.help);
    }
    text + END
}

/// The flags that are used for this.
pub(crate) fn of(purpose: Purpose) -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(move |flag| flag.purpose == purpose)
}

/// Syntax of a flag.
fn words(flag: &Flag) -> String {
    let short = flag
        .short
        .map_or("    ".to_owned(), |short| format!("{short}, "));
    format!("  {short}{} {}", flag.long, flag.argument.name())
}

/// A line for an option and its explanation, which is below it if it is long.
fn row(text: &mut String, written: &str, help: &str) {
    let mut line = written.trim_end().to_owned();
    if line.len() + 2 > COLUMN {
        text.push_str(&line);
        text.push('\n');
        line.clear();
    }
    for word in help.split_whitespace() {
        let is_first = line.len() < COLUMN;
        if !is_first && line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.clear();
        }
        match line.len() < COLUMN {
            true => line = format!("{line:COLUMN$}{word}"),
            false => line = format!("{line} {word}"),
        }
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_every_flag_in_lines_that_fit() {
        let help = help();
        for flag in FLAGS.iter().filter(|flag| flag.purpose != Purpose::Nothing) {
            assert!(help.contains(flag.long), "{}", flag.long);
        }
        assert!(help.lines().all(|line| line.len() <= WIDTH), "{help}");
        let lines = "
  -f, --torrc-file FILE      read this torrc (- is standard input); without it
                             /etc/tor/torrc, or else ~/.torrc. Given several
                             times: one identity for each, in one process
      --defaults-torrc FILE  read these settings before torrc
";
        assert!(help.contains(lines), "{help}");
        let lines = "
      --dump-config short|full
                             print the configuration: what differs from the
                             defaults, or all of it
";
        assert!(help.contains(lines), "{help}");
    }
}
