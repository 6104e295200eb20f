//! Relays that the consensus lists, by identity, and their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use weft_cell::identity::RsaIdentity;

/// Relays of the latest consensus.
///
/// Without a consensus, a made-up identity cannot be distinguished from a listed one. Then every
/// peer that proves an identity counts as a relay for the defences, which also take their limits
/// from the consensus, so that a network can start; but no share belongs to an identity, and no
/// address counts as listed. A new consensus replaces all of it.
#[derive(Debug, Default)]
pub(super) struct Network {
    relays: Option<BTreeMap<RsaIdentity, Vec<SocketAddr>>>,
    /// The addresses of all of them, without ports.
    addresses: BTreeSet<IpAddr>,
}

impl Network {
    pub(super) fn new(relays: BTreeMap<RsaIdentity, Vec<SocketAddr>>) -> Self {
        let addresses = relays.values().flatten();
        Self {
            addresses: addresses.map(|addr| addr.ip().to_canonical()).collect(),
            relays: Some(relays),
        }
    }

    /// True if a peer that proved this identity counts as a relay for the defences: also while no
    /// consensus is known.
    pub(super) fn is_relay(&self, rsa: &RsaIdentity) -> bool {
        self.relays
            .as_ref()
            .is_none_or(|relays| relays.contains_key(rsa))
    }

    /// True if the consensus is known and lists this identity.
    pub(super) fn lists(&self, rsa: &RsaIdentity) -> bool {
        self.relays
            .as_ref()
            .is_some_and(|relays| relays.contains_key(rsa))
    }

    /// True if the consensus lists this address for this identity.
    pub(super) fn lists_at(&self, rsa: &RsaIdentity, addr: &SocketAddr) -> bool {
        let addrs = self.relays.as_ref().and_then(|relays| relays.get(rsa));
        addrs.is_some_and(|addrs| addrs.contains(addr))
    }

    /// True if the consensus lists this address for any relay (C tor
    /// `nodelist_probably_contains_address`).
    pub(super) fn has_address(&self, addr: IpAddr) -> bool {
        self.addresses.contains(&addr.to_canonical())
    }
}
