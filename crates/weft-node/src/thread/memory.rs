//! What the sockets of a thread hold, for its ledger, and the connections that are closed when memory is
//! short (see `weft_core::ledger`).

use std::time::{Duration, Instant};

use weft_cell::Cell;
use weft_core::handshake::HANDSHAKE_TIMEOUT;
use weft_core::ledger::{Cut, Held, Ledger};
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
                Phase::Open(link, _) => self.manager.set_link_holds(link, holds),
                Phase::Handshake(_) | Phase::Transition => handshaking += holds,
            }
        }
        let sockets = self.edges.report_memory(&mut self.manager);
        buffered += sockets.buffered;
        let mut ledger = self.manager.ledger(now);
        for (age, _) in self.handshaking(now) {
            let bytes = HANDSHAKE_COST;
            ledger.add(Held { bytes, age });
        }
        let stuck = stuck_cells * (size_of::<Cell>() + size_of::<LaneMsg>());
        buffered += stuck;
        let connections = self.sockets.all.len() * (size_of::<Connection>() + size_of::<Records>());
        let messages = self.reports.stuck.capacity() * size_of::<ToController>();
        ledger.add_fixed(handshaking + sockets.ownerless + stuck + connections + messages);
        (ledger, buffered)
    }

    /// Frees memory: first of all connections whose handshakes take long.
    pub(super) fn free_memory(&mut self, mut cut: Cut, now: Instant) -> Cut {
        let heavy = |(age, _): &(Duration, _)| {
            let bytes = HANDSHAKE_COST;
            Held { bytes, age: *age }.weight() >= cut.weight
        };
        let most = usize::try_from(cut.bytes.div_ceil(HANDSHAKE_COST as u64)).unwrap_or(usize::MAX);
        let old: Vec<usize> = (self.handshaking(now))
            .take_while(heavy)
            .take(most)
            .map(|(_, token)| token)
            .collect();
        for token in old {
            self.close(token, &CloseReason::Memory, now);
            cut.bytes = cut.bytes.saturating_sub(HANDSHAKE_COST as u64);
        }
        cut
    }

    /// Connections whose handshakes go on, oldest first: since when, and their tokens.
    fn handshaking(&self, now: Instant) -> impl Iterator<Item = (Duration, usize)> {
        self.sockets
            .handshakes
            .iter()
            .filter_map(move |(deadline, id)| {
                let token = self.sockets.by_id.get(id).copied()?;
                let connection = self.sockets.all.get(token)?;
                let left = deadline.saturating_duration_since(now);
                matches!(connection.phase, Phase::Handshake(_))
                    .then_some((HANDSHAKE_TIMEOUT.saturating_sub(left), token))
            })
    }
}
