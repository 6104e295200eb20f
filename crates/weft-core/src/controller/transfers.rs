//! Links that move from thread to thread, one at a time (docs/architecture.md, "How a link moves").

use std::time::Instant;

use super::RelayController;
use crate::address::{ConnectionId, ThreadId};
use crate::message::FromController;

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The connection of the link that moves, and the thread that it leaves.
    moving: Option<(ConnectionId, ThreadId)>,
    /// The number of the last one.
    last: u64,
}

impl RelayController {
    /// Has a link move to another thread. False: it is no open link, it is there, or another one moves.
    pub fn move_link(&mut self, connection: ConnectionId, to: ThreadId) -> bool {
        let from = self.connections.opened_on(connection);
        let there = usize::from(to.0) < self.reports.len();
        let Some(from) = from.filter(|from| there && *from != to && !self.is_moving()) else {
            return false;
        };
        self.transfers.last += 1;
        self.transfers.moving = Some((connection, from));
        let number = self.transfers.last;
        self.send(
            from,
            FromController::Move {
                connection,
                to,
                number,
            },
        );
        true
    }

    /// Whether a link is on its way.
    pub fn is_moving(&self) -> bool {
        self.transfers.moving.is_some()
    }

    /// How far the busiest thread is above the mean, as a part of it.
    pub fn imbalance(&self) -> f64 {
        self.balance.imbalance()
    }

    /// Every thread has reported: has a link move, if one shall.
    pub(super) fn balance_load(&mut self, now: Instant) {
        if self.reports.len() > 1
            && !self.is_moving()
            && let Some(decided) = self.balance.decide(now)
        {
            self.counts.moves += u64::from(self.move_link(decided.connection, decided.to));
        }
    }

    /// A link has left its thread. Everything that its halves had sent here was handled before this.
    pub(super) fn on_link_left(&mut self, number: u64, to: ThreadId) {
        self.send(to, FromController::MovePassed { number });
    }

    /// A link is on another thread.
    pub(super) fn on_link_moved(&mut self, connection: ConnectionId, thread: ThreadId) {
        self.connections.moved(connection, thread);
        self.move_is_over(connection);
    }

    /// A link has closed instead, or its thread could not.
    pub(super) fn on_not_moved(&mut self, connection: ConnectionId) {
        self.counts.moves_failed += 1;
        self.move_is_over(connection);
    }

    fn move_is_over(&mut self, connection: ConnectionId) {
        let of_it = |moving: &mut (ConnectionId, ThreadId)| moving.0 == connection;
        if let Some((connection, from)) = self.transfers.moving.take_if(of_it) {
            self.send(from, FromController::MoveOver { connection });
        }
    }
}
