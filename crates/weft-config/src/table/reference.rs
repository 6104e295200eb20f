//! Reference of the options in the [`table`](crate::table): for the book's page on options and for
//! the manual page.

#[cfg(test)]
#[allow(clippy::expect_used)]
mod page;

use std::fmt::Write as _;

use weft_trust::Trust;

use crate::table::SUBJECTS;
use crate::table::known::{Harm, Kind, Known, MAX_CONNECTION_THREADS, Outside, Range, Support};

/// The types of options, and how a value of each is written (Markdown).
pub const TYPES: [(&str, &str); 9] = [
    ("text, path", "the rest of the line"),
    ("number", "a whole number"),
    (
        "amount",
        "bytes, or a number and a unit: `KB`, `MB`, `GB`, `TB`, `KBits`, `MBits` and so on",
    ),
    (
        "time",
        "seconds, or a number and a unit: `minutes`, `hours`, `days`, `weeks`, `months`; `msec` where the default is \
         in `msec` or the option counts milliseconds",
    ),
    ("fraction", "a decimal number"),
    ("flag", "`0` or `1`; some options also know `auto`"),
    ("words", "words separated by commas"),
    (
        "relays",
        "fingerprints, nicknames, networks and countries (`{de}`), separated by commas",
    ),
    ("lines", "the option may be given several times"),
];

/// The options of one subject.
#[derive(Clone, Debug)]
pub struct Section {
    /// Subject, as a heading.
    pub title: &'static str,
    /// Options that can be set; empty for the subject of obsolete options.
    pub options: Vec<Described>,
    /// The names of obsolete options.
    pub obsolete: Vec<&'static str>,
}

/// One option.
#[derive(Clone, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Its type, one of [`TYPES`] or a part of one.
    pub kind: &'static str,
    /// Its default; `None`: nothing, or zero.
    pub default: Option<&'static str>,
    /// Its default in private networks, where it is another.
    pub in_testing: Option<&'static str>,
    /// The values that are allowed; empty where the type alone decides.
    pub range: String,
    /// Effect of SIGHUP on a change: `yes`, `no`, `after a restart`, or empty.
    pub sighup: &'static str,
    /// Help text, and further notes (Markdown).
    pub help: String,
}

/// Every subject of the table, in its order.
#[must_use]
pub fn sections() -> Vec<Section> {
    let sections = SUBJECTS.iter().map(|subject| {
        let (settable, obsolete): (Vec<&Known>, Vec<&Known>) =
            subject.rows.iter().partition(|known| known.is_settable());
        Section {
            title: subject.title,
            options: settable.into_iter().map(described).collect(),
            obsolete: obsolete
                .into_iter()
                .filter(|known| known.kind == Kind::Obsolete)
                .map(|known| known.name)
                .collect(),
        }
    });
    sections.collect()
}

/// The party that may set each option, and its limit.
pub fn trusts() -> impl Iterator<Item = (&'static str, Trust)> {
    crate::table::all().map(|known| (known.name, known.trust()))
}

fn described(known: &Known) -> Described {
    let mut help = known.help.trim().to_owned();
    if known.own {
        help.push_str(" Weft's own.");
    }
    if known.of_process {
        help.push_str(" One value for all identities of a process.");
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
    Described {
        name: known.name,
        kind: kind(known.kind),
        default: known.default.filter(|default| !default.is_empty()),
        in_testing: known.in_testing,
        range: range(known),
        sighup: match (known.immutable, known.needs_restart) {
            (true, _) => "no",
            (false, true) => "after a restart",
            (false, false) if known.support == Support::Full => "yes",
            (false, false) => "",
        },
        help,
    }
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
                Kind::Count => format!("from 0 to {}", MAX_CONNECTION_THREADS),
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
