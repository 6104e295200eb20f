//! The time: waits that are over, padding and keepalives that are due, links that have had their time.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use weft_cell::ChanCmd;
use weft_cell::reason::DestroyReason;
use weft_planted::{Fault, planted};

use super::LocalConnectionManager;
use super::path::closing::Notify;
use crate::address::ConnectionId;
use crate::message::ToController;
use crate::slots::LinkKey;

/// Longest time, in `KeepalivePeriod`s, that a link may stand still with cells to be written, as in
/// C tor.
const STUCK_PERIODS: u32 = 10;

/// A link that has written nothing for so long, and has nothing to write, gives its buffers back.
const TRIM_AFTER: Duration = Duration::from_secs(4);

/// Time that a worn link without circuits stays open. A circuit that the controller placed on it
/// before it knew finds it still there.
const IDLE_WORN_LINK: Duration = Duration::from_secs(60);

/// Padding of a client's links that is due within this time gets a timer: more than passes between two
/// calls of [`handle_timeout`](LocalConnectionManager::handle_timeout).
const TIMED: Duration = Duration::from_millis(500);

/// Why a link has had its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// No circuit has used it for long.
    Idle,
    /// Cells wait, and its peer has taken none for long.
    Stuck,
}

impl LocalConnectionManager {
    /// Gives up on what has waited too long, sends the padding that is due, and returns the
    /// connections that have been idle or stuck for too long, which the caller must close. To be
    /// called about four times a second.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<(ConnectionId, Expiry)> {
        while let Some(half) = self.path.waits.next_due(&mut self.path.halves, now) {
            self.path.totals.timed_out += 1;
            self.path.close_half(
                self.path.halves.slot(half),
                DestroyReason::TIMEOUT,
                Notify::Both,
                now,
            );
        }
        let (mut padding, mut timers) = (Vec::new(), 0);
        self.link_padding.clear();
        let mut expired = Vec::new();
        let keepalive = self.path.params.keepalive;
        for (key, link) in self.path.links.iter_mut() {
            let empty = link.is_empty();
            if empty {
                link.last_empty = now;
            }
            link.note_waits(now);
            let silent = now.saturating_duration_since(link.last_written);
            let padding_due = link.padding.poll(now, &mut self.path.rng);
            timers += u64::from(link.padding.is_timed());
            if empty && (padding_due || silent >= keepalive) {
                padding.push(key);
            }
            if link.role.is_client()
                && let Some(at) = link.padding.due_until(now + TIMED)
            {
                self.link_padding.push((at, key));
            }
            if empty && silent >= TRIM_AFTER && link.trim() {
                self.path.scheduler.trim(key);
            }
            let full = now.saturating_duration_since(link.last_empty);
            if silent.min(full) >= keepalive.saturating_mul(STUCK_PERIODS) {
                expired.push((link.connection, Expiry::Stuck));
                continue;
            }
            let Some(since) = link.idle_since else {
                continue;
            };
            let listed =
                link.listed_relay && !link.role.is_client() || planted(Fault::UnlistedStaysIdle);
            let mut limit = self.path.params.idle_limit(listed, link.idle_part);
            if link.worn {
                limit = limit.min(IDLE_WORN_LINK);
            }
            if now.saturating_duration_since(since) >= limit {
                expired.push((link.connection, Expiry::Idle));
            } else if !std::mem::replace(&mut link.idle_reported, true) {
                self.path.to_controller.push(ToController::LinkIdle {
                    connection: link.connection,
                    since,
                    joins: link.joins,
                });
            }
        }
        self.link_padding
            .sort_unstable_by_key(|(at, _)| Reverse(*at));
        self.path.totals.link_cells.timers = timers;
        self.path.pool.trim();
        self.path.halves.trim();
        self.circpad.send_circpad(&mut self.path, now);
        self.edge_view().return_credit();
        self.half_view().tunnels().watch_tunnels(now);
        for key in padding {
            self.pad_link(key);
        }
        let edge_side = &mut self.edge_side;
        (self.path).report_traffic(|| edge_side.take_traffic(), now);
        self.abra.pass_bins(&mut self.path, now);
        self.settle(now);
        expired
    }

    /// When the next padding of a circuit, or of a link on which this node is a client, is due; then
    /// [`send_padding`](Self::send_padding) is to be called. An observer would know Weft's clients by
    /// padding whose times are those of [`handle_timeout`](Self::handle_timeout).
    pub fn padding_due(&self) -> Option<Instant> {
        let link = self.link_padding.last().map(|(at, _)| *at);
        [self.circpad.machines.next_due(), link]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sends the padding that is due.
    pub fn send_padding(&mut self, now: Instant) {
        self.circpad.send_circpad(&mut self.path, now);
        while let Some((_, key)) = self.link_padding.pop_if(|(at, _)| *at <= now) {
            // A cell may have passed since.
            let link = self.path.links.get_mut(key);
            if link
                .is_some_and(|link| link.padding.poll(now, &mut self.path.rng) && link.is_empty())
            {
                self.pad_link(key);
            }
        }
        self.settle(now);
    }

    /// Sends PADDING on a link.
    fn pad_link(&mut self, key: LinkKey) {
        let negotiated =
            (self.path.links.get(key)).is_some_and(|link| link.padding.is_negotiated());
        self.path.totals.link_cells.padding_written += u64::from(negotiated);
        self.path.totals.padding_sent += 1;
        let cell = self.path.pool.blank(0, ChanCmd::PADDING);
        self.path.links.push_out(key, cell);
    }
}
