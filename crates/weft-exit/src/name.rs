//! The target of a BEGIN or RESOLVE: a literal address, the reverse name of an address, or a host name
//! (tor-spec, "Remote hostname lookup"; C tor's `address_is_invalid_destination`,
//! `tor_addr_parse_PTR_name`).

use std::net::IpAddr;
use std::sync::Arc;

use weft_cell::stream_msg::ReverseName;
use weft_core::routable;

/// The longest name, in bytes, without the dot at the end (RFC 1035 2.3.4).
const MAX_NAME: usize = 253;
/// The longest label of a name, in bytes.
const MAX_LABEL: usize = 63;

/// The target of a BEGIN or RESOLVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An address, which needs no lookup.
    Literal(IpAddr),
    /// A host name, in lower case, without a dot at the end.
    Name(Arc<[u8]>),
    /// The reverse name of an address, in `in-addr.arpa` or `ip6.arpa`.
    Reverse(IpAddr),
}

/// A target that cannot be looked up: it is not a name, or one that is not sent to name servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoName;

impl Target {
    /// Parses the target of a BEGIN or RESOLVE. With `any_bytes`
    /// (ServerDNSAllowNonRFC953Hostnames) names may hold more than letters, digits, `-`, `_`.
    ///
    /// # Errors
    /// [`NoName`] if it is neither an address nor a name that may be looked up, or is the reverse name
    /// of an internal address.
    pub(crate) fn read(host: &[u8], any_bytes: bool) -> Result<Self, NoName> {
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
        match ReverseName::parse(&name) {
            ReverseName::Other => Ok(Self::Name(name.into())),
            ReverseName::Of(addr) if routable::is_public(addr) => Ok(Self::Reverse(addr)),
            ReverseName::Of(_) | ReverseName::Malformed => Err(NoName),
        }
    }
}

/// Parses a literal address; an IPv6 address may be in brackets.
fn literal(host: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(host).ok()?;
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use weft_cell::stream_msg::reverse_name;

    use super::*;

    fn read(host: &str) -> Result<Target, NoName> {
        Target::read(host.as_bytes(), false)
    }

    fn name(host: &str) -> Result<Target, NoName> {
        Ok(Target::Name(host.as_bytes().into()))
    }

    #[test]
    fn addresses_are_distinguished_from_names() {
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
    fn invalid_names_are_refused() {
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
    fn reverse_names_are_parsed() {
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
        // The zones above addresses are names like any other, as in C tor.
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
