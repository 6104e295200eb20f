//! Connections from addresses of relays that the consensus lists, while their handshakes are under way: they take what
//! is reserved for relays, and give way to no others.
//!
//! Whoever has such an address could open any number of them, so each address has a few. Further ones are admitted as
//! anybody's. With its proof that it is a listed relay's a connection is bounded by the consensus; without, it is counted
//! with the others.

use std::collections::BTreeMap;

use weft_share::PreviousHop;

use crate::address::ConnectionId;

/// Of one address at once. A relay opens one to each other relay, and another one where that is slow to open.
const MOST: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Exempt {
    of: BTreeMap<ConnectionId, PreviousHop>,
    held: BTreeMap<PreviousHop, usize>,
}

impl Exempt {
    /// Takes in a connection from this address. False: it has as many already as it may have.
    pub(super) fn take(&mut self, id: ConnectionId, hop: PreviousHop) -> bool {
        let held = self.held.entry(hop).or_default();
        if *held >= MOST {
            return false;
        }
        *held += 1;
        self.of.insert(id, hop);
        true
    }

    /// Its handshake is over, or it is closed. False: it was none of these.
    pub(super) fn release(&mut self, id: ConnectionId) -> bool {
        let Some(hop) = self.of.remove(&id) else {
            return false;
        };
        if let Some(held) = self.held.get_mut(&hop) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&hop);
            }
        }
        true
    }
}
