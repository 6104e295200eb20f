//! Checks and corrections of settings before options are made of them: first the table's rules for
//! each option, then the rules between options of each subject (C tor: src/app/config/config.c
//! `options_validate_cb`, src/feature/relay/relay_config.c). Only rules about features of Weft, or
//! rules of one line, are here.

use weft_policy::parse_rules;

use crate::host::Host;
use crate::options::reachable::convert_firewall;
use crate::options::{
    bandwidth, bridge_relay, client_bridges, directory, identity, lifetimes, logs, network,
    onion_services, private_network, process, resources, scheduling,
};
use crate::report::{Origin, Report};
use crate::settings::Settings;
use crate::table::known::{Harm, Kind, Known, Outside, Range, Support};
use crate::table::value::Value;
use crate::table::{self, keys};
use crate::text::ports::OrPort;

/// Checks and corrects settings; errors and unsupported options are added to `report`. Returns the
/// relay's ports, which most rules depend on.
pub(crate) fn check(settings: &mut Settings, host: &dyn Host, report: &mut Report) -> Vec<OrPort> {
    let ports = network::relay_ports(settings, host, report);
    // A malformed ORPort still makes a relay: other errors about relays are reported, too.
    let is_relay = ports
        .as_ref()
        .is_none_or(|ports| ports.iter().any(|port| port.listen));
    unsupported(settings, report);
    onion_services::check(settings, host, report);
    policies(settings, report);
    bandwidth::correct_limits(settings);
    ranges(settings, report);
    identity::check(settings, is_relay, report);
    bandwidth::check(settings, is_relay, report);
    resources::check(settings, is_relay, report);
    network::check_reach(settings, is_relay, report);
    client_bridges::check(settings, is_relay, report);
    convert_firewall(settings, report);
    network::check_padding(settings, is_relay, report);
    directory::check_publishing(settings, report);
    let has_or_port = !settings.lines(keys::ORPortLines).is_empty();
    bridge_relay::check(settings, has_or_port, is_relay, report);
    scheduling::check(settings, report);
    logs::check_heartbeat(settings, report);
    lifetimes::check(settings, report);
    process::check(settings, report);
    logs::check(settings, report);
    private_network::check(settings, report);
    if !settings.flag(keys::TestingTorNetwork) && !settings.flag(keys::___UsingTestNetworkDefaults)
    {
        testing_only(settings, report);
    }
    directory::check(settings, is_relay, report);
    ports.unwrap_or_default()
}

/// Reports each option that is set and not supported, once, by the harm of ignoring it.
fn unsupported(settings: &Settings, report: &mut Report) {
    let mut harmless = Vec::new();
    for (known, value, origin) in settings.iter() {
        let Some(origin) = origin else { continue };
        let Value::Lines(lines) = value else {
            // An option that was cleared asks for nothing.
            if let Some(value) = value.encode().filter(|value| !value.is_empty()) {
                unsupported_option(known, &value, origin, &mut harmless, report);
            }
            continue;
        };
        let mut reported = Vec::new();
        for line in lines {
            if let Some((_, known)) = table::by_name(line.name)
                && !reported.contains(&line.name)
            {
                let value = line.value.trim();
                if unsupported_option(known, value, &line.origin, &mut harmless, report) {
                    reported.push(line.name);
                }
            }
        }
    }
    if !harmless.is_empty() {
        let text = format!(
            "Weft ignores these options, which harms nobody (the operator's guide gives the \
             reasons): {}",
            harmless.join(", ")
        );
        report.notice(None, text);
    }
}

/// Holds each number against the range that the table has for it.
fn ranges(settings: &mut Settings, report: &mut Report) {
    let outside: Vec<_> = settings
        .iter()
        .filter_map(|(known, value, origin)| {
            let nearest = nearest_in_range(known.range, value)?;
            Some((known, value.clone(), nearest, origin.cloned()))
        })
        .collect();
    for (known, value, nearest, origin) in outside {
        let origin = origin.as_ref();
        match known.outside {
            Outside::Refused => report.error(origin, out_of_range(known, &value)),
            Outside::Clamped => settings.correct(known, nearest),
        }
    }
}

/// The value in the range that is nearest to one that is outside; `None`: it is inside.
fn nearest_in_range(range: Range, value: &Value) -> Option<Value> {
    match (range, value) {
        (
            Range::Whole {
                least,
                most,
                or_zero,
            },
            Value::Number(number),
        ) => {
            let fine = (least..=most).contains(number) || or_zero && *number == 0;
            (!fine).then(|| Value::Number((*number).clamp(least, most)))
        }
        (
            Range::Fraction {
                least,
                most,
                or_negative,
            },
            Value::Double(number),
        ) => {
            let fine = (least..=most).contains(number) || or_negative && *number < 0.0;
            (!fine).then(|| Value::Double(number.clamp(least, most)))
        }
        _ => None,
    }
}

/// Error text for a value that is out of its range.
fn out_of_range(known: &Known, value: &Value) -> String {
    let (name, unit) = (known.name, known.kind.unit());
    match known.range {
        Range::Whole {
            least: 1,
            most: i64::MAX,
            ..
        } if unit.is_empty() => format!("{name} must be greater than 0"),
        Range::Whole {
            least: 1,
            most: i64::MAX,
            ..
        } => format!("{name} must be positive"),
        Range::Whole {
            most: i64::MAX,
            least,
            ..
        } => format!("{name} must be at least {least}{unit}"),
        Range::Whole {
            least: i64::MIN,
            most,
            ..
        } => match known.kind {
            Kind::Memory => {
                let value = value.encode().unwrap_or_default();
                format!("{name} ({value}) must be at most {most}")
            }
            _ => format!("{name} must be at most {most}{unit}"),
        },
        Range::Whole { least, most, .. } => {
            format!("{name} must be from {least} to {most}{unit}")
        }
        Range::Fraction {
            least,
            most: f64::MAX,
            ..
        } => format!("{name} must be at least {least}"),
        Range::Fraction { least, most, .. } => {
            format!("{name} must be between {least} and {most}")
        }
        Range::All => format!("{name} is out of range"),
    }
}

/// Checks that options for private networks have their defaults in other networks.
fn testing_only(settings: &Settings, report: &mut Report) {
    let defaults = Settings::new(false);
    let changed = settings
        .iter()
        .zip(defaults.iter())
        .filter(|((known, value, _), (_, default, _))| known.testing_only && value != default);
    for ((known, _, origin), _) in changed {
        report.error(
            origin,
            format!(
                "{} may only be changed in testing networks (TestingTorNetwork 1)",
                known.name
            ),
        );
    }
}

fn policies(settings: &Settings, report: &mut Report) {
    let policies = [
        (keys::DirPolicy, None),
        (keys::SocksPolicy, None),
        (keys::AuthDirReject, Some(false)),
        (keys::AuthDirInvalid, Some(false)),
        (keys::AuthDirBadExit, Some(false)),
        (keys::AuthDirMiddleOnly, Some(false)),
        (keys::ReachableAddresses, Some(true)),
        (keys::ReachableORAddresses, Some(true)),
        (keys::ReachableDirAddresses, Some(true)),
    ];
    for (key, assumed) in policies {
        for line in settings.lines(key) {
            if let Err(why) = parse_rules(&line.value, assumed, &mut Vec::new(), &mut Vec::new()) {
                report.error(Some(&line.origin), format!("{key}: {why}"));
            }
        }
    }
}

/// Reports an option that is set to `value`, if it is not supported. True: there was something to
/// report. Names of harmless ones are added to `harmless`. Values are not repeated unless they are
/// 0, 1 or auto: others may be passwords and addresses, which do not belong into logs.
fn unsupported_option(
    known: &Known,
    value: &str,
    origin: &Origin,
    harmless: &mut Vec<&'static str>,
    report: &mut Report,
) -> bool {
    let Support::None { harm, fine, why } = known.support else {
        return false;
    };
    if known.kind == Kind::Obsolete || fine.contains(&value) {
        return false;
    }
    let name = match known.kind {
        Kind::Bool | Kind::AutoBool => format!("{} {value}", known.name),
        _ => known.name.to_owned(),
    };
    match harm {
        Harm::Unsafe => report.error(
            Some(origin),
            format!(
                "{name}: Weft does not support this option, and without it {why}. Use C tor where \
                 you need it, or remove the line if you can do without"
            ),
        ),
        Harm::Lost => report.warn_first(
            Some(origin),
            format!("{name}: Weft does not support this option: {why}"),
        ),
        Harm::Harmless => harmless.push(known.name),
    }
    true
}
