//! Connections that peers cause, and which of them is closed when there are too many: links that a
//! listener accepts, the sockets of an exit's streams, and connections that circuits have this node
//! open to addresses that the consensus does not list.
//!
//! A peer with many addresses, identities or streams could use up the files. Each connection is
//! part of the share of the hop that caused it, until it is closed, whatever its peer proves. At
//! the bound the hop that has most gives way to one that has fewer. A link without circuits gives
//! way to equals, too, the one that has had none for longest first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use weft_share::{PreviousHop, Shares, Ticket};

use crate::address::{ConnectionId, HalfAddr};

/// Connections that can be displaced, by the hop that caused each.
#[derive(Debug, Default)]
pub(super) struct Displaceable {
    /// Shares of hops, and within a hop of the circuit that asked for a stream. Links that have
    /// circuits are proven.
    shares: Shares<PreviousHop, Option<HalfAddr>, ConnectionId>,
    tickets: BTreeMap<ConnectionId, Ticket>,
    /// Links without circuits, as far as their threads have reported it, and since when they have
    /// none.
    idle: BTreeMap<ConnectionId, Instant>,
    by_idle_time: BTreeSet<(Instant, ConnectionId)>,
}

impl Displaceable {
    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.shares.len()
    }

    /// Admits one more, where there may be `bound` of them. Returns the one that has to be closed.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn admit(
        &mut self,
        hop: PreviousHop,
        circuit: Option<HalfAddr>,
        id: ConnectionId,
        bound: usize,
    ) -> Result<Option<ConnectionId>, ConnectionId> {
        let admitted = self.shares.admit(hop, circuit, bound, id)?;
        self.tickets.insert(id, admitted.ticket);
        let displaced = admitted.displaced.map(|(_, other)| other);
        if let Some(other) = displaced {
            self.tickets.remove(&other);
            self.forget_idle(other);
        }
        Ok(displaced)
    }

    /// The hop that a connection is counted for. `None`: for none.
    pub(super) fn hop(&self, id: ConnectionId) -> Option<PreviousHop> {
        let ticket = self.tickets.get(&id)?;
        self.shares.owner(*ticket).map(|(hop, _)| hop)
    }

    /// True if no hop holds more than this one.
    pub(super) fn holds_most(&self, hop: PreviousHop) -> bool {
        self.shares.held(hop) >= self.shares.most()
    }

    /// A link has a circuit.
    pub(super) fn note_used(&mut self, id: ConnectionId) {
        if let Some(ticket) = self.tickets.get(&id) {
            self.shares.prove(*ticket);
            self.forget_idle(id);
        }
    }

    /// An open link has had no circuit since then.
    pub(super) fn note_idle(&mut self, id: ConnectionId, since: Instant) {
        let Some(ticket) = self.tickets.get(&id) else {
            return;
        };
        self.shares.unprove(*ticket);
        self.forget_idle(id);
        self.idle.insert(id, since);
        self.by_idle_time.insert((since, id));
    }

    /// The link that has had no circuit for longest, and since when.
    pub(super) fn longest_idle(&self) -> Option<(Instant, ConnectionId)> {
        self.by_idle_time.first().copied()
    }

    /// It is closed, or displaceable no more: its peer is a relay that the consensus lists.
    pub(super) fn release(&mut self, id: ConnectionId) {
        if let Some(ticket) = self.tickets.remove(&id) {
            self.shares.release(ticket);
            self.forget_idle(id);
        }
    }

    /// All of them.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        self.tickets.keys().copied()
    }

    /// Compares the tables with each other.
    pub(super) fn audit(&self) -> Result<(), String> {
        self.shares.audit()?;
        let is_known = |id| self.tickets.contains_key(id);
        let idle: BTreeSet<_> = self.idle.iter().map(|(id, since)| (*since, *id)).collect();
        match self.tickets.len() == self.shares.len()
            && self.idle.keys().all(is_known)
            && idle == self.by_idle_time
        {
            true => Ok(()),
            false => Err("connections that may give way are in all tables".to_owned()),
        }
    }

    fn forget_idle(&mut self, id: ConnectionId) {
        if let Some(since) = self.idle.remove(&id) {
            self.by_idle_time.remove(&(since, id));
        }
    }
}
