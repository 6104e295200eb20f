//! The page of the book on options (`docs/options.md`), written from the table, and the test that the
//! page is what the table makes. To write it anew:
//!
//! ```text
//! WRITE_OPTIONS_PAGE=1 cargo test -p weft-config options_page
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::known::{Harm, Kind, Known, Outside, Range, Support};
use crate::table::{self, KNOWN, SUBJECTS};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");

const HEAD: &str = "\
# Options

<!-- Made from the table of options (crates/weft-config/src/table). After a change there, write this page
anew: WRITE_OPTIONS_PAGE=1 cargo test -p weft-config options_page -->

Every option of torrc that C tor 0.4.9 knows, and Weft's own, by subject. How torrc is written, and what
else there is to know about running a relay, is in [Operating a relay](operator.md).

| type | what is written |
|---|---|
| text, path | the rest of the line |
| number | a whole number |
| amount | bytes, or a number and a unit: `KB`, `MB`, `GB`, `TB`, `KBits`, `MBits` and so on |
| time | seconds, or a number and a unit: `minutes`, `hours`, `days`, `weeks`, `months`; `msec` where the default is in `msec` or the option counts milliseconds |
| fraction | a decimal number |
| flag | `0` or `1`; some options also know `auto` |
| words | words separated by commas |
| relays | fingerprints, nicknames, networks and countries (`{de}`), separated by commas |
| lines | the option may be given several times |

**SIGHUP**: whether a running node follows a change of torrc. *no* means that a reload which changes the option
is refused, and the old configuration stays in force. **Range**: a value outside is refused, unless the
table has another rule. Where nothing is written, the type alone decides.

";

/// The whole page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("## Options that Weft does not support\n\n");
    page.push_str(
        "**Refused.** What your safety rests on, if it asks for something that Weft does not do: Weft does \
         not\nstart, a reload leaves the old configuration in force, and SETCONF is answered with 513. A \
         value that\nasks for nothing, `Sandbox 0` or `UseBridges 0`, is fine.\n\n",
    );
    unsupported(&mut page, Harm::Unsafe, "why it is refused");
    page.push_str(
        "**Warned about.** What you will miss: one warning for each, before everything else in the log. \
         Again, values\nthat ask for nothing get none (`TransPort 0`).\n\n",
    );
    unsupported(&mut page, Harm::Lost, "what does not happen");
    page.push_str("**Harmless.** One notice names all of these that are set.\n\n");
    unsupported(&mut page, Harm::Harmless, "why nobody misses it");
    for subject in &SUBJECTS {
        let rows: Vec<_> = subject.rows.iter().filter(|k| k.is_settable()).collect();
        let _ = write!(page, "## {}\n\n", subject.title);
        if rows.is_empty() {
            page.push_str(
                "These do nothing any more, in C tor either; each that is set gets a warning.\n\n",
            );
            let names: Vec<_> = subject.rows.iter().map(|known| code(known.name)).collect();
            let _ = writeln!(page, "{}", names.join(", "));
            continue;
        }
        page.push_str("| option | type | default | range | SIGHUP | what it is for |\n");
        page.push_str("|---|---|---|---|---|---|\n");
        for known in rows {
            row(&mut page, known);
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

fn row(page: &mut String, known: &Known) {
    let mut default = known
        .default
        .filter(|d| !d.is_empty())
        .map_or(String::new(), code);
    if let Some(other) = known.in_testing {
        let _ = write!(default, "; in private networks `{other}`");
    }
    let sighup = match (known.immutable, known.needs_restart) {
        (true, _) => "no",
        (false, true) => "after a restart",
        (false, false) if known.support == Support::Full => "yes",
        (false, false) => "",
    };
    let mut help: String = known.help.trim().to_owned();
    if known.own {
        help.push_str(" Weft's own.");
    }
    if known.testing_only {
        help.push_str(" Private networks only.");
    }
    if let Some(why) = known.deprecated {
        let _ = write!(help, " *Deprecated:* {why}");
    }
    if let Support::None { harm, why, .. } = known.support {
        let class = match harm {
            Harm::Unsafe => "Refused",
            Harm::Lost => "Not supported, with a warning",
            Harm::Harmless => "Ignored",
        };
        let _ = write!(help, " **{class}:** {why}.");
    }
    let (name, kind, range) = (code(known.name), kind(known.kind), range(known));
    let _ = writeln!(
        page,
        "| {name} | {kind} | {default} | {range} | {sighup} | {help} |"
    );
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Path => "path",
        Kind::Int | Kind::PosInt | Kind::U64 => "number",
        Kind::Memory => "amount",
        Kind::Seconds | Kind::FirstSeconds => "time",
        Kind::Millis => "time (milliseconds)",
        Kind::Double => "fraction",
        Kind::Bool => "flag",
        Kind::AutoBool => "flag or `auto`",
        Kind::Count => "number or `auto`",
        Kind::Csv => "words",
        Kind::RouterSet => "relays",
        Kind::Lines | Kind::LinesOf(_) => "lines",
        Kind::LinesVirtual | Kind::Obsolete => "",
    }
}

fn range(known: &Known) -> String {
    let unit = known.kind.unit();
    let (allowed, unless) = match known.range {
        Range::All => {
            return match known.kind {
                Kind::PosInt | Kind::U64 => "from 0".to_owned(),
                Kind::Count => format!("from 0 to {}", crate::known::MAX_CONNECTION_THREADS),
                _ => String::new(),
            };
        }
        Range::Whole {
            least,
            most,
            or_zero,
        } => {
            let allowed = match (least, most) {
                (least, i64::MAX) => format!("from {least}{unit}"),
                (i64::MIN, most) => format!("to {most}{unit}"),
                (least, most) => format!("from {least} to {most}{unit}"),
            };
            (allowed, if or_zero { ", or 0" } else { "" })
        }
        Range::Fraction {
            least,
            most,
            or_negative,
        } => {
            let allowed = if most == f64::MAX {
                format!("from {least}")
            } else {
                format!("from {least} to {most}")
            };
            (allowed, if or_negative { ", or negative" } else { "" })
        }
    };
    let outside = match known.outside {
        Outside::Refused => "",
        Outside::Clamped => "; else the nearest is used",
    };
    format!("{allowed}{unless}{outside}")
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
