//! The open links to relays, in the order in which an extension looks for one: by the relay's
//! identities and the address, so that the cost does not grow with the number of links that one
//! peer opens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use crate::address::ConnectionId;

/// A relay's identities, and the address for which its links serve. `None`: any address, because
/// the relay names the link's own address in its NETINFO.
pub(super) type Place = (RsaIdentity, Option<IpAddr>, Ed25519Identity);

/// An open link to a relay.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelayLink {
    pub(super) id: ConnectionId,
    pub(super) place: Place,
    /// The address that this node connected to. `None`: the relay opened the link.
    pub(super) connected_to: Option<SocketAddr>,
}

impl RelayLink {
    /// Its entry among those that show who is at an address.
    fn reached(&self) -> Option<(RsaIdentity, SocketAddr, Ed25519Identity, ConnectionId)> {
        let (rsa, _, ed25519) = self.place;
        Some((rsa, self.connected_to?, ed25519, self.id))
    }
}

/// Open links to relays.
#[derive(Debug, Default)]
pub(super) struct RelayLinks {
    /// Links that take new circuits, the oldest of each place first.
    usable: BTreeSet<(Place, ConnectionId)>,
    /// Links of these that this node opened, by the address that it connected to.
    reached: BTreeSet<(RsaIdentity, SocketAddr, Ed25519Identity, ConnectionId)>,
    /// All open links of each relay.
    of: BTreeMap<RsaIdentity, Count>,
}

/// Links to one relay.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    open: usize,
    /// Links that lost packets hold up.
    lossy: usize,
}

impl RelayLinks {
    /// A link has opened.
    pub(super) fn opened(&mut self, link: RelayLink) {
        let RelayLink { id, place, .. } = link;
        self.usable.insert((place, id));
        self.reached.extend(link.reached());
        self.of.entry(place.0).or_default().open += 1;
    }

    /// A link takes no new circuits any more.
    pub(super) fn retire(&mut self, link: RelayLink) {
        self.usable.remove(&(link.place, link.id));
        if let Some(reached) = link.reached() {
            self.reached.remove(&reached);
        }
    }

    /// A link is closed.
    pub(super) fn closed(&mut self, link: RelayLink, was_lossy: bool) {
        let place = link.place;
        self.retire(link);
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

    /// True if lost packets hold up one of the relay's links.
    pub(super) fn any_lossy(&self, rsa: &RsaIdentity) -> bool {
        self.of.get(rsa).is_some_and(|count| count.lossy > 0)
    }

    /// True if a link that takes new circuits, and that this node opened to this address, has shown
    /// that the relay there has an ed25519 identity other than this one.
    pub(super) fn reached_another(
        &self,
        rsa: RsaIdentity,
        addr: SocketAddr,
        ed25519: Ed25519Identity,
    ) -> bool {
        let [first, last] = [0, u8::MAX].map(|byte| Ed25519Identity([byte; 32]));
        let all = (rsa, addr, first, ConnectionId(0))..=(rsa, addr, last, ConnectionId(u64::MAX));
        let mut all = self.reached.range(all).map(|(_, _, found, _)| *found);
        // In the order of the identities: where the ends are the same, so is all between them.
        [all.next(), all.next_back()]
            .into_iter()
            .flatten()
            .any(|found| found != ed25519)
    }

    /// Links that take new circuits to a relay with these identities, if they serve for an address
    /// (see [`Place`]). Links with the same ed25519 identity begin with the oldest.
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
