//! Links that leave for another thread, and links that arrive
//! (docs/architecture/links.md, "How a link moves").
//!
//! The thread that the link leaves:
//!
//! 1. [`on_move`]: its owner reads the link no more ([`is_leaving`]); every other thread is asked to keep back what
//!    is for the link's halves.
//! 2. When all have answered, nothing more comes for them: [`departing`] names the link, the owner takes the
//!    socket out of its tables and calls [`pack`].
//!
//! The thread where it goes: when every thread, and the controller, have handled what the halves had sent before,
//! [`take_arrival`] has the socket for the owner, which calls [`install`].
//!
//! [`on_move`]: LocalConnectionManager::on_move
//! [`is_leaving`]: LocalConnectionManager::is_leaving
//! [`departing`]: LocalConnectionManager::departing
//! [`pack`]: LocalConnectionManager::pack
//! [`take_arrival`]: LocalConnectionManager::take_arrival
//! [`install`]: LocalConnectionManager::install

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use weft_planted::{Fault, planted};

use crate::address::{ConnectionId, HalfAddr, ThreadId};
use crate::circuit::half::Role;
use crate::link::Link;
use crate::manager::LocalConnectionManager;
use crate::message::{
    Control, FromController, LaneMsg, MovedHalf, Parcel, ToController, TransferCell,
    TransferControl,
};
use crate::moves::routes::{Kept, MOST_CIRCUITS};
use crate::slots::LinkKey;

/// What a thread has to do with the transfer that is under way. There is one at a time.
#[derive(Debug, Default)]
pub(in crate::manager) struct Transfers {
    leaving: Option<Leaving>,
    arriving: Option<Arriving>,
    /// Messages of the controller's that came by way of the thread that a link has left.
    forwarded: VecDeque<FromController>,
}

/// A link that leaves.
#[derive(Debug)]
struct Leaving {
    number: u64,
    connection: ConnectionId,
    to: ThreadId,
    halves: Arc<[HalfAddr]>,
    /// Threads that have not answered yet.
    waiting: usize,
    /// Extensions for the link that came meanwhile.
    joins: Vec<FromController>,
    /// It has left, and messages of the controller's may still come for it.
    has_left: bool,
}

/// A link that arrives.
#[derive(Debug, Default)]
struct Arriving {
    number: u64,
    /// Threads, and the controller, that have handled what its halves sent before.
    passed: usize,
    parcel: Option<Box<Parcel>>,
}

/// A link that has arrived.
#[derive(Debug)]
pub struct Arrival(Box<Parcel>);

impl Arrival {
    /// The connection.
    pub fn connection(&self) -> ConnectionId {
        self.0.link.connection
    }

    /// What the owner of the socket gave to [`LocalConnectionManager::pack`].
    pub fn take_cargo(&mut self) -> Box<dyn Any + Send> {
        std::mem::replace(&mut self.0.cargo, Box::new(()))
    }
}

impl LocalConnectionManager {
    /// The controller wants a link to move to another thread.
    pub(in crate::manager) fn on_move(
        &mut self,
        connection: ConnectionId,
        to: ThreadId,
        number: u64,
    ) {
        let me = self.outboxes.me();
        let link = self.link_of(connection).and_then(|key| self.links.get(key));
        let busy = self.transfers.leaving.is_some() || self.transfers.arriving.is_some();
        let can_move = |link: &&Link| link.circuits() <= MOST_CIRCUITS;
        let is_there = self.outboxes.others().any(|other| other == to);
        let Some(link) = link.filter(|_| !busy && is_there).filter(can_move) else {
            return self
                .to_controller
                .push(ToController::NotMoved { connection });
        };
        let slots = link.slots().into_iter();
        let halves: Arc<[HalfAddr]> = slots.filter_map(|slot| self.halves.addr(slot)).collect();
        let mut waiting = 0;
        for thread in self.outboxes.others() {
            waiting += 1;
            let freeze = TransferCell::Freeze {
                number,
                from: me,
                halves: halves.clone(),
            };
            self.outboxes.send_cell(thread, LaneMsg::Transfer(freeze));
        }
        self.transfers.leaving = Some(Leaving {
            number,
            connection,
            to,
            halves,
            waiting,
            joins: Vec::new(),
            has_left: false,
        });
    }

    /// Whether a link is about to leave: nothing may be read from it.
    pub fn is_leaving(&self, key: LinkKey) -> bool {
        let leaving = self.transfers.leaving.as_ref();
        leaving.is_some_and(|leaving| {
            !leaving.has_left && self.links.of(leaving.connection) == Some(key)
        })
    }

    /// The connection of the link that leaves now: to be [packed](Self::pack) at once.
    pub fn departing(&self) -> Option<ConnectionId> {
        let leaving = self.transfers.leaving.as_ref();
        let ready = leaving.filter(|leaving| leaving.waiting == 0 && !leaving.has_left);
        ready.map(|leaving| leaving.connection)
    }

    /// Sends the link that is [departing](Self::departing) away, with what the owner of its socket adds.
    pub fn pack(&mut self, cargo: Box<dyn Any + Send>, now: Instant) {
        let Some(leaving) = &mut self.transfers.leaving else {
            return;
        };
        let (number, to, halves) = (leaving.number, leaving.to, leaving.halves.clone());
        let (connection, joins) = (leaving.connection, std::mem::take(&mut leaving.joins));
        leaving.has_left = true;
        let Some(key) = self.link_of(connection) else {
            return;
        };
        let slots = self
            .links
            .get(key)
            .map_or_else(Vec::new, |link| link.slots());
        let mut moved = Vec::with_capacity(slots.len());
        for slot in slots {
            let subscribed = self.subscribed_since(slot);
            self.unsubscribe(slot);
            let sent_lately = self.scheduler.sent_lately(slot, now);
            self.scheduler.circuit_removed(slot);
            let addr = self.halves.addr(slot);
            let circpad = addr.and_then(|addr| self.circpad.remove(addr));
            if let (Some(addr), Some(mut half)) = (addr, self.halves.remove(slot)) {
                if let Role::Backward(backward) = &mut half.role {
                    // What it moved in this second is not counted.
                    backward.measured = None;
                }
                self.note_queue_gone(slot, &half, addr, false, now);
                moved.push(MovedHalf {
                    addr,
                    half,
                    sent_lately,
                    subscribed,
                    circpad,
                });
            }
        }
        let live: BTreeSet<HalfAddr> = moved.iter().map(|moved| moved.addr).collect();
        self.scheduler.link_removed(key);
        let Some(mut link) = self.links.remove(key) else {
            return;
        };
        link.begin_to_move();
        let parcel = Parcel {
            number,
            link,
            halves: moved,
            waits: self.waits.take(&live),
            requests: self.to_controller.take(&live),
            cargo,
        };
        self.outboxes.routes.freeze(number, &halves);
        self.to_controller
            .push(ToController::LinkLeft { number, to });
        self.send_transfer(to, TransferControl::Parcel(Box::new(parcel)));
        for thread in self.outboxes.others() {
            let left = TransferCell::Left { number, to };
            self.outboxes.send_cell(thread, LaneMsg::Transfer(left));
        }
        for join in joins {
            self.send_transfer(to, TransferControl::Forward(Box::new(join)));
        }
    }

    /// A link has closed. If it was about to leave, it does not.
    pub(in crate::manager) fn stays(&mut self, connection: ConnectionId) {
        let of_it = |leaving: &mut Leaving| leaving.connection == connection && !leaving.has_left;
        let Some(leaving) = self.transfers.leaving.take_if(of_it) else {
            return;
        };
        for thread in self.outboxes.others() {
            let thaw = TransferCell::Thaw {
                number: leaving.number,
            };
            self.outboxes.send_cell(thread, LaneMsg::Transfer(thaw));
        }
        self.to_controller
            .push(ToController::NotMoved { connection });
        // The controller reads that the link has closed before it reads these, and opens another.
        self.transfers.forwarded.extend(leaving.joins);
    }

    /// A message of the controller's that is not to be carried out here and now: the half has moved, or the link
    /// moves. `None`: it was passed on.
    pub(in crate::manager) fn pass_on(
        &mut self,
        message: FromController,
    ) -> Option<FromController> {
        if let Some(half) = message.half()
            && !self.outboxes.is_here(half)
        {
            let message = Box::new(message);
            self.send_control(crate::message::HalfControl::Controller { to: half, message });
            return None;
        }
        let connection = match &message {
            FromController::Join { connection, .. }
            | FromController::LinkListed { connection, .. }
            | FromController::CloseConnection { connection } => *connection,
            _ => return Some(message),
        };
        let leaving = self.transfers.leaving.as_mut();
        let Some(leaving) = leaving.filter(|leaving| leaving.connection == connection) else {
            return Some(message);
        };
        if leaving.has_left {
            let to = leaving.to;
            self.send_transfer(to, TransferControl::Forward(Box::new(message)));
            return None;
        }
        match message {
            FromController::Join { .. } => {
                leaving.joins.push(message);
                None
            }
            _ => Some(message),
        }
    }

    /// A step of a transfer, in the cell lane.
    pub(in crate::manager) fn on_transfer_cell(&mut self, step: TransferCell, now: Instant) {
        match step {
            TransferCell::Freeze {
                number,
                from,
                halves,
            } => {
                self.outboxes.routes.freeze(number, &halves);
                let frozen = TransferCell::Frozen { number };
                self.outboxes.send_cell(from, LaneMsg::Transfer(frozen));
            }
            TransferCell::Frozen { number } => {
                let leaving = self.transfers.leaving.as_mut();
                if let Some(leaving) = leaving.filter(|leaving| leaving.number == number) {
                    leaving.waiting = leaving.waiting.saturating_sub(1);
                }
            }
            TransferCell::Left { number, to } if to == self.outboxes.me() => self.on_passed(number),
            TransferCell::Left { number, to } => {
                let passed = TransferCell::Passed { number };
                self.outboxes.send_cell(to, LaneMsg::Transfer(passed));
            }
            TransferCell::Passed { number } => self.on_passed(number),
            TransferCell::Thaw { number } => {
                let kept = self.outboxes.routes.thaw(number);
                self.release(kept, now);
            }
        }
    }

    /// A thread, or the controller, has handled what a link's halves sent before it left.
    pub(in crate::manager) fn on_passed(&mut self, number: u64) {
        self.arriving(number).passed += 1;
    }

    fn arriving(&mut self, number: u64) -> &mut Arriving {
        let arriving = self.transfers.arriving.get_or_insert_with(|| Arriving {
            number,
            ..Arriving::default()
        });
        debug_assert_eq!(arriving.number, number, "one link moves at a time");
        arriving
    }

    /// A step of a transfer, in the control lane.
    pub(in crate::manager) fn on_transfer_control(&mut self, step: TransferControl, now: Instant) {
        match step {
            TransferControl::Parcel(parcel) => {
                let number = parcel.number;
                self.arriving(number).parcel = Some(parcel);
            }
            TransferControl::Moved { number, halves, to } => {
                self.outboxes.routes.set(&halves, to);
                let kept = self.outboxes.routes.thaw(number);
                self.release(kept, now);
            }
            TransferControl::Gone { half } => self.outboxes.routes.forget(half),
            TransferControl::Forward(message) => self.transfers.forwarded.push_back(*message),
        }
    }

    /// The link that has arrived, if nothing of before it left is under way any more. The caller makes the socket its
    /// own and calls [`install`](Self::install).
    pub fn take_arrival(&mut self) -> Option<Arrival> {
        // Every other thread but the one that it left; this one, by its lane from that one; and the controller.
        let needed = self.outboxes.others().count().saturating_sub(1) + 2;
        let ready =
            |arriving: &mut Arriving| arriving.passed >= needed && arriving.parcel.is_some();
        self.transfers.arriving.take_if(ready)?.parcel.map(Arrival)
    }

    /// Moves a link in that has arrived. Its bytes are given to [`receive`](Self::receive) from now on.
    pub fn install(&mut self, arrival: Arrival, now: Instant) -> LinkKey {
        let Parcel {
            number,
            link,
            halves,
            waits,
            requests,
            ..
        } = *arrival.0;
        let (connection, network) = (link.connection, link.network);
        let key = self.links.insert(link);
        self.scheduler.link_added(key);
        // They may have changed while it was on its way.
        self.follow_padding_params(key);
        let mut addrs = Vec::with_capacity(halves.len());
        for MovedHalf {
            addr,
            mut half,
            sent_lately,
            subscribed,
            circpad,
        } in halves
        {
            half.link = key;
            let (circ_id, waiting) = (half.circ_id, !half.queue.is_empty());
            let Some(slot) = self.halves.insert_moved(half, addr) else {
                continue;
            };
            addrs.push(addr);
            if let Some(link) = self.links.get_mut(key) {
                link.add(circ_id, slot);
            }
            self.scheduler.circuit_added(slot, key, now);
            self.scheduler.resume(slot, sent_lately, now);
            if waiting {
                self.activate(slot, key);
            }
            if let Some(asked) = subscribed {
                self.subscribe(slot, asked);
            }
            if let Some(circpad) = circpad {
                self.circpad.put(addr, circpad);
            }
        }
        self.load_changed(key);
        if self.links.get(key).is_some_and(|link| !link.is_empty()) {
            self.links.list_to_write(key);
        }
        if !planted(Fault::WaitLostAtMove) {
            self.waits.put(waits);
        }
        let me = self.outboxes.me();
        let moved: Arc<[HalfAddr]> = addrs.into();
        self.outboxes.routes.set(&moved, me);
        for thread in self.outboxes.others() {
            let halves = moved.clone();
            self.send_transfer(
                thread,
                TransferControl::Moved {
                    number,
                    halves,
                    to: me,
                },
            );
        }
        self.to_controller.push(ToController::LinkMoved {
            connection,
            thread: me,
        });
        for (asker, request) in requests {
            self.ask(network, asker, request, now);
        }
        self.totals.links_moved += 1;
        self.totals.halves_moved += moved.len() as u64;
        let kept = self.outboxes.routes.thaw(number);
        self.release(kept, now);
        self.settle(now);
        key
    }

    /// The next message of the controller's that came by another thread; to be handled as one that came at once.
    pub fn poll_forwarded(&mut self) -> Option<FromController> {
        // It may be about a link that has not arrived yet.
        if self.transfers.arriving.is_some() {
            return None;
        }
        self.transfers.forwarded.pop_front()
    }

    /// The controller knows where the link is: nothing more comes for it here.
    pub(in crate::manager) fn on_move_over(&mut self, connection: ConnectionId) {
        let of_it = |leaving: &mut Leaving| leaving.connection == connection;
        let _ = self.transfers.leaving.take_if(of_it);
    }

    /// A half that is not where it was made has closed: no thread needs to know any more where it was.
    pub(in crate::manager) fn forget_route(&mut self, half: HalfAddr) {
        self.outboxes.routes.forget(half);
        if planted(Fault::RouteNotForgotten) {
            return;
        }
        for thread in self.outboxes.others() {
            self.send_transfer(thread, TransferControl::Gone { half });
        }
    }

    /// So much waits for a link that moves that no socket should be read.
    pub fn holds_much(&self) -> bool {
        self.outboxes.routes.holds_much()
    }

    /// Whether a transfer is under way that this thread knows of.
    pub fn is_transferring(&self) -> bool {
        self.transfers.leaving.is_some()
            || self.transfers.arriving.is_some()
            || self.outboxes.routes.is_freezing()
    }

    /// Halves of which this thread knows that they are not where they were made.
    pub fn routes(&self) -> usize {
        self.outboxes.routes.len()
    }

    /// Memory of a link that has arrived and is not installed, and of what waits for one.
    pub(in crate::manager) fn transfer_memory(&self, now: Instant) -> usize {
        let parcel = self
            .transfers
            .arriving
            .as_ref()
            .and_then(|arriving| arriving.parcel.as_ref());
        parcel.map_or(0, |parcel| parcel.memory(now))
            + self.transfers.forwarded.capacity() * size_of::<FromController>()
    }

    fn send_transfer(&mut self, to: ThreadId, step: TransferControl) {
        self.outboxes.send_to(to, Control::Transfer(step));
    }

    /// A message of the controller's for a half that has moved here.
    pub(in crate::manager) fn on_forwarded(&mut self, message: FromController, now: Instant) {
        // None of those that are for halves closes a connection.
        let closed = self.carry_out(message, now);
        debug_assert!(closed.is_empty());
    }

    /// Sends what was kept back, in order.
    fn release(&mut self, kept: VecDeque<Kept>, now: Instant) {
        for message in kept {
            if planted(Fault::KeptMessageLost) {
                continue;
            }
            match message {
                Kept::Control(control) => self.send(control),
                Kept::Cell(message) => self.route_cell(message, now),
            }
            if self.outboxes.has_local() {
                self.settle(now);
            }
        }
    }

    /// Sends a cell that was kept back.
    fn route_cell(&mut self, message: LaneMsg, now: Instant) {
        let half = match &message {
            LaneMsg::Relay(message) => message.to,
            LaneMsg::FromEdge(message) => message.half,
            LaneMsg::ToLeg(message) => message.leg,
            LaneMsg::FromLeg(message) => message.tunnel,
            // Neither is ever kept back.
            LaneMsg::ToEdge(_) | LaneMsg::Transfer(_) => return,
        };
        match self.outboxes.is_here(half) {
            true => self.on_cell_message(message, now),
            false => self.outboxes.send_half_cell(half, message),
        }
    }

    /// Since when a half has asked for this relay's weight.
    fn subscribed_since(&mut self, slot: crate::slots::HalfKey) -> Option<Instant> {
        let (_, _, _, backward) = self.halves.backward(slot)?;
        let subscription = backward.measured.as_ref()?.subscription?;
        Some(subscription.asked)
    }
}
