//! Onion services, which Weft does not serve yet: a torrc that C tor refuses because of them is
//! refused all the same (src/feature/hs/hs_config.c, `hs_config_service_all`). Unlike C tor, Weft
//! does not look up names of hosts, nor does it look into the directories of services.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::host::{FileKind, Host};
use crate::report::{Origin, Report};
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::table::value::ListLine;
use crate::text::address::{parse_address_port, split_host_port};
use crate::text::number::parse_long;
use crate::text::ports::parse_target;

/// C tor's line after each error of a service.
const SUMMARY: &str = "Failed to parse/validate config: Failed to configure rendezvous options. See logs for details.";

/// C tor's line after an error of `ClientOnionAuthDir`.
const CLIENT_SUMMARY: &str = "Failed to parse/validate config: Failed to configure client authorization for hidden services. See logs for details.";

/// The largest value of C tor's `int`.
const INT_MAX: i64 = i32::MAX as i64;

/// Values that an option of a service may have.
enum Form {
    /// `PORT [TARGET]`.
    Ports,
    /// `haproxy` or `none`.
    CircuitId,
    /// 0 or 1.
    Flag,
    /// A number.
    Number {
        /// Least number that C tor can read; the largest is [`INT_MAX`].
        readable_from: i64,
        /// Numbers that it takes.
        range: RangeInclusive<i64>,
    },
}

/// A number from 0.
const fn number(range: RangeInclusive<i64>) -> Form {
    Form::Number {
        readable_from: 0,
        range,
    }
}

/// The options of a service that follow its `HiddenServiceDir`.
const FORMS: [(&str, Form); 15] = [
    (keys::HiddenServicePort.name(), Form::Ports),
    (keys::HiddenServiceExportCircuitID.name(), Form::CircuitId),
    (keys::HiddenServiceAllowUnknownPorts.name(), Form::Flag),
    (keys::HiddenServiceDirGroupReadable.name(), Form::Flag),
    (keys::HiddenServiceMaxStreamsCloseCircuit.name(), Form::Flag),
    (keys::HiddenServiceOnionBalanceInstance.name(), Form::Flag),
    (keys::HiddenServiceEnableIntroDoSDefense.name(), Form::Flag),
    (keys::HiddenServicePoWDefensesEnabled.name(), Form::Flag),
    (
        keys::HiddenServiceVersion.name(),
        Form::Number {
            readable_from: i32::MIN as i64,
            range: 3..=3,
        },
    ),
    (keys::HiddenServiceMaxStreams.name(), number(0..=65535)),
    (
        keys::HiddenServiceNumIntroductionPoints.name(),
        number(3..=20),
    ),
    (
        keys::HiddenServiceEnableIntroDoSRatePerSec.name(),
        number(0..=INT_MAX),
    ),
    (
        keys::HiddenServiceEnableIntroDoSBurstPerSec.name(),
        number(0..=INT_MAX),
    ),
    (keys::HiddenServicePoWQueueRate.name(), number(0..=INT_MAX)),
    (keys::HiddenServicePoWQueueBurst.name(), number(0..=INT_MAX)),
];

/// A limit on requests: a rate and a burst, which may not be smaller.
struct Limit {
    /// C tor's name for it.
    name: &'static str,
    /// The flag that switches it on.
    switch: Key<()>,
    rate: (Key<()>, i64),
    burst: (Key<()>, i64),
}

/// The limits of a service, with their defaults.
const LIMITS: [Limit; 2] = [
    Limit {
        name: "DoS defenses",
        switch: keys::HiddenServiceEnableIntroDoSDefense,
        rate: (keys::HiddenServiceEnableIntroDoSRatePerSec, 25),
        burst: (keys::HiddenServiceEnableIntroDoSBurstPerSec, 200),
    },
    Limit {
        name: "PoW queue",
        switch: keys::HiddenServicePoWDefensesEnabled,
        rate: (keys::HiddenServicePoWQueueRate, 250),
        burst: (keys::HiddenServicePoWQueueBurst, 2500),
    },
];

/// Error in a line.
struct Wrong {
    /// For the operator.
    text: String,
    /// C tor's line.
    c_tor: String,
}

impl Wrong {
    fn new(text: impl Into<String>, c_tor: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            c_tor: c_tor.into(),
        }
    }

    fn report(self, origin: &Origin, report: &mut Report) {
        report.error_with_c_tor_summary(Some(origin), self.text, self.c_tor, SUMMARY);
    }
}

/// Checks the options of all services, and of clients of services.
pub(crate) fn check(settings: &Settings, host: &dyn Host, report: &mut Report) {
    modes(settings, report);
    let lines = settings.lines(keys::HiddenServiceOptions);
    let is_first = |line: &ListLine| line.name == keys::HiddenServiceDir.name();
    let first = lines.iter().position(is_first).unwrap_or(lines.len());
    let (orphans, services) = lines.split_at(first);
    if let Some(orphan) = orphans.first() {
        let name = orphan.name;
        Wrong::new(
            format!("{name} is about the HiddenServiceDir above it, and there is none: add one"),
            format!("{name} with no preceding HiddenServiceDir directive"),
        )
        .report(&orphan.origin, report);
    }
    let mut directories: Vec<&ListLine> = Vec::new();
    for service in services.chunk_by(|_, next| !is_first(next)) {
        let Some((directory, options)) = service.split_first() else {
            continue;
        };
        check_service(directory, options, report);
        let path = &directory.value;
        if let Some(other) = directories.iter().find(|other| other.value == *path) {
            Wrong::new(
                format!(
                    "HiddenServiceDir {path}: {} has this directory, too: name another",
                    other.origin
                ),
                format!("Another hidden service is already configured for directory {path:?}"),
            )
            .report(&directory.origin, report);
        }
        directories.push(directory);
    }
    client_keys(settings, host, report);
}

/// Services that are not anonymous exclude clients that are.
fn modes(settings: &Settings, report: &mut Report) {
    let (open, single) = (
        keys::HiddenServiceNonAnonymousMode,
        keys::HiddenServiceSingleHopMode,
    );
    let mut refuse = |option: Key<bool>, text: String| {
        report.error_with_c_tor_message(
            settings.origin(option),
            text.clone(),
            format!("Failed to parse/validate config: {text}"),
        );
    };
    for (one, other) in [(open, single), (single, open)] {
        if settings.flag(one) && !settings.flag(other) {
            let text = format!(
                "{one} does not provide any server anonymity. It must be used with {other} set to 1."
            );
            refuse(one, text);
        }
    }
    let listens = |line: &ListLine| line.value.split_ascii_whitespace().next() != Some("0");
    let is_client = settings.lines(keys::SocksPortLines).is_empty()
        || [
            keys::SocksPortLines,
            keys::TransPortLines,
            keys::NATDPortLines,
            keys::DNSPortLines,
            keys::HTTPTunnelPortLines,
        ]
        .iter()
        .any(|key| settings.lines(*key).iter().any(listens));
    if settings.flag(open) && settings.flag(single) && is_client {
        let text = format!(
            "{open} is incompatible with using Tor as an anonymous client. Please set \
             Socks/Trans/NATD/DNSPort to 0, or revert {open} to 0."
        );
        refuse(open, text);
    }
}

/// Checks one service: its directory, and the lines up to the next one.
fn check_service(directory: &ListLine, options: &[ListLine], report: &mut Report) {
    // Of a number that is set more than once, the last counts.
    let mut numbers: Vec<(&'static str, i64, &Origin)> = Vec::new();
    for line in options {
        let Some((_, form)) = FORMS.iter().find(|(name, _)| *name == line.name) else {
            continue;
        };
        match read(form, line) {
            Ok(Some(number)) => {
                numbers.retain(|(name, ..)| *name != line.name);
                numbers.push((line.name, number, &line.origin));
            }
            Ok(None) => {}
            Err(wrong) => wrong.report(&line.origin, report),
        }
    }
    for (name, number, origin) in &numbers {
        let form = FORMS.iter().find(|(other, _)| other == name);
        if let Some((_, Form::Number { range, .. })) = form
            && !range.contains(number)
        {
            out_of_range(name, range, *number).report(origin, report);
        }
    }
    if !options
        .iter()
        .any(|line| line.name == keys::HiddenServicePort.name())
    {
        let path = &directory.value;
        Wrong::new(
            format!(
                "HiddenServiceDir {path} has no HiddenServicePort: add one below it, such as \
                 \"HiddenServicePort 80 127.0.0.1:8080\""
            ),
            format!("Hidden service ({path:?}) with no ports configured."),
        )
        .report(&directory.origin, report);
    }
    let value = |key: Key<()>| numbers.iter().find(|(name, ..)| *name == key.name());
    for limit in &LIMITS {
        let (rate, burst) = (value(limit.rate.0), value(limit.burst.0));
        let rate_is = rate.map_or(limit.rate.1, |(_, number, _)| *number);
        let burst_is = burst.map_or(limit.burst.1, |(_, number, _)| *number);
        let is_on = value(limit.switch).is_some_and(|(_, number, _)| *number == 1);
        if let Some((_, _, origin)) = burst.or(rate)
            && is_on
            && burst_is < rate_is
        {
            Wrong::new(
                format!(
                    "{} is {burst_is}, and {} is {rate_is}: the burst must be at least the rate",
                    limit.burst.0, limit.rate.0
                ),
                format!(
                    "Hidden service {} burst ({burst_is}) can not be smaller than the rate value ({rate_is}).",
                    limit.name
                ),
            )
            .report(origin, report);
        }
    }
}

/// Reads the value of a line; the number, if it is one.
fn read(form: &Form, line: &ListLine) -> Result<Option<i64>, Wrong> {
    let (name, value) = (line.name, line.value.trim());
    let unreadable = |text: String, why: String| {
        Wrong::new(
            text,
            format!("Can't parse configuration for onion service: Could not parse {name}: {why}"),
        )
    };
    match form {
        Form::Ports => ports(value).map(|()| None),
        Form::CircuitId => {
            let is_known = ["haproxy", "none"].map(|word| value.eq_ignore_ascii_case(word));
            match is_known.contains(&true) {
                true => Ok(None),
                false => Err(Wrong::new(
                    format!("{name} is \"{value}\": write haproxy or none"),
                    format!("{name} must be 'haproxy' or 'none'."),
                )),
            }
        }
        Form::Flag => match value {
            "0" => Ok(Some(0)),
            "1" => Ok(Some(1)),
            _ => Err(unreadable(
                format!("{name} is \"{value}\": write 0 or 1"),
                format!("Unrecognized value {value}. Allowed values are 0 and 1."),
            )),
        },
        Form::Number {
            readable_from,
            range,
        } => parse_long(value, *readable_from, INT_MAX)
            .map(Some)
            .ok_or_else(|| {
                unreadable(
                    format!("{name} is \"{value}\": write {}", numbers_of(range)),
                    format!(
                        "Integer {value} is malformed or out of bounds. Allowed values are \
                         between {readable_from} and {INT_MAX}."
                    ),
                )
            }),
    }
}

/// The error of a number that is not in its range.
fn out_of_range(name: &str, range: &RangeInclusive<i64>, number: i64) -> Wrong {
    let text = format!("{name} is {number}: write {}", numbers_of(range));
    let (least, most) = (range.start(), range.end());
    let c_tor = match name == keys::HiddenServiceVersion.name() {
        true if number == 2 => "Onion services version 2 are obsolete. Please see \
                                https://blog.torproject.org/v2-deprecation-timeline for more \
                                details and for instructions on how to transition to version 3."
            .to_owned(),
        true => format!("{name} must be {most}, not {number}."),
        false => format!("{name} must be between {least} and {most}, not {number}."),
    };
    Wrong::new(text, c_tor)
}

/// "3" or "a number from 3 to 20".
fn numbers_of(range: &RangeInclusive<i64>) -> String {
    match (range.start(), range.end()) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("a number from {least} to {most}"),
    }
}

/// Reads `PORT [TARGET]`, where TARGET is a port, an address, a name and port, or `unix:PATH`.
fn ports(value: &str) -> Result<(), Wrong> {
    let wrong = |what: &str, c_tor: String| {
        let text = format!(
            "HiddenServicePort {value}: {what}; write PORT or PORT TARGET, where TARGET is a port, \
             ADDRESS:PORT or unix:PATH"
        );
        Err(Wrong::new(text, c_tor))
    };
    let (port, target) = value.split_once(' ').unwrap_or((value, ""));
    if parse_long(port, 1, 65535).is_none() {
        let c_tor =
            format!("Missing or invalid port {port:?} in hidden service port configuration");
        return wrong("it starts with no port", c_tor);
    }
    let target = target.trim_start();
    if target.is_empty() {
        return Ok(());
    }
    let is_unix = target.starts_with("unix:");
    let rest = match is_unix.then(|| parse_target(target, &|_| None)) {
        Some(Ok((_, rest))) => rest,
        Some(Err(why)) => {
            let c_tor =
                format!("Couldn't process address <{target}> from hidden service configuration");
            return wrong(&why, c_tor);
        }
        None => target.trim_start_matches(|c: char| !c.is_ascii_whitespace()),
    };
    if !rest.trim().is_empty() {
        let c_tor = "HiddenServicePort parse error: invalid port mapping";
        return wrong("something follows the target", c_tor.to_owned());
    }
    if is_unix || is_address(target) || parse_long(target, 1, 65535).is_some() {
        return Ok(());
    }
    let c_tor = match target.contains([':', '.']) {
        true => "Unparseable address in hidden service port configuration.".to_owned(),
        false => format!(
            "Unparseable or out-of-range port {target:?} in hidden service port configuration."
        ),
    };
    wrong("the target has no address or port", c_tor)
}

/// Returns true for an address or a name, with or without a port. A word without `.` and `:` is a
/// port, as in C tor.
fn is_address(text: &str) -> bool {
    if parse_address_port(text).is_some() {
        return true;
    }
    let named = split_host_port(text).filter(|_| text.contains([':', '.']));
    named.is_some_and(|(host, _)| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        // "127.1" is a name to the resolver; four numbers that are no address are none.
        let is_numbers = host
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is_bad_address = is_numbers && host.matches('.').count() >= 3;
        !host.is_empty() && host.bytes().all(is_part) && !is_bad_address
    })
}

/// `ClientOnionAuthDir` must be a directory.
fn client_keys(settings: &Settings, host: &dyn Host, report: &mut Report) {
    let option = keys::ClientOnionAuthDir;
    let Some(path) = settings.text(option).filter(|path| !path.is_empty()) else {
        return;
    };
    let is_absent = |why: &io::Error| why.kind() == io::ErrorKind::NotFound;
    let (what, c_tor) = match host.kind(Path::new(path)) {
        Ok(FileKind::Folder) => return,
        Ok(_) => (
            "is not a directory".to_owned(),
            format!("{path} is not a directory"),
        ),
        Err(why) if is_absent(&why) => (
            "does not exist".to_owned(),
            format!("Directory {path} does not exist."),
        ),
        Err(why) => (
            format!("cannot be read ({why})"),
            format!("Directory {path} cannot be read: {why}"),
        ),
    };
    report.error_with_c_tor_summary(
        settings.origin(option),
        format!("{option} {path}: the directory {what}: make it, or remove the line"),
        c_tor,
        CLIENT_SUMMARY,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryHost, load_text};

    /// Refusal of a torrc: the errors, and the log lines of the start that fails.
    fn refused(torrc: &str) -> (String, Vec<String>) {
        let Err(report) = load_text(torrc, &host()) else {
            panic!("{torrc:?} is accepted");
        };
        let lines = report.failure_lines();
        let lines = lines.map(|line| line.render(weft_log::SafeLogging::Off));
        (report.to_string(), lines.collect())
    }

    fn host() -> MemoryHost {
        MemoryHost::new()
            .with_file("/keys/a", "")
            .with_file("/file", "")
    }

    /// C tor's last line.
    const FAILED: &str = "Reading config failed--see warnings above.";

    /// A service, with a line below it, which is the third.
    fn service(line: &str) -> String {
        format!("HiddenServiceDir /h\nHiddenServicePort 80\n{line}\n")
    }

    #[track_caller]
    fn is_refused(torrc: &str, place: u32, c_tor: &str) {
        let (errors, log) = refused(torrc);
        assert!(
            errors.starts_with(&format!("torrc:{place}: ")),
            "{torrc:?}: {errors}"
        );
        let [first, summary, last] = &log[..] else {
            panic!("{torrc:?}: {log:?}");
        };
        let start = format!("{c_tor} (torrc:{place}, ");
        assert!(first.starts_with(&start), "{torrc:?}: {first}");
        assert_eq!((summary.as_str(), last.as_str()), (SUMMARY, FAILED));
    }

    #[test]
    fn services_of_operators_are_accepted() {
        for torrc in [
            "HiddenServiceDir /h\nHiddenServicePort 80\n",
            "HiddenServiceDir /h\nHiddenServicePort 80\nHiddenServiceDir /i\nHiddenServicePort 80\n",
            "hiddenservicedir /h\nhiddenserviceport 80\nhiddenserviceversion 3\n",
        ] {
            load_text(torrc, &host()).unwrap();
        }
        for line in [
            "HiddenServiceVersion 4\nHiddenServiceVersion 3",
            "HiddenServiceVersion",
            "HiddenServiceMaxStreams 65535",
            "HiddenServiceNumIntroductionPoints 20",
            "HiddenServiceExportCircuitID HAProxy",
            "HiddenServicePoWDefensesEnabled 1",
            "HiddenServiceEnableIntroDoSDefense 1\nHiddenServiceEnableIntroDoSRatePerSec 200",
            // A limit that is switched off is not checked.
            "HiddenServiceEnableIntroDoSRatePerSec 100\nHiddenServiceEnableIntroDoSBurstPerSec 10",
        ] {
            load_text(&service(line), &host()).unwrap_or_else(|why| panic!("{line}: {why}"));
        }
    }

    #[test]
    fn a_service_begins_with_its_own_directory_and_has_a_port() {
        for option in ["Port 80", "Version 4", "MaxStreams 1", "PoWQueueRate 1"] {
            let name = option.split(' ').next().unwrap();
            let c_tor = format!("HiddenService{name} with no preceding HiddenServiceDir directive");
            is_refused(&format!("HiddenService{option}\n"), 1, &c_tor);
            is_refused(
                &format!("# why\nHiddenService{option}\n{}", service("")),
                2,
                &c_tor,
            );
        }
        let lacks = "Hidden service (\"/h\") with no ports configured.";
        is_refused("HiddenServiceDir /h\n", 1, lacks);
        is_refused(
            &format!("HiddenServiceDir /h\n{}", service("").replace("/h", "/i")),
            1,
            lacks,
        );
        is_refused(
            &service(&service("")),
            3,
            "Another hidden service is already configured for directory \"/h\"",
        );
    }

    #[test]
    fn numbers_and_flags_of_a_service_are_in_range() {
        let cannot = "Can't parse configuration for onion service: Could not parse";
        let int = |name: &str, value: &str, least: i64| {
            format!(
                "{cannot} {name}: Integer {value} is malformed or out of bounds. Allowed values \
                 are between {least} and 2147483647."
            )
        };
        is_refused(
            &service("HiddenServiceVersion 2"),
            3,
            "Onion services version 2 are obsolete. Please see \
             https://blog.torproject.org/v2-deprecation-timeline for more details and for \
             instructions on how to transition to version 3.",
        );
        is_refused(
            &service("HiddenServiceVersion 4"),
            3,
            "HiddenServiceVersion must be 3, not 4.",
        );
        for bad in ["x", "99999999999"] {
            let c_tor = int("HiddenServiceVersion", bad, i64::from(i32::MIN));
            is_refused(&service(&format!("HiddenServiceVersion {bad}")), 3, &c_tor);
        }
        for (name, range, outside) in [
            ("HiddenServiceMaxStreams", "0 and 65535", "65536"),
            ("HiddenServiceNumIntroductionPoints", "3 and 20", "0"),
            ("HiddenServiceNumIntroductionPoints", "3 and 20", "2"),
            ("HiddenServiceNumIntroductionPoints", "3 and 20", "21"),
        ] {
            let c_tor = format!("{name} must be between {range}, not {outside}.");
            is_refused(&service(&format!("{name} {outside}")), 3, &c_tor);
        }
        for name in [
            "HiddenServiceMaxStreams",
            "HiddenServiceNumIntroductionPoints",
            "HiddenServiceEnableIntroDoSRatePerSec",
            "HiddenServiceEnableIntroDoSBurstPerSec",
            "HiddenServicePoWQueueRate",
            "HiddenServicePoWQueueBurst",
        ] {
            for bad in ["-1", "x", "2147483648", "5 6"] {
                is_refused(&service(&format!("{name} {bad}")), 3, &int(name, bad, 0));
            }
        }
        for name in [
            "MaxStreamsCloseCircuit",
            "DirGroupReadable",
            "EnableIntroDoSDefense",
            "PoWDefensesEnabled",
            "OnionBalanceInstance",
            "AllowUnknownPorts",
        ] {
            let name = format!("HiddenService{name}");
            for bad in ["2", "01", "yes", "auto"] {
                let c_tor = format!(
                    "{cannot} {name}: Unrecognized value {bad}. Allowed values are 0 and 1."
                );
                is_refused(&service(&format!("{name} {bad}")), 3, &c_tor);
            }
        }
        is_refused(
            &service("HiddenServiceExportCircuitID foo"),
            3,
            "HiddenServiceExportCircuitID must be 'haproxy' or 'none'.",
        );
    }

    #[test]
    fn a_burst_is_at_least_the_rate() {
        let torrc =
            |lines: &str| service(&format!("HiddenServiceEnableIntroDoSDefense 1\n{lines}"));
        is_refused(
            &torrc(
                "HiddenServiceEnableIntroDoSRatePerSec 100\nHiddenServiceEnableIntroDoSBurstPerSec 10",
            ),
            5,
            "Hidden service DoS defenses burst (10) can not be smaller than the rate value (100).",
        );
        is_refused(
            &torrc("HiddenServiceEnableIntroDoSRatePerSec 201"),
            4,
            "Hidden service DoS defenses burst (200) can not be smaller than the rate value (201).",
        );
        is_refused(
            &service("HiddenServicePoWDefensesEnabled 1\nHiddenServicePoWQueueBurst 10"),
            4,
            "Hidden service PoW queue burst (10) can not be smaller than the rate value (250).",
        );
    }

    #[test]
    fn a_port_of_a_service_leads_to_a_port_an_address_or_a_socket() {
        let torrc = |port: &str| format!("HiddenServiceDir /h\nHiddenServicePort {port}\n");
        for port in [
            "80",
            "+80",
            "080 080",
            "80 8080",
            "80 \t8080",
            "80 127.0.0.1",
            "80 127.0.0.1:8080",
            "80 127.1:80",
            "80 ::1",
            "80 [::1]",
            "80 [::1]:8080",
            "80 localhost:8080",
            "80 web.example:8080",
            "80 unix:/a",
            "80 unix:\"/a b\"",
        ] {
            load_text(&torrc(port), &host()).unwrap_or_else(|why| panic!("{port}: {why}"));
        }
        let mapping = "HiddenServicePort parse error: invalid port mapping";
        for port in ["80 foo bar", "80 3 4", "80 unix:/a b", "80 unix:\"/a\" b"] {
            is_refused(&torrc(port), 2, mapping);
        }
        for port in ["0", "70000", "x", "80,443", "80-90", "80x", "80\t8080"] {
            let c_tor =
                format!("Missing or invalid port {port:?} in hidden service port configuration");
            is_refused(&torrc(port), 2, &c_tor);
        }
        for port in ["70000", "0", "localhost", "auto", "-1", "80x"] {
            let c_tor = format!(
                "Unparseable or out-of-range port \"{port}\" in hidden service port configuration."
            );
            is_refused(&torrc(&format!("80 {port}")), 2, &c_tor);
        }
        for target in [
            "127.0.0.1:0",
            "127.0.0.1:",
            "1.2.3.4:99999",
            "999.1.1.1:80",
            "[::1]:0",
            "[::1:80",
            ":80",
            "*:80",
            "nosuch.invalid:0",
            "\"127.0.0.1:80\"",
            "UNIX:/a",
        ] {
            let c_tor = "Unparseable address in hidden service port configuration.";
            is_refused(&torrc(&format!("80 {target}")), 2, c_tor);
        }
        is_refused(
            &torrc("80 unix:\"/a"),
            2,
            "Couldn't process address <unix:\"/a> from hidden service configuration",
        );
    }

    #[test]
    fn services_that_are_not_anonymous_exclude_clients() {
        let modes = "HiddenServiceNonAnonymousMode 1\nHiddenServiceSingleHopMode 1\n";
        load_text(&format!("{modes}SocksPort 0\nDNSPort 0\n"), &host()).unwrap();
        for ports in [
            "",
            "ORPort 9001\nContactInfo x\nExitRelay 0\n",
            "SocksPort 9050\n",
            "SocksPort unix:/s\n",
            "SocksPort 0\nDNSPort 53\n",
            "SocksPort 0\nTransPort 9040\n",
            "SocksPort 0\nNATDPort 9041\n",
            "SocksPort 0\nHTTPTunnelPort 9080\n",
        ] {
            let (_, log) = refused(&format!("{modes}{ports}"));
            assert_eq!(
                log,
                [
                    "Failed to parse/validate config: HiddenServiceNonAnonymousMode is incompatible \
                     with using Tor as an anonymous client. Please set Socks/Trans/NATD/DNSPort to 0, \
                     or revert HiddenServiceNonAnonymousMode to 0.",
                    FAILED
                ],
                "{ports}"
            );
        }
    }

    #[test]
    fn the_directory_of_a_clients_keys_exists() {
        load_text("ClientOnionAuthDir /keys\n", &host()).unwrap();
        load_text("ClientOnionAuthDir\n", &host()).unwrap();
        for relay in ["", "ORPort 9001\nContactInfo x\nExitRelay 0\n"] {
            for (path, c_tor) in [
                ("/nonexistent/x", "Directory /nonexistent/x does not exist."),
                ("/file", "/file is not a directory"),
            ] {
                let (errors, log) = refused(&format!("ClientOnionAuthDir {path}\n{relay}"));
                assert!(errors.starts_with("torrc:1: "), "{errors}");
                assert!(log[0].starts_with(c_tor), "{log:?}");
                assert_eq!(log[1..], [CLIENT_SUMMARY, FAILED]);
            }
        }
    }
}
