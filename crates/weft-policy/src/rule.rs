//! The rules of a policy, and the grammar that they are written in (policy_parse.c).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::strtol::take_long;

/// The networks that `private` stands for. Every authority must agree on them, since they do not
/// count in summaries.
pub const PRIVATE_NETS: [&str; 12] = [
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
    /// True if matching connections are accepted.
    pub accept: bool,
    /// An address of the network.
    pub address: IpAddr,
    /// Number of leading bits of `address` that count.
    pub prefix: u8,
    /// First port.
    pub port_min: u16,
    /// Last port; not below `port_min`.
    pub port_max: u16,
}

impl PolicyEntry {
    /// The family of its addresses.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self.address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// Returns true if it applies to every port.
    #[must_use]
    pub const fn all_ports(&self) -> bool {
        self.port_min <= 1 && self.port_max == u16::MAX
    }

    pub(super) const fn is_wildcard(&self) -> bool {
        self.prefix == 0 && self.all_ports()
    }

    /// Returns true if both have the same family and agree in the leading `prefix` bits.
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

    pub(super) fn matches(&self, address: IpAddr, port: u16) -> bool {
        (self.port_min..=self.port_max).contains(&port) && self.covers_address(address)
    }

    /// Returns true if the address is in the rule's network.
    #[must_use]
    pub fn covers_address(&self, address: IpAddr) -> bool {
        self.same_network(address, self.prefix)
    }

    /// Returns true if every connection that matches `other` matches this rule.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix
            && self.same_network(other.address, self.prefix)
            && self.port_min <= other.port_min
            && self.port_max >= other.port_max
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        self.same_network(other.address, self.prefix.min(other.prefix))
            && self.port_min <= other.port_max
            && other.port_min <= self.port_max
    }

    pub(super) fn is_private_net(&self) -> bool {
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

/// Meaning of a plain `*`.
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
/// A rule is malformed: the text names it, with the reason.
pub fn parse_rules(
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
