//! Addresses that may use a port: policies such as `MetricsPortPolicy`, which are exit policies
//! without ports and end with `reject *:*` (policies.c, `parse_metrics_port_policy`).

use std::net::IpAddr;

use weft_policy::{PolicyEntry, parse_rules};

/// Rules in order; the first that matches an address decides, and without one it is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessPolicy {
    rules: Vec<PolicyEntry>,
}

impl AccessPolicy {
    /// Reads one more line. Parts of it without effect are added to `warnings`.
    ///
    /// # Errors
    /// A rule is malformed: the text names it, with the reason.
    pub(crate) fn add(&mut self, line: &str, warnings: &mut Vec<String>) -> Result<(), String> {
        let known = self.rules.len();
        parse_rules(line, None, &mut self.rules, warnings)?;
        if self.rules.iter().skip(known).any(|rule| !rule.all_ports()) {
            warnings.push(format!("ignored the ports in \"{line}\""));
        }
        Ok(())
    }

    /// Returns true if a connection from this address is allowed.
    #[must_use]
    pub fn accepts(&self, from: IpAddr) -> bool {
        self.rules
            .iter()
            .find(|rule| rule.covers_address(from))
            .is_some_and(|rule| rule.accept)
    }

    /// Returns true if a connection from this address is refused, where addresses without a
    /// matching rule are allowed (`SocksPolicy`).
    #[must_use]
    pub fn rejects(&self, from: IpAddr) -> bool {
        self.rules
            .iter()
            .find(|rule| rule.covers_address(from))
            .is_some_and(|rule| !rule.accept)
    }

    /// Returns true if no rule accepts, so that all connections are refused.
    #[must_use]
    pub fn accepts_nobody(&self) -> bool {
        !self.rules.iter().any(|rule| rule.accept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(lines: &[&str], from: &str) -> bool {
        let mut policy = AccessPolicy::default();
        for line in lines {
            policy.add(line, &mut Vec::new()).unwrap();
        }
        policy.accepts(from.parse().unwrap())
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_the_end_is_no() {
        assert!(!accepts(&[], "127.0.0.1"));
        assert!(accepts(&["accept 127.0.0.1"], "127.0.0.1"));
        assert!(!accepts(&["accept 127.0.0.1"], "127.0.0.2"));
        assert!(!accepts(&["accept 127.0.0.1"], "::1"));
        let lines = [
            "reject 10.1.0.0/16, accept 10.0.0.0/8",
            "accept6 [2001:db8::]/32",
        ];
        assert!(accepts(&lines, "10.2.0.1"));
        assert!(!accepts(&lines, "10.1.0.1"));
        assert!(accepts(&lines, "2001:db8::1"));
        let mut policy = AccessPolicy::default();
        policy.add("reject 10.0.0.0/8", &mut Vec::new()).unwrap();
        assert!(policy.rejects("10.0.0.1".parse().unwrap()));
        assert!(!policy.rejects("127.0.0.1".parse().unwrap()));
        assert!(accepts(&["accept *"], "192.0.2.1") && accepts(&["accept *"], "2001:db8::1"));
    }

    #[test]
    fn ports_do_not_count() {
        let (mut policy, mut warnings) = (AccessPolicy::default(), Vec::new());
        policy.add("accept 127.0.0.1:80", &mut warnings).unwrap();
        assert_eq!(warnings, ["ignored the ports in \"accept 127.0.0.1:80\""]);
        assert!(policy.accepts("127.0.0.1".parse().unwrap()));
        policy.add("accept 127.0.0.2:*", &mut warnings).unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(policy.add("127.0.0.1", &mut warnings).is_err());
    }

    #[test]
    fn a_policy_that_only_rejects_accepts_nobody() {
        let mut policy = AccessPolicy::default();
        assert!(policy.accepts_nobody());
        policy.add("reject 10.0.0.0/8", &mut Vec::new()).unwrap();
        assert!(policy.accepts_nobody());
        policy.add("accept 127.0.0.1", &mut Vec::new()).unwrap();
        assert!(!policy.accepts_nobody());
    }
}
