//! The page of the book on options (`docs/options.md`), written from the table, and the test that
//! page and table agree. To write it again:
//!
//! ```text
//! WRITE_OPTIONS_PAGE=1 cargo test -p weft-config options_page
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Described, TYPES, sections};
use crate::table::known::{Harm, Kind, Support};
use crate::table::{self, KNOWN};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");

const HEAD: &str = "\
# Options

<!-- Made from the table of options (crates/weft-config/src/table). After a change there, write this page
anew: WRITE_OPTIONS_PAGE=1 cargo test -p weft-config options_page -->

Every option of torrc that C tor 0.4.9 knows, and Weft's own, by subject. How torrc is written, and what
else there is to know about running a relay, is in [Operating a relay](operator.md).

";

const COLUMNS: &str = "\
**SIGHUP**: whether a running node follows a change of torrc. *no* means that a reload which changes the option
is refused, and the old configuration stays in force. **Range**: a value outside is refused, unless the
table has another rule. Where nothing is written, the type alone decides.

";

/// The whole page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| type | what is written |\n|---|---|\n");
    for (name, written) in TYPES {
        let _ = writeln!(page, "| {name} | {written} |");
    }
    page.push('\n');
    page.push_str(COLUMNS);
    page.push_str("## Options that Weft does not support\n\n");
    page.push_str(
        "**Refused.** What your safety rests on, if it asks for something that Weft does not do: Weft does \
         not\nstart, a reload leaves the old configuration in force, and SETCONF is answered with 513. A \
         value that\nasks for nothing, `__AllDirActionsPrivate 0` for one, is fine.\n\n",
    );
    unsupported(&mut page, Harm::Unsafe, "why it is refused");
    page.push_str(
        "**Warned about.** What you will miss: one warning for each, before everything else in the log. \
         Again, values\nthat ask for nothing get none (`BridgeAuthoritativeDir 0`).\n\n",
    );
    unsupported(&mut page, Harm::Lost, "what does not happen");
    page.push_str("**Harmless.** One notice names all of these that are set.\n\n");
    unsupported(&mut page, Harm::Harmless, "why nobody misses it");
    for section in sections() {
        let _ = write!(page, "## {}\n\n", section.title);
        if section.options.is_empty() {
            page.push_str(
                "These do nothing any more, in C tor either; each that is set gets a warning.\n\n",
            );
            let names: Vec<_> = section.obsolete.iter().map(|name| code(name)).collect();
            let _ = writeln!(page, "{}", names.join(", "));
            continue;
        }
        page.push_str("| option | type | default | range | SIGHUP | what it is for |\n");
        page.push_str("|---|---|---|---|---|---|\n");
        for option in &section.options {
            row(&mut page, option);
        }
        page.push('\n');
    }
    page
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// The options of a class, by their reasons.
fn unsupported(page: &mut String, class: Harm, title: &str) {
    let mut reasons: BTreeMap<String, (&str, Vec<&str>)> = BTreeMap::new();
    for known in table::all().filter(|known| known.is_settable()) {
        if let Support::None { harm, why, .. } = known.support
            && harm == class
        {
            let first = reasons.values().find(|(reason, _)| *reason == why);
            let first = first.map_or(known.name, |(_, names)| {
                names.first().unwrap_or(&known.name)
            });
            let (_, names) = reasons
                .entry(first.to_ascii_lowercase())
                .or_insert((why, Vec::new()));
            names.push(known.name);
        }
    }
    let _ = write!(page, "| options | {title} |\n|---|---|\n");
    for (why, names) in reasons.values() {
        let names: Vec<_> = names.iter().map(|name| code(name)).collect();
        let _ = writeln!(page, "| {} | {why} |", names.join(", "));
    }
    page.push('\n');
}

fn row(page: &mut String, option: &Described) {
    let mut default = option.default.map_or(String::new(), code);
    if let Some(other) = option.in_testing {
        let _ = write!(default, "; in private networks `{other}`");
    }
    let _ = writeln!(
        page,
        "| {} | {} | {default} | {} | {} | {} |",
        code(option.name),
        option.kind,
        option.range,
        option.sighup,
        option.help
    );
}

#[test]
fn the_options_page_is_what_the_table_makes() {
    let made = page();
    if std::env::var_os("WRITE_OPTIONS_PAGE").is_some() {
        std::fs::write(PAGE, &made).expect("docs/options.md can be written");
    }
    let committed = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == made,
        "docs/options.md is not what the table makes; write it anew: \
         WRITE_OPTIONS_PAGE=1 cargo test -p weft-config options_page"
    );
    for known in KNOWN
        .iter()
        .filter(|known| known.kind != Kind::LinesVirtual)
    {
        assert!(made.contains(&code(known.name)), "{}", known.name);
    }
}
