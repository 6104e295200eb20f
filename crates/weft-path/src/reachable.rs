//! Addresses that a client itself connects to, and its preference among a relay's addresses (C
//! tor's policies.c, `reachable_addr_allows` and `reachable_addr_choose`).

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use crate::nodes::same_prefix;

/// One rule of `ReachableORAddresses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRule {
    /// Addresses that match can be reached.
    pub accept: bool,
    /// The network's address.
    pub network: IpAddr,
    /// Bits of it that count.
    pub bits: u8,
    /// Ports.
    pub ports: RangeInclusive<u16>,
}

impl AddressRule {
    fn matches(&self, addr: SocketAddr) -> bool {
        self.ports.contains(&addr.port())
            && same_prefix(self.network, addr.ip(), u32::from(self.bits))
    }
}

/// Limits on a client's connections. [`Default`] permits all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reachable {
    /// `ClientUseIPv4`.
    pub ipv4: bool,
    /// `ClientUseIPv6`.
    pub ipv6: bool,
    /// `ClientPreferIPv6ORPort`: of addresses of both families, IPv6.
    pub prefer_ipv6: bool,
    /// `ReachableORAddresses`: the first rule that matches decides; addresses without a match
    /// cannot be reached. `None`: everything can.
    pub rules: Option<Vec<AddressRule>>,
}

impl Default for Reachable {
    fn default() -> Self {
        Self {
            ipv4: true,
            ipv6: true,
            prefer_ipv6: false,
            rules: None,
        }
    }
}

impl Reachable {
    /// Returns true if the client may connect to this address.
    #[must_use]
    pub fn allows(&self, addr: SocketAddr) -> bool {
        let family = if addr.is_ipv4() { self.ipv4 } else { self.ipv6 };
        let decision = |rules: &Vec<AddressRule>| {
            let rule = rules.iter().find(|rule| rule.matches(addr));
            rule.is_some_and(|rule| rule.accept)
        };
        family && self.rules.as_ref().is_none_or(decision)
    }

    /// The address of a relay that the client connects to: one that it may, of the family that it
    /// prefers if there is one.
    #[must_use]
    pub fn choose(&self, addrs: &[SocketAddr]) -> Option<SocketAddr> {
        let allowed = addrs.iter().copied().filter(|addr| self.allows(*addr));
        let preferred = |addr: &SocketAddr| addr.is_ipv6() == (self.prefer_ipv6 || !self.ipv4);
        let mut first = None;
        for addr in allowed {
            if preferred(&addr) {
                return Some(addr);
            }
            first = first.or(Some(addr));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn rule(accept: bool, network: &str, bits: u8, ports: RangeInclusive<u16>) -> AddressRule {
        AddressRule {
            accept,
            network: network.parse().expect("an address"),
            bits,
            ports,
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_the_end_is_no() {
        let reachable = Reachable {
            rules: Some(vec![
                rule(false, "198.51.100.0", 24, 1..=65535),
                rule(true, "0.0.0.0", 0, 443..=443),
                rule(true, "2001:db8::", 32, 1..=65535),
            ]),
            ..Reachable::default()
        };
        for (text, allowed) in [
            ("192.0.2.1:443", true),
            ("192.0.2.1:9001", false),
            ("198.51.100.1:443", false),
            ("[2001:db8::1]:9001", true),
            ("[2001:db9::1]:443", false),
        ] {
            assert_eq!(reachable.allows(addr(text)), allowed, "{text}");
        }
        let nothing = Reachable {
            rules: Some(Vec::new()),
            ..Reachable::default()
        };
        assert!(!nothing.allows(addr("192.0.2.1:443")));
        assert!(Reachable::default().allows(addr("192.0.2.1:9001")));
    }

    #[test]
    fn of_several_addresses_the_preferred_family_is_taken_if_it_can_be_reached() {
        let both = [addr("192.0.2.1:443"), addr("[2001:db8::1]:9001")];
        let choose = |reachable: Reachable| {
            let chosen = reachable.choose(&both);
            chosen.map(|addr| addr.is_ipv6())
        };
        assert_eq!(choose(Reachable::default()), Some(false));
        let prefer_ipv6 = Reachable {
            prefer_ipv6: true,
            ..Reachable::default()
        };
        assert_eq!(choose(prefer_ipv6.clone()), Some(true));
        let only_443 = vec![
            rule(true, "0.0.0.0", 0, 443..=443),
            rule(true, "::", 0, 443..=443),
        ];
        let blocked = Reachable {
            rules: Some(only_443.clone()),
            ..prefer_ipv6
        };
        assert_eq!(choose(blocked), Some(false));
        let neither = Reachable {
            ipv4: false,
            rules: Some(only_443),
            ..Reachable::default()
        };
        assert_eq!(choose(neither), None);
    }
}
