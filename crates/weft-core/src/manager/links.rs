//! Links, for the owner of their sockets: opened and closed, read and written.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Instant;

use weft_cell::frame::{self, Frame};
use weft_cell::link_msg::Destroy;
use weft_cell::{CELL_LEN, Cell};
use weft_planted::{Fault, planted};

use super::LocalConnectionManager;
use super::path::scheduling::Room;
use crate::address::ConnectionId;
use crate::handshake::Established;
use crate::link::loss::TcpCounters;
use crate::link::{Links, MAX_DESTROYS};
use crate::manager::path::CellPath;
use crate::message::{HEAVIEST, HeavyLink, ToController};
use crate::origin::{LinkFailure, LinkStep};
use crate::slots::LinkKey;

/// DESTROYs made into cells for one write.
const DESTROYS_AT_ONCE: usize = 256;

/// A link is worn when it has used one part in so many of its keys. TLS 1.2 has keys for 2^24.5
/// records (RFC 9325 4.4) and cannot renew them. With a fifth used, 19 million records are left for
/// the circuits on the link, at least one cell each: more than 9 GB, which is 13 minutes at 100 Mbit/s,
/// and thirty times as long with full records.
const WORN_PART: u64 = 5;

/// Longest variable-length cell that an opened link may bring; none is expected, VPADDING may come.
const MAX_VARIABLE: usize = 65535;

/// Result of handling a link's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes that must not be given again.
    pub used: usize,
    /// Bytes still to arrive that must not be given at all.
    pub skip: usize,
}

/// Why a link must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer's bytes are not cells.
    #[error("the peer sent bytes that are no cells: {0}")]
    Frame(#[from] frame::FrameError),
    /// The peer makes us answer and does not read.
    #[error("the peer does not read what it asked for: {MAX_DESTROYS} cells wait")]
    NotReading,
}

/// Links, for the owner of their sockets.
#[derive(Debug)]
pub struct LinkView<'a> {
    path: &'a mut CellPath,
}

impl<'a> LinkView<'a> {
    /// A connection failed before it was a link: the controller is notified.
    pub fn connection_failed(&mut self, connection: ConnectionId, why: LinkFailure) {
        self.path
            .to_controller
            .push(ToController::ConnectionClosed { connection, why });
    }

    /// A connection that we open has come further: the controller is notified.
    pub fn connection_reached(&mut self, connection: ConnectionId, step: LinkStep) {
        self.path
            .to_controller
            .push(ToController::LinkStep { connection, step });
    }

    /// Notes how far the TLS keys of a link are used up that never gets others: records written under
    /// them, and records that still may be. The controller is notified once that the link is worn.
    pub fn keys_used(&mut self, key: LinkKey, used: u64, left: u64) {
        if used >= used.saturating_add(left) / WORN_PART {
            self.path.retire_link(key);
        }
    }

    /// The links that carry most, in no order. To be asked a few times a second.
    pub fn heaviest(&mut self, now: Instant) -> Vec<HeavyLink> {
        let links = self.path.links.iter_mut().map(|(_, link)| HeavyLink {
            connection: link.connection,
            bytes_per_second: link.load.bytes_per_second(now),
        });
        let mut links: Vec<HeavyLink> = links.filter(|link| link.bytes_per_second >= 1.0).collect();
        if links.len() > HEAVIEST {
            let rate = |link: &HeavyLink| link.bytes_per_second;
            links.select_nth_unstable_by(HEAVIEST, |a, b| rate(b).total_cmp(&rate(a)));
            links.truncate(HEAVIEST);
        }
        links
    }

    /// Records the kernel's counters of a link's TCP connection; to be called about once a second.
    pub fn tcp_read(&mut self, key: LinkKey, counters: TcpCounters, now: Instant) {
        self.path.tcp_read(key, counters, now);
    }

    /// The bandwidth that all links share had nothing left for this one. The first of a turn begins the next one's
    /// [`Links::listed`].
    pub fn refused(&mut self, key: LinkKey) {
        self.path.links.refused(key);
    }

    /// Forgets the links that have nothing to write any more.
    pub fn prune_written(&mut self) {
        self.path.links.prune_listed();
    }

    /// The cells that a link is to write, in order; to be asked for when its socket takes bytes.
    /// The caller takes them from the front and gives their memory back with
    /// [`recycle`](Self::recycle).
    pub fn outgoing(self, key: LinkKey) -> Option<&'a mut VecDeque<Box<Cell>>> {
        let link = self.path.links.get_mut(key)?;
        while link.out.len() < DESTROYS_AT_ONCE
            && let Some((circ_id, reason)) = link.destroys.pop_front()
        {
            let cell = Destroy { reason }.encode(circ_id);
            link.out.push_back(self.path.pool.hold(cell));
        }
        Some(&mut link.out)
    }

    /// Notes whether a link's socket has left bytes untaken. The link stays listed until it has taken
    /// them.
    pub fn set_held(&mut self, key: LinkKey, held: bool) {
        if let Some(link) = self.path.links.get_mut(key) {
            if link.held && !held && planted(Fault::LinkStaysHeld) {
                return;
            }
            link.held = held;
            if held {
                self.path.links.list_to_write(key);
            }
        }
    }

    /// Counts cells that were taken from [`outgoing`](Self::outgoing) to be written.
    pub fn count_written(&mut self, key: LinkKey, cells: u64) {
        self.path.totals.link_cells.written += cells;
        if let Some(link) = self.path.links.get_mut(key) {
            link.written += cells;
            if link.padding.is_negotiated() {
                self.path.totals.link_cells.padded_written += cells;
            }
        }
    }

    /// Notes that cells of a link were written.
    pub fn wrote(&mut self, key: LinkKey, now: Instant) {
        if let Some(link) = self.path.links.get_mut(key) {
            link.padding.cell_sent(now);
            link.last_written = now;
        }
    }

    /// Takes back the memory of a cell that was written.
    #[inline]
    pub fn recycle(&mut self, cell: Box<Cell>) {
        self.path.pool.put(cell);
    }

    /// Reports what the owner of a link's socket holds for it and its peer can make grow, in bytes.
    pub fn set_holds(&mut self, key: LinkKey, bytes: usize) {
        if let Some(link) = self.path.links.get_mut(key) {
            link.socket_holds = bytes;
        }
    }
}

impl LocalConnectionManager {
    /// The links.
    #[inline]
    pub fn links(&self) -> &Links {
        &self.path.links
    }

    /// The links, for what their sockets give and take.
    #[inline]
    pub fn links_mut(&mut self) -> LinkView<'_> {
        LinkView {
            path: &mut self.path,
        }
    }

    /// A connection finished its handshake: from now on its bytes are given to
    /// [`receive`](Self::receive). The controller is notified.
    pub fn open_link(
        &mut self,
        connection: ConnectionId,
        addr: IpAddr,
        established: &Established,
        now: Instant,
    ) -> LinkKey {
        self.path.open_link(connection, addr, established, now)
    }

    /// The connection under a link is closed: its circuits close, and the controller is notified.
    pub fn close_link(&mut self, key: LinkKey, why: LinkFailure, now: Instant) {
        if let Some(connection) = self.path.close_link(key, why, now) {
            self.transfers.stays(&mut self.path, connection);
        }
        self.settle(now);
    }

    /// Moves cells from the circuits' queues to their links, most urgent circuit first, as far as
    /// the links have room ([`Room`]).
    pub fn schedule(&mut self, now: Instant, room: impl Room) {
        self.path.schedule(now, room, &mut self.abra.metering);
        self.settle(now);
        self.abra.pass_bins(&mut self.path, now);
    }

    /// Some circuit has cells that the scheduler has not chosen yet.
    pub fn has_backlog(&self) -> bool {
        (self.path.scheduler.waiting_links().iter())
            .filter_map(|key| self.path.links.get(*key))
            .any(|link| !link.held)
    }

    /// Handles the whole cells at the start of `bytes`, which a link received. The rest is the beginning
    /// of a fixed-length cell.
    ///
    /// # Errors
    ///
    /// [`LinkError`]: the caller closes the connection and calls [`close_link`](Self::close_link).
    pub fn receive(
        &mut self,
        key: LinkKey,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Received, LinkError> {
        let (mut used, mut variable, padding) = (0, 0, self.path.totals.padding_received);
        let as_client = (self.path.links.get(key)).is_some_and(|link| link.role.is_client());
        while let Some((frame, length)) =
            frame::next(bytes.get(used..).unwrap_or_default(), MAX_VARIABLE)?
        {
            used += length;
            match frame {
                Frame::Fixed(cell) => {
                    self.half_view().on_cell(key, cell, as_client, now);
                    // As between threads: control messages overtake the cells that follow.
                    if self.path.outboxes.has_local() {
                        self.settle(now);
                    }
                }
                Frame::Variable { command, .. } => {
                    variable += length;
                    self.half_view().on_variable_cell(command, as_client);
                }
            }
        }
        self.settle(now);
        // No opened link needs a variable-length cell: nothing of one is kept.
        let cells = (used.saturating_sub(variable) / CELL_LEN) as u64;
        let padding = self.path.totals.padding_received - padding;
        let rest = bytes.get(used..).unwrap_or_default();
        let skip = frame::missing_of_variable(rest).unwrap_or(0);
        if skip > 0 {
            if let Some(command) = frame::command_of(rest) {
                self.half_view().on_variable_cell(command, as_client);
            }
            used = bytes.len();
        }
        let received = Received { used, skip };
        self.path.totals.link_cells.read += cells;
        let Some(link) = self.path.links.get_mut(key) else {
            return Ok(received);
        };
        if link.padding.is_negotiated() {
            self.path.totals.link_cells.padded_read += cells;
            self.path.totals.link_cells.padding_read += padding;
        }
        if used > 0 {
            link.padding.cell_received(now);
            link.load.add(used as u64);
        }
        if link.destroys.len() > MAX_DESTROYS {
            return Err(LinkError::NotReading);
        }
        Ok(received)
    }
}
