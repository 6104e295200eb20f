//! [`Host`]: a destination in the one form that maps and rules compare.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A name or an address as an exit gets it: in lower case, without dots at its end, an address in its shortest form and
/// without brackets. So no spelling of a name passes a rule that another spelling breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Arc<str>);

impl Host {
    /// The form of any text.
    pub fn new(text: &str) -> Self {
        let text = text.trim_end_matches('.');
        let inner = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        match inner.unwrap_or(text).parse::<IpAddr>() {
            Ok(addr) => addr.into(),
            Err(_) => Self(text.to_ascii_lowercase().into()),
        }
    }

    /// The name or address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, if it is one.
    pub fn address(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// Returns true for a name of this machine or its network by definition
    /// (`tor_addr_hostname_is_local`).
    pub(crate) fn is_local_name(&self) -> bool {
        matches!(&*self.0, "localhost" | "local") || self.0.ends_with(".local")
    }

    pub(crate) fn is_onion(&self) -> bool {
        self.0.ends_with(".onion")
    }

    /// Returns true for an address, and for a name of only the characters of host names
    /// (`address_is_invalid_destination`).
    pub(crate) fn is_valid(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        self.address().is_some() || !self.0.is_empty() && self.0.bytes().all(plain)
    }
}

impl From<IpAddr> for Host {
    fn from(addr: IpAddr) -> Self {
        Self(addr.to_string().into())
    }
}

impl From<&str> for Host {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_has_one_form() {
        for (text, form) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("example.com..", "example.com"),
            ("192.168.1.1.", "192.168.1.1"),
            ("[::1]", "::1"),
            ("[0:0::0:1].", "::1"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("[192.0.2.1]", "192.0.2.1"),
            ("[A]", "[a]"),
            (".", ""),
            ("", ""),
        ] {
            let host = Host::new(text);
            assert_eq!(host.as_str(), form, "{text}");
            assert_eq!(Host::new(form), host, "it is the form of itself");
        }
    }

    #[test]
    fn local_names_onion_services_and_invalid_names_are_known_in_any_spelling() {
        for local in ["LocalHost.", "local", "local.", "printer.LOCAL.", "a.local"] {
            assert!(Host::new(local).is_local_name(), "{local}");
        }
        assert!(!Host::new("locals").is_local_name() && !Host::new("xlocal").is_local_name());
        assert!(Host::new("abc.ONION..").is_onion() && !Host::new("onion.example").is_onion());
        for invalid in ["", ".", "a b", "a:80", "a\0b", "a\r\nb", "[a", "käse"] {
            assert!(!Host::new(invalid).is_valid(), "{invalid:?}");
        }
        for valid in ["a_b-c.example", "::1", "[::1]", "192.0.2.1"] {
            assert!(Host::new(valid).is_valid(), "{valid}");
        }
    }
}
