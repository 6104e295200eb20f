//! Invariants of the controller between any two calls, for tests to check.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_share::network;

use super::RelayController;
use super::connections::State;

impl RelayController {
    /// Compares all books with each other.
    ///
    /// # Errors
    ///
    /// The first books that differ.
    pub fn audit(&self) -> Result<(), String> {
        let opening = &self.connections.opening;
        let unlisted = &opening.unlisted;
        self.displaceable.audit()?;
        opening.audit()?;
        self.onionskins.audit()?;
        for id in self.displaceable.ids() {
            if self.connections.get(id).is_none() && self.thread_of(id).is_none() {
                return Err(format!("{id} has a place and does not exist"));
            }
        }
        if let Some(id) = unlisted
            .ids()
            .find(|id| self.connections.get(*id).is_none())
        {
            return Err(format!("{id} has a share and does not exist"));
        }
        let mut charged: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for (id, connection) in self.connections.iter() {
            let leads_to_unlisted = match connection.state {
                State::Relay { .. } => !connection.is_listed(&self.network),
                State::Accepted
                | State::Client
                | State::Connecting { .. }
                | State::Displaced { .. } => false,
            };
            if leads_to_unlisted && !connection.accepted && unlisted.hop(id).is_none() {
                return Err(format!(
                    "{id} leads to what the consensus does not list, and is nobody's share"
                ));
            }
            if connection.counted_for_dos {
                *charged.entry(network(connection.addr.ip())).or_default() += 1;
            }
        }
        self.dos.audit(&charged)
    }
}
