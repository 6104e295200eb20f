//! A policy: its rules in order, made of torrc's lines as C tor completes them (policies.c).

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::port_summary::{PortSummary, Rule};
use crate::rule::{Family, PolicyEntry, parse_rules};

/// The rules of a relay that allows exits, behind those of its torrc.
pub const DEFAULT_EXIT_POLICY: &str = "reject *:25,reject *:119,reject *:135-139,reject *:445,\
    reject *:563,reject *:1214,reject *:4661-4666,reject *:6346-6429,reject *:6699,\
    reject *:6881-6999,accept *:*";

/// `ReducedExitPolicy`: the ports of well-known services.
const REDUCED_EXIT_PORTS: &str = "20-23,43,53,79-81,88,110,143,194,220,389,443,464,465,531,543-544,\
    554,563,587,636,706,749,873,902-904,981,989-995,1194,1220,1293,1500,1533,1677,1723,1755,1863,\
    2082-2083,2086-2087,2095-2096,2102-2104,3128,3389,3690,4321,4643,5050,5190,5222-5223,5228,5900,\
    6660-6669,6679,6697,8000,8008,8074,8080,8082,8087-8088,8232-8233,8332-8333,8443,8888,9418,9999,\
    10000,11371,18080-18081,18089,19294,19638,50002,64738";

/// The settings that an exit policy is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySettings {
    /// `IPv6Exit`.
    pub ipv6: bool,
    /// `ExitPolicyRejectPrivate`.
    pub reject_private: bool,
    /// `ReducedExitPolicy`.
    pub reduced: bool,
}

/// Rules in order; the first that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitPolicy {
    entries: Vec<PolicyEntry>,
}

impl ExitPolicy {
    /// `reject *:*`: no exits at all.
    #[must_use]
    pub fn reject_all() -> Self {
        let reject = |address| PolicyEntry {
            accept: false,
            address,
            prefix: 0,
            port_min: 1,
            port_max: u16::MAX,
        };
        Self {
            entries: vec![
                reject(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                reject(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            ],
        }
    }

    /// The policy that `ExitPolicy` lines make, completed as C tor completes it.
    ///
    /// Addresses of this machine (its own, its interfaces') are not in it: reject them with
    /// [`with_rejected`](Self::with_rejected) once they are known.
    ///
    /// # Errors
    /// A rule is malformed: the text names it, with the reason.
    pub fn parse(
        lines: &[&str],
        settings: PolicySettings,
        warnings: &mut Vec<String>,
    ) -> Result<Self, String> {
        let mut entries = Vec::new();
        let builtin = |text: &str, entries: &mut Vec<PolicyEntry>| {
            parse_rules(text, None, entries, &mut Vec::new())
        };
        if !settings.ipv6 {
            builtin("reject *6:*", &mut entries)?;
        }
        if settings.reject_private {
            builtin("reject private:*", &mut entries)?;
        }
        for line in lines {
            parse_rules(line, None, &mut entries, warnings)?;
        }
        if settings.reduced {
            for ports in REDUCED_EXIT_PORTS.split(',') {
                builtin(&format!("accept *:{ports}"), &mut entries)?;
            }
            builtin("reject *:*", &mut entries)?;
        } else {
            builtin(DEFAULT_EXIT_POLICY, &mut entries)?;
        }
        let mut policy = Self { entries };
        policy.remove_redundant();
        Ok(policy)
    }

    /// The policy with rules before all others that reject these addresses.
    #[must_use]
    pub fn with_rejected(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut entries: Vec<_> = addresses
            .into_iter()
            .map(|address| PolicyEntry {
                accept: false,
                address,
                prefix: if address.is_ipv4() { 32 } else { 128 },
                port_min: 1,
                port_max: u16::MAX,
            })
            .collect();
        entries.extend_from_slice(&self.entries);
        let mut policy = Self { entries };
        policy.remove_redundant();
        policy
    }

    /// The rules, in order.
    #[must_use]
    pub fn entries(&self) -> &[PolicyEntry] {
        &self.entries
    }

    /// Returns true if a connection to this address and port is allowed.
    #[must_use]
    pub fn allows(&self, address: IpAddr, port: u16) -> bool {
        self.entries
            .iter()
            .find(|e| e.matches(address, port))
            .is_none_or(|e| e.accept)
    }

    /// Returns true if the policy allows nothing.
    #[must_use]
    pub fn rejects_all(&self) -> bool {
        [Family::V4, Family::V6].into_iter().all(|family| {
            self.entries
                .iter()
                .filter(|e| e.family() == family)
                .find(|e| e.accept || e.is_wildcard())
                .is_some_and(|e| !e.accept)
        })
    }

    /// The `accept` and `reject` lines of a router descriptor: the IPv4 rules (dir-spec 2.1.1).
    /// IPv6 goes there as `ipv6-policy` and [`summary`](Self::summary).
    #[must_use]
    pub fn descriptor_lines(&self) -> Vec<String> {
        let lines = self.entries.iter().filter(|e| e.family() == Family::V4);
        lines
            .map(|e| e.to_string().replacen("*4:", "*:", 1))
            .collect()
    }

    /// Ports that are accepted for (nearly) every address of a family, as in `p` and `ipv6-policy`
    /// lines: `accept` or `reject` and a list of ports (policies.c, `policy_summarize`).
    #[must_use]
    pub fn summary(&self, family: Family) -> String {
        let mut summary = PortSummary::new();
        for entry in self.entries.iter().filter(|e| e.family() == family) {
            summary.add(Rule {
                accept: entry.accept,
                ipv6: family == Family::V6,
                prefix: entry.prefix,
                private_net: entry.is_private_net(),
                ports: (entry.port_min, entry.port_max),
            });
        }
        summary.write()
    }

    /// Leaves out rules that can never decide (policies.c, `exit_policy_remove_redundancies`).
    fn remove_redundant(&mut self) {
        for family in [Family::V4, Family::V6] {
            let mut ended = false;
            self.entries.retain(|e| {
                let keep = e.family() != family || !ended;
                ended |= e.family() == family && e.is_wildcard();
                keep
            });
        }
        // Drops rules that an earlier rule covers.
        let mut kept: Vec<PolicyEntry> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            if !kept.iter().any(|earlier| earlier.covers(entry)) {
                kept.push(*entry);
            }
        }
        // Drops rules that a later rule of the same kind covers, with no rule of the other kind
        // between them that overlaps.
        let mut index = 0;
        while let Some((entry, later)) = kept.get(index..).and_then(|rest| rest.split_first()) {
            let decisive = later.iter().find(|other| {
                if other.accept == entry.accept {
                    other.covers(entry)
                } else {
                    other.intersects(entry)
                }
            });
            if decisive.is_some_and(|other| other.accept == entry.accept) {
                kept.remove(index);
            } else {
                index += 1;
            }
        }
        self.entries = kept;
    }
}
