//! What a client can reach: `ReachableAddresses`, `ReachableORAddresses`, `ReachableDirAddresses`,
//! `FascistFirewall` and `FirewallPorts` (config.c `options_validate_cb`, policies.c
//! `parse_reachable_addresses`).
//!
//! `ReachableDirAddresses` has no effect: a client asks directories by way of their ORPorts.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use weft_path::{AddressRule, Reachable};

use super::policy::{Family, PolicyEntry, parse_rules};
use super::report::Report;
use super::settings::Settings;

/// Replaces `FascistFirewall` by the addresses that it stands for, so that dumps agree with C tor's.
pub(super) fn convert_firewall(settings: &mut Settings, report: &mut Report) {
    let ports = settings.csv("FirewallPorts").to_vec();
    for word in &ports {
        if !word.parse().is_ok_and(|port: u16| port != 0) {
            report.error(
                settings.origin("FirewallPorts"),
                format!("FirewallPorts: \"{word}\" is not a port, a number from 1 to 65535"),
            );
        }
    }
    let (all, or, dir) = (
        "ReachableAddresses",
        "ReachableORAddresses",
        "ReachableDirAddresses",
    );
    if !settings.flag("FascistFirewall") || !settings.lines(all).is_empty() {
        return;
    }
    let mut stands_for = Vec::new();
    if ports.is_empty() {
        stands_for.push((dir, "*:80".to_owned()));
        stands_for.push((or, "*:443".to_owned()));
        stands_for.retain(|(name, _)| settings.lines(name).is_empty());
    } else {
        let ports: Vec<String> = ports.iter().map(|port| format!("*:{port}")).collect();
        stands_for.push((all, ports.join(",")));
    }
    for (name, value) in stands_for {
        report.notice(
            settings.origin("FascistFirewall"),
            format!("FascistFirewall stands for \"{name} {value}\""),
        );
        settings.correct_line(name, value);
    }
}

/// What the client may connect to.
pub(super) fn reachable(settings: &Settings, report: &mut Report) -> Reachable {
    let set = ["ReachableORAddresses", "ReachableAddresses"]
        .into_iter()
        .find(|name| !settings.lines(name).is_empty());
    let reachable = Reachable {
        ipv4: settings.flag("ClientUseIPv4"),
        ipv6: settings.flag("ClientUseIPv6"),
        prefer_ipv6: settings.auto("ClientPreferIPv6ORPort") == Some(1),
        rules: set.map(|name| rules(name, settings)),
    };
    let Some(name) = set else {
        return reachable;
    };
    let accepts = |family: Family| {
        let mut rules = reachable.rules.iter().flatten();
        rules.any(|rule| rule.accept && rule.network.is_ipv4() == (family == Family::V4))
    };
    let (v4, v6) = (accepts(Family::V4), accepts(Family::V6));
    let lost = match (v4 && reachable.ipv4, v6 && reachable.ipv6) {
        (false, false) => "Weft cannot connect to anything: no address is accepted",
        (false, true) => "Weft will not connect by IPv4: no address of it is accepted",
        (true, false) if reachable.prefer_ipv6 => {
            "Weft will not connect by IPv6: no address of it is accepted"
        }
        _ => return reachable,
    };
    report.warn(settings.origin(name), format!("{name}: {lost}"));
    reachable
}

/// The rules of an option, in order. What cannot be read was reported by `validate`.
fn rules(name: &str, settings: &Settings) -> Vec<AddressRule> {
    let mut entries: Vec<PolicyEntry> = Vec::new();
    for line in settings.lines(name) {
        let _ = parse_rules(&line.value, Some(true), &mut entries, &mut Vec::new());
    }
    let rule = |entry: PolicyEntry| AddressRule {
        accept: entry.accept,
        network: entry.address,
        bits: entry.prefix,
        ports: entry.port_min..=entry.port_max,
    };
    entries.into_iter().map(rule).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::SocketAddr;

    use crate::logging::Severity;
    use crate::torrc::{Host, Loaded, load_text};

    fn loaded(torrc: &str) -> Loaded {
        load_text(torrc, &Host::empty()).unwrap_or_else(|report| panic!("{torrc}\n{report}"))
    }

    fn allows(torrc: &str, addr: &str) -> bool {
        let addr: SocketAddr = addr.parse().unwrap();
        loaded(torrc).options.paths.reachable.allows(addr)
    }

    #[test]
    fn or_addresses_come_before_all_addresses() {
        let torrc = "ReachableAddresses *:80\nReachableORAddresses reject 192.0.2.0/24:*, *:443\n";
        assert!(allows(torrc, "198.51.100.1:443"));
        assert!(allows(torrc, "[2001:db8::1]:443"));
        for addr in ["192.0.2.1:443", "198.51.100.1:80", "198.51.100.1:9001"] {
            assert!(!allows(torrc, addr), "{addr}");
        }
        assert!(allows("ReachableAddresses *:80\n", "198.51.100.1:80"));
        // The manual: without ReachableAddresses there is no limit to the ORPorts.
        assert!(allows("ReachableDirAddresses *:80\n", "198.51.100.1:9001"));
        assert!(!allows("ClientUseIPv4 0\n", "198.51.100.1:9001"));
    }

    #[test]
    fn a_fascist_firewall_stands_for_ports() {
        assert!(allows("FascistFirewall 1\n", "192.0.2.1:443"));
        assert!(!allows("FascistFirewall 1\n", "192.0.2.1:80"));
        let ports = "FascistFirewall 1\nFirewallPorts 80, 9001\n";
        assert!(allows(ports, "192.0.2.1:9001") && !allows(ports, "192.0.2.1:443"));
        assert!(allows("FirewallPorts 80\n", "192.0.2.1:443"));
        let own = "FascistFirewall 1\nReachableAddresses *:5000\n";
        assert!(allows(own, "192.0.2.1:5000") && !allows(own, "192.0.2.1:443"));
        let settings = loaded("FascistFirewall 1\n").options.settings;
        assert_eq!(settings.lines("ReachableORAddresses").len(), 1);
    }

    #[test]
    fn what_cannot_be_read_and_what_leads_nowhere_are_reported() {
        for (torrc, words) in [
            (
                "ReachableAddresses nonsense\n",
                "torrc:1: ReachableAddresses",
            ),
            (
                "\nReachableORAddresses *:70000\n",
                "torrc:2: ReachableORAddresses",
            ),
            ("FirewallPorts 80,x\n", "\"x\" is not a port"),
            ("FirewallPorts 0\n", "\"0\" is not a port"),
            (
                "ORPort 9001\nContactInfo x\nFascistFirewall 1\n",
                "whole Internet",
            ),
        ] {
            let report = load_text(torrc, &Host::empty()).unwrap_err().to_string();
            assert!(report.contains(words), "{torrc:?}: {report}");
        }
        for (torrc, words) in [
            (
                "ReachableAddresses reject *:*\n",
                "cannot connect to anything",
            ),
            ("ReachableAddresses *6:*\n", "will not connect by IPv4"),
        ] {
            let loaded = loaded(torrc);
            let mut warnings = loaded.report.messages().iter();
            assert!(
                warnings.any(|m| m.severity == Severity::Warn && m.text.contains(words)),
                "{torrc:?}"
            );
        }
    }
}
