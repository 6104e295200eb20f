//! Addresses that the public Internet could have: Tor refuses others.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// First bytes that have no private or reserved network in them.
fn is_plain(first: u8) -> bool {
    (1..=223).contains(&first) && ![10, 100, 127, 169, 172, 192, 198, 203].contains(&first)
}

/// Addresses that are free. No two hosts get the same.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    taken: BTreeSet<Ipv4Addr>,
    /// /16 networks with hosts.
    networks: BTreeSet<u16>,
    /// Where the search for a free network goes on.
    next_network: u16,
    /// The network of [`crowded`](Self::crowded), and the last address in it.
    crowd: Option<(u16, u16)>,
}

impl Addresses {
    /// This address, if it is public and free; one of the same /16 if it is taken, one of a /16 of its own if it is not
    /// public.
    pub(super) fn take(&mut self, wanted: Ipv4Addr) -> Option<Ipv4Addr> {
        let is_public = !(wanted.is_private()
            || wanted.is_loopback()
            || wanted.is_link_local()
            || wanted.is_unspecified()
            || wanted.is_documentation()
            || wanted.is_multicast()
            || wanted.is_broadcast()
            || wanted.octets().starts_with(&[0]));
        if !is_public {
            return self.own();
        }
        let bits = wanted.to_bits();
        let network = network_of(wanted);
        self.networks.insert(network);
        let mut others = (0..=u16::MAX).map(|step| {
            let low = u16::try_from(bits & 0xffff).unwrap_or(0).wrapping_add(step);
            in_network(network, low)
        });
        let free = others.find(|address| !self.taken.contains(address))?;
        self.taken.insert(free);
        Some(free)
    }

    /// An address in a /16 of its own. None: there are no more.
    pub(super) fn own(&mut self) -> Option<Ipv4Addr> {
        let address = in_network(self.free_network()?, 1);
        self.taken.insert(address);
        Some(address)
    }

    /// An address in a /16 of many, in which no relay is, if relays were given theirs before.
    pub(super) fn crowded(&mut self) -> Option<Ipv4Addr> {
        let (network, last) = match self.crowd {
            Some((network, last)) if last < u16::MAX - 1 => (network, last),
            _ => (self.free_network()?, 0),
        };
        self.crowd = Some((network, last + 1));
        let address = in_network(network, last + 1);
        self.taken.insert(address);
        Some(address)
    }

    fn free_network(&mut self) -> Option<u16> {
        // From 11.0 on, so that what is drawn looks alike; the bytes before that come last.
        const FIRST: u16 = 11 << 8;
        let all = (0..=u16::MAX).map(|step| {
            let place = self.next_network.wrapping_add(step);
            (place, FIRST.wrapping_add(place))
        });
        let free = |network: &u16| {
            let [first, _] = network.to_be_bytes();
            is_plain(first) && !self.networks.contains(network)
        };
        let mut all = all.filter(|(_, network)| free(network));
        let (place, network) = all.next()?;
        self.next_network = place.wrapping_add(1);
        self.networks.insert(network);
        Some(network)
    }
}

fn network_of(address: Ipv4Addr) -> u16 {
    let [one, two, _, _] = address.octets();
    u16::from_be_bytes([one, two])
}

fn in_network(network: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits((u32::from(network) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_hosts_share_an_address_and_no_server_a_relays_network() {
        let mut addresses = Addresses::default();
        let mut relays = vec![
            addresses.take([192, 0, 43, 10].into()).unwrap(),
            addresses.take([192, 0, 43, 10].into()).unwrap(),
            addresses.take([11, 0, 0, 1].into()).unwrap(),
            addresses.take([10, 0, 0, 1].into()).unwrap(),
        ];
        relays.extend((0..500).map(|_| addresses.own().unwrap()));
        let others: Vec<Ipv4Addr> = (0..70_000).map(|_| addresses.crowded().unwrap()).collect();
        let all: BTreeSet<Ipv4Addr> = relays.iter().chain(&others).copied().collect();
        assert_eq!(all.len(), relays.len() + others.len());
        let networks: BTreeSet<u16> = relays.iter().copied().map(network_of).collect();
        assert!(
            !others
                .iter()
                .any(|other| networks.contains(&network_of(*other)))
        );
        assert_eq!(networks.len(), relays.len() - 1);
        assert!(
            all.iter()
                .all(|address| !address.is_private() && !address.is_loopback())
        );
    }

    #[test]
    fn networks_come_to_an_end() {
        let mut addresses = Addresses::default();
        let count = std::iter::from_fn(|| addresses.own()).count();
        assert_eq!(count, (223 - 8) * 256);
        assert_eq!(addresses.crowded(), None);
    }
}
