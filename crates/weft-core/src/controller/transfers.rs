//! Number of threads that get links, and links that move between threads, one at a time
//! (docs/architecture/links.md, "How a link moves").

use std::time::Instant;

use weft_planted::{Fault, planted};

use super::RelayController;
use crate::address::{ConnectionId, ThreadId};
use crate::message::FromController;
use crate::moves::width::Width;

/// Transfers under way.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The connection of the link that moves, and the thread that it leaves.
    moving: Option<(ConnectionId, ThreadId)>,
    /// The number of the last one.
    last: u64,
}

impl RelayController {
    /// Lets the load decide how many threads get links, from one to `most`: further threads,
    /// without a core, only add wake-ups. Without this call all threads get links.
    pub fn adapt_threads(&mut self, most: u16) {
        let most = most.min(u16::try_from(self.reports.len()).unwrap_or(u16::MAX));
        let width = Width::new(most);
        self.use_threads(width.in_use());
        self.width = Some(width);
    }

    /// Sets the number of idle cores of the machine, if it is known.
    pub fn set_idle_cores(&mut self, cores: Option<f64>) {
        if let Some(width) = &mut self.width {
            width.set_idle_cores(cores);
        }
    }

    /// True if the number of threads that get links follows the load.
    pub fn adapts_threads(&self) -> bool {
        self.width.is_some()
    }

    /// Number of threads that get links.
    pub fn threads_in_use(&self) -> u16 {
        let all = || u16::try_from(self.reports.len()).unwrap_or(u16::MAX);
        self.width.as_ref().map_or_else(all, Width::in_use)
    }

    fn use_threads(&mut self, threads: u16) {
        self.placement.use_first(threads);
        self.balance.use_first(threads);
    }

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

    /// True if a link is moving.
    pub fn is_moving(&self) -> bool {
        self.transfers.moving.is_some()
    }

    /// Excess of the busiest thread's load over the mean, as a fraction of the mean.
    pub fn imbalance(&self) -> f64 {
        self.balance.imbalance()
    }

    /// Runs after every thread has reported: changes the number of threads that get links, and
    /// moves a link, if needed.
    pub(super) fn adapt(&mut self, now: Instant) {
        let work = self.balance.work();
        let width = self.width.as_mut();
        if let Some(threads) = width.and_then(|width| width.decide(work, now)) {
            self.use_threads(threads);
        }
        self.balance_load(now);
    }

    /// Moves a link, if that is needed.
    fn balance_load(&mut self, now: Instant) {
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
    pub(super) fn on_link_moved(
        &mut self,
        connection: ConnectionId,
        thread: ThreadId,
        now: Instant,
    ) {
        if !planted(Fault::MoveNotLearnt) {
            self.connections.moved(connection, thread);
        }
        self.move_is_over(connection);
        // A thread may be full that has more to give away.
        self.balance_load(now);
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
