//! Ports for applications, and what their streams may do (config.c, `parse_ports`).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::host::Host;
use crate::options::client_ports::{
    AppPort, AppService, Grammar, ListenAt, Redirection, StreamFlags, read_ports,
};
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::text::access::AccessPolicy;
use crate::text::ports::PortNumber;
use crate::text::virtual_networks::{Automap, VirtualNetworks};

/// Services for applications of this machine, and their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct AppOptions {
    /// `SocksPort`, `HTTPTunnelPort`, `TransPort`, `NATDPort`, `DNSPort`. Empty: this node is not a
    /// client.
    pub ports: Vec<AppPort>,
    /// `SocksPolicy`: which addresses are [refused](AccessPolicy::rejects).
    pub policy: AccessPolicy,
    /// `SafeSocks`: requests that show that the application looked up the name itself are refused.
    pub safe_socks: bool,
    /// `TestSocks`: each request is logged, as safe or unsafe.
    pub test_socks: bool,
    /// `SocksTimeout`: how long an application waits.
    pub timeout: Duration,
    /// `ClientRejectInternalAddresses`: private addresses are refused.
    pub reject_internal_addresses: bool,
    /// `ClientDNSRejectInternalAddresses`: exits are not believed that name private addresses.
    pub reject_internal_answers: bool,
    /// `AllowNonRFC953Hostnames`: names may have characters that names do not have.
    pub allow_strange_names: bool,
    /// `WarnPlaintextPorts`.
    pub warn_plaintext_ports: Vec<u16>,
    /// `RejectPlaintextPorts`.
    pub reject_plaintext_ports: Vec<u16>,
    /// Where addresses are taken from that controllers map, and `automap`.
    pub virtual_networks: VirtualNetworks,
    /// Names that get virtual addresses when they are looked up.
    pub automap: Automap,
}

/// Where applications find a client unless torrc has another port.
const DEFAULT_SOCKS_PORT: u16 = 9050;

/// Ports of a word list, without malformed ones (C tor reads them with `atoi`-like care).
fn port_numbers(key: Key<Vec<String>>, settings: &Settings, report: &mut Report) -> Vec<u16> {
    let mut numbers = Vec::new();
    for word in settings.words(key) {
        match word.parse() {
            Ok(number) if number != 0 => numbers.push(number),
            _ => report.error(
                settings.origin(key),
                format!("{key}: \"{word}\" is not a port"),
            ),
        }
    }
    numbers
}

/// `TransProxyType`: types that are useless on Linux are refused, as in C tor.
fn redirection(settings: &Settings, report: &mut Report) -> Redirection {
    let key = keys::TransProxyType;
    let text = settings.text(key).unwrap_or("default");
    let is = |name: &str| text.eq_ignore_ascii_case(name);
    let refused = if is("default") {
        return Redirection::Netfilter;
    } else if is("pf-divert") {
        ("pf-divert", "OpenBSD and macOS")
    } else if is("ipfw") {
        ("ipfw", "FreeBSD and macOS")
    } else if !is("tproxy") {
        report.error(
            settings.origin(key),
            format!("TransProxyType {text}: it must be \"default\" or \"TPROXY\""),
        );
        return Redirection::Netfilter;
    } else if settings.lines(keys::TransPortLines).is_empty() {
        report.error(
            settings.origin(key),
            "TransProxyType TPROXY needs a TransPort",
        );
        return Redirection::Netfilter;
    } else {
        return Redirection::Tproxy;
    };
    let (name, systems) = refused;
    report.error(
        settings.origin(key),
        format!("TransProxyType {name} is only for {systems}"),
    );
    Redirection::Netfilter
}

/// The ends of names that are mapped when they are looked up.
fn automap(settings: &Settings) -> Automap {
    match settings.flag(keys::AutomapHostsOnResolve) {
        true => Automap::new(settings.words(keys::AutomapHostsSuffixes)),
        false => Automap::default(),
    }
}

/// Reads them.
pub(crate) fn read(
    settings: &Settings,
    host: &dyn Host,
    is_relay: bool,
    report: &mut Report,
) -> AppOptions {
    let mut all = Vec::new();
    let redirection = redirection(settings, report);
    for (option, key, service) in [
        ("SocksPort", keys::SocksPortLines, AppService::Socks),
        (
            "HTTPTunnelPort",
            keys::HTTPTunnelPortLines,
            AppService::HttpTunnel,
        ),
        (
            "TransPort",
            keys::TransPortLines,
            AppService::Transparent(redirection),
        ),
        ("NATDPort", keys::NATDPortLines, AppService::Natd),
        ("DNSPort", keys::DNSPortLines, AppService::Dns),
    ] {
        let grammar = Grammar {
            option,
            service: Some(service),
            paths: false,
            group_writable: settings.flag(keys::UnixSocksGroupWritable),
        };
        let parsed = read_ports(grammar, key, settings, host, report);
        all.extend(
            parsed
                .into_iter()
                .map(|(at, flags)| AppPort { service, at, flags }),
        );
    }
    if settings.lines(keys::SocksPortLines).is_empty() && !is_relay {
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
        safe_socks: settings.flag(keys::SafeSocks),
        test_socks: settings.flag(keys::TestSocks),
        timeout: settings.time(keys::SocksTimeout),
        reject_internal_addresses: settings.flag(keys::ClientRejectInternalAddresses),
        reject_internal_answers: settings.flag(keys::ClientDNSRejectInternalAddresses),
        allow_strange_names: settings.flag(keys::AllowNonRFC953Hostnames),
        warn_plaintext_ports: port_numbers(keys::WarnPlaintextPorts, settings, report),
        reject_plaintext_ports: port_numbers(keys::RejectPlaintextPorts, settings, report),
        automap: automap(settings),
        ..AppOptions::default()
    };
    for (option, ipv6) in [
        (keys::VirtualAddrNetworkIPv4, false),
        (keys::VirtualAddrNetworkIPv6, true),
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
    for line in settings.lines(keys::SocksPolicy) {
        let mut warnings = Vec::new();
        // Errors in a policy were reported when settings were checked.
        let _ = options.policy.add(&line.value, &mut warnings);
        for warning in warnings {
            report.warn(Some(&line.origin), format!("SocksPolicy: {warning}"));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryHost, Options, load_text};

    fn options(torrc: &str) -> Options {
        match load_text(torrc, &MemoryHost::new()) {
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
    fn a_node_without_options_is_a_client() {
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
        assert!(!options("SocksPort 0").is_client());
        // Launchers add the ports that they want.
        assert!(options("SocksPort 0\nControlPort 9051").is_client());
        assert!(!options(&format!("{RELAY}ControlPort 9051")).is_client());
    }

    #[test]
    fn applications_are_treated_by_torrc() {
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
        assert!(load_text("WarnPlaintextPorts x", &MemoryHost::new()).is_err());
    }

    #[test]
    fn connections_that_a_firewall_redirects_have_ports_of_their_own() {
        assert_eq!(
            ports("SocksPort 0\nTransPort 9040 IsolateDestPort\n__NATDPort [::1]:8000\n"),
            [
                "Transparent pf/netfilter 127.0.0.1:9040",
                "Transparent natd [::1]:8000"
            ]
        );
        let service = |torrc: &str| options(torrc).apps.ports[0].service;
        let of = |redirection| AppService::Transparent(redirection);
        let port = "SocksPort 0\n__TransPort 9040\n";
        assert_eq!(service(port), of(Redirection::Netfilter));
        for (kind, is) in [
            ("default", Redirection::Netfilter),
            ("TPROXY", Redirection::Tproxy),
        ] {
            assert_eq!(service(&format!("{port}TransProxyType {kind}\n")), of(is));
        }
        for wrong in ["pf-divert", "ipfw", "x"] {
            let torrc = format!("{port}TransProxyType {wrong}\n");
            assert!(load_text(&torrc, &MemoryHost::new()).is_err(), "{wrong}");
        }
        assert!(load_text("TransProxyType TPROXY", &MemoryHost::new()).is_err());
    }

    #[test]
    fn names_are_mapped_by_their_ends_where_that_is_wanted() {
        let covers = |torrc: &str| {
            let automap = options(torrc).apps.automap;
            ["a.onion", "a.exit", "a.test", "a.example"].map(|name| automap.covers(name))
        };
        assert_eq!(covers("AutomapHostsSuffixes .test\n"), [false; 4]);
        let default = "AutomapHostsOnResolve 1\n";
        assert_eq!(covers(default), [true, true, false, false]);
        let set = "AutomapHostOnResolve 1\nAutomapHostSuffixes .Test,x\n";
        assert_eq!(covers(set), [false, false, true, false]);
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
            assert!(load_text(wrong, &MemoryHost::new()).is_err(), "{wrong}");
        }
    }
}
