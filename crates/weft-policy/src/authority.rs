//! Decisions about relays by an authority's options: sets of addresses, and thresholds of flags.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::rule::{PolicyEntry, parse_rules};

/// Addresses, by rules and by countries (`AuthDirReject` and `AuthDirRejectCCs`, for example).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// Rules as of an exit policy: the first that matches decides, and `reject` puts an address into the set. Ports do not
    /// count.
    pub rules: Vec<PolicyEntry>,
    /// Codes of countries, in any case; `??` is an address of no known country.
    pub countries: Vec<String>,
}

impl AddressSet {
    /// The set of these rules, separated by commas (a rule without a verb rejects), and countries.
    ///
    /// # Errors
    /// A rule is malformed: the text names it, with the reason.
    pub fn parse(rules: &str, countries: &[&str]) -> Result<Self, String> {
        let mut set = AddressSet {
            countries: countries.iter().map(|one| (*one).to_owned()).collect(),
            ..AddressSet::default()
        };
        parse_rules(rules, Some(false), &mut set.rules, &mut Vec::new())?;
        Ok(set)
    }

    /// Returns true if an address is in the set; `country` is the code of its country.
    pub fn contains(&self, address: Ipv4Addr, country: impl FnOnce(IpAddr) -> [u8; 2]) -> bool {
        let address = IpAddr::V4(address);
        let rule = self.rules.iter().find(|rule| rule.covers_address(address));
        if rule.is_some_and(|rule| !rule.accept) {
            return true;
        }
        if self.countries.is_empty() {
            return false;
        }
        let country = country(address);
        let mut named = self.countries.iter();
        named.any(|one| one.as_bytes().eq_ignore_ascii_case(&country))
    }
}

/// Thresholds of flags.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagThresholds {
    /// `AuthDirFastGuarantee`, in bytes per second; 0: none.
    pub fast_guarantee: u64,
    /// `AuthDirGuardBWGuarantee`, in bytes per second; 0: none.
    pub guard_bandwidth_guarantee: u64,
    /// `AuthDirVoteGuardBwThresholdFraction`.
    pub guard_bandwidth_fraction: f64,
    /// `AuthDirVoteGuardGuaranteeTimeKnown`.
    pub guard_time_known: Duration,
    /// `AuthDirVoteGuardGuaranteeWFU`.
    pub guard_uptime_fraction: f64,
    /// `AuthDirVoteStableGuaranteeMinUptime`.
    pub stable_uptime: Duration,
    /// `AuthDirVoteStableGuaranteeMTBF`.
    pub stable_mtbf: Duration,
    /// `MinMeasuredBWsForAuthToIgnoreAdvertised`; negative: relays' claims never count.
    pub min_measured: i64,
    /// `TestingMinExitFlagThreshold`, in bytes per second.
    pub min_exit: u64,
    /// `TestingMinFastFlagThreshold`, in bytes per second.
    pub min_fast: u64,
    /// `MinUptimeHidServDirectoryV2`: how long a relay must run to get the flag HSDir.
    pub hs_dir_uptime: Duration,
    /// `AuthDirMaxServersPerAddr`: more relays at one address are not listed; 0: any number.
    pub max_per_address: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rules: &str, countries: &[&str]) -> AddressSet {
        AddressSet::parse(rules, countries).unwrap()
    }

    #[test]
    fn an_address_is_in_a_set_by_the_first_rule_that_matches_or_by_its_country() {
        let country = |address: IpAddr| match address {
            IpAddr::V4(ip) if ip.octets()[0] == 5 => *b"de",
            _ => *b"??",
        };
        let both = set("accept 10.0.0.1, 10.0.0.0/8", &["DE"]);
        for (address, contained) in [
            ([10, 0, 0, 1], false),
            ([10, 0, 0, 2], true),
            ([5, 1, 1, 1], true),
            ([6, 1, 1, 1], false),
        ] {
            assert_eq!(
                both.contains(address.into(), country),
                contained,
                "{address:?}"
            );
        }
        assert!(set("", &["??"]).contains([6, 1, 1, 1].into(), country));
        // The table is not asked for nothing.
        let none = set("", &[]);
        assert!(!none.contains([5, 1, 1, 1].into(), |_| unreachable!()));
    }
}
