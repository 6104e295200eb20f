//! Networks of relays' addresses: no circuit has two relays of one /16 (IPv4) or one /32 (IPv6).

use std::net::{Ipv4Addr, Ipv6Addr};

/// Where a relay's addresses are, for comparison. Zero stands for no address: C tor compares no null
/// addresses (`router_addrs_in_same_network`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subnets {
    ipv4: u32,
    ipv6: u64,
}

impl Subnets {
    /// Of a relay with these addresses.
    pub fn new(ipv4: Ipv4Addr, ipv6: Option<Ipv6Addr>) -> Subnets {
        let ipv6 = ipv6.filter(|address| !address.is_unspecified());
        Subnets {
            ipv4: match ipv4.is_unspecified() {
                true => 0,
                false => (u32::from(ipv4) >> 16) + 1,
            },
            ipv6: ipv6.map_or(0, |address| (u128::from(address) >> 96) as u64 + 1),
        }
    }

    /// Returns true if both have an address in the same network.
    #[inline]
    pub fn meet(self, other: Subnets) -> bool {
        (self.ipv4 == other.ipv4 && self.ipv4 != 0) || (self.ipv6 == other.ipv6 && self.ipv6 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ipv4: &str, ipv6: Option<&str>) -> Subnets {
        let ipv6 = ipv6.map(|address| address.parse().unwrap());
        Subnets::new(ipv4.parse().unwrap(), ipv6)
    }

    #[test]
    fn two_octets_of_ipv4_or_four_of_ipv6_make_a_network() {
        assert!(of("10.1.2.3", None).meet(of("10.1.255.0", None)));
        assert!(!of("10.1.2.3", None).meet(of("10.2.2.3", None)));
        assert!(of("10.1.2.3", Some("2001:db8:1::1")).meet(of("10.2.0.1", Some("2001:db8:f::1"))));
        assert!(!of("10.1.2.3", Some("2001:db8::1")).meet(of("10.2.0.1", Some("2001:db9::1"))));
        assert!(!of("10.1.2.3", None).meet(of("10.2.0.1", None)));
    }

    #[test]
    fn null_addresses_are_in_no_network() {
        assert!(!of("0.0.0.0", Some("::")).meet(of("0.0.0.0", Some("::"))));
        assert!(of("0.0.0.1", None).meet(of("0.0.0.2", None)));
        assert!(of("10.0.0.1", Some("::1")).meet(of("11.0.0.1", Some("::2"))));
    }
}
