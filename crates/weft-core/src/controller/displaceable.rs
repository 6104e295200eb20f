//! Connections that peers cause, and which of them is closed when the process has no more files: links
//! that it accepts, and the sockets of an exit's streams.
//!
//! A peer with many addresses or streams could use up the files. At the bound the hop that has most
//! connections gives way to one that has fewer. A link whose handshake is over does not give way to
//! equals, so that silent links are closed first.

use std::collections::BTreeMap;

use weft_share::{PreviousHop, Shares, Ticket};

use crate::address::{ConnectionId, HalfAddr};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Displaceable {
    /// By hop, and by the circuit that asked for a stream.
    shares: Shares<PreviousHop, Option<HalfAddr>, ConnectionId>,
    tickets: BTreeMap<ConnectionId, Ticket>,
}

impl Displaceable {
    /// How many there are.
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
        }
        Ok(displaced)
    }

    /// The hop that a connection is counted for. `None`: for none.
    pub(super) fn hop(&self, id: ConnectionId) -> Option<PreviousHop> {
        let ticket = self.tickets.get(&id)?;
        self.shares.owner(*ticket).map(|(hop, _)| hop)
    }

    /// A link's handshake is over.
    pub(super) fn prove(&mut self, id: ConnectionId) {
        if let Some(ticket) = self.tickets.get(&id) {
            self.shares.prove(*ticket);
        }
    }

    /// It is closed, or displaceable no more: its peer is a relay that the consensus lists.
    pub(super) fn release(&mut self, id: ConnectionId) {
        if let Some(ticket) = self.tickets.remove(&id) {
            self.shares.release(ticket);
        }
    }
}
