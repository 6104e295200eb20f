//! Connections that give way to no others, because they are of relays that the consensus lists: those from addresses of
//! relays while their handshakes are under way, which take a part of what is reserved for relays, and those that have
//! proved to be a relay's.
//!
//! Somebody who has such an address, or runs such a relay, could open any number of them, so each address and each relay
//! has a few. Further ones are admitted, and give way, as anybody's.

use std::collections::BTreeMap;

use weft_cell::identity::RsaIdentity;
use weft_share::PreviousHop;

use crate::address::ConnectionId;

/// From one address at once, before their proofs. A relay opens one to each other relay, and another one where that is
/// slow to open.
const HANDSHAKES: usize = 4;
/// Proved connections of one relay at once: as many as a relay opens to another by
/// `ConnectionPerCircuit`, with the default `MaxConnectionsPerRelay`. A C tor relay has one or two.
const PROVED: usize = 64;

/// Connections that are never displaced, a few for each address and relay.
#[derive(Debug, Default)]
pub(super) struct Exempt {
    handshakes: Few<PreviousHop>,
    proved: Few<RsaIdentity>,
}

impl Exempt {
    /// Takes in a connection from this address. False: it has as many already as it may have.
    pub(super) fn take(&mut self, id: ConnectionId, hop: PreviousHop) -> bool {
        self.handshakes.take(id, hop, HANDSHAKES)
    }

    /// Takes in a connection that has proved to be this relay's. False: it has as many already as it may have.
    pub(super) fn prove(&mut self, id: ConnectionId, relay: RsaIdentity) -> bool {
        self.proved.take(id, relay, PROVED)
    }

    /// Its handshake is over, or it is closed. False: it was none of these.
    pub(super) fn release(&mut self, id: ConnectionId) -> bool {
        let was_opening = self.handshakes.release(id);
        self.proved.release(id) || was_opening
    }
}

/// Connections, a few for each owner.
#[derive(Debug)]
struct Few<K> {
    of: BTreeMap<ConnectionId, K>,
    held: BTreeMap<K, usize>,
}

impl<K> Default for Few<K> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> Few<K> {
    fn take(&mut self, id: ConnectionId, owner: K, most: usize) -> bool {
        let held = self.held.entry(owner).or_default();
        if *held >= most {
            return false;
        }
        *held += 1;
        self.of.insert(id, owner);
        true
    }

    fn release(&mut self, id: ConnectionId) -> bool {
        let Some(owner) = self.of.remove(&id) else {
            return false;
        };
        if let Some(held) = self.held.get_mut(&owner) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&owner);
            }
        }
        true
    }
}
