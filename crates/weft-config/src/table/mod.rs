//! Every option that C tor 0.4.9 knows, and Weft's own, in one table, with a file for each subject in
//! `rows/`. `row.rs` has what a row holds.
//!
//! From the rows come the typed names ([`keys`]), what [`Settings`](crate::Settings) reads, the checks
//! of ranges, `--list-torrc-options`, what controllers are shown, and the page of the book.

use std::sync::LazyLock;

use crate::table::known::Known;

#[macro_use]
mod row;

pub(crate) mod find;
pub(crate) mod key;
pub mod keys;
pub mod known;
pub mod reference;
pub(crate) mod rows;
pub mod value;

/// One subject of the table, and of the book's page on options.
pub(crate) struct Subject {
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [Known],
}

/// The subjects, in the order of the table, which the page has, too.
pub(crate) const SUBJECTS: [Subject; 21] = [
    Subject {
        title: "Identity",
        rows: rows::identity::ROWS,
    },
    Subject {
        title: "Files",
        rows: rows::files::ROWS,
    },
    Subject {
        title: "Network",
        rows: rows::network::ROWS,
    },
    Subject {
        title: "Bandwidth",
        rows: rows::bandwidth::ROWS,
    },
    Subject {
        title: "Resources",
        rows: rows::resources::ROWS,
    },
    Subject {
        title: "Scheduling",
        rows: rows::scheduling::ROWS,
    },
    Subject {
        title: "Directory",
        rows: rows::directory::ROWS,
    },
    Subject {
        title: "Exit",
        rows: rows::exit::ROWS,
    },
    Subject {
        title: "Denial of service",
        rows: rows::dos::ROWS,
    },
    Subject {
        title: "Keys",
        rows: rows::lifetimes::ROWS,
    },
    Subject {
        title: "Log and metrics",
        rows: rows::logs::ROWS,
    },
    Subject {
        title: "Applications",
        rows: rows::applications::ROWS,
    },
    Subject {
        title: "Control",
        rows: rows::control::ROWS,
    },
    Subject {
        title: "Paths",
        rows: rows::paths::ROWS,
    },
    Subject {
        title: "Circuits and streams",
        rows: rows::circuits::ROWS,
    },
    Subject {
        title: "Onion services",
        rows: rows::onion_services::ROWS,
    },
    Subject {
        title: "Bridges and pluggable transports",
        rows: rows::bridges::ROWS,
    },
    Subject {
        title: "Authority",
        rows: rows::authority::ROWS,
    },
    Subject {
        title: "Private networks",
        rows: rows::private_network::ROWS,
    },
    Subject {
        title: "Process",
        rows: rows::process::ROWS,
    },
    Subject {
        title: "Obsolete",
        rows: rows::obsolete::ROWS,
    },
];

/// Every option, subject by subject. A [`Key`](crate::table::key::Key) holds the place of its option here.
#[allow(clippy::indexing_slicing)] // evaluated by the compiler
pub(crate) static KNOWN: [Known; rows::obsolete::END] = {
    let mut all = [Known::new(
        "",
        crate::table::known::Kind::Obsolete,
        None,
        crate::table::known::Effect::Unused,
        "",
    ); rows::obsolete::END];
    let (mut subject, mut place) = (0, 0);
    while subject < SUBJECTS.len() {
        let mut row = 0;
        while row < SUBJECTS[subject].rows.len() {
            all[place] = SUBJECTS[subject].rows[row];
            row += 1;
            place += 1;
        }
        subject += 1;
    }
    all
};

/// The places of all options, sorted by their names without regard to case, as C tor's table is.
static SORTED: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let mut places: Vec<usize> = (0..KNOWN.len()).collect();
    places.sort_by_key(|&place| {
        KNOWN
            .get(place)
            .map(|known| known.name.to_ascii_lowercase())
    });
    places
});

/// Every option with its place in [`KNOWN`], in C tor's order.
pub(crate) fn indexed() -> impl Iterator<Item = (usize, &'static Known)> {
    SORTED
        .iter()
        .filter_map(|&place| Some((place, KNOWN.get(place)?)))
}

/// Every option, in C tor's order: sorted by name without regard to case.
pub fn all() -> impl Iterator<Item = &'static Known> {
    indexed().map(|(_, known)| known)
}

/// The option with exactly this name, in any case, and its place in [`KNOWN`].
pub(crate) fn by_name(name: &str) -> Option<(usize, &'static Known)> {
    let same = |(_, known): &(usize, &Known)| known.name.eq_ignore_ascii_case(name);
    KNOWN.iter().enumerate().find(same)
}

/// The names of deprecated options, in C tor's order.
pub fn deprecated_names() -> impl Iterator<Item = &'static str> {
    let deprecated = KNOWN.iter().filter(|known| known.deprecated.is_some());
    deprecated.map(|known| known.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::known::{Effect, Harm, Kind, Range, Support};
    use crate::table::value::Value;

    #[test]
    fn the_table_holds_each_name_once_and_keys_lead_to_their_rows() {
        let names: Vec<_> = all().map(|known| known.name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), KNOWN.len());
        assert!(names.is_sorted_by(|a, b| a < b));
        for (place, name) in [
            (keys::Nickname.index(), keys::Nickname.name()),
            (keys::Schedulers.index(), keys::Schedulers.name()),
            (keys::WarnUnsafeSocks.index(), keys::WarnUnsafeSocks.name()),
        ] {
            assert_eq!(KNOWN[place].name, name);
        }
    }

    #[test]
    fn every_option_has_a_line_of_help() {
        for known in KNOWN.iter().filter(|known| known.kind != Kind::Obsolete) {
            let help = known.help.trim();
            assert!(
                help.ends_with('.') && !help.contains("  "),
                "{}: {help:?}",
                known.name
            );
            assert!(!help.contains('|'), "{}", known.name);
        }
    }

    #[test]
    fn every_option_that_is_not_supported_has_a_class_and_a_reason() {
        for known in &KNOWN {
            let Support::None { harm, fine, why } = known.support else {
                continue;
            };
            assert!(!why.is_empty(), "{} has no reason", known.name);
            assert!(!why.ends_with('.') && !why.contains("  "), "{why:?}");
            for fine in fine {
                let single = Value::parse(known.kind, fine).ok();
                let dumped = single.and_then(|value| value.encode());
                let dumped = dumped.as_deref().unwrap_or(fine);
                assert_eq!(dumped, *fine, "{}", known.name);
            }
            // An unsafe option is unsafe by default, too, unless the default needs no support.
            if let (Harm::Unsafe, Some(default)) = (harm, known.default) {
                assert!(fine.contains(&default), "{}", known.name);
            }
        }
    }

    #[test]
    fn every_default_can_be_read_and_lists_are_lists() {
        for known in &KNOWN {
            for text in known.default.iter().chain(&known.in_testing) {
                assert!(Value::parse(known.kind, text).is_ok(), "{}", known.name);
            }
            if let Kind::LinesOf(list) = known.kind {
                let (_, list) = by_name(list).unwrap();
                assert_eq!(list.kind, Kind::LinesVirtual, "{}", known.name);
            }
            let of_fractions = matches!(known.range, Range::Fraction { .. });
            assert!(
                !of_fractions || known.kind == Kind::Double,
                "{}",
                known.name
            );
        }
    }

    #[test]
    fn what_safety_rests_on_protects_or_opens() {
        for known in KNOWN.iter() {
            let is_refused = matches!(
                known.support,
                Support::None {
                    harm: Harm::Unsafe,
                    ..
                }
            );
            let acts = matches!(known.effect, Effect::Opens | Effect::Protects);
            assert!(acts || !is_refused, "{} {:?}", known.name, known.effect);
            assert_eq!(
                known.effect == Effect::Unused,
                known.kind == Kind::Obsolete,
                "{}",
                known.name
            );
            assert_eq!(
                known.effect == Effect::List,
                known.kind == Kind::LinesVirtual,
                "{}",
                known.name
            );
        }
    }

    #[test]
    fn deprecated_options_are_those_of_c_tor() {
        let names: Vec<_> = deprecated_names().collect();
        assert_eq!(
            names,
            [
                "HTTPProxy",
                "HTTPProxyAuthenticator",
                "ReachableDirAddresses",
                "ClientPreferIPv6DirPort",
                "ClientAutoIPv6ORPort",
            ]
        );
    }
}
