//! What a client asks to be looked up: a literal address, the name of an address, or a name that
//! may be asked of a name server (tor-spec, "Remote hostname lookup"; C tor's
//! `address_is_invalid_destination`, `tor_addr_parse_PTR_name`).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use weft_core::routable;

/// The longest name, in bytes, without the dot at the end (RFC 1035 2.3.4).
const MAX_NAME: usize = 253;
/// The longest part of a name between dots, in bytes.
const MAX_LABEL: usize = 63;

/// What a client wants to reach, or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// An address: nothing is to be looked up.
    Literal(IpAddr),
    /// A host name, in lower case, without a dot at the end.
    Name(Arc<[u8]>),
    /// The name of an address, in `in-addr.arpa` or `ip6.arpa`.
    Reverse(IpAddr),
}

/// What cannot be looked up: no name, or one that no name server is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoName;

impl Target {
    /// Reads what a BEGIN or RESOLVE names. With `any_bytes`
    /// (ServerDNSAllowNonRFC953Hostnames) names may hold more than letters, digits, `-`, `_`.
    ///
    /// # Errors
    /// [`NoName`] if it is neither an address nor a name that may be asked for, or is the name of
    /// an internal address.
    pub(super) fn read(host: &[u8], any_bytes: bool) -> Result<Self, NoName> {
        if let Some(addr) = literal(host) {
            return Ok(Self::Literal(addr));
        }
        let host = host.strip_suffix(b".").unwrap_or(host);
        if host.is_empty() || host.len() > MAX_NAME {
            return Err(NoName);
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        for label in host.split(|b| *b == b'.') {
            let empty_or_long = label.is_empty() || label.len() > MAX_LABEL;
            if empty_or_long || !label.iter().all(|b| plain(*b) || (any_bytes && *b != 0)) {
                return Err(NoName);
            }
        }
        let name = host.to_ascii_lowercase();
        match reverse(&name) {
            None => Ok(Self::Name(name.into())),
            Some(Some(addr)) if routable::is_public(addr) => Ok(Self::Reverse(addr)),
            Some(_) => Err(NoName),
        }
    }
}

/// An address, written out; an IPv6 address may be in brackets.
fn literal(host: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(host).ok()?;
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// The address that a name under `in-addr.arpa` or `ip6.arpa` is the name of; `None`: the name is
/// not there, `Some(None)`: it is there and means no address.
fn reverse(name: &[u8]) -> Option<Option<IpAddr>> {
    if let Some(parts) = name.strip_suffix(b".in-addr.arpa") {
        let text = std::str::from_utf8(parts).ok();
        let addr = text.and_then(|text| text.parse::<Ipv4Addr>().ok());
        let [a, b, c, d] = addr.map(|addr| addr.octets()).unwrap_or_default();
        return Some(addr.map(|_| IpAddr::from([d, c, b, a])));
    }
    let parts = name.strip_suffix(b".ip6.arpa")?;
    let mut bits: u128 = 0;
    let mut count = 0;
    // The lowest four bits come first.
    for (index, digit) in parts.split(|b| *b == b'.').enumerate() {
        let value = match digit {
            [digit] => char::from(*digit).to_digit(16),
            _ => None,
        };
        let Some(value) = value.filter(|_| index < 32) else {
            return Some(None);
        };
        bits |= u128::from(value) << (4 * index);
        count = index + 1;
    }
    Some((count == 32).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits))))
}

/// The name under which a name server knows the name of an address (RFC 1035 3.5, RFC 3596 2.5).
#[must_use]
pub fn reverse_name(addr: IpAddr) -> String {
    match addr {
        IpAddr::V4(addr) => {
            let [a, b, c, d] = addr.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(addr) => {
            let digits: String = addr
                .octets()
                .iter()
                .rev()
                .map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4))
                .collect();
            format!("{digits}ip6.arpa")
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(host: &str) -> Result<Target, NoName> {
        Target::read(host.as_bytes(), false)
    }

    fn name(host: &str) -> Result<Target, NoName> {
        Ok(Target::Name(host.as_bytes().into()))
    }

    #[test]
    fn addresses_are_told_from_names() {
        let literal = |text: &str| Ok(Target::Literal(text.parse().map_err(|_| NoName)?));
        assert_eq!(read("192.0.2.1"), literal("192.0.2.1"));
        assert_eq!(read("2001:db8::1"), literal("2001:db8::1"));
        assert_eq!(read("[2001:db8::1]"), literal("2001:db8::1"));
        assert_eq!(read("192.0.2.1.example"), name("192.0.2.1.example"));
        assert_eq!(read("192.0.2"), name("192.0.2"));
        assert_eq!(read("WWW.Example.COM."), name("www.example.com"));
        assert_eq!(read("a_b-c"), name("a_b-c"));
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}example", "a.".repeat(124));
        for bad in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "exa\u{e4}mple",
            "a\0b",
            "[192.0.2.1]",
            "[::1",
            "::g",
            "user@host",
            long_label.as_str(),
            long_name.as_str(),
        ] {
            assert_eq!(read(bad), Err(NoName), "{bad:?}");
        }
        assert!(Target::read(b"a b", true).is_ok());
        assert!(Target::read(&[0xff, b'.', b'x'], true).is_ok());
        assert_eq!(Target::read(b"a\0b", true), Err(NoName));
        assert_eq!(Target::read(b"a..b", true), Err(NoName));
        let longest = format!(
            "{}.{}.{}.{}",
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(61)
        );
        assert_eq!(longest.len(), MAX_NAME);
        assert!(read(&longest).is_ok());
        assert!(read(&format!("{longest}.")).is_ok());
        assert_eq!(read(&format!("{longest}e")), Err(NoName));
    }

    #[test]
    fn names_of_addresses_are_the_addresses() {
        let reverse = |text: &str| Ok(Target::Reverse(text.parse().map_err(|_| NoName)?));
        assert_eq!(read("4.3.2.1.in-addr.arpa"), reverse("1.2.3.4"));
        let six: IpAddr = "2620:0:1::2".parse().unwrap();
        assert_eq!(
            read(&reverse_name(six).to_uppercase()),
            Ok(Target::Reverse(six))
        );
        assert_eq!(
            reverse_name("1.2.3.4".parse().unwrap()),
            "4.3.2.1.in-addr.arpa"
        );
        let short = reverse_name(six).split_off(2);
        let long = format!("0.{}", reverse_name(six));
        for bad in [
            "3.2.1.in-addr.arpa",
            "256.2.1.1.in-addr.arpa",
            "x.in-addr.arpa",
            "1.0.0.127.in-addr.arpa",
            "1.0.0.10.in-addr.arpa",
            short.as_str(),
            long.as_str(),
            "10.ip6.arpa",
        ] {
            assert_eq!(read(bad), Err(NoName), "{bad}");
        }
        // What stands above addresses is a name like any other, as in C tor.
        assert_eq!(read("in-addr.arpa"), name("in-addr.arpa"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_can_be_read(host: Vec<u8>, any_bytes: bool) {
            if let Ok(Target::Name(name)) = Target::read(&host, any_bytes) {
                proptest::prop_assert!(name.len() <= MAX_NAME && !name.is_empty());
                proptest::prop_assert!(!name.contains(&0));
            }
        }
    }
}
