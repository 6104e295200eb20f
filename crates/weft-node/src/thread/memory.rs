//! Memory of a thread's sockets, for its ledger, and the connections that are closed when memory is
//! short (see `weft_core::memory::ledger`).

use std::time::Instant;

use weft_cell::Cell;
use weft_core::address::ConnectionId;
use weft_core::handshake::HANDSHAKE_TIMEOUT;
use weft_core::memory::ledger::{Cause, Cut, Held, Ledger};
use weft_core::message::{LaneMsg, ToController};

use super::ConnectionThread;
use super::close_reason::CloseReason;
use super::connection::{Connection, Phase};
use weft_tls::records::Records;

/// Memory of a TLS session that is being set up, with its certificates and buffers: measured, nearly.
const HANDSHAKE_COST: usize = 24 << 10;

impl ConnectionThread {
    /// Everything that the thread holds, and what of it sockets and rings hold.
    pub(super) fn ledger(&mut self, stuck_cells: usize, now: Instant) -> (Ledger, usize) {
        let mut buffered = 0;
        let mut handshaking = 0;
        for (_, connection) in &self.sockets.all {
            let holds = connection.buffered();
            buffered += holds;
            match connection.phase {
                Phase::Open(link, _) => self.manager.links_mut().set_holds(link, holds),
                Phase::Handshake(_) | Phase::Transition => handshaking += holds,
            }
        }
        let sockets = self.edges.report_memory(&mut self.manager);
        buffered += sockets.buffered;
        let mut ledger = self.manager.ledger(now);
        for (_, held, _) in self.handshaking(now) {
            ledger.add(held);
        }
        let stuck = stuck_cells * (size_of::<Cell>() + size_of::<LaneMsg>());
        buffered += stuck;
        let connections = self.sockets.all.len() * (size_of::<Connection>() + size_of::<Records>());
        let messages = self.reports.stuck.capacity() * size_of::<ToController>();
        ledger.add_fixed(handshaking + sockets.ownerless + stuck + connections + messages);
        (ledger, buffered)
    }

    /// Reports who holds the memory.
    pub(super) fn count_holdings(&mut self, now: Instant) {
        let mut holdings = self.manager.holdings(now);
        for (id, held, _) in self.handshaking(now) {
            holdings.add(Cause::Connection(id), held);
        }
        self.manager.report_holdings(holdings);
    }

    /// Frees memory: first of all connections whose handshakes take long. Returns what is still to be freed.
    pub(super) fn free_memory(&mut self, mut cut: Cut, now: Instant) -> Cut {
        let all: Vec<_> = self.handshaking(now).collect();
        for (id, held, token) in all {
            let cause = Cause::Connection(id);
            if cut.includes(cause, held) {
                self.close(token, &CloseReason::Memory, now);
                cut.closed(cause, held);
            }
        }
        cut
    }

    /// Connections whose handshakes go on, oldest first: their memory, and their tokens.
    fn handshaking(&self, now: Instant) -> impl Iterator<Item = (ConnectionId, Held, usize)> {
        self.sockets
            .handshakes
            .iter()
            .filter_map(move |(deadline, id)| {
                let token = self.sockets.by_id.get(id).copied()?;
                let connection = self.sockets.all.get(token)?;
                let left = deadline.saturating_duration_since(now);
                let age = HANDSHAKE_TIMEOUT.saturating_sub(left);
                let held = Held::waiting(HANDSHAKE_COST, age);
                matches!(connection.phase, Phase::Handshake(_)).then_some((*id, held, token))
            })
    }
}
