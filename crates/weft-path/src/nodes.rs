//! Relays as people name them: one relay ([`RelayName`]), or a set of them as `ExitNodes` and its
//! like hold ([`NodeSet`]; C tor: routerset.c).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding as _};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use crate::countries::Countries;

/// Bytes of base64 without padding that make an ed25519 identity.
const ED25519_BASE64: usize = 43;

/// Name of a relay as a person writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RelayName {
    /// `$FINGERPRINT`, with or without the dollar, and with or without `~name` or `=name` after it.
    Rsa(RsaIdentity),
    /// An ed25519 identity in base64 (Weft's own; C tor does not read it).
    Ed25519(Ed25519Identity),
    /// A nickname; case does not matter. Several relays may have it.
    Nickname(String),
}

impl FromStr for RelayName {
    type Err = NodeSetError;

    fn from_str(text: &str) -> Result<Self, NodeSetError> {
        parse_fingerprint(text)
            .map(Self::Rsa)
            .or_else(|| parse_ed25519(text).map(Self::Ed25519))
            .or_else(|| is_nickname(text).then(|| Self::Nickname(text.to_owned())))
            .ok_or_else(|| NodeSetError(text.to_owned()))
    }
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(id) => write!(f, "${id}"),
            Self::Ed25519(id) => f.write_str(&Base64Unpadded::encode_string(id.as_bytes())),
            Self::Nickname(name) => f.write_str(name),
        }
    }
}

/// A malformed entry of a set of relays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is neither a fingerprint, a nickname, a {{country}}, nor an address pattern")]
pub struct NodeSetError(pub String);

/// Addresses, as `1.2.3.0/24` or `[2001:db8::]/32:443` name them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// `None`: any address.
    net: Option<(IpAddr, u32)>,
    /// ORPorts.
    ports: RangeInclusive<u16>,
}

/// A set of relays: fingerprints, nicknames, addresses, and countries, once they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet {
    /// The list as it was written.
    text: String,
    names: Vec<RelayName>,
    patterns: Vec<Pattern>,
    /// Two letters, lower case, or `??`.
    countries: Vec<String>,
    /// Where addresses are.
    table: Option<Arc<Countries>>,
}

/// Properties by which a relay is matched.
pub(crate) struct Recognised<'a> {
    pub(crate) rsa: &'a RsaIdentity,
    pub(crate) ed25519: Option<&'a Ed25519Identity>,
    pub(crate) nickname: &'a str,
    pub(crate) addrs: &'a [SocketAddr],
}

impl NodeSet {
    /// Returns true if nothing was listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty() && self.countries.is_empty()
    }

    /// The countries that were listed. They contain no relay before it is known where addresses are
    /// ([`set_countries`](Self::set_countries)).
    #[must_use]
    pub fn countries(&self) -> &[String] {
        &self.countries
    }

    /// Sets the table of the countries of addresses.
    pub fn set_countries(&mut self, table: &Arc<Countries>) {
        if !self.countries.is_empty() {
            self.table = Some(table.clone());
        }
    }

    /// Adds those of unknown country (`GeoIPExcludeUnknown`).
    pub(crate) fn add_unknown(&mut self) {
        let unknown = || "??".to_owned();
        if !self.countries.contains(&unknown()) {
            self.countries.push(unknown());
        }
    }

    /// Returns true if a relay's first address is in one of the countries.
    fn is_in_countries(&self, relay: &Recognised<'_>) -> bool {
        let (Some(table), Some(addr)) = (&self.table, relay.addrs.first()) else {
            return false;
        };
        let country = table.of(addr.ip());
        self.countries
            .iter()
            .any(|listed| listed.as_bytes() == country)
    }

    pub(crate) fn contains(&self, relay: &Recognised<'_>) -> bool {
        self.names.iter().any(|name| match name {
            RelayName::Rsa(id) => id == relay.rsa,
            RelayName::Ed25519(id) => Some(id) == relay.ed25519,
            RelayName::Nickname(name) => name.eq_ignore_ascii_case(relay.nickname),
        }) || self
            .patterns
            .iter()
            .any(|pattern| relay.addrs.iter().any(|addr| pattern.contains(*addr)))
            || self.is_in_countries(relay)
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NodeSet {
    type Err = NodeSetError;

    /// Reads entries between commas.
    fn from_str(text: &str) -> Result<Self, NodeSetError> {
        let mut set = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            if let Ok(name) = entry.parse() {
                set.names.push(name);
            } else if let Some(country) = parse_country(entry) {
                set.countries.push(country);
            } else if let Some(pattern) = parse_pattern(entry) {
                set.patterns.push(pattern);
            } else {
                return Err(NodeSetError(entry.to_owned()));
            }
        }
        Ok(set)
    }
}

impl Pattern {
    fn contains(&self, addr: SocketAddr) -> bool {
        let inside = match self.net {
            None => true,
            Some((net, bits)) => same_prefix(net, addr.ip(), bits),
        };
        inside && self.ports.contains(&addr.port())
    }
}

/// Returns true if the first `bits` of two addresses of one family are equal.
pub(crate) fn same_prefix(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differing = a.to_bits() ^ b.to_bits();
            differing.leading_zeros() >= bits.min(32)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differing = a.to_bits() ^ b.to_bits();
            differing.leading_zeros() >= bits.min(128)
        }
        _ => false,
    }
}

/// 40 hexadecimal digits, perhaps with `$` before them and a nickname behind (nickname.c,
/// `is_legal_hexdigest`).
fn parse_fingerprint(text: &str) -> Option<RsaIdentity> {
    let digits = text.strip_prefix('$').unwrap_or(text);
    let (digits, rest) = digits.split_at_checked(40)?;
    let mut id = [0; 20];
    hex::decode_to_slice(digits, &mut id).ok()?;
    let id = RsaIdentity(id);
    match rest.strip_prefix(['~', '=']) {
        Some(name) => is_nickname(name).then_some(id),
        None => rest.is_empty().then_some(id),
    }
}

/// Up to 19 letters and digits (dir-spec 2.1.3).
fn is_nickname(text: &str) -> bool {
    (1..=19).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn parse_ed25519(text: &str) -> Option<Ed25519Identity> {
    let text = text.strip_prefix("ed25519:").unwrap_or(text);
    let text = text.strip_suffix('=').unwrap_or(text);
    if text.len() != ED25519_BASE64 {
        return None;
    }
    let mut id = [0; 32];
    Base64Unpadded::decode(text, &mut id).ok()?;
    Some(Ed25519Identity(id))
}

fn parse_country(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let known = inner.len() == 2 && inner.bytes().all(|b| b.is_ascii_alphabetic());
    (known || inner == "??").then(|| inner.to_ascii_lowercase())
}

/// `ADDRESS[/BITS or /MASK][:PORT[-PORT]]`, as in policies; `*` is any address or port, `*4` and
/// `*6` any of a family.
fn parse_pattern(text: &str) -> Option<Pattern> {
    if !text.contains(['.', ':', '*']) {
        return None;
    }
    let (host, rest) = if let Some(bracketed) = text.strip_prefix('[') {
        bracketed.split_once(']')?
    } else if text.bytes().filter(|&b| b == b':').count() > 1 {
        // An IPv6 address without brackets has no port.
        match text.split_once('/') {
            Some((host, _)) => (host, text.get(host.len()..)?),
            None => (text, ""),
        }
    } else {
        let end = text.find(['/', ':']).unwrap_or(text.len());
        text.split_at_checked(end)?
    };
    let (mask, ports) = match rest.strip_prefix('/') {
        Some(rest) => {
            let (mask, ports) = rest.split_once(':').unwrap_or((rest, ""));
            (Some(mask), ports)
        }
        None if rest.is_empty() => (None, ""),
        None => (None, rest.strip_prefix(':')?),
    };
    let net = match host {
        "*" if mask.is_none() => None,
        "*4" if mask.is_none() => Some((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
        "*6" if mask.is_none() => Some((IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)),
        host => {
            let ip: IpAddr = host.parse().ok()?;
            Some((ip, parse_mask(ip, mask)?))
        }
    };
    Some(Pattern {
        net,
        ports: parse_ports(ports)?,
    })
}

fn parse_mask(ip: IpAddr, mask: Option<&str>) -> Option<u32> {
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let Some(mask) = mask else {
        return Some(most);
    };
    if let Ok(bits) = mask.parse::<u32>() {
        return (bits <= most).then_some(bits);
    }
    // A dotted mask must be ones followed by zeros.
    let mask: Ipv4Addr = mask.parse().ok()?;
    let bits = mask.to_bits().leading_ones();
    (ip.is_ipv4() && mask.to_bits().count_ones() == bits).then_some(bits)
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    if text.is_empty() || text == "*" {
        return Some(0..=u16::MAX);
    }
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (low <= high && low > 0).then_some(low..=high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINGERPRINT: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

    fn relay<'a>(
        rsa: &'a RsaIdentity,
        nickname: &'a str,
        addrs: &'a [SocketAddr],
    ) -> Recognised<'a> {
        Recognised {
            rsa,
            ed25519: Some(&Ed25519Identity([7; 32])),
            nickname,
            addrs,
        }
    }

    #[test]
    fn sets_hold_what_they_name() {
        let rsa: [u8; 20] = hex::decode(FINGERPRINT).unwrap().try_into().unwrap();
        let rsa = RsaIdentity(rsa);
        let addrs = [
            "10.1.2.3:9001".parse().unwrap(),
            "[2001:db8::1]:443".parse().unwrap(),
        ];
        let relay = relay(&rsa, "Weaver", &addrs);
        for text in [
            FINGERPRINT,
            &format!("${FINGERPRINT}"),
            &format!("${FINGERPRINT}~Other"),
            &format!("{FINGERPRINT}=x"),
            "weaver",
            "a, WEAVER ,b",
            "10.1.0.0/16",
            "10.1.2.3",
            "10.0.0.0/255.0.0.0",
            "10.1.2.3:9001",
            "10.1.2.3:9000-9002",
            "[2001:db8::]/32",
            "2001:db8::/32",
            "[2001:db8::1]:443",
            "*",
            "*:443",
            "*4",
            "*6",
            "*6:443",
            "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc",
        ] {
            let set: NodeSet = text.parse().unwrap();
            assert!(set.contains(&relay), "{text}");
            assert_eq!(set.to_string(), text);
        }
        for text in [
            "",
            ",",
            "other",
            "{de}",
            "{??}",
            "10.2.0.0/16",
            "10.1.2.3:9002",
            "*:80",
            "*4:443",
            "0000000000000000000000000000000000000000",
        ] {
            let set: NodeSet = text.parse().unwrap();
            assert!(!set.contains(&relay), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "two words",
            "{d}",
            "10.1.2.3/33",
            "10.1.2.3:0",
            "10.1.2.3:9-8",
            "10.0.0.0/255.0.255.0",
            "[::1",
            "*/8",
            "*4/0",
            "*6/0",
            "$0123",
            "namesthataretoolongtobe",
        ] {
            assert!(text.parse::<NodeSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn relays_are_in_the_country_of_their_first_address() {
        let addrs = [
            "10.1.2.3:9001".parse().unwrap(),
            "[2001:db8::1]:443".parse().unwrap(),
        ];
        let relay = relay(&RsaIdentity([1; 20]), "a", &addrs);
        let table = Countries::parse("10.0.0.0,10.255.255.255,DE", "2001::,2002::,FR").unwrap();
        let table = Arc::new(table);
        for (text, is_in) in [
            ("{de}", true),
            ("x,{DE}", true),
            ("{fr}", false),
            ("{??}", false),
        ] {
            let mut set: NodeSet = text.parse().unwrap();
            assert!(!set.contains(&relay), "before it is known");
            set.set_countries(&table);
            assert_eq!(set.contains(&relay), is_in, "{text}");
        }
        let elsewhere = ["192.0.2.1:1".parse().unwrap()];
        let relay = self::relay(&RsaIdentity([1; 20]), "a", &elsewhere);
        let mut set: NodeSet = "{de}".parse().unwrap();
        set.add_unknown();
        set.set_countries(&table);
        assert!(set.contains(&relay));
    }

    #[test]
    fn countries_are_kept_apart() {
        let set: NodeSet = "{DE},{us},x".parse().unwrap();
        assert_eq!(set.countries(), ["de", "us"]);
        for text in ["{DE}", "x", "10.0.0.0/8"] {
            assert!(!text.parse::<NodeSet>().unwrap().is_empty(), "{text}");
        }
        assert!(NodeSet::default().is_empty());
    }

    proptest! {
        #[test]
        fn names_come_back(id: [u8; 32], rsa: [u8; 20]) {
            for name in [RelayName::Ed25519(id.into()), RelayName::Rsa(rsa.into())] {
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
        }

        #[test]
        fn any_text_is_a_set_or_an_error(text in ".{0,60}") {
            let _ = text.parse::<NodeSet>();
        }
    }
}
