//! The path of a relayed cell, in the order in which a cell takes it
//! (docs/architecture/cells.md, "One cell, from socket to socket").
//!
//! 1. [`on_relay`]: a RELAY or RELAY_EARLY cell of a link. The half that it arrives on is found; the half
//!    that holds the keys takes a layer off (forward) or puts one on (backward).
//! 2. [`send_cell`]: to the peer half, on this thread at once, on another by its cell lane.
//! 3. [`deliver`]: at the peer half, which may hold the keys.
//! 4. [`enqueue`]: into the queue of that half. The queue is bounded; the scheduler
//!    ([`schedule`](CellPath::schedule)) moves cells from there to the link.
//!
//! A cell that is for this node leaves the path at step 1, as [`Recognized`].
//!
//! [`on_relay`]: CellPath::on_relay
//! [`send_cell`]: CellPath::send_cell
//! [`deliver`]: CellPath::deliver
//! [`enqueue`]: CellPath::enqueue

use std::time::Instant;

use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, CellView, ChanCmd};
use weft_planted::{Fault, planted};

use super::CellPath;
use super::closing::Notify;
use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{Backward, ForwardStage, Peer, Purpose, Role};
use crate::link::padding::LinkUse;
use crate::message::{HalfCell, LaneMsg};
use crate::slots::{HalfKey, LinkKey};

/// A relay message that is for this node: its cell leaves the path.
#[derive(Debug)]
pub(in crate::manager) struct Recognized {
    /// The half on which it arrived.
    pub(in crate::manager) slot: HalfKey,
    /// The node that sent it.
    pub(in crate::manager) hop: HopIndex,
    pub(in crate::manager) cell: Box<Cell>,
    /// It came in a RELAY_EARLY cell.
    pub(in crate::manager) early: bool,
    /// The circuit begins here.
    pub(in crate::manager) at_origin: bool,
}

impl CellPath {
    /// A RELAY or RELAY_EARLY cell of a link. Returns the message that is for this node.
    pub(in crate::manager) fn on_relay(
        &mut self,
        key: LinkKey,
        view: CellView<'_>,
        early: bool,
        now: Instant,
    ) -> Option<Recognized> {
        let Some(slot) = self.links.half_of(key, view.circ_id()) else {
            self.totals.cells_dropped += 1;
            return None;
        };
        let (from, peer) = self.halves.addr_and_peer(slot)?;
        if let Peer::Joined(to) = peer {
            self.touch_half(to);
        }
        let half = self.halves.get_mut(slot)?;
        match &mut half.role {
            Role::Backward(backward) => {
                let Some(crypt) = &mut backward.crypt else {
                    let what = "a relay cell before the circuit was made";
                    self.protocol_error(slot, what, now);
                    return None;
                };
                if early {
                    let Some(left) = backward.relay_early_left.checked_sub(1) else {
                        self.protocol_error(slot, "too many RELAY_EARLY cells", now);
                        return None;
                    };
                    backward.relay_early_left = left;
                }
                self.activity.note(slot, &mut backward.measured);
                let mut cell = self.pool.take();
                cell.set_command(view.command());
                if crypt.decrypt_forward_to(view.command(), view.body(), cell.body_mut()) {
                    self.totals.cells_recognized += 1;
                    return Some(Recognized {
                        slot,
                        hop: HopIndex::ORIGIN,
                        cell,
                        early,
                        at_origin: false,
                    });
                }
                if let Peer::Joined(to) = peer {
                    let usage = match early {
                        true => LinkUse::FullCircuits,
                        false => LinkUse::UserTraffic,
                    };
                    self.links.carries(key, usage);
                    self.send_cell(to, from, cell, now);
                } else {
                    // The circuit ends here: the cell was for this relay, and it is broken.
                    self.pool.put(cell);
                    let what = "a relay cell that nobody on the circuit recognizes";
                    self.protocol_error(slot, what, now);
                }
            }
            Role::Forward(forward) => match peer {
                // RELAY_EARLY cells are forward only.
                Peer::Joined(to) if !early && forward.stage == ForwardStage::Open => {
                    self.relay_backward(to, from, view, now);
                }
                _ if early => self.protocol_error(slot, "a backward RELAY_EARLY cell", now),
                _ => self.protocol_error(slot, "a relay cell before CREATED2", now),
            },
            Role::Origin(_) => return self.on_origin_relay(slot, view, early, now),
            // No link has one.
            Role::Tunnel(_) => {}
        }
        None
    }

    /// RELAY on a circuit of our own.
    fn on_origin_relay(
        &mut self,
        slot: HalfKey,
        view: CellView<'_>,
        early: bool,
        now: Instant,
    ) -> Option<Recognized> {
        let Role::Origin(origin) = &mut self.halves.get_mut(slot)?.role else {
            return None;
        };
        origin.traffic.note_read();
        if early {
            self.protocol_error(slot, "a backward RELAY_EARLY cell", now);
            return None;
        }
        let mut cell = self.pool.take();
        cell.set_command(ChanCmd::RELAY);
        let Some(hop) = (origin.crypt).decrypt_backward_to(view.body(), cell.body_mut()) else {
            self.pool.put(cell);
            let what = "a relay cell that no hop of our circuit made";
            self.protocol_error(slot, what, now);
            return None;
        };
        self.totals.cells_recognized += 1;
        Some(Recognized {
            slot,
            hop: HopIndex::from_index(hop),
            cell,
            early,
            at_origin: true,
        })
    }

    /// Reads what a cell will need of its next half, if that is on this thread: of thousands of circuits nothing is in
    /// the processor's cache, which then waits for it and for the keys of this half at the same time.
    #[inline]
    fn touch_half(&self, to: HalfAddr) {
        if to.thread == self.outboxes.me() {
            self.halves.touch(to.slot);
            self.scheduler.touch(to.slot);
        }
    }

    /// Relays a backward cell. If the half with the keys is on this thread too, the cell gets its layer
    /// on the way from the link's buffer to its own place.
    fn relay_backward(&mut self, to: HalfAddr, from: HalfAddr, view: CellView<'_>, now: Instant) {
        let slot = self.halves.slot(to);
        if let Some(half) = self.halves.get_mut(slot)
            && half.peer == Peer::Joined(from)
            && let Role::Backward(backward) = &mut half.role
            && let Some(crypt) = &mut backward.crypt
        {
            self.links.touch(half.link);
            self.activity.note(slot, &mut backward.measured);
            let mut cell = self.pool.take();
            cell.set_command(ChanCmd::RELAY);
            crypt.encrypt_backward_to(view.body(), cell.body_mut());
            self.totals.cells_relayed += 1;
            self.enqueue(slot, cell, now);
        } else {
            let cell = self.pool.copy_of(view.as_bytes());
            self.send_cell(to, from, cell, now);
        }
    }

    /// Sends a cell to a half, wherever it is.
    fn send_cell(&mut self, to: HalfAddr, from: HalfAddr, cell: Box<Cell>, now: Instant) {
        if self.outboxes.is_here(to) {
            self.deliver(to, from, cell, now);
        } else {
            let message = LaneMsg::Relay(HalfCell { to, from, cell });
            self.outboxes.send_half_cell(to, message);
        }
    }

    /// A relay cell of the peer half: the half that holds the keys adds its layer, and the cell waits for
    /// the scheduler.
    pub(in crate::manager) fn deliver(
        &mut self,
        to: HalfAddr,
        from: HalfAddr,
        mut cell: Box<Cell>,
        now: Instant,
    ) {
        let slot = self.halves.slot(to);
        let ready = match self.halves.get_mut(slot) {
            Some(half) if half.peer == Peer::Joined(from) => match &mut half.role {
                Role::Backward(Backward {
                    crypt: Some(crypt),
                    measured,
                    purpose,
                    ..
                }) => {
                    self.activity.note(slot, measured);
                    // Both halves of a rendezvous are backward halves: all of its cells come here.
                    let meets = *purpose == Purpose::Rendezvous;
                    self.totals.rendezvous.cells += u64::from(meets);
                    crypt.encrypt_backward(cell.body_mut());
                    cell.set_command(ChanCmd::RELAY);
                    true
                }
                Role::Backward(_) | Role::Origin(_) | Role::Tunnel(_) => false,
                Role::Forward(_) => true,
            },
            _ => false,
        };
        if ready && planted(Fault::CellTwice) {
            let again = self.pool.copy_of(cell.as_bytes());
            self.enqueue(slot, again, now);
        }
        if ready && !planted(Fault::CellLost) {
            self.totals.cells_relayed += 1;
            self.enqueue(slot, cell, now);
        } else {
            self.totals.cells_dropped += 1;
            self.pool.put(cell);
        }
    }

    /// Puts a cell in a half's queue; past the bound the circuit is closed (architecture rule 3).
    pub(in crate::manager) fn enqueue(&mut self, slot: HalfKey, mut cell: Box<Cell>, now: Instant) {
        let Some(half) = self.halves.get_mut(slot) else {
            self.pool.put(cell);
            return;
        };
        let (bound, is_forward) = match half.role {
            Role::Backward(_) => (self.params.max_queue_backward, false),
            Role::Forward(_) | Role::Origin(_) | Role::Tunnel(_) => {
                (self.params.max_queue_forward, true)
            }
        };
        if half.queue.len() >= bound && !planted(Fault::QueueBoundIgnored) {
            self.pool.put(cell);
            self.totals.queues_overflowed += 1;
            self.totals.queues_overflowed_forward += u64::from(is_forward);
            self.close_half(slot, DestroyReason::RESOURCELIMIT, Notify::Overflowed, now);
            return;
        }
        cell.set_circ_id(half.circ_id);
        let first = half.queue.is_empty();
        half.queue.push(cell, now);
        if first {
            let key = half.link;
            self.activate(slot, key);
        }
    }

    /// A half whose queue was empty has cells: the scheduler counts it in.
    pub(in crate::manager) fn activate(&mut self, slot: HalfKey, key: LinkKey) {
        self.scheduler.set_active(slot, true);
        self.links.activated(key);
    }
}
