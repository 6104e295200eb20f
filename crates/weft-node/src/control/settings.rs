//! Options in replies to controllers (control-spec 3.1 to 3.3; C tor's `option_get_assignment`,
//! `getinfo_helper_config`).

use weft_config::settings::Settings;
use weft_config::table;
use weft_config::table::known::{Kind, Known};
use weft_config::table::value::Value;
use weft_config::{default_directory_lines, option_of};

use super::args::quote;
use super::reply::Reply;

/// Handles GETCONF.
pub(super) fn get(settings: &Settings, names: &[&str]) -> Reply {
    let (mut found, mut unknown) = (Reply::default(), Reply::default());
    for name in names {
        let known = option_of(name).filter(|known| known.kind != Kind::Obsolete);
        let Some(known) = known else {
            let text = format!("Unrecognized configuration key \"{name}\"");
            unknown.add(552, text);
            continue;
        };
        let lines = assignments(settings, known);
        if lines.is_empty() {
            found.add(250, known.name);
        }
        for (name, value) in lines {
            // A value of several lines is quoted.
            let value = match value.contains(['\n', '\r']) {
                true => quote(value.as_bytes()),
                false => value,
            };
            found.add(250, format!("{name}={value}"));
        }
        if let Some(refusal) = found.if_too_long() {
            return refusal;
        }
    }
    match (unknown.is_empty(), found.is_empty()) {
        (false, _) => unknown,
        (true, false) => found,
        (true, true) => Reply::ok(),
    }
}

/// The lines or the value that an option is set to; none if it has no value.
pub(crate) fn assignments(settings: &Settings, known: &Known) -> Vec<(&'static str, String)> {
    let list = match known.kind {
        Kind::LinesOf(list) => list,
        _ => known.name,
    };
    let Some((_, value, _)) = settings.iter().find(|(option, _, _)| option.name == list) else {
        return Vec::new();
    };
    match value {
        Value::Lines(lines) => lines
            .iter()
            // An option that is a list of other options returns all their lines, in order, as in C tor.
            .filter(|line| line.name == known.name || known.kind == Kind::LinesVirtual)
            .map(|line| (line.name, line.value.clone()))
            .collect(),
        // An empty set of relays is a value, as in C tor.
        Value::Text(None) if known.kind == Kind::RouterSet => vec![(known.name, String::new())],
        Value::Text(None) => Vec::new(),
        other => match other.encode() {
            Some(text) => vec![(known.name, text)],
            None => Vec::new(),
        },
    }
}

/// The name of an option's type in `config/names`.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "String",
        Kind::Path => "Filename",
        Kind::Int => "SignedInteger",
        Kind::PosInt | Kind::U64 | Kind::Count => "Integer",
        Kind::Memory => "DataSize",
        Kind::Seconds | Kind::FirstSeconds => "TimeInterval",
        Kind::Millis => "TimeMsecInterval",
        Kind::Double => "Float",
        Kind::Bool => "Boolean",
        Kind::AutoBool => "Boolean+Auto",
        Kind::Csv => "CommaList",
        Kind::RouterSet => "RouterList",
        Kind::Lines => "LineList",
        Kind::LinesOf(_) => "Dependent",
        Kind::LinesVirtual => "Virtual",
        Kind::Obsolete => "Obsolete",
    }
}

fn all() -> impl Iterator<Item = &'static Known> {
    table::all().filter(|known| known.kind != Kind::Obsolete)
}

/// `config/names`.
pub(super) fn names() -> String {
    // Three underscores: an internal variable (CVFLAG_INVISIBLE).
    all()
        .filter(|known| !known.name.starts_with("___"))
        .map(|known| format!("{} {}\n", known.name, kind_name(known.kind)))
        .collect()
}

/// `config/defaults`: as they would be written in a torrc, outside of private networks.
pub(super) fn defaults() -> String {
    let options = all().filter_map(|known| Some((known.name, known.default?)));
    options
        .chain(default_directory_lines())
        .map(|(name, value)| format!("{name} {}\n", quote(value.as_bytes())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::{MemoryHost, load_text};

    #[test]
    fn getconf_returns_values_by_name() {
        let torrc =
            "Nickname me\nSocksPort 9050 IsolateDestAddr\nSocksPort 9051\nLog notice stdout\n";
        let settings = load_text(torrc, &MemoryHost::new())
            .unwrap()
            .options
            .settings;
        let ask = |names: &[&str]| get(&settings, names).encode();
        assert_eq!(ask(&["nickname"]), "250 Nickname=me\r\n");
        assert_eq!(
            ask(&["socksport"]),
            "250-SocksPort=9050 IsolateDestAddr\r\n250 SocksPort=9051\r\n"
        );
        assert_eq!(
            ask(&["ContactInfo", "SafeSocks"]),
            "250-ContactInfo\r\n250 SafeSocks=0\r\n"
        );
        assert_eq!(ask(&["ControlPort"]), "250 ControlPort\r\n");
        assert_eq!(
            ask(&["Frob"]),
            "552 Unrecognized configuration key \"Frob\"\r\n"
        );
        assert_eq!(ask(&[]), "250 OK\r\n");
        assert!(names().contains("\nORPort Dependent\n"), "{}", names());
        assert!(names().contains("\n__ORPort Dependent\n") && !names().contains("___"));
        assert_eq!(ask(&["EntryNodes"]), "250 EntryNodes=\r\n");
    }

    #[test]
    fn defaults_are_written_as_in_a_torrc() {
        let all = defaults();
        for line in [
            "\nBandwidthRate \"1 GB\"\n",
            "\nHeartbeatPeriod \"6 hours\"\n",
            "\nDirAuthority \"moria1 orport=9201 ",
            "\n__ReloadTorrcOnSIGHUP \"1\"\n",
        ] {
            assert!(all.contains(line), "{line:?} is not in {all}");
        }
        assert!(all.matches("\nFallbackDir \"").count() > 100);
        assert!(!all.contains("Nickname"), "it has no default");
    }
}
