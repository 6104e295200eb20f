//! Addresses that a client can reach: `ReachableAddresses`, `ReachableORAddresses`,
//! `ReachableDirAddresses`, `FascistFirewall` and `FirewallPorts` (config.c `options_validate_cb`,
//! policies.c `parse_reachable_addresses`).
//!
//! `ReachableDirAddresses` has no effect: a client asks directories by way of their ORPorts.

use weft_path::{AddressRule, Reachable};
use weft_policy::{Family, PolicyEntry, parse_rules};

use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::keys;
use crate::table::value::ListLine;

/// Replaces `FascistFirewall` by the addresses that it stands for, so that dumps agree with C tor's.
pub(crate) fn convert_firewall(settings: &mut Settings, report: &mut Report) {
    let ports = settings.words(keys::FirewallPorts).to_vec();
    for word in &ports {
        if !word.parse().is_ok_and(|port: u16| port != 0) {
            report.error(
                settings.origin(keys::FirewallPorts),
                format!("FirewallPorts: \"{word}\" is not a port, a number from 1 to 65535"),
            );
        }
    }
    let (all, or, dir) = (
        keys::ReachableAddresses,
        keys::ReachableORAddresses,
        keys::ReachableDirAddresses,
    );
    if !settings.flag(keys::FascistFirewall) || !settings.lines(all).is_empty() {
        return;
    }
    let mut stands_for = Vec::new();
    if ports.is_empty() {
        stands_for.push((dir, "*:80".to_owned()));
        stands_for.push((or, "*:443".to_owned()));
        stands_for.retain(|(key, _)| settings.lines(*key).is_empty());
    } else {
        let ports: Vec<String> = ports.iter().map(|port| format!("*:{port}")).collect();
        stands_for.push((all, ports.join(",")));
    }
    for (key, value) in stands_for {
        report.notice(
            settings.origin(keys::FascistFirewall),
            format!("FascistFirewall stands for \"{key} {value}\""),
        );
        settings.correct_line(key, value);
    }
}

/// Addresses that the client may connect to.
pub(crate) fn reachable(settings: &Settings, report: &mut Report) -> Reachable {
    let set = [keys::ReachableORAddresses, keys::ReachableAddresses]
        .into_iter()
        .find(|key| !settings.lines(*key).is_empty());
    let reachable = Reachable {
        ipv4: settings.flag(keys::ClientUseIPv4),
        ipv6: settings.flag(keys::ClientUseIPv6),
        prefer_ipv6: settings.auto_flag(keys::ClientPreferIPv6ORPort) == Some(true),
        rules: set.map(|key| rules(key, settings)),
    };
    let Some(key) = set else {
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
    report.warn(settings.origin(key), format!("{key}: {lost}"));
    reachable
}

/// The rules of an option, in order. Malformed rules were reported when settings were checked.
fn rules(key: Key<Vec<ListLine>>, settings: &Settings) -> Vec<AddressRule> {
    let mut entries: Vec<PolicyEntry> = Vec::new();
    for line in settings.lines(key) {
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
mod tests {
    use std::net::SocketAddr;

    use crate::{Loaded, MemoryHost, keys, load_text};
    use weft_log::Severity;

    fn loaded(torrc: &str) -> Loaded {
        load_text(torrc, &MemoryHost::new()).unwrap_or_else(|report| panic!("{torrc}\n{report}"))
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
        assert_eq!(settings.lines(keys::ReachableORAddresses).len(), 1);
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
            let report = load_text(torrc, &MemoryHost::new())
                .unwrap_err()
                .to_string();
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
