//! A relay that is a bridge, and its pluggable transports (relay_config.c, transport_config.c).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use weft_proxy::transports::{is_identifier, is_key_value};

use crate::host::Host;
use crate::options::client_ports::invalid_port;
use crate::options::network::BindPair;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::table::value::ListLine;
use crate::text::address::{parse_address, parse_address_port};
use crate::text::ports::{OrPort, parse_relay_ports};

/// Methods of distributing bridges to users that authorities know
/// (`check_bridge_distribution_setting`).
const DISTRIBUTIONS: [&str; 5] = ["none", "any", "https", "email", "settings"];

/// A relay that is a bridge, and its pluggable transports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeRelayOptions {
    /// `BridgeRelay`: this relay is a bridge.
    pub enabled: bool,
    /// `BridgeDistribution`, in lower case; of a bridge alone.
    pub distribution: Option<String>,
    /// `BridgeRecordUsageByCountry`, of a bridge: its users are counted.
    pub count_users: bool,
    /// `ServerTransportPlugin`: the programs that are started.
    pub programs: Vec<TransportProgram>,
    /// `ServerTransportListenAddr`: where transports must listen, the first for each.
    pub listen: Vec<(String, String)>,
    /// `ServerTransportOptions`: for transports, each as `key=value`.
    pub transport_options: Vec<(String, String)>,
    /// `OutboundBindAddressPT`, else `OutboundBindAddress`: addresses that programs connect from.
    pub outbound: BindPair,
    /// `ExtORPort`, ready to bind.
    pub ext_or_ports: Vec<OrPort>,
    /// `ExtORPortCookieAuthFile`.
    pub cookie_file: PathBuf,
    /// `ExtORPortCookieAuthFileGroupReadable`.
    pub cookie_group_readable: bool,
}

/// A program of pluggable transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportProgram {
    /// The transports that it must offer.
    pub transports: Vec<String>,
    /// The file, and its arguments.
    pub command: Vec<String>,
}

/// Checks them. C tor logs the reason as a separate warning, where it stops at a line it cannot
/// read.
pub(crate) fn check(settings: &Settings, has_or_port: bool, is_relay: bool, report: &mut Report) {
    check_bridge(settings, has_or_port, report);
    check_transports(settings, is_relay, report);
}

fn check_bridge(settings: &Settings, has_or_port: bool, report: &mut Report) {
    let bridge = settings.flag(keys::BridgeRelay);
    let origin = settings.origin(keys::BridgeRelay);
    let words = settings.words(keys::PublishServerDescriptor);
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    let to_authorities = has("v3") || has("1") && !bridge;
    if (bridge || has("bridge")) && to_authorities {
        refuse(
            report,
            settings,
            keys::PublishServerDescriptor.untyped(),
            "Bridges are not supposed to publish router descriptors to the directory authorities. Please correct your \
             PublishServerDescriptor line.",
        );
    }
    if let Some(wanted) = settings.text(keys::BridgeDistribution) {
        let key = keys::BridgeDistribution.untyped();
        let keyword = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let known = DISTRIBUTIONS
            .iter()
            .any(|name| name.eq_ignore_ascii_case(wanted));
        if !bridge {
            let why = "You set BridgeDistribution, but you didn't set BridgeRelay!";
            refuse(report, settings, key, why);
        } else if !wanted.bytes().all(keyword) {
            refuse(report, settings, key, "Invalid BridgeDistribution value.");
        } else if !known && !wanted.is_empty() {
            report.warn(
                settings.origin(keys::BridgeDistribution),
                format!(
                    "Unrecognized BridgeDistribution value \"{wanted}\". I'll assume you know what you are doing..."
                ),
            );
        }
    }
    if !bridge {
        return;
    }
    if !has_or_port {
        refuse(
            report,
            settings,
            keys::BridgeRelay.untyped(),
            "BridgeRelay is 1, ORPort is not set. This is an invalid combination.",
        );
    }
    if !settings.flag(keys::DirCache) {
        refuse(
            report,
            settings,
            keys::DirCache.untyped(),
            "We're a bridge but DirCache is disabled. BridgeRelay requires DirCache.",
        );
    }
    let dir_port = settings.lines(keys::DirPortLines).iter();
    if let Some(line) = dir_port.into_iter().find(|line| line.value.trim() != "0") {
        report.warn(
            Some(&line.origin),
            "Can't set a DirPort on a bridge relay; disabling DirPort",
        );
    }
    let exits = match settings.auto_flag(keys::ExitRelay) {
        Some(exits) => exits,
        None => {
            settings.flag(keys::ReducedExitPolicy)
                || settings.flag(keys::IPv6Exit)
                || !settings.lines(keys::ExitPolicy).is_empty()
        }
    };
    if exits {
        report.warn(
            origin,
            "BridgeRelay is 1, but ExitRelay is 1 or an ExitPolicy is configured. Tor will start, but it will not \
             function as an exit relay.",
        );
    }
    let family = settings.lines(keys::MyFamily);
    if let Some(line) = family.first() {
        report.warn(
            Some(&line.origin),
            "Listing a family for a bridge relay is not supported: it can reveal bridge fingerprints to censors. You \
             should also make sure you aren't listing this bridge's fingerprint in any other MyFamily.",
        );
    }
}

fn check_transports(settings: &Settings, is_relay: bool, report: &mut Report) {
    let plugins = settings.lines(keys::ServerTransportPlugin);
    if let Some(first) = plugins.first().filter(|_| !is_relay) {
        let value = &first.value;
        report.notice(
            Some(&first.origin),
            format!(
                "Tor is not configured as a relay but you specified a ServerTransportPlugin line (\"{value}\"). The \
                 ServerTransportPlugin line will be ignored."
            ),
        );
    }
    let listen = settings.lines(keys::ServerTransportListenAddr);
    if let Some(line) = listen.first().filter(|_| plugins.is_empty()) {
        report.notice(
            Some(&line.origin),
            "You need at least a single managed-proxy to specify a transport listen address. The \
             ServerTransportListenAddr line will be ignored.",
        );
    }
    for line in plugins {
        match plugin(&line.value) {
            Ok(Some(_)) if settings.flag(keys::NoExec) => {
                report.warn(
                    Some(&line.origin),
                    "Managed proxies are not compatible with NoExec mode; ignoring. (ServerTransportPlugin)",
                );
            }
            Ok(_) => {}
            Err(why) => {
                let summary = "Invalid server transport line. See logs for details.";
                refuse_line(report, line, why, summary);
            }
        }
    }
    for line in listen {
        if let Err(why) = listen_address(&line.value) {
            let summary = "ServerTransportListenAddr did not parse. See logs for details.";
            refuse_line(report, line, why, summary);
        }
    }
    for line in settings.lines(keys::ServerTransportOptions) {
        if let Err(why) = transport_options(&line.value) {
            let summary = "ServerTransportOptions did not parse. See logs for details.";
            refuse_line(report, line, why, summary);
        }
    }
    let ports = settings.lines(keys::ExtORPortLines).iter();
    let has_ext_or = ports.into_iter().any(|line| line.value.trim() != "0");
    if is_relay && !plugins.is_empty() && !has_ext_or {
        report.notice(
            settings.origin(keys::ServerTransportPlugin),
            "We use pluggable transports but the Extended ORPort is disabled. Tor and your pluggable transports proxy \
             communicate with each other via the Extended ORPort so it is suggested you enable it: it will also allow \
             your Bridge to collect statistics about its clients that use pluggable transports. Please enable it using \
             the ExtORPort torrc option (e.g. set 'ExtORPort auto').",
        );
    }
}

fn refuse(report: &mut Report, settings: &Settings, key: Key<()>, why: &str) {
    let message = format!("Failed to parse/validate config: {why}");
    report.error_with_c_tor_message(settings.origin(key), why, message);
}

fn refuse_line(report: &mut Report, line: &ListLine, why: String, summary: &str) {
    let message = format!("Failed to parse/validate config: {summary}");
    report.error_with_c_tor_message(Some(&line.origin), why, message);
}

/// A line of `ServerTransportPlugin`. `None`: a program that runs without us.
fn plugin(line: &str) -> Result<Option<TransportProgram>, String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [names, kind, rest @ ..] = words.as_slice() else {
        return Err("Too few arguments on ServerTransportPlugin line.".to_owned());
    };
    if rest.is_empty() {
        return Err("Too few arguments on ServerTransportPlugin line.".to_owned());
    }
    let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
    if let Some(name) = names.iter().find(|name| !is_identifier(name)) {
        return Err(format!("Transport name is not a C identifier ({name})."));
    }
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match *kind {
        "exec" => Ok(Some(TransportProgram {
            transports: owned(&names),
            command: owned(rest),
        })),
        "proxy" => {
            if names.len() != 1 {
                return Err(
                    "You can't have an external proxy with more than one transport.".to_owned(),
                );
            }
            let address = rest.first().copied().unwrap_or_default();
            match parse_address_port(address) {
                Some(parsed) if parsed.port.is_some() => Ok(None),
                Some(_) => Err(format!("Transport address '{address}' has no port.")),
                None => Err(format!("Error parsing transport address '{address}'")),
            }
        }
        other => Err(format!("Strange ServerTransportPlugin type '{other}'")),
    }
}

/// A line of `ServerTransportListenAddr`: the transport, and its address and port as they stand there.
fn listen_address(line: &str) -> Result<(String, String), String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(address)) = (words.next(), words.next()) else {
        return Err("Too few arguments on ServerTransportListenAddr line.".to_owned());
    };
    // Without a port no transport could listen: the port may be 0, which is any.
    address
        .parse::<SocketAddr>()
        .map_err(|_| format!("Error parsing ServerTransportListenAddr address '{address}'"))?;
    Ok((name.to_owned(), address.to_owned()))
}

/// A line of `ServerTransportOptions`: the transport, and its settings.
fn transport_options(line: &str) -> Result<Vec<(String, String)>, String> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let options: Vec<&str> = words.collect();
    if options.is_empty() {
        return Err("Too few arguments on ServerTransportOptions line.".to_owned());
    }
    if let Some(bad) = options.iter().find(|option| !is_key_value(option)) {
        return Err(format!("\"{bad}\" is not a k=v value."));
    }
    let named = options
        .iter()
        .map(|option| (name.to_owned(), (*option).to_owned()));
    Ok(named.collect())
}

/// Reads them.
pub(crate) fn read(
    settings: &Settings,
    host: &dyn Host,
    is_relay: bool,
    data_directory: &Path,
    report: &mut Report,
) -> BridgeRelayOptions {
    if !is_relay {
        // The lines are checked all the same.
        ext_or_ports(settings, host, report);
        return BridgeRelayOptions::default();
    }
    let enabled = settings.flag(keys::BridgeRelay);
    let distribution = settings.text(keys::BridgeDistribution).unwrap_or_default();
    let distribution = match distribution {
        "" => "any".to_owned(),
        given => given.to_ascii_lowercase(),
    };
    let mut listen: Vec<(String, String)> = Vec::new();
    for (name, address) in settings
        .texts(keys::ServerTransportListenAddr)
        .into_iter()
        .filter_map(|line| listen_address(line).ok())
    {
        if !listen.iter().any(|(known, _)| *known == name) {
            listen.push((name, address));
        }
    }
    let mut transport_options_of: Vec<(String, String)> = Vec::new();
    for options in settings
        .texts(keys::ServerTransportOptions)
        .into_iter()
        .filter_map(|line| transport_options(line).ok())
    {
        // The first line of a transport counts, as in C tor.
        let known = |name| transport_options_of.iter().any(|(known, _)| known == name);
        if options.first().is_some_and(|(name, _)| !known(name)) {
            transport_options_of.extend(options);
        }
    }
    let cookie_file = settings.text(keys::ExtORPortCookieAuthFile);
    let cookie_file = cookie_file.filter(|path| !path.is_empty());
    BridgeRelayOptions {
        enabled,
        distribution: enabled.then_some(distribution),
        count_users: enabled && settings.flag(keys::BridgeRecordUsageByCountry),
        programs: match settings.flag(keys::NoExec) {
            true => Vec::new(),
            false => programs(settings),
        },
        listen,
        transport_options: transport_options_of,
        outbound: outbound(settings),
        ext_or_ports: ext_or_ports(settings, host, report),
        cookie_file: cookie_file.map_or_else(
            || data_directory.join("extended_orport_auth_cookie"),
            PathBuf::from,
        ),
        cookie_group_readable: settings.flag(keys::ExtORPortCookieAuthFileGroupReadable),
    }
}

/// The programs: lines with the same command are of one program.
fn programs(settings: &Settings) -> Vec<TransportProgram> {
    let mut programs: Vec<TransportProgram> = Vec::new();
    let plugins = settings.texts(keys::ServerTransportPlugin).into_iter();
    for new in plugins.filter_map(|line| plugin(line).ok().flatten()) {
        let at = programs.iter().position(|one| one.command == new.command);
        let of = match at.and_then(|at| programs.get_mut(at)) {
            Some(known) => known,
            None => {
                programs.push(TransportProgram {
                    transports: Vec::new(),
                    command: new.command,
                });
                match programs.last_mut() {
                    Some(last) => last,
                    None => continue,
                }
            }
        };
        for name in new.transports {
            if !of.transports.contains(&name) {
                of.transports.push(name);
            }
        }
    }
    programs
}

/// Addresses that programs connect from. Errors in these lines are reported where the relay's own
/// are read.
fn outbound(settings: &Settings) -> BindPair {
    let mut pair = BindPair::default();
    for key in [keys::OutboundBindAddressPT, keys::OutboundBindAddress] {
        for line in settings.lines(key) {
            match parse_address(line.value.trim()) {
                Some(IpAddr::V4(v4)) => pair.v4 = pair.v4.or(Some(v4)),
                Some(IpAddr::V6(v6)) => pair.v6 = pair.v6.or(Some(v6)),
                None => {}
            }
        }
    }
    pair
}

/// The ExtORPorts, on 127.0.0.1 unless an address is named.
fn ext_or_ports(settings: &Settings, host: &dyn Host, report: &mut Report) -> Vec<OrPort> {
    let mut ports = Vec::new();
    for line in settings.lines(keys::ExtORPortLines) {
        let parsed = parse_relay_ports(
            line.name,
            &[line.value.as_str()],
            &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            &|name| host.resolve(name),
            &mut Vec::new(),
        );
        match parsed {
            Ok(parsed) => {
                for port in parsed {
                    if !port.address.is_loopback() {
                        report.warn(
                            Some(&line.origin),
                            format!(
                                "You specified a public address '{}' for {}. This is not advised; this address is \
                                 supposed to only be exposed on localhost so that your pluggable transport proxies can \
                                 connect to it.",
                                port.to_bind(),
                                line.name
                            ),
                        );
                    }
                    ports.push(OrPort {
                        explicit_address: true,
                        advertise: false,
                        listen: true,
                        ..port
                    });
                }
            }
            Err(why) => {
                report.error_with_c_tor_message(Some(&line.origin), why, invalid_port(line.name));
            }
        }
    }
    ports
}

#[cfg(test)]
mod tests;
