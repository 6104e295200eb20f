//! Names under `in-addr.arpa` and `ip6.arpa`: how RESOLVE asks for the name of an address (tor-spec
//! 6.4; RFC 1035 3.5, RFC 3596 2.5). DNS queries of applications and of an exit use the same names.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name, in bytes, without a dot at the end (RFC 1035 2.3.4).
const MAX_NAME: usize = 253;
/// The longest label of a name, in bytes.
const MAX_LABEL: usize = 63;

/// Returns whether a name has labels of letters, digits, `-` and `_` alone. Names that others state are passed on and shown
/// only then (C tor's TROVE-2026-035).
#[must_use]
pub fn is_host_name(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &[u8]| (1..=MAX_LABEL).contains(&label.len()) && label.iter().all(plain);
    name.len() <= MAX_NAME && name.split(|byte| *byte == b'.').all(is_label)
}

/// A host name, parsed as the reverse name of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReverseName {
    /// It is not under `in-addr.arpa` or `ip6.arpa`: an ordinary host name.
    Other,
    /// It is under one of them, and does not name an address.
    Malformed,
    /// The reverse name of this address.
    Of(IpAddr),
}

impl ReverseName {
    /// Reads a host name, in any case, with or without a dot at the end.
    #[must_use]
    pub fn parse(name: &[u8]) -> Self {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let address = if let Some(labels) = strip_suffix_ignoring_case(name, b".in-addr.arpa") {
            ipv4(labels)
        } else if let Some(labels) = strip_suffix_ignoring_case(name, b".ip6.arpa") {
            ipv6(labels)
        } else {
            return Self::Other;
        };
        address.map_or(Self::Malformed, Self::Of)
    }

    /// The address that the name means, if it means one.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Of(address) => Some(address),
            Self::Other | Self::Malformed => None,
        }
    }
}

fn strip_suffix_ignoring_case<'n>(name: &'n [u8], suffix: &[u8]) -> Option<&'n [u8]> {
    let (labels, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
    end.eq_ignore_ascii_case(suffix).then_some(labels)
}

/// Four decimal numbers, the last octet first.
fn ipv4(labels: &[u8]) -> Option<IpAddr> {
    let address: Ipv4Addr = std::str::from_utf8(labels).ok()?.parse().ok()?;
    let [a, b, c, d] = address.octets();
    Some(IpAddr::from([d, c, b, a]))
}

/// 32 hexadecimal digits, the lowest four bits first.
fn ipv6(labels: &[u8]) -> Option<IpAddr> {
    let mut bits: u128 = 0;
    let mut count = 0;
    for label in labels.split(|byte| *byte == b'.') {
        let [digit] = label else {
            return None;
        };
        let value = char::from(*digit).to_digit(16)?;
        if count == 32 {
            return None;
        }
        bits |= u128::from(value) << (4 * count);
        count += 1;
    }
    (count == 32).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

/// The name under which a name server knows the name of an address.
#[must_use]
pub fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let mut name = String::with_capacity(72);
            for octet in address.octets().iter().rev() {
                // Writing to a `String` cannot fail.
                let _ = write!(name, "{:x}.{:x}.", octet & 15, octet >> 4);
            }
            name + "ip6.arpa"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_reverse_names() {
        assert_eq!(
            reverse_name(IpAddr::from([192, 0, 2, 1])),
            "1.2.0.192.in-addr.arpa"
        );
        assert_eq!(
            reverse_name("2001:db8::1".parse().unwrap()),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }

    #[test]
    fn reverse_names_name_their_addresses_in_any_case() {
        for address in ["8.8.4.4", "0.0.0.0", "2001:db8::1", "::", "2620:0:1::2"] {
            let address: IpAddr = address.parse().unwrap();
            let name = reverse_name(address);
            for name in [name.to_ascii_uppercase(), format!("{name}."), name] {
                let parsed = ReverseName::parse(name.as_bytes());
                assert_eq!(parsed, ReverseName::Of(address));
                assert_eq!(parsed.address(), Some(address));
            }
        }
    }

    #[test]
    fn other_names_differ_from_malformed_ones() {
        let six = reverse_name(IpAddr::V6(Ipv6Addr::LOCALHOST));
        let (short, long) = (six.split_at(2).1, format!("0.{six}"));
        for name in [
            "",
            "x",
            "in-addr.arpa",
            "ip6.arpa",
            "x.arpa",
            "1in-addr.arpa",
        ] {
            assert_eq!(ReverseName::parse(name.as_bytes()), ReverseName::Other);
            assert_eq!(ReverseName::Other.address(), None);
        }
        for name in [
            ".in-addr.arpa",
            "3.2.1.in-addr.arpa",
            "256.2.1.1.in-addr.arpa",
            "a.b.c.d.in-addr.arpa",
            "1.ip6.arpa",
            ".ip6.arpa",
            short,
            &long,
        ] {
            assert_eq!(
                ReverseName::parse(name.as_bytes()),
                ReverseName::Malformed,
                "{name}"
            );
        }
    }
}
