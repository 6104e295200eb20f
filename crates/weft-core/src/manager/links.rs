//! Links: opened after their handshake and closed with their connection; their bytes cut into cells,
//! and each cell brought to what it is for.

use std::net::IpAddr;
use std::time::Instant;

use rand::Rng as _;
use weft_cell::frame::{self, Frame};
use weft_cell::reason::DestroyReason;
use weft_cell::{CellView, ChanCmd};

use super::{LocalConnectionManager, Tell};
use crate::address::ConnectionId;
use crate::handshake::{Established, PeerIdentity};
use crate::link::{Link, MAX_DESTROYS};
use crate::message::ToController;
use crate::padding::LinkPadding;
use crate::scheduler::LinkKey;

/// Longest variable-length cell that an opened link may bring; none is expected, VPADDING may come.
const MAX_VARIABLE: usize = 65535;

/// A link is worn when it has used one part in so many of its keys. TLS 1.2 has keys for 2^24.5
/// records (RFC 9325 4.4) and cannot renew them. With a fifth used, 19 million records are left for
/// the circuits on the link, at least one cell each: more than 9 GB, which is 13 minutes at 100 Mbit/s,
/// and thirty times as long with full records.
const WORN_PART: u64 = 5;

/// What became of a link's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes that need not be shown again.
    pub used: usize,
    /// Bytes still to come that need not be shown at all.
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

impl LocalConnectionManager {
    /// A connection finished its handshake: from now on its cells come to
    /// [`receive`](Self::receive). The controller is told.
    pub fn open_link(
        &mut self,
        connection: ConnectionId,
        addr: IpAddr,
        initiated: bool,
        established: &Established,
        now: Instant,
    ) -> LinkKey {
        let peer = established.peer;
        let mut padding = LinkPadding::new(
            &self.params.padding,
            matches!(peer, PeerIdentity::Unauthenticated),
            established.link_protocol >= 5,
            now,
        );
        let announcement = padding.take_announcement();
        let link = Link::new(
            connection,
            peer,
            addr,
            initiated,
            self.rng.next_u64(),
            padding,
            now,
        );
        let key = self.links.insert(link);
        // A slab of links grows by sockets: 2³² of them cannot be open.
        let key = LinkKey::try_from(key).unwrap_or(LinkKey::MAX);
        self.by_connection.insert(connection, key);
        self.scheduler.link_added(key);
        if let Some(wish) = announcement {
            let cell = self.pool.hold(wish.encode());
            self.push_out(key, cell);
        }
        self.to_controller.push_back(ToController::LinkOpened {
            connection,
            peer,
            canonical: established.canonical,
            clock_skew: established.clock_skew,
            my_addr: established.my_addr,
        });
        key
    }

    /// How far the TLS keys of a link are used up that never gets others: as records that went under
    /// them and that still may. The controller learns once that the link is worn.
    pub fn keys_used(&mut self, key: LinkKey, used: u64, left: u64) {
        let Some(link) = self.links.get_mut(key as usize) else {
            return;
        };
        if !link.worn && used >= used.saturating_add(left) / WORN_PART {
            link.worn = true;
            let connection = link.connection;
            self.to_controller
                .push_back(ToController::LinkWorn { connection });
        }
    }

    /// The connection under a link is gone: its circuits end, and the controller is told.
    pub fn close_link(&mut self, key: LinkKey, now: Instant) {
        let Some(link) = self.links.get(key as usize) else {
            return;
        };
        let connection = link.connection;
        for slot in link.slots() {
            self.close_half(slot, DestroyReason::CHANNEL_CLOSED, Tell::Peer, now);
        }
        self.scheduler.link_removed(key);
        if let Some(link) = self.links.try_remove(key as usize) {
            for cell in link.out {
                self.pool.put(cell);
            }
            if let Some(place) = link.listed {
                self.unlist(place);
            }
        }
        self.by_connection.remove(&connection);
        self.to_controller.push_back(ToController::LinkClosed {
            connection,
            reason: DestroyReason::CHANNEL_CLOSED,
        });
        self.settle(now);
    }

    /// A connection failed before it was a link: the controller is told.
    pub fn connection_failed(&mut self, connection: ConnectionId, reason: DestroyReason) {
        self.to_controller
            .push_back(ToController::LinkClosed { connection, reason });
    }

    /// The link of a connection.
    pub fn link_of(&self, connection: ConnectionId) -> Option<LinkKey> {
        self.by_connection.get(&connection).copied()
    }

    /// Handles the whole cells at the start of `bytes`, which a link received. What is left is the
    /// beginning of a fixed-length cell.
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
        let mut used = 0;
        while let Some((frame, length)) =
            frame::next(bytes.get(used..).unwrap_or_default(), MAX_VARIABLE)?
        {
            used += length;
            match frame {
                Frame::Fixed(cell) => {
                    self.on_cell(key, cell, now);
                    // As between threads: what halves say goes before the cells that follow.
                    if !self.local_control.is_empty() {
                        self.settle(now);
                    }
                }
                Frame::Variable { command, .. } => {
                    if command == ChanCmd::VPADDING {
                        self.totals.padding_received += 1;
                    } else {
                        self.totals.cells_dropped += 1;
                    }
                }
            }
        }
        self.settle(now);
        // No opened link needs a variable-length cell: what comes of one is not kept.
        let rest = bytes.get(used..).unwrap_or_default();
        let skip = frame::missing_of_variable(rest).unwrap_or(0);
        if skip > 0 {
            self.totals.padding_received += 1;
            used = bytes.len();
        }
        let received = Received { used, skip };
        let Some(link) = self.links.get_mut(key as usize) else {
            return Ok(received);
        };
        if used > 0 {
            link.padding.cell_received(now);
        }
        if link.destroys.len() > MAX_DESTROYS {
            return Err(LinkError::NotReading);
        }
        Ok(received)
    }

    /// One fixed-length cell of a link.
    fn on_cell(&mut self, link: LinkKey, cell: CellView<'_>, now: Instant) {
        match cell.command() {
            ChanCmd::RELAY => self.on_relay(link, cell, false, now),
            ChanCmd::RELAY_EARLY => self.on_relay(link, cell, true, now),
            ChanCmd::CREATE | ChanCmd::CREATE2 | ChanCmd::CREATE_FAST => {
                self.on_create(link, cell, now);
            }
            ChanCmd::CREATED | ChanCmd::CREATED2 | ChanCmd::CREATED_FAST => {
                self.on_created(link, cell, now);
            }
            ChanCmd::DESTROY => self.on_destroy(link, cell, now),
            ChanCmd::PADDING => self.totals.padding_received += 1,
            ChanCmd::PADDING_NEGOTIATE => {
                if let Ok(negotiate) = weft_cell::link_msg::PaddingNegotiate::decode(cell.body())
                    && let Some(link) = self.links.get_mut(link as usize)
                {
                    link.padding.negotiate(&negotiate);
                } else {
                    self.totals.cells_dropped += 1;
                }
            }
            // NETINFO again, or something from the future: tor-spec 3 says to ignore it.
            _ => self.totals.cells_dropped += 1,
        }
    }
}
