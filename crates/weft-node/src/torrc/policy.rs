//! Exit policies: the grammar of `accept` and `reject` lines, what they allow, and the summary that
//! descriptors carry (src/core/or/policies.c, src/feature/dirparse/policy_parse.c, dir-spec 2.1.3).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::number::take_long;

/// The networks that `private` stands for. Every authority must agree on them, since they do not
/// count in summaries.
const PRIVATE_NETS: [&str; 12] = [
    "0.0.0.0/8",
    "169.254.0.0/16",
    "127.0.0.0/8",
    "192.168.0.0/16",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "[::]/8",
    "[fc00::]/7",
    "[fe80::]/10",
    "[fec0::]/10",
    "[ff00::]/8",
    "[::]/127",
];

/// What a relay that allows exits refuses unless told otherwise.
const DEFAULT_EXIT_POLICY: &str = "reject *:25,reject *:119,reject *:135-139,reject *:445,\
    reject *:563,reject *:1214,reject *:4661-4666,reject *:6346-6429,reject *:6699,\
    reject *:6881-6999,accept *:*";

/// `ReducedExitPolicy`: the ports of well-known services.
const REDUCED_EXIT_PORTS: &str = "20-23,43,53,79-81,88,110,143,194,220,389,443,464,465,531,543-544,\
    554,563,587,636,706,749,873,902-904,981,989-995,1194,1220,1293,1500,1533,1677,1723,1755,1863,\
    2082-2083,2086-2087,2095-2096,2102-2104,3128,3389,3690,4321,4643,5050,5190,5222-5223,5228,5900,\
    6660-6669,6679,6697,8000,8008,8074,8080,8082,8087-8088,8232-8233,8332-8333,8443,8888,9418,9999,\
    10000,11371,18080-18081,18089,19294,19638,50002,64738";

/// The longest summary that authorities accept (MAX_EXITPOLICY_SUMMARY_LEN).
const MAX_SUMMARY_LEN: usize = 1000;

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One rule: connections to these addresses and ports are accepted, or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyEntry {
    /// Whether matching connections are accepted.
    pub accept: bool,
    /// An address of the network.
    pub address: IpAddr,
    /// How many leading bits of `address` count.
    pub prefix: u8,
    /// First port.
    pub port_min: u16,
    /// Last port; not below `port_min`.
    pub port_max: u16,
}

impl PolicyEntry {
    const fn family(&self) -> Family {
        match self.address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    const fn all_ports(&self) -> bool {
        self.port_min <= 1 && self.port_max == u16::MAX
    }

    const fn is_wildcard(&self) -> bool {
        self.prefix == 0 && self.all_ports()
    }

    /// Whether both have the same family and agree in the leading `prefix` bits.
    fn same_network(&self, other: IpAddr, prefix: u8) -> bool {
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let shift = 32_u32.saturating_sub(u32::from(prefix));
                (a.to_bits() ^ b.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let shift = 128_u32.saturating_sub(u32::from(prefix));
                (a.to_bits() ^ b.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    fn matches(&self, address: IpAddr, port: u16) -> bool {
        (self.port_min..=self.port_max).contains(&port) && self.same_network(address, self.prefix)
    }

    /// Whether every case of `other` is a case of this one.
    fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix
            && self.same_network(other.address, self.prefix)
            && self.port_min <= other.port_min
            && self.port_max >= other.port_max
    }

    fn intersects(&self, other: &Self) -> bool {
        self.same_network(other.address, self.prefix.min(other.prefix))
            && self.port_min <= other.port_max
            && other.port_min <= self.port_max
    }

    fn is_private_net(&self) -> bool {
        private_nets().any(|(address, prefix)| address == self.address && prefix == self.prefix)
    }

    fn write_ports(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all_ports() {
            f.write_str(":*")
        } else if self.port_min == self.port_max {
            write!(f, ":{}", self.port_min)
        } else {
            write!(f, ":{}-{}", self.port_min, self.port_max)
        }
    }
}

impl fmt::Display for PolicyEntry {
    /// As descriptors write it, but with `*4` and `*6` for the whole of a family.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.accept { "accept " } else { "reject " })?;
        match (self.address, self.prefix) {
            (IpAddr::V4(_), 0) => f.write_str("*4")?,
            (IpAddr::V6(_), 0) => f.write_str("*6")?,
            (IpAddr::V4(address), 32) => write!(f, "{address}")?,
            (IpAddr::V6(address), 128) => write!(f, "[{address}]")?,
            (IpAddr::V4(address), prefix) => write!(f, "{address}/{prefix}")?,
            (IpAddr::V6(address), prefix) => write!(f, "[{address}]/{prefix}")?,
        }
        self.write_ports(f)
    }
}

fn private_nets() -> impl Iterator<Item = (IpAddr, u8)> {
    PRIVATE_NETS
        .iter()
        .filter_map(|net| match parse_pattern(net, Star::Both).ok()? {
            Pattern {
                address: Some(address),
                prefix,
                ..
            } => Some((address, prefix)),
            Pattern { address: None, .. } => None,
        })
}

/// What a plain `*` stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Star {
    Both,
    V6Only,
}

/// An address pattern with ports. No address means every address of both families.
struct Pattern {
    address: Option<IpAddr>,
    prefix: u8,
    ports: (u16, u16),
}

fn parse_pattern(text: &str, star: Star) -> Result<Pattern, String> {
    let bad = |what: &str| format!("\"{text}\" {what}");
    let (address, rest) = match text.strip_prefix('[') {
        Some(inner) => inner
            .split_once(']')
            .ok_or_else(|| bad("lacks the bracket that closes the address"))?,
        None => text.split_at(text.find(['/', ':']).unwrap_or(text.len())),
    };
    // An address-style mask holds dots, never colons; so the first colon opens the ports.
    let (mask, ports) = match rest.split_once(':') {
        Some((mask, ports)) => (mask, Some(ports)),
        None => (rest, None),
    };
    let mask = match mask.strip_prefix('/') {
        Some(mask) => Some(mask),
        None if mask.is_empty() => None,
        None => return Err(bad("has something between address and ports")),
    };
    let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let wildcard = match address {
        "*" if star == Star::V6Only => Some(Some(v6)),
        "*" => Some(None),
        "*4" => Some(Some(v4)),
        "*6" => Some(Some(v6)),
        _ => None,
    };
    let ports = parse_port_range(ports.unwrap_or("*")).map_err(|why| bad(&why))?;
    if let Some(address) = wildcard {
        return match mask {
            Some(_) => Err(bad("has a mask on a wildcard")),
            None => Ok(Pattern {
                address,
                prefix: 0,
                ports,
            }),
        };
    }
    let address: IpAddr = address
        .parse()
        .map_err(|_| bad("does not start with an IP address, *, *4, *6 or private"))?;
    let prefix = match mask {
        Some(mask) => parse_mask(mask, address).ok_or_else(|| bad("has a bad mask"))?,
        None if address.is_ipv4() => 32,
        None => 128,
    };
    Ok(Pattern {
        address: Some(address),
        prefix,
        ports,
    })
}

/// A number of bits, or an IPv4 netmask whose ones come first.
fn parse_mask(mask: &str, address: IpAddr) -> Option<u8> {
    let most = if address.is_ipv4() { 32 } else { 128 };
    match take_long(mask) {
        Some((bits, "")) => {
            let bits = u8::try_from(bits).ok().filter(|bits| *bits <= most)?;
            match address {
                // C tor reads the mask of an IPv4-mapped address as one of IPv4.
                IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
                    (!(33..96).contains(&bits)).then_some(96 + bits % 32)
                }
                _ => Some(bits),
            }
        }
        _ if mask.is_empty() => Some(0),
        _ => {
            let bits = mask.parse::<Ipv4Addr>().ok()?.to_bits();
            let prefix = bits.leading_ones();
            (prefix + bits.trailing_zeros().min(32) == 32 || bits == 0)
                .then_some(u8::try_from(prefix).ok()?)
        }
    }
}

fn parse_port_range(text: &str) -> Result<(u16, u16), String> {
    if text.is_empty() || text == "*" {
        return Ok((1, u16::MAX));
    }
    let bad = || format!("has bad ports \"{text}\"");
    let port = |(port, rest): (i64, _)| {
        u16::try_from(port)
            .ok()
            .filter(|p| *p > 0)
            .map(|p| (p, rest))
    };
    let (first, rest) = take_long(text).and_then(port).ok_or_else(bad)?;
    let last = match rest.strip_prefix('-') {
        None if rest.is_empty() => first,
        None => return Err(bad()),
        Some(last) => match take_long(last).and_then(port) {
            Some((last, "")) => last,
            _ => return Err(bad()),
        },
    };
    if first > last {
        return Err(format!("has a port range \"{text}\" that runs backwards"));
    }
    Ok((first, last))
}

/// Reads `accept[6]`/`reject[6]` rules separated by commas, and appends them to `entries` with
/// `private` and `*` spelled out. A rule without a verb has `assumed`.
///
/// # Errors
/// Says which rule is wrong, and why.
pub(super) fn parse_rules(
    text: &str,
    assumed: Option<bool>,
    entries: &mut Vec<PolicyEntry>,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    for rule in text
        .split(',')
        .map(str::trim)
        .filter(|rule| !rule.is_empty())
    {
        parse_rule(rule, assumed, entries, warnings)?;
    }
    Ok(())
}

fn parse_rule(
    rule: &str,
    assumed: Option<bool>,
    entries: &mut Vec<PolicyEntry>,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let mut words = rule.split_ascii_whitespace();
    let bare = rule.starts_with(|c: char| c == '*' || c == '[' || c.is_ascii_digit());
    let (accept, only_v6) = match (assumed.filter(|_| bare), words.clone().next()) {
        (Some(accept), _) => (accept, false),
        (None, verb) => {
            let verb = verb.unwrap_or_default();
            words.next();
            match verb {
                "accept" => (true, false),
                "reject" => (false, false),
                "accept6" => (true, true),
                "reject6" => (false, true),
                _ => return Err(format!("\"{rule}\" does not start with accept or reject")),
            }
        }
    };
    let (Some(pattern), None) = (words.next(), words.next()) else {
        return Err(format!("\"{rule}\" does not have one address pattern"));
    };
    let entry = |address, prefix, (port_min, port_max)| PolicyEntry {
        accept,
        address,
        prefix,
        port_min,
        port_max,
    };
    if let Some(rest) = pattern.strip_prefix("private") {
        let ports = rest
            .strip_prefix(':')
            .ok_or_else(|| format!("\"{pattern}\" lacks its ports"))?;
        let ports = parse_port_range(ports).map_err(|why| format!("\"{pattern}\" {why}"))?;
        if only_v6 {
            warnings.push(format!("\"{rule}\" applies to private IPv4 addresses too"));
        }
        entries.extend(private_nets().map(|(address, prefix)| entry(address, prefix, ports)));
        return Ok(());
    }
    let star = if only_v6 { Star::V6Only } else { Star::Both };
    let Pattern {
        address,
        prefix,
        ports,
    } = parse_pattern(pattern, star)?;
    match address {
        Some(IpAddr::V4(_)) if only_v6 => {
            warnings.push(format!(
                "ignored \"{rule}\": accept6 and reject6 take no IPv4 address"
            ));
        }
        Some(address) => entries.push(entry(address, prefix, ports)),
        None => {
            entries.push(entry(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0, ports));
            entries.push(entry(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0, ports));
        }
    }
    Ok(())
}

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
    /// Says which rule is wrong, and why.
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

    /// The same policy, rejecting these addresses before anything else.
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

    /// Whether a connection to this address and port is allowed.
    #[must_use]
    pub fn allows(&self, address: IpAddr, port: u16) -> bool {
        self.entries
            .iter()
            .find(|e| e.matches(address, port))
            .is_none_or(|e| e.accept)
    }

    /// Whether nothing at all is allowed.
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

    /// Ports that are accepted for (nearly) every address of a family, as `p` and `ipv6-policy`
    /// lines have it: `accept` or `reject` and a list of ports (policies.c, `policy_summarize`).
    #[must_use]
    pub fn summary(&self, family: Family) -> String {
        let mut summary = Summary::new();
        for entry in self.entries.iter().filter(|e| e.family() == family) {
            summary.add(entry, family);
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
        // What an earlier rule covers.
        let mut kept: Vec<PolicyEntry> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            if !kept.iter().any(|earlier| earlier.covers(entry)) {
                kept.push(*entry);
            }
        }
        // What a later rule of the same kind covers, with no rule of the other kind between them
        // that has to do with it.
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

/// A run of ports while a summary is made.
#[derive(Clone, Copy)]
struct Run {
    first: u16,
    last: u16,
    /// How many addresses (IPv6: how many /64s) are rejected.
    rejected: u64,
    accepted: bool,
}

struct Summary {
    runs: Vec<Run>,
}

impl Summary {
    fn new() -> Self {
        Self {
            runs: vec![Run {
                first: 1,
                last: u16::MAX,
                rejected: 0,
                accepted: false,
            }],
        }
    }

    /// Cuts runs so that one starts at `port`.
    fn cut(&mut self, port: u16) {
        if let Some(index) = self
            .runs
            .iter()
            .position(|r| r.first < port && port <= r.last)
            && let Some(run) = self.runs.get_mut(index)
        {
            let tail = Run {
                first: port,
                ..*run
            };
            run.last = port.saturating_sub(1);
            self.runs.insert(index + 1, tail);
        }
    }

    fn add(&mut self, entry: &PolicyEntry, family: Family) {
        // A port counts as rejected once it is for more than two IPv4 /8s, or one IPv6 /16.
        let (bits, scale, cutoff) = match family {
            Family::V4 => (32_u8, 0_u8, 1_u64 << 25),
            Family::V6 => (128, 64, 1 << 48),
        };
        let count = if entry.accept {
            if entry.prefix != 0 {
                return;
            }
            None
        } else {
            if entry.is_private_net() {
                return;
            }
            let Some(shift) = (bits - scale).checked_sub(entry.prefix) else {
                return;
            };
            Some(1_u64.checked_shl(shift.into()).unwrap_or(u64::MAX))
        };
        self.cut(entry.port_min);
        if let Some(after) = entry.port_max.checked_add(1) {
            self.cut(after);
        }
        let inside = |r: &&mut Run| entry.port_min <= r.first && r.last <= entry.port_max;
        for run in self.runs.iter_mut().filter(inside) {
            match count {
                Some(count) => run.rejected = run.rejected.saturating_add(count),
                None => run.accepted |= run.rejected <= cutoff,
            }
        }
    }

    fn write(&self) -> String {
        let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
        for runs in self.runs.chunk_by(|a, b| a.accepted == b.accepted) {
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
                continue;
            };
            let text = if first.first == last.last {
                first.first.to_string()
            } else {
                format!("{}-{}", first.first, last.last)
            };
            if first.accepted {
                accepted.push(text)
            } else {
                rejected.push(text)
            }
        }
        if accepted.is_empty() {
            return "reject 1-65535".to_owned();
        }
        if rejected.is_empty() {
            return "accept 1-65535".to_owned();
        }
        let (accepted, rejected) = (accepted.join(","), rejected.join(","));
        let room = MAX_SUMMARY_LEN - "accept ".len();
        if accepted.len() > room && rejected.len() > room {
            let cut = accepted
                .get(..=room)
                .and_then(|head| head.rfind(','))
                .unwrap_or(room);
            format!("accept {}", accepted.get(..cut).unwrap_or_default())
        } else if rejected.len() < accepted.len() {
            format!("reject {rejected}")
        } else {
            format!("accept {accepted}")
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Vec<String>, String> {
        let mut entries = Vec::new();
        parse_rules(text, None, &mut entries, &mut Vec::new())?;
        Ok(entries.iter().map(ToString::to_string).collect())
    }

    fn policy(lines: &[&str]) -> ExitPolicy {
        let settings = PolicySettings {
            ipv6: true,
            reject_private: true,
            reduced: false,
        };
        ExitPolicy::parse(lines, settings, &mut Vec::new()).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_spelled_out() {
        for (text, want) in [
            ("accept *:80", &["accept *4:80", "accept *6:80"][..]),
            ("accept *4:80-90", &["accept *4:80-90"]),
            ("reject6 *:*", &["reject *6:*"]),
            ("reject 1.2.3.4", &["reject 1.2.3.4:*"]),
            ("reject 1.2.3.0/24:1-65535", &["reject 1.2.3.0/24:*"]),
            ("reject 1.2.3.0/255.255.255.0:7", &["reject 1.2.3.0/24:7"]),
            (
                "reject [2001:db8::]/32:*, accept [::1]:443",
                &["reject [2001:db8::]/32:*", "accept [::1]:443"],
            ),
            ("accept6 1.2.3.4:5", &[]),
            ("", &[]),
        ] {
            assert_eq!(rules(text).unwrap(), want, "{text:?}");
        }
        assert_eq!(rules("reject private:*").unwrap().len(), PRIVATE_NETS.len());
    }

    #[test]
    fn bad_rules_are_refused() {
        for text in [
            "allow *:*",
            "accept",
            "*:80",
            "accept *:80 x",
            "accept *:0",
            "accept *:65536",
            "accept *:90-80",
            "accept *:80x",
            "accept */8:80",
            "accept 1.2.3.4/33:*",
            "accept 1.2.3.4/255.0.255.0:*",
            "accept 1.2.3:80",
            "accept [::1:80",
            "accept private",
            "accept [::1]/129:*",
            "accept 1.2.3.4/-1:*",
            "accept name:80",
            "accept *5:80",
            "Accept *:80",
        ] {
            assert!(rules(text).is_err(), "{text:?} gave {:?}", rules(text));
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(&["accept 1.2.3.4:25, reject 1.2.3.0/24:*", "accept *:22"]);
        assert!(policy.allows(ip("1.2.3.4"), 25));
        assert!(!policy.allows(ip("1.2.3.4"), 26));
        assert!(!policy.allows(ip("8.8.8.8"), 25));
        assert!(policy.allows(ip("8.8.8.8"), 443));
        assert!(!policy.allows(ip("192.168.1.1"), 443));
        assert!(!policy.allows(ip("fe80::1"), 443));
        assert!(policy.allows(ip("2001:db8::1"), 443));
        assert!(!policy.rejects_all());
        assert!(ExitPolicy::reject_all().rejects_all());
    }

    #[test]
    fn without_ipv6_exit_no_ipv6_address_is_allowed() {
        let policy =
            ExitPolicy::parse(&["accept *:*"], PolicySettings::default(), &mut Vec::new()).unwrap();
        assert!(policy.allows(ip("8.8.8.8"), 80));
        assert!(!policy.allows(ip("2001:db8::1"), 80));
    }

    #[test]
    fn rules_that_cannot_decide_are_left_out() {
        let policy = policy(&["accept *:80,reject *:*", "accept *:443"]);
        let tail: Vec<_> = policy
            .entries()
            .iter()
            .map(ToString::to_string)
            .skip(11)
            .collect();
        assert_eq!(
            tail,
            ["accept *4:80", "accept *6:80", "reject *4:*", "reject *6:*"]
        );
        let lines = policy.descriptor_lines();
        assert_eq!(lines.first().unwrap(), "reject 0.0.0.0/8:*");
        assert_eq!(lines.last().unwrap(), "reject *:*");
    }

    #[test]
    fn own_addresses_are_rejected_first() {
        let policy = policy(&["accept *:*"]).with_rejected([ip("1.2.3.4")]);
        assert!(!policy.allows(ip("1.2.3.4"), 80));
        assert!(policy.allows(ip("1.2.3.5"), 80));
    }

    #[test]
    fn summaries_are_those_of_the_authorities() {
        // The cases of C tor's own test of policy_summarize (src/test/test_policy.c).
        let summary = |text: &str| {
            let mut entries = Vec::new();
            parse_rules(text, None, &mut entries, &mut Vec::new()).unwrap();
            let mut policy = ExitPolicy { entries };
            policy.remove_redundant();
            policy.summary(Family::V4)
        };
        for (text, want) in [
            ("reject 192.0.0.0/8:*,accept *:80,reject *:*", "accept 80"),
            ("accept *:443,accept *:119,reject *:*", "accept 119,443"),
            ("accept *:1,accept *:3,reject *:*", "accept 1,3"),
            ("accept *:1,accept *:2,reject *:*", "accept 1-2"),
            ("reject *:65535,accept *:*", "reject 65535"),
            (
                "reject *:1,reject *:3,reject *:5,reject *:7,reject *:9,accept *:*",
                "reject 1,3,5,7,9",
            ),
            (
                "reject 11.0.0.0/9:80,reject 12.0.0.0/9:80,reject 13.0.0.0/9:80,reject 14.0.0.0/9:80,accept *:*",
                "accept 1-65535",
            ),
            (
                "reject 11.0.0.0/9:80,reject 12.0.0.0/9:80,reject 13.0.0.0/9:80,reject 14.0.0.0/9:80,reject 15.0.0.0:81,accept *:*",
                "accept 1-65535",
            ),
            (
                "reject 11.0.0.0/9:80,reject 12.0.0.0/9:80,reject 13.0.0.0/9:80,reject 14.0.0.0/9:80,reject 15.0.0.0:80,accept *:*",
                "reject 80",
            ),
            ("accept 11.0.0.0/9:80,accept *:*", "accept 1-65535"),
            ("accept 1.2.3.4:80,reject *:*", "reject 1-65535"),
            ("reject 127.0.0.0/8:*,accept *:*", "accept 1-65535"),
        ] {
            assert_eq!(summary(text), want, "{text:?}");
        }
        let odd: String = (1..2000)
            .step_by(2)
            .map(|port| format!("accept *:{port},"))
            .collect();
        let long = summary(&format!("{odd}reject *:*"));
        assert!(
            long.len() <= MAX_SUMMARY_LEN && long.starts_with("accept 1,3,5"),
            "{}",
            long.len()
        );
    }
}
