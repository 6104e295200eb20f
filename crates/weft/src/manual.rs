//! `weft man`: manual pages. The page of `weft` is made from the flags and the table of torrc
//! options, the pages of its commands from clap's help. The build of the packages writes them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use roff::{Inline, Roff, bold, italic, roman};
use weft_cli::args::{self, Asked};
use weft_cli::manual::{self, DATE, MANUAL, Page, SOURCE};
use weft_config::flags::{Flag, Purpose};
use weft_config::table::reference::{self, Described, Section, TYPES};

use crate::command::{self, ManArgs, OF_LAB};
use crate::help::{OPTIONS, of};
use crate::lab;

/// Does what the words after `weft` ask for, `man` being the first.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let args = match args::read::<ManArgs>(words)? {
        Ok(Asked { args, .. }) => args.args,
        Err(status) => return Ok(status),
    };
    match args.page() {
        Some(page) if PAGES_OF_LAB.iter().any(|of_lab| page.starts_with(of_lab)) => {
            lab::start(["man", page].map(OsString::from).into_iter())
        }
        _ => manual::man(&args, &pages()?),
    }
}

/// Every page of this program. The pages of `weft lab` and `weft sim` are in weft-lab.
fn pages() -> Result<Vec<Page>> {
    let own = command::commands().into_iter();
    let own = own.filter(|command| !OF_LAB.contains(&command.get_name()));
    let pages: Result<Vec<Vec<Page>>> = own.map(manual::pages).collect();
    let mut pages = pages?.concat();
    let others = pages.iter().map(|page| page.name.as_str());
    let others: Vec<&str> = others.chain(PAGES_OF_LAB).collect();
    let text = page(&others);
    pages.insert(
        0,
        Page {
            name: "weft".to_owned(),
            text,
        },
    );
    Ok(pages)
}

/// The first pages of the program weft-lab.
const PAGES_OF_LAB: [&str; 2] = ["weft-lab", "weft-sim"];

const SYNOPSIS: [&str; 9] = [
    "[-f TORRC] [FLAG]... [--OPTION VALUE]...",
    "doctor [FLAG]... [WORD]...",
    "backup FILE [WORD]...",
    "restore FILE [WORD]...",
    "family add -f TORRC...",
    "lab COMMAND [FLAG]...",
    "sim COMMAND [FLAG]...",
    "man [PAGE]",
    "completions SHELL",
];

const DESCRIPTION: [&str; 3] = [
    "Weft runs a Tor relay or client as tor(1) does, with connections on as many threads as there are cores. It reads \
     C tor's torrc and takes C tor's signals; keys and state in the DataDirectory are in C tor's formats, so that the two \
     programs can take turns on one DataDirectory.",
    "A relay speaks all that the public network requires, and has run in private networks only. A client speaks to no onion \
     services yet. `weft lab up` starts a private network on this machine.",
    "The node runs in the foreground, or in the background with `RunAsDaemon 1`. Everything that is wrong with torrc and \
     the command line is printed at once, and nothing is started.",
];

const OPTIONS_TEXT: [&str; 3] = [
    "Options are set by lines of torrc, `OPTION VALUE`, or on the command line. Names are in any case.",
    "*SIGHUP* states whether a running node follows a change of torrc. Where it is *no*, a reload that changes the option is \
     refused, and the old configuration stays in force.",
    "An option of C tor that Weft does not support is *refused* where safety rests on it; else a warning names what will not \
     happen.",
];

const SIGNALS: [(&str, &str); 5] = [
    (
        "SIGTERM",
        "The node ends now. Circuits are closed as far as sockets take it.",
    ),
    (
        "SIGINT",
        "The node accepts nothing new and ends after ShutdownWaitLength, or as soon as nobody is connected. A second one \
         ends it now.",
    ),
    (
        "SIGHUP",
        "The node reads torrc again, reopens logs and publishes its descriptor. With an error in torrc the old \
         configuration stays in force.",
    ),
    ("SIGUSR1", "The node logs statistics."),
    (
        "SIGUSR2",
        "The node logs everything, until the next SIGHUP.",
    ),
];

const ENVIRONMENT: [(&str, &str); 2] = [
    (
        "NOTIFY_SOCKET",
        "Where the node notifies systemd that it is ready, reloads and ends (`Type=notify`).",
    ),
    (
        "WATCHDOG_USEC",
        "How often systemd wants to be notified that the node lives (`WatchdogSec=`).",
    ),
];

const FILES: [(&str, &str); 2] = [
    (
        "/etc/tor/torrc, ~/.torrc",
        "The configuration, where no other is named: the first of these that is there.",
    ),
    (
        "DataDirectory",
        "Keys, state, and what is known of the network. Its owner must be the user that runs Weft.",
    ),
];

/// The page of `weft`; `others` are the pages of its commands.
fn page(others: &[&str]) -> String {
    let mut page = Roff::new();
    page.control("TH", ["WEFT", "1", DATE, SOURCE, MANUAL]);
    section(&mut page, "NAME");
    page.text([roman(format!("weft - {}", command::ABOUT))]);
    section(&mut page, "SYNOPSIS");
    for (place, words) in SYNOPSIS.iter().enumerate() {
        if place > 0 {
            page.control("br", []);
        }
        page.text([bold("weft"), roman(format!(" {words}"))]);
    }
    section(&mut page, "DESCRIPTION");
    paragraphs(&mut page, &DESCRIPTION);
    section(&mut page, "FLAGS");
    of(Purpose::Run).for_each(|flag| flag_item(&mut page, flag));
    for (words, help) in OPTIONS {
        item(&mut page, [bold(words)], &sentence(help));
    }
    page.control("PP", []);
    paragraphs(&mut page, &["Instead of running a node:"]);
    of(Purpose::Instead).for_each(|flag| flag_item(&mut page, flag));
    section(&mut page, "COMMANDS");
    for command in command::commands() {
        let name = command.get_name();
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        let written = [bold(format!("weft {name}"))];
        item(
            &mut page,
            written,
            &format!("{} See `weft {name} --help`.", sentence(&about)),
        );
    }
    section(&mut page, "OPTIONS");
    paragraphs(&mut page, &OPTIONS_TEXT);
    page.control("PP", []);
    paragraphs(&mut page, &["The types of values:"]);
    for (name, written) in TYPES {
        item(&mut page, [italic(name)], &sentence(written));
    }
    reference::sections()
        .iter()
        .for_each(|options| options_of(&mut page, options));
    for (title, items) in [
        ("SIGNALS", &SIGNALS[..]),
        ("ENVIRONMENT", &ENVIRONMENT),
        ("FILES", &FILES),
    ] {
        section(&mut page, title);
        for (name, text) in items {
            item(&mut page, [bold(*name)], text);
        }
    }
    section(&mut page, "EXIT STATUS");
    page.text([roman(
        "0 if the node ended as it was asked to, and 1 if it could not start or did not do what was asked for.",
    )]);
    section(&mut page, "SEE ALSO");
    let mut inlines = vec![bold("tor"), roman("(1), "), bold("torsocks"), roman("(1)")];
    for name in others {
        inlines.extend([roman(", "), bold(*name), roman("(1)")]);
    }
    page.text(inlines);
    page.render()
}

fn section(page: &mut Roff, title: &str) {
    page.control("SH", [title]);
}

fn paragraphs(page: &mut Roff, texts: &[&str]) {
    for (place, text) in texts.iter().enumerate() {
        if place > 0 {
            page.control("PP", []);
        }
        page.text(inlines(text));
    }
}

/// An item: a term, and its explanation below it.
fn item(page: &mut Roff, written: impl Into<Vec<Inline>>, text: &str) {
    page.control("TP", []);
    page.text(written);
    page.text(inlines(text));
}

fn flag_item(page: &mut Roff, flag: &Flag) {
    let mut written = Vec::new();
    if let Some(short) = flag.short {
        written.extend([bold(short), roman(", ")]);
    }
    written.push(bold(flag.long));
    let argument = flag.argument.name();
    if !argument.is_empty() {
        written.extend([roman(" "), italic(argument)]);
    }
    item(page, written, &sentence(flag.help));
}

fn options_of(page: &mut Roff, section: &Section) {
    page.control("SS", [section.title]);
    for option in &section.options {
        let mut written = vec![bold(option.name)];
        if !option.kind.is_empty() {
            written.extend([roman(" "), italic(option.kind.replace('`', ""))]);
        }
        item(page, written, &explained(option));
    }
    if !section.obsolete.is_empty() {
        let text = "These do nothing any more, in C tor either; each that is set gets a warning:";
        paragraphs(page, &[&format!("{text} {}.", section.obsolete.join(", "))]);
    }
}

/// Explanation of an option, in sentences.
fn explained(option: &Described) -> String {
    let mut text = option.help.clone();
    let default = option.default.map(|default| format!("`{default}`"));
    match (default, option.in_testing) {
        (Some(default), Some(other)) => {
            text += &format!(" Default: {default}, in private networks `{other}`.");
        }
        (Some(default), None) => text += &format!(" Default: {default}."),
        (None, Some(other)) => text += &format!(" Default in private networks: `{other}`."),
        (None, None) => {}
    }
    if !option.range.is_empty() {
        text += &format!(" Range: {}.", option.range);
    }
    match option.sighup {
        "" | "yes" => {}
        other => text += &format!(" SIGHUP: {other}."),
    }
    text
}

/// A phrase as a sentence.
fn sentence(phrase: &str) -> String {
    let mut letters = phrase.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    let end = if phrase.ends_with('.') { "" } else { "." };
    format!("{}{}{end}", first.unwrap_or_default(), letters.as_str())
}

/// Markdown of the few kinds that the table of options has: `code`, *emphasis*, **strong**.
fn inlines(text: &str) -> Vec<Inline> {
    let mut inlines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*']) {
        let (before, marked) = rest.split_at(at);
        let mark = ["`", "**", "*"]
            .into_iter()
            .find(|mark| marked.starts_with(mark))
            .unwrap_or("*");
        let Some((inside, after)) = marked
            .strip_prefix(mark)
            .and_then(|inside| inside.split_once(mark))
        else {
            break;
        };
        inlines.push(roman(before));
        inlines.push(match mark {
            "*" => italic(inside),
            _ => bold(inside),
        });
        rest = after;
    }
    inlines.push(roman(rest));
    inlines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_the_table_become_fonts() {
        assert_eq!(
            inlines("a `b*c` *d* **e:** f*"),
            [
                roman("a "),
                bold("b*c"),
                roman(" "),
                italic("d"),
                roman(" "),
                bold("e:"),
                roman(" f*")
            ]
        );
        assert_eq!(inlines(""), [roman("")]);
    }

    #[test]
    fn the_page_has_every_flag_and_every_option() {
        let text = page(&["weft-lab"]);
        let names = reference::sections().into_iter();
        let names: Vec<&str> = names
            .flat_map(|section| section.options)
            .map(|option| option.name)
            .collect();
        assert!(names.len() > 300, "{}", names.len());
        for name in names {
            assert!(text.contains(&format!("\\fB{name}\\fR")), "{name}");
        }
        for flag in of(Purpose::Run).chain(of(Purpose::Instead)) {
            let name = flag.long.replace('-', "\\-");
            assert!(text.contains(&format!("\\fB{name}\\fR")), "{name}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["weft", "weft-doctor", "weft-family-add", "weft-completions"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }
}
