//! The open links to relays, in the order in which an extension looks for one: by the relay's
//! identities and the address, so that the cost does not grow with the number of links that one
//! peer opens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use crate::address::ConnectionId;

/// A relay's identities, and the address for which its links serve. `None`: any, as theirs is one
/// that the relay names as its own.
pub(super) type Place = (RsaIdentity, Option<IpAddr>, Ed25519Identity);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RelayLinks {
    /// Links that take new circuits, the oldest of each place first.
    usable: BTreeSet<(Place, ConnectionId)>,
    /// All open links of each relay.
    of: BTreeMap<RsaIdentity, Count>,
}

/// How many links lead to a relay.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    open: usize,
    /// Those that lost packets hold up.
    lossy: usize,
}

impl RelayLinks {
    /// A link has opened.
    pub(super) fn opened(&mut self, id: ConnectionId, place: Place) {
        self.usable.insert((place, id));
        self.of.entry(place.0).or_default().open += 1;
    }

    /// A link takes no new circuits any more.
    pub(super) fn retire(&mut self, id: ConnectionId, place: Place) {
        self.usable.remove(&(place, id));
    }

    /// A link is closed.
    pub(super) fn closed(&mut self, id: ConnectionId, place: Place, was_lossy: bool) {
        self.retire(id, place);
        if was_lossy {
            self.set_lossy(&place.0, false);
        }
        if let Some(count) = self.of.get_mut(&place.0) {
            count.open -= 1;
            if count.open == 0 {
                self.of.remove(&place.0);
            }
        }
    }

    /// Lost packets hold up one more link to a relay, or one less.
    pub(super) fn set_lossy(&mut self, rsa: &RsaIdentity, lossy: bool) {
        if let Some(count) = self.of.get_mut(rsa) {
            match lossy {
                true => count.lossy += 1,
                false => count.lossy -= 1,
            }
        }
    }

    /// Open links to a relay.
    pub(super) fn open(&self, rsa: &RsaIdentity) -> usize {
        self.of.get(rsa).map_or(0, |count| count.open)
    }

    /// Whether lost packets hold up one of them.
    pub(super) fn any_lossy(&self, rsa: &RsaIdentity) -> bool {
        self.of.get(rsa).is_some_and(|count| count.lossy > 0)
    }

    /// Links that take new circuits to a relay with these identities, if they serve for an address
    /// (see [`Place`]). Those with the same ed25519 identity begin with the oldest.
    pub(super) fn usable(
        &self,
        rsa: RsaIdentity,
        ed25519: Option<Ed25519Identity>,
        addr: Option<IpAddr>,
    ) -> impl Iterator<Item = (Place, ConnectionId)> {
        let first = ed25519.unwrap_or(Ed25519Identity([0; 32]));
        let last = ed25519.unwrap_or(Ed25519Identity([u8::MAX; 32]));
        let range =
            ((rsa, addr, first), ConnectionId(0))..=((rsa, addr, last), ConnectionId(u64::MAX));
        self.usable.range(range).copied()
    }
}
