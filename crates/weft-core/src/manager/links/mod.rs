//! Links: opened after their handshake and closed with their connection; their bytes cut into cells,
//! and each cell given to its handler. `load`: how much they carry; `transfer`: links that move to another thread.

mod load;
pub(super) mod transfer;

use std::net::IpAddr;
use std::time::Instant;

use rand::{Rng as _, RngExt as _};
use weft_cell::cell_command::OnOpenLink;
use weft_cell::frame::{self, Frame};
use weft_cell::link_msg::PaddingNegotiate;
use weft_cell::reason::DestroyReason;
use weft_cell::{CELL_LEN, CellView, ChanCmd};
use weft_planted::{Fault, planted};

use super::{LocalConnectionManager, Notify};
use crate::address::ConnectionId;
use crate::handshake::Established;
use crate::link::padding::{Ends, LinkPadding, LinkUse};
use crate::link::{Link, MAX_DESTROYS};
use crate::message::ToController;
use crate::origin::{LinkFailure, LinkStep};
use crate::slots::LinkKey;

/// Longest variable-length cell that an opened link may bring; none is expected, VPADDING may come.
const MAX_VARIABLE: usize = 65535;

/// A link is worn when it has used one part in so many of its keys. TLS 1.2 has keys for 2^24.5
/// records (RFC 9325 4.4) and cannot renew them. With a fifth used, 19 million records are left for
/// the circuits on the link, at least one cell each: more than 9 GB, which is 13 minutes at 100 Mbit/s,
/// and thirty times as long with full records.
const WORN_PART: u64 = 5;

/// How many of a link's bytes were handled.
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

impl LocalConnectionManager {
    /// Reads a link, so that it is in the processor's cache when it is needed.
    #[inline]
    pub fn touch_link(&self, link: LinkKey) {
        self.links.touch(link);
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
        let (peer, role) = (established.peer, established.role);
        let ends = Ends::of(role, &peer);
        let padding = LinkPadding::new(ends, established.link_protocol >= 5, now);
        let mut link = Link::new(
            connection,
            peer,
            addr,
            role,
            self.rng.next_u64(),
            padding,
            now,
        );
        link.idle_part = self.rng.random();
        let key = self.links.insert(link);
        self.scheduler.link_added(key);
        self.follow_padding_params(key);
        self.to_controller.push(ToController::LinkOpened {
            connection,
            peer,
            canonical: established.canonical,
            clock_skew: established.clock_skew,
            my_addr: established.my_addr,
        });
        key
    }

    /// Notes how far the TLS keys of a link are used up that never gets others: records written under
    /// them, and records that still may be. The controller is notified once that the link is worn.
    pub fn keys_used(&mut self, key: LinkKey, used: u64, left: u64) {
        if used >= used.saturating_add(left) / WORN_PART {
            self.retire_link(key);
        }
    }

    /// A link gets no new circuits from here. The controller is notified once, before anything that is sent to it later.
    pub(super) fn retire_link(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !std::mem::replace(&mut link.worn, true)
        {
            let connection = link.connection;
            self.to_controller
                .push(ToController::LinkWorn { connection });
        }
    }

    /// The connection under a link is closed: its circuits close, and the controller is notified.
    pub fn close_link(&mut self, key: LinkKey, why: LinkFailure, now: Instant) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let connection = link.connection;
        for slot in link.slots() {
            if planted(Fault::HalfOutlivesLink) {
                continue;
            }
            self.close_half(slot, DestroyReason::CHANNEL_CLOSED, Notify::Peer, now);
        }
        self.scheduler.link_removed(key);
        if let Some(link) = self.links.remove(key) {
            for cell in link.out {
                self.pool.put(cell);
            }
        }
        self.to_controller
            .push(ToController::ConnectionClosed { connection, why });
        self.stays(connection);
        self.settle(now);
    }

    /// A connection failed before it was a link: the controller is notified.
    pub fn connection_failed(&mut self, connection: ConnectionId, why: LinkFailure) {
        self.to_controller
            .push(ToController::ConnectionClosed { connection, why });
    }

    /// A connection that we open has come further: the controller is notified.
    pub fn connection_reached(&mut self, connection: ConnectionId, step: LinkStep) {
        self.to_controller
            .push(ToController::LinkStep { connection, step });
    }

    /// The link of a connection.
    pub fn link_of(&self, connection: ConnectionId) -> Option<LinkKey> {
        self.links.of(connection)
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
        let (mut used, mut variable, padding) = (0, 0, self.totals.padding_received);
        let as_client = (self.links.get(key)).is_some_and(|link| link.role.is_client());
        while let Some((frame, length)) =
            frame::next(bytes.get(used..).unwrap_or_default(), MAX_VARIABLE)?
        {
            used += length;
            match frame {
                Frame::Fixed(cell) => {
                    self.on_cell(key, cell, as_client, now);
                    // As between threads: control messages overtake the cells that follow.
                    if self.outboxes.has_local() {
                        self.settle(now);
                    }
                }
                Frame::Variable { command, .. } => {
                    variable += length;
                    self.on_variable_cell(command, as_client);
                }
            }
        }
        self.settle(now);
        // No opened link needs a variable-length cell: nothing of one is kept.
        let cells = (used.saturating_sub(variable) / CELL_LEN) as u64;
        let padding = self.totals.padding_received - padding;
        let rest = bytes.get(used..).unwrap_or_default();
        let skip = frame::missing_of_variable(rest).unwrap_or(0);
        if skip > 0 {
            if let Some(command) = frame::command_of(rest) {
                self.on_variable_cell(command, as_client);
            }
            used = bytes.len();
        }
        let received = Received { used, skip };
        self.totals.link_cells.read += cells;
        let Some(link) = self.links.get_mut(key) else {
            return Ok(received);
        };
        if link.padding.is_negotiated() {
            self.totals.link_cells.padded_read += cells;
            self.totals.link_cells.padding_read += padding;
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

    /// One fixed-length cell of a link. The table of cell commands decides what is done with it.
    fn on_cell(&mut self, link: LinkKey, cell: CellView<'_>, as_client: bool, now: Instant) {
        match OnOpenLink::of(cell.command(), as_client) {
            OnOpenLink::Relay => self.on_relay(link, cell, false, now),
            OnOpenLink::RelayEarly => self.on_relay(link, cell, true, now),
            OnOpenLink::Create => self.on_create(link, cell, now),
            OnOpenLink::RefuseCreate => self.refuse_create(link, cell),
            OnOpenLink::Created => self.on_created(link, cell, now),
            OnOpenLink::Destroy => self.on_destroy(link, cell, now),
            OnOpenLink::Padding => self.totals.padding_received += 1,
            OnOpenLink::PaddingNegotiate => {
                if let Ok(negotiate) = PaddingNegotiate::decode(cell.body())
                    && let Some(link) = self.links.get_mut(link)
                {
                    link.padding.negotiate(&negotiate);
                } else {
                    self.totals.cells_dropped += 1;
                }
            }
            OnOpenLink::Refuse => {
                self.totals.cells_dropped += 1;
                self.note_violation(
                    link,
                    "a cell that only clients send, from a relay to us as its client",
                );
            }
            OnOpenLink::Ignore => self.totals.cells_dropped += 1,
        }
    }

    /// One variable-length cell of a link: padding, or nothing that an open link needs.
    fn on_variable_cell(&mut self, command: ChanCmd, as_client: bool) {
        match OnOpenLink::of(command, as_client) {
            OnOpenLink::Padding => self.totals.padding_received += 1,
            OnOpenLink::Relay
            | OnOpenLink::RelayEarly
            | OnOpenLink::Create
            | OnOpenLink::RefuseCreate
            | OnOpenLink::Created
            | OnOpenLink::Destroy
            | OnOpenLink::PaddingNegotiate
            | OnOpenLink::Refuse
            | OnOpenLink::Ignore => self.totals.cells_dropped += 1,
        }
    }

    /// A link is used for this.
    #[inline]
    pub(super) fn link_carries(&mut self, key: LinkKey, usage: LinkUse) {
        if let Some(link) = self.links.get_mut(key) {
            link.padding.carries(usage);
        }
    }

    /// The padding of a link follows the parameters; its peer is sent what this node, as its client, wants.
    pub(super) fn follow_padding_params(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if let Some(wish) = link.padding.follow(&self.params.padding) {
            let cell = self.pool.hold(wish.encode());
            self.push_out(key, cell);
        }
    }

    /// The same of all links.
    pub(super) fn follow_padding_params_everywhere(&mut self) {
        let keys: Vec<LinkKey> = self.links.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.follow_padding_params(key);
        }
    }
}
