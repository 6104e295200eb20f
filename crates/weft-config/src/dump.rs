//! `--dump-config`: settings written as a torrc that gives the same settings (C tor:
//! src/lib/confmgt/confmgt.c, `config_dump`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::settings::Settings;
use crate::table::known::Kind;
use crate::table::value::{Value, quote};

/// Extent of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// Options that differ from the defaults.
    Short,
    /// Everything.
    Full,
}

/// Writes settings; `defaults` are those before torrc was read (`--defaults-torrc` included).
#[must_use]
pub fn dump(settings: &Settings, defaults: &Settings, kind: DumpKind) -> String {
    let mut text = String::new();
    for ((known, value, _), (_, default, _)) in settings.iter().zip(defaults.iter()) {
        let listed_elsewhere = matches!(known.kind, Kind::LinesOf(_) | Kind::Obsolete);
        if known.hidden || listed_elsewhere || (kind == DumpKind::Short && value == default) {
            continue;
        }
        match value {
            Value::Lines(lines) => {
                // Without this line the defaults torrc's lines would come back.
                if let (Value::Lines(cleared), true) = (default, lines.is_empty()) {
                    let names: BTreeSet<_> = cleared.iter().map(|line| line.name).collect();
                    for name in names.into_iter().filter(|name| !is_session(name)) {
                        let _ = writeln!(text, "/{name}");
                    }
                }
                for line in lines {
                    write_line(&mut text, line.name, &line.value);
                }
            }
            // A set that is not set is written all the same, as in C tor; so is a text that was
            // cleared, which C tor would lose.
            Value::Text(None) if known.kind == Kind::RouterSet || default != value => {
                write_line(&mut text, known.name, "");
            }
            Value::Text(None) if known.default.is_some() => write_line(&mut text, known.name, ""),
            value => {
                if let Some(value) = value.encode() {
                    write_line(&mut text, known.name, &value);
                }
            }
        }
    }
    text
}

/// Names with two underscores are between a controller and the node.
fn is_session(name: &str) -> bool {
    name.starts_with("__")
}

fn write_line(text: &mut String, name: &str, value: &str) {
    if is_session(name) {
        return;
    }
    let space = if value.is_empty() { "" } else { " " };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name}{space}{}", quote(value));
}
