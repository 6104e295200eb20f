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
//! [`on_move`]: Transfers::on_move
//! [`is_leaving`]: Transfers::is_leaving
//! [`departing`]: Transfers::departing
//! [`pack`]: Transfers::pack
//! [`take_arrival`]: Transfers::take_arrival
//! [`install`]: Transfers::install

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use weft_planted::{Fault, planted};

use crate::address::{ConnectionId, HalfAddr, ThreadId};
use crate::circuit::half::Role;
use crate::extensions::circpad::Machines;
use crate::link::{Link, Links};
use crate::manager::circuits::abra::Abra;
use crate::manager::path::CellPath;
use crate::manager::path::outbox::Outboxes;
use crate::message::{
    FromController, HalfControl, LaneMsg, MovedHalf, Parcel, ToController, TransferCell,
    TransferControl,
};
use crate::moves::routes::{Kept, MOST_CIRCUITS};
use crate::slots::LinkKey;

/// Tables beside the path that list halves: their entries move with the halves.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    pub(super) abra: &'a mut Abra,
    pub(super) circpad: &'a mut Machines,
}

/// This thread's part of the transfer that is under way. There is one at a time.
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

    /// The cargo that the socket's owner passed to `pack`.
    pub fn take_cargo(&mut self) -> Box<dyn Any + Send> {
        std::mem::replace(&mut self.0.cargo, Box::new(()))
    }
}

impl Transfers {
    /// The controller wants a link to move to another thread.
    pub(in crate::manager) fn on_move(
        &mut self,
        path: &mut CellPath,
        connection: ConnectionId,
        to: ThreadId,
        number: u64,
    ) {
        let me = path.outboxes.me();
        let link = path
            .links
            .of(connection)
            .and_then(|key| path.links.get(key));
        let busy = self.leaving.is_some() || self.arriving.is_some();
        let can_move = |link: &&Link| link.circuits() <= MOST_CIRCUITS;
        let is_there = path.outboxes.others().any(|other| other == to);
        let Some(link) = link.filter(|_| !busy && is_there).filter(can_move) else {
            return path
                .to_controller
                .push(ToController::NotMoved { connection });
        };
        let slots = link.slots().into_iter();
        let halves: Arc<[HalfAddr]> = slots.filter_map(|slot| path.halves.addr(slot)).collect();
        let mut waiting = 0;
        for thread in path.outboxes.others() {
            waiting += 1;
            let freeze = TransferCell::Freeze {
                number,
                from: me,
                halves: halves.clone(),
            };
            path.outboxes.send_cell(thread, LaneMsg::Transfer(freeze));
        }
        self.leaving = Some(Leaving {
            number,
            connection,
            to,
            halves,
            waiting,
            joins: Vec::new(),
            has_left: false,
        });
    }

    /// True if a link is about to leave: nothing may be read from it.
    pub(in crate::manager) fn is_leaving(&self, links: &Links, key: LinkKey) -> bool {
        let leaving = self.leaving.as_ref();
        leaving
            .is_some_and(|leaving| !leaving.has_left && links.of(leaving.connection) == Some(key))
    }

    /// The connection of the link that leaves now: to be [packed](Self::pack) at once.
    pub(in crate::manager) fn departing(&self) -> Option<ConnectionId> {
        let leaving = self.leaving.as_ref();
        let ready = leaving.filter(|leaving| leaving.waiting == 0 && !leaving.has_left);
        ready.map(|leaving| leaving.connection)
    }

    /// Sends the link that is [departing](Self::departing) away, with what the owner of its socket adds.
    pub(in crate::manager) fn pack(
        &mut self,
        path: &mut CellPath,
        listed: &mut Listed<'_>,
        cargo: Box<dyn Any + Send>,
        now: Instant,
    ) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        let (number, to, halves) = (leaving.number, leaving.to, leaving.halves.clone());
        let (connection, joins) = (leaving.connection, std::mem::take(&mut leaving.joins));
        leaving.has_left = true;
        let Some(key) = path.links.of(connection) else {
            return;
        };
        let slots = path
            .links
            .get(key)
            .map_or_else(Vec::new, |link| link.slots());
        let mut moved = Vec::with_capacity(slots.len());
        for slot in slots {
            let sent_lately = path.scheduler.sent_lately(slot, now);
            path.scheduler.circuit_removed(slot);
            let addr = path.halves.addr(slot);
            if let (Some(addr), Some(mut half)) = (addr, path.halves.remove(slot)) {
                if let Role::Backward(backward) = &mut half.role {
                    // What it moved in this second is not counted.
                    backward.measured = None;
                }
                path.note_queue_gone(slot, &half, addr, false, now);
                let subscribed = listed.abra.unsubscribe(addr);
                let circpad = listed.circpad.remove(addr);
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
        path.scheduler.link_removed(key);
        let Some(mut link) = path.links.remove(key) else {
            return;
        };
        link.begin_to_move();
        let parcel = Parcel {
            number,
            link,
            halves: moved,
            waits: path.waits.take(&live),
            requests: path.to_controller.take(&live),
            cargo,
        };
        path.outboxes.routes.freeze(number, &halves);
        path.to_controller
            .push(ToController::LinkLeft { number, to });
        path.outboxes
            .send_transfer(to, TransferControl::Parcel(Box::new(parcel)));
        for thread in path.outboxes.others() {
            let left = TransferCell::Left { number, to };
            path.outboxes.send_cell(thread, LaneMsg::Transfer(left));
        }
        for join in joins {
            path.outboxes
                .send_transfer(to, TransferControl::Forward(Box::new(join)));
        }
    }

    /// A link has closed. If it was about to leave, it does not.
    pub(in crate::manager) fn stays(&mut self, path: &mut CellPath, connection: ConnectionId) {
        let of_it = |leaving: &mut Leaving| leaving.connection == connection && !leaving.has_left;
        let Some(leaving) = self.leaving.take_if(of_it) else {
            return;
        };
        for thread in path.outboxes.others() {
            let thaw = TransferCell::Thaw {
                number: leaving.number,
            };
            path.outboxes.send_cell(thread, LaneMsg::Transfer(thaw));
        }
        path.to_controller
            .push(ToController::NotMoved { connection });
        // The controller reads that the link has closed before it reads these, and opens another.
        self.forwarded.extend(leaving.joins);
    }

    /// A message of the controller's that is not to be carried out here and now: the half has moved, or the link
    /// moves. `None`: it was passed on.
    pub(in crate::manager) fn pass_on(
        &mut self,
        path: &mut CellPath,
        message: FromController,
    ) -> Option<FromController> {
        if let Some(half) = message.half()
            && !path.outboxes.is_here(half)
        {
            let message = Box::new(message);
            path.outboxes
                .send_half(HalfControl::Controller { to: half, message });
            return None;
        }
        let connection = match &message {
            FromController::Join { connection, .. }
            | FromController::LinkListed { connection, .. }
            | FromController::CloseConnection { connection } => *connection,
            _ => return Some(message),
        };
        let leaving = self.leaving.as_mut();
        let Some(leaving) = leaving.filter(|leaving| leaving.connection == connection) else {
            return Some(message);
        };
        if leaving.has_left {
            let to = leaving.to;
            path.outboxes
                .send_transfer(to, TransferControl::Forward(Box::new(message)));
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
    pub(in crate::manager) fn on_transfer_cell(&mut self, path: &mut CellPath, step: TransferCell) {
        match step {
            TransferCell::Freeze {
                number,
                from,
                halves,
            } => {
                path.outboxes.routes.freeze(number, &halves);
                let frozen = TransferCell::Frozen { number };
                path.outboxes.send_cell(from, LaneMsg::Transfer(frozen));
            }
            TransferCell::Frozen { number } => {
                let leaving = self.leaving.as_mut();
                if let Some(leaving) = leaving.filter(|leaving| leaving.number == number) {
                    leaving.waiting = leaving.waiting.saturating_sub(1);
                }
            }
            TransferCell::Left { number, to } if to == path.outboxes.me() => self.on_passed(number),
            TransferCell::Left { number, to } => {
                let passed = TransferCell::Passed { number };
                path.outboxes.send_cell(to, LaneMsg::Transfer(passed));
            }
            TransferCell::Passed { number } => self.on_passed(number),
            TransferCell::Thaw { number } => {
                let kept = path.outboxes.routes.thaw(number);
                release(path, kept);
            }
        }
    }

    /// A thread, or the controller, has handled what a link's halves sent before it left.
    pub(in crate::manager) fn on_passed(&mut self, number: u64) {
        self.arriving(number).passed += 1;
    }

    fn arriving(&mut self, number: u64) -> &mut Arriving {
        let arriving = self.arriving.get_or_insert_with(|| Arriving {
            number,
            ..Arriving::default()
        });
        debug_assert_eq!(arriving.number, number, "one link moves at a time");
        arriving
    }

    /// A step of a transfer, in the control lane.
    pub(in crate::manager) fn on_transfer_control(
        &mut self,
        path: &mut CellPath,
        step: TransferControl,
    ) {
        match step {
            TransferControl::Parcel(parcel) => {
                let number = parcel.number;
                self.arriving(number).parcel = Some(parcel);
            }
            TransferControl::Moved { number, halves, to } => {
                path.outboxes.routes.set(&halves, to);
                let kept = path.outboxes.routes.thaw(number);
                release(path, kept);
            }
            TransferControl::Gone { half } => path.outboxes.routes.forget(half),
            TransferControl::Forward(message) => self.forwarded.push_back(*message),
        }
    }

    /// The link that has arrived, if nothing of before it left is under way any more. The caller makes the socket its
    /// own and calls [`install`](Self::install).
    pub(in crate::manager) fn take_arrival(&mut self, outboxes: &Outboxes) -> Option<Arrival> {
        // Every other thread but the one that it left; this one, by its lane from that one; and the controller.
        let needed = outboxes.others().count().saturating_sub(1) + 2;
        let ready =
            |arriving: &mut Arriving| arriving.passed >= needed && arriving.parcel.is_some();
        self.arriving.take_if(ready)?.parcel.map(Arrival)
    }

    /// Moves a link in that has arrived. Its bytes are given to [`receive`](Self::receive) from now on.
    pub(in crate::manager) fn install(
        &mut self,
        path: &mut CellPath,
        listed: &mut Listed<'_>,
        arrival: Arrival,
        now: Instant,
    ) -> LinkKey {
        let Parcel {
            number,
            link,
            halves,
            waits,
            requests,
            ..
        } = *arrival.0;
        let (connection, network) = (link.connection, link.network);
        let key = path.links.insert(link);
        path.scheduler.link_added(key);
        // They may have changed while it was on its way.
        path.follow_padding_params(key);
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
            let Some(slot) = path.halves.insert_moved(half, addr) else {
                continue;
            };
            addrs.push(addr);
            if let Some(link) = path.links.get_mut(key) {
                link.add(circ_id, slot);
            }
            path.scheduler.circuit_added(slot, key, now);
            path.scheduler.resume(slot, sent_lately, now);
            if waiting {
                path.activate(slot, key);
            }
            if let Some(asked) = subscribed {
                listed.abra.subscribe(addr, asked);
            }
            if let Some(circpad) = circpad {
                listed.circpad.put(addr, circpad);
            }
        }
        path.load_changed(key);
        if path.links.get(key).is_some_and(|link| !link.is_empty()) {
            path.links.list_to_write(key);
        }
        if !planted(Fault::WaitLostAtMove) {
            path.waits.put(waits);
        }
        let me = path.outboxes.me();
        let moved: Arc<[HalfAddr]> = addrs.into();
        path.outboxes.routes.set(&moved, me);
        for thread in path.outboxes.others() {
            let halves = moved.clone();
            path.outboxes.send_transfer(
                thread,
                TransferControl::Moved {
                    number,
                    halves,
                    to: me,
                },
            );
        }
        path.to_controller.push(ToController::LinkMoved {
            connection,
            thread: me,
        });
        for (asker, request) in requests {
            path.ask(network, asker, request, now);
        }
        path.totals.links_moved += 1;
        path.totals.halves_moved += moved.len() as u64;
        let kept = path.outboxes.routes.thaw(number);
        release(path, kept);
        key
    }

    /// The next message of the controller's that came by another thread; to be handled as one that came at once.
    pub(in crate::manager) fn poll_forwarded(&mut self) -> Option<FromController> {
        // It may be about a link that has not arrived yet.
        if self.arriving.is_some() {
            return None;
        }
        self.forwarded.pop_front()
    }

    /// The controller knows where the link is: nothing more comes for it here.
    pub(in crate::manager) fn on_move_over(&mut self, connection: ConnectionId) {
        let of_it = |leaving: &mut Leaving| leaving.connection == connection;
        let _ = self.leaving.take_if(of_it);
    }

    /// True if a link leaves or arrives.
    pub(in crate::manager) fn is_under_way(&self) -> bool {
        self.leaving.is_some() || self.arriving.is_some()
    }

    /// Memory of a link that has arrived and is not installed, and of what waits for one.
    pub(in crate::manager) fn memory(&self, now: Instant) -> usize {
        let arriving = self.arriving.as_ref();
        let parcel = arriving.and_then(|arriving| arriving.parcel.as_ref());
        parcel.map_or(0, |parcel| parcel.memory(now))
            + self.forwarded.capacity() * size_of::<FromController>()
    }
}

/// Sends what was kept back, in order.
fn release(path: &mut CellPath, kept: VecDeque<Kept>) {
    for message in kept {
        if planted(Fault::KeptMessageLost) {
            continue;
        }
        match message {
            Kept::Control(control) => path.outboxes.send(control),
            Kept::Cell(message) => send_again(path, message),
        }
    }
}

/// Sends a cell that was kept back.
fn send_again(path: &mut CellPath, message: LaneMsg) {
    let half = match &message {
        LaneMsg::Relay(message) => message.to,
        LaneMsg::FromEdge(message) => message.half,
        LaneMsg::ToLeg(message) => message.leg,
        LaneMsg::FromLeg(message) => message.tunnel,
        // Neither is ever kept back.
        LaneMsg::ToEdge(_) | LaneMsg::Transfer(_) => return,
    };
    path.outboxes.send_half_cell(half, message);
}
