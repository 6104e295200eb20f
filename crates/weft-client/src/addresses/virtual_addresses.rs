//! Names and addresses that stand for nothing until a controller maps them (control-spec 3.8;
//! addressmap.c, `addressmap_get_virtual_address`).

use std::net::IpAddr;

use rand::{Rng, RngExt as _};

use weft_config::VirtualNetworks;

use super::host::Host;

/// Characters of a name before `.virtual`.
const NAME: usize = 10;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The kind of a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Virtual {
    /// `.`
    Name,
    /// `0.0.0.0`
    Ipv4,
    /// `::`
    Ipv6,
}

impl Virtual {
    /// The kind that a name in MAPADDRESS requests; `None`: it is an ordinary name.
    pub fn asked(from: &str) -> Option<Self> {
        match from {
            "." => Some(Self::Name),
            "0.0.0.0" => Some(Self::Ipv4),
            "::" | "[::]" => Some(Self::Ipv6),
            _ => None,
        }
    }

    /// Returns true if this may have chosen the name.
    pub fn owns(self, name: &Host, networks: VirtualNetworks) -> bool {
        match (self, name.address()) {
            (Self::Name, _) => name.as_str().ends_with(".virtual"),
            (Self::Ipv4, Some(IpAddr::V4(address))) => {
                let (network, bits) = networks.ipv4;
                (u32::from(address) ^ u32::from(network)) & !rest_v4(bits) == 0
            }
            (Self::Ipv6, Some(IpAddr::V6(address))) => {
                let (network, bits) = networks.ipv6;
                (u128::from(address) ^ u128::from(network)) & !rest_v6(bits) == 0
            }
            _ => false,
        }
    }

    /// One, by chance.
    pub fn choose(self, networks: VirtualNetworks, rng: &mut impl Rng) -> Host {
        match self {
            Self::Name => {
                let letter = |_| {
                    let index = usize::from(rng.random::<u8>()) % LETTERS.len();
                    LETTERS.get(index).copied().map_or('a', char::from)
                };
                let name: String = (0..NAME).map(letter).collect();
                Host::new(&format!("{name}.virtual"))
            }
            Self::Ipv4 => {
                let (network, bits) = networks.ipv4;
                let rest = rest_v4(bits);
                let address = (u32::from(network) & !rest) | (rng.random::<u32>() & rest);
                // Programs may take these for a network or its broadcast address.
                let address = match address & 0xff {
                    0 => address | 1,
                    0xff => address & !1,
                    _ => address,
                };
                IpAddr::V4(address.into()).into()
            }
            Self::Ipv6 => {
                let (network, bits) = networks.ipv6;
                let rest = rest_v6(bits);
                let address = (u128::from(network) & !rest) | (rng.random::<u128>() & rest);
                IpAddr::V6(address.into()).into()
            }
        }
    }
}

fn rest_v4(bits: u8) -> u32 {
    u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0)
}

fn rest_v6(bits: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn what_is_chosen_lies_in_its_network() {
        let mut rng = StdRng::from_seed([7; 32]);
        let networks = VirtualNetworks::default();
        for asked in [".", "0.0.0.0", "::"] {
            let kind = Virtual::asked(asked).unwrap();
            for _ in 0..1000 {
                let chosen = kind.choose(networks, &mut rng);
                assert!(kind.owns(&chosen, networks), "{chosen}");
            }
        }
        for network in [0, 0xff] {
            // Eight of the bits are left to chance, and those eight are the last.
            let networks = VirtualNetworks {
                ipv4: ([127, 192, 7, 0].into(), 24),
                ..networks
            };
            for _ in 0..2000 {
                let chosen = Virtual::Ipv4.choose(networks, &mut rng);
                let Some(IpAddr::V4(chosen)) = chosen.address() else {
                    panic!("{chosen}");
                };
                assert_eq!(chosen.octets()[..3], [127, 192, 7]);
                assert_ne!(
                    chosen.octets()[3],
                    network,
                    "no network or broadcast address"
                );
            }
        }
        for kind in [Virtual::Name, Virtual::Ipv4, Virtual::Ipv6] {
            let chosen: Vec<Host> = (0..100).map(|_| kind.choose(networks, &mut rng)).collect();
            let distinct: BTreeSet<&str> = chosen.iter().map(Host::as_str).collect();
            assert!(distinct.len() > 98, "{kind:?}");
        }
        let names: String = (0..200)
            .map(|_| Virtual::Name.choose(networks, &mut rng).to_string())
            .collect();
        let letters = LETTERS.iter().map(|letter| char::from(*letter));
        assert!(letters.into_iter().all(|letter| names.contains(letter)));
        let mut begins =
            |kind: Virtual, with| kind.choose(networks, &mut rng).as_str().starts_with(with);
        assert!(begins(Virtual::Ipv4, "127.") && begins(Virtual::Ipv6, "fe"));
        assert!(!Virtual::Ipv4.owns(&"127.0.0.1".into(), networks));
        assert!(!Virtual::Name.owns(&"a.example".into(), networks));
        assert_eq!(Virtual::asked("a"), None);
    }
}
