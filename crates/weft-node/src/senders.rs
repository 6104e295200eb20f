//! The page of the book on who may send what (`docs/senders.md`), written from the tables of all crates, and the test that the
//! page is what the tables make. To write it again:
//!
//! ```text
//! WRITE_SENDERS_PAGE=1 cargo test -p weft-node senders_page
//! ```

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use weft_cell::cell_command::CellCommand;
use weft_cell::relay_command::RelayCommand;
use weft_config::table::reference;
use weft_datadir::file::{self, Access};
use weft_dircache::resource::Resource;
use weft_proxy::transports::{ExtOrMessage, LineKind};
use weft_trust::{Role, Sender, Trust};

use crate::control::{Command, EVENTS, KEYS};
use crate::exit::dns;
use crate::metrics::request;

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/senders.md");

const HEAD: &str = "\
# Who may send what

<!-- Made from the tables of inputs in the code. After a change there, write this page again:
WRITE_SENDERS_PAGE=1 cargo test -p weft-node senders_page -->

Every cell, message, request, command, event, file and option: who may send it and where, what bounds it, who pays when the bound
is reached, and which tests show it. Each is a row of a table in the code that has this answer as a column, so a new one
does not compile without it. A constant has its value behind it. Attackers, and bounds that are not of one input (memory,
connections, the ledger), are in [What an attacker can do](security.md).

";

/// A value of a constant, as the page shows it.
fn shown(value: &str) -> String {
    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    let call = |name| value.strip_prefix(name)?.strip_suffix(')');
    if let Some(seconds) = call("Duration::from_secs(") {
        return format!("{} s", shown(seconds));
    }
    if let Some(millis) = call("Duration::from_millis(") {
        return format!("{} ms", shown(millis));
    }
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    let of_two = |between: &str| {
        let (one, other) = value.split_once(between)?;
        Some((number(one)?, number(other)?))
    };
    let found = number(&value)
        .or_else(|| of_two(" * ").map(|(one, other)| one * other))
        .or_else(|| of_two(" << ").map(|(one, other)| one << other));
    match found {
        Some(number) => thousands(number),
        None => value,
    }
}

/// A number with commas.
fn thousands(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}

/// A bound with the values of the constants that it names.
fn with_values(bound: &str) -> String {
    let Some((before, rest)) = bound.split_once('{') else {
        return bound.to_owned();
    };
    let (named, rest) = rest.split_once('}').expect("a closing brace");
    let (path, name) = named.split_once(':').expect("a path and a name");
    let text = fs::read_to_string(Path::new(CRATES).join(path)).expect(path);
    let (_, value) = text.split_once(&format!("const {name}: ")).expect(named);
    let (_, value) = value.split_once(" = ").expect(named);
    let (value, _) = value.split_once(';').expect(named);
    format!("{before}`{name}` ({}){}", shown(value), with_values(rest))
}

/// One section: rows with the same answer are one.
fn section(
    page: &mut String,
    title: &str,
    of: &str,
    rows: impl IntoIterator<Item = (String, Trust)>,
) {
    let mut groups: Vec<(Trust, Vec<String>)> = Vec::new();
    for (name, trust) in rows {
        match groups.iter_mut().find(|(known, _)| *known == trust) {
            Some((_, names)) => names.push(name),
            None => groups.push((trust, vec![name])),
        }
    }
    let _ = write!(
        page,
        "## {title}\n\n{of}\n\n| what | who may send it | where | bound | who pays | tests |\n|---|---|---|---|---|---|\n"
    );
    for (
        Trust {
            sender,
            role,
            limit,
        },
        names,
    ) in groups
    {
        assert!(!limit.tests.is_empty(), "{names:?} has no test");
        assert_eq!(sender == Sender::Nobody, role == Role::Nowhere, "{names:?}");
        let tests: Vec<_> = limit.tests.iter().map(|test| format!("`{test}`")).collect();
        let _ = writeln!(
            page,
            "| {} | {sender} | {role} | {} | {} | {} |",
            names.join(", "),
            with_values(limit.bound),
            limit.payer,
            tests.join(", ")
        );
    }
    page.push('\n');
}

/// The whole page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    section(
        &mut page,
        "Cells",
        "`weft-cell/src/cell_command.rs`. TLS records and what comes before the first cell: [Links](security.md#links).",
        CellCommand::ALL
            .iter()
            .map(|command| (command.name().to_owned(), command.trust())),
    );
    section(
        &mut page,
        "Relay messages",
        "`weft-cell/src/relay_command.rs`. Who may send one follows from who handles it.",
        RelayCommand::ALL
            .iter()
            .map(|command| (command.name().to_owned(), command.trust())),
    );
    section(
        &mut page,
        "Requests to a directory",
        "`weft-dircache/src/resource.rs`. All but `/tor/` and `/tor/robots.txt` are what paths begin with.",
        Resource::ALL.iter().map(|resource| {
            let (method, path) = resource.request();
            (format!("{method} `{path}`"), resource.trust())
        }),
    );
    section(
        &mut page,
        "Answers of directories",
        "`weft-dir/src/answers.rs`.",
        weft_dir::answers::Answer::ALL
            .iter()
            .map(|answer| (answer.name().to_owned(), answer.trust())),
    );
    section(
        &mut page,
        "Answers of name servers",
        "`weft-node/src/exit/dns/mod.rs`.",
        [("addresses, names, errors".to_owned(), dns::ANSWER)],
    );
    section(
        &mut page,
        "Messages to the extended ORPort",
        "`weft-proxy/src/transports/ext_or.rs`.",
        ExtOrMessage::ALL
            .iter()
            .map(|message| (message.name().to_owned(), message.trust())),
    );
    section(
        &mut page,
        "Lines of a program of pluggable transports",
        "`weft-proxy/src/transports/line.rs`.",
        LineKind::ALL
            .iter()
            .map(|kind| (kind.name().to_owned(), kind.trust())),
    );
    section(
        &mut page,
        "Answers of a proxy",
        "`weft-proxy/src/error.rs`.",
        [("SOCKS 4 and 5, CONNECT".to_owned(), weft_proxy::ANSWER)],
    );
    section(
        &mut page,
        "Requests of applications",
        "`weft-apps/src/senders.rs`.",
        weft_apps::senders::SERVICES.map(|service| {
            let (what, trust) = weft_apps::senders::trust(service);
            (what.to_owned(), trust)
        }),
    );
    section(
        &mut page,
        "Requests to the MetricsPort",
        "`weft-node/src/metrics/request.rs`.",
        [("GET `/metrics`".to_owned(), request::TRUST)],
    );
    section(
        &mut page,
        "Commands of the control port",
        "`weft-node/src/control/commands.rs`.",
        Command::ALL
            .iter()
            .map(|command| (command.word().to_owned(), command.trust())),
    );
    section(
        &mut page,
        "Keys of GETINFO",
        "`weft-node/src/control/keys.rs`: the row of GETINFO holds for the answer as a whole.",
        KEYS.iter().map(|(key, _, limit)| {
            (
                format!("`{key}`"),
                Trust::new(Sender::Controller, Role::ControlPort, *limit),
            )
        }),
    );
    section(
        &mut page,
        "Events for controllers",
        "`weft-node/src/control/events.rs`.",
        EVENTS.iter().map(|(event, limit)| {
            (
                (*event).to_owned(),
                Trust::new(Sender::Node, Role::Subscribed, *limit),
            )
        }),
    );
    section(
        &mut page,
        "Files",
        "`weft-datadir/src/files.rs`; torrc: `weft-config/src/text/include.rs`. Files that options name: [Options](#options).",
        weft_datadir::files::DataFile::ALL
            .iter()
            .map(|file| (format!("`{}`", file.name()), file.trust()))
            .chain([("torrc, and what it includes".to_owned(), weft_config::TORRC)]),
    );
    section(
        &mut page,
        "Options",
        "`weft-config/src/table/rows/`: each option states what it does to others. [Options](options.md) has them all.",
        reference::trusts().map(|(name, trust)| (name.to_owned(), trust)),
    );
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

#[test]
fn the_senders_page_is_what_the_tables_make() {
    let made = page();
    if std::env::var_os("WRITE_SENDERS_PAGE").is_some() {
        let written = file::replace_with(Path::new(PAGE), Access::mode(0o644), |mut page| {
            page.write_all(made.as_bytes())
        });
        written.expect("docs/senders.md can be written");
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == made,
        "docs/senders.md is not what the tables make; write it again: \
         WRITE_SENDERS_PAGE=1 cargo test -p weft-node senders_page"
    );
}

#[test]
fn constants_are_shown_as_numbers() {
    for (value, expected) in [
        ("16384", "16,384"),
        ("16_384", "16,384"),
        ("1 << 17", "131,072"),
        ("16 * 1024", "16,384"),
        ("Duration::from_secs(60)", "60 s"),
        ("AT_ONCE / 2", "AT_ONCE / 2"),
    ] {
        assert_eq!(shown(value), expected);
    }
}
