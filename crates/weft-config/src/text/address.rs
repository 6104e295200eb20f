//! `address:port` as C tor splits it (src/lib/net/address.c, `tor_addr_port_split`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::text::number::parse_long;

/// An address, and a port where one was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressPort {
    pub(crate) address: IpAddr,
    /// Never 0.
    pub(crate) port: Option<u16>,
}

/// An IPv4 address, or an IPv6 address with or without brackets.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    match text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text
            .parse::<Ipv4Addr>()
            .map(IpAddr::V4)
            .or_else(|_| text.parse::<Ipv6Addr>().map(IpAddr::V6))
            .ok(),
    }
}

/// An address that may have a port; an IPv6 address with a port needs brackets.
pub(crate) fn parse_address_port(text: &str) -> Option<AddressPort> {
    if let Some(address @ IpAddr::V6(_)) = parse_address(text) {
        return Some(AddressPort {
            address,
            port: None,
        });
    }
    match split_host_port(text)? {
        (host, None) => Some(AddressPort {
            address: parse_address(host)?,
            port: None,
        }),
        (host, port) => {
            let bare_ipv6 = host.parse::<Ipv6Addr>().is_ok();
            let address = parse_address(host).filter(|_| !bare_ipv6)?;
            Some(AddressPort { address, port })
        }
    }
}

/// A host, which may be a name, and a port where one was given; `None` where the port is bad.
pub(crate) fn split_host_port(text: &str) -> Option<(&str, Option<u16>)> {
    match text.rsplit_once(':') {
        None => Some((text, None)),
        Some((host, port)) => {
            let port = parse_long(port, 1, 65535)?;
            Some((host, Some(u16::try_from(port).ok()?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_from_ports() {
        let show = |text| {
            parse_address_port(text)
                .map(|a| format!("{} {:?}", a.address, a.port))
                .unwrap_or_default()
        };
        assert_eq!(show("1.2.3.4"), "1.2.3.4 None");
        assert_eq!(show("1.2.3.4:80"), "1.2.3.4 Some(80)");
        assert_eq!(show("[::1]:80"), "::1 Some(80)");
        assert_eq!(show("[::1]"), "::1 None");
        assert_eq!(show("::1"), "::1 None");
        assert_eq!(show("1::2:80"), "1::2:80 None");
        for bad in [
            "",
            ":80",
            "1.2.3.4:0",
            "1.2.3.4:65536",
            "1.2.3:80",
            "[::1:80",
            "1:2:3:4:5:6:7:8:9",
            "name:80",
        ] {
            assert_eq!(show(bad), "", "{bad:?}");
        }
    }
}
