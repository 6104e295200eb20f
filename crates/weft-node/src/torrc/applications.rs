//! What torrc says of applications and controllers: their ports, policies and passwords (config.c,
//! `parse_ports`; control_auth.c, `decode_hashed_passwords`).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64ct::{Base64, Encoding as _};

use super::client_ports::{
    AppPort, AppService, Grammar, ListenAt, Parsed, StreamFlags, parse_client_ports,
};
use super::host::Host;
use super::options::{AppOptions, ControlOptions};
use super::ports::PortNumber;
use super::report::Report;
use super::settings::Settings;

/// Where applications find a client unless torrc says otherwise.
const DEFAULT_SOCKS_PORT: u16 = 9050;

/// Reads the lines of one port option.
fn ports(
    grammar: Grammar,
    name: &str,
    settings: &Settings,
    host: &Host,
    report: &mut Report,
) -> Vec<Parsed> {
    let lines = settings.lines(name);
    let texts: Vec<&str> = lines.iter().map(|line| line.value.as_str()).collect();
    let mut warnings = Vec::new();
    let origin = settings.origin(name);
    let parsed = parse_client_ports(grammar, &texts, &host.resolve, &mut warnings);
    for warning in warnings {
        report.warn(origin, warning);
    }
    parsed.unwrap_or_else(|why| {
        report.error_in_tors_words(origin, why, invalid_port(grammar.option));
        Vec::new()
    })
}

/// C tor's words for a port that cannot be read.
pub(super) fn invalid_port(option: &str) -> String {
    format!("Failed to parse/validate config: Invalid {option} configuration")
}

/// Ports of a word list, without those that are none (C tor reads them with `atoi`-like care).
fn port_numbers(name: &str, settings: &Settings, report: &mut Report) -> Vec<u16> {
    let mut numbers = Vec::new();
    for word in settings.csv(name) {
        match word.parse() {
            Ok(number) if number != 0 => numbers.push(number),
            _ => report.error(
                settings.origin(name),
                format!("{name}: \"{word}\" is not a port"),
            ),
        }
    }
    numbers
}

/// What applications may use the node for.
pub(super) fn app_options(
    settings: &Settings,
    host: &Host,
    is_relay: bool,
    report: &mut Report,
) -> AppOptions {
    let mut all = Vec::new();
    for (option, name, service) in [
        ("SocksPort", "SocksPortLines", AppService::Socks),
        (
            "HTTPTunnelPort",
            "HTTPTunnelPortLines",
            AppService::HttpTunnel,
        ),
        ("DNSPort", "DNSPortLines", AppService::Dns),
    ] {
        let grammar = Grammar {
            option,
            service: Some(service),
            paths: false,
            group_writable: settings.flag("UnixSocksGroupWritable"),
        };
        let parsed = ports(grammar, name, settings, host, report);
        all.extend(
            parsed
                .into_iter()
                .map(|(at, flags)| AppPort { service, at, flags }),
        );
    }
    if settings.lines("SocksPortLines").is_empty() && !is_relay {
        let default = AppPort {
            service: AppService::Socks,
            at: ListenAt::Tcp {
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                port: PortNumber::Fixed(DEFAULT_SOCKS_PORT),
            },
            flags: StreamFlags::default(),
        };
        all.insert(0, default);
    }
    let mut options = AppOptions {
        ports: all,
        safe_socks: settings.flag("SafeSocks"),
        test_socks: settings.flag("TestSocks"),
        timeout: Duration::from_secs(u64::try_from(settings.number("SocksTimeout")).unwrap_or(0)),
        reject_internal_addresses: settings.flag("ClientRejectInternalAddresses"),
        reject_internal_answers: settings.flag("ClientDNSRejectInternalAddresses"),
        allow_strange_names: settings.flag("AllowNonRFC953Hostnames"),
        warn_plaintext_ports: port_numbers("WarnPlaintextPorts", settings, report),
        reject_plaintext_ports: port_numbers("RejectPlaintextPorts", settings, report),
        ..AppOptions::default()
    };
    for (option, ipv6) in [
        ("VirtualAddrNetworkIPv4", false),
        ("VirtualAddrNetworkIPv6", true),
    ] {
        let text = settings.text(option).unwrap_or_default();
        let set = match ipv6 {
            _ if text.is_empty() => Ok(()),
            true => options.virtual_networks.set_ipv6(text),
            false => options.virtual_networks.set_ipv4(text),
        };
        if let Err(why) = set {
            report.error(settings.origin(option), format!("{option}: {why}"));
        }
    }
    for line in settings.lines("SocksPolicy") {
        let mut warnings = Vec::new();
        // What is wrong with a policy is told by `validate`.
        let _ = options.policy.add(&line.value, &mut warnings);
        for warning in warnings {
            report.warn(Some(&line.origin), format!("SocksPolicy: {warning}"));
        }
    }
    options
}

/// Who may control the node.
pub(super) fn control_options(
    settings: &Settings,
    host: &Host,
    data_directory: &Path,
    report: &mut Report,
) -> ControlOptions {
    let mut hashed_passwords = Vec::new();
    for name in ["HashedControlPassword", "__HashedControlSessionPassword"] {
        for line in settings.lines(name) {
            match hashed_password(&line.value) {
                Some(hash) => hashed_passwords.push(hash),
                None => report.error(
                    Some(&line.origin),
                    format!(
                        "{name}: this is not a hashed password; make one with \"tor \
                         --hash-password\""
                    ),
                ),
            }
        }
    }
    let path = |name: &str| settings.text(name).and_then(|text| host.expand(text));
    let cookie_file = settings.flag("CookieAuthentication").then(|| {
        path("CookieAuthFile").unwrap_or_else(|| data_directory.join("control_auth_cookie"))
    });
    let mut listen = Vec::new();
    for (option, name, paths) in [
        ("ControlPort", "ControlPortLines", false),
        ("ControlSocket", "ControlSocket", true),
    ] {
        let grammar = Grammar {
            option,
            service: None,
            paths,
            group_writable: settings.flag("ControlSocketsGroupWritable"),
        };
        let parsed = ports(grammar, name, settings, host, report);
        listen.extend(parsed.into_iter().map(|(at, _)| at));
    }
    let open = hashed_passwords.is_empty() && cookie_file.is_none();
    listen.retain(|at| is_safe(at, open, settings, report));
    ControlOptions {
        ports: listen,
        cookie_file,
        cookie_group_readable: settings.flag("CookieAuthFileGroupReadable"),
        hashed_passwords,
        write_to_file: path("ControlPortWriteToFile").filter(|path| *path != PathBuf::new()),
        file_group_readable: settings.flag("ControlPortFileGroupReadable"),
        owning_process: owning_process(settings, report),
    }
}

/// The process that the node belongs to.
fn owning_process(settings: &Settings, report: &mut Report) -> Option<u32> {
    const NAME: &str = "__OwningControllerProcess";
    let text = settings.text(NAME)?;
    let process = text.trim().parse().ok().filter(|process| *process > 0);
    if process.is_none() {
        report.error(
            settings.origin(NAME),
            format!("{NAME}: \"{text}\" is not a process"),
        );
    }
    process
}

/// Whether a control port may be opened: never to other machines without a password
/// (`warn_nonlocal_controller_ports`).
fn is_safe(at: &ListenAt, open: bool, settings: &Settings, report: &mut Report) -> bool {
    let origin = settings.origin("ControlPortLines");
    match at {
        ListenAt::Unix(unix) => {
            if unix.world_writable && open {
                report.warn(
                    settings.origin("ControlSocket"),
                    format!(
                        "ControlSocket {} is WorldWritable and asks for no password: every user \
                         of this machine can reconfigure the node",
                        unix.path.display()
                    ),
                );
            }
            true
        }
        ListenAt::Tcp { address, .. } if address.is_loopback() => {
            if open {
                report.warn(
                    origin,
                    "ControlPort is open, but no authentication is set: every program of this \
                     machine can reconfigure the node. Set CookieAuthentication 1 or a \
                     HashedControlPassword",
                );
            }
            true
        }
        ListenAt::Tcp { address, .. } if open => {
            report.warn(
                origin,
                format!(
                    "ControlPort on {address} would let programs of other machines reconfigure \
                     the node without so much as a password: it is not opened. Set \
                     CookieAuthentication 1 or a HashedControlPassword"
                ),
            );
            false
        }
        ListenAt::Tcp { address, .. } => {
            report.warn(
                origin,
                format!(
                    "ControlPort on {address} is reached from other machines, and what is said \
                     there is not encrypted; better listen on 127.0.0.1 and use a tunnel"
                ),
            );
            true
        }
    }
}

/// `16:` and 58 hexadecimal digits, or 29 bytes in base64.
fn hashed_password(text: &str) -> Option<[u8; 29]> {
    let text = text.trim();
    let bytes = match text.strip_prefix("16:") {
        Some(digits) => hex::decode(digits).ok()?,
        None => Base64::decode_vec(text).ok()?,
    };
    bytes.try_into().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use crate::torrc::{Host, Options, load_text};

    fn options(torrc: &str) -> Options {
        match load_text(torrc, &Host::empty()) {
            Ok(loaded) => loaded.options,
            Err(report) => panic!("{torrc}\n{report}"),
        }
    }

    fn ports(torrc: &str) -> Vec<String> {
        let ports = options(torrc).apps.ports;
        ports
            .iter()
            .map(|port| format!("{} {}", port.service, port.at))
            .collect()
    }

    const RELAY: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\n";

    #[test]
    fn a_node_that_says_nothing_is_a_client() {
        assert_eq!(ports(""), ["Socks 127.0.0.1:9050"]);
        assert_eq!(
            ports("DNSPort 53"),
            ["Socks 127.0.0.1:9050", "DNS 127.0.0.1:53"]
        );
        assert!(ports("SocksPort 0").is_empty());
        assert!(ports(RELAY).is_empty());
        assert_eq!(
            ports(&format!("{RELAY}SocksPort auto\nHTTPTunnelPort 8118\n")),
            ["Socks 127.0.0.1:auto", "HTTP tunnel 127.0.0.1:8118"]
        );
        assert!(options("").is_client() && !options(RELAY).is_client());
    }

    #[test]
    fn applications_are_treated_as_torrc_says() {
        let apps = options(
            "SafeSocks 1\nTestSocks 1\nSocksTimeout 5 seconds\nRejectPlaintextPorts 23,109\n\
             WarnPlaintextPorts 25\nSocksPolicy accept 10.0.0.0/8, reject *\n\
             ClientRejectInternalAddresses 0\n",
        )
        .apps;
        assert!(apps.safe_socks && apps.test_socks && !apps.reject_internal_addresses);
        assert_eq!(apps.timeout.as_secs(), 5);
        assert_eq!(apps.reject_plaintext_ports, [23, 109]);
        assert_eq!(apps.warn_plaintext_ports, [25]);
        assert!(apps.policy.rejects("127.0.0.1".parse().unwrap()));
        assert!(!apps.policy.rejects("10.0.0.1".parse().unwrap()));
        assert!(load_text("WarnPlaintextPorts x", &Host::empty()).is_err());
    }

    #[test]
    fn a_control_port_is_guarded() {
        let hash = "16:660537E3E1CD49996044A3BF558097A981F539FEA2F9DA662B4626C1C2";
        let control = options(&format!(
            "ControlPort 9051\nControlSocket /run/c\nHashedControlPassword {hash}\n\
             CookieAuthentication 1\n__OwningControllerProcess 12\n"
        ))
        .control;
        assert_eq!(control.ports.len(), 2);
        assert_eq!(control.hashed_passwords[0][8], 0x60);
        let cookie = control.cookie_file.unwrap();
        assert_eq!(
            cookie.to_str(),
            Some("/home/nobody/.tor/control_auth_cookie")
        );
        assert_eq!(control.owning_process, Some(12));
        // Other machines need a password.
        assert!(
            options("ControlPort 192.0.2.1:9051")
                .control
                .ports
                .is_empty()
        );
        let guarded = "ControlPort 192.0.2.1:9051\nCookieAuthentication 1";
        assert_eq!(options(guarded).control.ports.len(), 1);
        for wrong in [
            "HashedControlPassword 16:00",
            "HashedControlPassword x",
            "ControlPort x",
            "__OwningControllerProcess x",
        ] {
            assert!(load_text(wrong, &Host::empty()).is_err(), "{wrong}");
        }
    }
}
