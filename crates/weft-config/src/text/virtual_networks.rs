//! `VirtualAddrNetworkIPv4` and `VirtualAddrNetworkIPv6`: where addresses are taken from that stand
//! for names (addressmap.c, `parse_virtual_addr_network`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The networks: an address, and how many of its bits are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualNetworks {
    /// `VirtualAddrNetworkIPv4`.
    pub ipv4: (Ipv4Addr, u8),
    /// `VirtualAddrNetworkIPv6`.
    pub ipv6: (Ipv6Addr, u8),
}

impl Default for VirtualNetworks {
    fn default() -> Self {
        Self {
            ipv4: (Ipv4Addr::new(127, 192, 0, 0), 10),
            ipv6: (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
        }
    }
}

impl VirtualNetworks {
    /// Reads the option for IPv4.
    ///
    /// # Errors
    /// The network is malformed, or too small.
    pub(crate) fn set_ipv4(&mut self, text: &str) -> Result<(), String> {
        match parse(text, 16)? {
            (IpAddr::V4(address), bits) => self.ipv4 = (address, bits),
            (IpAddr::V6(_), _) => return Err(format!("\"{text}\" is no IPv4 network")),
        }
        Ok(())
    }

    /// Reads the option for IPv6.
    ///
    /// # Errors
    /// The network is malformed, or too small.
    pub(crate) fn set_ipv6(&mut self, text: &str) -> Result<(), String> {
        match parse(text, 104)? {
            (IpAddr::V6(address), bits) => self.ipv6 = (address, bits),
            (IpAddr::V4(_), _) => return Err(format!("\"{text}\" is no IPv6 network")),
        }
        Ok(())
    }
}

/// The ends of names that get virtual addresses when they are looked up (`AutomapHostsSuffixes`, where
/// `AutomapHostsOnResolve` is set).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Automap(Vec<String>);

impl Automap {
    /// These ends; `.` is the end of every name.
    #[must_use]
    pub fn new(ends: &[String]) -> Self {
        Self(ends.iter().map(|end| end.to_ascii_lowercase()).collect())
    }

    /// Returns true if a name, in lower case, has one of these ends (addressmap.c,
    /// `addressmap_address_should_automap`).
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.0.iter().any(|end| end == "." || name.ends_with(end))
    }
}

/// `ADDRESS/BITS`, an IPv6 address perhaps in brackets. More than `most` bits leave too little room.
fn parse(text: &str, most: u8) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("\"{text}\" is no network: write an address, a slash and a number");
    let (address, bits) = text.trim().split_once('/').ok_or_else(wrong)?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse().map_err(|_| wrong())?;
    let bits: u8 = bits.parse().map_err(|_| wrong())?;
    match bits > most {
        true => Err(format!(
            "\"{text}\" is too small: a /{most} or a larger network is needed"
        )),
        false => Ok((address, bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_covered_by_their_ends() {
        let ends = Automap::new(&[".Onion".to_owned(), "x".to_owned()]);
        assert!(ends.covers("a.onion") && ends.covers("ax"));
        assert!(!ends.covers("onion") && !ends.covers("a.onion.example"));
        assert!(Automap::new(&[".".to_owned()]).covers("a.example"));
        assert!(!Automap::default().covers("a.onion"));
    }

    #[test]
    fn networks_have_room_and_a_family() {
        let mut networks = VirtualNetworks::default();
        assert_eq!(networks.set_ipv4("10.0.0.0/8"), Ok(()));
        assert_eq!(networks.ipv4, (Ipv4Addr::new(10, 0, 0, 0), 8));
        assert_eq!(networks.set_ipv6("[fc00::]/7"), Ok(()));
        assert_eq!(networks.ipv6.1, 7);
        for bad in ["10.0.0.0", "10.0.0.0/17", "x/8", "fc00::/7", ""] {
            assert!(networks.set_ipv4(bad).is_err(), "{bad}");
        }
        assert!(networks.set_ipv6("fc00::/105").is_err());
    }
}
