//! The hop before this relay on a circuit, as far as a relay can know it.

use std::net::{IpAddr, Ipv6Addr};

use weft_cell::identity::RsaIdentity;

/// The hop before this relay on a circuit: the owner of a share of a bound.
///
/// Identities cost nothing, so only those that the consensus lists count; addresses cost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreviousHop {
    /// This node, as the origin of a circuit.
    Own,
    /// A relay that the consensus lists, by its RSA identity.
    Relay(RsaIdentity),
    /// A client, or a relay that the consensus does not list, by the network that
    /// [`network`] gives.
    Address(IpAddr),
}

impl PreviousHop {
    /// The hop at an address that no listed relay was proven to have.
    #[must_use]
    pub fn at(addr: IpAddr) -> Self {
        Self::Address(network(addr))
    }
}

/// The address that stands for all addresses that one client has: an IPv4 address, or the /64 of an
/// IPv6 address, since a client that has one address of it has the others. An IPv4 address that is mapped
/// into IPv6 is that IPv4 address.
#[must_use]
pub fn network(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() >> 64 << 64)),
        addr => addr,
    }
}
